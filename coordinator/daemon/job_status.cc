#include "coordinator/daemon/job_status.h"

#include <algorithm>

#include "coordinator/channel/fixed_memory.h"
#include "coordinator/daemon/log.h"

namespace lull::daemon {
namespace {

using nlohmann::json;

constexpr const char* kStates[] = {"running", "stopping",  "leaving", "suspended",
                                   "waiting", "returning", "lost"};
constexpr const char* kLevels[] = {"in_place", "out", "given_up"};
constexpr const char* kResidences[] = {"resident", "draining",  "leaving",   "out", "giving_up",
                                       "given_up", "restoring", "returning", "lost"};

}  // namespace

json make_job(const moves::JobStatus& job, const std::string& name) {
  json clients = json::array();
  for (const ClientId id : job.clients) {
    if (clients.size() < kJobClientsShown) clients.push_back(id.value);
  }
  const char* level = kLevels[static_cast<size_t>(job.level)];
  const bool runs = job.state == moves::JobState::kRunning || job.state == moves::JobState::kLost;
  return {{"job", name},
          {"state", kStates[static_cast<size_t>(job.state)]},
          {"level", runs ? json(nullptr) : json(level)},
          {"target", job.suspends ? level : "running"},
          {"pinned", job.pinned},
          {"by_policy", job.by_policy},
          {"migrates", job.migrates},
          {"priority", job.priority.level},
          {"moving_bytes", job.moving_bytes},
          {"moved_bytes", job.moved_bytes},
          {"bytes_per_s", job.bytes_per_s},
          {"reason", job.reason},
          {"waits_for", job.waits_for},
          {"clients", std::move(clients)},
          {"client_count", job.clients.size()}};
}

json client_residence(const Session& session) {
  if (!session.can_move()) return nullptr;
  const channel::ResidenceReport said = channel::read_residence(session.region());
  json can = json::array();
  for (const auto& [bit, word] : {std::pair{channel::kCanSwap, "swap"},
                                  {channel::kCanGiveUp, "give_up"},
                                  {channel::kCanMigrate, "migrate"}}) {
    if ((said.abilities & bit) != 0) can.push_back(word);
  }
  uint64_t swappable = 0, fixed = 0;
  for (uint32_t index = 0; index < session.device_count(); ++index) {
    swappable += said.swappable_bytes[index];
    fixed += said.fixed_bytes[index];
  }
  json why_fixed = json::array();
  for (uint32_t kind = 1; fixed > 0 && kind < channel::kFixedCount; ++kind) {
    const uint64_t bit = channel::bit_of(static_cast<channel::Fixed>(kind));
    if ((said.fixed_kinds & bit) != 0) why_fixed.push_back(channel::kFixedKinds[kind].text);
  }
  return {{"state", said.state < std::size(kResidences) ? kResidences[said.state] : "?"},
          {"can", std::move(can)},
          {"turns", session.takes_turns()},
          {"swappable_bytes", swappable},
          {"fixed_bytes", fixed},
          {"fixed_why", std::move(why_fixed)},
          {"host_bytes", said.host_bytes},
          {"host_wanted_bytes", said.host_wanted_bytes},
          {"host_allowance_bytes", session.host_allowance_bytes()},
          {"moved_bytes", said.moved_bytes},
          {"move_ns", said.move_ns},
          {"reason", printable(said.reason)}};
}

}  // namespace lull::daemon
