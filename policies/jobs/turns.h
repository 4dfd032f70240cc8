// Turns: jobs whose memory together does not fit share a GPU by suspension, one after another.
// Never by paging: a job that runs has all of its memory there. A job policy (vocabulary.h); pure.
//
// Only jobs that asked for it (`lull run --oversubscribe`), that can be moved and that nobody has
// pinned take part. One needs a turn when it is suspended by this policy, or when an allocation of
// its waits for memory that is not free. Then others make room for it:
//
//   less important than it      at once, wherever they are in their iteration
//   as important as it          once they have run for a quantum, at their next iteration
//   more important than it      never
//
// Least important first, and of those who has run longest; nobody more than has to, and nobody at
// all where even all of them would not free enough. Who needs a turn is served by priority, then by
// how long it has waited, and each GPU's memory is promised to one at a time.
#pragma once

#include "policies/jobs/node_facts.h"

namespace lull::jobs {

// Gandiva, section 5: time slices of about a minute.
inline constexpr Duration kQuantum{60'000'000'000};

class Turns {
 public:
  explicit Turns(Duration quantum = kQuantum) : quantum_(quantum) {}
  void set_quantum(Duration quantum) { quantum_ = quantum; }

  // Appends what to do. Returns when to ask again at the latest; kNever: when the facts have
  // changed.
  Instant step(Instant now, const NodeFacts& facts, std::vector<TurnDecision>& out) const;

 private:
  Duration quantum_;
};

}  // namespace lull::jobs
