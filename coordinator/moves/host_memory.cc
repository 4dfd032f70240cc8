#include "coordinator/moves/host_memory.h"

#include <algorithm>
#include <numeric>

namespace lull::moves {

std::vector<uint64_t> share_host_memory(uint64_t total_bytes, std::span<const HostWish> wishes) {
  std::vector<uint64_t> given(wishes.size());
  uint64_t left = total_bytes;
  for (size_t i = 0; i < wishes.size(); ++i) {
    given[i] = wishes[i].has_bytes;
    left -= std::min(left, given[i]);
  }
  std::vector<size_t> order(wishes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto lacks = [&](size_t i) {
    return wishes[i].wants_bytes - std::min(wishes[i].wants_bytes, wishes[i].has_bytes);
  };
  std::ranges::stable_sort(order, {}, lacks);
  for (size_t n = 0; n < order.size(); ++n) {
    const uint64_t part = std::min(lacks(order[n]), left / (order.size() - n));
    given[order[n]] += part;
    left -= part;
  }
  for (uint64_t& allowance : given) allowance += left / given.size();
  return given;
}

}  // namespace lull::moves
