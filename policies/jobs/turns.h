// Turns: jobs whose memory together does not fit share a GPU by suspension, one after another.
// Never by paging: a job that runs has all of its memory there. A job policy (vocabulary.h); pure.
//
// Only jobs that asked for it (`lull run --oversubscribe`), that can be moved and that nobody has
// pinned take part. A job needs a turn if a policy has suspended it, or if it waits for memory that
// is not free, for an allocation or to return. Then others make room for it:
//
//   less important than it      at once, wherever they are in their iteration
//   as important as it          once they have run for a quantum, at their next iteration
//   more important than it      never
//
// The least important go first, and of these the one that has run longest. No more jobs go than
// must, and none if even all of them would not free enough. Jobs that need a turn are served by
// priority, then by how long they have waited. No memory is promised to two.
#pragma once

#include "policies/jobs/node_facts.h"

namespace lull::jobs {

// Gandiva, section 5: time slices of about a minute.
inline constexpr Duration kQuantum{60'000'000'000};

class Turns {
 public:
  explicit Turns(Duration quantum = kQuantum) : quantum_(quantum) {}
  void set_quantum(Duration quantum) { quantum_ = quantum; }

  // Appends what to do. Returns when to ask again at the latest; kNever: only when facts have
  // changed.
  Instant step(Instant now, const NodeFacts& facts, std::vector<TurnDecision>& out) const;

 private:
  Duration quantum_;
};

}  // namespace lull::jobs
