// What the job policies share: take events in, put units in an order, hold a round, set a timer.
// A policy says the order, the rules and the next time; it may add decisions after the round.
// Pure; see job_policy.h for who calls.
#pragma once

#include <array>
#include <string_view>

#include "policies/jobs/cluster.h"
#include "policies/jobs/rounds.h"

namespace lull::jobs {

class OrderedPolicy : public JobPolicy {
 public:
  explicit OrderedPolicy(RoundRules rules) : rules_(rules) {}
  void step(Instant now, std::span<const Event> events, std::vector<Decision>& out) final;

 protected:
  // Units are ordered by importance, then by key, less first, then by id.
  using Key = std::array<int64_t, 6>;
  virtual Key key_of(Instant now, Unit& unit) = 0;
  virtual void before_round(Instant, Cluster::Out&) {}
  // After a round: may change the units that wait. True: one more round is to be held. Unless it is
  // overridden, packs that wait are dissolved: their jobs wait as single jobs.
  virtual bool order_again(Instant now, std::span<Unit* const> waiting);
  // Whether packs of this group of GPUs leave its free ones free.
  virtual bool keeps_free(size_t /*group*/) const { return false; }
  // `waiting`: those that found no GPUs, in the order.
  virtual void after_round(Instant, std::span<Unit* const> /*waiting*/, Cluster::Out&) {}
  // When to look again; kNever: at the next event. Not before `now`.
  virtual Instant next_time(Instant, bool /*anybody_waits*/) { return kNever; }

  Cluster cluster_;

 private:
  void put_in_order(Instant now);

  RoundRules rules_;
  Instant timer_ = kNever;
  // A unit and its place in the order; compared without a look at the unit, which is far away.
  struct Keyed {
    Priority priority;
    Key key;
    uint64_t id;
    Unit* unit;
  };
  std::vector<Keyed> keyed_;
  std::vector<Unit*> order_;
};

// Turns are counted from the same instants for all units, so that a job that needs many GPUs finds
// them free at once. A turn ends at the first multiple of `quantum` at which the unit has run for
// at least half a quantum, and for 100 times what starting it had cost: moves take 1 % at most.
Instant turn_end(const Unit& unit, Duration quantum);
Instant next_multiple(Instant now, Duration of);

}  // namespace lull::jobs
