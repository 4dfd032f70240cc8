#include "tools/lull/daemon_link.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "coordinator/channel/messages.h"
#include "coordinator/channel/socket_place.h"
#include "coordinator/channel/trust_facts.h"

namespace lull::command {
namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

std::string mend(int error, const std::string& path) {
  switch (error) {
    case ENOENT:
      return fmt::format("no daemon at {}: start lulld, or give --socket", path);
    case ECONNREFUSED:
      return fmt::format("no daemon listens at {}: start lulld", path);
    case EACCES:
    case EPERM:
      return fmt::format("no permission for {}: ask for access to it", path);
    case EPROTOTYPE:
      return fmt::format("{} is no socket of lulld: give its own with --socket", path);
    case EAGAIN:
      return fmt::format("the daemon at {} does not answer within {} s: look at its log", path,
                         kAnswerWait.count() / 1000);
    default:
      return fmt::format("{}: {}: is lulld running?", path, std::strerror(error));
  }
}

std::expected<nlohmann::json, AskError> ask_for_page(const std::string& path,
                                                     const nlohmann::json& question,
                                                     size_t most_bytes,
                                                     std::chrono::milliseconds wait) {
  const auto unreachable = [&](int error) {
    const auto kind = error == EAGAIN ? AskError::kSilent : AskError::kUnreachable;
    return std::unexpected(AskError{kind, mend(error, path)});
  };
  const auto garbled = [&](const std::string& why) {
    return std::unexpected(
        AskError{AskError::kGarbled,
                 fmt::format("the answer from {} {}: is the daemon of this version?", path, why)});
  };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return std::unexpected(AskError{
        AskError::kUnreachable, fmt::format("'{}' is no path of a socket: use 1 to {} characters",
                                            path, sizeof(address.sun_path) - 1)});
  }
  std::memcpy(address.sun_path, path.data(), path.size());

  const channel::TrustFacts facts = channel::trust_facts(path.c_str());
  const auto distrusted = [&](channel::Distrust why) {
    return std::unexpected(AskError{AskError::kDistrusted,
                                    fmt::format("{} at {}: {}", channel::what_is_wrong(why), path,
                                                channel::what_to_do(facts, why))});
  };
  if (const auto why = channel::judge_place(facts); why != channel::Distrust::kNone) {
    return distrusted(why);
  }

  Descriptor link{socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  if (link.fd < 0) return unreachable(errno);
  const auto deadline = std::chrono::steady_clock::now() + wait;
  // SO_SNDTIMEO bounds connect as well, when the daemon's backlog is full.
  const auto limit = [&](int option) {
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(
                          deadline - std::chrono::steady_clock::now())
                          .count();
    if (left <= 0) return false;
    const timeval rest{left / 1'000'000, left % 1'000'000};
    return setsockopt(link.fd, SOL_SOCKET, option, &rest, sizeof rest) == 0;
  };
  if (!limit(SO_SNDTIMEO)) return unreachable(EAGAIN);
  while (connect(link.fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    if (errno != EINTR) return unreachable(errno);
  }
  if (const auto why = channel::judge_connection(facts, link.fd); why != channel::Distrust::kNone) {
    return distrusted(why);
  }
  const std::string words = question.dump();
  if (send(link.fd, words.data(), words.size(), MSG_NOSIGNAL) < 0) return unreachable(errno);

  std::string answer;
  std::vector<char> packet(channel::kReplyChunkBytes);
  for (;;) {
    if (!limit(SO_RCVTIMEO)) return unreachable(EAGAIN);
    const ssize_t got = recv(link.fd, packet.data(), packet.size(), 0);
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      // A daemon that has said everything may close with our bytes unread.
      if (errno == ECONNRESET && !answer.empty()) break;
      return unreachable(errno);
    }
    answer.append(packet.data(), static_cast<size_t>(got));
    if (answer.size() > most_bytes) return garbled("is endless");
  }
  if (answer.empty()) return garbled("is empty");
  nlohmann::json parsed = nlohmann::json::parse(answer, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object() || !parsed.contains("ok") || !parsed["ok"].is_boolean()) {
    return garbled("is not understood");
  }
  if (parsed["ok"].get<bool>()) return parsed;
  std::string why = "the daemon refuses without a reason";
  if (parsed.contains("error") && parsed["error"].is_string()) why = parsed["error"];
  return std::unexpected(AskError{AskError::kRefused, why});
}

}  // namespace

std::string default_socket() { return channel::socket_place().path; }

void add_page(nlohmann::json& answer, const nlohmann::json& page) {
  for (const auto& [key, value] : page.items()) {
    if (!value.is_array() || !answer.contains(key) || !answer[key].is_array()) {
      if (value.is_array()) answer[key] = value;
      continue;
    }
    nlohmann::json& list = answer[key];
    for (const nlohmann::json& entry : value) {
      if (entry.is_object() && entry.value("continues", nlohmann::json()) == true &&
          !list.empty() && list.back().is_object()) {
        add_page(list.back(), entry);
      } else {
        list.push_back(entry);
      }
    }
  }
}

std::expected<nlohmann::json, AskError> ask_daemon(const std::string& path,
                                                   const nlohmann::json& question,
                                                   std::chrono::milliseconds wait) {
  const auto give_up = std::chrono::steady_clock::now() + kWholeAnswerWait;
  auto answer = ask_for_page(path, question, kAnswerBytesMax, wait);
  if (!answer) return answer;
  nlohmann::json ask_on = question;
  uint64_t from = 0;
  size_t pages = 1;
  while (answer->contains("next")) {
    const nlohmann::json next = (*answer)["next"];
    answer->erase("next");
    if (!next.is_number_unsigned() || next.get<uint64_t>() <= from || ++pages > kPagesMax ||
        std::chrono::steady_clock::now() > give_up) {
      return std::unexpected(AskError{
          AskError::kGarbled,
          fmt::format("the answer from {} has no end: is the daemon of this version?", path)});
    }
    from = next.get<uint64_t>();
    ask_on["from"] = from;
    const auto page = ask_for_page(path, ask_on, kAnswerBytesMax, wait);
    if (!page) return page;
    add_page(*answer, *page);
    if (page->contains("next")) (*answer)["next"] = (*page)["next"];
  }
  return answer;
}

}  // namespace lull::command
