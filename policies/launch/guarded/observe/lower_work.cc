#include "policies/launch/guarded/observe/lower_work.h"

#include <algorithm>

namespace lull::policies {

void LowerWork::came(Priority level, bool copy) {
  of(level).came_at = ++entries_;
  of(level).kernels += copy ? 0 : 1;
}

void LowerWork::ended(Priority level, Instant now) {
  of(level).ended_at = ++entries_;
  of(level).ended = now;
}

void LowerWork::refused(Priority level, Duration length) {
  auto& refusals = of(level).refusals;
  while (!refusals.empty() && refusals.back().length <= length) refusals.pop_back();
  refusals.push_back({++entries_, length});
  if (refusals.size() <= kRefusals) return;
  // The longest counts as if it had been refused when the next was.
  refusals[1].length = refusals[0].length;
  refusals.erase(refusals.begin());
}

void LowerWork::spent(Priority level) {
  of(level).spent_at = ++entries_;
  of(level).spends += 1;
  of(level).refusals.clear();
}

void LowerWork::began(Priority level, const KernelCosts::Unit& unit, Instant now) {
  if (unit.predicted < KernelCosts::kLong) return;
  through(unit.client, unit.stream);
  running_.push_back({unit, level, now, ++entries_});
}

void LowerWork::through(ClientId client, StreamSlot stream) {
  std::erase_if(running_, [&](const KernelCosts::Running& running) {
    return running.unit.client == client && running.unit.stream == stream;
  });
}

void LowerWork::left(ClientId client) {
  std::erase_if(running_, [&](const auto& running) { return running.unit.client == client; });
}

LowerWork::Mark LowerWork::mark(Priority high) const {
  Mark mark{.entry = entries_};
  for (const Level& low : below(high)) {
    mark.kernels += low.kernels;
    mark.spends += low.spends;
  }
  return mark;
}

LowerWork::Since LowerWork::since(Priority high, const Mark& mark) const {
  const Mark now = this->mark(high);
  Since since{.kernels = static_cast<uint32_t>(now.kernels - mark.kernels),
              .spends = now.spends - mark.spends,
              .mark = mark.entry,
              .running = running_};
  uint64_t ended_at = mark.entry, spent_at = mark.entry;
  for (const Level& low : below(high)) {
    since.came |= low.came_at > mark.entry;
    spent_at = std::max(spent_at, low.spent_at);
    if (low.ended_at <= ended_at) continue;
    ended_at = low.ended_at;
    since.ended = low.ended;
  }
  for (const Level& low : below(high)) {
    const auto after =
        std::ranges::find_if(low.refusals, [&](const Refusal& r) { return r.entry > spent_at; });
    if (after != low.refusals.end()) since.refused = std::max(since.refused, after->length);
  }
  return since;
}

}  // namespace lull::policies
