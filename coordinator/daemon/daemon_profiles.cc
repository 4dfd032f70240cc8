// What Daemon keeps of its tasks between runs, and what it says of it.
#include <fmt/format.h>

#include <algorithm>

#include "coordinator/daemon/daemon.h"

namespace lull::daemon {
namespace {

// A part of a profile: a text of some kilobytes, 50 at most.
constexpr size_t kKernelsAPart = 16;
// Told to the engine in one turn: a millisecond's work.
constexpr size_t kToldATurnBytes = 1U << 16;
// Profiles that wait for the disk: of what comes beyond, a client that stays has its turn later,
// and of one that leaves the last minute is not kept.
constexpr size_t kMostKept = 32;
constexpr size_t kMostKeptOfUser = 4;
constexpr uint64_t kKeepAllNs = 30'000'000'000;
constexpr int kWaitMs = 100;
constexpr uint64_t kKeepEveryNs = 60'000'000'000;
constexpr uint64_t kKeepAgainNs = 5'000'000'000;

nlohmann::json entry_json(const ProfileStore::Entry& entry) {
  return {{"task", entry.task},       {"gpu", entry.gpu},     {"kernels", entry.kernels},
          {"samples", entry.samples}, {"bytes", entry.bytes}, {"saved_unix_s", entry.saved_unix_s},
          {"file", entry.file}};
}

// A page ends with what makes it so long.
constexpr size_t kProfilePageBytes = 131072;

// On the disk's thread. Each page reads the files anew: they may change between two.
std::expected<nlohmann::json, std::string> read_profiles(ProfileStore store,
                                                         const ProfileOrder& order,
                                                         const std::string& prefix,
                                                         size_t running) {
  if (!order.forget.empty()) {
    const auto gone = store.forget(order.forget, prefix);
    if (!gone) return std::unexpected(gone.error());
    return nlohmann::json{{"forgotten", *gone}, {"running", running}};
  }
  nlohmann::json reply = {{"directory", store.directory()}};
  size_t bytes = 0;
  uint32_t index = 0;
  // False: the page is full. What comes before `from` was on an earlier one.
  const auto add = [&](nlohmann::json row, nlohmann::json& to) {
    if (index++ < order.from) return true;
    if (bytes >= kProfilePageBytes) {
      reply["next"] = index - 1;
      return false;
    }
    bytes += row.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).size();
    to.push_back(std::move(row));
    return true;
  };
  if (order.show.empty()) {
    nlohmann::json list = nlohmann::json::array();
    for (const ProfileStore::Entry& entry : store.list()) {
      if (entry.task.starts_with(prefix) && !add(entry_json(entry), list)) break;
    }
    reply["profiles"] = std::move(list);
    return reply;
  }
  nlohmann::json records = nlohmann::json::array();
  for (const engine::TaskRecord& record : store.find(order.show)) {
    if (!record.task.starts_with(prefix)) continue;
    nlohmann::json whole = nlohmann::json::parse(engine::write_task_record(record));
    nlohmann::json kernels = nlohmann::json::array();
    const bool begun_before = index < order.from;
    bool room = true;
    for (nlohmann::json& kernel : whole["kernels"]) {
      room = add(std::move(kernel), kernels);
      if (!room) break;
    }
    if (!kernels.empty()) {
      whole["kernels"] = std::move(kernels);
      // Of a record that the page before has begun.
      if (begun_before && records.empty()) whole["continues"] = true;
      records.push_back(std::move(whole));
    }
    if (!room) break;
  }
  reply["records"] = std::move(records);
  return reply;
}

// On the disk's thread. Empty: it is saved, or not `recalled` and there is a profile already. The
// engine has not heard of that one yet, so it stays as it is.
std::string why_not_saved(ProfileStore& store, const engine::TaskRecord& record, bool recalled) {
  try {
    if (!recalled) {
      const auto kept = store.load(record.task, record.gpu);
      if (kept && *kept) return "";
    }
    const auto saved = store.save(record);
    return saved ? "" : saved.error();
  } catch (const std::exception& error) {
    return fmt::format("cannot keep the profile of {}: {}", record.task, error.what());
  }
}

// On the reader's thread.
std::deque<std::string> parts_of(engine::TaskRecord whole) {
  std::deque<std::string> parts;
  for (size_t from = 0; from < whole.kernels.size(); from += kKernelsAPart) {
    engine::TaskRecord part{.task = whole.task,
                            .gpu = whole.gpu,
                            .undisturbed = whole.undisturbed,
                            .undisturbed_count = whole.undisturbed_count};
    const size_t to = std::min(whole.kernels.size(), from + kKernelsAPart);
    for (size_t k = from; k < to; ++k) {
      whole.kernels[k].name.clear();
      part.kernels.push_back(std::move(whole.kernels[k]));
    }
    parts.push_back(engine::write_task_record(part));
  }
  return parts;
}

}  // namespace

// For every client whose first device has become known. One is read at a time; users take turns.
void Daemon::recall_profiles() {
  for (const StampedInput& stamped : inputs_) {
    const auto* used = std::get_if<engine::DeviceUsed>(&stamped.input);
    if (used == nullptr) continue;
    const auto found = sessions_.find(used->client.value);
    if (found == sessions_.end() || found->second->recall) continue;
    found->second->recall = Recall{.gpu = used->model, .at = stamped.at};
    recalls_.push(found->second->who().peer.uid, used->client.value);
  }
  while (reader_.waiting() == 0 && recalled_.parts.empty()) {
    const auto next = recalls_.pop([](uid_t) { return true; });
    if (!next) return;
    const auto found = sessions_.find(*next);
    if (found != sessions_.end() && !found->second->gone) read_profile(*found->second);
  }
}

void Daemon::read_profile(Session& session) {
  reader_.post([this, store = store_, client = session.id(), task = task_key(session.who()),
                recall = *session.recall]() mutable -> Background::Then {
    auto kept = store.load(task, recall.gpu);
    if (!kept || !*kept || (*kept)->record.kernels.empty()) {
      return [this, client, why = kept ? "" : kept.error()] {
        if (!why.empty()) log_.line(why);
        recall_done(client);
      };
    }
    const size_t kernels = (*kept)->record.kernels.size();
    return [this, client, task, kernels, at = recall.at,
            parts = parts_of(std::move((*kept)->record))]() mutable {
      recalled_ = {.client = client, .at = at, .parts = std::move(parts)};
      log_.detail(fmt::format("client {}: {} kernels of {} known from earlier runs", client.value,
                              kernels, task));
    };
  });
}

void Daemon::recall_done(ClientId client) {
  const auto found = sessions_.find(client.value);
  if (found != sessions_.end()) found->second->recall->done = true;
}

bool Daemon::tell_recalled() {
  if (recalled_.parts.empty() || channel::monotonic_ns() < next_recall_ns_) return false;
  const auto found = sessions_.find(recalled_.client.value);
  if (found == sessions_.end() || found->second->gone) {
    recalled_.parts.clear();
    return false;
  }
  for (size_t bytes = 0; bytes < kToldATurnBytes && !recalled_.parts.empty();) {
    bytes += recalled_.parts.front().size();
    inputs_.emplace_back(
        recalled_.at, engine::TaskRecalled{recalled_.client, std::move(recalled_.parts.front())});
    recalled_.parts.pop_front();
  }
  if (recalled_.parts.empty()) {
    recall_done(recalled_.client);
    ++figures_.profiles_recalled;
  }
  return true;
}

bool Daemon::is_recalling() const {
  return !recalls_.empty() || reader_.waiting() > 0 || !recalled_.parts.empty();
}

bool Daemon::may_keep(uid_t user) const {
  const auto mine = keeping_.find(user);
  return disk_.waiting() < kMostKept && (mine == keeping_.end() || mine->second < kMostKeptOfUser);
}

bool Daemon::keep_profile(Session& session) {
  if (!store_.is_on() || !engine_) return false;
  const uint64_t launches = session.totals().launches;
  if (launches == session.kept_launches) return false;
  auto record = engine_->record(session.id());
  if (!record || record->gpu.empty()) return false;
  const bool recalled = session.recall && session.recall->done;
  if (recalled) session.kept_launches = launches;
  for (engine::TaskRecord::Kernel& kernel : record->kernels) {
    kernel.name = session.kernel_name(kernel.id);
    if (kernel.name == "?") kernel.name.clear();
  }
  const uid_t user = session.who().peer.uid;
  ++keeping_[user];
  const bool posted = disk_.post([this, user, store = store_, recalled,
                                  record = std::move(*record)]() mutable -> Background::Then {
    return [this, user, why = why_not_saved(store, record, recalled)] {
      if (--keeping_[user] == 0) keeping_.erase(user);
      if (!why.empty()) log_.line(why);
    };
  });
  if (!posted) {
    keeping_.erase(user);
    log_.line("cannot keep profiles: no thread for it: raise the limit of processes");
  }
  return true;
}

// All that there are, before lulld ends.
void Daemon::keep_all_profiles() {
  const uint64_t until_ns = channel::monotonic_ns() + kKeepAllNs;
  const auto wait_while = [&](auto&& busy) {
    while (busy() && channel::monotonic_ns() < until_ns) {
      disk_.wait(kWaitMs);
      disk_.finish();
    }
  };
  for (const auto& [id, session] : sessions_) {
    wait_while([this] { return disk_.waiting() >= kMostKept; });
    if (!session->gone && disk_.waiting() < kMostKept) keep_profile(*session);
  }
  wait_while([this] { return !keeping_.empty(); });
}

// A round each minute, earlier when a tool asks for profiles: one at a time, users take turns.
void Daemon::keep_some_profiles(uint64_t monotonic_ns) {
  if (monotonic_ns >= next_keep_ns_ && keeps_.empty()) {
    kept_ns_ = monotonic_ns;
    next_keep_ns_ = monotonic_ns + kKeepEveryNs;
    for (const auto& [id, session] : sessions_) {
      if (!session->gone) keeps_.push(session->who().peer.uid, id);
    }
  }
  while (disk_.waiting() == 0) {
    const auto next = keeps_.pop([](uid_t) { return true; });
    if (!next) return;
    const auto found = sessions_.find(*next);
    if (found != sessions_.end() && !found->second->gone) keep_profile(*found->second);
  }
}

void Daemon::profiles(const ProfileOrder& order, const Peer& peer, Then then) {
  if (!store_.is_on()) {
    return then(std::unexpected(
        "no profiles are kept by this lulld: name a directory with profiles in its configuration"));
  }
  // An operator sees everything, others what is theirs.
  const std::string prefix = is_operator(peer) ? "" : fmt::format("{}/", peer.uid);
  size_t running = 0;
  for (const auto& [id, session] : sessions_) {
    const std::string key = task_key(session->who());
    running += !session->gone && names_task(key, order.forget) && key.starts_with(prefix) ? 1 : 0;
  }
  next_keep_ns_ = std::min(next_keep_ns_, kept_ns_ + kKeepAgainNs);
  const bool posted =
      disk_.post([store = store_, order, prefix, running, then]() -> Background::Then {
        return [then, reply = read_profiles(store, order, prefix, running)] { then(reply); };
      });
  if (!posted) then(std::unexpected("lulld has no thread left to read profiles: ask again"));
}

}  // namespace lull::daemon
