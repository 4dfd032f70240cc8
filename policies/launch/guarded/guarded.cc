#include "policies/launch/guarded/guarded.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "policies/launch/client_table.h"
#include "policies/launch/guarded/admission.h"
#include "policies/launch/guarded/budget/floor_account.h"
#include "policies/launch/guarded/client_activity.h"
#include "policies/launch/guarded/observe/device_queue.h"
#include "policies/launch/guarded/task_guard.h"
#include "policies/launch/sharing_figures.h"

namespace lull::policies {
namespace {

constexpr Duration kLookAgain{100'000};
constexpr int64_t kChargesRemembered = 256;  // launches

class Guarded final : public LaunchPolicy {
 public:
  Guarded(GuardLimits limits, int64_t floor_per_mille, Duration switch_cost)
      : limits_(limits), switch_cost_(switch_cost), floor_(floor_per_mille) {}

  void step(Instant now, std::span<const Event> events, std::vector<Decision>& out) override {
    for (const Event& event : events) take(event, now);
    floor_.settle(now);
    for (const uint32_t index : clients_.awake()) {
      ClientState& its = clients_.own(index);
      if (its.waited && its.guard) its.guard->settle(lower_units(clients_.member(index)) > 0);
      its.waited = false;
    }
    clients_.settle_down(now, [](const ClientState& its) { return habits_of(its).usual.ns; });
    look_again_ = false;
    decide_all(now, out);
    Instant wake = clients_.table().has_several_levels() ? clients_.table().next_expiry(now) : kNever;
    if (look_again_) wake = std::min(wake, now + kLookAgain);
    if (wake != kNever && (wake_ <= now || wake < wake_)) {
      wake_ = wake;
      out.push_back(WakeAt{wake});
    }
  }

  std::optional<PairFigures> figures(ClientId high, ClientId low) const override {
    return figures_.of(high, low);
  }

 private:
  void take(const Event& event, Instant now) {
    if (std::holds_alternative<TimerDue>(event)) wake_ = kNever;
    floor_.take(event);
    const auto* left = std::get_if<Left>(&event);
    const uint32_t gone = left == nullptr ? 0 : clients_.kernels_of(left->client);
    const std::optional<uint32_t> index = clients_.apply(event, now);
    if (left != nullptr) forget(left->client, gone, now);
    if (left != nullptr) figures_.left(left->client);
    if (ClientActivity::changes_who_is_there(event)) choose_guarded();
    if (!index) return;
    const Member& member = clients_.member(*index);
    ClientState& its = clients_.own(*index);
    if (const auto* launch = std::get_if<Submitted>(&event)) {
      const bool first = queue_.first(launch->client, launch->stream) == nullptr;
      const Duration cost = cost_above(member, launch->kernel, launch->predicted);
      queue_.submitted(*launch, cost);
      if (has_higher(member) && !launch->copy) figures_.unit(member.client, cost, now);
      if (first) began(member, launch->stream, now);
      if (its.guard) its.guard->submitted(*launch, lower_units(member) > 0);
      its.unit_ns += (launch->predicted.ns - its.unit_ns) / 8;
      const Duration most = almost_surely(launch->predicted, launch->expected);
      its.beyond_charge_ns =
          std::max((most - launch->charged).ns,
                   its.beyond_charge_ns - its.beyond_charge_ns / kChargesRemembered);
      if (its.released_at != kNever) {
        const int64_t took = std::max<int64_t>(0, (launch->at - its.released_at).ns);
        its.reaction_ns += (std::min<int64_t>(took, 1'000'000) - its.reaction_ns) / 8;
        its.released_at = kNever;
      }
      clients_.count_kernels(*index, launch->copy ? 0 : 1, 0);
      guards_above(member, [&](TaskGuard& guard) { guard.disturbed(launch->copy, launch->at); });
      clients_.lower_work().came(member.priority, launch->copy);
    } else if (const auto* done = std::get_if<Completed>(&event)) {
      const Instant ran_from = queue_.moved_at();
      guards_above(member, [&](TaskGuard& guard) {
        guard.lower_kernels().ended(done->client, done->stream, now);
      });
      clients_.lower_work().through(done->client, done->stream);
      const uint32_t kernels = queue_.completed(*done, now);
      clients_.count_kernels(*index, 0, kernels);
      if (kernels > 0) lower_ended(member, kernels, ran_from, now);
      if (its.guard) its.guard->completed(*done, now, lower_units(member) > 0);
      began(member, done->stream, now);
    } else if (const auto* synced = std::get_if<Synced>(&event)) {
      if (its.guard) its.guard->synced(*synced);
    } else if (const auto* head = std::get_if<Waiting>(&event)) {
      if (has_higher(member)) {
        figures_.unit(member.client, cost_above(member, head->kernel, head->predicted), now);
      }
    }
  }

  void lower_ended(const Member& low, uint32_t kernels, Instant ran_from, Instant now) {
    for_awake_above(low, [&](const Member& high, TaskGuard& guard) {
      guard.lower_ran(ran_from, now);
      guard.lower_ended(kernels, clients_.lower_kernels(high.priority), now);
    });
    clients_.lower_work().ended(low.priority, now);
  }

  // Who has left. Everybody is awake.
  void forget(ClientId client, uint32_t gone, Instant now) {
    queue_.left(client);
    clients_.lower_work().left(client);
    for (const uint32_t index : clients_.awake()) {
      TaskGuard* guard = clients_.own(index).guard.get();
      if (guard == nullptr) continue;
      guard->lower_kernels().left(client);
      guard->lower_ended(gone, clients_.lower_kernels(clients_.member(index).priority), now);
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
    for (const Member& member : clients_.table().members()) {
      lowest = std::max(lowest, member.priority.level);
    }
    for (const uint32_t index : clients_.awake()) {  // everybody
      ClientState& its = clients_.own(index);
      const Member& member = clients_.member(index);
      if (member.priority.level >= lowest) {
        its.guard.reset();
      } else if (!its.guard) {
        its.guard = std::make_unique<TaskGuard>(limits_of(member));
      }
    }
  }

  // The sum of what `of` says of each member below this one. Those that rest have nothing on the
  // device.
  template <typename Of>
  auto sum_below(const Member& than, Of of) const {
    decltype(of(than)) sum{};
    for (const uint32_t index : clients_.awake()) {
      const Member& member = clients_.member(index);
      if (member.priority > than.priority) sum += of(member);
    }
    return sum;
  }
  uint32_t lower_units(const Member& than) const {
    return sum_below(than, [](const Member& low) { return low.units; });
  }
  Duration lower_in_flight(const Member& than, const TaskGuard& than_guard) const {
    return sum_below(than, [&](const Member& low) {
      Duration there = std::max(Duration{}, low.in_flight - queue_.spared(low.client));
      for (const WaitingHead& head : low.heads) {
        if (head.released) there += than_guard.cost(head.kernel, head.predicted);
      }
      return there;
    });
  }

  // Of those that are awake: the others' guards catch up, or have nothing to say.
  template <typename Use>
  void for_awake_above(const Member& low, Use use) {
    for (const uint32_t index : clients_.awake()) {
      const Member& high = clients_.member(index);
      if (high.priority < low.priority) use(high, *clients_.own(index).guard);
    }
  }
  template <typename Use>
  void guards_above(const Member& low, Use use) {
    for_awake_above(low, [&](const Member&, TaskGuard& guard) { use(guard); });
  }

  // The first unit of this stream may run from here on.
  void began(const Member& member, StreamSlot stream, Instant now) {
    const DeviceQueue::Unit* first = queue_.first(member.client, stream);
    if (first == nullptr || first->copy) return;
    const KernelCosts::Unit unit{first->client, stream, first->kernel, first->predicted};
    guards_above(member, [&](TaskGuard& guard) { guard.lower_kernels().began(unit, now); });
    clients_.lower_work().began(member.priority, unit, now);
  }

  // What a unit costs the one above it that it costs most; its length where there is none.
  Duration cost_above(const Member& low, KernelId kernel, Duration predicted) {
    if (predicted < KernelCosts::kLong || !has_higher(low)) return predicted;
    Duration most = clients_.cost_resting(low.priority, kernel, predicted);
    guards_above(
        low, [&](const TaskGuard& guard) { most = std::max(most, guard.cost(kernel, predicted)); });
    return most;
  }

  // Room that `high` leaves, less what lower work has of it already. What the running unit has done
  // was counted as to come, but for own work that no slack will ever be known of.
  Duration room_beside(const Member& high, const TaskGuard& guard, Instant now) const {
    const DeviceQueue::Unit* running = queue_.running();
    const bool own = running != nullptr && running->client == high.client;
    const Duration done = own && !guard.has_waits() ? Duration{} : queue_.progress(now);
    return guard.room(now, lower_units(high)) - lower_in_flight(high, guard) + done -
           switch_cost(guard);
  }

  // That lower work has the device at all.
  Duration switch_cost(const TaskGuard& guard) const {
    return std::max(switch_cost_, guard.switch_cost());
  }

  const Room& room_for(const Member& low, Instant now) {
    std::optional<Room>& room = rooms_[low.priority.level];
    if (!room) room = look_for_room(low, now);
    return *room;
  }
  Room look_for_room(const Member& low, Instant now) {
    // Who rests, or is away, may be back any time.
    const bool rests = clients_.rests_above(low.priority);
    Room found{.room = rests ? kUsualCredit : kMaxCreditBound, .borne = kSmallCredit};
    int64_t sharers = 0;
    bool clean = false;
    for (const uint32_t index : clients_.awake()) {
      const Member& high = clients_.member(index);
      const bool active = high.is_active(now);
      if (high.priority == low.priority && active) ++sharers;
      if (high.priority >= low.priority) continue;
      const TaskGuard& guard = *clients_.own(index).guard;
      found.over = found.over || guard.over_anyway(now);
      clean = clean || (active && guard.wants_clean());
      if (clean) continue;
      if (!active) {
        found.room = std::min(found.room, kUsualCredit);
        continue;
      }
      found.borne =
          guard.idle() ? std::min(found.borne, guard.bears() - switch_cost(guard)) : Duration{};
      const Duration room = room_beside(high, guard, now);
      if (lower_units(high) == 0) figures_.room(high.client, room, now);
      found.room = std::min(found.room, room);
    }
    if (clean) found.room = found.borne = {};
    found.sharers = std::max<int64_t>(1, sharers);
    return found;
  }
  // What guards say is not what it was.
  void guards_changed() {
    rooms_ = {};
    changed_ = true;
  }

  bool has_higher(const Member& low) const { return clients_.has_higher(low.priority); }

  // In the order of clients: those that are awake one by one, and between them those that rest.
  void decide_all(Instant now, std::vector<Decision>& out) {
    const size_t first = out.size();
    guards_changed();
    for (RestingGroup& group : clients_.resting()) {
      group.same = true;
      group.credit = resting_credit(group, now);
    }
    uint32_t from = 0;
    for (const uint32_t index : clients_.awake()) {
      changed_ = false;
      decide(index, now, out);
      if (!changed_) continue;
      tell_resting(from, index, out);
      from = index;
      for (RestingGroup& group : clients_.resting()) {
        const int64_t before = std::exchange(group.credit, resting_credit(group, now));
        group.same = group.same && group.credit == before;
      }
    }
    if (!tell_resting(from, static_cast<uint32_t>(clients_.size()), out)) return;
    std::stable_sort(
        out.begin() + static_cast<ptrdiff_t>(first), out.end(),
        [](const Decision& a, const Decision& b) { return client_of(a) < client_of(b); });
  }

  static ClientId client_of(const Decision& decision) {
    return std::visit(
        [](const auto& d) {
          if constexpr (requires { d.client; }) return d.client;
          return ClientId{};
        },
        decision);
  }

  int64_t resting_credit(const RestingGroup& group, Instant now) {
    const Member& first = clients_.member(group.members.front());
    const LaunchHabits habits{{group.reaction_ns}, {group.usual_ns}, {group.beyond_charge_ns}};
    return allow(room_for(first, now), habits, first.in_flight).credit.ns;
  }

  // Those from .. to - 1. Whether any of them was told something.
  bool tell_resting(uint32_t from, uint32_t to, std::vector<Decision>& out) {
    const size_t before = out.size();
    for (RestingGroup& group : clients_.resting()) {
      auto at = group.told == group.credit ? group.members.end()
                                           : std::ranges::lower_bound(group.members, from);
      for (; at != group.members.end() && *at < to; ++at)
        tell(clients_.member(*at), group.credit, out);
      if (to == clients_.size()) group.told = group.same ? std::optional(group.credit) : std::nullopt;
    }
    return out.size() != before;
  }

  static void tell(Member& member, int64_t credit, std::vector<Decision>& out) {
    if (credit <= 0) {
      ClientTable::close(member, out);
    } else {
      ClientTable::credit(member, Duration{credit}, out, /*any_length=*/false);
    }
  }

  static LaunchHabits habits_of(const ClientState& its) {
    const Duration reaction{its.reaction_ns};
    return {reaction, usual_credit(reaction, Duration{its.unit_ns}),
            Duration{its.beyond_charge_ns}};
  }

  void decide(uint32_t index, Instant now, std::vector<Decision>& out) {
    Member& member = clients_.member(index);
    if (!has_higher(member)) {
      ClientTable::open(member, out);
      return;
    }
    give_floor(index, now, out);
    const LaunchHabits habits = habits_of(clients_.own(index));
    Allowance allowed = allow(room_for(member, now), habits, member.in_flight);
    // What is let go by name is on its way: the credit that goes with it reckons with that.
    if (long_heads(index, allowed, now, out)) {
      allowed = allow(room_for(member, now), habits, member.in_flight);
    }
    tell(member, allowed.credit.ns, out);
  }

  // Units that no credit covers: by name, where they fit or the accounts hold what they cost.
  // Whether any was let go.
  bool long_heads(uint32_t index, Allowance allowed, Instant now, std::vector<Decision>& out) {
    Member& member = clients_.member(index);
    if (member.heads.empty()) return false;
    // What is let go early can do no more good than keep the device busy, and more harm where the
    // slack is less than it seems.
    const Duration there = member.in_flight - queue_.spared(member.client);
    const bool busy = there - queue_.progress(now) > allowed.most;
    // However little such units cost, what is there cannot be called back.
    const bool enough = there < member.in_flight && member.units > 1;
    if (busy || enough) return false;
    bool any = false;
    for (WaitingHead& head : member.heads) {
      if (head.released) continue;
      if (member.in_flight + head.charged <= allowed.credit) continue;  // the gate lets it through
      const Duration cost =
          cost_above(member, head.kernel, almost_surely(head.predicted, head.expected));
      if (cost > allowed.usable && !afforded(index, head, now)) {
        look_again_ = true;
        refuse(member, cost);
        continue;
      }
      if (cost > allowed.usable) spend(index, head, now);
      release(index, head, now, out);
      allowed.usable -= cost;
      any = true;
    }
    if (any) guards_changed();
    return any;
  }

  // What this unit costs at most, and by how much less it is expected to.
  struct Cost {
    Duration most, spare;
  };
  static Cost cost_of(const TaskGuard& guard, const WaitingHead& head) {
    const Duration most = guard.cost(head.kernel, almost_surely(head.predicted, head.expected));
    return {most, most - guard.cost(head.kernel, head.expected)};
  }

  void refuse(const Member& low, Duration cost) {
    bool news = false;
    guards_above(low, [&](TaskGuard& guard) { news |= guard.refused(cost); });
    clients_.lower_work().refused(low.priority, cost);
    if (news) guards_changed();
  }

  // By how much it exceeds the room that `high` leaves.
  Duration excess(const Member& high, const TaskGuard& guard, const ClientState& low,
                  const WaitingHead& head, Instant now) const {
    const Duration needed = guard.cost(head.kernel, almost_surely(head.predicted, head.expected)) +
                            Duration{low.reaction_ns};
    return needed - room_beside(high, guard, now);
  }

  // Whether everyone above can bear this unit now, which is longer than the room they leave.
  bool afforded(uint32_t low, const WaitingHead& head, Instant now) const {
    for (const uint32_t index : clients_.awake()) {
      const Member& high = clients_.member(index);
      if (high.priority >= clients_.member(low).priority || !high.is_active(now)) continue;
      const TaskGuard& guard = *clients_.own(index).guard;
      if (guard.wants_clean()) return false;
      const Duration over = excess(high, guard, clients_.own(low), head, now);
      if (over.ns <= 0) continue;
      const auto [most, spare] = cost_of(guard, head);
      if (!guard.affords(over, spare, now)) return false;
      if (guard.has_better_moment(now, most, spare)) return false;
    }
    return true;
  }

  // It is let go: whoever it is in the way of knows why.
  void spend(uint32_t low, const WaitingHead& head, Instant now) {
    const Member& member = clients_.member(low);
    for_awake_above(member, [&](const Member& high, TaskGuard& guard) {
      const Duration over =
          high.is_active(now) ? excess(high, guard, clients_.own(low), head, now) : Duration{};
      const auto [most, spare] = cost_of(guard, head);
      guard.spend(std::max(Duration{}, over), most, spare, now);
    });
    clients_.lower_work().spent(member.priority);
    guards_changed();
  }

  void release(uint32_t index, WaitingHead& head, Instant now, std::vector<Decision>& out) {
    head.released = true;
    clients_.own(index).released_at = now;
    out.push_back(ReleaseHead{clients_.member(index).client, head.thread, head.ticket});
  }

  // A client that has had less than its floor goes on, whatever it costs.
  void give_floor(uint32_t index, Instant now, std::vector<Decision>& out) {
    Member& member = clients_.member(index);
    if (member.heads.empty()) return;
    Duration due = floor_.due(member.client);
    for (const WaitingHead& head : member.heads) {
      if (head.released) due -= head.predicted;
    }
    for (WaitingHead& head : member.heads) {
      if (due.ns <= 0) return;
      if (head.released) continue;
      release(index, head, now, out);
      due -= head.predicted;
    }
  }

  const GuardLimits limits_;
  const Duration switch_cost_;
  ClientActivity clients_;
  DeviceQueue queue_;
  FloorAccount floor_;
  SharingFigures figures_;
  std::array<std::optional<Room>, kLevels> rooms_;  // by level, as far as known in this step
  bool changed_ = false;             // ... is what guards say since this was last looked at
  bool look_again_ = false;
  Instant wake_ = kNever;
};

}  // namespace

std::unique_ptr<LaunchPolicy> make_guarded(const SettingValues& values) {
  return std::make_unique<Guarded>(
      GuardLimits{values[kGuardedMean], values[kGuardedP99], values[kGuardedWithout]},
      values[kGuardedFloor], Duration{values[kGuardedSwitchCost] * 1000});
}

}  // namespace lull::policies
