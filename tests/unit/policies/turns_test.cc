#include "policies/jobs/turns.h"

#include <catch2/catch.hpp>
#include <random>

#include "tests/seed.h"

namespace lull::jobs {
namespace {

constexpr uint64_t kGiB = 1ULL << 30;
constexpr Duration kSecond{1'000'000'000};

JobFacts job(uint64_t id, JobState state, uint64_t bytes, uint8_t priority = 5,
             Instant since = {0}) {
  JobFacts facts{.job = JobId{id},
                 .priority = {priority},
                 .state = state,
                 .takes_turns = true,
                 .movable = true,
                 .by_policy = state != JobState::kRunning,
                 .since = since};
  const bool there = state == JobState::kRunning || state == JobState::kStopping;
  facts.devices = {{.frees_bytes = there ? bytes : 0, .needs_bytes = there ? 0 : bytes}};
  return facts;
}
NodeFacts node(uint64_t free, std::vector<JobFacts> jobs) {
  return {.devices = {{.total_bytes = 80 * kGiB, .free_bytes = free}}, .jobs = std::move(jobs)};
}

struct Decided {
  std::vector<TurnDecision> decisions;
  Instant next = kNever;
};
Decided decide(const NodeFacts& facts, Instant now) {
  Decided decided;
  decided.next = Turns().step(now, facts, decided.decisions);
  return decided;
}
const TurnDecision kOutAtIteration = EndTurn{JobId{1}, Level::kOut, At::kIteration};

}  // namespace

TEST_CASE("as important ones take turns by the quantum, at an iteration") {
  const NodeFacts facts = node(
      20 * kGiB, {job(1, JobState::kRunning, 60 * kGiB), job(2, JobState::kSuspended, 60 * kGiB)});
  const Decided early = decide(facts, Instant{0} + kSecond);
  CHECK(early.decisions.empty());
  CHECK(early.next == Instant{0} + kQuantum);
  const Decided due = decide(facts, early.next);
  CHECK(due.decisions == std::vector<TurnDecision>{kOutAtIteration, BeginTurn{JobId{2}}});
}

TEST_CASE("an important one has its turn at once, a less important one none") {
  NodeFacts facts = node(20 * kGiB, {job(1, JobState::kRunning, 60 * kGiB, 7),
                                     job(2, JobState::kSuspended, 60 * kGiB, 2)});
  CHECK(decide(facts, Instant{1}).decisions ==
        std::vector<TurnDecision>{EndTurn{JobId{1}, Level::kOut, At::kNow}, BeginTurn{JobId{2}}});
  facts.jobs[0].priority = {2};
  facts.jobs[1].priority = {7};
  const Decided never = decide(facts, Instant{0} + kQuantum + kQuantum);
  CHECK(never.decisions.empty());
  CHECK(never.next == kNever);
}

TEST_CASE("an allocation that waits asks for a turn too") {
  NodeFacts facts = node(
      10 * kGiB, {job(1, JobState::kRunning, 40 * kGiB), job(2, JobState::kRunning, 20 * kGiB)});
  facts.jobs[1].devices[0].needs_bytes = 30 * kGiB;
  CHECK(decide(facts, Instant{0} + kQuantum).decisions ==
        std::vector<TurnDecision>{kOutAtIteration});
  facts.devices[0].free_bytes = 30 * kGiB;
  CHECK(decide(facts, Instant{0} + kQuantum).decisions.empty());
}

TEST_CASE("two that both wait for more do not both leave") {
  NodeFacts facts =
      node(0, {job(1, JobState::kRunning, 40 * kGiB), job(2, JobState::kRunning, 40 * kGiB)});
  facts.jobs[0].devices[0].needs_bytes = facts.jobs[1].devices[0].needs_bytes = 30 * kGiB;
  const Decided due = decide(facts, Instant{0} + kQuantum);
  CHECK(due.decisions == std::vector<TurnDecision>{EndTurn{JobId{2}, Level::kOut, At::kIteration}});
}

TEST_CASE("nobody leaves in vain, and nobody more than has to") {
  NodeFacts facts = node(10 * kGiB, {job(1, JobState::kRunning, 20 * kGiB, 5, Instant{5}),
                                     job(2, JobState::kRunning, 20 * kGiB, 5, Instant{1}),
                                     job(3, JobState::kSuspended, 60 * kGiB)});
  const Instant due = Instant{5} + kQuantum;
  CHECK(decide(facts, due).decisions.empty());
  facts.jobs[2].devices[0].needs_bytes = 30 * kGiB;
  // Who has run longest makes room.
  CHECK(decide(facts, due).decisions ==
        std::vector<TurnDecision>{EndTurn{JobId{2}, Level::kOut, At::kIteration}, BeginTurn{JobId{3}}});
  // Who is leaving already makes room for nobody else.
  facts.jobs[1].state = JobState::kLeaving;
  CHECK(decide(facts, due).decisions == std::vector<TurnDecision>{BeginTurn{JobId{3}}});
}

TEST_CASE("jobs that take no turns, are pinned, or that a person has suspended stay as they are") {
  NodeFacts facts = node(
      20 * kGiB, {job(1, JobState::kRunning, 60 * kGiB), job(2, JobState::kSuspended, 60 * kGiB)});
  const Instant due = Instant{0} + kQuantum;
  facts.jobs[0].movable = false;
  CHECK(decide(facts, due).decisions.empty());
  facts.jobs[0].movable = true;
  facts.jobs[0].takes_turns = false;
  CHECK(decide(facts, due).decisions.empty());
  facts.jobs[0].takes_turns = true;
  facts.jobs[1].by_policy = false;
  CHECK(decide(facts, due).decisions.empty());
}

TEST_CASE("what is free is given to who fits, by priority and age") {
  NodeFacts facts = node(50 * kGiB, {job(1, JobState::kSuspended, 40 * kGiB, 5, Instant{2}),
                                     job(2, JobState::kSuspended, 40 * kGiB, 5, Instant{1}),
                                     job(3, JobState::kSuspended, 10 * kGiB, 7, Instant{0})});
  CHECK(decide(facts, Instant{10}).decisions ==
        std::vector<TurnDecision>{BeginTurn{JobId{2}}, BeginTurn{JobId{3}}});
}

// Four jobs of which two fit: everybody has its turn, nothing is ever over the total.
TEST_CASE("in the long run everybody has its turn, and memory suffices at every step") {
  const uint64_t seed = tests::test_seed();
  INFO("seed " << seed);
  std::string logs[2];
  for (std::string& log : logs) {
    std::mt19937_64 random(seed);
    std::vector<JobFacts> jobs;
    std::vector<uint64_t> bytes, turns(4);
    for (uint64_t id = 1; id <= 4; ++id) {
      bytes.push_back((25 + random() % 15) * kGiB);
      jobs.push_back(
          job(id, JobState::kSuspended, bytes.back(), 5, Instant{static_cast<int64_t>(id)}));
    }
    Instant now{10};
    for (int step = 0; step < 3000; ++step) {
      uint64_t used = 0;
      for (const JobFacts& one : jobs) {
        const bool there = one.state != JobState::kSuspended && one.state != JobState::kWaiting;
        if (there) used += bytes[one.job.value - 1];
      }
      REQUIRE(used <= 80 * kGiB);
      const Decided decided = decide(node(80 * kGiB - used, jobs), now);
      for (const TurnDecision& decision : decided.decisions) {
        const auto* suspend = std::get_if<EndTurn>(&decision);
        const uint64_t id = suspend ? suspend->job.value : std::get<BeginTurn>(decision).job.value;
        log += (suspend ? "-" : "+") + std::to_string(id);
        JobFacts& one = jobs[id - 1];
        REQUIRE(one.state == (suspend ? JobState::kRunning : JobState::kSuspended));
        one = job(id, suspend ? JobState::kLeaving : JobState::kWaiting, bytes[id - 1], 5, now);
        if (suspend) one.devices[0].frees_bytes = bytes[id - 1];
      }
      for (JobFacts& one : jobs) {
        const uint64_t id = one.job.value;
        if (one.state == JobState::kLeaving && random() % 3 == 0) {
          used -= bytes[id - 1];
          one = job(id, JobState::kSuspended, bytes[id - 1], 5, now);
        } else if (one.state == JobState::kWaiting && used + bytes[id - 1] <= 80 * kGiB) {
          used += bytes[id - 1];
          turns[id - 1] += 1;
          one = job(id, JobState::kRunning, bytes[id - 1], 5, now);
        }
      }
      now = now + kSecond;
    }
    for (const uint64_t had : turns) CHECK(had >= 10);
  }
  CHECK(logs[0] == logs[1]);
}

}  // namespace lull::jobs
