// Jobs that stop and go on by order, and clients that move to another device.
#include <algorithm>

#include "coordinator/engine/core.h"

namespace lull::engine {

void Engine::Core::take(const JobStopped& input) {
  const auto found = jobs_.find(input.job);
  if (found == jobs_.end()) {
    dropped_ += 1;
    return;
  }
  Job& job = found->second;
  const Instant stand_by = std::max(input.close_by, input.stand_by);
  switch (job.stop) {
    case Stop::kNone:
      job.stop = Stop::kAsked;
      job.at_lowest = false;
      job.close_by = input.close_by;
      job.stand_by = stand_by;
      break;
    case Stop::kAsked:
    case Stop::kClosed:
      job.close_by = std::min(job.close_by, input.close_by);
      job.stand_by = std::min(job.stand_by, stand_by);
      break;
    case Stop::kStands:
      put(JobStands{input.job, /*drained=*/true});
      break;
  }
  for (ClientId member : job.members) mark(*find(member));
}

void Engine::Core::take(const JobContinued& input) {
  const auto found = jobs_.find(input.job);
  if (found == jobs_.end()) {
    dropped_ += 1;
    return;
  }
  Job& job = found->second;
  const Stop was = std::exchange(job.stop, Stop::kNone);
  if (was == Stop::kNone || was == Stop::kAsked) return;
  job.continued_at = now_;
  for (ClientId member : job.members) {
    Client& client = *find(member);
    client.last_floor = now_;
    for (const auto& usage : client.usages) {
      Device& on = *device(usage->device);
      if (was == Stop::kStands) {
        introduce(usage->device, on, client);
      } else {
        for (const PendingLaunch& pending : client.pending) {
          if (pending.device == usage->device && !pending.released)
            tell(on, client, waiting(client, pending));
        }
      }
      watch_device(usage->device, on);
      recount_stuck(on);
      mark_all(on);
    }
  }
}

// What the client still has in flight on that device counts as gone.
void Engine::Core::take(const DeviceLeft& input) {
  Client* client = find(input.client);
  const DeviceUsage* usage = client == nullptr ? nullptr : client->usage(input.device);
  if (usage == nullptr) {
    dropped_ += 1;
    return;
  }
  for (size_t i = client->pending.size(); i > 0; --i) {
    if (client->pending[i - 1].device == input.device)
      drop_pending(*client, i - 1, /*tell_policy=*/true);
  }
  for (size_t slot = 0; slot < client->streams.size(); ++slot) {
    UnitQueue kept;
    for (const Unit& unit : client->streams[slot].units) {
      if (unit.device != input.device) kept.push(unit);
    }
    if (kept.empty()) client->busy_streams &= ~(uint64_t{1} << slot);
    client->streams[slot].units = std::move(kept);
  }
  Device& on = *device(input.device);
  std::erase(on.members, client->id);
  std::erase(on.busy, client->id);
  std::erase(on.lately, client->id);
  tell(on, *client, policies::Left{client->id});
  std::erase_if(client->usages, [&](const auto& s) { return s->device == input.device; });
  mark(*client);
  if (on.members.empty()) {
    devices_.erase(input.device);
    return;
  }
  watch_device(input.device, on);
  recount_stuck(on);
  mark_all(on);
}

// ---- an order on its way ----------------------------------------------------------------------

void Engine::Core::follow_orders() {
  std::vector<std::pair<JobId, Job*>> touched;
  for (const Client* client : dirty_) {
    Job* job = client->ranks;
    if (job->stop == Stop::kAsked || job->stop == Stop::kClosed)
      touched.emplace_back(client->job, job);
  }
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  for (const auto& [id, job] : touched) {
    if (job->stop == Stop::kAsked && may_close(*job)) close(*job);
    if (job->stop != Stop::kClosed) continue;
    const Standing how = standing(*job);
    if (how != Standing::kNot) stand(id, *job, /*drained=*/how == Standing::kYes);
  }
}

// While no rank has completed an iteration, there is no better moment to wait for.
bool Engine::Core::may_close(const Job& job) const {
  if (job.at_lowest || now_ >= job.close_by) return true;
  return std::ranges::none_of(job.members, [&](ClientId member) {
    return find(member)->learned.detector().completed() > 0;
  });
}

void Engine::Core::close(Job& job) {
  job.stop = Stop::kClosed;
  job.closed_at = now_;
  for (ClientId member : job.members) {
    Client& client = *find(member);
    for (const PendingLaunch& pending : client.pending) {
      if (!pending.released)
        tell(*device(pending.device), client, policies::Withdrawn{client.id, pending.thread});
    }
    mark(client);
  }
}

// How many launches the furthest rank has made; nothing if a rank's launches are not all known.
std::optional<uint64_t> Engine::Core::furthest(const Job& job) const {
  uint64_t index = 0;
  for (ClientId member : job.members) {
    const Client& client = *find(member);
    if (!client.counted) return std::nullopt;
    index = std::max(index, client.launches);
  }
  return index;
}

// Whether it has made fewer launches than `to` and will still make them: it waits at its gate,
// launched lately, or runs the same launches as the others.
bool Engine::Core::is_behind(const Client& client, uint64_t to) const {
  if (client.launches >= to) return false;
  if (!client.pending.empty()) return true;
  if (client.launches > 0 && client.launches + kRanksApart >= to) return true;
  return std::ranges::any_of(client.usages, [this](const auto& usage) {
    return now_ < usage->last_launch + kStillComing;
  });
}

Engine::Core::Standing Engine::Core::standing(const Job& job) const {
  bool still = now_ >= job.closed_at + options_.control_latency + kClosedNoticed;
  const std::optional<uint64_t> to = furthest(job);
  for (ClientId member : job.members) {
    const Client& client = *find(member);
    still = still && client.busy_streams == 0 && !(to && is_behind(client, *to));
    for (const auto& usage : client.usages) still = still && usage->units == 0;
    for (const PendingLaunch& pending : client.pending) still = still && !pending.released;
  }
  if (still) return Standing::kYes;
  return now_ >= job.stand_by ? Standing::kLate : Standing::kNot;
}

// When work in flight of a closed job counts as waiting for a launch that is held; kNever: none is
// held.
Instant Engine::Core::hangs_at(const Job& job) const {
  Instant at = kNever;
  bool held = false;
  for (ClientId member : job.members) {
    const Client& client = *find(member);
    held |= std::ranges::any_of(client.pending,
                                [](const PendingLaunch& pending) { return !pending.released; });
    for (const auto& usage : client.usages) {
      if (usage->units == 0) continue;
      const Duration patience{std::max(kStuckAtLeast.ns, usage->in_flight.ns * kStuckFactor)};
      const Instant since = std::max({job.closed_at, job.caught_up_at, usage->last_progress});
      at = std::min(at, since + patience);
    }
  }
  return held ? at : kNever;
}

// Releases held launches of a closed job, as far as it has to go on before it can stand: those of
// ranks behind the furthest. If the work of a rank hangs, also one launch of each rank that has
// nothing in flight; if no such rank waits, one of every rank.
void Engine::Core::catch_up(Job& job) {
  const std::optional<uint64_t> to = furthest(job);
  const bool may_hang = job.stop == Stop::kClosed || (!job.is_stopped() && !to);
  const bool hangs = may_hang && hangs_at(job) <= now_;
  const auto is_idle = [](const Client& client) { return client.busy_streams == 0; };
  const bool idle_first = std::ranges::any_of(job.members, [&](ClientId member) {
    return is_idle(*find(member)) && !find(member)->pending.empty();
  });
  if (hangs) job.caught_up_at = now_;
  for (ClientId member : job.members) {
    Client& client = *find(member);
    uint64_t index = client.launches;
    for (const PendingLaunch& pending : client.pending) index += pending.released ? 1 : 0;
    uint64_t end = to.value_or(0);
    if (hangs && (is_idle(client) || !idle_first)) end = std::max(end, index + 1);
    for (PendingLaunch& pending : client.pending) {
      if (index >= end) break;
      if (pending.released) continue;
      release(client, pending, /*tell_policy=*/!job.is_stopped());
      index += 1;
    }
  }
}

void Engine::Core::stand(JobId id, Job& job, bool drained) {
  const uint64_t to = furthest(job).value_or(0);
  for (ClientId member : job.members) {
    const Client& client = *find(member);
    if (drained || client.launches == 0 || client.launches >= to) continue;
    notice("client " + std::to_string(client.id.value) + " (" + client.task +
           ") is stopped before the furthest rank of its job, which has made more launches: " +
           std::to_string(to - client.launches));
  }
  for (ClientId member : job.members) {
    Client& client = *find(member);
    for (const auto& usage : client.usages) {
      tell(*device(usage->device), client, policies::Left{client.id});
    }
  }
  job.stop = Stop::kStands;
  for (ClientId member : job.members) {
    Client& client = *find(member);
    for (const auto& usage : client.usages) {
      Device& on = *device(usage->device);
      watch_device(usage->device, on);
      recount_stuck(on);
      mark_all(on);
    }
  }
  put(JobStands{id, drained});
}

// When the order needs a look at this client if nothing happens before.
Instant Engine::Core::order_due(const Client& client) const {
  const Job& job = *client.ranks;
  const auto hangs = [&] { return std::max(hangs_at(job), now_ + Duration{1}); };
  if (job.stop == Stop::kAsked) return job.close_by;
  if (job.stop == Stop::kNone && job.closed && !furthest(job)) return hangs();
  if (job.stop != Stop::kClosed) return kNever;
  Instant due = std::min(job.stand_by, hangs());
  const Instant noticed = job.closed_at + options_.control_latency + kClosedNoticed;
  if (now_ < noticed) due = std::min(due, noticed);
  for (const auto& usage : client.usages) {
    const Instant comes_no_more = usage->last_launch + kStillComing;
    if (now_ < comes_no_more) due = std::min(due, comes_no_more);
  }
  return due;
}

}  // namespace lull::engine
