// What a policy knows to be on the device, in the order in which it came there; copies have engines
// of their own. Pure.
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
    Duration cost;  // to those above, at most `predicted` or as long as such have taken
    bool copy = false;
    Instant at{0};  // launched
  };

  void submitted(const Submitted& launch, Duration cost);
  // Of what is through now, copies apart.
  struct Through {
    uint32_t kernels = 0;
    Duration expected;  // what they take in the mean, all together
    Instant launched{0};  // the last of them
  };
  Through completed(const Completed& done, Instant now);
  void left(ClientId client);

  // The unit of a stream that runs or is about to; null without one.
  const Unit* first(ClientId client, StreamSlot stream) const;
  // The unit that is running, copies apart; null without one.
  const Unit* running() const;
  // Since when the unit that is running may have been: the last completion, or its launch.
  Instant moved_at() const { return moved_at_; }
  // How much of the unit that is running has run, as far as it costs.
  Duration progress(Instant now) const;
  // By how much less than predicted what the client has there costs those above.
  Duration spared(ClientId client) const;

 private:
  void forget(const Unit& unit);

  std::deque<Unit> units_;
  uint32_t computing_ = 0;  // of them not copies
  uint32_t priced_ = 0;     // of them with a cost of their own
  Instant moved_at_{0};
};

}  // namespace lull::policies
