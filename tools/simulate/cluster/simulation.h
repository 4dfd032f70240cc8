// The deterministic simulator of a cluster under a job policy: job_policy.h's events and decisions
// around a queue of events. One thread; the same plan gives the same result, byte by byte.
//
// Jobs progress at a rate (speed_model.h) that changes only when somebody starts or stops on or
// beside their GPUs: no event an iteration. Each `report_s` the policy is told what each running
// job did since, with noise, and how busy its GPUs were. Every step's decisions go through the
// decision check (policies/jobs/decision_check.h) before they are carried out: a broken rule ends
// the run.
//
//   queued --Place--> entering --> running --Suspend--> leaving --> out --Resume--> entering
//
// A move: `leaving` copies the memory out; `entering` waits until the memory of those who left its
// GPUs is out, carries the job's own over the network if it lies in another node, restores the
// context, and copies the memory in. Elastic jobs restart their workers to change their size.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "policies/jobs/registry.h"
#include "tools/simulate/cluster/cluster_spec.h"
#include "tools/simulate/cluster/job_spec.h"

namespace lull::simulate::cluster {

struct MoveCosts {
  double context_s = 0.65;  // measured: checkpoint and restore of a context (design, section 7)
  double network_gb_per_s = 12.5;  // assumed: 100 Gb/s a node
  double resize_s = 10;            // assumed: workers restart from the job's own checkpoint
  bool free_copies = false;        // copies take no time: to see what moves cost
};

struct Plan {
  ClusterSpec cluster;
  JobSpecs jobs;
  jobs::JobPolicyChoice policy;
  uint64_t seed = 1;
  MoveCosts costs;
  double report_s = 15;
  double noise = 0.02;     // measured iterations are off by up to this share
  double node_mtbf_s = 0;  // a node fails so often; 0: never
  double gpu_mtbf_s = 0;   // one GPU fails so often, by itself; 0: never
  double node_repair_s = 3600;  // and is back after so long, as a GPU
  double stop_s = 0;          // end here, whatever is left; 0: when all jobs have ended
  double measure_from_s = 0;  // JobResult::measured_iterations counts from here
  bool stop_bad = false;    // of a search: the rule below ends bad jobs, and the first good one all
  bool prefer_best = false;  // and the owner gives promising ones more importance
  bool keep_log = false;    // Result::log
  bool keep_lanes = false;  // Result::lanes
};

// A search's rule. A job's score at the share p of its iterations is quality * (1 - e^-4p) / (1 -
// e^-4), give or take 0.02. At each tenth of its iterations it is stopped if its score is below the
// median of all that were seen there, at least kSearchPeers of them. The aim: a score of
// kSearchAim.
// With `prefer_best` a job has kPreferredPriority while its last score, gone on with along the
// curve, would reach the aim in the end. HyperDrive tells promising configurations from others by a
// model of their curves, too (Rasley et al., Middleware'17, abstract).
inline constexpr double kSearchAim = 0.85;
inline constexpr size_t kSearchPeers = 3;
double search_curve(double quality, double share);  // the score without the 0.02
double search_score(const Plan& plan, size_t job, uint32_t tenth);
// Below the median of those that were seen at a tenth: `seen`, its own is among them.
bool search_stops(std::vector<double> seen, double score);
bool search_prefers(double score, uint32_t tenth);

enum class Outcome : uint8_t { kUnfinished, kFinished, kFailed, kStopped };

struct JobResult {
  Outcome outcome = Outcome::kUnfinished;
  double first_run_s = -1;  // since its arrival, as all of these; negative: never
  double first_100_s = -1;  // 100 iterations were done
  double end_s = -1;
  double ran_s = 0;  // time in which it ran
  uint32_t suspends = 0, resumes = 0, migrations = 0, packs = 0, resizes = 0, losses = 0;
  double measured_iterations = 0;  // from Plan::measure_from_s on
};

// What a GPU did from when to when, for the plot.
struct Span {
  DeviceId device;
  double begin_s = 0, end_s = 0;
  uint32_t jobs = 0;  // that ran there
  size_t job = 0;     // the first of them
};
// How many of what there were, over time.
struct Sample {
  double at_s = 0;
  uint32_t running = 0, waiting = 0;
  double busy = 0;  // of all GPUs
};

struct Result {
  std::string broken;  // the rule that was broken; empty: none
  std::vector<JobResult> jobs;
  double makespan_s = 0;
  double busy_gpu_s = 0;      // GPUs did something
  double occupied_gpu_s = 0;  // somebody had them
  double moving_gpu_s = 0;    // lost to moves
  double moved_bytes = 0;
  double most_host_bytes = 0;  // of suspended jobs, in one node, at once
  uint64_t steps = 0, decisions = 0, events = 0;
  double aim_s = -1;  // of a search: when the first job reached the aim
  std::vector<std::string> log;
  std::vector<Span> lanes;
  std::vector<Sample> samples;
};

Result simulate(const Plan& plan);

// Why a job could never run there; empty: it could.
std::string why_never(const ClusterSpec& cluster, const JobSpec& job);

}  // namespace lull::simulate::cluster
