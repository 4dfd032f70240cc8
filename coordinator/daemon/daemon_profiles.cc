// What Daemon keeps of its tasks between runs, and what it says of it.
#include <fmt/format.h>

#include <algorithm>

#include "coordinator/daemon/daemon.h"

namespace lull::daemon {
namespace {

// Of a record told to the engine at once: each is a text of some kilobytes.
constexpr size_t kKernelsAtOnce = 16;
// Of profiles read before the loop turns to something else.
constexpr size_t kRecalledAtOnceBytes = 1U << 20;
constexpr uint64_t kRecallPause = 4;
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

}  // namespace

// For every client whose first device has become known. Long profiles wait for each other: users take
// turns, and after so many bytes the loop does for some times as long what else there is to do.
void Daemon::recall_profiles() {
  for (const StampedInput& stamped : inputs_) {
    const auto* used = std::get_if<engine::DeviceUsed>(&stamped.input);
    if (used == nullptr) continue;
    const auto found = sessions_.find(used->client.value);
    if (found == sessions_.end() || found->second->recall) continue;
    found->second->recall = Recall{.gpu = used->model, .at = stamped.at};
    recalls_.push(found->second->who().peer.uid, used->client.value);
  }
  const uint64_t began_ns = channel::monotonic_ns();
  if (began_ns < next_recall_ns_) return;
  size_t bytes = 0;
  while (bytes < kRecalledAtOnceBytes) {
    const auto next = recalls_.pop([](uid_t) { return true; });
    if (!next) return;
    const auto found = sessions_.find(*next);
    if (found == sessions_.end() || found->second->gone) continue;
    Session& session = *found->second;
    const Instant at = session.recall->at;
    auto kept = store_.load(task_key(session.who()), session.recall->gpu);
    if (!kept) {
      log_.line(kept.error());
      continue;
    }
    if (!*kept) continue;
    bytes += (*kept)->text.size();
    ++figures_.profiles_recalled;
    engine::TaskRecord& whole = (*kept)->record;
    for (size_t from = 0; from < whole.kernels.size(); from += kKernelsAtOnce) {
      engine::TaskRecord part{.task = whole.task,
                              .gpu = whole.gpu,
                              .undisturbed = whole.undisturbed,
                              .undisturbed_count = whole.undisturbed_count};
      const size_t to = std::min(whole.kernels.size(), from + kKernelsAtOnce);
      for (size_t k = from; k < to; ++k) {
        whole.kernels[k].name.clear();
        part.kernels.push_back(std::move(whole.kernels[k]));
      }
      inputs_.emplace_back(
          at, engine::TaskRecalled{session.id(), engine::write_task_record(part)});
    }
    log_.detail(fmt::format("client {}: {} kernels of {} known from earlier runs",
                            session.id().value, whole.kernels.size(), whole.task));
  }
  const uint64_t done_ns = channel::monotonic_ns();
  next_recall_ns_ = done_ns + kRecallPause * (done_ns - began_ns);
}

bool Daemon::keep_profile(Session& session) {
  if (!store_.is_on() || !engine_) return false;
  const uint64_t launches = session.totals().launches;
  if (launches == session.kept_launches) return false;
  auto record = engine_->record(session.id());
  if (!record || record->gpu.empty()) return false;
  session.kept_launches = launches;
  for (engine::TaskRecord::Kernel& kernel : record->kernels) {
    kernel.name = session.kernel_name(kernel.id);
    if (kernel.name == "?") kernel.name.clear();
  }
  if (const auto kept = store_.save(*record); !kept) log_.line(kept.error());
  return true;
}

void Daemon::keep_profiles() {
  for (const auto& [id, session] : sessions_) {
    if (!session->gone) keep_profile(*session);
  }
}

// A round each minute, earlier when a tool asks for profiles; a client a turn.
void Daemon::keep_some_profiles(uint64_t monotonic_ns) {
  if (keep_from_ == 0) {
    if (monotonic_ns < next_keep_ns_) return;
    kept_ns_ = monotonic_ns;
    next_keep_ns_ = monotonic_ns + kKeepEveryNs;
    keep_from_ = 1;
  }
  for (auto at = sessions_.lower_bound(keep_from_); at != sessions_.end(); ++at) {
    if (!at->second->gone && keep_profile(*at->second)) {
      keep_from_ = at->first + 1;
      return;
    }
  }
  keep_from_ = 0;
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
