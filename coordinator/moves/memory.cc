// Claims to device memory, and who returns next.
#include "coordinator/moves/core.h"

namespace lull::moves {
namespace {

uint64_t sum(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

uint64_t at(const Bytes& bytes, DeviceId device) {
  const auto found = bytes.find(device);
  return found == bytes.end() ? 0 : found->second;
}

}  // namespace

void Moves::Core::raise(Bytes& claim, const Bytes& to) {
  for (const auto& [device, bytes] : to) claim[device] = std::max(claim[device], bytes);
}

// `whole`: once it is resident. On its way it may hold all of it.
Bytes Moves::Core::held_of(const Member& member, bool whole) const {
  Bytes held;
  for (const Share& share : member.report.devices) {
    const uint64_t parts = sum(share.swappable_bytes, share.fixed_bytes);
    uint64_t bytes =
        sum(std::max({share.used_bytes, share.allowance_bytes, parts}), settings_.context_bytes);
    if (!whole && member.report.residence == Residence::kOut) {
      bytes = sum(share.fixed_bytes, settings_.context_bytes);
    }
    if (!whole && (member.report.residence == Residence::kGivenUp || member.is_lost())) bytes = 0;
    held[share.device] = sum(held[share.device], bytes);
  }
  return held;
}

Bytes Moves::Core::held_by(const Job& job, Where where) const {
  Bytes all;
  for (ClientId id : job.members) {
    const Member& one = member(id);
    for (const auto& [device, bytes] : held_of(one, where != Where::kNow)) {
      const auto to =
          where == Where::kThere && !one.moved ? job.migrates.find(device) : job.migrates.end();
      uint64_t& there = all[to == job.migrates.end() ? device : to->second];
      there = sum(there, bytes);
    }
  }
  return all;
}

uint64_t Moves::Core::usable_bytes(DeviceId device) const {
  const auto known = std::ranges::find(devices_, device, &NodeDevice::device);
  // Of a GPU about which the driver says nothing there is enough: a return that fails tries again.
  if (known == devices_.end() || known->total_bytes == 0) return UINT64_MAX;
  return known->total_bytes - std::min(known->total_bytes, settings_.reserve_bytes);
}

uint64_t Moves::Core::free_bytes(DeviceId device) const {
  uint64_t taken = 0;
  for (const auto& [id, job] : jobs_) {
    taken = sum(taken, std::max(at(job.claim, device), at(held_by(job, Where::kNow), device)));
  }
  const uint64_t usable = usable_bytes(device);
  return usable == UINT64_MAX ? usable : usable - std::min(usable, taken);
}

Bytes Moves::Core::growth(const Job& job, const Bytes& claim) const {
  const Bytes held = held_by(job, Where::kNow);
  Bytes more;
  for (const auto& [device, bytes] : claim) {
    const uint64_t has = std::max(at(job.claim, device), at(held, device));
    if (bytes > has) more[device] = bytes - has;
  }
  return more;
}

// By priority, then by how long they have waited. One that has to wait keeps the others off the
// GPUs that it waits for; one whose pause after a failed return is not over, or that needs more
// than there is, does not.
void Moves::Core::serve_returns() {
  std::vector<Job*> waiting;
  for (auto& [id, job] : jobs_) {
    if (job.state == JobState::kWaiting) waiting.push_back(&job);
  }
  std::ranges::sort(waiting, [this](const Job* a, const Job* b) {
    return std::tuple(priority_of(*a), a->since, a->id) <
           std::tuple(priority_of(*b), b->since, b->id);
  });
  std::map<DeviceId, JobId> kept_for;
  for (Job* job : waiting) {
    job->waits_for.clear();
    job->never = false;
    if (now_ < job->not_before) {
      job->waits_for = "it tries again soon: others took the memory";
      continue;
    }
    const Bytes claim = held_by(*job, Where::kThere);
    const Bytes more = growth(*job, claim);
    bool fits = true;
    for (const auto& [device, bytes] : more) {
      const uint64_t free = free_bytes(device);
      if (at(claim, device) > usable_bytes(device)) {
        job->never = true;
        job->waits_for = name(device) + " has " + show(usable_bytes(device)) +
                         " in all, it needs " + show(at(claim, device)) +
                         ": lower memory_reserve_bytes of lulld's configuration";
      } else if (bytes > free && job->waits_for.empty()) {
        job->waits_for = name(device) + " has " + show(free) + " free, it needs " + show(bytes) +
                         ": suspend or end a job there";
      } else if (kept_for.contains(device) && job->waits_for.empty()) {
        job->waits_for = name(device) + ": another job waits for it, and comes first";
      } else {
        continue;
      }
      fits = false;
    }
    if (fits) {
      raise(job->claim, claim);
      order_back(*job);
      go(*job, JobState::kReturning);
    } else if (!job->never) {
      for (const auto& [device, bytes] : more) kept_for.emplace(device, job->id);
    }
  }
}

}  // namespace lull::moves
