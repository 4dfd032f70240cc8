#include "coordinator/moves/pace.h"

#include <algorithm>

namespace lull::moves {

Pace pace_beside(std::span<const Important> tasks, uint64_t link_bytes_per_s) {
  const double link = link_bytes_per_s == 0 ? kLinkBytesPerS
                                            : std::clamp(static_cast<double>(link_bytes_per_s),
                                                         kLinkBytesPerS / 64, kLinkBytesPerS);
  Pace pace;
  for (const Important& task : tasks) {
    const double bound = std::max(1, task.bound_per_mille) / 1000.0;
    const double seconds = static_cast<double>(std::max<int64_t>(0, task.iteration.ns)) / 1e9;
    const double chunk =
        std::clamp(link * bound * seconds / 4, static_cast<double>(kLeastChunkBytes),
                   static_cast<double>(kMostChunkBytes));
    const auto rate = static_cast<uint64_t>(link * bound / 2);
    const bool first = pace.bytes_per_s == 0;
    pace.bytes_per_s = first ? rate : std::min(pace.bytes_per_s, rate);
    const auto bytes = static_cast<uint32_t>(chunk);
    pace.chunk_bytes = first ? bytes : std::min(pace.chunk_bytes, bytes);
  }
  return pace;
}

}  // namespace lull::moves
