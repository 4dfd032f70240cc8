// The launches of one iteration in their order, and where each kernel comes in it.
//
// IterationDetector builds it when it locks. Reading is O(1); `nearest` is O(log n) if the kernel
// comes n times in the iteration. It does not follow the program: the detector keeps the cursor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::policies {

class IterationTemplate {
 public:
  explicit IterationTemplate(std::vector<KernelId> launches);

  uint32_t length() const { return static_cast<uint32_t>(launches_.size()); }
  KernelId at(uint32_t position) const { return launches_[position]; }
  // How far from its place a launch may come and still count as that launch.
  uint32_t slack() const { return slack_; }
  void widen(uint32_t slack) { slack_ = slack; }

  // Signed distance from `from` to `position`, the shorter way round the iteration.
  int32_t distance(uint32_t position, uint32_t from) const;
  uint32_t moved(uint32_t position, int32_t by) const;
  // Where the kernel comes nearest to `position`; nothing for one that does not come.
  std::optional<uint32_t> nearest(KernelId kernel, uint32_t position) const;
  // Where the kernel comes, if it comes exactly once.
  std::optional<uint32_t> only(KernelId kernel) const;
  bool knows(KernelId kernel) const { return find(kernel) != nullptr; }

 private:
  struct Entry {
    KernelId kernel;
    uint32_t first = 0;  // in positions_
    uint32_t count = 0;  // 0: a free slot
  };
  const Entry* find(KernelId kernel) const;

  std::vector<KernelId> launches_;
  std::vector<Entry> table_;         // open addressing, a power of two
  std::vector<uint32_t> positions_;  // grouped by kernel, ascending within a group
  uint32_t slack_ = 0;
};

}  // namespace lull::policies
