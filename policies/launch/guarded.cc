#include "policies/launch/guarded.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "policies/launch/client_table.h"
#include "policies/launch/device_queue.h"
#include "policies/launch/floor_account.h"
#include "policies/launch/task_guard.h"

namespace lull::policies {
namespace {

// Credit: at least the first, so many of the low client's usual units, at most the second.
constexpr Duration kSmallCredit{50'000};
constexpr Duration kUsualCredit{200'000};
constexpr Duration kLargestCredit{1'000'000};
constexpr int64_t kUnits = 3;
constexpr int64_t kCreditStep = 4'096;
constexpr int64_t kSmallStep = 1'024;
constexpr int64_t kReactionPreset = 15'000;
constexpr int64_t kReactions = 5;          // credit covers so many, so that the device stays busy
constexpr Duration kLookAgain{100'000};

class Guarded final : public LaunchPolicy {
 public:
  Guarded(GuardLimits limits, int64_t floor_per_mille, Duration switch_cost)
      : limits_(limits), switch_cost_(switch_cost), floor_(floor_per_mille) {}

  void step(Instant now, std::span<const Event> events, std::vector<Decision>& out) override {
    for (const Event& event : events) take(event, now);
    floor_.settle(now);
    for (const Member& member : table_.members()) {
      if (TaskGuard* guard = extra(member.client).guard.get()) guard->settle(lower_units(member) > 0);
    }
    look_again_ = false;
    for (Member& member : table_.members()) decide(member, now, out);
    Instant wake = table_.has_several_levels() ? table_.next_expiry(now) : kNever;
    if (look_again_) wake = std::min(wake, now + kLookAgain);
    if (wake != kNever && (wake_ <= now || wake < wake_)) {
      wake_ = wake;
      out.push_back(WakeAt{wake});
    }
  }

 private:
  struct Extra {  // what is kept of a client beside the table's
    ClientId client;
    std::unique_ptr<TaskGuard> guard;  // of one with lower clients
    Instant released_at = kNever;      // the head let go last, until it has launched
    int64_t reaction_ns = kReactionPreset;
    int64_t unit_ns = 0;               // usual length of its launches
    uint32_t kernels = 0;              // on the device, copies apart
  };

  Extra& extra(ClientId client) {
    auto at = std::lower_bound(extras_.begin(), extras_.end(), client,
                               [](const Extra& e, ClientId id) { return e.client < id; });
    if (at == extras_.end() || at->client != client) {
      at = extras_.insert(at, Extra{});
      at->client = client;
    }
    return *at;
  }

  void take(const Event& event, Instant now) {
    if (std::holds_alternative<TimerDue>(event)) wake_ = kNever;
    floor_.take(event);
    Member* member = table_.apply(event);
    if (const auto* left = std::get_if<Left>(&event)) {
      const uint32_t gone = extra(left->client).kernels;
      std::erase_if(extras_, [&](const Extra& e) { return e.client == left->client; });
      queue_.left(left->client);
      for (Extra& its : extras_) {
        if (its.guard) its.guard->lower_kernels().left(left->client);
      }
      for (const Member& high : table_.members()) {
        TaskGuard* guard = extra(high.client).guard.get();
        if (guard != nullptr) guard->lower_ended(gone, lower_kernels(high), now);
      }
    }
    if (std::holds_alternative<Joined>(event) || std::holds_alternative<Left>(event) ||
        std::holds_alternative<Reprioritised>(event)) {
      choose_guarded();
    }
    if (member == nullptr) return;
    Extra& its = extra(member->client);
    if (const auto* launch = std::get_if<Submitted>(&event)) {
      const bool first = queue_.first(launch->client, launch->stream) == nullptr;
      queue_.submitted(*launch, cost_above(*member, launch->kernel, launch->predicted));
      if (first) began(*member, launch->stream, now);
      if (its.guard) its.guard->submitted(*launch, lower_units(*member) > 0);
      its.unit_ns += (launch->predicted.ns - its.unit_ns) / 8;
      if (its.released_at != kNever) {
        const int64_t took = std::max<int64_t>(0, (launch->at - its.released_at).ns);
        its.reaction_ns += (std::min<int64_t>(took, 1'000'000) - its.reaction_ns) / 8;
        its.released_at = kNever;
      }
      its.kernels += launch->copy ? 0 : 1;
      guards_above(*member, [&](TaskGuard& guard) { guard.disturbed(launch->copy); });
    } else if (const auto* done = std::get_if<Completed>(&event)) {
      const Instant ran_from = queue_.moved_at();
      guards_above(*member, [&](TaskGuard& guard) {
        guard.lower_kernels().ended(done->client, done->stream, now);
      });
      const uint32_t kernels = queue_.completed(*done, now);
      its.kernels -= std::min(kernels, its.kernels);
      for (const Member& high : table_.members()) {
        if (kernels == 0 || high.priority >= member->priority) continue;
        TaskGuard& guard = *extra(high.client).guard;
        guard.lower_ran(ran_from, now);
        guard.lower_ended(kernels, lower_kernels(high), now);
      }
      if (its.guard) its.guard->completed(*done, now, lower_units(*member) > 0);
      began(*member, done->stream, now);
    } else if (const auto* synced = std::get_if<Synced>(&event)) {
      if (its.guard) its.guard->synced(*synced);
    }
  }

  // A client's own bound comes before the policy's. Where nothing may be lost, a thousandth is what
  // cannot be told from nothing: accounts that earn nothing would never forgive an error.
  GuardLimits limits_of(const Member& member) const {
    GuardLimits limits = limits_;
    if (member.bound.is_set()) {
      limits.mean_per_mille = member.bound.mean_per_mille;
      limits.tail_per_mille = member.bound.p99_per_mille;
    }
    limits.mean_per_mille = std::max<int64_t>(1, limits.mean_per_mille);
    limits.tail_per_mille = std::max<int64_t>(1, limits.tail_per_mille);
    return limits;
  }

  // A guard for everyone who has lower ones; it keeps what it knows while it has.
  void choose_guarded() {
    uint8_t lowest = 0;
    for (const Member& member : table_.members()) {
      lowest = std::max(lowest, member.priority.level);
    }
    for (const Member& member : table_.members()) {
      Extra& its = extra(member.client);
      if (member.priority.level >= lowest) {
        its.guard.reset();
      } else if (!its.guard) {
        its.guard = std::make_unique<TaskGuard>(limits_of(member));
      }
    }
  }

  // The sum of what `of` says of each member below this one.
  template <typename Of>
  auto sum_below(const Member& than, Of of) const {
    decltype(of(than)) sum{};
    for (const Member& member : table_.members()) {
      if (member.priority > than.priority) sum += of(member);
    }
    return sum;
  }
  uint32_t lower_units(const Member& than) const {
    return sum_below(than, [](const Member& low) { return low.units; });
  }
  uint32_t lower_kernels(const Member& than) {
    return sum_below(than, [&](const Member& low) { return extra(low.client).kernels; });
  }
  Duration lower_in_flight(const Member& than) const {
    return sum_below(than, [&](const Member& low) {
      return std::max(Duration{}, low.in_flight - queue_.spared(low.client));
    });
  }

  template <typename Use>
  void guards_above(const Member& low, Use use) {
    for (const Member& high : table_.members()) {
      if (high.priority < low.priority) use(*extra(high.client).guard);
    }
  }

  // The first unit of this stream may run from here on.
  void began(const Member& member, StreamSlot stream, Instant now) {
    const DeviceQueue::Unit* unit = queue_.first(member.client, stream);
    if (unit == nullptr || unit->copy) return;
    guards_above(member, [&](TaskGuard& guard) {
      guard.lower_kernels().began({unit->client, stream, unit->kernel, unit->predicted}, now);
    });
  }

  // What a unit costs the one above it that it costs most; its length where there is none.
  Duration cost_above(const Member& low, KernelId kernel, Duration predicted) {
    if (predicted < KernelCosts::kLong || !has_higher(low)) return predicted;
    Duration most;
    guards_above(low, [&](const TaskGuard& guard) {
      most = std::max(most, guard.cost(kernel, predicted));
    });
    return most;
  }

  // Room that `high` leaves, less what lower work has of it already. What the running unit has done
  // was counted as to come, but for own work that no slack will ever be known of.
  Duration room_beside(const Member& high, const TaskGuard& guard, Instant now) const {
    const DeviceQueue::Unit* running = queue_.running();
    const bool own = running != nullptr && running->client == high.client;
    const Duration done = own && !guard.has_waits() ? Duration{} : queue_.progress(now);
    return guard.room(now, lower_units(high)) - lower_in_flight(high) + done - switch_cost(guard);
  }

  // That lower work has the device at all.
  Duration switch_cost(const TaskGuard& guard) const {
    return std::max(switch_cost_, guard.switch_cost());
  }

  // What all who are above `low` leave it: room for work of its level and below.
  Duration room_for(const Member& low, Instant now) {
    Duration room = kMaxCreditBound;
    borne_ = kSmallCredit;
    for (const Member& high : table_.members()) {
      if (high.priority >= low.priority) continue;
      if (!high.is_active(now)) {  // it may be back any time
        room = std::min(room, kUsualCredit);
        continue;
      }
      const TaskGuard& guard = *extra(high.client).guard;
      if (guard.wants_clean()) {
        borne_ = {};
        return {};
      }
      borne_ = guard.idle() ? std::min(borne_, guard.bears() - switch_cost(guard)) : Duration{};
      room = std::min(room, room_beside(high, guard, now));
    }
    return room;
  }

  bool has_higher(const Member& low) const {
    return std::ranges::any_of(table_.members(), [&](const Member& m) {
      return m.priority.level < low.priority.level;
    });
  }

  uint32_t sharers(const Member& low, Instant now) const {
    uint32_t count = 0;
    for (const Member& member : table_.members()) {
      if (member.priority == low.priority && member.is_active(now)) ++count;
    }
    return std::max(1U, count);
  }

  void decide(Member& member, Instant now, std::vector<Decision>& out) {
    if (!has_higher(member)) {
      ClientTable::open(member, out);
      return;
    }
    give_floor(member, now, out);
    Extra& its = extra(member.client);
    const int64_t usable = room_for(member, now).ns - its.reaction_ns;
    int64_t most = std::clamp(std::max(kReactions * its.reaction_ns, kUnits * its.unit_ns),
                              kUsualCredit.ns, kLargestCredit.ns);
    // Half of a large room, so that few units have to be let go by name and the device stays busy.
    while (4 * most <= usable && 2 * most <= kLargestCredit.ns) most *= 2;
    // All of it in a service that is too slow anyway: what its host launches meanwhile has its
    // turns between the important client's launches, and a long unit behind them is reached.
    guards_above(member, [&](const TaskGuard& guard) {
      if (guard.over_anyway(now)) most = std::max(most, member.in_flight.ns + usable);
    });
    // In steps, so that it is not published anew with every event.
    int64_t credit = std::min(most, member.in_flight.ns + usable / sharers(member, now));
    credit = credit >= most ? most : credit / kCreditStep * kCreditStep;
    // Short units while nobody is there cost little, whatever is known.
    credit = std::max(credit, borne_.ns / sharers(member, now) / kSmallStep * kSmallStep);
    if (credit <= 0) {
      ClientTable::close(member, out);
    } else {
      ClientTable::credit(member, Duration{credit}, out, /*any_length=*/false);
    }
    long_heads(member, usable, credit, most, now, out);
  }

  // Units that no credit covers: by name, where they fit or the accounts hold what they cost.
  void long_heads(Member& member, int64_t usable, int64_t credit, int64_t most, Instant now,
                  std::vector<Decision>& out) {
    if (member.heads.empty()) return;
    // What is let go early can do no more good than keep the device busy, and more harm where the
    // slack is less than it seems.
    const Duration there = member.in_flight - queue_.spared(member.client);
    const bool busy = (there - queue_.progress(now)).ns > most;
    // However little such units cost, what is there cannot be called back.
    const bool enough = there < member.in_flight && member.units > 1;
    if (busy || enough) return;
    for (WaitingHead& head : member.heads) {
      if (head.released) continue;
      if (member.in_flight.ns + head.charged.ns <= credit) continue;  // the gate lets it through
      const Duration cost = cost_above(member, head.kernel, head.predicted);
      if (cost.ns > usable && !afforded(member, head, now)) {
        look_again_ = true;
        guards_above(member, [&](TaskGuard& guard) { guard.refused(cost); });
        continue;
      }
      if (cost.ns > usable) spend(member, head, now);
      release(member, head, now, out);
      usable -= cost.ns;
    }
  }

  // What this unit costs at most, and by how much less it is expected to.
  struct Cost {
    Duration most, spare;
  };
  static Cost cost_of(const TaskGuard& guard, const WaitingHead& head) {
    const Duration most = guard.cost(head.kernel, head.predicted);
    return {most, most - guard.cost(head.kernel, head.expected)};
  }

  // By how much it exceeds the room that `high` leaves.
  Duration excess(const Member& high, const Member& low, const WaitingHead& head, Instant now) {
    const TaskGuard& guard = *extra(high.client).guard;
    const Duration needed = guard.cost(head.kernel, head.predicted) +
                            Duration{extra(low.client).reaction_ns};
    return needed - room_beside(high, guard, now);
  }

  // Whether everyone above can bear this unit now, which is longer than the room they leave.
  bool afforded(const Member& low, const WaitingHead& head, Instant now) {
    for (const Member& high : table_.members()) {
      if (high.priority >= low.priority || !high.is_active(now)) continue;
      const TaskGuard& guard = *extra(high.client).guard;
      if (guard.wants_clean()) return false;
      const Duration over = excess(high, low, head, now);
      if (over.ns <= 0) continue;
      const auto [most, spare] = cost_of(guard, head);
      if (!guard.affords(over, spare, now)) return false;
      if (guard.has_better_moment(now, most, spare)) return false;
    }
    return true;
  }

  // It is let go: whoever it is in the way of knows why.
  void spend(const Member& low, const WaitingHead& head, Instant now) {
    for (const Member& high : table_.members()) {
      if (high.priority >= low.priority) continue;
      const Duration over = high.is_active(now) ? excess(high, low, head, now) : Duration{};
      TaskGuard& guard = *extra(high.client).guard;
      const auto [most, spare] = cost_of(guard, head);
      guard.spend(std::max(Duration{}, over), most, spare, now);
    }
  }

  void release(Member& member, WaitingHead& head, Instant now, std::vector<Decision>& out) {
    head.released = true;
    extra(member.client).released_at = now;
    out.push_back(ReleaseHead{member.client, head.thread, head.ticket});
  }

  // A client that has had less than its floor goes on, whatever it costs.
  void give_floor(Member& member, Instant now, std::vector<Decision>& out) {
    if (member.heads.empty()) return;
    Duration due = floor_.due(member.client);
    for (const WaitingHead& head : member.heads) {
      if (head.released) due -= head.predicted;
    }
    for (WaitingHead& head : member.heads) {
      if (due.ns <= 0) return;
      if (head.released) continue;
      release(member, head, now, out);
      due -= head.predicted;
    }
  }

  const GuardLimits limits_;
  const Duration switch_cost_;
  ClientTable table_;
  DeviceQueue queue_;
  FloorAccount floor_;
  std::vector<Extra> extras_;  // by client
  bool look_again_ = false;
  Duration borne_;  // by those above the client that is decided about, while none is there
  Instant wake_ = kNever;
};

}  // namespace

std::unique_ptr<LaunchPolicy> make_guarded(const SettingValues& values) {
  return std::make_unique<Guarded>(GuardLimits{values[0], values[1], values[4]}, values[2],
                                   Duration{values[3] * 1000});
}

}  // namespace lull::policies
