#include "policies/launch/guarded/observe/kernel_costs.h"

#include <algorithm>
#include <utility>

namespace lull::policies {
namespace {

// A unit that was in the way for a shorter time says little.
constexpr Duration kLeast{300'000};
constexpr size_t kMostKernels = 256;

template <typename List>
auto find(List& list, KernelId kernel) {
  const auto at =
      std::ranges::lower_bound(list, kernel, {}, [](const auto& s) { return s.kernel; });
  return at != list.end() && at->kernel == kernel ? &*at : nullptr;
}

}  // namespace

KernelCosts::Seen* KernelCosts::seen(KernelId kernel) {
  Seen* known = find(seen_, kernel);
  if (known != nullptr || seen_.size() >= kMostKernels) return known;
  const auto at = std::ranges::lower_bound(seen_, kernel, {}, &Seen::kernel);
  return &*seen_.insert(at, Seen{.kernel = kernel});
}

void KernelCosts::own_done(Duration work, bool known, bool more, Instant now) {
  const Duration ran = busy_until(now) - busy_for_;
  const Duration late = std::exchange(begun_, false) ? kSeenLate : Duration{};
  busy_for_ += std::max(ran - late, std::min(ran, work));
  counted_ = now;
  done_ += work;
  unknown_ += known ? 0 : 1;
  busy_ = more;
  learn_ended();
}

void KernelCosts::began(const Unit& unit, Instant now) {
  // The client's own earlier launches may go first: then nothing is seen of the two together.
  if (busy_ || unit.predicted < kLong) return;
  ended(unit.client, unit.stream, now);
  beside_.push_back(
      {.unit = unit, .since = now, .busy = busy_for_, .done = done_, .unknown = unknown_});
}

void KernelCosts::ended(ClientId client, StreamSlot stream, Instant now) {
  for (Beside& beside : beside_) {
    const bool is = beside.unit.client == client && beside.unit.stream == stream;
    if (!is || beside.ended != kNever) continue;
    beside.ended = now;
    beside.busy_beside = busy_until(now) - beside.busy;
  }
  // Own work that is only partly done is counted when it is through.
  if (!busy_) learn_ended();
}

void KernelCosts::left(ClientId client) {
  std::erase_if(beside_, [&](const Beside& beside) { return beside.unit.client == client; });
}

// A unit beside which no own work has run was in nobody's way.
bool KernelCosts::may_rest() const {
  return !busy_ && std::ranges::all_of(beside_, [this](const Beside& beside) {
    return beside.ended == kNever && beside.busy == busy_for_ && beside.done == done_;
  });
}

void KernelCosts::learn_ended() {
  std::erase_if(beside_, [&](const Beside& beside) {
    if (beside.ended == kNever) return false;
    learn(beside);
    return true;
  });
}

void KernelCosts::learn(const Beside& beside) {
  if (beside.unknown != unknown_) return;
  const Duration ran = beside.ended - beside.since;
  // Time beyond the unit's length the unit waited itself. While the client had no work there, it was not in the way.
  const Duration in_the_way = std::min(ran, beside.unit.predicted) - (ran - beside.busy_beside);
  if (in_the_way < kLeast) return;
  Seen* its = seen(beside.unit.kernel);
  if (its == nullptr) return;
  const Duration lost = (busy_for_ - beside.busy) - (done_ - beside.done);
  its->shares_x1024[its->next++ % kSamples] =
      std::clamp<int64_t>(lost.ns, 0, in_the_way.ns) * 1024 / in_the_way.ns;
  // The first share is believed by half. One of the last few may be blamed for other work.
  auto sorted = its->shares_x1024;
  const size_t count = std::min(its->next, kSamples);
  std::ranges::sort(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(count));
  its->share_x1024 = count == 1         ? (sorted[0] + 1024) / 2
                     : count < kSamples ? sorted[count - 1]
                                        : sorted[kSamples - 2];
}

int64_t KernelCosts::cost_x1024(KernelId kernel, Duration predicted) const {
  const Seen* its = predicted < kLong ? nullptr : find(seen_, kernel);
  return its == nullptr ? 1'024 : its->share_x1024;
}

}  // namespace lull::policies
