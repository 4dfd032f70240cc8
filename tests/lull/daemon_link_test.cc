#include "tools/lull/daemon_link.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

using namespace lull::command;

namespace {

// A daemon that answers one question with fixed packets.
class OneAnswer {
 public:
  explicit OneAnswer(std::vector<std::string> packets) {
    std::string pattern = "/tmp/lull-link-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    path = folder_ + "/socket";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    fd_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    REQUIRE(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(fd_, 1) == 0);
    thread_ = std::thread([this, packets = std::move(packets)] {
      const int peer = accept(fd_, nullptr, nullptr);
      char question[4096];
      const ssize_t size = recv(peer, question, sizeof question, 0);
      asked.assign(question, size > 0 ? static_cast<size_t>(size) : 0);
      for (const std::string& packet : packets)
        send(peer, packet.data(), packet.size(), MSG_NOSIGNAL);
      close(peer);
    });
  }
  ~OneAnswer() {
    thread_.join();
    close(fd_);
    std::filesystem::remove_all(folder_);
  }
  std::string path, asked;

 private:
  std::string folder_;
  int fd_ = -1;
  std::thread thread_;
};

}  // namespace

TEST_CASE("an answer in several packets is one answer") {
  OneAnswer daemon({R"({"ok":true,"pid)", R"(":7})"});
  const auto answer = ask_daemon(daemon.path, {{"op", "ping"}});
  REQUIRE(answer);
  CHECK((*answer)["pid"] == 7);
}

TEST_CASE("lists of the next page follow, and an entry that continues goes on with the last") {
  using nlohmann::json;
  json answer = {{"ok", true}, {"pid", 7}, {"records", {{{"task", "a"}, {"kernels", {1, 2}}}}}};
  add_page(answer, {{"ok", true},
                    {"next", 4},
                    {"records",
                     {{{"task", "a"}, {"continues", true}, {"kernels", {3}}},
                      {{"task", "b"}, {"kernels", {4}}}}}});
  REQUIRE(answer["records"].size() == 2);
  CHECK(answer["records"][0]["kernels"] == json{1, 2, 3});
  CHECK(answer["records"][1] == json{{"task", "b"}, {"kernels", {4}}});
  CHECK(answer["pid"] == 7);
  CHECK_FALSE(answer.contains("next"));
}

TEST_CASE("a refusal hands on the daemon's line") {
  OneAnswer daemon({R"({"ok":false,"error":"unknown policy 'x'"})"});
  const auto answer = ask_daemon(daemon.path, {{"op", "policy"}});
  REQUIRE_FALSE(answer);
  CHECK(answer.error().kind == AskError::kRefused);
  CHECK(answer.error().text == "unknown policy 'x'");
}

TEST_CASE("an answer that is none is not understood, and nothing throws") {
  for (const char* text : {"", "{", "[]", "{}", R"({"ok":1})", "\xff\xfe"}) {
    OneAnswer daemon({text});
    const auto answer = ask_daemon(daemon.path, {{"op", "ping"}});
    REQUIRE_FALSE(answer);
    CHECK(answer.error().kind == AskError::kGarbled);
  }
}

TEST_CASE("where no daemon is, the error names the path and what to do") {
  const auto answer = ask_daemon("/tmp/no/such/lulld.sock", {{"op", "ping"}});
  REQUIRE_FALSE(answer);
  CHECK(answer.error().kind == AskError::kUnreachable);
  CHECK(answer.error().text.find("/tmp/no/such/lulld.sock") != std::string::npos);
  CHECK(answer.error().text.find("start lulld") != std::string::npos);
  CHECK_FALSE(ask_daemon("", {{"op", "ping"}}));
  CHECK_FALSE(ask_daemon(std::string(500, 'x'), {{"op", "ping"}}));
}

TEST_CASE("a daemon that does not answer in time is there all the same") {
  std::string folder = "/tmp/lull-link-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (folder + "/s").copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(listen(fd, 1) == 0);
  const auto answer = ask_daemon(folder + "/s", {{"op", "ping"}}, std::chrono::milliseconds(1));
  REQUIRE_FALSE(answer);
  CHECK(answer.error().kind == AskError::kSilent);
  CHECK(answer.error().text.find("does not answer") != std::string::npos);
  close(fd);
  std::filesystem::remove_all(folder);
}
