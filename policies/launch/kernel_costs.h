// What long units of lower work cost one client, by kernel, where that is not what their predicted
// length says. Learnt from what was seen on the device, so that nothing need be known of the device
// or of how it is shared. Pure.
//
//   share: of a unit's length that the client's own work does not come forward by. All of it where
//     the device runs one kernel at a time, or the unit takes all of it; little where kernels run
//     together and the unit is narrow, as collectives are.
//     in the way = what the unit still had to run when the client came
//     lost       = what the client's own work did not come forward by in that time
//     share      = lost / in the way; one in a few may have waited itself, for an event
//   longest: how long a unit has taken lately, for kernels that take very different times.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::policies {

class KernelCosts {
 public:
  // Shorter units are not worth the trouble.
  static constexpr Duration kLong{500'000};

  // A unit has run for so long, or longer.
  void took(KernelId kernel, Duration ran);
  // One of this predicted length, come while the client had nothing on the device, ran for `ran`.
  // For `beside` of that the client had work there, which came forward by `lost` less than by itself.
  void ran_beside(KernelId kernel, Duration length, Duration ran, Duration beside, Duration lost);

  // What a unit of this predicted length costs the client if it is in the way all the time;
  // `at_most`: if it takes as long as one has lately.
  Duration cost(KernelId kernel, Duration length, bool at_most) const;

 private:
  static constexpr size_t kSamples = 4;
  struct Seen {
    KernelId kernel;
    std::array<uint32_t, kSamples> shares_x1024{1024, 1024, 1024, 1024};  // the last ones
    uint32_t next = 0;
    uint32_t share_x1024 = 1024;
    int64_t longest_ns = 0;
  };
  Seen* seen(KernelId kernel);

  std::vector<Seen> seen_;  // by kernel
};

}  // namespace lull::policies
