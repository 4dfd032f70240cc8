// `lull simulate --replay` as a user starts it, on logs of a whole simulated node under each policy.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "coordinator/trace/decision_log.h"
#include "tests/simulate/made_workload.h"
#include "tools/simulate/node.h"

using namespace lull;
using namespace lull::simulate;
using namespace lull::simulate::test;

namespace {

struct Folder {
  Folder() {
    std::string pattern = "/tmp/lull-replay-XXXXXX";
    path = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  std::string path;
};

struct Said {
  int code = -1;
  std::string out, err;
};

Said lull_simulate(const Folder& folder, const std::string& words) {
  const std::string command = std::string(LULL_COMMAND) + " simulate " + words + " >" +
                              (folder / "out") + " 2>" + (folder / "err");
  const int status = std::system(command.c_str());
  const auto read = [](const std::string& path) {
    std::ifstream in(path);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  };
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(folder / "out"), read(folder / "err")};
}

void says_one_line(const Said& said, int code, const std::string& what) {
  INFO(said.err);
  CHECK(said.code == code);
  CHECK(said.err.starts_with("lull: simulate: "));
  CHECK(std::count(said.err.begin(), said.err.end(), '\n') == 1);
  CHECK(said.err.find(what) != std::string::npos);
}

// Two programs under one policy and then another, logged as the daemon logs its engine. `forge`
// changes what the log says of a step, after the engine has taken it.
using Forge = std::function<void(uint64_t step, std::vector<engine::Output>&)>;
uint64_t record(const std::string& path, const std::string& policy, const Forge& forge = {}) {
  auto log = trace::DecisionLogWriter::create(path, {"another", "test", 1});
  REQUIRE(log.has_value());
  NodeOptions options = free_markers();
  options.coordinator.policy = policy;
  options.jitter = Duration{20'000};
  log->begun({.policy = policy, .control_latency = options.coordinator.control_latency, .marker = {}});
  Node node(options);
  uint64_t steps = 0;
  node.coordinator().watch([&](Instant now, auto inputs, auto outputs) {
    std::vector<engine::Output> told(outputs.begin(), outputs.end());
    ++steps;
    if (forge) forge(steps, told);
    log->step(now, inputs, told);
  });
  const Script high = make_script(
      workload("high", {launch(0, 60'000, 50'000), launch(1, 90'000, 20'000), sync_stream()}, 40'000),
      options.profile);
  const Script low = make_script(
      workload("low", std::vector<play::Op>(20, launch(2, 30'000, 0, 2'000))), options.profile);
  ProgramPlan plan;
  plan.script = &low;
  plan.task = "low";
  plan.priority = Priority{7};
  node.start(plan);
  plan.script = &high;
  plan.task = "high";
  plan.priority = Priority{2};
  plan.bound = {5, 9};
  Program& h = node.start(plan);
  const auto run_for = [&](int64_t ms) {
    node.run([] { return false; }, node.now() + Duration{ms * 1'000'000});
  };
  run_for(10);  // under `exclusive` the later program does not get a turn at all
  node.coordinator().set_policy("priority in_flight_us=200", node.now());
  run_for(5);
  h.kill(node.now());
  run_for(1);
  REQUIRE(log->finish().has_value());
  return steps;
}

}  // namespace

TEST_CASE("a decision log replays to the same decisions under every policy") {
  Folder folder;
  for (const auto& row : policies::policy_rows()) {
    const std::string name(row.name);
    INFO(name);
    const uint64_t steps = record(folder / name, name);
    CHECK(steps > 100);
    const Said said = lull_simulate(folder, "--replay " + (folder / name));
    INFO(said.err);
    CHECK(said.code == 0);
    CHECK(said.err.empty());
    CHECK(said.out.starts_with("replayed " + std::to_string(steps) + " steps of 1 engine, "));
    CHECK(said.out.find("policy " + name + ", then priority in_flight_us=200\n") !=
          std::string::npos);
    CHECK(said.out.find("every step gave what the log says") != std::string::npos);
  }
}

TEST_CASE("the first decision that is not the log's is named, and the exit code is 1") {
  Folder folder;
  uint64_t forged = 0;
  record(folder / "log", "priority", [&](uint64_t step, std::vector<engine::Output>& outputs) {
    for (engine::Output& output : outputs) {
      auto* gate = std::get_if<engine::SetGate>(&output);
      if (step < 50 || forged != 0 || gate == nullptr || gate->gate != engine::Gate::kCredit) continue;
      gate->granted.ns += 2;
      forged = step;
    }
  });
  REQUIRE(forged != 0);
  const Said said = lull_simulate(folder, "--replay " + (folder / "log"));
  CHECK(said.out.starts_with("replayed "));
  says_one_line(said, 1, "step " + std::to_string(forged) + " at ");
  CHECK(said.err.find("credit") != std::string::npos);
  CHECK(said.err.find("(recorded by lull another, this is ") != std::string::npos);

  // Two outputs in the other order are a difference too, and so is one that is missing.
  for (const bool drop : {false, true}) {
    forged = 0;
    const std::string path = folder / (drop ? "dropped" : "swapped");
    record(path, "fikit", [&](uint64_t step, std::vector<engine::Output>& outputs) {
      if (forged != 0 || outputs.size() < 2) return;
      if (drop) outputs.pop_back();
      else std::swap(outputs[0], outputs[1]);
      forged = step;
    });
    REQUIRE(forged != 0);
    says_one_line(lull_simulate(folder, "--replay " + path), 1,
                  "step " + std::to_string(forged) + " at ");
  }
}

TEST_CASE("what is no whole decision log is one clear line") {
  Folder folder;
  says_one_line(lull_simulate(folder, "--replay " + (folder / "none")), 1, "none");
  std::ofstream(folder / "text") << "this is no log of any kind, only text";
  says_one_line(lull_simulate(folder, "--replay " + (folder / "text")), 1, "text");
  REQUIRE(trace::DecisionLogWriter::create(folder / "empty", {"x", "y", 1})->finish().has_value());
  says_one_line(lull_simulate(folder, "--replay " + (folder / "empty")), 1, "no step");
  record(folder / "log", "priority");
  const auto size = std::filesystem::file_size(folder / "log");
  // Corrupt in the middle.
  std::filesystem::copy(folder / "log", folder / "corrupt");
  {
    std::fstream file(folder / "corrupt", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(size / 2));
    file << "garbage";
  }
  says_one_line(lull_simulate(folder, "--replay " + (folder / "corrupt")), 1, "byte ");
  says_one_line(lull_simulate(folder, "--replay " + (folder / "log") + " --seed 3"), 2, "no other");
  says_one_line(lull_simulate(folder, "--low x"), 2, "--high");
}
