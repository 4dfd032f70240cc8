#include "policies/jobs/ordered_policy.h"

#include <algorithm>

namespace lull::jobs {

void OrderedPolicy::put_in_order(Instant now) {
  keyed_.clear();
  for (Unit* unit : cluster_.units()) {
    if (unit->held) continue;
    unit->start_why = Why::kNext;
    keyed_.emplace_back(key_of(now, *unit), unit);
  }
  std::sort(keyed_.begin(), keyed_.end(), [](const auto& a, const auto& b) {
    if (a.second->priority() != b.second->priority()) {
      return a.second->priority() < b.second->priority();
    }
    return a.first != b.first ? a.first < b.first : a.second->id < b.second->id;
  });
  order_.clear();
  for (const auto& [key, unit] : keyed_) order_.push_back(unit);
}

void OrderedPolicy::step(Instant now, std::span<const Event> events, std::vector<Decision>& out) {
  bool changed = false;
  for (const Event& event : events) changed |= cluster_.apply(now, event);
  for (const Event& event : events) {  // of jobs that are still there then
    if (const auto* command = std::get_if<Command>(&event)) cluster_.obey(now, *command, out);
  }
  if (!changed) return;
  before_round(now, out);
  put_in_order(now);
  run_round(now, cluster_, order_, rules_, out);
  std::vector<Unit*> waiting = waiting_of(order_);
  while (order_again(now, waiting)) {
    put_in_order(now);
    run_round(now, cluster_, order_, rules_, out);
    waiting = waiting_of(order_);
  }
  after_round(now, waiting, out);
  const Instant next = next_time(now, !waiting.empty());
  if (next == timer_ && next > now) return;
  timer_ = next;
  out.push_back({SetTimer{next}});
}

Instant next_multiple(Instant now, Duration of) { return {(now.ns / of.ns + 1) * of.ns}; }

Instant turn_end(const Unit& unit, Duration quantum) {
  const int64_t least = std::max(quantum.ns / 2, 100 * unit.move_cost.ns);
  const int64_t from = unit.since.ns + least;
  return {(from + quantum.ns - 1) / quantum.ns * quantum.ns};
}

}  // namespace lull::jobs
