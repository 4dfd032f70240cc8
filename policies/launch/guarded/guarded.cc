#include "policies/launch/guarded/guarded.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "policies/launch/client_table.h"
#include "policies/launch/guarded/admission.h"
#include "policies/launch/guarded/budget/floor_account.h"
#include "policies/launch/guarded/observe/device_queue.h"
#include "policies/launch/guarded/request_guard.h"
#include "policies/launch/guarded/tuning.h"
#include "policies/launch/sharing_figures.h"

namespace lull::policies {
namespace {

constexpr Duration kForEver{INT64_MAX};

// What guarded knows of a client, beside what the client table keeps.
struct Client {
  std::unique_ptr<RequestGuard> guard;  // only where there are lower clients
  Instant released_at = kNever;         // when a launch was last let go by name; kNever once that launch has come
  int64_t reaction_ns = tuning::kReactionPreset;
  int64_t usual_launch_ns = 0;
  int64_t beyond_charge_ns = 0;
  uint32_t kernels = 0;  // on the device, copies apart
  Instant unreported_until = kNever;  // launches until then may still be there; nobody reports when they are through
  bool planned = false;            // its gate is closed before it comes, for an exception
  Instant holding_since = kNever;  // its gate is closed since then
  Instant lower_until{0};          // until when lower work was last there, in an exception that holds it
  bool awake = true;
  bool waited = false;  // an event of this step was about it

  LowHost host() const { return {{reaction_ns}, {usual_launch_ns}, {beyond_charge_ns}}; }
};

// What all important clients leave to the clients of one level, without an exception.
struct Room {
  Duration room;
  Duration depth;       // the most of it in flight at once
  Duration idle;        // a credit for short launches while no important client has work, whatever the room
  int64_t sharers = 1;  // clients of the level that launch
  Duration falling = kMaxCreditBound;  // the least room that falls with time, where no lower work is there
  Duration falls_for;                  // how long it still falls
  bool clear = false;   // nobody may go
};

class Guarded final : public LaunchPolicy {
 public:
  Guarded(SlowdownBound bound, int64_t floor_per_mille, Duration switch_cost, Parts parts)
      : bound_(bound), switch_cost_(switch_cost), parts_(parts), floor_(floor_per_mille) {}

  void step(Instant now, std::span<const Event> events, std::vector<Decision>& out) override {
    for (const Event& event : events) take(event, now);
    floor_.settle(now);
    for (const uint32_t index : awake_) {
      Client& its = own_[index];
      if (its.waited && its.guard) its.guard->settle(lower_units(member(index)) > 0);
      its.waited = false;
    }
    look_in_ = kForEver;
    rooms_ = {};
    for (const uint32_t index : awake_) {
      if (!has_higher(member(index))) hold(index, now, out);
    }
    for (const uint32_t index : awake_) {
      if (has_higher(member(index))) decide(index, now, out);
    }
    rest(now, out);
    Instant wake = table_.has_several_levels() ? table_.next_expiry(now) : kNever;
    if (look_in_ < kForEver) wake = std::min(wake, now + look_in_);
    if (wake != kNever && (wake_ <= now || wake < wake_)) {
      wake_ = wake;
      out.push_back(WakeAt{wake});
    }
  }

  std::optional<PairFigures> figures(ClientId high, ClientId low) const override {
    return figures_.of(high, low);
  }
  // One in a hundred requests may be over: launches that the watchdog lets go shall make fewer be over.
  Duration holds_for(ClientId client, Duration preset) const override {
    const auto& members = table_.members();
    const auto low = std::ranges::find(members, client, &Member::client);
    Duration longest;
    for (size_t i = 0; low != members.end() && i < members.size(); ++i) {
      if (own_[i].guard && members[i].priority < low->priority)
        longest = std::max(longest, own_[i].guard->usual());
    }
    return std::clamp(Duration{tuning::kRequestsAHold * longest.ns}, preset,
                      Duration{tuning::kLongestHold * preset.ns});
  }
  bool counts_device_time() const override { return floor_.is_given(); }

 private:
  // ---- what happens ----
  void take(const Event& event, Instant now) {
    if (std::holds_alternative<TimerDue>(event)) wake_ = kNever;
    floor_.take(event);
    const std::optional<uint32_t> index = apply(event, now);
    if (!index) return;
    if (const auto* launch = std::get_if<Submitted>(&event)) submitted(*index, *launch, now);
    if (const auto* done = std::get_if<Completed>(&event)) completed(*index, *done, now);
    if (const auto* wait = std::get_if<Synced>(&event))
      if (own_[*index].guard) own_[*index].guard->synced(*wait, lower_units(member(*index)) > 0);
    if (std::holds_alternative<Withdrawn>(event) && own_[*index].guard && member(*index).pending.empty())
      own_[*index].guard->goes_on(now);
    if (const auto* pending = std::get_if<Waiting>(&event)) {
      const Member& low = member(*index);
      if (has_higher(low))
        figures_.unit(low.client, cost_above(low, pending->kernel, pending->predicted), now);
    }
  }

  void submitted(uint32_t index, const Submitted& launch, Instant now) {
    const Member& low = member(index);
    Client& its = own_[index];
    change_begins(index, launch);
    const bool first = queue_.first(launch.client, launch.stream) == nullptr;
    const Duration cost = cost_above(low, launch.kernel, launch.predicted);
    queue_.submitted(launch, cost);
    if (has_higher(low) && !launch.copy) figures_.unit(low.client, cost, now);
    if (first) began(low, launch.stream, now);
    if (its.guard && higher_kernels(low) > 0) its.guard->higher_came();
    if (its.guard) its.guard->submitted(launch, lower_units(low) > 0);
    its.usual_launch_ns += (launch.predicted.ns - its.usual_launch_ns) / 8;
    const Duration most = reckoned_length(launch.predicted, launch.expected);
    its.beyond_charge_ns =
        std::max((most - launch.charged).ns,
                 its.beyond_charge_ns - its.beyond_charge_ns / tuning::kChargesRemembered);
    if (its.released_at != kNever) {
      const Duration took =
          std::clamp(launch.at - its.released_at, Duration{}, tuning::kMostReaction);
      its.reaction_ns += (took.ns - its.reaction_ns) / 8;
      its.released_at = kNever;
    }
    count(index, launch.copy ? 0 : 1, 0);
    if (its.guard) {  // else nobody is below
      for (const uint32_t other : awake_) {
        if (own_[other].guard && low.priority < member(other).priority) own_[other].guard->higher_came();
      }
    }
    for_above(low, [&](const Member&, RequestGuard& guard) {
      guard.disturbed(launch.copy, launch.at,
                      launch.copy ? Duration{} : guard.cost(launch.kernel, launch.expected));
    });
  }

  void completed(uint32_t index, const Completed& done, Instant now) {
    const Member& low = member(index);
    const Instant ran_from = queue_.moved_at();
    for_above(low, [&](const Member&, RequestGuard& guard) {
      guard.lower_unit_ended(done.client, done.stream, now);
    });
    const DeviceQueue::Through through = queue_.completed(done, now);
    if (done.reported && through.launched > own_[index].unreported_until) earlier_work_is_through(index);
    count(index, 0, through.kernels);
    if (through.kernels > 0) {
      change_ends(low, through, done.reported, now);
      for_above(low, [&](const Member& high, RequestGuard& guard) {
        guard.lower_ran(ran_from, now);
        guard.lower_ended(through.kernels, lower_kernels(high), now);
      });
    }
    if (own_[index].guard) own_[index].guard->completed(done, now, lower_units(low) > 0);
    began(low, done.stream, now);
  }

  // Where two clients share a device, the lower client meets changes of hands too, and shows sooner what they cost: a
  // copy may hide the change before the important client's work, or that work always comes behind lower work.
  void change_begins(uint32_t index, const Submitted& launch) {
    if (own_.size() != 2 || launch.copy) return;
    const Member& its = member(index);
    if (!has_higher(its))
      lower_change_.others_came();
    else if (own_[index].kernels == 0)
      // It may wait for copies of its own, and their end is not known here.
      lower_change_.own_begins(its.units > 1 ? kNever : launch.at, launch.at);
  }
  void change_ends(const Member& its, const DeviceQueue::Through& through, bool reported, Instant now) {
    if (own_.size() != 2) return;
    if (has_higher(its))
      lower_change_.own_done(through.expected, Instant{0}, reported, now);
    else
      lower_change_.others_ended(through.kernels, kernels_[highest_.level], now);
    for (const uint32_t index : awake_) {
      if (own_[index].guard) own_[index].guard->change_costs(lower_change_.cost());
    }
  }

  // From now on the first unit of this stream may run.
  void began(const Member& low, StreamSlot stream, Instant now) {
    const DeviceQueue::Unit* first = queue_.first(low.client, stream);
    if (first == nullptr || first->copy) return;
    const KernelCosts::Unit unit{first->client, stream, first->kernel, first->predicted};
    for_above(low,
              [&](const Member&, RequestGuard& guard) { guard.lower_began(unit, now); });
  }

  // ---- who is there ----
  // Returns the client that the event is about, now awake. An event that changes who is there wakes everybody.
  std::optional<uint32_t> apply(const Event& event, Instant now) {
    const bool changes = std::holds_alternative<Joined>(event) ||
                         std::holds_alternative<Left>(event) ||
                         std::holds_alternative<Reprioritised>(event);
    if (changes) {
      for (uint32_t i = 0; i < own_.size(); ++i) rouse(i, now);
    }
    if (const auto* left = std::get_if<Left>(&event)) {
      leave(left->client, now);
      figures_.left(left->client);
    }
    const size_t before = table_.members().size();
    const Member* about = table_.apply(event);
    const auto index =
        about == nullptr ? 0 : static_cast<uint32_t>(about - table_.members().data());
    if (table_.members().size() > before) own_.emplace(own_.begin() + index);
    if (changes) count_present(now);
    if (about == nullptr) return {};
    rouse(index, now);
    own_[index].waited = true;
    return index;
  }

  void leave(ClientId client, Instant now) {
    const Member* low = table_.find(client);
    if (low == nullptr) return;
    const auto index = static_cast<uint32_t>(low - table_.members().data());
    const uint32_t gone = own_[index].kernels;
    earlier_work_is_through(index);
    queue_.left(client);
    count(index, 0, gone);
    for_above(*low, [&](const Member& high, RequestGuard& guard) {
      guard.lower_left(client);
      guard.lower_ended(gone, lower_kernels(high), now);
    });
    own_.erase(own_.begin() + index);
    std::erase(awake_, index);
    for (uint32_t& other : awake_) other -= other > index ? 1 : 0;
  }

  // Everybody is awake. Each client that has lower clients gets a guard; a guard that is there keeps what it knows.
  void count_present(Instant now) {
    awake_.resize(own_.size());
    std::iota(awake_.begin(), awake_.end(), 0U);
    const bool had_guards = std::ranges::any_of(own_, [](const Client& its) { return its.guard != nullptr; });
    lower_change_ = {};
    highest_ = Priority{kNoLevel};
    Priority lowest{0};
    kernels_ = {};
    for (const uint32_t index : awake_) {
      const Priority priority = member(index).priority;
      highest_ = std::min(highest_, priority);
      lowest = std::max(lowest, priority);
      kernels_[priority.level] += own_[index].kernels;
    }
    for (const uint32_t index : awake_) {
      Client& its = own_[index];
      if (member(index).priority >= lowest)
        its.guard.reset();
      else if (!its.guard)
        its.guard = std::make_unique<RequestGuard>(bound_of(member(index)), parts_);
      if (!its.guard) continue;
      const bool can_be_held = !has_higher(member(index)) && !member(index).has_peers;
      its.guard->can_be_held(can_be_held);
      if (!can_be_held) its.guard->goes_on(now);
      its.guard->neighbours_changed();
    }
    if (had_guards) return;
    // Until now no client was asked to report which launches are through.
    for (const uint32_t index : awake_) {
      const Member& low = member(index);
      if (has_higher(low) && low.last_launch != kLongAgo) own_[index].unreported_until = now;
    }
  }

  // What this client launched before there were guards is through, or gone with the client.
  void earlier_work_is_through(uint32_t index) {
    if (std::exchange(own_[index].unreported_until, kNever) == kNever) return;
    for (uint32_t above = 0; above < own_.size(); ++above) {
      if (own_[above].guard && member(above).priority < member(index).priority)
        own_[above].guard->earlier_work_is_through();
    }
  }

  // A client's own bound comes before the policy's. A bound of nothing counts as a thousandth, which cannot be told
  // from nothing: budgets that earn nothing would never forgive an error.
  SlowdownBound bound_of(const Member& member) const {
    const SlowdownBound bound = member.bound.is_set() ? member.bound : bound_;
    return {std::max(1, bound.mean_per_mille), std::max(1, bound.p99_per_mille)};
  }

  void rouse(uint32_t index, Instant now) {
    Client& its = own_[index];
    if (its.awake) return;
    its.awake = true;
    awake_.insert(std::ranges::lower_bound(awake_, index), index);
    const Member& one = member(index);
    resting_[one.priority.level] -= 1;
    if (its.guard) its.guard->catch_up(lower_kernels(one), std::min(now, queue_.moved_at()));
  }

  void rest(Instant now, std::vector<Decision>& out) {
    std::erase_if(awake_, [&](uint32_t index) {
      Client& its = own_[index];
      Member& one = member(index);
      if (its.kernels > 0 || is_active(index, now) || (its.guard && !its.guard->may_rest()))
        return false;
      if (has_higher(one))
        ClientTable::close(one, out);
      else
        stop_holding(index, out);
      its.awake = false;
      resting_[one.priority.level] += 1;
      return true;
    });
  }

  Member& member(uint32_t index) { return table_.members()[index]; }
  const Member& member(uint32_t index) const { return table_.members()[index]; }
  // A client whose requests are long may also pause for long between them.
  bool is_active(uint32_t index, Instant now) const {
    const Member& one = member(index);
    const Client& its = own_[index];
    return one.is_active(now) || (its.guard && now - one.last_launch < its.guard->at_work());
  }
  bool has_higher(const Member& than) const { return highest_ < than.priority; }
  bool rests_above(const Member& than) const {
    return std::any_of(resting_.begin(), resting_.begin() + than.priority.level,
                       [](uint32_t n) { return n > 0; });
  }
  // `came` kernels of this client have come to the device, and `ended` are through.
  void count(uint32_t index, uint32_t came, uint32_t ended) {
    uint32_t& all = kernels_[member(index).priority.level];
    all -= own_[index].kernels;
    own_[index].kernels += came;
    own_[index].kernels -= std::min(ended, own_[index].kernels);
    all += own_[index].kernels;
  }
  uint32_t higher_kernels(const Member& than) const {
    return std::accumulate(kernels_.begin(), kernels_.begin() + than.priority.level, 0U);
  }
  uint32_t lower_kernels(const Member& than) const {
    return std::accumulate(kernels_.begin() + than.priority.level + 1, kernels_.end(), 0U);
  }

  template <typename Use>
  void for_above(const Member& low, Use use) {
    for (const uint32_t index : awake_) {
      const Member& high = member(index);
      if (high.priority < low.priority) use(high, *own_[index].guard);
    }
  }
  // Clients that rest have nothing on the device.
  uint32_t lower_units(const Member& than) const {
    uint32_t units = 0;
    for (const uint32_t index : awake_) {
      if (member(index).priority > than.priority) units += member(index).units;
    }
    return units;
  }

  // ---- what a moment leaves ----
  // What a launch costs the client above that loses most by it. Where a client above rests: its whole length.
  Duration cost_above(const Member& low, KernelId kernel, Duration length) {
    if (length < KernelCosts::kLong || !has_higher(low)) return length;
    Duration most;
    for_above(low, [&](const Member&, RequestGuard& guard) {
      most = std::max(most, guard.cost(kernel, length));
    });
    return rests_above(low) ? length : most;
  }

  // What lower work on the device or let go will still cost this client, with the changes of hands.
  Moment moment(const Member& high, RequestGuard& guard, Instant now) const {
    Duration there;
    for (const uint32_t index : awake_) {
      const Member& low = member(index);
      if (low.priority <= high.priority) continue;
      there += std::max(Duration{}, low.in_flight - queue_.spared(low.client));
      for (const PendingLaunch& pending : low.pending) {
        if (pending.released)
          there += almost_surely(guard.cost(pending.kernel, {.mean = pending.expected, .p95 = pending.predicted}));
      }
    }
    // The running unit was counted as if none of it had run. Own work that has run adds to the slack, unless the client
    // has no waits: then no slack will ever be known.
    const DeviceQueue::Unit* running = queue_.running();
    const bool own = running != nullptr && running->client == high.client;
    const Duration done = own && !guard.has_waits() ? Duration{} : queue_.progress(now);
    const Duration change = this->change(guard);
    return guard.moment(now, there - (own ? Duration{} : done) + Duration{change.ns * guard.changes()},
                        /*any=*/there.ns > 0, change, own ? done : Duration{});
  }

  Duration change(const RequestGuard& guard) const {
    return std::max(switch_cost_, guard.change());
  }

  const Room& room_for(const Member& low, Instant now) {
    std::optional<Room>& known = rooms_[low.priority.level];
    if (known) return *known;
    Room found{.room = rests_above(low) ? tuning::kLeastCredit : kMaxCreditBound,
               .depth = kMaxCreditBound,
               .idle = tuning::kIdleCredit};
    int64_t sharers = 0;
    for (const uint32_t index : awake_) {
      const Member& high = member(index);
      const bool active = is_active(index, now);
      sharers += high.priority == low.priority && active ? 1 : 0;
      if (high.priority >= low.priority) continue;
      if (!active) {  // it may be back at any time
        found.room = std::min(found.room, tuning::kLeastCredit);
        continue;
      }
      RequestGuard& guard = *own_[index].guard;
      found.clear = found.clear || guard.keeps_clear();
      if (found.clear) continue;
      const Moment moment = this->moment(high, guard, now);
      const Duration leaves = room(moment);
      if (lower_units(high) == 0) figures_.room(high.client, leaves, now);
      found.room = std::min(found.room, leaves);
      found.depth = std::min(found.depth, moment.depth);
      const Duration falls_for = moment.alone ? guard.slack_falls(now) : Duration{};
      if (falls_for.ns > 0) found.falling = std::min(found.falling, leaves);
      found.falls_for = std::max(found.falls_for, falls_for);
      const Duration bears = std::min(moment.budget, moment.tail) - change(guard);
      found.idle = guard.idle() ? std::min(found.idle, bears) : Duration{};
    }
    found.sharers = std::max<int64_t>(1, sharers);
    known = found;
    return *known;
  }

  // ---- what is decided ----
  // Nobody is above this client: its gate is open, but for an exception. The exception's lower work runs in a row, and
  // the client's next launch waits until it is through. The client is held from a pause on, while the lower work is more
  // than the slack, or pauses for a little, and as long as the budget bears it.
  void hold(uint32_t index, Instant now, std::vector<Decision>& out) {
    Client& its = own_[index];
    Member& high = member(index);
    if (!its.guard) return stop_holding(index, out);
    RequestGuard& guard = *its.guard;
    bool holds = plans_to_hold(its, high);
    if (guard.may_hold()) {
      const Moment moment = this->moment(high, guard, now);
      const Duration pause = guard.waits_for_lower(now);
      if (!moment.alone) its.lower_until = now;
      const bool late = !moment.alone && moment.ahead > std::max(Duration{}, moment.slack);
      const bool holds_on = its.holding_since != kNever && now - its.lower_until < pause;
      holds = holds || (late && pause.ns > 0) || holds_on;
    }
    // Whatever is known of the budgets, no launch waits for longer than this.
    const bool waits = !high.pending.empty();
    holds = holds && !(waits && now - high.pending.front().since > tuning::kHeldForAtMost);
    if (!holds) return stop_holding(index, out);
    if (waits) guard.held(now);
    if (guard.idle()) look_in_ = std::min(look_in_, tuning::kLookAgain);
    if (its.holding_since == kNever) its.holding_since = now;
    ClientTable::close(high, out);
  }

  // A plan closes the gate when all of a request is launched, so that the client does not come before the lower work.
  // When the client is between two requests, the next one is an exception.
  bool plans_to_hold(Client& its, const Member& high) {
    RequestGuard& guard = *its.guard;
    if (!lower_launch_waits(high, guard) || !(its.planned ? guard.plan_stands() : guard.may_plan())) {
      its.planned = false;
      return false;
    }
    if (!std::exchange(its.planned, true)) guard.plan();
    if (!guard.is_between() && high.pending.empty()) return true;
    its.planned = false;
    if (!guard.is_between()) {  // it came too early
      guard.drop_plan();
      return false;
    }
    guard.hold_next();
    return true;
  }

  void stop_holding(uint32_t index, std::vector<Decision>& out) {
    own_[index].holding_since = kNever;
    own_[index].planned = false;
    ClientTable::open(member(index), out);
  }

  // A lower launch waits and has done so for a whole request: none of its moments had enough slack.
  bool lower_launch_waits(const Member& high, const RequestGuard& guard) const {
    const auto waits = [&](const PendingLaunch& launch) { return !launch.released && guard.since_before_request(launch.since); };
    return std::ranges::any_of(awake_, [&](uint32_t index) {
      return member(index).priority > high.priority && std::ranges::any_of(member(index).pending, waits);
    });
  }

  void decide(uint32_t index, Instant now, std::vector<Decision>& out) {
    Member& low = member(index);
    own_[index].holding_since = kNever;
    own_[index].planned = false;
    give_floor(index, now, out);
    if (let_go(index, now, out)) rooms_ = {};
    const Duration bound = credit_of(index, now);
    if (bound.ns <= 0)
      ClientTable::close(low, out);
    else
      ClientTable::credit(low, bound, out, /*any_length=*/false);
  }

  Duration credit_of(uint32_t index, Instant now) {
    const Member& low = member(index);
    const Room& room = room_for(low, now);
    if (room.clear) return {};
    // A credit stands until the gate is told another one. So it is what will be left of the room by then.
    const Duration holds = std::min(credit_holds(room.falling), room.falls_for);
    const Duration bound = credit(std::min(room.room, room.falling - holds), room.depth, room.sharers,
                                  own_[index].host(), low.in_flight);
    const Duration idle{room.idle.ns / room.sharers / tuning::kIdleStep * tuning::kIdleStep};
    if (holds.ns > 0 && bound > idle) look_in_ = std::min(look_in_, holds);
    return std::max(idle, bound);
  }

  // Lets go, by name, launches that no credit covers. Returns whether any went.
  bool let_go(uint32_t index, Instant now, std::vector<Decision>& out) {
    Member& low = member(index);
    if (low.pending.empty()) return false;
    const Room& room = room_for(low, now);
    const Duration bound = credit_of(index, now);
    // A launch that goes early can only keep the device busy, and it cannot be called back.
    const Duration there = low.in_flight - queue_.spared(low.client);
    const bool busy =
        there - queue_.progress(now) > busy_credit(own_[index].host(), room.room, room.depth);
    const bool enough = there < low.in_flight && low.units > 1;
    if (busy || enough) return false;
    bool any = false;
    for (PendingLaunch& pending : low.pending) {
      if (pending.released || low.in_flight + pending.charged <= bound)
        continue;  // the gate lets it through
      if (!admitted(low, own_[index], pending, now)) {
        look_in_ = std::min(look_in_, tuning::kLookAgain);
        continue;
      }
      release(index, pending, now, out);
      any = true;
    }
    return any;
  }

  // Whether every client above can bear this launch. A guard whose error budget pays for the launch is told so.
  bool admitted(const Member& low, const Client& its, const PendingLaunch& pending, Instant now) {
    bool all = true;
    excepting_.clear();
    for_above(low, [&](const Member& high, RequestGuard& guard) {
      const auto above = static_cast<uint32_t>(&high - table_.members().data());
      if (!all || !is_active(above, now)) return;
      Cost cost = guard.cost(pending.kernel, {.mean = pending.expected, .p95 = pending.predicted});
      cost.mean += Duration{its.reaction_ns};
      cost.p95 += Duration{its.reaction_ns};
      const Verdict verdict =
          guard.keeps_clear() ? Verdict::kWaits : admit(moment(high, guard, now), cost);
      if (verdict == Verdict::kWaits) guard.refused(almost_surely(cost));
      if (verdict > Verdict::kGoes) excepting_.emplace_back(&guard, verdict == Verdict::kException);
      all = all && verdict != Verdict::kWaits;
    });
    if (all) {
      for (const auto& [guard, surely] : excepting_) guard->excepted(surely);
    }
    return all;
  }

  void release(uint32_t index, PendingLaunch& pending, Instant now, std::vector<Decision>& out) {
    pending.released = true;
    own_[index].released_at = now;
    out.push_back(ReleaseLaunch{member(index).client, pending.thread, pending.ticket});
  }

  // Launches of a client that has had less than its floor go, whatever they cost others.
  void give_floor(uint32_t index, Instant now, std::vector<Decision>& out) {
    Member& low = member(index);
    if (low.pending.empty()) return;
    Duration due = floor_.due(low.client);
    for (const PendingLaunch& pending : low.pending) {
      if (pending.released) due -= pending.predicted;
    }
    for (PendingLaunch& pending : low.pending) {
      if (due.ns <= 0) return;
      if (pending.released) continue;
      release(index, pending, now, out);
      due -= pending.predicted;
    }
  }

  const SlowdownBound bound_;
  const Duration switch_cost_;
  const Parts parts_;
  ClientTable table_;
  std::vector<Client> own_;                              // in the order of the table's members
  std::vector<uint32_t> awake_;                          // ascending
  std::array<uint32_t, kLevels> resting_{}, kernels_{};  // by level; kernels on the device
  Priority highest_{kNoLevel};
  DeviceQueue queue_;
  SwitchCost lower_change_;  // what a change of hands costs, as the lower of two clients shows it
  FloorAccount floor_;
  SharingFigures figures_;
  std::array<std::optional<Room>, kLevels> rooms_;         // by level, where asked for in this step
  std::vector<std::pair<RequestGuard*, bool>> excepting_;  // scratch; true: surely, not only by chance
  Duration look_in_;  // how long after this step to look again
  Instant wake_ = kNever;
};

}  // namespace

std::unique_ptr<LaunchPolicy> make_guarded(const SettingValues& values) {
  const SlowdownBound bound{static_cast<int32_t>(values["mean_per_mille"]),
                            static_cast<int32_t>(values["p99_per_mille"])};
  return std::make_unique<Guarded>(bound, values["floor_per_mille"], Duration{values["switch_cost_us"] * 1000},
                                   Parts{values.find(kPartsKey).value_or(0)});
}

}  // namespace lull::policies
