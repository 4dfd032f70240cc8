// The guard of one important client: what others have cost it so far, and how much lower work may
// be on the device now. guarded.h says how it decides; Guarded feeds it. Pure.
//
// What others cost at each wait of its host, its shadow says (isolated_schedule.h). A service is a period of
// launches and waits (request_pattern.h) where there is one, else an iteration with waits as it is
// detected, else a stretch (the launches up to a wait). The whole time of an
// iteration then corrects what its waits say (service_feedback.h), those that take different times by
// turns compared with their like (service_pattern.h); for that a few iterations are kept undisturbed,
// drawn by lot. Costs go to accounts: `mean` earns the allowed share of all service time and may never
// be overdrawn by what can be foreseen; `tail` says how many requests, of one service or several
// (request_length.h), may yet exceed the p99 bound, which is held against the slowest undisturbed ones.
#pragma once

#include <algorithm>
#include <cstdint>

#include "policies/launch/launch_policy.h"
#include "policies/launch/guarded/observe/isolated_schedule.h"
#include "policies/launch/guarded/model/request_pattern.h"
#include "policies/launch/guarded/model/request_length.h"
#include "policies/launch/guarded/model/service_feedback.h"
#include "policies/launch/guarded/model/service_pattern.h"
#include "policies/launch/guarded/budget/error_budget.h"

namespace lull::policies {

// What the simulator may take out, to see what it is worth; GuardLimits::without is a sum of
// 1 << Part.
enum class Part : uint8_t {
  kAccounts,      // what is beyond the slack is spent from the budgets
  kServices,      // whole services correct what waits say
  kPauseFirst,    // while a long launch waits for a random pause, the budgets give nothing
  kOpening,       // a launch that is over wherever it goes opens its request
  kRandomPause,   // in a pause at random a launch goes at its likely cost
  kFilling,       // an exception is filled by turns
  kGuessedSlack,  // more slack is guessed at while the mean budget is full, and less after a
                  // surprise
  kTailAim,       // of the p99 limit less is aimed at after a request that was over unmeant
  kOverrun,       // a launch that took far longer than foretold makes an exception
  kChance,        // an exception is charged by its probability
  kRefinements,   // no two exceptions for one launch, and none that is not counted yet
  kUnmeant,       // exceptions are kept back for unmeant ones
  kRounds,        // services that take different times by turns are compared with their like
  kRequests,      // p99 is about requests of several services
  kKernelCosts,   // a long launch costs the share of its length that its like have cost
  kTurns,         // slack is known by turn
  kBetterMoment,  // an exception waits for the best moment of the iteration
};

struct GuardLimits {
  int64_t mean_per_mille = 30;
  int64_t tail_per_mille = 50;
  int64_t without = 0;
  bool has(Part part) const { return (without >> static_cast<int>(part) & 1) == 0; }
  bool operator==(const GuardLimits&) const = default;
};

class TaskGuard {
 public:
  explicit TaskGuard(GuardLimits limits) : limits_(limits) {}

  // ---- the protected client's life ----
  void submitted(const Submitted& launch, bool lower_in_flight);
  void completed(const Completed& done, Instant now, bool lower_in_flight) {
    schedule_.completed(done, now, lower_in_flight);
  }
  // Of one or several streams; `settle` when all that happened at that time has been told.
  void synced(const Synced& wait) { schedule_.synced(wait); }
  void settle(bool lower_in_flight);
  // A lower unit, or copy, has come to the device; one has run on it.
  void disturbed(bool copy, Instant at) { schedule_.disturbed(copy, at); }
  void lower_ran(Instant from, Instant until) { schedule_.lower_ran(from, until); }
  KernelCosts& lower_kernels() { return schedule_.kernel_costs(); }
  // So many kernels of lower work are through or, with their client, gone; so many are left.
  void lower_ended(uint32_t kernels, uint32_t left, Instant now) {
    schedule_.lower_ended(kernels, left, now);
  }
  // A unit of lower work of this length is turned away for this client's sake. Whether that is news.
  bool refused(Duration length);

  // ---- while the client is quiet ----
  // It has nothing on the device and is between two requests, and time alone changes nothing of what
  // this guard says: until its client is back it may be told nothing, and then all at once.
  bool may_rest(Instant now) const;
  // All that happened below its client's level meanwhile; `left` kernels of it are on the device.
  void catch_up(const LowerWork::Since& since, Priority own, uint32_t left, Instant now);
  bool knows_costs() const { return schedule_.kernel_costs().knows_any(); }

  // ---- answers ----
  // The lower clients must stay off the device until the accounts have recovered, or until it is
  // known how long the client's work takes.
  bool wants_clean() const { return clean_wanted_ || kept_ || (keeps_next_ && closing()); }
  // Its iteration has waits, as far as is known. Where it has none, no slack is ever known.
  bool has_waits() const { return timeline().has_waits(); }
  // It has nothing on the device.
  bool idle() const { return schedule_.idle(); }
  // What a lower unit costs it if it is in the way for as long as that takes.
  Duration cost(KernelId kernel, Duration predicted) const {
    return limits_.has(Part::kKernelCosts) ? schedule_.kernel_costs().cost(kernel, predicted)
                                           : predicted;
  }
  // What it costs that others have the device at all, beside what their work takes: it changes hands
  // to them, unless they have it, and back; and before that to own work that is waiting.
  Duration switch_cost() const { return schedule_.switch_cost(); }
  // Lower work that may be in flight at `now` so that the next wait ends as late as is allowed. The
  // client's own work in flight counts as if none of it had run. `lower_units` are on the device.
  Duration room(Instant now, uint32_t lower_units) const;
  // What one more unit of lower work costs beyond the allowance of the moment is spent from the
  // accounts, if they hold it: `excess` is by how much it exceeds the room, most likely at most, and
  // `spare` what it is expected to take less than that.
  bool affords(Duration excess, Duration spare, Instant now) const;
  // Such a unit is let go, `length` long most likely at most.
  void spend(Duration excess, Duration length, Duration spare, Instant now);
  // This service exceeds the tail bound, because of a unit that was let go for that or took far
  // longer than foretold.
  bool over_anyway(Instant now) const;
  // By so much a service may be delayed now.
  Duration bears() const { return {std::max<int64_t>(0, std::min(spendable_ns(), tail_limit_ns()))}; }
  // Whether there is a better moment than now for a unit that exceeds the room of now.
  bool has_better_moment(Instant now, Duration length, Duration spare) const;

  Duration mean_account() const { return {account_ns_}; }
  bool in_step() const { return in_step_; }

  // Of all that is known: two that were told the same are the same.
  bool operator==(const TaskGuard&) const = default;

 private:
  IterationModel& timeline() { return schedule_.timeline(); }
  const IterationModel& timeline() const { return schedule_.timeline(); }
  void forget_services();
  void end_service(bool whole);
  void end_request();
  void compare_service();
  bool is_compared() const { return request_.whole && feedback_.known(); }
  int64_t excess_ns() const;
  int64_t slow_ns(int64_t usual_ns, int64_t services) const;
  int64_t aim_per_mille() const;
  void correct();
  void correct_by(int64_t more_ns);
  bool knows_slack() const;
  uint32_t own_left() const;
  bool has_turns_left(uint32_t lower_units) const;
  int64_t slack_ns(Instant now) const;
  int64_t late_ns(Instant now) const { return std::max<int64_t>(0, -slack_ns(now)); }
  // What the request has lost, and will have by the next wait to what really ran in its way.
  int64_t foreseen_delay_ns(Instant now) const {
    return delay_ns() + std::min(late_ns(now), schedule_.blocked().ns);
  }
  int64_t lent_ns() const;
  int64_t spendable_ns() const;
  int64_t allowed_ns(Instant now) const;
  int64_t given_ns(Instant now) const;
  bool surely_exceeds(Duration length, Duration spare) const;
  bool opens_request(Duration length, Duration spare, Instant now) const;
  bool request_begins(Instant now) const;
  bool waits_for_pause() const;
  int64_t scale_x1024(Instant now) const;
  int64_t unit_scale_x1024() const;
  int64_t cost_ns(Duration excess, Instant now) const;
  int64_t tail_limit_ns() const;
  int64_t tail_left_ns(Duration excess, Instant now) const;
  int64_t chance_x1000(Duration excess, Duration spare, Instant now) const;
  int64_t spread_ns(int64_t services, uint64_t service) const;
  // What others may cost the request at hand at most, none of it kept back.
  int64_t longest_delay_ns() const {
    return tail_allowance_ns() + spread_ns(services(), pattern_.next());
  }
  // What so many services may lose in the mean; what one may at p99.
  int64_t mean_allowance_ns(int64_t services = 1) const {
    return services * own_service_ns_ * limits_.mean_per_mille / 1000;
  }
  int64_t tail_allowance_ns(int64_t services) const {
    return services * own_service_ns_ * limits_.tail_per_mille / 1000;
  }
  int64_t tail_allowance_ns() const { return tail_allowance_ns(services()); }
  // Of the request at hand.
  int64_t services() const { return limits_.has(Part::kRequests) ? requests_.services() : 1; }
  int64_t delay_ns() const { return request_.delay_ns + service_delay_ns_; }
  bool spends() const { return limits_.has(Part::kAccounts); }
  bool compares() const { return limits_.has(Part::kServices); }
  bool closing() const;
  bool closing_request(Instant now) const;
  bool before_request(Instant now) const;
  bool host_away(Instant now) const;
  bool through(Instant now) const;

  static constexpr uint32_t kMayKeep = 32;

  GuardLimits limits_;
  IsolatedSchedule schedule_;
  RequestPattern period_;
  uint64_t generation_ = 0;
  bool in_step_ = false;
  Duration pause_;  // of the host before the stretch, as far as it is part of the iteration
  uint32_t clean_stretches_ = 0;
  uint32_t since_clean_ = 0;
  bool clean_wanted_ = true;

  // ---- the service ----
  Instant service_began_ = kNever;
  bool service_whole_ = false;  // from the first launch of an iteration on
  bool service_undisturbed_ = true;  // nobody was in its way so far
  int64_t service_took_ns_ = 0;  // so far
  int64_t waits_delay_ns_ = 0;   // what its waits say that others cost it
  int64_t service_delay_ns_ = 0; // ... what is made of that
  int64_t own_service_ns_ = 0;  // mean of what services take by themselves

  ServiceFeedback feedback_;
  ServicePattern pattern_;
  RequestLength requests_;
  struct Request {  // of the one at hand, the services that have ended
    int64_t services = 0;
    int64_t took_ns = 0;
    int64_t delay_ns = 0;
    int64_t usual_ns = 0;  // what they take by themselves
    bool whole = true;      // as iterations are detected
    bool undisturbed = true;
    bool spent = false;     // something that exceeded the room has been let go, now or in one of them
    bool excepted = false;  // ... and it makes the request exceed the tail bound
    bool opened = false;    // ... as surely as can be told
    bool operator==(const Request&) const = default;
  };
  Request request_;
  Request next_;                // ... of the next one, what has been let go before it
  bool kept_ = false;           // this service is kept undisturbed
  bool keeps_next_ = true;      // ... the next one
  uint32_t may_keep_ = kMayKeep;  // so many services, times 2: of all in the long run a third at most

  int64_t refused_ns_ = 0;  // the longest unit turned away in this service
  int64_t refused_before_ns_ = 0;  // ... in the one before
  int64_t longest_refused_ns_ = 0;  // ... since something was spent on one
  bool spent_ = false;     // something that exceeded the room has been let go in this service
  int64_t correction_ns_ = 0;   // of the slack

  // ---- accounts ----
  int64_t account_ns_ = 0;
  ErrorBudget tail_;
};

}  // namespace lull::policies
