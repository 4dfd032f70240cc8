// What people and policies see of Moves.
#include "coordinator/moves/core.h"

namespace lull::moves {

std::optional<JobId> Moves::Core::job_of(ClientId client) const {
  const auto found = members_.find(client);
  return found == members_.end() ? std::nullopt : std::optional(found->second.job);
}

bool Moves::Core::is_away(JobId id) const {
  const Job* job = find(id);
  return job != nullptr && job->state != JobState::kRunning && job->state != JobState::kLost;
}

bool Moves::Core::waits_for_memory() const {
  return std::ranges::any_of(
      jobs_, [](const auto& one) { return one.second.state == JobState::kWaiting; });
}

bool Moves::Core::copies(ClientId client) const {
  const auto found = members_.find(client);
  return found != members_.end() && !found->second.has_ended();
}

std::optional<JobStatus> Moves::Core::status(JobId id) const {
  const Job* job = find(id);
  if (job == nullptr) return std::nullopt;
  JobStatus status{.job = id,
                   .priority = priority_of(*job),
                   .state = job->state,
                   .level = job->state == JobState::kSuspended ? job->reached : job->level,
                   .suspends = job->suspends,
                   .migrates = !job->migrates.empty(),
                   .pinned = job->pinned,
                   .by_policy = job->by_policy,
                   .reason = job->reason,
                   .waits_for = job->waits_for,
                   .clients = job->members};
  Instant copies_since = kNever;
  uint64_t copied_bytes = 0;
  for (ClientId member_id : job->members) {
    const Member& one = member(member_id);
    // Until it copies, its figures are of the move before.
    const bool gives_up = one.report.residence == Residence::kGivingUp;
    if (one.order == 0 || !(one.is_copying() || gives_up || one.has_ended())) continue;
    const uint64_t moved = std::min(one.report.moved_bytes, one.report.moving_bytes);
    status.moving_bytes += std::min(one.report.moving_bytes, UINT64_MAX - status.moving_bytes);
    status.moved_bytes += std::min(moved, UINT64_MAX - status.moved_bytes);
    if (!one.is_copying()) continue;
    copied_bytes += std::min(moved, UINT64_MAX - copied_bytes);
    copies_since = std::min(copies_since, one.stays);
  }
  const auto waits_for = [&](const Member& one) {
    const bool moves = job->state == JobState::kLeaving || job->state == JobState::kReturning;
    return moves && !one.has_ended() && !is_silent(one) && now_ >= one.heard + kWaitedForAfter;
  };
  for (ClientId member_id : job->members) {
    const Member& one = member(member_id);
    if (!waits_for(one) || !status.waits_for.empty()) continue;
    status.waits_for = name(member_id) + ": nothing heard of it for " +
                       std::to_string((now_ - one.heard).ns / 1'000'000'000) + " s";
  }
  if (now_ > copies_since) {
    status.bytes_per_s = static_cast<uint64_t>(static_cast<double>(copied_bytes) * 1e9 /
                                               static_cast<double>((now_ - copies_since).ns));
  }
  return status;
}

NodeFacts Moves::Core::facts() const {
  NodeFacts facts;
  for (const NodeDevice& device : devices_) {
    const uint64_t usable = usable_bytes(device.device);
    facts.devices.push_back({.device = device.device,
                             .total_bytes = usable == UINT64_MAX ? 0 : usable,
                             .free_bytes = free_bytes(device.device)});
  }
  for (const auto& [id, job] : jobs_) {
    JobFacts& fact = facts.jobs.emplace_back();
    fact.job = id;
    fact.priority = priority_of(job);
    fact.state = job.state;
    fact.movable = !job.pinned && !immovable(job, Level::kOut);
    fact.migratable = fact.movable && !not_migratable(job);
    fact.untold = has_untold(job);
    fact.pinned = job.pinned;
    fact.suspends = job.suspends;
    fact.migrates = !job.migrates.empty();
    fact.by_policy = job.by_policy;
    fact.since = job.since;
    std::map<DeviceId, JobOnDevice> by_device;
    for (ClientId member_id : job.members) {
      const Member& one = member(member_id);
      fact.takes_turns = fact.takes_turns || one.takes_turns;
      for (const Share& share : one.report.devices) {
        JobOnDevice& on = by_device[share.device];
        on.device = share.device;
        on.used_bytes += std::min(share.used_bytes, UINT64_MAX - on.used_bytes);
        if (one.is_resident())
          on.frees_bytes += std::min(share.swappable_bytes, UINT64_MAX - on.frees_bytes);
        const uint64_t has = std::max(share.used_bytes, share.allowance_bytes);
        if (one.is_resident() && share.wanted_bytes > has) {
          on.needs_bytes += std::min(share.wanted_bytes - has, UINT64_MAX - on.needs_bytes);
        }
      }
    }
    if (job.state == JobState::kSuspended || job.state == JobState::kWaiting) {
      for (const auto& [device, bytes] : growth(job, held_by(job, Where::kThere))) {
        by_device[device].device = device;
        by_device[device].needs_bytes = bytes;
      }
    }
    for (const auto& [device, on] : by_device) fact.devices.push_back(on);
  }
  return facts;
}

}  // namespace lull::moves
