// What a policy knows to be on the device, in the order in which it came there. Copies have engines of their own. Pure.
#pragma once

#include <cstdint>
#include <deque>

#include "policies/launch/launch_policy.h"

namespace lull::policies {

class DeviceQueue {
 public:
  struct Unit {
    ClientId client;
    StreamSlot stream;
    KernelId kernel;
    Duration predicted, expected;
    Duration cost;  // to the clients above; at most `predicted`
    bool copy = false;
    Instant at{0};  // when it was launched
  };

  void submitted(const Submitted& launch, Duration cost);
  // The units that are through now, without copies.
  struct Through {
    uint32_t kernels = 0;
    Duration expected;  // their mean lengths, all together
    Instant launched{0};  // when the last of them was launched
  };
  Through completed(const Completed& done, Instant now);
  void left(ClientId client);

  // The first unit of a stream, which runs or is about to; null without one.
  const Unit* first(ClientId client, StreamSlot stream) const;
  // The unit that is running, not a copy; null without one.
  const Unit* running() const;
  // Since when the running unit may have run: the last completion, or its launch.
  Instant moved_at() const { return moved_at_; }
  // How much of the running unit has run; its cost at most.
  Duration progress(Instant now) const;
  // How much less this client's units on the device cost the clients above than their predicted lengths.
  Duration spared(ClientId client) const;

 private:
  void forget(const Unit& unit);

  std::deque<Unit> units_;
  uint32_t computing_ = 0;  // units that are not copies
  uint32_t priced_ = 0;     // units whose cost is not their predicted length
  Instant moved_at_{0};
};

}  // namespace lull::policies
