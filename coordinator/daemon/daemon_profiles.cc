// What Daemon keeps of its tasks between runs, and what it says of it.
#include <fmt/format.h>

#include <algorithm>

#include "coordinator/daemon/daemon.h"

namespace lull::daemon {
namespace {

// Of a record told to the engine at once: each is a text of some kilobytes.
constexpr size_t kKernelsAtOnce = 16;

nlohmann::json entry_json(const ProfileStore::Entry& entry) {
  return {{"task", entry.task},       {"gpu", entry.gpu},     {"kernels", entry.kernels},
          {"samples", entry.samples}, {"bytes", entry.bytes}, {"saved_unix_s", entry.saved_unix_s},
          {"file", entry.file}};
}

}  // namespace

// For every client whose first device has become known since the last step.
void Daemon::recall_profiles() {
  const size_t count = inputs_.size();
  for (size_t i = 0; i < count; ++i) {
    const auto* used = std::get_if<engine::DeviceUsed>(&inputs_[i].input);
    if (used == nullptr) continue;
    const auto found = sessions_.find(used->client.value);
    if (found == sessions_.end() || found->second->recalled) continue;
    Session& session = *found->second;
    session.recalled = true;
    const Instant at = inputs_[i].at;
    auto kept = store_.load(task_key(session.who()), used->model);
    if (!kept) {
      log_.line(kept.error());
      continue;
    }
    if (!*kept) continue;
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
}

void Daemon::keep_profile(Session& session) {
  if (!store_.is_on() || !engine_) return;
  const uint64_t launches = session.totals().launches;
  if (launches == session.kept_launches) return;
  auto record = engine_->record(session.id());
  if (!record || record->gpu.empty()) return;
  session.kept_launches = launches;
  for (engine::TaskRecord::Kernel& kernel : record->kernels) {
    kernel.name = session.kernel_name(kernel.id);
    if (kernel.name == "?") kernel.name.clear();
  }
  if (const auto kept = store_.save(*record); !kept) log_.line(kept.error());
}

void Daemon::keep_profiles() {
  for (const auto& [id, session] : sessions_) {
    if (!session->gone) keep_profile(*session);
  }
}

std::expected<nlohmann::json, std::string> Daemon::profiles(const ProfileOrder& order,
                                                            const Peer& peer) {
  if (!store_.is_on()) {
    return std::unexpected(
        "no profiles are kept by this lulld: name a directory with profiles in its configuration");
  }
  // An operator sees everything, others what is theirs.
  const std::string prefix = is_operator(peer) ? "" : fmt::format("{}/", peer.uid);
  if (!order.forget.empty()) {
    const auto gone = store_.forget(order.forget, prefix);
    if (!gone) return std::unexpected(gone.error());
    size_t running = 0;
    for (const auto& [id, session] : sessions_) {
      const std::string key = task_key(session->who());
      running += !session->gone && names_task(key, order.forget) && key.starts_with(prefix) ? 1 : 0;
    }
    return nlohmann::json{{"forgotten", *gone}, {"running", running}};
  }
  keep_profiles();
  nlohmann::json reply = {{"directory", store_.directory()}};
  if (!order.show.empty()) {
    reply["records"] = nlohmann::json::array();
    for (const engine::TaskRecord& record : store_.find(order.show)) {
      if (!record.task.starts_with(prefix)) continue;
      reply["records"].push_back(nlohmann::json::parse(engine::write_task_record(record)));
    }
    return reply;
  }
  reply["profiles"] = nlohmann::json::array();
  for (const ProfileStore::Entry& entry : store_.list()) {
    if (entry.task.starts_with(prefix)) reply["profiles"].push_back(entry_json(entry));
  }
  return reply;
}

}  // namespace lull::daemon
