// How many services make one request. Who waits for a request of several iterations, a generated
// text say, does not see when each of them ends: p99 is about the whole. Between two requests that
// come at random the host is away; the fewest services that have gone without such a pause are a
// request. Where it is never away, a round (service_pattern.h) is. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "policies/vocabulary.h"

namespace lull::policies {

class RequestLength {
 public:
  // A service has ended.
  void served() { without_pause_ += 1; }
  // The host was away before the next one.
  void paused();
  // A service may be another one from here on.
  void restart() { *this = RequestLength(); }

  // Services in a request, where those of so many take different times by turns; 0: of none.
  uint32_t services(size_t round) const;

  // The host pauses for longer than this between requests, where a service takes so long.
  static Duration pause(Duration service) { return {service.ns / 2}; }

 private:
  static constexpr uint32_t kRemembered = 64;
  static constexpr uint32_t kEnough = 16;

  std::array<uint32_t, kRemembered> lengths_{};  // services between two pauses, of late
  uint32_t pauses_ = 0;
  bool paused_ = false;
  uint32_t without_pause_ = 0;  // services since then
  uint32_t least_ = 0;
};

}  // namespace lull::policies
