// What `guarded` promises, on small workloads whose figures can be foreseen; a serial device but
// where another is named.
#include <catch2/catch.hpp>

#include <memory>

#include "tests/simulate/made_workload.h"
#include "tools/simulate/experiment.h"

using namespace lull;
using namespace lull::simulate;
using namespace lull::simulate::test;

namespace {

// 330 us of which the device works 150.
play::Workload request() {
  return workload("high", {launch(0, 100'000, 100'000), sync_stream(), launch(1, 50'000, 80'000)},
                  30'000);
}
// The device works 150 us of 165, in one stretch: the host is ahead.
play::Workload busy_request() {
  std::vector<play::Op> ops(10, launch(0, 15'000, 0, 2'000));
  return workload("high", std::move(ops), 15'000);
}
// 10 ms of work in ten launches, of one kernel or of as many, and 1 ms until the next request.
play::Workload ten_launches(bool equal) {
  std::vector<play::Op> ops;
  for (uint32_t n = 0; n < 10; ++n) ops.push_back(launch(equal ? 0 : 10 + n, 1'000'000, 0, 2'000));
  return workload("high", std::move(ops), 1'000'000);
}
// Six steps of the same launches that take from 5.5 to 8 ms, one after the other; after each the host reads
// something back and prepares the next. 43 ms in all.
play::Workload six_steps() {
  std::vector<play::Op> ops;
  for (const double length : {1.0, 1.3, 1.05, 0.9, 0.95, 1.1}) {
    for (uint32_t n = 0; n < 60; ++n) {
      const double kernel_ns = 120e3 * length * (0.5 + n * 19 % 100 / 100.0);
      ops.push_back(launch((n * n + n / 7) % 53, static_cast<uint64_t>(kernel_ns), 0, 2'000));
    }
    ops.push_back(sync_stream());
    for (uint32_t n = 0; n < 6; ++n) ops.push_back(launch(53 + n % 5, 20'000, 50'000, 2'000));
  }
  return workload("high", std::move(ops), 100'000);
}
// Three steps of the same launches, in the last of which the host pauses for long: 5.6 ms, of which the
// device works 2.4.
play::Workload third_step_pauses() {
  std::vector<play::Op> ops;
  for (const uint64_t pause_ns : {200'000, 200'000, 3'000'000}) {
    for (uint32_t n = 0; n < 10; ++n) ops.push_back(launch(10 + n, 40'000, 0, 2'000));
    for (uint32_t n = 0; n < 10; ++n) {
      ops.push_back(launch(20 + n, 40'000, n == 0 ? pause_ns : 0, 2'000));
    }
    ops.push_back(sync_stream());
  }
  return workload("high", std::move(ops), 20'000);
}
// 10 ms of work in forty launches behind a copy of 20 MB, that the first of them waits for.
play::Workload request_with_copy() {
  std::vector<play::Op> ops{{.kind = play::OpKind::CopyToDevice, .bytes = 20'000'000}};
  for (uint32_t n = 0; n < 40; ++n) ops.push_back(launch(10 + n, 250'000, 0, 2'000));
  ops.push_back(sync_stream());
  return workload("high", std::move(ops), 100'000);
}
// Kernels of `kernel_ns`, one after the other.
play::Workload filler(uint64_t kernel_ns, const std::string& name = "low") {
  return workload(name, std::vector<play::Op>(100, launch(2, kernel_ns, 0, 2'000)));
}

TaskSpec task(const play::Workload& workload, uint8_t level, const NodeOptions& node) {
  TaskSpec spec;
  spec.script = make_script(workload, node.profile);
  spec.task = workload.name;
  spec.priority = Priority{level};
  return spec;
}

ExperimentPlan beside(uint64_t low_ns, uint64_t iterations = 3000,
                      const play::Workload& high = request()) {
  ExperimentPlan plan;
  plan.node = free_markers();
  plan.high = task(high, 2, plan.node);
  plan.lows.push_back(task(filler(low_ns), 7, plan.node));
  plan.iterations = iterations;
  plan.oracle = false;
  return plan;
}

PolicyResult under(const std::string& policy, ExperimentPlan plan) {
  plan.policies = {policy};
  auto result = run_experiment(plan);
  REQUIRE(result.has_value());
  PolicyResult& one = result->policies[0];
  std::string low;
  for (const double work : one.low_work) low += " " + std::to_string(work);
  UNSCOPED_INFO(policy << ", load " << plan.load << ", low kernels of "
                       << plan.lows[0].script.kernel_ns / plan.lows[0].script.launches
                       << " ns: high " << one.high.slowdown_mean << ", p99 "
                       << one.high.slowdown_p99 << ", low" << low);
  return std::move(one);
}

double mean_ns(const std::vector<Service>& services, size_t from = 0, size_t to = SIZE_MAX) {
  to = std::min(to, services.size());
  REQUIRE(from < to);
  int64_t sum = 0;
  for (size_t i = from; i < to; ++i) sum += (services[i].ended - services[i].began).ns;
  return static_cast<double>(sum) / static_cast<double>(to - from);
}

// What an iteration takes alone with all kernels `factor` times as long.
double own_ns(const TaskSpec& spec, double factor) {
  Node node(free_markers());
  ProgramPlan plan;
  plan.script = &spec.script;
  plan.iterations = 20;
  plan.drift_from = 0;
  plan.drift = factor;
  Program& program = node.start(plan);
  REQUIRE(node.run([&] { return program.ended(); }));
  return mean_ns(program.services());
}

// Tasks side by side on one node, each of any level.
class Stage {
 public:
  explicit Stage(const std::string& policy) {
    options_.coordinator.policy = policy;
    node_ = std::make_unique<Node>(options_);
  }
  Program& start(const play::Workload& workload, uint8_t level) {
    specs_.push_back(std::make_unique<TaskSpec>(task(workload, level, options_)));
    ProgramPlan plan;
    plan.script = &specs_.back()->script;
    plan.task = workload.name;
    plan.priority = Priority{level};
    plan.seed = specs_.size();
    return node_->start(plan);
  }
  // For so many iterations of `program`.
  void run(const Program& program, size_t iterations) {
    const size_t until = program.services().size() + iterations;
    REQUIRE(node_->run([&] { return program.services().size() >= until; }));
  }
  Node& node() { return *node_; }

 private:
  NodeOptions options_ = free_markers();
  std::vector<std::unique_ptr<TaskSpec>> specs_;
  std::unique_ptr<Node> node_;
};

}  // namespace

TEST_CASE("guarded keeps its bound in the mean, and fills") {
  for (const uint64_t low_ns : {5'000, 20'000, 60'000, 1'000'000, 6'000'000}) {
    const PolicyResult result = under("guarded", beside(low_ns));
    CHECK(result.high.slowdown_mean < 1.03);
    CHECK(result.low_work[0] > 0.01);
  }
}

TEST_CASE("guarded keeps its bound with requests that arrive at random") {
  for (const double load : {0.3, 0.7}) {
    for (const uint64_t low_ns : {5'000, 60'000, 1'000'000}) {
      ExperimentPlan plan = beside(low_ns);
      plan.load = load;
      const PolicyResult result = under("guarded", plan);
      CHECK(result.high.slowdown_mean < 1.03);
      CHECK(result.low_work[0] > 0.003);  // 1 ms kernels at 0.3: 0.0037
    }
  }
}

// The iteration begins with the second launch, the pause before the first being irregular, so that the
// time until the next request lies inside it: no allowance is earned by it.
// What a unit of 1 ms may cost in the mean is not there when the host goes away; that it costs anything in a
// pause of 64 ms in the mean is unlikely.
TEST_CASE("guarded fills pauses between random requests, however little it has saved") {
  for (const auto sharing : {simgpu::Sharing::kSerial, simgpu::Sharing::kMps}) {
    ExperimentPlan plan = beside(1'000'000, 1000, six_steps());
    plan.node.sharing = sharing;
    plan.load = 0.4;
    plan.longest = Duration{1'000'000'000'000};
    const PolicyResult result = under("guarded", plan);
    REQUIRE(result.high.p99_counts);
    CHECK(result.high.slowdown_mean < 1.03);
    CHECK(result.high.slowdown_p99 < 1.05);
    CHECK(result.low_work[0] > 0.28);
  }
}
// 1 ms and 2 ms fit into the pause of one step of three; the mean of all three would leave them none.
TEST_CASE("guarded fills a pause that comes by turns") {
  for (const uint64_t low_ns : {1'000'000, 2'000'000}) {
    const PolicyResult result = under("guarded", beside(low_ns, 1000, third_step_pauses()));
    CHECK(result.high.slowdown_mean < 1.03);
    CHECK(result.high.slowdown_p99 < 1.05);
    CHECK(result.low_work[0] > 0.25);
  }
}

TEST_CASE("guarded earns nothing while it waits for a request") {
  const std::pair<double, uint64_t> cases[] = {{0.3, 20'000}, {0.7, 20'000}, {0.3, 6'000'000}};
  for (const auto& [load, low_ns] : cases) {
    ExperimentPlan plan = beside(low_ns);
    plan.load = load;
    CHECK(under("guarded", plan).high.slowdown_mean < 1.03);
  }
}

TEST_CASE("guarded keeps its bound at p99") {
  for (const uint64_t low_ns : {5'000, 20'000, 60'000, 1'000'000, 6'000'000}) {
    const PolicyResult result = under("guarded", beside(low_ns));
    REQUIRE(result.high.p99_counts);
    CHECK(result.high.slowdown_p99 < 1.05);
  }
}

// Low kernels beside requests, over 1,000 of them.
struct Beside {
  simgpu::Sharing sharing;
  double load;
  uint64_t low_ns;
};
void keeps_bound(const play::Workload& high, std::initializer_list<Beside> cases, double p99 = 1.05) {
  for (const Beside& one : cases) {
    ExperimentPlan plan = beside(one.low_ns, 1000, high);
    plan.node.sharing = one.sharing;
    plan.load = one.load;
    UNSCOPED_INFO("sharing " << static_cast<uint32_t>(one.sharing));
    const PolicyResult result = under("guarded", plan);
    CHECK(result.high.slowdown_mean < 1.03);
    CHECK(result.high.slowdown_p99 < p99);
  }
}

// One in a hundred may exceed p99: what fills it must not delay the next.
TEST_CASE("guarded keeps its bound beside units that are over p99 by themselves, however they share") {
  using simgpu::Sharing;
  keeps_bound(ten_launches(/*equal=*/false), {{Sharing::kTimeSlice, 0, 1'000'000},
                                              {Sharing::kMps, 0, 1'000'000},
                                              {Sharing::kSerial, 0, 1'000'000},
                                              {Sharing::kSerial, 0.7, 1'000'000}});
}

// In each of them something is let go that should just fit.
TEST_CASE("guarded keeps its bound where what is spent costs a little more than foretold") {
  keeps_bound(ten_launches(/*equal=*/false), {{simgpu::Sharing::kMps, 0, 100'000}});
}

// Of these one launch is detected as the iteration; what the bound is about is what the host waits for.
TEST_CASE("guarded keeps its bound for requests of equal launches") {
  const auto equal = ten_launches(/*equal=*/true);
  for (const double load : {0.0, 0.3}) {
    for (const uint64_t low_ns : {100'000, 1'000'000, 6'000'000}) {
      ExperimentPlan plan = beside(low_ns, 1000, equal);
      plan.load = load;
      const PolicyResult result = under("guarded", plan);
      CHECK(result.high.slowdown_mean < 1.03);
      CHECK(result.high.slowdown_p99 < 1.05);
      CHECK(result.low_work[0] > (low_ns == 100'000 ? 0.1 : 0.0015));
    }
  }
}

// What waits miss of others' cost is not made up for by comparing. Two units and two changes of hands
// are 5.04 % of such a request, and are seen as a little less than 5: p99 is exceeded by that.
TEST_CASE("guarded all but keeps its bound for requests of equal launches in time slices") {
  using simgpu::Sharing;
  keeps_bound(ten_launches(/*equal=*/true),
              {{Sharing::kTimeSlice, 0.3, 100'000}, {Sharing::kTimeSlice, 0.7, 100'000}}, 1.051);
}

// Without MPS a device takes longer to change hands than a request may lose.
TEST_CASE("guarded keeps its bound where the device takes long to change hands") {
  using simgpu::Sharing;
  REQUIRE(NodeOptions{}.profile.switch_ns > 100'000);
  keeps_bound(ten_launches(/*equal=*/false), {{Sharing::kTimeSlice, 0.3, 400'000},
                                              {Sharing::kTimeSlice, 0.7, 400'000},
                                              {Sharing::kTimeSlice, 0.7, 5'000}});
}

// A copy hides the change of hands from the important task. Its own work never shows what that costs, and
// what is not known makes requests be over, so that little goes.
TEST_CASE("guarded learns what a change of hands costs from the low task") {
  for (const uint64_t seed : {1, 2, 3}) {
    ExperimentPlan plan = beside(60'000, 600, request_with_copy());
    plan.node.sharing = simgpu::Sharing::kTimeSlice;
    plan.load = 0.3;
    plan.seed = seed;
    const PolicyResult result = under("guarded", plan);
    CHECK(result.high.slowdown_p99 < 1.05);
    CHECK(result.low_work[0] > 0.5);
  }
}

TEST_CASE("guarded keeps its bound beside units as long as a change of hands") {
  using simgpu::Sharing;
  keeps_bound(ten_launches(/*equal=*/false),
              {{Sharing::kTimeSlice, 0.3, 100'000}, {Sharing::kTimeSlice, 0.7, 100'000}});
}

TEST_CASE("guarded keeps a bound of half a percent, and the low task pays") {
  for (const uint64_t low_ns : {5'000, 20'000, 60'000}) {
    const PolicyResult tight = under("guarded mean_per_mille=5 p99_per_mille=10", beside(low_ns));
    CHECK(tight.high.slowdown_mean < 1.005);
    CHECK(tight.low_work[0] > 0);
    // Of 20 us and more, one in front of a launch is over p99 under both: but for their phases the same.
    CHECK(tight.low_work[0] < 1.02 * under("guarded", beside(low_ns)).low_work[0]);
  }
}

// Where `other` keeps the bound, guarded gives the low task so much of what `other` gives.
void gives_as_much(const std::string& other, double share, const play::Workload& high,
                   std::initializer_list<uint64_t> lows) {
  int kept = 0;
  for (const uint64_t low_ns : lows) {
    const PolicyResult there = under(other, beside(low_ns, 1000, high));
    if (there.high.slowdown_mean > 1.03 || there.high.slowdown_p99 > 1.05) continue;
    ++kept;
    CHECK(under("guarded", beside(low_ns, 1000, high)).low_work[0] >= share * there.low_work[0]);
  }
  CHECK(kept > 0);
}

TEST_CASE("guarded gives what priority gives where priority keeps the bound") {
  gives_as_much("priority", 0.97, request(), {1'000, 5'000, 20'000});
  // Which part of a pause of 80 or 100 us is left when a credit of 2 us kernels is used up.
  gives_as_much("priority", 0.92, request(), {2'000});
}

TEST_CASE("guarded gives what fikit gives where fikit keeps the bound") {
  gives_as_much("fikit", 0.995, request(), {2'000, 5'000});
  gives_as_much("fikit", 0.995, busy_request(), {2'000, 5'000, 20'000, 60'000});
}

// Long kernels that leave room on the device, as collectives do, beside requests at random. What they
// cost is learnt: by their length they would exceed what a request may lose.
TEST_CASE("guarded lets narrow kernels run where kernels run together, however long they are") {
  const auto high = ten_launches(/*equal=*/false);
  const auto with = [&](uint32_t blocks) {
    play::Workload low = filler(6'000'000);
    low.kernels[2].grid = {blocks, 1, 1};
    ExperimentPlan plan = beside(0, 1000, high);
    plan.node.sharing = simgpu::Sharing::kMps;
    plan.load = 0.3;
    plan.lows = {task(low, 7, plan.node)};
    return plan;
  };
  // Which requests are kept undisturbed is drawn by lot, and so is how long the pauses before them are.
  constexpr uint64_t kSeeds = 8;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    ExperimentPlan plan = with(24);
    plan.seed = seed;
    const PolicyResult narrow = under("guarded", plan);
    CAPTURE(seed);
    CHECK(narrow.high.slowdown_p99 < 1.05);
    CHECK(narrow.low_work[0] > 0.99);
  }
  const PolicyResult wide = under("guarded", with(1024));
  CHECK(wide.high.slowdown_mean < 1.03);
  CHECK(wide.high.slowdown_p99 < 1.05);
  CHECK(wide.low_work[0] > 0.01);
}

// fikit fills each pause with as many as fit. guarded leaves in each as much as it takes to react,
// and a unit that is late by that is over p99 here, so that what it may lose in the mean is not spent.
TEST_CASE("guarded gives what fikit gives where a few units fit in each pause", "[!shouldfail]") {
  gives_as_much("fikit", 0.995, request(), {20'000, 60'000});
}

// 10 ms of which the device works 4. Let go by name, each long kernel would leave the device idle for
// as long as the coordinator takes.
TEST_CASE("guarded fills a long pause without a break, however long the kernels") {
  const auto high = workload("high", {launch(0, 4'000'000, 0), sync_stream()}, 6'000'000);
  std::vector<play::Op> ops;
  for (int n = 0; n < 100; ++n) ops.push_back(launch(n % 10 == 0 ? 1 : 2, n % 10 == 0 ? 120'000 : 10'000, 0, 2'000));
  ExperimentPlan plan = beside(0, 300, high);
  plan.lows = {task(workload("low", std::move(ops)), 7, plan.node)};
  const PolicyResult result = under("guarded mean_per_mille=2 p99_per_mille=5", plan);
  CHECK(result.high.slowdown_mean < 1.002);
  CHECK(result.low_work[0] > 0.57);  // of 0.6; the last long unit before the launch does not fit
}

TEST_CASE("guarded keeps its bound with slow control and late hosts") {
  for (const double load : {0.0, 0.5}) {
    for (const uint64_t low_ns : {5'000, 20'000, 60'000}) {
      ExperimentPlan plan = beside(low_ns);
      plan.load = load;
      plan.node.coordinator.control_latency = Duration{100'000};
      plan.node.jitter = Duration{50'000};
      const PolicyResult result = under("guarded", plan);
      CHECK(result.high.slowdown_mean < 1.03);
      CHECK(result.low_work[0] > 0);
    }
  }
}

TEST_CASE("guarded keeps its bound from the tenth iteration after all kernels have changed") {
  for (const double drift : {3.0, 1 / 3.0}) {
    for (const uint64_t low_ns : {5'000, 20'000, 60'000}) {
      ExperimentPlan plan = beside(low_ns);
      plan.drift_after = 300;
      plan.drift = drift;
      for (const uint64_t until : {600, 3000}) {
        plan.iterations = until;
        const PolicyResult result = under("guarded", plan);
        UNSCOPED_INFO("kernels " << drift << " times as long, until " << until);
        CHECK(mean_ns(result.services, plan.drift_after + 10) < 1.03 * own_ns(plan.high, drift));
      }
    }
  }
}

TEST_CASE("guarded lets several low tasks share, and none starves") {
  ExperimentPlan plan = beside(5'000);
  plan.lows.push_back(task(filler(20'000, "second"), 7, plan.node));
  plan.lows.push_back(task(filler(60'000, "third"), 7, plan.node));
  const PolicyResult result = under("guarded max_hold_ms=0", plan);
  CHECK(result.high.slowdown_mean < 1.03);
  for (const double work : result.low_work) CHECK(work > 0.02);
}

TEST_CASE("guarded keeps the bound of two important tasks above two others") {
  const auto second = workload("second", {launch(3, 20'000, 150'000), sync_stream()}, 500'000);
  Stage quiet("guarded max_hold_ms=0");
  Program& first_undisturbed = quiet.start(request(), 0);
  Program& second_undisturbed = quiet.start(second, 2);
  quiet.run(first_undisturbed, 2000);
  Stage stage("guarded max_hold_ms=0");
  Program& first = stage.start(request(), 0);
  Program& its_second = stage.start(second, 2);
  Program& low = stage.start(filler(5'000), 7);
  Program& lowest = stage.start(filler(20'000, "lowest"), 9);
  stage.run(first, 1000);
  const uint64_t low_before = low.completions(), lowest_before = lowest.completions();
  stage.run(first, 1000);
  CHECK(mean_ns(first.services(), 100) < 1.03 * 330'000);
  CHECK(mean_ns(its_second.services(), 100) <
        1.03 * mean_ns(second_undisturbed.services(), 100));
  CHECK(low.completions() > low_before + 5'000);
  CHECK(lowest.completions() > lowest_before + 1'000);
}

TEST_CASE("guarded lets a kernel longer than the whole request advance without the watchdog") {
  for (const uint64_t low_ns : {1'000'000, 6'000'000}) {
    const PolicyResult result = under("guarded max_hold_ms=0", beside(low_ns));
    CHECK(result.low_work[0] > 0.01);
    CHECK(result.notices.size() == 1);  // that the policy has changed, and nothing of a watchdog
    CHECK(result.high.slowdown_mean < 1.03);
  }
}

// A kernel of 4 ms is more than the mean budget ever holds of requests of 330 us.
TEST_CASE("the watchdog takes less than one request in a hundred, but holds ten times as long at most") {
  const PolicyResult seldom = under("guarded max_hold_ms=10", beside(4'000'000, 3000));
  CHECK(seldom.high.slowdown_p99 < 1.05);
  CHECK(seldom.low_work[0] > 0.03);
  const PolicyResult often = under("guarded max_hold_ms=1", beside(4'000'000, 3000));
  CHECK(often.high.slowdown_p99 > 2);
  CHECK(often.low_work[0] > seldom.low_work[0]);
}

TEST_CASE("guarded gives each low task the floor that the operator sets, whatever it costs") {
  ExperimentPlan plan = beside(1'000'000, 30'000);  // 10 s and more
  plan.warmup = 10'000;  // what was queued before the high task came is long done
  plan.lows.push_back(task(filler(3'000'000, "second"), 7, plan.node));
  const PolicyResult result = under("guarded max_hold_ms=0 floor_per_mille=50", plan);
  for (const double work : result.low_work) CHECK(work >= 0.05);
}

TEST_CASE("a task that states its bound itself is held to it, whatever the policy is set to") {
  const auto run = [](const std::string& policy, SlowdownBound bound = {}) {
    ExperimentPlan plan = beside(5'000, 600);
    plan.high.bound = bound;
    return under(policy, plan);
  };
  const auto same = [](const PolicyResult& a, const PolicyResult& b) {
    return a.high.slowdown_mean == b.high.slowdown_mean && a.low_work == b.low_work;
  };
  const PolicyResult preset = run("guarded");
  const PolicyResult tight = run("guarded", {5, 10});
  CHECK(tight.high.slowdown_mean < preset.high.slowdown_mean);
  CHECK(tight.low_work[0] < preset.low_work[0]);
  CHECK(same(tight, run("guarded mean_per_mille=5 p99_per_mille=10")));
  CHECK(same(tight, run("guarded mean_per_mille=100 p99_per_mille=200", {5, 10})));
  CHECK(same(run("priority"), run("priority", {5, 10})));  // only guarded keeps bounds
}
