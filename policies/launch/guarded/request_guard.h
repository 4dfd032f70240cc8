// The guard of one important client: how much the client has lost to others, and what the moment leaves to them
// (admission.h). Kept and fed by Guarded. Pure.
//
// A request is a period of launches with a wait of the host at its end (request_pattern.h). Where no period is known, a
// request is an iteration as the engine detects it, or else the launches up to a wait. While a request goes on, its
// waits say what others cost it (isolated_schedule.h). When it has ended, its whole time says what they really cost,
// against requests that were kept undisturbed (request_times.h). Both budgets go by the whole time.
//
//               first launch of a period, or any if there is none: the request before goes into the budgets,
//               and the lot is drawn for the request after this one
//     between ------------------------------------------------------> under way
//             <------------------------------------------------------
//               last wait
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "policies/launch/guarded/admission.h"
#include "policies/launch/guarded/budget/budgets.h"
#include "policies/launch/guarded/model/request_pattern.h"
#include "policies/launch/guarded/observe/isolated_schedule.h"
#include "policies/launch/guarded/observe/own_clock.h"
#include "policies/launch/guarded/observe/request_times.h"
#include "policies/launch/launch_policy.h"

namespace lull::policies {

// The simulator may take out each of these parts, to measure what it is worth.
enum class Part : uint8_t {
  kBudgets,       // the budgets pay for delays beyond the slack
  kComparing,     // a request's whole time says what it lost, against undisturbed requests
  kExceptions,    // some requests may be over their limit
  kChance,        // chances count: that the client is back, while it is away at random; that a launch is long
  kPrice,         // delays are multiplied by the price
  kTrust,         // less of the slack is believed: after errors beyond the limit, and while requests are owed
  kBestMoment,    // an exception, or a launch by chance, waits for the best moment
  kKernelCosts,   // a long launch costs the share of its length that launches of its kernel have cost
  kAnyBeginning,  // where nobody can tell where a request begins, any run of as many waits is held to the limit
  kDepth,         // the mean budget says how much lower work may be in flight
  kUnused,        // a request begins as an exception while both budgets hold one and nobody uses them
  kHolding,       // an exception holds the client until the lower work is through
};
inline constexpr int64_t kAllParts = (int64_t{1} << 12) - 1;
struct Parts {
  int64_t without = 0;  // a sum of 1 << Part
  bool has(Part part) const { return (without >> static_cast<int>(part) & 1) == 0; }
  bool operator==(const Parts&) const = default;
};

class RequestGuard {
 public:
  RequestGuard(SlowdownBound bound, Parts parts) : bound_(bound), parts_(parts) {}

  // Times are the device's. What is kept of the client goes by its own clock (own_clock.h).

  // ---- the client's life ----
  void submitted(Submitted launch, bool lower_in_flight);
  void completed(const Completed& done, Instant now, bool lower_in_flight) {
    schedule_.completed(done, clock_.at(now), lower_in_flight);
  }
  // One call a stream that was waited for. `settle` follows when all that happened at that time has been told.
  void synced(Synced wait, bool lower_in_flight) {
    wait.at = clock_.at(wait.at);
    schedule_.synced(wait, lower_in_flight);
  }
  void settle(bool lower_in_flight);

  // ---- the client is held ----
  // It is idle, and an exception may hold it: lower work that goes then has the device to itself until it is through.
  // Only a client that nobody is above can be held, and only one whose job has no other ranks.
  void can_be_held(bool can) { can_be_held_ = can; }
  bool may_hold() const {
    return holding_helps() && idle() && delayed().excepted && delayed().may_hold;
  }
  // The next request may be an exception that holds the client from its first launch on: both budgets have one, and all
  // of this request is launched. `may_plan`: and that was not tried lately.
  bool plan_stands() const;
  bool may_plan() const { return plans_in_ == 0 && plan_stands(); }
  void plan() { plans_in_ = tuning::kHeldAtMost; }
  // The client has waited for all of this request and has not launched the next one.
  bool is_between() const { return idle() && schedule_.between_stretches(); }
  // It is between two requests, and a lower launch waits, as planned: the next request is an exception.
  void hold_next();
  // The client launched before it was between two requests: holding does not help it.
  void drop_plan() { by_turns_ = false; }
  // Other lower clients are there: whether holding helps shows at the next exception.
  void neighbours_changed() { by_turns_ = false; }
  // `at` is before this request began.
  bool since_before_request(Instant at) const { return request_.began != kNever && clock_.at(at) < request_.began; }
  // A launch of the client waits at its closed gate from now on; none does any longer.
  void held(Instant now) { clock_.stop(now); }
  void goes_on(Instant now) { count_held(clock_.go_on(now), delayed()); }
  // For how long the client may yet be held; and for how long lower work may pause meanwhile.
  Duration may_be_held(Instant now) const;
  Duration waits_for_lower(Instant now) const { return {may_be_held(now).ns / tuning::kHeldPart}; }

  // ---- lower work ----
  // A lower unit, or copy, has come to the device. `work`: what it costs in the mean; 0 for a copy.
  void disturbed(bool copy, Instant at, Duration work) {
    schedule_.disturbed(copy, clock_.at(at));
    came_ = true;
    if (!request_.excepted && !next_.excepted) followed_ += work;
  }
  // A client above has launched, or has work on the device: what it delays is not what lower clients cost.
  void higher_came() { request_.beside_higher = next_.beside_higher = true; }
  // A lower unit has run on the device.
  void lower_ran(Instant from, Instant until) { schedule_.lower_ran(clock_.at(from), clock_.at(until)); }
  // A lower unit may run from now on; it has run; its client has left.
  void lower_began(const KernelCosts::Unit& unit, Instant now) { schedule_.kernel_costs().began(unit, clock_.at(now)); }
  void lower_unit_ended(ClientId client, StreamSlot stream, Instant now) {
    schedule_.kernel_costs().ended(client, stream, clock_.at(now));
  }
  void lower_left(ClientId client) { schedule_.kernel_costs().left(client); }
  // `kernels` are through, or gone with their client; `left` are still on the device.
  void lower_ended(uint32_t kernels, uint32_t left, Instant now) {
    schedule_.lower_ended(kernels, left, clock_.at(now));
  }
  // What a lower client launched before this client came is through: until now that may have delayed any request.
  void earlier_work_is_through() { times_.forget_slow(); }
  // A launch of this cost waits.
  void refused(Duration cost) { mean_.save_for(cost); }
  // A launch goes that may make this request, or the next one, be over its limit. `surely`: it will, as an exception;
  // else only by chance.
  void excepted(bool surely);

  // ---- while the client is quiet ----
  bool may_rest() const { return schedule_.may_rest(); }
  // `left` kernels of lower work are on the device now; the last one before them was through at `moved_at`.
  void catch_up(uint32_t left, Instant moved_at) { schedule_.catch_up(left, clock_.at(moved_at)); }

  // ---- answers ----
  // Nobody may go: this request is kept undisturbed, or the mean budget is overdrawn. In a pause between requests lower
  // work may go even while the budget is overdrawn: there it costs next to nothing.
  bool keeps_clear() const {
    const bool pauses = idle() && (!knows() || through());
    return kept_ || (keeps_next_ && launched_all()) || (mean_.overdrawn() && !pauses);
  }
  bool idle() const { return schedule_.idle(); }
  // How long the slack still falls with time: while the client pauses, until its next launch; else 0.
  Duration slack_falls(Instant now) const {
    return knows() && idle() ? std::max(Duration{}, timeline().next_launch() - clock_.at(now)) : Duration{};
  }
  // For how long after its last launch the client may still be at work, between two requests.
  Duration at_work() const {
    return std::min(Duration{tuning::kAtWork * usual_.ns}, tuning::kAtWorkAtMost);
  }
  // How long a request takes by itself, with the host's pauses within it; 0: not known.
  Duration usual() const { return usual_; }
  bool has_waits() const { return schedule_.timeline().has_waits(); }
  // What a lower launch of this length costs the client if the launch is in its way all the time.
  Duration cost(KernelId kernel, Duration length) const {
    return {length.ns * cost_x1024(kernel, length) / 1'024};
  }
  // The mean and the p95 cost the same share. The most that the launch may take says which share.
  Cost cost(KernelId kernel, const Cost& length) const {
    const Duration most = almost_surely(length);
    const int64_t part_x1024 = cost_x1024(kernel, most);
    const auto costs = [&](Duration of) { return Duration{of.ns * part_x1024 / 1'024}; };
    return parts_.has(Part::kChance) ? Cost{costs(length.mean), costs(length.p95)} : Cost{costs(most), costs(most)};
  }
  // A change of hands costs at least this much: another client has seen it.
  void change_costs(Duration least) { schedule_.change_costs(least); }
  // What one change of hands costs.
  Duration change() const { return schedule_.change(); }
  // How often the device changes hands if a lower launch goes: to lower work, unless that has the device, and back; and
  // first to own work, where that waits behind lower work.
  int64_t changes() const { return schedule_.changes(); }
  // What the client leaves now. `ahead`: what lower work on the device or let go will still cost, if there is `any`.
  // `change`: what one change of hands costs. `own_done`: how much of the client's running unit has run; the schedule
  // counts that unit as if none had. The delay that is foretold by this is remembered.
  Moment moment(Instant at, Duration ahead, bool any, Duration change, Duration own_done = {});

  bool operator==(const RequestGuard&) const = default;

 private:
  struct Request {
    Instant began = kNever;
    bool whole = false;  // from its first launch on
    bool undisturbed = true;
    bool excepted = false;  // it is an exception
    bool may_hold = false;  // as an exception it is for a launch that waits, and may hold the client
    bool meant = false;     // something was let go that will, or may, make it be over its limit
    bool beside_higher = false;  // a client above had work on the device during it, or during the one before
    uint32_t exceptions = 0;  // how often it was made an exception: as many of the program's requests may be over
    Duration pauses;        // of the host between its stretches, as far as they are sure
    Duration took;          // its stretches so far, each with its wait
    Duration lost;          // to others, as its waits say, and while it was held
    Duration held;          // the part of it while it was held
    Duration foretold;      // the largest loss that was foretold at any moment
    uint32_t waits = 0;     // of its host, so far
    Duration markers;       // what its progress markers take
    bool operator==(const Request&) const = default;
  };
  // How long this request would have taken undisturbed.
  Duration by_itself() const {
    return request_.pauses + std::max(Duration{}, request_.took - (request_.lost - request_.held));
  }
  int64_t cost_x1024(KernelId kernel, Duration length) const {
    return parts_.has(Part::kKernelCosts) ? schedule_.kernel_costs().cost_x1024(kernel, length) : 1'024;
  }
  void end_request(bool whole);
  void compare();
  void learn_usual(bool whole);
  void earn(Duration said, bool compares);
  bool count_over(Duration said);
  Duration error_of(Duration lost) const;
  void went_deep(bool left_behind);
  void learn_price(bool compares);
  void draw(bool whole);
  static void except(Request& request);
  bool holds_exception() const;
  // Holding the client saves nothing where kernels run together, and nothing where it is away at random.
  bool holding_helps() const {
    return parts_.has(Part::kHolding) && can_be_held_ && knows() && by_turns_ && timeline().random_pause().ns == 0;
  }
  void count_held(Duration held, Request& delayed);
  const IterationModel& timeline() const { return schedule_.timeline(); }
  bool knows() const { return in_step_ && timeline().known(); }
  bool launched_all() const { return knows() && timeline().service_launched(); }
  // What goes now delays the next request, not this one.
  bool through() const {
    return knows() ? launched_all() && (schedule_.in_flight() <= 1 || schedule_.between_stretches())
                   : idle() && schedule_.between_stretches();
  }
  // The request that is delayed by what goes now.
  Request& delayed() { return through() ? next_ : request_; }
  const Request& delayed() const { return through() ? next_ : request_; }
  // Whether this request can be counted as over. In step it can once it is known what requests take by themselves, and
  // until then no exception may go. Beside a client above, and out of step, only waits tell: from the first request on.
  bool counts(const Request& request) const {
    return times_.known() || !in_step_ || request.beside_higher || request.exceptions > 0;
  }
  void count_lately(Duration lost);
  Duration lost_lately(Duration soon) const;
  struct Lately {
    Duration most;     // the most that a run of as many waits as a request has lost
    Duration largest;  // the most that one wait of this request lost
  };
  Lately lately(Duration said, Duration lost);
  // How many earlier waits count together with each wait.
  size_t others_lately() const {
    return begins_surely() ? 0 : std::max<size_t>(1, pattern_.stretches()) - 1;
  }
  // Whether a period's first launch surely begins a request of the program's: requests arrive at random there, or a run
  // of even steps begins. Another host that always pauses as long may pause so within a request.
  bool begins_surely() const {
    return !parts_.has(Part::kAnyBeginning) ||
           (pattern_.begins_surely() && timeline().service_start() == 0 &&
            (timeline().begins_at_random() || pattern_.others_are_even()));
  }
  struct Slack {
    Duration now;
    Duration inside;  // the part of it after the client's next launch; all of it while own work is on the device
  };
  Slack slack(Instant now) const;
  bool best_moment(Duration slack) const;
  Duration depth_of(Instant at, const Moment& moment, const Request& delayed, bool next) const;
  Duration allowance() const { return {usual_.ns * bound_.mean_per_mille / 1000}; }
  // The most that the mean budget holds, unless a launch waits for more.
  Duration most_held() const { return {tuning::kMostHeld * allowance().ns}; }
  Duration limit() const {
    return without_markers(usual_, bound_.p99_per_mille, markers_) + times_.spread();
  }
  // What others may take of a request of this length: what is allowed, less what its markers take, and a thousandth of
  // the request at least.
  static Duration without_markers(Duration request, int64_t per_mille, Duration markers) {
    return {std::max(request.ns * per_mille / 1000 - markers.ns, request.ns / 1000)};
  }

  SlowdownBound bound_;
  Parts parts_;
  OwnClock clock_;
  IsolatedSchedule schedule_;
  RequestPattern pattern_;
  RequestTimes times_;
  MeanBudget mean_;
  RequestBudget error_;
  Price price_;

  uint64_t generation_ = 0;
  bool in_step_ = false;
  bool came_ = false;      // lower work has come since a delay was last foretold
  bool knows_change_ = false;  // a change of hands is, or was once, known to cost something
  bool compared_ = false;  // a request has been counted that was compared, or need not be
  Duration pause_;         // of the host before the stretch, as far as it is part of the request
  bool by_turns_ = false;  // the last exception that did not hold the client lost half of what was foretold, or more
  bool can_be_held_ = false;
  bool was_ample_ = false;  // both budgets held an exception when the last request ended
  Duration held_;           // how long the client was held since its last wait
  uint32_t plans_in_ = 0;   // requests until it may be planned again to hold the client
  Request request_;
  Request next_;                 // what is known of the next request
  std::deque<Duration> lately_;  // what this request's waits lost, and the waits before it that count
  Duration lost_lately_;         // the sum of those that count together with the next wait
  int64_t usual_of_ = 0;         // how many whole requests usual_ is the mean of; at most kUsualOf
  Duration usual_;               // what requests take by themselves, lately
  Duration markers_;             // the part of it that progress markers take
  Duration marker_;              // the longest single marker
  Duration most_marked_;         // the largest markers_ since the learning of undisturbed requests began
  Duration followed_;            // lower work since a launch by chance, or exception, apart from what exceptions let go
  Duration follows_;             // the mean of it from one such launch to the next, of late
  Duration exceptions_lose_;     // what each exception that was over lost, of late; 0: not known
  int64_t deep_x4_ = 0;          // in flight within an exception, in quarters of what the client has left to do
  Duration best_idle_;           // the largest slack of late while the client was idle
  bool kept_ = true;             // this request is kept undisturbed
  bool keeps_next_ = true;       // the next request will be
  uint32_t may_keep_ = tuning::kMayKeep;
};

}  // namespace lull::policies
