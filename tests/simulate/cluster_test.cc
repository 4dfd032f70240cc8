// The cluster simulator and the job policies in it. All simulated; nothing here measures time.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/seed.h"
#include "tools/simulate/cluster/cases.h"
#include "tools/simulate/cluster/generator.h"
#include "tools/simulate/cluster/job_file.h"
#include "tools/simulate/cluster/plot.h"
#include "tools/simulate/cluster/report.h"

using namespace lull;
using namespace lull::simulate::cluster;

namespace {

Plan small_plan(uint64_t seed, uint32_t jobs, const char* cluster = "3x4:h100,2x4:a100") {
  Plan plan;
  plan.seed = seed;
  plan.cluster = *parse_cluster(cluster);
  plan.jobs = make_cluster_jobs(seed, jobs, plan.cluster);
  for (JobSpec& job : plan.jobs) {  // hours become minutes
    job.iterations = std::max<uint64_t>(100, job.iterations / 60);
    job.arrival_s /= 60;
  }
  plan.node_mtbf_s = 6 * 3600;
  plan.gpu_mtbf_s = 12 * 3600;
  plan.node_repair_s = 600;
  return plan;
}

Run run(Plan plan, const std::string& policy) {
  plan.policy = *jobs::parse_job_policy(policy);
  Result result = simulate::cluster::simulate(plan);
  return {std::move(plan), std::move(result)};
}

double mean_jct(const Run& one) { return summaries(one.plan, one.result).front().jct_s.mean; }

}  // namespace

TEST_CASE("Random jobs, failures of nodes and every policy: no rule is broken and no job is lost") {
  const uint64_t first = lull::tests::test_seed();
  for (uint64_t seed = first; seed < first + 4; ++seed) {
    for (const auto& row : jobs::job_policy_rows()) {
      INFO("seed " << seed << ", " << row.name);
      const Run one = run(small_plan(seed, 80), std::string(row.name));
      CHECK(one.result.broken == "");
      for (const JobResult& job : one.result.jobs) CHECK(job.outcome != Outcome::kUnfinished);
    }
  }
}

TEST_CASE("The same plan gives the same bytes twice") {
  const uint64_t seed = lull::tests::test_seed();
  INFO("seed " << seed);
  std::string texts[2];
  for (std::string& text : texts) {
    Plan plan = small_plan(seed, 60);
    plan.keep_log = true;
    const Run one = run(std::move(plan), "gandiva");
    REQUIRE(one.result.log.size() > 60);
    for (const std::string& line : one.result.log) text += line + "\n";
    text += runs_json(std::span(&one, 1)).dump();
  }
  CHECK(texts[0] == texts[1]);
}

TEST_CASE("One job alone takes its own time and the start of its context") {
  Plan plan;
  plan.cluster = *parse_cluster("1x2:h100");
  JobSpec job;
  job.iterations = 1000;
  job.iteration_s = 0.5;
  job.memory_bytes = 10'000'000'000;
  plan.jobs = {job};
  for (const auto& row : jobs::job_policy_rows()) {
    const Run one = run(plan, std::string(row.name));
    INFO(row.name << " " << one.result.broken);
    CHECK(one.result.jobs[0].end_s == Approx(500 + plan.costs.context_s));
    CHECK(one.result.jobs[0].first_100_s == Approx(50 + plan.costs.context_s));
  }
}

TEST_CASE("Turns: two jobs on one GPU take twice their time and what their moves cost") {
  Plan plan;
  plan.cluster = *parse_cluster("1x1:h100");
  JobSpec job;
  job.iterations = 2000;
  job.iteration_s = 0.5;
  job.busy = 0.95;
  job.memory_bytes = 5'500'000'000;  // 0.1 s each way
  plan.jobs = {job, job};
  const Run one = run(plan, "time_slice quantum_s=60");
  REQUIRE(one.result.broken == "");
  const JobResult& first = one.result.jobs[0];
  CHECK(first.suspends > 5);
  const double moves = one.result.jobs[0].suspends + one.result.jobs[1].suspends;
  CHECK(one.result.makespan_s == Approx(2000 + 2 * 0.65 + moves * 0.85).margin(2));
  const std::vector<Summary> sizes = summaries(one.plan, one.result);
  REQUIRE(sizes.size() == 2);  // all, and those of one GPU
  CHECK(sizes[1].gpu_s == Approx(2000));  // 1000 s each
}

TEST_CASE("Six jobs on four GPUs: gandiva comes near the best static placement, turns do not") {
  double gandiva = 0, turns = 0;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const Plan plan = *plan_of_case("six", seed);
    const double best = best_static_sum(plan);
    const Run one = run(plan, "gandiva");
    const Run other = run(plan, "time_slice");
    REQUIRE(one.result.broken == "");
    CHECK(best >= 4);
    gandiva += measured_sum(one.plan, one.result) / best / 4;
    turns += measured_sum(other.plan, other.result) / best / 4;
  }
  CHECK(gandiva > 0.95);
  CHECK(turns < 0.8);
}

// Its jobs' best rates alone are seen late, since three of four load the switch of the first ones.
TEST_CASE("Six jobs of which four slow each other: the best arrangement is known when it was seen") {
  const Run one = run(*plan_of_case("six", 593708955961308578), "gandiva");
  REQUIRE(one.result.broken == "");
  CHECK(measured_sum(one.plan, one.result) > 0.97 * best_static_sum(one.plan));
}

TEST_CASE("A few jobs on a small cluster: gandiva is better than fifo and no worse than las") {
  const Plan plan = small_plan(3, 120);
  const Run fifo = run(plan, "fifo"), las = run(plan, "las threshold_gpu_s=960"), gandiva = run(plan, "gandiva");
  REQUIRE((fifo.result.broken + las.result.broken + gandiva.result.broken).empty());
  CHECK(mean_jct(gandiva) < mean_jct(fifo));
  CHECK(mean_jct(gandiva) < 1.05 * mean_jct(las));
}

TEST_CASE("A search ends with the first job that reaches the aim") {
  Plan plan = *plan_of_case("search", 5);
  const Run one = run(plan, "gandiva");
  REQUIRE(one.result.broken == "");
  CHECK(one.result.aim_s > 0);
  size_t stopped = 0;
  for (const JobResult& job : one.result.jobs) stopped += job.outcome == Outcome::kStopped;
  CHECK(stopped > 10);
}

TEST_CASE("A search: the good job is found sooner than under fifo, and no sooner than can be") {
  for (const char* name : {"search", "search-kill"}) {
    double fifo = 0, gandiva = 0;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      const Plan plan = *plan_of_case(name, seed);
      const Run first = run(plan, "fifo"), other = run(plan, "gandiva");
      REQUIRE(first.result.broken + other.result.broken == "");
      CHECK(blind_aim_s(plan) >= least_aim_s(plan));
      CHECK(other.result.aim_s > least_aim_s(plan));
      fifo += first.result.aim_s;
      gandiva += other.result.aim_s;
    }
    INFO(name << ": " << fifo / gandiva);
    CHECK(fifo > 2 * gandiva);
  }
  CHECK(plan_of_case("six-kill", 1).error() == "six is no search: only those have an owner");
}

TEST_CASE("A search whose owner prefers jobs runs those, and loses none that he prefers no more") {
  Plan plan = *plan_of_case("search-any", 11);
  plan.keep_log = true;
  const Run one = run(std::move(plan), "gandiva");
  REQUIRE(one.result.broken == "");
  const auto said = [&](const char* what) {
    return std::ranges::any_of(one.result.log, [&](const std::string& line) {
      return line.find(what) != std::string::npos;
    });
  };
  CHECK(said("is more important"));
  CHECK(said("of the same search"));
}

TEST_CASE("Clusters are read from their text") {
  const auto cluster = parse_cluster("2x4:h100,1x8:a100");
  REQUIRE(cluster);
  CHECK(cluster->gpus.size() == 16);
  CHECK(cluster->nodes == 3);
  CHECK(cluster->capacity() == 12);
  CHECK(cluster->gpus[15].socket == 1);
  CHECK_FALSE(parse_cluster("").has_value());
  CHECK(parse_cluster("4:h100").error().find("NODESxGPUS:KIND") != std::string::npos);
  CHECK(parse_cluster("1x4:k80").error().find("one of h100, a100, l4") != std::string::npos);
}

TEST_CASE("Jobs from our own JSON") {
  const auto jobs = parse_jobs(R"({"jobs": [{"name": "b", "arrival_s": 5, "gpus": 2, "iterations": 10, "memory_gb": 3},
                                            {"iterations": 7, "priority": 2}]})",
                               TraceFormat::kOwn, 1);
  REQUIRE(jobs);
  CHECK(jobs->jobs.at(0).priority.level == 2);
  CHECK(jobs->jobs.at(1).name == "b");
  CHECK(jobs->jobs.at(1).memory_bytes == 3'000'000'000);
  CHECK(parse_jobs("[]", TraceFormat::kOwn, 1).error() == "a file of jobs is {\"jobs\": [{...}, ...]}");
  CHECK(parse_jobs(R"({"jobs": [{"gpus": 0, "iterations": 1}]})", TraceFormat::kOwn, 1).error() == "job 0: gpus: 1 to 4096");
  CHECK(parse_jobs(R"({"jobs": [{"gpu": 1}]})", TraceFormat::kOwn, 1).error() == "job 0: gpu: there is no such key");
}

TEST_CASE("Jobs from a Philly log: all attempts' time, the last attempt's GPUs") {
  const auto jobs = parse_jobs(R"([{"status": "Failed", "vc": "v", "jobid": "application_1_2", "submitted_time": "2017-10-07 01:00:00", "user": "u",
    "attempts": [{"start_time": "2017-10-07 01:10:00", "end_time": "2017-10-07 01:20:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]},
                 {"start_time": "2017-10-07 01:30:00", "end_time": "2017-10-07 02:30:00", "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]},
                 {"start_time": null, "end_time": null, "detail": []}]},
    {"status": "Pass", "jobid": "none", "submitted_time": "2017-10-07 00:00:00", "attempts": []}])", TraceFormat::kPhilly, 1);
  REQUIRE(jobs);
  REQUIRE(jobs->jobs.size() == 1);
  CHECK(jobs->jobs.front().gpus == 2);
  CHECK(jobs->jobs.front().fails_at == 0.5);
  CHECK(jobs->jobs.front().alone_s() * 0.5 == Approx(4200).epsilon(0.01));
  CHECK(jobs->jobs.front().arrival_s == 0);
}

TEST_CASE("Jobs from a Helios log go by its column names") {
  const auto jobs = parse_jobs(
      "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
      "7,u,v,0,8,1,COMPLETED,2020-06-09 18:00:00,2020-06-09 18:00:00,2020-06-09 19:00:00,3600,0\n"
      "8,u,v,4,16,1,COMPLETED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 19:41:27,3600,0\n"
      "9,u,v,1,4,1,FAILED,2020-06-09 18:41:57,2020-06-09 18:42:00,2020-06-09 18:52:00,600,3\n",
      TraceFormat::kHelios, 1);
  REQUIRE(jobs);
  REQUIRE(jobs->jobs.size() == 2);
  CHECK(jobs->jobs.at(0).gpus == 4);
  CHECK(jobs->jobs.at(1).arrival_s == 30);
  CHECK(parse_jobs("a,b\n1,2\n", TraceFormat::kHelios, 1).error() == "a Helios cluster_log.csv has a column job_id");
}

TEST_CASE("Jobs from a PAI task table: tasks of a job together, parts of a GPU as a whole one") {
  const auto jobs = parse_jobs(
      "a,ps,1.0,Terminated,1000.0,4600.0,600.0,29.3,,\n"
      "a,worker,2.0,Terminated,1000.0,4600.0,600.0,29.3,50.0,T4\n"
      "b,tensorflow,1.0,Terminated,1500.0,2500.0,600.0,29.3,200.0,MISC\n",
      TraceFormat::kPai, 1);
  REQUIRE(jobs);
  REQUIRE(jobs->jobs.size() == 2);
  CHECK(jobs->jobs.at(0).gpus == 2);
  CHECK(jobs->jobs.at(1).gpus == 2);
  CHECK(jobs->jobs.at(1).arrival_s == 500);
  CHECK(jobs->left_out.text() == "1 of the trace are left out: 1 without a GPU");
  CHECK(parse_jobs("a,b\n", TraceFormat::kPai, 1).error() ==
        "there is no job with a GPU in it: 1 of the trace are left out: 1 that cannot be read (the "
        "first: line 1: 2 "
        "columns and not 10)");
}

TEST_CASE("The page and the table say that they are simulated") {
  Plan plan = small_plan(1, 10);
  plan.keep_lanes = true;
  const Run one = run(std::move(plan), "gandiva");
  const std::string html = runs_html(std::span(&one, 1));
  CHECK(html.find("<h1>Simulated cluster</h1>") != std::string::npos);
  CHECK(html.find("polyline") != std::string::npos);
  CHECK(html.find("<rect") != std::string::npos);
  CHECK(show_runs(std::span(&one, 1)).starts_with("simulated cluster"));
  CHECK(verdict(std::span(&one, 1)).starts_with("Simulated: a job takes "));
  CHECK(runs_json(std::span(&one, 1))["simulated"] == true);
}

TEST_CASE("A job that no node could ever hold is told before the run") {
  const auto cluster = *parse_cluster("2x4:h100");
  JobSpec job;
  job.gpus = 8;
  CHECK(why_never(cluster, job).empty());
  job.gpus = 9;
  CHECK_FALSE(why_never(cluster, job).empty());
  job.gpus = 1;
  job.memory_bytes = 100'000'000'000;
  CHECK_FALSE(why_never(cluster, job).empty());
}

TEST_CASE("What of a trace is no job is counted and said") {
  const auto pai = parse_jobs(
      "a,worker,1.0,Terminated,1000.0,4600.0,600.0,29.3,100.0,T4\n"
      "b,ps,1.0,Terminated,1000.0,4600.0,600.0,29.3,,\n"
      "c,worker,1.0,Running,1000.0,,600.0,29.3,100.0,T4\n"
      "d,worker,1.0,Terminated,10e,4600.0,600.0,29.3,100.0,T4\n"
      "e,worker\n",
      TraceFormat::kPai, 1);
  REQUIRE(pai);
  CHECK(pai->jobs.size() == 1);
  CHECK(pai->left_out.text() ==
        "4 of the trace are left out: 1 without a GPU, 1 that never ran or had not ended, 2 that "
        "cannot be read (the "
        "first: line 4: inst_num, start_time, end_time or plan_gpu is none)");
  const auto helios = parse_jobs(
      "job_id,gpu_num,state,submit_time,duration\n"
      "1,1,COMPLETED,2020-06-09 18:41:27,3600\n"
      "2,0,COMPLETED,2020-06-09 18:41:27,3600\n"
      "3,1,CANCELLED,2020-06-09 18:41:27,0\n"
      "4,1,COMPLETED,yesterday,3600\n",
      TraceFormat::kHelios, 1);
  REQUIRE(helios);
  CHECK(helios->jobs.size() == 1);
  CHECK(helios->left_out.without_gpu == 1);
  CHECK(helios->left_out.not_run == 1);
  CHECK(helios->left_out.first == "line 5: gpu_num, duration or submit_time is none");
  const auto philly = parse_jobs(R"([3, {"jobid": "x", "submitted_time": null, "attempts": []},
    {"jobid": "y", "submitted_time": "2017-10-07 01:00:00", "attempts": []},
    {"jobid": "z", "submitted_time": "2017-10-07 01:00:00",
     "attempts": [{"start_time": "2017-10-07 01:10:00", "end_time": "2017-10-07 01:20:00", "detail": [{"gpus": ["gpu0"]}]}]}])",
                                 TraceFormat::kPhilly, 1);
  REQUIRE(philly);
  CHECK(philly->jobs.size() == 1);
  CHECK(philly->left_out.not_run == 1);
  CHECK(philly->left_out.unreadable == 2);
  CHECK(philly->left_out.first == "job 1: it is no JSON object");
}
