// The guard of one important client: how much it has lost to others, and what the moment leaves to
// them (admission.h). Kept and fed by Guarded. Pure.
//
// A request is a period of launches with a wait of the host at its end (request_pattern.h); where
// there is none, an iteration as the engine detects it, else what is launched up to a wait. While
// it goes on, its waits say what others cost it (isolated_schedule.h). At its end its whole time
// does, against requests that were kept undisturbed (request_times.h): that is the truth, and both
// budgets go by it.
//
//               first launch of a period, or any if there is none
//     between ------------------------------------------------------> under way
//             <------------------------------------------------------
//               its last wait: budgets, and the lot for the request after the next
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "policies/launch/guarded/admission.h"
#include "policies/launch/guarded/budget/budgets.h"
#include "policies/launch/guarded/model/request_pattern.h"
#include "policies/launch/guarded/observe/isolated_schedule.h"
#include "policies/launch/guarded/observe/request_times.h"
#include "policies/launch/launch_policy.h"

namespace lull::policies {

// What the simulator may take out, to see what it is worth.
enum class Part : uint8_t {
  kBudgets,       // what is beyond the slack is paid by the budgets
  kComparing,     // a request's whole time says what it lost, against undisturbed ones
  kExceptions,    // requests that may be over their limit
  kChance,        // the chance counts: that the client is back, where it is away at random; that a launch is long
  kPrice,         // what requests have lost of what was foretold
  kTrust,         // errors beyond the limit are taken off the slack
  kBestMoment,    // an exception, or a launch by chance, waits for the best moment
  kKernelCosts,   // a long launch costs the share of its length that its like have cost
  kAnyBeginning,  // where nobody can tell where a request begins, any as many waits count
  kDepth,         // the mean budget says how deep lower work may be in flight
  kUnused,        // a request begins as an exception while both budgets are there and nobody uses them
};
inline constexpr int64_t kAllParts = (int64_t{1} << 11) - 1;
struct Parts {
  int64_t without = 0;  // a sum of 1 << Part
  bool has(Part part) const { return (without >> static_cast<int>(part) & 1) == 0; }
  bool operator==(const Parts&) const = default;
};

class RequestGuard {
 public:
  RequestGuard(SlowdownBound bound, Parts parts) : bound_(bound), parts_(parts) {}

  // ---- the client's life ----
  void submitted(const Submitted& launch, bool lower_in_flight);
  void completed(const Completed& done, Instant now, bool lower_in_flight) {
    schedule_.completed(done, now, lower_in_flight);
  }
  // Of one or several streams; `settle` when all that happened at that time has been told.
  void synced(const Synced& wait, bool lower_in_flight) { schedule_.synced(wait, lower_in_flight); }
  void settle(bool lower_in_flight);

  // ---- lower work ----
  // A lower unit, or copy, has come to the device; one has run on it.
  // `work`: what it costs in the mean; 0 for a copy.
  void disturbed(bool copy, Instant at, Duration work) {
    schedule_.disturbed(copy, at);
    came_ = true;
    if (!request_.excepted && !next_.excepted) followed_ += work;
  }
  // A client above has launched, or has work on the device: what that makes late is not what lower ones cost.
  void higher_came() { request_.beside_higher = next_.beside_higher = true; }
  void lower_ran(Instant from, Instant until) { schedule_.lower_ran(from, until); }
  KernelCosts& lower_kernels() { return schedule_.kernel_costs(); }
  // So many kernels are through or, with their client, gone; so many are left.
  void lower_ended(uint32_t kernels, uint32_t left, Instant now) {
    schedule_.lower_ended(kernels, left, now);
  }
  // What a lower client launched before this one came is through: until now it may have delayed any request.
  void earlier_work_is_through() { times_.forget_slow(); }
  // A launch of this cost waits.
  void refused(Duration cost) { mean_.save_for(cost); }
  // A launch goes that makes this request, or the next, an exception: surely, or by chance.
  void excepted(bool surely);

  // ---- while the client is quiet ----
  bool may_rest() const { return schedule_.may_rest(); }
  // So many kernels of lower work are on the device now; the last one before was through at
  // `moved_at`.
  void catch_up(uint32_t left, Instant moved_at) { schedule_.catch_up(left, moved_at); }

  // ---- answers ----
  // Nobody may go: this request is kept undisturbed, or the mean budget is overdrawn, which leaves
  // pauses as they are: what goes there costs next to nothing.
  bool keeps_clear() const {
    const bool pauses = idle() && (!knows() || through());
    return kept_ || (keeps_next_ && launched_all()) || (mean_.overdrawn() && !pauses);
  }
  bool idle() const { return schedule_.idle(); }
  // It pauses until its next launch: for so long yet it leaves less as time goes on.
  Duration slack_falls(Instant now) const {
    return knows() && idle() ? std::max(Duration{}, timeline().next_launch() - now) : Duration{};
  }
  // So long after its last launch it may still be at work, between two requests.
  Duration at_work() const {
    return std::min(Duration{tuning::kAtWork * usual_.ns}, tuning::kAtWorkAtMost);
  }
  // A request takes so long by itself, pauses of the host within it included; 0: not known.
  Duration usual() const { return usual_; }
  bool has_waits() const { return schedule_.timeline().has_waits(); }
  // What a lower launch of this length costs the client if it is in the way all the time.
  Duration cost(KernelId kernel, Duration length) const {
    return {length.ns * cost_x1024(kernel, length) / 1'024};
  }
  // The same share of its mean and its p95: what tells is how long it may be.
  Cost cost(KernelId kernel, const Cost& length) const {
    const Duration most = almost_surely(length);
    const int64_t part_x1024 = cost_x1024(kernel, most);
    const auto costs = [&](Duration of) { return Duration{of.ns * part_x1024 / 1'024}; };
    return parts_.has(Part::kChance) ? Cost{costs(length.mean), costs(length.p95)} : Cost{costs(most), costs(most)};
  }
  // A change of hands costs so much at least: another client has met it.
  void change_costs(Duration least) { schedule_.change_costs(least); }
  // That others have the device at all.
  Duration change() const { return schedule_.change(); }
  // It changes hands to them, unless they have it, and back; and before that to own work that is
  // waiting.
  int64_t changes() const { return schedule_.changes(); }
  // With `ahead` of lower work on the device or let go, if there is `any`. `change`: what one change of hands
  // costs. `own_done`: so much has been done of the client's own unit that is running, which counts as if none of it
  // had. What is foretold by this is remembered.
  Moment moment(Instant now, Duration ahead, bool any, Duration change, Duration own_done = {});

  bool operator==(const RequestGuard&) const = default;

 private:
  struct Request {
    Instant began = kNever;
    bool whole = false;  // from its first launch on
    bool undisturbed = true;
    bool excepted = false;  // something was let go that makes it be over its limit
    bool meant = false;     // ... or may do so
    bool beside_higher = false;  // a client above had work on the device during it, or the one before
    uint32_t exceptions = 0;  // so many of the program's requests may be over by them
    Duration pauses;        // of the host between its stretches, as far as they are sure
    Duration took;          // so far
    Duration lost;          // ... to others, as its waits say
    Duration foretold;      // ... at most, at any moment
    uint32_t waits = 0;     // of its host, so far
    Duration markers;       // what its progress markers take
    bool operator==(const Request&) const = default;
  };
  // What this request would have taken with nobody in its way.
  Duration by_itself() const {
    return request_.pauses + std::max(Duration{}, request_.took - request_.lost);
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
  bool exceptions_go_unused(bool whole) const;
  const IterationModel& timeline() const { return schedule_.timeline(); }
  bool knows() const { return in_step_ && timeline().known(); }
  bool launched_all() const { return knows() && timeline().service_launched(); }
  // What goes now delays the next request.
  bool through() const {
    return knows() ? launched_all() && (schedule_.in_flight() <= 1 || schedule_.between_stretches())
                   : idle() && schedule_.between_stretches();
  }
  // A request that is over is counted: not as long as it is not known what they take by themselves, and so long none may
  // be. Of one beside a client above only the waits tell, and they do so from the beginning.
  bool counts(const Request& request) const {
    return times_.known() || !in_step_ || request.beside_higher || request.exceptions > 0;
  }
  void count_lately(Duration lost);
  Duration lost_lately(Duration soon) const;
  struct Lately {
    Duration most;     // lost by as many waits as a request has
    Duration largest;  // by one wait of this request
  };
  Lately lately(Duration said, Duration lost);
  // Waits that count beside each wait.
  size_t others_lately() const {
    return begins_surely() ? 0 : std::max<size_t>(1, pattern_.stretches()) - 1;
  }
  // With its first launch a request of the program's begins: where requests arrive at random, or a run of steps that
  // come evenly begins. Another host that always pauses as long may do so within a request.
  bool begins_surely() const {
    return !parts_.has(Part::kAnyBeginning) ||
           (pattern_.begins_surely() && timeline().service_start() == 0 &&
            (timeline().begins_at_random() || pattern_.others_are_even()));
  }
  struct Slack {
    Duration now;
    Duration inside;  // of it after the client's next launch; all of it where it is under way
  };
  Slack slack(Instant now) const;
  bool best_moment(Duration slack) const;
  Duration depth_of(const Moment& moment, const Request& delayed, bool next) const;
  Duration allowance() const { return {usual_.ns * bound_.mean_per_mille / 1000}; }
  // The mean budget holds so much at most, unless a launch waits for more.
  Duration most_held() const { return {tuning::kMostHeld * allowance().ns}; }
  Duration limit() const {
    return without_markers(usual_, bound_.p99_per_mille, markers_) + times_.spread();
  }
  // What others may take of a request as long as this: of what is allowed the part that markers
  // leave, a thousandth of the request at least.
  static Duration without_markers(Duration request, int64_t per_mille, Duration markers) {
    return {std::max(request.ns * per_mille / 1000 - markers.ns, request.ns / 1000)};
  }

  SlowdownBound bound_;
  Parts parts_;
  IsolatedSchedule schedule_;
  RequestPattern pattern_;
  RequestTimes times_;
  MeanBudget mean_;
  RequestBudget error_;
  Price price_;

  uint64_t generation_ = 0;
  bool in_step_ = false;
  bool came_ = false;      // lower work has, since its delay was foretold
  bool knows_change_ = false;  // that a change of hands costs something, or has known it
  bool compared_ = false;  // requests were counted that were compared, or need not be, at any time
  Duration pause_;         // of the host before the stretch, as far as it is part of the request
  Request request_;
  Request next_;                 // ... of the next one, what is known before it
  std::deque<Duration> lately_;  // what waits lost, this request's and before it as many as count
  Duration lost_lately_;         // ... those that count beside the next one
  int64_t usual_of_ = 0;         // usual_ is the mean of so many requests, or of the last kUsualOf
  Duration usual_;               // what requests take by themselves, lately
  Duration markers_;             // ... of it, their progress markers
  Duration marker_;              // the longest of them
  Duration most_marked_;         // ... at most, since it is learnt what undisturbed ones take
  Duration followed_;            // lower work since a launch by chance, or exception, apart from what exceptions let go
  Duration follows_;             // ... from one to the next, of late
  Duration exceptions_lose_;     // those that were over, each, of late; 0: not known
  int64_t deep_x4_ = 0;          // in flight within an exception, by what the client has left to do
  Duration best_idle_;           // the largest slack of late while the client was idle
  bool kept_ = true;             // this request is kept undisturbed
  bool keeps_next_ = true;       // ... the next one
  uint32_t may_keep_ = tuning::kMayKeep;
};

}  // namespace lull::policies
