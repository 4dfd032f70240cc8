// The clock of one important client: it stands still while the client is held. So the time for which an exception holds
// the client is no time of the client's own: it changes nothing that is known of its requests. What that time costs is
// counted by itself. Kept by a RequestGuard. Pure.
#pragma once

#include <algorithm>
#include <utility>

#include "policies/vocabulary.h"

namespace lull::policies {

class OwnClock {
 public:
  // The client, which has nothing on the device, is held from now on. The first call counts.
  void stop(Instant at) {
    if (stopped_ == kNever) stopped_ = at;
  }
  // The client goes on. Returns for how long it was held; 0 if it was not.
  Duration go_on(Instant at) {
    const Duration stood = stands_for(at);
    stopped_ = kNever;
    stood_ += stood;
    return stood;
  }
  // For how long the client has been held now.
  Duration stands_for(Instant at) const {
    return stopped_ == kNever ? Duration{} : std::max(Duration{}, at - stopped_);
  }
  // The client's own time at `at`.
  Instant at(Instant at) const { return at - stands_for(at) - stood_; }

  bool operator==(const OwnClock&) const = default;

 private:
  Instant stopped_ = kNever;
  Duration stood_;  // altogether, until the client last went on
};

}  // namespace lull::policies
