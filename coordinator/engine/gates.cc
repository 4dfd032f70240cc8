#include <algorithm>

#include "coordinator/engine/core.h"

namespace lull::engine {

// ---- heads ----------------------------------------------------------------------------------

namespace {

// When a head that may go is given up for gone; kNever while it may not.
Instant head_expiry(const Head& head, const Seat& seat) {
  if (head.released) return head.released_at + kGrantedHeadExpires;
  if (seat.gate == Gate::kOpen) {
    return std::max(head.since, seat.opened_at) + kGrantedHeadExpires;
  }
  // Nothing of a fresh grant is spent and nothing is in flight: even the longest unit may go.
  if (seat.gate == Gate::kCredit && seat.units == 0 && seat.spent.ns == 0 && seat.granted.ns > 0) {
    return std::max(head.since, seat.granted_at) + kGrantedHeadExpires;
  }
  return kNever;
}

// Of a device the client is on.
const Seat& seat_of(const Client& client, DeviceId device) {
  return *client.seat(device);
}

}  // namespace

void Engine::Core::expire_heads(Client& client) {
  for (size_t i = client.heads.size(); i > 0; --i) {
    const Head& head = client.heads[i - 1];
    if (head_expiry(head, seat_of(client, head.device)) > now_) continue;
    std::erase_if(client.given_up, [&](const GivenUp& g) { return g.thread == head.thread; });
    if (client.given_up.size() < kMaxHeads) client.given_up.push_back({head.thread, head.ticket});
    drop_head(client, i - 1, /*tell_policy=*/true);
  }
}

bool Engine::Core::is_given_up(const Client& client, const Head& head, const Seat& seat) {
  return head_expiry(head, seat) != kNever &&
         std::ranges::any_of(client.given_up, [&](const GivenUp& g) {
           return g.thread == head.thread && g.ticket == head.ticket;
         });
}

void Engine::Core::release(Client& client, Head& head, bool tell_policy) {
  head.released = true;
  head.released_at = now_;
  put(Release{client.id, head.thread, head.ticket});
  if (tell_policy) {
    tell(*device(head.device), client, policies::Withdrawn{client.id, head.thread});
  }
  mark(client);
}

// ---- job rule -------------------------------------------------------------------------------

// Ranks of a job stop at the same launch index, the furthest that any has passed: a collective on
// the device spins for ever against a peer that is held. Where launches are not all known (a coordinator
// came late, or again) a rank goes on while the work of another hangs.
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
      for (const auto& seat : client.seats) {
        const bool overruled = device_of(*seat).stuck_level < client.priority.level;
        closed |= seat->wanted == Gate::kClosed && !overruled;
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

// When the client's work on a device counts as stuck; kNever if it has none that could be.
Instant Engine::Core::stuck_at(const Client& client, const Seat& seat) const {
  const Device& on = device_of(seat);
  if (!holds_by_prediction() || seat.units == 0 || on.lowest_level <= client.priority.level ||
      client.ranks->stands()) {
    return kNever;
  }
  const Unit* oldest = nullptr;
  for (uint64_t busy = client.busy_streams; busy != 0; busy &= busy - 1) {
    const UnitQueue& units = client.streams[static_cast<size_t>(__builtin_ctzll(busy))].units;
    const Unit& front = units.front();
    if (!front.tracked || front.device != seat.device) continue;
    if (oldest == nullptr || front.at < oldest->at) oldest = &front;
  }
  if (oldest == nullptr) return kNever;
  const Duration patience{
      std::max(kStuckAtLeast.ns, oldest->predicted.ns / oldest->count * kStuckFactor)};
  const Instant at = std::max(oldest->at, seat.last_progress) + patience;
  if (at > now_) return at;
  // It may well be behind the others' work; that has its time too.
  Duration others;
  for (ClientId member : on.busy) {
    if (member != client.id) others += seat_of(*find(member), seat.device).in_flight;
  }
  others = std::min(others, kAheadAtMost);
  return at + others + others;
}

void Engine::Core::look_for_inversion(Client& client) {
  for (auto& seat : client.seats) {
    if (seat->stuck || stuck_at(client, *seat) > now_) continue;
    seat->stuck = true;
    recount_stuck(*device(seat->device));
    if (client.inversion_told) continue;
    client.inversion_told = true;
    notice("client " + std::to_string(client.id.value) + " (" + client.task +
           ") makes no progress on device " + std::to_string(seat->device.value) +
           ": lower priorities may go until it does; it may be waiting for one of them");
  }
}

void Engine::Core::recount_stuck(Device& on) {
  int level = kNobodyStuck;
  for (ClientId member : on.members) {
    const Client* client = find(member);
    if (client->ranks->stands()) continue;
    for (const auto& seat : client->seats) {
      if (seat->stuck && device(seat->device) == &on) {
        level = std::min<int>(level, client->priority.level);
      }
    }
  }
  if (level == on.stuck_level) return;
  on.stuck_level = level;
  mark_all(on);
}

// ---- watchdog -------------------------------------------------------------------------------

namespace {

// The head that has waited longest at a gate that is not open.
Head* oldest_held(Client& client) {
  Head* oldest = nullptr;
  for (Head& head : client.heads) {
    if (head.released || seat_of(client, head.device).gate == Gate::kOpen) continue;
    if (oldest == nullptr || head.since < oldest->since) oldest = &head;
  }
  return oldest;
}

}  // namespace

void Engine::Core::watchdog(Client& client) {
  if (choice_.max_hold.ns == 0 || !holds_by_prediction() || client.ranks->is_stopped()) return;
  Head* head = oldest_held(client);
  if (head == nullptr || now_ < std::max(head->since, client.last_floor) + choice_.max_hold) {
    return;
  }
  client.last_floor = now_;
  client.floor_grants += 1;
  release(client, *head, /*tell_policy=*/true);
  if (client.floor_grants > 1) return;
  notice("client " + std::to_string(client.id.value) + " (" + client.task + ") was held for " +
         std::to_string(choice_.max_hold.ns / 1'000'000) +
         " ms: one launch let go, and one for each such time from now on");
}

// ---- publishing -----------------------------------------------------------------------------

Gate Engine::Core::target(const Client& client, const Seat& seat) const {
  if (client.ranks->is_stopped()) return Gate::kClosed;
  if (device_of(seat).stuck_level < client.priority.level) return Gate::kOpen;
  if (client.ranks->closed) return Gate::kClosed;
  return seat.wanted;
}

void Engine::Core::publish(Client& client) {
  for (auto& seat : client.seats) {
    const Gate gate = target(client, *seat);
    if (gate == Gate::kCredit) {
      publish_credit(client, *seat);
      continue;
    }
    if (gate == seat->gate) continue;
    void_grant(*seat);
    seat->gate = gate;
    seat->granted = Duration{};
    if (gate == Gate::kOpen) seat->opened_at = now_;
    put(SetGate{client.id, seat->device, gate, Duration{}, /*new_epoch=*/false});
  }
}

// Of a grant that is taken back, what may still be spent: taking back takes effect as late as giving
// does, and a gate that opens and closes faster than that has several grants under way.
void Engine::Core::void_grant(Seat& seat) const {
  if (seat.gate != Gate::kCredit || options_.control_latency.ns <= 0) return;
  if (now_ >= seat.voided_until) seat.voided = Duration{};
  seat.voided += std::max(Duration{}, seat.granted - seat.spent);
  seat.voided_until = now_ + options_.control_latency;
}

// When a head has waited too long for a grant that has room for it, however often that has changed.
Instant Engine::Core::stale_at(const Head& head, const Seat& seat) {
  return std::min(head.fits_at, std::max(head.since, seat.granted_at)) + kStaleCredit;
}

// The grant that keeps what is in flight within the bound:
//
//   granted = spent + (bound - in flight - voided)   so that  spent + next <= granted
//                                                    means    in flight + next <= bound
//
// In flight is as predicted, and so is the policy's bound; spent, voided and next are as charged, by
// the kernel's mean.
//
// An odd grant lets one launch through however long while nothing of it is spent (gate.h): given
// only with nothing in flight, and that is how a unit longer than the bound gets through.
void Engine::Core::publish_credit(Client& client, Seat& seat) {
  bool long_head = false;
  bool stale = false;
  for (Head& head : client.heads) {
    if (head.released || head.device != seat.device) continue;
    long_head |= seat.any_length && head.charged > seat.bound;
    const bool fits = seat.gate == Gate::kCredit && seat.spent + head.charged <= seat.granted;
    head.fits_at = fits ? std::min(head.fits_at, std::max(head.since, seat.granted_at)) : kNever;
    // It was turned away by a grant in which we see room, or has not noticed one for long.
    stale |= head.since >= seat.granted_at + kGrantNoticed || now_ >= stale_at(head, seat);
  }
  const bool nearly_full = seat.spent.ns > policies::kMaxCreditBound.ns / 2;
  const bool renew = seat.gate != Gate::kCredit ||
                     (seat.units == 0 &&
                      (stale || (seat.spent.ns > 0 && (long_head || nearly_full))));
  if (renew) {
    void_grant(seat);
    seat.spent = Duration{};
    seat.epoch_began = now_;
    for (Head& head : client.heads) head.fits_at = kNever;
  }
  if (now_ >= seat.voided_until) seat.voided = Duration{};
  const Duration room = std::max(Duration{}, seat.bound - seat.in_flight - seat.voided);
  Duration granted = std::min(seat.spent + room, policies::kMaxCreditBound);
  // Once something is spent the bit means nothing and stays as it is: no news for its sake alone.
  const bool any_length =
      seat.any_length &&
      (seat.spent.ns == 0 ? seat.units == 0 && seat.voided.ns == 0
                          : !renew && (seat.granted.ns & 1) != 0);
  granted.ns = any_length ? (granted.ns | 1) : (granted.ns & ~int64_t{1});
  if (!renew && granted == seat.granted) return;
  seat.gate = Gate::kCredit;
  seat.granted = granted;
  seat.granted_at = now_;
  put(SetGate{client.id, seat.device, Gate::kCredit, granted, renew});
}

// ---- timers ---------------------------------------------------------------------------------

Instant Engine::Core::next_wake(const Client& client) const {
  Instant next = order_due(client);
  bool reported = client.ranks->is_stopped();
  for (const auto& seat : client.seats) {
    reported |= seat->every_launch;
    if (!seat->stuck) next = std::min(next, stuck_at(client, *seat));
    if (seat->gate == Gate::kCredit && seat->voided.ns > 0) {
      next = std::min(next, seat->voided_until);
    }
  }
  // Where nobody waits for it, work that is not reported is settled with the next launch.
  for (uint64_t busy = reported ? client.busy_streams : 0; busy != 0; busy &= busy - 1) {
    const Unit& front =
        client.streams[static_cast<size_t>(__builtin_ctzll(busy))].units.front();
    if (!front.tracked) next = std::min(next, due(seat_of(client, front.device), front));
  }
  for (const Head& head : client.heads) {
    const Seat& seat = seat_of(client, head.device);
    next = std::min(next, head_expiry(head, seat));
    if (head.released || seat.gate == Gate::kOpen) continue;
    if (choice_.max_hold.ns > 0 && holds_by_prediction() && !client.ranks->is_stopped()) {
      next = std::min(next, std::max(head.since, client.last_floor) + choice_.max_hold);
    }
    if (seat.gate == Gate::kCredit && seat.units == 0) {
      next = std::min(next, stale_at(head, seat));
    }
  }
  return next == kNever ? kNever : std::max(next, now_ + Duration{1});
}

// A wake that has become too early stays: it costs one look, and moving it costs one a launch.
void Engine::Core::set_wake(Client& client) {
  const Instant next = next_wake(client);
  if (next >= client.wake) return;
  if (client.wake != kNever) wakes_.erase({client.wake, client.id});
  client.wake = next;
  wakes_.emplace(next, client.id);
}

}  // namespace lull::engine
