#include "tools/simulate/cluster/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>

#include "tools/simulate/cluster/generator.h"
#include "tools/simulate/cluster/speed_model.h"

namespace lull::simulate::cluster {
namespace {

// What jobs make together where each stays on one GPU: `on[g]` are those of GPU g. Those of a GPU
// run at once where that is better than taking turns and memory holds them; turns cost nothing, and
// those of two GPUs fall together by chance.
double sum_of(const Plan& plan, const SpeedModel& model,
              const std::vector<std::vector<size_t>>& on) {
  std::vector<bool> packed(on.size());
  for (size_t gpu = 0; gpu < on.size(); ++gpu) {
    uint64_t bytes = 0;
    double sum = 0;
    for (size_t i = 0; i < on[gpu].size(); ++i) {
      sum += 1 / model.slowed(on[gpu], i);
      bytes += plan.jobs[on[gpu][i]].memory_bytes;
    }
    packed[gpu] = bytes <= plan.cluster.gpus[gpu].memory_bytes && sum >= 1;
  }
  double sum = 0;
  for (size_t gpu = 0; gpu < on.size(); ++gpu) {
    if (on[gpu].empty()) continue;
    const jobs::Gpu& at = plan.cluster.gpus[gpu];
    const jobs::Gpu* where[] = {&at};
    // The one other GPU on the switch of a node of four.
    const std::vector<size_t>* beside = nullptr;
    bool beside_packed = false;
    for (size_t other = 0; other < on.size(); ++other) {
      const jobs::Gpu& there = plan.cluster.gpus[other];
      if (other == gpu || there.pcie_switch != at.pcie_switch) continue;
      beside = &on[other];
      beside_packed = packed[other];
    }
    const auto speed = [&](size_t job) {
      const double alone = model.alone(job, where, 0);
      if (beside == nullptr || beside->empty()) return 1.0;
      size_t loads = 0;
      for (const size_t other : *beside) loads += plan.jobs[other].bus;
      if (beside_packed) return model.alone(job, where, loads) / alone;
      const double share = static_cast<double>(loads) / static_cast<double>(beside->size());
      return 1 - share + share * model.alone(job, where, 1) / alone;
    };
    const auto jobs = static_cast<double>(on[gpu].size());
    for (size_t i = 0; i < on[gpu].size(); ++i) {
      const double slowed = packed[gpu] ? model.slowed(on[gpu], i) : jobs;
      sum += speed(on[gpu][i]) / slowed;
    }
  }
  return sum;
}

// Every way to spread jobs over GPUs.
void spread(const Plan& plan, const SpeedModel& model, std::vector<std::vector<size_t>>& on,
            size_t next, double& best) {
  if (next == plan.jobs.size()) {
    best = std::max(best, sum_of(plan, model, on));
    return;
  }
  for (auto& pack : on) {
    pack.push_back(next);
    spread(plan, model, on, next + 1, best);
    pack.pop_back();
  }
}

}  // namespace

std::expected<Plan, std::string> plan_of_case(std::string_view name, uint64_t seed) {
  Plan plan;
  plan.seed = seed;
  const std::string_view whole = name;
  const bool only_ends = name.ends_with("-kill");
  if (only_ends) name.remove_suffix(std::string_view("-kill").size());
  if (name == "six" || name == "six-turns") {
    plan.cluster = *parse_cluster("1x4:h100");
    plan.jobs = make_six_jobs(seed);
    if (name == "six-turns") {
      for (JobSpec& job : plan.jobs) job.bus = false;
    }
    plan.stop_s = 12 * 3600;
    plan.measure_from_s = 6 * 3600;
  } else if (name == "hundred") {
    plan.cluster = *parse_cluster("13x4:h100,12x4:a100");
    plan.jobs = make_cluster_jobs(seed, 500, plan.cluster);
    plan.node_mtbf_s = 60 * 86'400;  // [estimate]
  } else if (name == "large") {
    plan.cluster = *parse_cluster("125x8:h100,125x8:a100");
    plan.jobs = make_cluster_jobs(seed, 10'000, plan.cluster);
    plan.node_mtbf_s = 60 * 86'400;
    plan.report_s = 60;
  } else if (name == "search" || name == "search16" || name == "search-any") {
    plan.cluster = *parse_cluster(name == "search16" ? "4x4:h100" : "1x4:h100");
    plan.jobs = make_search_jobs(seed, 100, 2, name != "search-any");
    plan.stop_bad = true;
  } else if (name == "automl" || name == "automl16") {
    // [Gandiva] LeNet-like: the same 374 configurations on 4 and on 16 GPUs; [estimate] one is
    // good.
    plan.cluster = *parse_cluster(name == "automl16" ? "4x4:h100" : "1x4:h100");
    plan.jobs = make_search_jobs(seed, 374, 1, /*small=*/true);
    plan.stop_bad = true;
  } else {
    return std::unexpected(fmt::format("there is no case '{}': one of {}", whole, kCases));
  }
  if (!plan.stop_bad && only_ends) {
    return std::unexpected(fmt::format("{} is no search: only those have an owner", name));
  }
  plan.prefer_best = plan.stop_bad && !only_ends;
  return plan;
}

double best_static_sum(const Plan& plan) {
  const SpeedModel model(plan.seed, plan.jobs);
  std::vector<std::vector<size_t>> on(plan.cluster.gpus.size());
  double best = 0;
  spread(plan, model, on, 0, best);
  return best;
}

namespace {

// Time alone until a job reaches the aim; negative: it does not.
double aim_s(const Plan& plan, size_t job) {
  for (uint32_t tenth = 1; tenth <= 10; ++tenth) {
    if (search_score(plan, job, tenth) >= kSearchAim) return plan.jobs[job].alone_s() * tenth / 10;
  }
  return -1;
}

// How many jobs of a search make most together on one GPU, of those that came one after another,
// and what they make.
struct BestPack {
  size_t jobs = 1;
  double sum = 1;
};
BestPack best_pack(const Plan& plan) {
  const SpeedModel model(plan.seed, plan.jobs);
  BestPack best;
  for (size_t count = 2; count <= plan.jobs.size(); ++count) {
    double most = 0;
    for (size_t first = 0; first + count <= plan.jobs.size(); ++first) {
      std::vector<size_t> pack(count);
      std::iota(pack.begin(), pack.end(), first);
      uint64_t bytes = 0;
      double sum = 0;
      for (size_t i = 0; i < count; ++i) {
        bytes += plan.jobs[pack[i]].memory_bytes;
        sum += 1 / model.slowed(pack, i);
      }
      if (bytes <= plan.cluster.gpus.front().memory_bytes) most = std::max(most, sum);
    }
    if (most <= best.sum) break;
    best = {count, most};
  }
  return best;
}

}  // namespace

double least_aim_s(const Plan& plan) {
  double least = -1;
  for (size_t job = 0; job < plan.jobs.size(); ++job) {
    const double at_s = aim_s(plan, job);
    if (at_s >= 0 && (least < 0 || at_s < least)) least = at_s;
  }
  return least;
}

double blind_aim_s(const Plan& plan) {
  const BestPack pack = best_pack(plan);
  const double slowed = static_cast<double>(pack.jobs) / pack.sum;
  std::map<uint32_t, std::vector<double>> seen;
  std::priority_queue<double, std::vector<double>, std::greater<>> places;  // free from then on
  for (size_t i = 0; i < plan.cluster.gpus.size() * pack.jobs; ++i) places.push(0);
  double least = -1;
  for (size_t job = 0; job < plan.jobs.size(); ++job) {
    const double begin_s = places.top();
    places.pop();
    const double at_s = aim_s(plan, job);
    if (at_s >= 0 && (least < 0 || begin_s + at_s < least)) least = begin_s + at_s;
    uint32_t tenth = 1;
    while (!plan.prefer_best && tenth < 10) {
      const double score = search_score(plan, job, tenth);
      seen[tenth].push_back(score);
      if (search_stops(seen[tenth], score)) break;
      ++tenth;
    }
    places.push(begin_s + slowed * plan.jobs[job].alone_s() * tenth / 10);
  }
  return least;
}

double measured_sum(const Plan& plan, const Result& result) {
  double sum = 0;
  for (size_t i = 0; i < plan.jobs.size(); ++i) {
    const double alone = (plan.stop_s - plan.measure_from_s) / plan.jobs[i].iteration_s;
    sum += result.jobs[i].measured_iterations / alone;
  }
  return sum;
}

}  // namespace lull::simulate::cluster
