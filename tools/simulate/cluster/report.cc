#include "tools/simulate/cluster/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tools/measure/values.h"

namespace lull::simulate::cluster {
namespace {

using command::TextTable;

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
      one.gpu_s += job.ran_s * plan.jobs[i].gpus;
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

std::string show_runs(std::span<const Run> runs, size_t width) {
  if (runs.empty()) return "";
  const Plan& first = runs.front().plan;
  const std::string about =
      fmt::format("simulated cluster {}: {} GPUs in {} nodes; {} jobs; seed {}", first.cluster.text,
                  first.cluster.gpus.size(), first.cluster.nodes, first.jobs.size(), first.seed);
  const std::string costs = fmt::format(
      "simulated: suspend and resume by copies at the kind's rate, context {} s, network {} GB/s",
      first.costs.context_s, first.costs.network_gb_per_s);
  TextTable sizes({TextTable::name_column("policy"),
                   TextTable::key_column("GPUs"),
                   {"jobs"},
                   {"GPU time"},
                   {"JCT mean"},
                   {"p50"},
                   {"p99"},
                   {"wait mean"},
                   {"first 100 it"},
                   {"moves"}},
                  /*indent=*/0);
  TextTable whole({TextTable::name_column("policy"),
                   {"makespan"},
                   {"busy"},
                   {"occupied"},
                   {"moving"},
                   {"suspends"},
                   {"resumes"},
                   {"migrations"},
                   {"packs"},
                   {"resizes"},
                   {"lost"},
                   {"host most"}},
                  /*indent=*/0);
  for (const Run& run : runs) {
    const std::string policy(run.plan.policy.row->name);
    for (const Summary& one : summaries(run.plan, run.result)) {
      sizes.add({policy, one.size, fmt::format("{}", one.jobs), duration(one.gpu_s),
                 duration(one.jct_s.mean), duration(one.jct_s.p50), duration(one.jct_s.p99),
                 duration(one.wait_s.mean), duration(one.first_100_s.mean),
                 fmt::format("{:.1f}", one.moves)});
    }
    const Result& r = run.result;
    const auto part = [&](double gpu_s) {
      return command::show_share(share(gpu_s, gpu_time_s(run)));
    };
    const auto count = [&](uint32_t JobResult::*what) { return fmt::format("{}", total(r, what)); };
    whole.add({policy, duration(r.makespan_s), part(r.busy_gpu_s), part(r.occupied_gpu_s),
               part(r.moving_gpu_s), count(&JobResult::suspends), count(&JobResult::resumes),
               count(&JobResult::migrations), count(&JobResult::packs), count(&JobResult::resizes),
               count(&JobResult::losses), fmt::format("{:.0f} GB", r.most_host_bytes / 1e9)});
  }
  return command::wrapped(about, width) + '\n' + command::wrapped(costs, width) + "\n\n" +
         sizes.text(width) + '\n' + whole.text(width);
}

std::string verdict(std::span<const Run> runs) {
  struct Took {
    std::string_view policy;
    double jct_s;
  };
  std::vector<Took> outcomes;
  size_t unfinished = 0;
  for (const Run& run : runs) {
    const Summary all = summaries(run.plan, run.result).front();
    unfinished += all.jobs - all.jct_s.count;
    if (all.jct_s.count > 0) outcomes.push_back({run.plan.policy.row->name, all.jct_s.mean});
  }
  if (outcomes.empty()) return "Simulated: no job ended.";
  const auto by_jct = [](const Took& a, const Took& b) { return a.jct_s < b.jct_s; };
  const Took best = *std::min_element(outcomes.begin(), outcomes.end(), by_jct);
  const Took worst = *std::max_element(outcomes.begin(), outcomes.end(), by_jct);
  std::string text = fmt::format("Simulated: a job takes {} in the mean under {}",
                                 duration(best.jct_s), best.policy);
  if (outcomes.size() > 1) {
    text += fmt::format(", the least of {} policies; the most under {}, {}", outcomes.size(),
                        worst.policy, duration(worst.jct_s));
  }
  if (unfinished > 0) text += fmt::format("; {} jobs did not end", unfinished);
  return text + ".";
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
                              {"gpu_s", size.gpu_s},
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
