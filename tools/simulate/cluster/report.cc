#include "tools/simulate/cluster/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace lull::simulate::cluster {
namespace {

constexpr const char* kSizes[] = {"1", "2", "3-4", "5-8", "9+"};

size_t size_class(uint32_t gpus) {
  return gpus <= 2 ? gpus - 1 : gpus <= 4 ? 2 : gpus <= 8 ? 3 : 4;
}

std::string duration(double s) {
  if (s < 0) return "-";
  if (s < 100) return fmt::format("{:.1f} s", s);
  if (s < 6000) return fmt::format("{:.1f} min", s / 60);
  return fmt::format("{:.1f} h", s / 3600);
}

uint64_t total(const Result& result, uint32_t JobResult::*what) {
  uint64_t sum = 0;
  for (const JobResult& job : result.jobs) sum += job.*what;
  return sum;
}

double gpu_time_s(const Run& run) {
  return run.result.makespan_s * static_cast<double>(run.plan.cluster.gpus.size());
}

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

nlohmann::ordered_json to_json(const Spread& spread) {
  return {{"count", spread.count}, {"mean", spread.mean}, {"p50", spread.p50}, {"p99", spread.p99}};
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  Spread out;
  out.count = values.size();
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  out.mean =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  const auto at = [&](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::min(values.size() - 1, rank == 0 ? 0 : rank - 1)];
  };
  out.p50 = at(0.5);
  out.p99 = at(0.99);
  return out;
}

std::vector<Summary> summaries(const Plan& plan, const Result& result) {
  std::vector<Summary> out;
  const auto summary = [&](const std::string& size, auto&& in) {
    Summary one;
    one.size = size;
    std::vector<double> jct, wait, first;
    uint64_t moves = 0;
    for (size_t i = 0; i < plan.jobs.size(); ++i) {
      if (!in(plan.jobs[i])) continue;
      ++one.jobs;
      const JobResult& job = result.jobs[i];
      moves += job.suspends + job.migrations;
      if (job.first_100_s >= 0) first.push_back(job.first_100_s);
      if (job.outcome == Outcome::kUnfinished) continue;
      jct.push_back(job.end_s);
      wait.push_back(job.end_s - job.ran_s);
    }
    if (one.jobs == 0) return;
    one.jct_s = spread_of(std::move(jct));
    one.wait_s = spread_of(std::move(wait));
    one.first_100_s = spread_of(std::move(first));
    one.moves = static_cast<double>(moves) / static_cast<double>(one.jobs);
    out.push_back(std::move(one));
  };
  summary("all", [](const JobSpec&) { return true; });
  for (size_t c = 0; c < std::size(kSizes); ++c) {
    summary(kSizes[c], [&](const JobSpec& job) { return size_class(job.gpus) == c; });
  }
  return out;
}

std::string show_runs(std::span<const Run> runs) {
  if (runs.empty()) return "";
  const Plan& first = runs.front().plan;
  std::string out = fmt::format(
      "simulated cluster {}: {} GPUs in {} nodes; {} jobs; seed {}\n"
      "simulated: suspend and resume by copies at the kind's rate, context {} s, network {} "
      "GB/s\n\n",
      first.cluster.text, first.cluster.gpus.size(), first.cluster.nodes, first.jobs.size(),
      first.seed, first.costs.context_s, first.costs.network_gb_per_s);
  out +=
      fmt::format("{:<11} {:>5} {:>6} {:>10} {:>10} {:>10} {:>10} {:>12} {:>6}\n", "policy", "GPUs",
                  "jobs", "JCT mean", "p50", "p99", "wait mean", "first 100 it", "moves");
  for (const Run& run : runs) {
    for (const Summary& one : summaries(run.plan, run.result)) {
      out += fmt::format("{:<11} {:>5} {:>6} {:>10} {:>10} {:>10} {:>10} {:>12} {:>6.1f}\n",
                         run.plan.policy.row->name, one.size, one.jobs, duration(one.jct_s.mean),
                         duration(one.jct_s.p50), duration(one.jct_s.p99),
                         duration(one.wait_s.mean), duration(one.first_100_s.mean), one.moves);
    }
  }
  out +=
      fmt::format("\n{:<11} {:>10} {:>6} {:>9} {:>7} {:>9} {:>8} {:>10} {:>6} {:>7} {:>6} {:>10}\n",
                  "policy", "makespan", "busy", "occupied", "moving", "suspends", "resumes",
                  "migrations", "packs", "resizes", "lost", "host most");
  for (const Run& run : runs) {
    const Result& r = run.result;
    out += fmt::format(
        "{:<11} {:>10} {:>5.1f}% {:>8.1f}% {:>6.2f}% {:>9} {:>8} {:>10} {:>6} {:>7} {:>6} {:>7.0f} "
        "GB\n",
        run.plan.policy.row->name, duration(r.makespan_s),
        100 * share(r.busy_gpu_s, gpu_time_s(run)), 100 * share(r.occupied_gpu_s, gpu_time_s(run)),
        100 * share(r.moving_gpu_s, gpu_time_s(run)), total(r, &JobResult::suspends),
        total(r, &JobResult::resumes), total(r, &JobResult::migrations),
        total(r, &JobResult::packs), total(r, &JobResult::resizes), total(r, &JobResult::losses),
        r.most_host_bytes / 1e9);
  }
  return out;
}

nlohmann::ordered_json runs_json(std::span<const Run> runs) {
  nlohmann::ordered_json out;
  out["simulated"] = true;
  if (runs.empty()) return out;
  const Plan& first = runs.front().plan;
  out["cluster"] = first.cluster.text;
  out["gpus"] = first.cluster.gpus.size();
  out["nodes"] = first.cluster.nodes;
  out["jobs"] = first.jobs.size();
  out["seed"] = first.seed;
  out["policies"] = nlohmann::ordered_json::array();
  for (const Run& run : runs) {
    const Result& r = run.result;
    nlohmann::ordered_json one;
    one["policy"] = run.plan.policy.text;
    one["makespan_s"] = r.makespan_s;
    one["busy"] = share(r.busy_gpu_s, gpu_time_s(run));
    one["occupied"] = share(r.occupied_gpu_s, gpu_time_s(run));
    one["moving"] = share(r.moving_gpu_s, gpu_time_s(run));
    one["moved_bytes"] = r.moved_bytes;
    one["most_host_bytes"] = r.most_host_bytes;
    one["suspends"] = total(r, &JobResult::suspends);
    one["resumes"] = total(r, &JobResult::resumes);
    one["migrations"] = total(r, &JobResult::migrations);
    one["packs"] = total(r, &JobResult::packs);
    one["resizes"] = total(r, &JobResult::resizes);
    one["losses"] = total(r, &JobResult::losses);
    one["steps"] = r.steps;
    one["decisions"] = r.decisions;
    if (r.aim_s >= 0) one["aim_s"] = r.aim_s;
    one["sizes"] = nlohmann::ordered_json::array();
    for (const Summary& size : summaries(run.plan, r)) {
      one["sizes"].push_back({{"gpus", size.size},
                              {"jobs", size.jobs},
                              {"jct_s", to_json(size.jct_s)},
                              {"wait_s", to_json(size.wait_s)},
                              {"first_100_s", to_json(size.first_100_s)},
                              {"moves", size.moves}});
    }
    out["policies"].push_back(std::move(one));
  }
  return out;
}

}  // namespace lull::simulate::cluster
