// The job policy at work on a small node.
#include <catch2/catch.hpp>

#include "job_node.h"

namespace lull::scheduling {
namespace {

// Jobs 1 and 2, by turns of two seconds.
void take_turns_on_gpu_0(Node& node) {
  int ran[3] = {};
  for (int n = 0; n < 400; ++n) {
    node.look();
    for (uint64_t id : {1, 2}) {
      ran[id] += node.runs(id) ? 1 : 0;
      CHECK(node.gpu(id) == 0);
    }
  }
  CHECK(ran[1] > 150);
  CHECK(ran[2] > 150);
  CHECK(ran[1] + ran[2] <= 404);
}

}  // namespace

TEST_CASE("job scheduler: a job that finds its GPU taken goes to a free one") {
  Node node("fifo");
  node.job(1, 0);
  node.look(4);
  CHECK(node.runs(1));
  CHECK(node.gpu(1) == 0);
  node.job(2, 0);
  node.look(6);
  CHECK(node.runs(1));
  CHECK(node.gpu(1) == 0);
  CHECK(node.runs(2));
  CHECK(node.gpu(2) == 1);
  CHECK(node.scheduler.last_decision(JobId{2}).find("job 2") != std::string::npos);
  // No more is asked of jobs that are where they shall be.
  const size_t before = node.orders_taken;
  node.look(50);
  CHECK(node.orders_taken == before);
}

TEST_CASE("job scheduler: one that finds no GPU waits until there is one") {
  Node node("fifo", 1);
  node.job(1, 0);
  node.look(4);
  node.job(2, 0);
  node.look(6);
  CHECK(node.runs(1));
  CHECK(node.facts(2).state == JobState::kSuspended);
  node.end(1);
  node.look(4);
  CHECK(node.runs(2));
}

TEST_CASE("job scheduler: a more important job has a GPU at once, and never both at a time") {
  Node node("time_slice quantum_s=60", 1);
  node.job(1, 0, 7);
  node.look(4);
  REQUIRE(node.runs(1));
  node.job(2, 0, 2);
  for (int n = 0; n < 10; ++n) {
    node.look();
    // Once it has been told to wait it runs only where the other one does not.
    if (n > 2) CHECK_FALSE((node.runs(1) && node.runs(2)));
  }
  CHECK(node.runs(2));
  CHECK(node.facts(1).state == JobState::kSuspended);
  node.end(2);
  node.look(4);
  CHECK(node.runs(1));
}

TEST_CASE("job scheduler: turns") {
  Node node("time_slice quantum_s=2", 1);
  node.job(1, 0);
  node.look(4);
  node.job(2, 0);
  take_turns_on_gpu_0(node);
}

TEST_CASE("job scheduler: a job that cannot be moved stays, and the others are placed around it") {
  Node node("gandiva quantum_s=2");
  node.job(1, 0);
  node.facts(1).movable = node.facts(1).migratable = false;
  node.look(4);
  node.job(2, 0);
  node.look(6);
  CHECK(node.runs(1));
  CHECK(node.gpu(1) == 0);
  CHECK(node.runs(2));
  CHECK(node.gpu(2) == 1);
}

TEST_CASE("job scheduler: jobs that cannot change their GPU take turns on it") {
  Node node("time_slice quantum_s=2");
  for (uint64_t id : {1, 2}) {
    node.job(id, 0);
    node.facts(id).migratable = false;
  }
  take_turns_on_gpu_0(node);
}

TEST_CASE("job scheduler: an order that comes to nothing is not given again and again") {
  Node node("fifo", 1);
  node.job(1, 0);
  node.look(4);
  SECTION("moves objects") { node.objects = true; }
  SECTION("the job comes back") { node.refuses = {JobId{2}}; }
  node.job(2, 0);
  node.look(3);
  const size_t taken = node.orders_taken;
  node.look(400);
  CHECK(node.orders_taken == taken);
  CHECK(node.runs(2));
  // Later it is tried again.
  node.objects = false;
  node.refuses.clear();
  node.look(300);
  CHECK(node.facts(2).state == JobState::kSuspended);
}

TEST_CASE("job scheduler: a person moves a job that has just refused to be moved") {
  Node node("gandiva quantum_s=2");
  for (uint64_t id : {1, 2}) node.job(id, id == 1 ? 0 : 1, 3);
  node.look(4);
  node.job(3, 0);
  node.look(4);
  REQUIRE(node.facts(3).state == JobState::kSuspended);
  node.objects = true;  // to its resumption on GPU 0
  node.end(1);
  node.look(4);
  REQUIRE(node.facts(3).state == JobState::kSuspended);
  node.end(2);
  JobFacts& job = node.facts(3);
  job.suspends = job.by_policy = false;
  job.state = JobState::kWaiting;
  job.devices.front().device = DeviceId{1};
  node.commands.push_back(
      {.job = JobId{3}, .order = jobs::Command::Order::kMigrate, .to = {DeviceId{1}}});
  node.look(4);
  CHECK(node.runs(3));
  // The policy knows where it is: others have the other GPU.
  node.objects = false;
  node.job(4, 1);
  node.look(10);
  CHECK(node.runs(3));
  CHECK(node.gpu(3) == 1);
  CHECK(node.runs(4));
  CHECK(node.gpu(4) == 0);
}

TEST_CASE("job scheduler: what a person suspends stays so, what is pinned stays there") {
  Node node("time_slice quantum_s=2", 1);
  node.job(1, 0);
  node.look(4);
  node.facts(1).suspends = true;
  node.facts(1).state = JobState::kSuspended;
  node.commands.push_back({.job = JobId{1}, .order = jobs::Command::Order::kSuspend});
  node.look(100);
  CHECK(node.facts(1).state == JobState::kSuspended);
  CHECK_FALSE(node.facts(1).by_policy);
  node.facts(1).suspends = false;
  node.facts(1).state = JobState::kRunning;
  node.commands.push_back({.job = JobId{1}, .order = jobs::Command::Order::kResume});
  node.look(20);
  CHECK(node.runs(1));
  node.facts(1).pinned = true;
  node.facts(1).movable = false;
  node.commands.push_back({.job = JobId{1}, .order = jobs::Command::Order::kPin});
  node.look(4);
  node.job(2, 0);
  node.look(200);
  CHECK(node.runs(1));
  CHECK(node.facts(2).state == JobState::kSuspended);
}

TEST_CASE(
    "job scheduler: packs are tried, kept where they are good and undone where they are not") {
  Node node("gandiva quantum_s=2", 1);
  for (uint64_t id : {1, 2}) node.rates[JobId{id}] = {0, 10};
  node.job(1, 0);
  node.look(60);
  node.job(2, 0);
  double factor = 1;
  SECTION("good") { factor = 0.9; }
  SECTION("bad") { factor = 0.3; }
  int together = 0, of = 0;
  for (int n = 0; n < 1200; ++n) {
    const bool both = node.runs(1) && node.runs(2);
    for (uint64_t id : {1, 2}) node.rates[JobId{id}].second = both ? 10 * factor : 10;
    node.look();
    if (n < 600) continue;
    ++of;
    together += both ? 1 : 0;
  }
  if (factor > 0.5) {
    CHECK(together > of * 9 / 10);
  } else {
    CHECK(together < of / 10);
  }
}

TEST_CASE("job scheduler: an elastic job takes idle GPUs and gives them back") {
  Node node("gandiva quantum_s=2 grow_after_s=1", 4);
  node.elastic(1, 1, 1, 4);
  node.look(60);
  CHECK(node.facts(1).devices.size() == 4);
  node.job(2, 3);
  node.look(20);
  CHECK(node.runs(2));
  CHECK(node.gpu(2) == 3);
  CHECK(node.facts(1).devices.size() == 3);
  // A person's number is the most that it gets.
  node.view.natures.front().most_gpus = 2;
  node.view.natures.front().told_gpus = 2;
  node.commands.push_back({.job = JobId{1}, .order = jobs::Command::Order::kResize, .gpus = 2});
  node.look(20);
  CHECK(node.facts(1).devices.size() == 2);
  node.end(2);
  node.look(60);
  CHECK(node.facts(1).devices.size() == 2);
}

TEST_CASE(
    "job scheduler: an elastic job whose launcher does not follow keeps its GPUs for a while") {
  Node node("gandiva quantum_s=2 grow_after_s=1", 2);
  node.elastic(1, 2, 1, 2);
  node.look(10);
  node.follows = false;
  node.job(2, 1);
  node.look(700);
  CHECK(node.view.natures.front().told_gpus == 1);
  CHECK(node.facts(1).devices.size() == 2);
  CHECK(node.scheduler.why_not_running(JobId{2}) == "");
  node.follows = true;
  node.look(1300);
  CHECK(node.runs(2));
  CHECK(node.facts(1).devices.size() == 1);
}

TEST_CASE("job scheduler: a policy that sizes no jobs leaves elastic ones as they are") {
  Node node("fifo", 4);
  node.elastic(1, 2, 1, 4);
  node.job(2, 3);
  node.look(100);
  CHECK(node.facts(1).devices.size() == 2);
  CHECK(node.runs(2));
}

TEST_CASE("job scheduler: one that waits since it arrived says so") {
  Node node("fifo", 1);
  node.job(1, 0);
  node.look(4);
  CHECK(node.scheduler.why_not_running(JobId{1}) == "");
  node.job(2, 0);
  node.look(6);
  CHECK(node.scheduler.last_decision(JobId{2}) == "");
  CHECK(node.scheduler.why_not_running(JobId{2}) ==
        "has arrived, and the policy has given it no GPU yet");
}

TEST_CASE(
    "job scheduler: a job that becomes more important has its GPU, and is not profiled anew") {
  Node node("gandiva quantum_s=60", 1);
  for (uint64_t id : {1, 2}) {
    node.rates[JobId{id}] = {0, 10};
    node.job(id, 0);
    node.look(4);
  }
  REQUIRE(node.runs(1));
  node.facts(2).priority = Priority{2};
  node.look(5);
  CHECK(node.runs(2));
  CHECK(node.facts(1).state == JobState::kSuspended);
  CHECK(node.scheduler.last_decision(JobId{1}).find("job 2 is more important") !=
        std::string::npos);
  node.facts(2).priority = Priority{7};
  node.look(5);
  CHECK(node.runs(1));
}

TEST_CASE("job scheduler: a job that cannot be moved comes where one with more GPUs is") {
  Node node("gandiva quantum_s=2", 2);
  node.job(1, 0);
  node.facts(1).devices.push_back(
      {.device = DeviceId{1}, .used_bytes = 10 * kGiB, .frees_bytes = 10 * kGiB});
  node.look(6);
  REQUIRE(node.runs(1));
  node.job(2, 1);
  node.facts(2).movable = node.facts(2).migratable = false;
  node.look(20);
  CHECK(node.runs(2));
  CHECK(node.facts(1).state == JobState::kSuspended);
  node.end(2);
  node.look(20);
  CHECK(node.runs(1));
}

TEST_CASE("job scheduler: ending it lets everybody go on") {
  Node node("fifo", 1);
  node.job(1, 0);
  node.look(4);
  node.job(2, 0);
  node.look(6);
  CHECK(node.scheduler.let_go(node.view.facts) == std::vector<JobOrder>{ResumeJob{JobId{2}}});
}

}  // namespace lull::scheduling
