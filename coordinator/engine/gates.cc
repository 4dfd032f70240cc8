#include <algorithm>

#include "coordinator/engine/core.h"

namespace lull::engine {

// ---- pending launches ---------------------------------------------------------------------------

namespace {

// When a waiting launch that may go counts as gone; kNever while it may not go.
Instant grant_expiry(const PendingLaunch& pending, const DeviceUsage& usage) {
  if (pending.released) return pending.released_at + kGrantExpires;
  if (usage.gate == Gate::kOpen) {
    return std::max(pending.since, usage.opened_at) + kGrantExpires;
  }
  if (usage.units == 0 && usage.credit.lets_through(pending.charged)) {
    return std::max(pending.since, usage.credit.granted_at()) + kGrantExpires;
  }
  return kNever;
}

// The client must be on the device.
const DeviceUsage& usage_of(const Client& client, DeviceId device) { return *client.usage(device); }

}  // namespace

void Engine::Core::expire_grants(Client& client) {
  for (size_t i = client.pending.size(); i > 0; --i) {
    const PendingLaunch& pending = client.pending[i - 1];
    if (grant_expiry(pending, usage_of(client, pending.device)) > now_) continue;
    std::erase_if(client.given_up, [&](const GivenUp& g) { return g.thread == pending.thread; });
    if (client.given_up.size() < kMaxPending)
      client.given_up.push_back({pending.thread, pending.ticket});
    drop_pending(client, i - 1, /*tell_policy=*/true);
  }
}

bool Engine::Core::is_given_up(const Client& client, const PendingLaunch& pending,
                               const DeviceUsage& usage) {
  return grant_expiry(pending, usage) != kNever &&
         std::ranges::any_of(client.given_up, [&](const GivenUp& g) {
           return g.thread == pending.thread && g.ticket == pending.ticket;
         });
}

void Engine::Core::release(Client& client, PendingLaunch& pending, bool tell_policy) {
  pending.released = true;
  pending.released_at = now_;
  put(Release{client.id, pending.thread, pending.ticket});
  if (tell_policy) {
    tell(*device(pending.device), client, policies::Withdrawn{client.id, pending.thread});
  }
  mark(client);
}

// ---- job rule -------------------------------------------------------------------------------

// All ranks of a job stop at the same launch index, the furthest that any has passed: a collective on
// the device spins for ever if a peer is held. Where not all launches are known (the coordinator came
// late, or again), a rank goes on while the work of another hangs.
void Engine::Core::apply_job_rules() {
  std::vector<std::pair<JobId, Job*>> touched;
  for (const Client* client : dirty_) {
    Job* job = client->ranks;
    if (job->members.size() > 1 || job->closed || job->is_stopped()) touched.emplace_back(client->job, job);
  }
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  for (const auto& [id, job] : touched) apply_job_rule(*job);
}

void Engine::Core::apply_job_rule(Job& job) {
  bool closed = false;
  if (holds_by_prediction() && job.members.size() > 1) {
    for (ClientId member : job.members) {
      const Client& client = *find(member);
      for (const auto& usage : client.usages) {
        const bool overruled = device_of(*usage).stuck_level < client.priority.level;
        closed |= usage->wanted == Gate::kClosed && !overruled;
      }
    }
  }
  if (closed != job.closed) {
    job.closed = closed;
    for (ClientId member : job.members) mark(*find(member));
  }
  if (closed || job.is_stopped()) catch_up(job);
}

// ---- inversion rule -------------------------------------------------------------------------

// When the client's work on a device counts as stuck because lower clients are held; kNever: none of it can be.
Instant Engine::Core::stuck_at(const Client& client, const DeviceUsage& usage) const {
  const Device& on = device_of(usage);
  if (!holds_by_prediction() || usage.units == 0 || on.lowest_level <= client.priority.level ||
      client.ranks->stands()) {
    return kNever;
  }
  // One stream may wait for another: so the work is late only when the next report of each is overdue.
  Instant oldest = kNever;
  Duration longest;
  for (uint64_t busy = client.busy_streams; busy != 0; busy &= busy - 1) {
    const UnitQueue& units = client.streams[static_cast<size_t>(__builtin_ctzll(busy))].units;
    if (units.front().device != usage.device || !units.awaits_report()) continue;
    Duration until_report;
    for (const Unit& unit : units) {
      until_report += Duration{unit.predicted.ns / (unit.tracked ? unit.count : 1)};
      if (unit.tracked) break;
    }
    oldest = std::min(oldest, units.front().at);
    longest = std::max(longest, until_report);
  }
  if (oldest == kNever) return kNever;
  const Duration patience{std::max(kStuckAtLeast.ns, longest.ns * kStuckFactor) << usage.patience};
  const Instant since = std::max(oldest, usage.last_progress);
  // It may be behind others' work: what they have completed gives it more time, and so does what they
  // have in flight.
  const Instant at = std::min(std::max(since, on.reported_until), since + kAheadAtMost) + patience;
  if (at > now_) return at;
  Duration others;
  for (ClientId member : on.busy) {
    if (member != client.id) others += usage_of(*find(member), usage.device).in_flight;
  }
  others = std::min(others, kAheadAtMost);
  return at + others + others;
}

void Engine::Core::look_for_inversion(Client& client) {
  for (auto& usage : client.usages) {
    if (usage->stuck || stuck_at(client, *usage) > now_) continue;
    usage->stuck = true;
    if (usage->patience == kMostPatience) usage->waits_for_lower = true;
    if (usage->waits_for_lower) usage->patience = 0;
    recount_stuck(*device(usage->device));
    if (client.inversion_told) continue;
    client.inversion_told = true;
    notice("client " + std::to_string(client.id.value) + " (" + client.task +
           ") makes no progress on device " + std::to_string(usage->device.value) +
           ": lower priorities may go until it does; it may be waiting for one of them");
  }
}

void Engine::Core::recount_stuck(Device& on) {
  int level = kNobodyStuck;
  for (ClientId member : on.members) {
    const Client* client = find(member);
    if (client->ranks->stands()) continue;
    for (const auto& usage : client->usages) {
      if (usage->stuck && device(usage->device) == &on) {
        level = std::min<int>(level, client->priority.level);
      }
    }
  }
  if (level == on.stuck_level) return;
  on.stuck_level = level;
  mark_all(on);
}

// ---- watchdog -------------------------------------------------------------------------------

// When this launch has been held for as long as the user says. From then on the policy may say longer.
Instant Engine::Core::watchdog_due(const Client& client, const PendingLaunch& pending) const {
  if (choice_.max_hold.ns == 0 || !holds_by_prediction() || client.ranks->is_stopped()) return kNever;
  const Instant from = std::max(pending.since, client.last_floor);
  const Device& on = device_of(usage_of(client, pending.device));
  if (now_ < from + choice_.max_hold || !on.policy) return from + choice_.max_hold;
  return from + on.policy->holds_for(client.id, choice_.max_hold);
}

void Engine::Core::watchdog(Client& client) {
  PendingLaunch* pending = nullptr;
  Instant due = kNever;
  for (PendingLaunch& held : client.pending) {
    if (held.released || usage_of(client, held.device).gate == Gate::kOpen) continue;
    if (const Instant its = watchdog_due(client, held); its < due) {
      pending = &held;
      due = its;
    }
  }
  if (pending == nullptr || now_ < due) return;
  const Duration held = due - std::max(pending->since, client.last_floor);
  client.last_floor = now_;
  client.floor_grants += 1;
  release(client, *pending, /*tell_policy=*/true);
  if (client.floor_grants > 1) return;
  notice("client " + std::to_string(client.id.value) + " (" + client.task + ") was held for " +
         std::to_string(held.ns / 1'000'000) +
         " ms: one launch let go, and one for each such time from now on");
}

// ---- publishing -----------------------------------------------------------------------------

bool Engine::Core::runs_ahead(const Client& client, const DeviceUsage& usage,
                              const Device& on) const {
  const bool preceded = on.progress && (!holds_by_prediction() || on.highest_level < client.priority.level);
  const Duration from =
      usage.gate == Gate::kOpen ? Duration{kRunAhead.ns / 2} : Duration{kRunAhead.ns / 4};
  return preceded && usage.in_flight > from;
}

Engine::Core::Target Engine::Core::target(const Client& client, const DeviceUsage& usage) const {
  const Device& on = device_of(usage);
  if (client.ranks->is_stopped()) return {Gate::kClosed};
  if (on.stuck_level < client.priority.level) return {Gate::kOpen};
  if (client.ranks->closed) return {Gate::kClosed};
  if (usage.wanted == Gate::kCredit) return {Gate::kCredit, usage.bound, usage.any_length};
  if (usage.wanted == Gate::kOpen && runs_ahead(client, usage, on)) {
    return {Gate::kCredit, kRunAhead, /*any_length=*/true, kRunAheadStep};
  }
  return {usage.wanted};
}

void Engine::Core::publish(Client& client) {
  for (auto& usage : client.usages) {
    const Target target = this->target(client, *usage);
    const Gate gate = target.gate;
    if (gate == Gate::kCredit) {
      publish_credit(client, *usage, target);
      continue;
    }
    if (gate == usage->gate) continue;
    usage->credit.take_back(now_, options_.control_latency);
    usage->gate = gate;
    if (gate == Gate::kOpen) usage->opened_at = now_;
    put(SetGate{client.id, usage->device, gate, Duration{}, /*new_epoch=*/false});
  }
}

// When a launch has waited too long: since the first of the grants that had room for it, or since the
// last grant.
Instant Engine::Core::stale_at(const PendingLaunch& pending, const DeviceUsage& usage) {
  return std::min(pending.fits_at, std::max(pending.since, usage.credit.granted_at())) +
         kStaleCredit;
}

void Engine::Core::publish_credit(Client& client, DeviceUsage& usage, const Target& target) {
  CreditLedger::Ask ask{.bound = target.bound,
                        .any_length = target.any_length,
                        .step = target.step,
                        .in_flight = usage.in_flight,
                        .units = usage.units};
  const Instant granted_at = usage.credit.granted_at();
  for (PendingLaunch& pending : client.pending) {
    if (pending.released || pending.device != usage.device) continue;
    ask.long_launch |= target.any_length && pending.charged > target.bound;
    pending.fits_at = usage.credit.fits(pending.charged)
                          ? std::min(pending.fits_at, std::max(pending.since, granted_at))
                          : kNever;
    // Either it began to wait after it had seen the grant, or it has waited too long. If nothing is in
    // flight, too much counts as spent.
    ask.stale |= pending.since >= granted_at + kGrantNoticed || now_ >= stale_at(pending, usage);
  }
  const auto grant = usage.credit.grant(ask, now_, options_.control_latency);
  if (!grant) return;
  if (grant->new_epoch) {
    for (PendingLaunch& pending : client.pending) pending.fits_at = kNever;
  }
  usage.gate = Gate::kCredit;
  put(SetGate{client.id, usage.device, Gate::kCredit, grant->granted, grant->new_epoch});
}

// ---- timers ---------------------------------------------------------------------------------

Instant Engine::Core::next_wake(const Client& client) const {
  Instant next = order_due(client);
  bool reported = client.ranks->is_stopped();
  for (const auto& usage : client.usages) {
    reported |= usage->marked_every != 0;
    if (!usage->stuck) next = std::min(next, stuck_at(client, *usage));
    next = std::min(next, usage->credit.settles_at());
  }
  // Unreported work for which nobody waits needs no timer: it is settled with the next launch.
  for (uint64_t busy = reported ? client.busy_streams : 0; busy != 0; busy &= busy - 1) {
    const UnitQueue& units = client.streams[static_cast<size_t>(__builtin_ctzll(busy))].units;
    const Unit& front = units.front();
    if (!units.awaits_report()) {
      next = std::min(next, due(client, usage_of(client, front.device), front));
    }
  }
  for (const PendingLaunch& pending : client.pending) {
    const DeviceUsage& usage = usage_of(client, pending.device);
    next = std::min(next, grant_expiry(pending, usage));
    if (pending.released || usage.gate == Gate::kOpen) continue;
    next = std::min(next, watchdog_due(client, pending));
    if (usage.gate == Gate::kCredit && usage.units == 0) {
      next = std::min(next, stale_at(pending, usage));
    }
  }
  return next == kNever ? kNever : std::max(next, now_ + Duration{1});
}

// A wake-up that has become too early stays: it costs one look. Moving it would cost one a launch.
void Engine::Core::set_wake(Client& client) {
  const Instant next = next_wake(client);
  if (next >= client.wake) return;
  if (client.wake != kNever) wakes_.erase({client.wake, client.id});
  client.wake = next;
  wakes_.emplace(next, client.id);
}

}  // namespace lull::engine
