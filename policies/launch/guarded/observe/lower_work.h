// What the less important clients of a device have done, kept by their level, so that a guard whose
// client has been quiet for long need not be told of each launch: it is brought up to date when its
// client is back (TaskGuard::catch_up). Each entry costs the same however many clients there are.
// Pure; owned by Guarded.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "policies/launch/client_table.h"
#include "policies/launch/guarded/observe/kernel_costs.h"

namespace lull::policies {

class LowerWork {
 public:
  // A moment, as a client of one level sees it.
  struct Mark {
    uint64_t entry = 0;
    uint64_t kernels = 0;
    uint64_t spends = 0;
  };
  // All that has happened below a level since a mark.
  struct Since {
    bool came = false;       // a unit or a copy came to the device
    uint32_t kernels = 0;    // so many were kernels
    Instant ended = kNever;  // when one ended last; kNever: none did
    uint64_t spends = 0;     // units let go that exceeded the room
    Duration refused;        // the longest unit turned away since the last of these
    uint64_t mark = 0;
    std::span<const KernelCosts::Running>
        running;  // long units that are on the device now, all levels'
  };

  // Of a client of this level.
  void came(Priority level, bool copy);
  void ended(Priority level, Instant now);
  void refused(Priority level, Duration length);
  void spent(Priority level);
  // A long unit is the first of its stream on the device; that of a stream is through.
  void began(Priority level, const KernelCosts::Unit& unit, Instant now);
  void through(ClientId client, StreamSlot stream);
  void left(ClientId client);

  Mark mark(Priority high) const;
  Since since(Priority high, const Mark& mark) const;

 private:
  static constexpr size_t kRefusals = 64;
  struct Refusal {
    uint64_t entry;
    Duration length;
  };
  struct Level {
    uint64_t kernels = 0, spends = 0;                  // so far
    uint64_t came_at = 0, ended_at = 0, spent_at = 0;  // the last entry of each
    Instant ended{0};
    std::vector<Refusal> refusals;  // each longer than all after it
  };
  Level& of(Priority level) { return levels_[std::min<size_t>(level.level, kLevels - 1)]; }
  std::span<const Level> below(Priority high) const {
    return std::span(levels_).subspan(std::min<size_t>(high.level + size_t{1}, kLevels));
  }

  std::array<Level, kLevels> levels_;
  std::vector<KernelCosts::Running> running_;  // in the order in which they began
  uint64_t entries_ = 0;
};

}  // namespace lull::policies
