#include "policies/jobs/ordered_policy.h"

#include <algorithm>
#include <tuple>

namespace lull::jobs {

void OrderedPolicy::put_in_order(Instant now) {
  keyed_.clear();
  for (Unit* unit : cluster_.units()) {
    if (unit->held) continue;
    unit->start_why = Why::kNext;
    keyed_.push_back({unit->priority(), key_of(now, *unit), unit->id, unit});
  }
  std::sort(keyed_.begin(), keyed_.end(), [](const Keyed& a, const Keyed& b) {
    return std::tie(a.priority, a.key, a.id) < std::tie(b.priority, b.key, b.id);
  });
  order_.clear();
  for (const Keyed& one : keyed_) order_.push_back(one.unit);
}

bool OrderedPolicy::order_again(Instant now, std::span<Unit* const> waiting) {
  bool any = false;
  for (Unit* unit : waiting) {
    if (unit->jobs.size() < 2) continue;
    cluster_.dissolve(now, *unit);
    any = true;
  }
  return any;
}

void OrderedPolicy::step(Instant now, std::span<const Event> events, std::vector<Decision>& out) {
  bool changed = false;
  for (const Event& event : events) changed |= cluster_.apply(now, event);
  for (const Event& event : events) {  // of jobs that are still there then
    if (const auto* command = std::get_if<Command>(&event)) cluster_.obey(now, *command, out);
  }
  if (!changed) return;
  cluster_.obey_wishes(now, out);
  keep_to_memory(now, cluster_, out);
  before_round(now, out);
  put_in_order(now);
  run_round(now, cluster_, order_, rules_, out);
  std::vector<Unit*> waiting = waiting_of(order_);
  while (order_again(now, waiting)) {
    put_in_order(now);
    run_round(now, cluster_, order_, rules_, out);
    waiting = waiting_of(order_);
  }
  if (waiting.empty()) {
    const auto keeps = [&](size_t group) { return keeps_free(group); };
    part_packs(now, cluster_, rules_.parts_all, keeps, out);
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
