// Outputs of the engine on their way to the gates. On a real GPU they go at once; on a simulated
// one no earlier than a control latency of model time after what caused them, so that stretching
// time does not flatter the coordinator. They leave in the order in which they came in: a close and
// an open never pass each other. Loop thread; publishes nothing itself.
#pragma once

#include <algorithm>
#include <deque>
#include <utility>

#include "coordinator/engine/events.h"

namespace lull::daemon {

class PublishQueue {
 public:
  // `at`: when it may be published at the earliest.
  void push(Instant at, engine::Output output) {
    last_ = std::max(last_, at);
    waiting_.push_back({last_, std::move(output)});
  }
  // kNever when nothing waits.
  Instant next() const { return waiting_.empty() ? kNever : waiting_.front().at; }
  // Hands over what is due, oldest first.
  template <typename Use>
  void pop_due(Instant now, Use&& use) {
    while (!waiting_.empty() && waiting_.front().at <= now) {
      const engine::Output output = std::move(waiting_.front().output);
      waiting_.pop_front();
      use(output);
    }
  }
  void clear() {
    waiting_.clear();
    last_ = Instant{0};
  }

 private:
  struct Waiting {
    Instant at;
    engine::Output output;
  };
  std::deque<Waiting> waiting_;
  Instant last_{0};
};

}  // namespace lull::daemon
