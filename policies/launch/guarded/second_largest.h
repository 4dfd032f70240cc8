// The second largest of recent samples stands for their p99: the largest one may be chance.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

namespace lull::policies {

// 0 for fewer than two samples, and where the second largest is negative.
template <typename Range, typename Value = std::identity>
int64_t second_largest(const Range& seen, Value value = {}) {
  int64_t most = 0, second = 0;
  for (const auto& one : seen) {
    const int64_t here = std::invoke(value, one);
    second = std::max(second, std::min(most, here));
    most = std::max(most, here);
  }
  return second;
}

}  // namespace lull::policies
