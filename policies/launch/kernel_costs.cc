#include "policies/launch/kernel_costs.h"

#include <algorithm>

namespace lull::policies {
namespace {

// Shorter times together say little.
constexpr Duration kLeast{300'000};
constexpr size_t kMostKernels = 256;
constexpr int64_t kForgets = 64;  // of the longest, a part in so many with every unit

}  // namespace

KernelCosts::Seen* KernelCosts::seen(KernelId kernel) {
  auto at = std::lower_bound(seen_.begin(), seen_.end(), kernel,
                             [](const Seen& s, KernelId id) { return s.kernel < id; });
  if (at == seen_.end() || at->kernel != kernel) {
    if (seen_.size() >= kMostKernels) return nullptr;
    at = seen_.insert(at, Seen{.kernel = kernel});
  }
  return &*at;
}

void KernelCosts::took(KernelId kernel, Duration ran) {
  if (ran < kLong) return;
  if (Seen* its = seen(kernel)) {
    its->longest_ns = std::max(ran.ns, its->longest_ns - its->longest_ns / kForgets);
  }
}

void KernelCosts::ran_beside(KernelId kernel, Duration length, Duration ran, Duration beside,
                             Duration lost) {
  // What it ran beyond its length it waited; what it ran without the client was not in the way.
  const Duration in_the_way = std::min(ran, length) - (ran - beside);
  if (length < kLong || in_the_way < kLeast) return;
  Seen* its = seen(kernel);
  if (its == nullptr) return;
  const int64_t most = in_the_way.ns;
  const int64_t share = std::clamp<int64_t>(lost.ns, 0, most) * 1024 / most;
  its->shares_x1024[its->next++ % kSamples] = static_cast<uint32_t>(share);
  auto sorted = its->shares_x1024;
  std::ranges::sort(sorted);
  its->share_x1024 = sorted[kSamples - 2];
}

Duration KernelCosts::cost(KernelId kernel, Duration length, bool at_most) const {
  if (length < kLong) return length;
  const auto at = std::lower_bound(seen_.begin(), seen_.end(), kernel,
                                   [](const Seen& s, KernelId id) { return s.kernel < id; });
  if (at == seen_.end() || at->kernel != kernel) return length;
  const int64_t takes = at_most ? std::max(length.ns, at->longest_ns) : length.ns;
  return {takes * at->share_x1024 / 1024};
}

}  // namespace lull::policies
