#include "policies/jobs/rounds.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace lull::jobs {
namespace {

constexpr size_t kNobody = SIZE_MAX;  // the rank of GPUs that nobody needs to leave

// A GPU that a unit could have, and how far back in the order its present unit is.
struct Candidate {
  GpuIndex gpu = 0;
  size_t rank = kNobody;
};

// The candidates of a group for one unit: open GPUs first, then those of the last in the order.
void candidates_of(const Cluster& cluster, const Group& group, bool preempt,
                   std::vector<Candidate>& out) {
  out.clear();
  for (const GpuIndex index : group.gpus) {
    const Slot& slot = cluster.slots()[index];
    if (!slot.present || slot.claim != nullptr) continue;
    if (slot.unit == nullptr || slot.unit->displaced) {
      out.push_back({index, kNobody});
    } else if (slot.extra && preempt) {
      // The last GPU goes first: a launcher with fewer workers uses the first ones.
      out.push_back({index, kNobody - 1 - (slot.unit->gpus.back() - index)});
    } else if (preempt) {
      out.push_back({index, slot.unit->rank});
    }
  }
}

// Of equally good GPUs, takes those that are near each other, and leaves whole switches to others.
Places nearest(const Cluster& cluster, std::vector<Candidate>& found, size_t gpus) {
  const auto place = [&](const Candidate& one) {
    const Gpu& gpu = cluster.slots()[one.gpu].gpu;
    return std::pair{gpu.socket, gpu.pcie_switch};
  };
  std::sort(found.begin(), found.end(), [&](const Candidate& a, const Candidate& b) {
    return std::tuple{b.rank, place(a), a.gpu} < std::tuple{a.rank, place(b), b.gpu};
  });
  // Takes all GPUs of the ranks before the last one, and some of that rank.
  const size_t last_rank = found[gpus - 1].rank;
  size_t begin = 0;
  while (found[begin].rank != last_rank) ++begin;
  size_t end = gpus;
  while (end < found.size() && found[end].rank == last_rank) ++end;
  const size_t need = gpus - begin;
  Places out;
  for (size_t i = 0; i < begin; ++i) out.push_back(found[i].gpu);
  if (begin == 0) {
    // One switch, or else one socket, that has enough; the one with the fewest.
    for (const bool by_switch : {true, false}) {
      size_t best_from = 0, best_count = 0;
      for (size_t from = 0; from < end;) {
        size_t to = from;
        while (to < end && (by_switch ? place(found[to]) == place(found[from])
                                      : place(found[to]).first == place(found[from]).first)) {
          ++to;
        }
        const size_t count = to - from;
        if (count >= need && (best_count == 0 || count < best_count)) {
          best_from = from;
          best_count = count;
        }
        from = to;
      }
      if (best_count == 0) continue;
      for (size_t i = best_from; i < best_from + need; ++i) out.push_back(found[i].gpu);
      return out;
    }
  }
  for (size_t i = begin; i < begin + need; ++i) out.push_back(found[i].gpu);
  return out;
}

class Round {
 public:
  Round(Instant now, Cluster& cluster, std::span<Unit* const> order, const RoundRules& rules,
        Cluster::Out& out)
      : now_(now), cluster_(cluster), order_(order), rules_(rules), out_(out) {}

  void run() {
    begin();
    for (Unit* unit : order_) {
      if (unclaimed_ == 0) break;
      if (unit->claimed) continue;
      if (unit->running && !unit->displaced && keeps_its_own(*unit)) continue;
      if (!find(*unit) && rules_.strict && !unit->running) break;
    }
    decide();
  }

 private:
  void begin() {
    for (Group& group : cluster_.groups()) {
      group.unclaimed = group.present;
      group.open = group.free;
      unclaimed_ += group.present;
      largest_ = std::max(largest_, group.gpus.size());
    }
    for (Slot& slot : cluster_.slots()) slot.claim = nullptr;
    for (Unit* unit : cluster_.units()) {
      unit->rank = 0;
      unit->displaced = unit->claimed = false;
      unit->target.clear();
    }
    for (size_t i = 0; i < order_.size(); ++i) order_[i]->rank = i + 1;
    for (Unit* unit : cluster_.units()) {
      if (unit->running && !goes_where_wanted(*unit) && (!rules_.preempt || !unit->may_stop())) {
        keeps_its_own(*unit);
      }
    }
    for (Unit* unit : cluster_.units()) {
      if (!goes_where_wanted(*unit)) continue;
      if (is_unclaimed(unit->wanted)) {
        claim(*unit, unit->wanted);
      } else if (unit->running) {
        keeps_its_own(*unit);
      }
    }
  }

  // Whether it shall go where the operator wants it, and can.
  static bool goes_where_wanted(const Unit& unit) {
    if (!unit.pinned || unit.wanted.empty()) return false;
    if (unit.wanted == unit.gpus) return !unit.running;
    return unit.may_leave() || !unit.started();
  }

  bool is_unclaimed(const Places& gpus) const {
    return std::all_of(gpus.begin(), gpus.end(), [&](GpuIndex index) {
      const Slot& slot = cluster_.slots()[index];
      return slot.present && slot.claim == nullptr;
    });
  }

  void displace(Unit& unit) {
    if (unit.displaced) return;
    unit.displaced = true;
    for (const GpuIndex index : unit.gpus) {
      Slot& slot = cluster_.slots()[index];
      if (slot.unit != &unit || slot.claim != nullptr) continue;
      cluster_.groups()[slot.group].open++;
    }
  }

  // A unit that keeps its place claims no GPUs that it has on loan: a later unit may have them.
  bool keeps_its_own(Unit& unit) {
    size_t base = 0;
    for (const GpuIndex index : unit.gpus) {
      Slot& slot = cluster_.slots()[index];
      if (slot.extra) continue;
      if (slot.claim != nullptr) {
        displace(unit);
        return false;
      }
      ++base;
    }
    for (const GpuIndex index : unit.gpus) {
      Slot& slot = cluster_.slots()[index];
      if (slot.extra) continue;
      slot.claim = &unit;
      cluster_.groups()[slot.group].unclaimed--;
      --unclaimed_;
    }
    unit.claimed = base > 0;
    return true;
  }

  void claim(Unit& unit, const Places& gpus) {
    for (const GpuIndex index : gpus) {
      Slot& slot = cluster_.slots()[index];
      if (slot.unit != nullptr && slot.unit != &unit && !slot.extra) displace(*slot.unit);
      Group& group = cluster_.groups()[slot.group];
      if (slot.claim != nullptr) continue;
      if (slot.unit == nullptr || slot.unit->displaced) group.open--;
      slot.claim = &unit;
      group.unclaimed--;
      --unclaimed_;
    }
    if (unit.running) displace(unit);
    unit.target = gpus;
    unit.claimed = true;
  }

  bool find(Unit& unit) {
    const size_t gpus = unit.size();
    if (gpus > unclaimed_ || goes_where_wanted(unit)) return false;
    const bool at_home = !unit.gpus.empty() && unit.started();
    if (at_home && !unit.may_move()) {  // these GPUs or none
      if (!is_unclaimed(unit.gpus)) return false;
      claim(unit, unit.gpus);
      return true;
    }
    if (gpus > largest_) return find_whole_nodes(unit);
    const int home = at_home ? static_cast<int>(cluster_.slots()[unit.gpus.front()].group) : -1;
    int best = -1;
    using Score = std::tuple<bool, size_t, bool, uint32_t, bool, uint32_t>;
    Score best_score{};
    const auto& groups = cluster_.groups();
    for (size_t g = 0; g < groups.size(); ++g) {
      const Group& group = groups[g];
      if (group.unclaimed < gpus) continue;
      const bool enough_open = group.open >= gpus;
      if (!enough_open && !rules_.preempt) continue;
      if (!cluster_.kind_will_do(unit, group)) continue;
      const size_t victim = enough_open ? 0 : kNobody - victim_rank(group, gpus);
      if (!enough_open && victim == kNobody) continue;
      const Score score{
          !enough_open,        victim,    static_cast<int>(g) != home, group.kind.value,
          !alike(group, gpus), group.open};
      if (best < 0 || score < best_score) {
        best = static_cast<int>(g);
        best_score = score;
      }
    }
    if (best < 0) return false;
    candidates_of(cluster_, groups[static_cast<size_t>(best)], rules_.preempt, found_);
    if (found_.size() < gpus) return false;
    claim(unit, nearest(cluster_, found_, gpus));
    return true;
  }

  // The rank of the first unit in the order that would have to leave; 0: not enough GPUs.
  size_t victim_rank(const Group& group, size_t gpus) {
    candidates_of(cluster_, group, true, found_);
    if (found_.size() < gpus) return 0;
    std::nth_element(found_.begin(), found_.begin() + static_cast<ptrdiff_t>(gpus - 1),
                     found_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.rank > b.rank; });
    return found_[gpus - 1].rank;
  }

  // Whether the jobs there have as many GPUs each; not for a node without jobs.
  bool alike(const Group& group, size_t gpus) const {
    for (const GpuIndex index : group.gpus) {
      const Slot& slot = cluster_.slots()[index];
      const Unit* unit = slot.claim != nullptr ? slot.claim : slot.unit;
      if (unit != nullptr && !(unit == slot.unit && unit->displaced)) return unit->size() == gpus;
    }
    return false;
  }

  // For a unit larger than any node: nodes of one kind of which nothing is claimed.
  bool find_whole_nodes(Unit& unit) {
    const auto& groups = cluster_.groups();
    for (const bool open_only : {true, false}) {
      if (!open_only && !rules_.preempt) return false;
      for (const Group& first : groups) {
        if (!cluster_.kind_will_do(unit, first)) continue;
        Places gpus;
        for (const Group& group : groups) {
          if (group.kind != first.kind || group.unclaimed != group.gpus.size()) continue;
          if (open_only && group.open != group.unclaimed) continue;
          for (const GpuIndex index : group.gpus) {
            if (gpus.size() < unit.size()) gpus.push_back(index);
          }
          if (gpus.size() == unit.size()) break;
        }
        if (gpus.size() < unit.size()) continue;
        claim(unit, gpus);
        return true;
      }
    }
    return false;
  }

  Reason reason_to_leave(const Unit& unit) const {
    if (unit.pinned && !unit.target.empty()) return {Why::kOperator};
    for (const GpuIndex index : unit.gpus) {
      const Slot& slot = cluster_.slots()[index];
      if (slot.claim == nullptr || slot.claim == &unit) continue;
      const JobId other = slot.claim->first().request.job;
      if (slot.claim->pinned) return {Why::kOperator, other};
      if (slot.claim->priority() < unit.priority()) return {Why::kMoreImportant, other};
      return {rules_.displaced, other};
    }
    return {Why::kOperator};
  }

  bool is_free(const Places& gpus) const {
    return std::all_of(gpus.begin(), gpus.end(),
                       [&](GpuIndex index) { return cluster_.slots()[index].unit == nullptr; });
  }

  void decide() {
    const std::vector<Unit*> units = cluster_.units();
    for (Unit* unit : units) {  // GPUs on loan that somebody has claimed
      if (unit->extra() == 0 || unit->displaced) continue;
      Places kept;
      JobId other{};
      for (const GpuIndex index : unit->gpus) {
        const Slot& slot = cluster_.slots()[index];
        if (slot.extra && slot.claim != nullptr) {
          other = slot.claim->first().request.job;
        } else {
          kept.push_back(index);
        }
      }
      if (kept.size() < unit->gpus.size()) {
        cluster_.resize(now_, *unit, kept, {Why::kGiveBack, other}, out_);
      }
    }
    std::vector<std::pair<Unit*, Reason>> leaving;
    for (Unit* unit : units) {
      if (unit->running && unit->displaced) leaving.emplace_back(unit, reason_to_leave(*unit));
    }
    for (auto& [unit, reason] : leaving) {
      if (unit->target.empty() || !is_free(unit->target) || !unit->may_move()) continue;
      if (reason.why != Why::kOperator) reason.why = Why::kMadeWay;
      cluster_.migrate(now_, *unit, unit->target, reason, out_);
      unit->target.clear();
      unit->displaced = false;
    }
    for (const auto& [unit, reason] : leaving) {
      if (unit->displaced) cluster_.stop(now_, *unit, reason, out_);
    }
    const auto begin = [&](Unit* unit, Why why) {
      if (unit->target.empty() || unit->running) return;
      cluster_.start(now_, *unit, unit->target, {why, unit->first().request.job}, out_);
    };
    for (Unit* unit : units) {
      if (unit->pinned) begin(unit, Why::kOperator);
    }
    for (Unit* unit : order_) begin(unit, unit->start_why);
  }

  Instant now_;
  Cluster& cluster_;
  std::span<Unit* const> order_;
  const RoundRules& rules_;
  Cluster::Out& out_;
  size_t unclaimed_ = 0;
  size_t largest_ = 0;
  std::vector<Candidate> found_;
};

}  // namespace

void run_round(Instant now, Cluster& cluster, std::span<Unit* const> order, const RoundRules& rules,
               Cluster::Out& out) {
  Round(now, cluster, order, rules, out).run();
}

Places free_places(const Cluster& cluster, const Unit& unit, size_t gpus, int apart_from) {
  int best = -1;
  using Score = std::tuple<uint32_t, bool, uint32_t>;
  Score best_score{};
  const auto& groups = cluster.groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    const Group& group = groups[g];
    if (group.free < gpus || static_cast<int>(g) == apart_from) continue;
    const Score score{group.kind.value, group.free == group.present, group.free};
    if (best >= 0 && score >= best_score) continue;
    if (!cluster.kind_will_do(unit, group)) continue;
    best = static_cast<int>(g);
    best_score = score;
  }
  if (best < 0) return {};
  std::vector<Candidate> found;
  for (const GpuIndex index : groups[static_cast<size_t>(best)].gpus) {
    const Slot& slot = cluster.slots()[index];
    if (slot.present && slot.unit == nullptr) found.push_back({index, kNobody});
  }
  Places out = nearest(cluster, found, gpus);
  std::sort(out.begin(), out.end());
  return out;
}

void keep_to_memory(Instant now, Cluster& cluster, Cluster::Out& out) {
  const std::vector<Unit*> units = cluster.units();
  for (Unit* unit : units) {
    while (unit->running && unit->jobs.size() > 1) {
      const Group& group = cluster.groups()[cluster.slots()[unit->gpus.front()].group];
      const auto memory = cluster.memory_of(*unit);
      if (memory && *memory <= group.memory_bytes) break;
      Job* last = unit->last_that(&Job::may_stop);
      if (last == nullptr) break;  // they have come by themselves, and stay
      cluster.unpack(now, *last, {Why::kMemory}, out);
    }
  }
}

void part_packs(Instant now, Cluster& cluster, bool all,
                const std::function<bool(size_t group)>& keeps_free, Cluster::Out& out) {
  std::vector<Unit*> packs;
  for (Unit* unit : cluster.units()) {
    if (unit->running && unit->jobs.size() > 1 && (all || unit->unasked)) packs.push_back(unit);
  }
  std::stable_sort(packs.begin(), packs.end(), [](const Unit* a, const Unit* b) {
    return a->jobs.size() > b->jobs.size();  // the fullest first
  });
  for (Unit* unit : packs) {
    while (unit->jobs.size() > 1) {
      Job* leaves = unit->last_that(&Job::may_move);
      if (leaves == nullptr) break;
      const uint32_t group = cluster.slots()[unit->gpus.front()].group;
      Places gpus = free_places(cluster, *unit, unit->size(),
                                keeps_free(group) ? static_cast<int>(group) : -1);
      if (gpus.empty()) break;
      cluster.part(now, *leaves, std::move(gpus), {Why::kVacated}, out);
    }
  }
}

std::vector<Unit*> waiting_of(std::span<Unit* const> order) {
  std::vector<Unit*> out;
  for (Unit* unit : order) {
    if (!unit->running) out.push_back(unit);
  }
  return out;
}

}  // namespace lull::jobs
