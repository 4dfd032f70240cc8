// What Daemon does for tools and for its operator: status, policy, priorities, configuration.
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "coordinator/daemon/daemon.h"
#include "coordinator/daemon/processor_time.h"
#include "policies/launch/registry.h"

namespace lull::daemon {
namespace {

// Requests take a fifth of the loop's processor time at most.
constexpr uint64_t kRequestPause = 4;

}  // namespace

// ---- whose turn it is ---------------------------------------------------------------------------

size_t Daemon::unread_bytes(const uid_t* user) const {
  size_t bytes = 0;
  for (const auto& [id, tool] : tools_) {
    if (user == nullptr || tool.peer().uid == *user) bytes += tool.unread_bytes();
  }
  return bytes;
}

bool Daemon::may_ask(uid_t user) const {
  if (unread_bytes(&user) >= kUnreadBytesOfUser) return false;
  return std::ranges::none_of(tools_, [&](const auto& entry) {
    return entry.second.state() == ToolConnection::State::kBeingAnswered &&
           entry.second.peer().uid == user;
  });
}

// One a turn at most, and then none for some times as long as it took: clients come first.
void Daemon::answer_requests() {
  if (requests_.empty()) return;
  if (channel::monotonic_ns() < next_request_ns_) return;
  const uint64_t used_before_ns = processor_ns();
  const uint64_t bytes_before = figures_.requests.reply_bytes;
  uint64_t pages = 0;
  while (pages == 0) {
    const auto id = requests_.pop([this](uid_t user) { return may_ask(user); });
    if (!id) return;
    const auto found = tools_.find(*id);
    if (found == tools_.end()) continue;  // it has gone meanwhile
    ToolConnection& tool = found->second;
    std::string request(kMaxRequestBytes + 1, '\0');
    const ssize_t got =
        ::recv(tool.socket(), request.data(), request.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (got <= 0) {
      tools_.erase(found);
      continue;
    }
    ++pages;
    if (static_cast<size_t>(got) > kMaxRequestBytes) {
      reply_to(*id, R"({"ok":false,"error":"request too long: at most 65536 bytes"})");
      break;
    }
    request.resize(static_cast<size_t>(got));
    tool.set_state(ToolConnection::State::kBeingAnswered);
    const Peer peer = tool.peer();
    answer(request, peer, *this,
           [this, tool = *id](std::string text) { reply_to(tool, std::move(text)); });
  }
  RequestFigures& figures = figures_.requests;
  figures.answered += pages;
  figures.most_pages_a_turn = std::max(figures.most_pages_a_turn, pages);
  figures.most_bytes_a_turn =
      std::max(figures.most_bytes_a_turn, figures.reply_bytes - bytes_before);
  next_request_ns_ = channel::monotonic_ns() + kRequestPause * (processor_ns() - used_before_ns);
}

// The tool may have gone.
void Daemon::reply_to(uint32_t id, std::string text) {
  const auto found = tools_.find(id);
  if (found == tools_.end()) return;
  ToolConnection& tool = found->second;
  RequestFigures& figures = figures_.requests;
  figures.reply_bytes += text.size();
  tool.set_reply(std::move(text));
  figures.most_unread_bytes = std::max<uint64_t>(figures.most_unread_bytes, unread_bytes(nullptr));
  if (tool.send_more()) {
    watch(tool.socket(), Source::kTool, id, EPOLLOUT);
  } else {
    tools_.erase(found);
  }
}

// ---- what is asked ------------------------------------------------------------------------------

nlohmann::json Daemon::status(uint32_t from) {
  // What rings hold now belongs to the answer.
  step_engine();
  step_moves(channel::monotonic_ns());
  nlohmann::json reply = {{"ok", true}};
  if (from == 0) {
    figures_.uptime_s = (channel::monotonic_ns() - started_ns_) / 1'000'000'000;
    reply = make_status_head(engine_->status({}, 0), devices_, clock_, figures_);
    reply["job_policy"] = job_policy_json();
    reply["trace"] = recorder_ ? recorder_->figures() : last_trace_;
    if (decisions_) {
      reply["decision_log"] = {{"steps", decisions_->steps()},
                               {"bytes", decisions_->bytes()},
                               {"failure", decisions_->failure()}};
    }
  }
  add_clients(reply, from, *engine_, sessions_, devices_, why_unknown(), clock_, rates_);
  // A job is on the page of its first client.
  nlohmann::json& jobs = reply["jobs"] = nlohmann::json::array();
  for (const nlohmann::json& client : reply["clients"]) {
    const ClientId id{client["id"].get<uint32_t>()};
    const auto job = moves_->job_of(id);
    const auto status = job ? moves_->status(*job) : std::nullopt;
    if (status && status->clients.front() == id) jobs.push_back(job_json(*job));
  }
  return reply;
}

std::expected<nlohmann::json, std::string> Daemon::kernels(ClientId client, uint32_t from) {
  const auto found = sessions_.find(client.value);
  if (found == sessions_.end() || found->second->gone) {
    return std::unexpected(fmt::format(
        "cannot list kernels: no client {}: see `lull status` for client ids", client.value));
  }
  Session& session = *found->second;
  session.map_kernels();
  return make_kernels(session, from);
}

std::string Daemon::policy_text() { return engine_->policy(); }

bool Daemon::is_operator(const Peer& peer) const {
  if (peer.uid == 0 || peer.uid == ::geteuid()) return true;
  const auto& operators = settings_.config.operators;
  return std::any_of(operators.begin(), operators.end(),
                     [&](const PeerMatch& who) { return who.matches(peer); });
}

std::expected<void, std::string> Daemon::must_be_operator(const char* to_do, const Peer& peer) const {
  if (is_operator(peer)) return {};
  return std::unexpected(
      fmt::format("cannot {}: uid {} is no operator of this lulld: ask one, or be added to operators "
                  "in its configuration",
                  to_do, peer.uid));
}

PriorityVerdict Daemon::judge(const Peer& peer, Priority asked) const {
  return rules_.judge(peer, asked);
}

void Daemon::adopt_policy(const std::string& text) {
  const auto choice = policies::parse_policy(text);
  policy_holds_ = choice && choice->row->holding != policies::Holding::kNothing;
}

std::expected<std::string, std::string> Daemon::change_policy(const std::string& text,
                                                              const Peer& peer) {
  if (const auto allowed = must_be_operator("change the policy", peer); !allowed) {
    return std::unexpected(allowed.error());
  }
  const auto good = policies::check_policy(text);
  if (!good) return std::unexpected(good.error());
  inputs_.emplace_back(clock_.now(), engine::PolicyChanged{*good});
  step_engine();
  adopt_policy(*good);
  if (recorder_) recorder_->policy_changed(*good, clock_.now());
  for (const auto& [id, session] : sessions_) {
    if (!session->gone) wake(*session);
  }
  log_.detail(fmt::format("policy {} (asked by uid {}, pid {})", *good, peer.uid, peer.pid));
  return policy_text();
}

std::expected<std::vector<ClientId>, std::string> Daemon::change_priority(const std::string& task,
                                                                          Priority level,
                                                                          const Peer& peer) {
  std::vector<Session*> named;
  const auto collect = [&](auto&& is_named) {
    if (!named.empty()) return;
    for (const auto& [id, session] : sessions_) {
      if (!session->gone && is_named(*session)) named.push_back(session.get());
    }
  };
  // Numbers first: a task may call itself by another's process id.
  collect([&](const Session& s) { return s.who().is_process(task); });
  collect([&](const Session& s) { return fmt::format("{}", s.id().value) == task; });
  collect([&](const Session& s) { return s.who().task == task; });
  collect([&](const Session& s) {
    return !task.empty() && s.who().job_name == task &&
           (s.who().peer.uid == peer.uid || is_operator(peer));
  });
  if (named.empty()) {
    return std::unexpected(
        fmt::format("cannot change a priority: no client is called \"{}\": see "
                    "`lull status` for names, pids and ids",
                    printable(task)));
  }
  const PriorityVerdict verdict = rules_.judge(peer, level);
  for (const Session* session : named) {
    if (is_operator(peer)) break;
    if (session->who().peer.uid != peer.uid) {
      return std::unexpected(
          fmt::format("cannot change a priority: client {} belongs to uid {}: "
                      "ask that user or an operator",
                      session->id().value, session->who().peer.uid));
    }
    if (verdict.clamped) {
      return std::unexpected(fmt::format("priority {} is not allowed for uid {}: allowed are {}",
                                         priority_name(level), peer.uid,
                                         allowed_levels(verdict.highest)));
    }
  }
  std::vector<ClientId> changed;
  for (Session* session : named) {
    session->set_priority(level);
    if (recorder_) recorder_->priority_changed(session->id(), level, clock_.now());
    inputs_.emplace_back(clock_.now(), engine::PriorityChanged{session->id(), level});
    moves_inputs_.emplace_back(moves::PriorityChanged{session->id(), level});
    changed.push_back(session->id());
    log_.line(fmt::format("client {} (task {}) now has priority {} (asked by uid {})",
                          session->id().value, session->who().task, priority_name(level),
                          peer.uid));
  }
  step_engine();
  return changed;
}

void Daemon::reload() {
  if (settings_.config_path.empty()) {
    log_.line("nothing to read again: started without --config");
    return;
  }
  auto config = load_config(settings_.config_path, [](const std::string& text) {
    const auto good = policies::check_policy(text);
    return good ? std::expected<void, std::string>()
                : std::expected<void, std::string>(std::unexpected(good.error()));
  });
  if (!config) {
    log_.line(config.error() + " (the configuration in use stays)");
    return;
  }
  const std::string old_policy = settings_.config.policy;
  const std::string old_job_policy = settings_.config.job_policy;
  settings_.config = std::move(*config);
  const Config& fresh = settings_.config;
  rules_ =
      fresh.priorities ? PriorityRules(*fresh.priorities) : PriorityRules::built_in(::geteuid());
  settle_places();
  ledger_.set_reserve(fresh.memory_reserve_bytes);
  tell_moves_of_devices();
  if (settings_.timing) settings_.config.timing = *settings_.timing;
  publish_timing();
  if (asks_driver()) {
    ask_driver();
  } else if (!settings_.simulated) {
    learn_devices(fresh.devices, UINT64_MAX);
  }
  const auto access = listener_.set_access(
      fresh.socket_mode.value_or(::geteuid() == 0 ? 0666 : 0600), fresh.socket_group);
  if (!access) log_.line(access.error());
  log_.line(fmt::format("read {} again", settings_.config_path));
  if (fresh.job_policy != old_job_policy) use_job_policy(fresh.job_policy);
  if (settings_.policy.empty() && fresh.policy != old_policy) {
    const auto changed = change_policy(fresh.policy, Peer{.pid = ::getpid(), .uid = ::geteuid()});
    if (!changed) log_.line(changed.error());
  }
}

}  // namespace lull::daemon
