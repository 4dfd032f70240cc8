// Who runs where next, from an order of units: the first gets GPUs first. Pure.
//
// Called by the policies, which differ in the order. Units claim GPUs in that order. A running unit
// keeps its own if no earlier unit has claimed them. Another claims free GPUs, else (`preempt`)
// those of the last units in the order. A unit that lost its GPUs and found no others is suspended.
//
// Where: one node for a job that fits into one, whole nodes for a larger one. Among nodes that will
// do: one with free GPUs before one where somebody must leave; where the unit's memory is; the
// faster kind; a node whose jobs have as many GPUs each (affinity: large holes stay whole); the one
// with the fewest GPUs to spare. Within it: one PCIe switch before one socket before any GPUs.
#pragma once

#include <functional>
#include <span>

#include "policies/jobs/cluster.h"

namespace lull::jobs {

struct RoundRules {
  bool preempt = false;            // later units may lose their GPUs to earlier ones
  bool strict = false;             // nobody passes a unit that finds no GPUs
  Why displaced = Why::kTurnOver;  // why a unit loses its GPUs to one that is as important
  bool parts_all = false;          // packs go apart onto free GPUs, also those of its own decision
};

// Decides and appends. `order`: every unit that may run, best first, without those that the
// operator has suspended. Pinned units keep (or get) their place before all others.
void run_round(Instant now, Cluster& cluster, std::span<Unit* const> order, const RoundRules& rules,
               Cluster::Out& out);

// Jobs leave packs that their GPUs' memory does not hold, as long as one of them can be stopped.
void keep_to_memory(Instant now, Cluster& cluster, Cluster::Out& out);

// Nobody waits: jobs leave packs for free GPUs, those of the fullest pack first. Unless `all`, only
// packs part that no decision has made (Unit::unasked: a job that cannot be stopped came onto
// another's GPUs). If a group `keeps_free` its free GPUs, its jobs leave only for other groups.
void part_packs(Instant now, Cluster& cluster, bool all,
                const std::function<bool(size_t group)>& keeps_free, Cluster::Out& out);

// Free GPUs for the unit, by the same rules; empty: there are none. `apart_from`: not in this
// group.
Places free_places(const Cluster& cluster, const Unit& unit, size_t gpus, int apart_from = -1);

// The units that wait and may run, in the order of `order`.
std::vector<Unit*> waiting_of(std::span<Unit* const> order);

}  // namespace lull::jobs
