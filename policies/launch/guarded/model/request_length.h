// How many services make one request. Who waits for a request of several iterations, a generated
// text say, does not see when each of them ends: p99 is about the whole. Between two requests that
// come at random the host is away; where one finds another waiting it is not. So what goes without
// such a pause is one request, two, three: if the numbers of services differ and all are multiples of
// one, a request is so many. Where it is never away, a round is (service_pattern.h). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "policies/vocabulary.h"

namespace lull::policies {

class RequestLength {
 public:
  // A service has ended; those of so many take different times by turns, 0: of none. A round is
  // believed in for a while after it could be told last.
  void served(size_t round);
  // The host was away before the next one.
  void paused();
  // A service may be another one from here on.
  void restart() { *this = RequestLength(); }

  // Services in a request.
  uint32_t services() const;
  // ... as pauses tell; 1 where they do not.
  uint32_t between_pauses() const { return pauses_ >= kEnough ? common_ : 1; }

  // The host pauses for longer than this between requests, where a service takes so long.
  static Duration pause(Duration service) { return {service.ns / 2}; }

  bool operator==(const RequestLength&) const = default;

 private:
  static constexpr uint32_t kRemembered = 64;
  static constexpr uint32_t kEnough = 16;
  static constexpr uint32_t kBelieved = 256;  // services

  std::array<uint32_t, kRemembered> lengths_{};  // services between two pauses, of late
  uint32_t pauses_ = 0;
  bool paused_ = false;
  uint32_t without_pause_ = 0;  // services since then
  uint32_t least_ = 0;   // of these
  uint32_t common_ = 1;  // what all are multiples of, where they differ
  uint32_t round_ = 0;
  uint32_t since_round_ = 0;  // services
};

}  // namespace lull::policies
