// When units of a client started, on the model's clock. The shim measures a start from an event of
// its own, a "base", of which only this is known: a unit never starts before it is launched. So a
// base lies at or after (launch - start since base) of each unit measured from it, and the largest
// of these is taken: it is exact but for the launch cost as soon as one unit found the device idle.
// Pure; one a client; loop thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "coordinator/channel/layout.h"
#include "policies/vocabulary.h"

namespace lull::daemon {

class StartTimes {
 public:
  // `device_start`: layout.h kStartBits. Instant{-1}: not known.
  Instant at(uint32_t device, uint64_t device_start, Instant launched) {
    const uint64_t number = device_start >> channel::kStartBits;
    if (number == 0 || device >= devices_.size()) return {-1};
    const auto since =
        static_cast<int64_t>(device_start & ((uint64_t{1} << channel::kStartBits) - 1));
    Base* base = find(device, number);
    if (base == nullptr) {
      if (launched == kNever) return {-1};
      Device& mine = devices_[device];
      base = &mine.bases[mine.next++ % mine.bases.size()];
      *base = {.number = number, .at_ns = launched.ns - since};
    } else if (launched != kNever) {
      base->at_ns = std::max(base->at_ns, launched.ns - since);
    }
    return {std::max<int64_t>(0, base->at_ns + since)};
  }

 private:
  struct Base {
    uint64_t number = 0;  // 0: none
    int64_t at_ns = 0;
  };
  Base* find(uint32_t device, uint64_t number) {
    auto& bases = devices_[device].bases;
    const auto found = std::find_if(bases.begin(), bases.end(), [&](const Base& base) {
      return base.number == number;
    });
    return found == bases.end() ? nullptr : &*found;
  }
  // A base is followed by the next within seconds; units of the last ones may still come. Devices
  // apart: a program on many of them has a base on each.
  struct Device {
    std::array<Base, 8> bases{};
    size_t next = 0;
  };
  std::array<Device, channel::kMaxDevices> devices_{};
};

}  // namespace lull::daemon
