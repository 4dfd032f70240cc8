// The two figures that tell a person whether two clients can share a device: the longest unit of
// the less important one, and the most that the important one could wait at once. Where the first
// is larger, such units go by exception only. A policy that knows the figures keeps them, over the
// last 10 to 20 s; there are none before 10 s are over. No decision depends on them. Pure.
#pragma once

#include <algorithm>
#include <map>
#include <optional>

#include "policies/launch/launch_policy.h"

namespace lull::policies {

class SharingFigures {
 public:
  static constexpr Duration kWindow{10'000'000'000};

  // A unit of the client has come, or waits; it costs the clients above it `cost`.
  void unit(ClientId low, Duration cost, Instant now) { units_[low].add(cost, now); }
  // With no lower work in flight, a unit that costs `room` could go before the client; < 0: none.
  void room(ClientId high, Duration room, Instant now) { rooms_[high].add(room, now); }
  void left(ClientId client) {
    units_.erase(client);
    rooms_.erase(client);
  }
  std::optional<PairFigures> of(ClientId high, ClientId low) const {
    const auto unit = units_.find(low);
    const auto room = rooms_.find(high);
    if (unit == units_.end() || room == rooms_.end() || !unit->second.known() ||
        !room->second.known()) {
      return std::nullopt;
    }
    return PairFigures{unit->second.most(), room->second.most()};
  }

 private:
  class Recent {
   public:
    void add(Duration value, Instant now) {
      if (began_ == kNever) began_ = now;
      if (now - began_ >= kWindow) {
        before_ = now - began_ < kWindow + kWindow ? now_ : Duration{};
        now_ = Duration{};
        began_ = now;
        known_ = true;
      }
      now_ = std::max(now_, value);
    }
    bool known() const { return known_; }
    Duration most() const { return std::max(before_, now_); }

   private:
    Instant began_ = kNever;  // the present window
    Duration now_, before_;   // the most in it, and in the one before
    bool known_ = false;
  };
  std::map<ClientId, Recent> units_, rooms_;
};

}  // namespace lull::policies
