#include "policies/jobs/turns.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace lull::jobs {
namespace {

bool is_leaving(const JobFacts& job) {
  return job.state == JobState::kStopping || job.state == JobState::kLeaving;
}

// Whether it waits for a turn, and no person has suspended it.
bool needs_turn(const JobFacts& job) {
  if (!job.takes_turns) return false;
  if (job.state == JobState::kSuspended) return job.by_policy;
  if (job.state == JobState::kWaiting) return true;
  return job.state == JobState::kRunning &&
         std::ranges::any_of(job.devices, [](const JobOnDevice& on) { return on.needs_bytes > 0; });
}

uint64_t frees(const JobFacts& job, DeviceId device) {
  for (const JobOnDevice& on : job.devices) {
    if (on.device == device) return on.frees_bytes;
  }
  return 0;
}

}  // namespace

Instant Turns::step(Instant now, const NodeFacts& facts, std::vector<TurnDecision>& out) const {
  // Memory that is free, or will be once leaving jobs have left, and is promised to nobody yet.
  std::map<DeviceId, uint64_t> left;
  for (const DeviceFacts& device : facts.devices) left[device.device] = device.free_bytes;
  for (const JobFacts& job : facts.jobs) {
    if (!is_leaving(job)) continue;
    for (const JobOnDevice& on : job.devices) {
      left[on.device] += std::min(on.frees_bytes, UINT64_MAX - left[on.device]);
    }
  }
  std::vector<const JobFacts*> needy;
  for (const JobFacts& job : facts.jobs) {
    if (needs_turn(job)) needy.push_back(&job);
  }
  std::ranges::sort(needy, {}, [](const JobFacts* job) {
    return std::tuple(job->priority, job->since, job->job);
  });
  std::vector<JobId> sent;    // they make room
  std::vector<JobId> served;  // they have, or get, a turn: they make no room
  const auto in = [](const std::vector<JobId>& list, JobId job) {
    return std::ranges::find(list, job) != list.end();
  };
  Instant next = kNever;
  for (const JobFacts* one : needy) {
    if (in(sent, one->job)) continue;
    std::vector<const JobFacts*> makes_room;
    for (const JobFacts& job : facts.jobs) {
      if (&job == one || !job.takes_turns || !job.movable || job.state != JobState::kRunning)
        continue;
      if (job.priority < one->priority || in(sent, job.job) || in(served, job.job)) continue;
      makes_room.push_back(&job);
    }
    std::ranges::sort(makes_room, [](const JobFacts* a, const JobFacts* b) {
      return std::tuple(b->priority, a->since, a->job) < std::tuple(a->priority, b->since, b->job);
    });
    std::vector<const JobFacts*> leave;
    bool possible = true;
    for (const JobOnDevice& on : one->devices) {
      uint64_t there = left[on.device];
      for (const JobFacts* job : leave)
        there += std::min(frees(*job, on.device), UINT64_MAX - there);
      for (const JobFacts* job : makes_room) {
        if (there >= on.needs_bytes) break;
        const uint64_t bytes = frees(*job, on.device);
        if (bytes == 0 || std::ranges::find(leave, job) != leave.end()) continue;
        there += std::min(bytes, UINT64_MAX - there);
        leave.push_back(job);
      }
      possible = possible && there >= on.needs_bytes;
    }
    if (!possible) continue;
    // Its turn has come when everybody who has to make room has had theirs.
    Instant turn = now;
    for (const JobFacts* job : leave) {
      if (job->priority == one->priority) turn = std::max(turn, job->since + quantum_);
    }
    for (const JobOnDevice& on : one->devices) {
      uint64_t& there = left[on.device];
      for (const JobFacts* job : leave)
        there += std::min(frees(*job, on.device), UINT64_MAX - there);
      there -= std::min(there, on.needs_bytes);
    }
    for (const JobFacts* job : leave) sent.push_back(job->job);
    served.push_back(one->job);
    if (turn > now) {
      next = std::min(next, turn);
      continue;
    }
    for (const JobFacts* job : leave) {
      out.emplace_back(EndTurn{job->job, Level::kOut,
                               job->priority == one->priority ? At::kIteration : At::kNow});
    }
    if (one->state == JobState::kSuspended) out.emplace_back(BeginTurn{one->job});
  }
  return next;
}

}  // namespace lull::jobs
