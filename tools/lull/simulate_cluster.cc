// `lull simulate cluster`: job policies on a simulated cluster (tools/simulate/cluster).
#include "tools/lull/simulate_cluster.h"

#include <algorithm>
#include <chrono>
#include <fstream>

#include "policies/jobs/registry.h"
#include "tools/lull/command.h"
#include "tools/lull/json_output.h"
#include "tools/lull/output_width.h"
#include "tools/measure/values.h"
#include "tools/simulate/cluster/cases.h"
#include "tools/simulate/cluster/generator.h"
#include "tools/simulate/cluster/job_file.h"
#include "tools/simulate/cluster/plot.h"
#include "tools/simulate/cluster/report.h"

namespace lull::command {
namespace {

namespace sim = simulate::cluster;

struct ClusterWords {
  std::string nodes = "13x4:h100,12x4:a100";
  std::string name, jobs, philly, helios, pai, html;
  std::vector<std::string> policies;
  uint64_t seed = 1, generate = 0, limit = 0;
  double network_gb_per_s = 12.5, report_s = 15, mtbf_days = 0, gpu_mtbf_days = 0;
  JsonOutput json;
  bool log = false, speed = false, free_moves = false;
};

std::string description() {
  std::string text =
      "Simulates jobs on a cluster of nodes under job policies, and prints how long they took, waited "
      "and moved. Everything it says is simulated.\n"
      "Jobs come from a file, a public trace, a seed (--generate) or a case; policies are\n";
  for (const jobs::JobPolicyRow& row : jobs::job_policy_rows()) {
    const auto choice = jobs::parse_job_policy(row.name);
    text += fmt::format("  {}: {}\n", choice->text, row.what);
  }
  text += "Exit codes: 0 done, 1 failed (a policy broke a rule, too), 2 wrong usage.";
  return text;
}

void add_options(CommandLine& line, ClusterWords& w) {
  line.option("--nodes", w.nodes,
              "NODESxGPUS:KIND,... of the kinds h100, a100, l4 (default: 13x4:h100,12x4:a100)");
  line.option("--jobs", w.jobs, "jobs from FILE, JSON of ours").value_name("FILE");
  line.option("--philly", w.philly, "jobs from a Philly cluster_job_log").value_name("FILE");
  line.option("--helios", w.helios, "jobs from a Helios cluster_log.csv").value_name("FILE");
  line.option("--pai", w.pai, "jobs from an Alibaba PAI pai_task_table.csv").value_name("FILE");
  line.option("--limit", w.limit, "of a trace: the first so many jobs");
  line.option("--generate", w.generate, "so many jobs made from the seed").range(1, 1'000'000);
  line.option("--case", w.name, fmt::format("nodes and jobs of a case: {}", sim::kCases));
  line.option("--policy", w.policies,
              "a job policy with its options; may be repeated (default: all)")
      .repeated();
  line.option("--seed", w.seed, "seed of all that is random (1)");
  line.option("--report-s", w.report_s, "policies are told of iterations so often (15)")
      .range(1.0, 3600.0);
  line.option("--network-gb-per-s", w.network_gb_per_s, "of each node (12.5)")
      .range(0.01, 10'000.0);
  line.option("--node-mtbf-days", w.mtbf_days, "a node fails so often; 0: never (0)")
      .range(0.0, 1e6);
  line.option("--gpu-mtbf-days", w.gpu_mtbf_days, "a GPU fails by itself so often; 0: never (0)")
      .range(0.0, 1e6);
  line.flag("--free-moves", w.free_moves, "suspend, resume and migrate cost nothing");
  line.flag("--log", w.log, "print every decision with its reason first");
  line.flag("--speed", w.speed, "say on stderr how long it took");
  line.option("--html", w.html, "write a page with plots into FILE").value_name("FILE");
  w.json.add_to(line, /*after_blank=*/true);
}

std::expected<sim::Plan, std::string> plan_of(const ClusterWords& w) {
  if (!w.name.empty()) return sim::plan_of_case(w.name, w.seed);
  sim::Plan plan;
  plan.seed = w.seed;
  auto cluster = sim::parse_cluster(w.nodes);
  if (!cluster) return std::unexpected("--nodes: " + cluster.error());
  plan.cluster = std::move(*cluster);
  if (w.generate > 0) {
    plan.jobs = sim::make_cluster_jobs(w.seed, static_cast<uint32_t>(w.generate), plan.cluster);
  } else {
    const auto [file, format] =
        !w.jobs.empty()     ? std::pair{w.jobs, sim::TraceFormat::kOwn}
        : !w.philly.empty() ? std::pair{w.philly, sim::TraceFormat::kPhilly}
        : !w.helios.empty() ? std::pair{w.helios, sim::TraceFormat::kHelios}
                            : std::pair{w.pai, sim::TraceFormat::kPai};
    auto jobs = sim::read_jobs(file, format, w.seed, w.limit);
    if (!jobs) return std::unexpected(jobs.error());
    plan.jobs = std::move(jobs->jobs);
    if (jobs->left_out.all() > 0)
      complain("simulate cluster: " + file + ": " + jobs->left_out.text());
  }
  plan.report_s = w.report_s;
  plan.node_mtbf_s = w.mtbf_days * 86'400;
  plan.gpu_mtbf_s = w.gpu_mtbf_days * 86'400;
  plan.costs.network_gb_per_s = w.network_gb_per_s;
  for (const sim::JobSpec& job : plan.jobs) {
    const std::string why = sim::why_never(plan.cluster, job);
    if (!why.empty()) return std::unexpected(fmt::format("job {}: {}", job.name, why));
  }
  return plan;
}

}  // namespace

void describe_simulate_cluster(CommandLine& simulate) {
  static ClusterWords unused;
  add_options(
      simulate.command("cluster", "job policies on a cluster of nodes: who lives on which GPU"),
      unused);
}

int simulate_cluster_main(const Words& words) {
  ClusterWords w;
  CommandLine line(description(), "lull simulate cluster");
  add_options(line, w);
  if (const auto code = parse_words(line, words)) return *code;
  const int sources = !w.name.empty() + !w.jobs.empty() + !w.philly.empty() + !w.helios.empty() +
                      !w.pai.empty() + (w.generate > 0);
  if (sources != 1) {
    complain("simulate cluster: give one of --jobs, --philly, --helios, --pai, --generate, --case");
    return kUsage;
  }
  if (w.policies.empty()) {
    for (const jobs::JobPolicyRow& row : jobs::job_policy_rows()) w.policies.emplace_back(row.name);
  }
  std::vector<jobs::JobPolicyChoice> choices;
  for (const std::string& text : w.policies) {
    const auto choice = jobs::parse_job_policy(text);
    if (!choice) {
      complain("simulate cluster: --policy: " + choice.error());
      return kUsage;
    }
    choices.push_back(*choice);
  }
  const auto plan = plan_of(w);
  if (!plan) {
    complain("simulate cluster: " + plan.error());
    return kFailed;
  }
  std::vector<sim::Run> runs;
  for (const jobs::JobPolicyChoice& choice : choices) {
    sim::Plan one = *plan;
    one.policy = choice;
    one.keep_log = w.log;
    one.keep_lanes = !w.html.empty();
    if (w.free_moves) one.costs = {.context_s = 0, .network_gb_per_s = 1e9, .resize_s = 0, .free_copies = true};
    const auto begun = std::chrono::steady_clock::now();
    sim::Result result = sim::simulate(one);
    const double took =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    for (const std::string& entry : result.log) fmt::print("{} {}\n", choice.row->name, entry);
    if (w.speed) {
      fmt::print(stderr, "lull: simulate cluster: {}: {:.2f} s, {} steps, {} decisions\n", choice.text,
                 took, result.steps, result.decisions);
    }
    if (!result.broken.empty()) {
      complain(fmt::format("simulate cluster: {}: broke a rule: {}", choice.text, result.broken));
      return kFailed;
    }
    runs.push_back({std::move(one), std::move(result)});
  }
  if (!w.html.empty()) {
    std::ofstream out(w.html, std::ios::binary);
    if (!(out << sim::runs_html(runs)).flush()) {
      complain(fmt::format("simulate cluster: --html: {} cannot be written", w.html));
      return kFailed;
    }
  }
  auto json = sim::runs_json(runs);
  std::vector<std::string> lines;  // below the tables
  for (size_t i = 0; i < runs.size(); ++i) {
    const sim::Plan& one = runs[i].plan;
    const sim::Result& result = runs[i].result;
    if (w.name.starts_with("six")) {
      const double best = sim::best_static_sum(one), made = sim::measured_sum(one, result);
      json["policies"][i]["sum_of_rates"] = made;
      json["policies"][i]["best_static_sum"] = best;
      lines.push_back(
          fmt::format("simulated, {}: jobs made {:.3f} of their rates alone together; the best "
                      "static placement {:.3f}: {}",
                      one.policy.row->name, made, best, show_share(made / best)));
    }
    if (const double least = sim::least_aim_s(one); one.stop_bad && least > 0) {
      json["policies"][i]["least_aim_s"] = least;
      json["policies"][i]["blind_aim_s"] = sim::blind_aim_s(one);
    }
    if (result.aim_s >= 0) {
      lines.push_back(
          fmt::format("simulated, {}: the first good job reached the aim after {:.0f} s",
                      one.policy.row->name, result.aim_s));
    }
  }
  if (!w.json.replaces_text()) {
    const size_t width = output_width();
    lines.push_back(sim::verdict(runs));
    fmt::print("{}\n", sim::show_runs(runs, width));
    for (const std::string& one : lines) fmt::print("{}\n", wrapped(one, width, 2));
  }
  return w.json.write("simulate", json) ? kDone : kFailed;
}

}  // namespace lull::command
