#include "policies/jobs/decision_check.h"

#include <catch2/catch.hpp>

#include "policies/jobs/registry.h"

using namespace lull;
using namespace lull::jobs;
using Catch::Matchers::Contains;

namespace {

constexpr uint64_t kGb = 1'000'000'000;

std::vector<Event> node(uint32_t gpus, uint64_t memory_bytes = 80 * kGb) {
  std::vector<Event> out;
  for (uint32_t i = 0; i < gpus; ++i) {
    out.push_back(DeviceAppeared{Gpu{.device = DeviceId{i}, .memory_bytes = memory_bytes}});
  }
  return out;
}

Event arrived(uint64_t job, uint32_t gpus = 1, uint8_t level = 5, uint64_t memory_bytes = 10 * kGb) {
  JobRequest request;
  request.job = JobId{job};
  request.gpus = gpus;
  request.priority = Priority{level};
  request.memory_bytes = memory_bytes;
  return JobArrived{request};
}

GpuSet on(std::initializer_list<uint32_t> gpus) {
  GpuSet out;
  for (const uint32_t gpu : gpus) out.push_back(DeviceId{gpu});
  return out;
}

std::string broken(DecisionCheck& check, std::vector<Event> events, std::vector<Decision> decisions) {
  return check.step(events, decisions).value_or("");
}

}  // namespace

TEST_CASE("A job is placed once, on GPUs that are there and as many as it asked for") {
  DecisionCheck check(false);
  std::vector<Event> events = node(2);
  events.push_back(arrived(1));
  events.push_back(arrived(2));
  REQUIRE(broken(check, events, {{Place{JobId{1}, on({0})}}}).empty());
  CHECK_THAT(broken(check, {}, {{Place{JobId{1}, on({1})}}}), Contains("not in a state"));
  CHECK_THAT(broken(check, {}, {{Place{JobId{2}, on({0})}}}), Contains("job 1 runs on GPU 0"));
  CHECK_THAT(broken(check, {}, {{Place{JobId{2}, on({7})}}}), Contains("is not there"));
  CHECK_THAT(broken(check, {}, {{Place{JobId{2}, on({0, 1})}}}), Contains("given 2 GPUs and asked for 1"));
  CHECK_THAT(broken(check, {}, {{Place{JobId{3}, on({1})}}}), Contains("there is no job 3"));
  CHECK(broken(check, {}, {{Place{JobId{2}, on({1})}}}).empty());
}

TEST_CASE("A pack needs the same GPUs, the same importance, and memory that is known and enough") {
  DecisionCheck check(false);
  std::vector<Event> events = node(2);
  events.push_back(arrived(1, 1, 5, 50 * kGb));
  events.push_back(arrived(2, 1, 5, 40 * kGb));
  events.push_back(arrived(3, 1, 2));
  events.push_back(arrived(4, 1, 5, 0));
  events.push_back(arrived(5));
  REQUIRE(broken(check, events, {{Place{JobId{3}, on({1})}}, {Place{JobId{1}, on({0})}}}).empty());
  CHECK_THAT(broken(check, {}, {{Pack{JobId{5}, on({1})}}}), Contains("another importance"));
  CHECK(broken(check, {}, {{Pack{JobId{5}, on({0})}}}).empty());
  CHECK_THAT(broken(check, {}, {{Pack{JobId{4}, on({0})}}}), Contains("not known"));
  DecisionCheck other(false);
  std::vector<Event> again = node(2);
  again.push_back(arrived(1, 1, 5, 50 * kGb));
  again.push_back(arrived(2, 1, 5, 40 * kGb));
  REQUIRE(broken(other, again, {{Place{JobId{1}, on({0})}}}).empty());
  CHECK_THAT(broken(other, {}, {{Pack{JobId{2}, on({1})}}}), Contains("where nobody runs"));
  CHECK_THAT(broken(other, {}, {{Pack{JobId{2}, on({0})}}}), Contains("its jobs need"));
}

TEST_CASE("Memory that grows past a shared GPU's own is seen") {
  DecisionCheck check(false);
  std::vector<Event> events = node(1);
  events.push_back(arrived(1, 1, 5, 30 * kGb));
  events.push_back(arrived(2, 1, 5, 30 * kGb));
  REQUIRE(broken(check, events, {{Place{JobId{1}, on({0})}}, {Pack{JobId{2}, on({0})}}}).empty());
  CHECK_THAT(broken(check, {MemoryInUse{JobId{2}, 60 * kGb}}, {}), Contains("its jobs need"));
}

TEST_CASE("Importance does not yield under a policy that preempts") {
  DecisionCheck check(true);
  std::vector<Event> events = node(1);
  events.push_back(arrived(1, 1, 7));
  REQUIRE(broken(check, events, {{Place{JobId{1}, on({0})}}}).empty());
  CHECK_THAT(broken(check, {arrived(2, 1, 2)}, {}), Contains("job 2 waits"));
  CHECK(broken(check, {}, {{Suspend{JobId{1}}}, {Place{JobId{2}, on({0})}}}).empty());
  CHECK_THAT(broken(check, {}, {{Suspend{JobId{2}}}, {Resume{JobId{1}, on({0})}}}), Contains("job 2 waits"));
}

TEST_CASE("Without preemption nothing starts where a more important job waits for the GPUs") {
  DecisionCheck check(false);
  std::vector<Event> events = node(1);
  events.push_back(arrived(1, 1, 7));
  events.push_back(arrived(2, 1, 2));
  CHECK_THAT(broken(check, events, {{Place{JobId{1}, on({0})}}}), Contains("more important job 2"));
}

TEST_CASE("What the operator suspends stays so, what it pins stays where it is") {
  DecisionCheck check(true);
  std::vector<Event> events = node(2);
  events.push_back(arrived(1));
  REQUIRE(broken(check, events, {{Place{JobId{1}, on({0})}}}).empty());
  Command command;
  command.job = JobId{1};
  command.order = Command::Order::kPin;
  CHECK_THAT(broken(check, {command}, {{Migrate{JobId{1}, on({1})}}}), Contains("pinned"));
  command.order = Command::Order::kSuspend;
  CHECK(broken(check, {command}, {{Suspend{JobId{1}}}}).empty());
  CHECK_THAT(broken(check, {}, {{Resume{JobId{1}, on({0})}}}), Contains("operator has suspended it"));
}

TEST_CASE("A job policy's text is normalised, and a wrong one says what would be right") {
  CHECK(parse_job_policy("fifo")->text == "fifo skip=0");
  CHECK(parse_job_policy("time_slice quantum_s=30")->text == "time_slice quantum_s=30");
  CHECK_THAT(parse_job_policy("best").error(), Contains("one of static, fifo, time_slice, las, gandiva"));
  CHECK_THAT(parse_job_policy("las quantum_s=1").error(), Contains("it has threshold_gpu_s=57600"));
  for (const JobPolicyRow& row : job_policy_rows()) {
    CHECK(row.make(parse_job_policy(row.name)->values) != nullptr);
  }
}
