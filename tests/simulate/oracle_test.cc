// The oracle against every gate there is, on workloads small enough to try them all; and
// against the policies, none of which may do more than it within the same allowance.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <set>

#include "tests/seed.h"
#include "tests/simulate/made_workload.h"
#include "tools/simulate/experiment.h"
#include "tools/simulate/oracle/flow.h"
#include "tools/simulate/oracle/interval.h"
#include "tools/simulate/oracle/oracle.h"
#include "tools/simulate/random.h"

using namespace lull;
using namespace lull::simulate;
using namespace lull::simulate::test;

namespace {

// One stream, played by hand: what it launches between two waits of its host.
struct Kernel {
  int64_t offset = 0, length = 0;  // of its launch, from the host's last return
  int64_t call = 0;                // that the launch takes the host
};
struct Stretch {
  std::vector<Kernel> kernels;
  int64_t arrive = 0;  // of the host at the wait that ends it
};
struct Task {
  std::vector<Stretch> stretches;
  int64_t pause = 0;
  play::Workload made;
};

Task task_of(Random& random, size_t kernels, int64_t longest, int64_t longest_pause, bool waits) {
  Task task;
  task.stretches.emplace_back();
  std::vector<play::Op> ops;
  int64_t host = 0;
  for (size_t i = 0; i < kernels; ++i) {
    const auto pause = static_cast<int64_t>(random.up_to(static_cast<uint64_t>(longest_pause)));
    const auto call = static_cast<int64_t>(random.up_to(3));
    const auto length = 3 + static_cast<int64_t>(random.up_to(static_cast<uint64_t>(longest - 3)));
    ops.push_back(launch(0, static_cast<uint64_t>(length), static_cast<uint64_t>(pause),
                         static_cast<uint64_t>(call)));
    task.stretches.back().kernels.push_back({host + pause, length, call});
    host += pause + call;
    if (waits && i + 1 < kernels && random.up_to(2) == 0) {
      const auto before = static_cast<int64_t>(random.up_to(20));
      ops.push_back(sync_stream(0, static_cast<uint64_t>(before)));
      task.stretches.back().arrive = host + before;
      task.stretches.emplace_back();
      host = 0;
    }
  }
  task.stretches.back().arrive = host;
  task.pause = static_cast<int64_t>(random.up_to(40));
  task.made = workload("made", std::move(ops), static_cast<uint64_t>(task.pause));
  return task;
}

// Always has its next kernel ready.
Task ready_task(Random& random, size_t kernels, uint64_t longest) {
  Task task;
  std::vector<play::Op> ops;
  for (size_t i = 0; i < kernels; ++i) {
    const auto length = 12 + static_cast<int64_t>(random.up_to(longest - 12));
    ops.push_back(launch(0, static_cast<uint64_t>(length)));
    task.stretches.resize(1);
    task.stretches[0].kernels.push_back({0, length, 0});
  }
  task.made = workload("ready", std::move(ops));
  return task;
}

// Where a task is: the same for both.
struct Cursor {
  size_t stretch = 0, kernel = 0;
  int64_t base = 0;      // its host's last return, and what it has been held since then
  int64_t last_end = 0;  // of its last kernel
  int64_t joined = 0;    // and when that was the next one to run
  const Kernel& next(const Task& task) const { return task.stretches[stretch].kernels[kernel]; }
  int64_t launch(const Task& task) const { return base + next(task).offset; }
};

// Whatever a gate can do that knows the future: it holds each low launch as long as it likes. The
// device runs what is first in its stream, to its end, whichever became that sooner.
class EveryGate {
 public:
  // When a launch that is held may go.
  enum class Times : uint8_t {
    kAfterHigh,  // when it is made, and when a high kernel has become the next to run
    kAny,        // and at every ns
  };

  EveryGate(const Task& high, const Task& low, uint64_t iterations, const Allowance& allowance,
            Times times)
      : high_(high), low_(low), iterations_(iterations), times_(times) {
    Cursor alone;
    int64_t end = 0;
    for (const Stretch& stretch : high.stretches) {
      for (const Kernel& kernel : stretch.kernels) {
        end = std::max(end, alone.base + kernel.offset) + kernel.length;
      }
      alone.base = std::max(end, alone.base + stretch.arrive);
    }
    alone_ = alone.base;
    most_delay_ = static_cast<int64_t>(
        allowance.mean * static_cast<double>(alone_ * static_cast<int64_t>(iterations)) + 1e-6);
    tail_ = static_cast<int64_t>(allowance.tail * static_cast<double>(alone_) + 1e-6);
    most_over_ = static_cast<uint64_t>(allowance.over * static_cast<double>(iterations));
    try_all({.joined = -1}, {}, 0, 0, 0, 0, 0, 0);
  }
  double best() const { return best_; }
  int64_t alone() const { return alone_; }
  uint64_t schedules() const { return schedules_; }

 private:
  void try_all(Cursor high, Cursor low, int64_t free, uint64_t iteration, int64_t began,
               int64_t spent, uint64_t over, int64_t work) {
    const Stretch& stretch = high_.stretches[high.stretch];
    const bool done = high.kernel == stretch.kernels.size();
    const int64_t back = done ? std::max(high.last_end, high.base + stretch.arrive) : 0;
    if (done) {
      const bool last = high.stretch + 1 == high_.stretches.size();
      high = {last ? 0 : high.stretch + 1, 0, back, high.last_end, high.joined};
      if (last) {
        const int64_t delay = back - began - alone_;
        spent += delay;
        over += delay > tail_ ? 1 : 0;
        if (spent > most_delay_ || over > most_over_) return;
        if (iteration + 1 == iterations_) {
          finish(high, low, free, back, work);
          return;
        }
        iteration += 1;
        high.base = began = back + high_.pause;
      }
      // Low kernels that begin before the host is back or next launches are tried below.
    }
    if (free > began + alone_ + most_delay_ - spent) return;  // too late, whatever comes
    const std::array<int64_t, 15> here{static_cast<int64_t>(high.stretch),
                                       static_cast<int64_t>(high.kernel),
                                       high.base,
                                       high.last_end,
                                       high.joined,
                                       static_cast<int64_t>(low.stretch),
                                       static_cast<int64_t>(low.kernel),
                                       low.base,
                                       low.last_end,
                                       free,
                                       static_cast<int64_t>(iteration),
                                       began,
                                       spent,
                                       static_cast<int64_t>(over),
                                       work};
    if (!seen_.insert(here).second) return;  // by another order
    // The high task's next kernel ...
    const int64_t joins = std::max(high.launch(high_), high.last_end);
    {
      Cursor next = high;
      next.joined = joins;
      next.last_end = std::max(free, joins) + high.next(high_).length;
      next.kernel += 1;
      try_all(next, low, next.last_end, iteration, began, spent, over, work);
    }
    // ... or the low one's first, where it joins before that and after the one before that.
    for (int64_t go = earliest(high, low); std::max(go, low.last_end) <= joins;
         go = std::max(go, low.last_end) + 1) {
      const int64_t end = std::max({free, go, low.last_end}) + low.next(low_).length;
      try_all(high, after(low, go, end), end, iteration, began, spent, over,
              work + low.next(low_).length);
      if (times_ == Times::kAfterHigh) break;
    }
  }

  // Behind the last high kernel: held until that was the next to run, or queued until now.
  int64_t earliest(const Cursor& high, const Cursor& low) const {
    const int64_t launch = low.launch(low_);
    return low.last_end >= high.joined ? launch : std::max(launch, high.joined);
  }

  // Let go then, and ended so.
  Cursor after(Cursor low, int64_t go, int64_t end) const {
    low.base += std::max<int64_t>(0, go - low.launch(low_) - low.next(low_).call);
    low.last_end = end;
    if (++low.kernel < low_.stretches[low.stretch].kernels.size()) return low;
    low.base = std::max(end, low.base + low_.stretches[low.stretch].arrive);
    low.kernel = 0;
    if (++low.stretch == low_.stretches.size()) low.stretch = 0, low.base += low_.pause;
    return low;
  }

  void finish(const Cursor& high, Cursor low, int64_t free, int64_t end, int64_t work) {
    ++schedules_;
    if (free > end) work -= free - end;  // of the last one
    while (true) {
      const int64_t go = earliest(high, low);
      const int64_t start = std::max(free, go);
      if (start >= end) break;
      const int64_t length = low.next(low_).length;
      work += std::min(end, start + length) - start;
      free = start + length;
      low = after(low, go, free);
    }
    best_ = std::max(best_, static_cast<double>(work) / static_cast<double>(end));
  }

  const Task& high_;
  const Task& low_;
  uint64_t iterations_;
  Times times_;
  int64_t alone_ = 0, most_delay_ = 0, tail_ = 0;
  uint64_t most_over_ = 0;
  double best_ = 0;
  uint64_t schedules_ = 0;
  std::set<std::array<int64_t, 15>> seen_;
};

const simgpu::DeviceProfile kProfile = free_markers().profile;
constexpr OracleOptions kNoRounding{.grid_ns = 0, .step = 0, .frontier = 100'000};

Allowance any_allowance(Random& random) {
  constexpr double kMeans[] = {0, 0.05, 0.15, 0.4};
  constexpr double kTails[] = {0, 0.1, 0.5};
  constexpr double kOvers[] = {0, 0.34, 0.5};
  return {kMeans[random.up_to(3)], kTails[random.up_to(2)], kOvers[random.up_to(2)]};
}

}  // namespace

TEST_CASE(
    "the oracle does what the best of all gates does, for a low task that is always ready") {
  const uint64_t first = tests::test_seed();
  uint64_t schedules = 0, filled = 0;
  for (uint64_t seed = first; seed < first + 250; ++seed) {
    Random random(seed);
    const Task high = task_of(random, 1 + random.up_to(3), 25, 45, /*waits=*/true);
    const Task low = ready_task(random, 1 + random.up_to(5), 20 + random.up_to(80));
    const uint64_t iterations = 1 + random.up_to(high.stretches[0].kernels.size() > 2 ? 1 : 2);
    const Allowance allowance = any_allowance(random);
    const EveryGate every(high, low, iterations, allowance, EveryGate::Times::kAfterHigh);
    Oracle oracle(make_script(high.made, kProfile), false, make_script(low.made, kProfile), false,
                  kNoRounding);
    INFO("seed " << seed << ", " << iterations << " iterations, allowance " << allowance.mean << " "
                 << allowance.tail << " " << allowance.over);
    REQUIRE(oracle.alone_ns() == every.alone());
    REQUIRE(oracle.exact());
    const OracleRate rate = oracle.rate({}, false, iterations, allowance);
    REQUIRE(rate.reached == rate.most);
    REQUIRE(rate.most == Approx(every.best()).epsilon(1e-12));
    schedules += every.schedules();
    filled += rate.most > 0 ? 1 : 0;
  }
  CHECK(filled > 100);
  CHECK(schedules > 3'000);
}

TEST_CASE("the oracle does what the best of all gates does beside a low task whose host makes it wait") {
  const uint64_t first = tests::test_seed();
  int same = 0;
  for (uint64_t seed = first; seed < first + 150; ++seed) {
    Random random(seed ^ 0xbeef);
    const Task high = task_of(random, 1 + random.up_to(3), 25, 45, /*waits=*/true);
    const Task low = task_of(random, 1 + random.up_to(4), 60, 40, /*waits=*/true);
    const uint64_t iterations = 1 + random.up_to(high.stretches[0].kernels.size() > 2 ? 1 : 2);
    const Allowance allowance = any_allowance(random);
    const EveryGate every(high, low, iterations, allowance, EveryGate::Times::kAfterHigh);
    Oracle oracle(make_script(high.made, kProfile), false, make_script(low.made, kProfile), false,
                  kNoRounding);
    INFO("seed " << seed);
    const LowState start = oracle.seen({.between = true});
    const double most = oracle.rate(start, false, iterations, allowance).most;
    REQUIRE(most >= every.best() - 1e-9);
    REQUIRE(most <= every.best() * 1.5 + 1e-9);
    same += most <= every.best() + 1e-9 ? 1 : 0;
  }
  CHECK(same >= 149);  // what is held may be given too much: two of 11,100
}

// Alone the device would take what is launched to another stream before what is queued in this one.
TEST_CASE("the oracle plays a low task of two streams in the order of its launches") {
  for (uint64_t seed = tests::test_seed(); seed < tests::test_seed() + 100; ++seed) {
    Random random(seed ^ 0xabba);
    const Task high = task_of(random, 1 + random.up_to(3), 25, 45, /*waits=*/true);
    const Task low = ready_task(random, 2 + random.up_to(5), 20 + random.up_to(80));
    std::vector<play::Op> ops = low.made.ops;
    for (play::Op& op : ops) op.stream = static_cast<uint32_t>(random.up_to(1));
    const auto most = [&](const play::Workload& made) {
      Oracle oracle(make_script(high.made, kProfile), false, make_script(made, kProfile), false,
                    kNoRounding);
      const OracleRate rate = oracle.rate({}, false, 3, {0.2, 0.5, 0.34});
      REQUIRE(rate.reached == rate.most);
      return rate.most;
    };
    INFO("seed " << seed);
    REQUIRE(most(workload("streams", ops)) == most(low.made));
  }
}

TEST_CASE("a gate that lets low launches go at any ns does no more than the oracle") {
  const uint64_t first = tests::test_seed();
  for (uint64_t seed = first; seed < first + 60; ++seed) {
    Random random(seed ^ 0xcafe);
    const Task high = task_of(random, 1 + random.up_to(3), 10, 15, /*waits=*/true);
    const Task low = task_of(random, 1 + random.up_to(3), 20, 12, /*waits=*/true);
    const uint64_t iterations = 1 + random.up_to(1);
    const Allowance allowance = any_allowance(random);
    const EveryGate every(high, low, iterations, allowance, EveryGate::Times::kAny);
    Oracle oracle(make_script(high.made, kProfile), false, make_script(low.made, kProfile), false,
                  kNoRounding);
    INFO("seed " << seed);
    const LowState start = oracle.seen({.between = true});
    const double most = oracle.rate(start, false, iterations, allowance).most;
    CHECK(most >= every.best() - 1e-9);  // with other seeds not always: oracle.h says how often
  }
}

TEST_CASE(
    "where states are left out, the oracle's figure is above the exact one, what it found below") {
  double widest = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed ^ 0xfeed);
    const Task high = task_of(random, 2 + random.up_to(4), 30'000, 40'000, /*waits=*/true);
    const Task low = ready_task(random, 3 + random.up_to(5), 3'000);
    const Script high_script = make_script(high.made, kProfile);
    const Script low_script = make_script(low.made, kProfile);
    const bool may_exceed = seed % 4 == 0;  // one iteration of the twelve
    const Allowance allowance{0.1, 0.2, may_exceed ? 0.1 : 0};
    Oracle exact(high_script, false, low_script, false,
                 {.grid_ns = 500, .step = 0, .frontier = 1'000'000});
    Oracle quick(high_script, false, low_script, false, {.grid_ns = 500, .frontier = 4});
    INFO("seed " << seed);
    const OracleRate all = exact.rate({}, false, 12, allowance);
    const OracleRate some = quick.rate({}, false, 12, allowance);
    REQUIRE(all.most == all.reached);
    CHECK(some.most >= all.most - 1e-9);
    CHECK(some.reached <= all.most * 1.02);  // but for its steps
    if (!may_exceed) widest = std::max(widest, some.most / all.most - 1);
  }
  CHECK(widest > 0);  // it did relax
  CHECK(widest < 0.03);
}

TEST_CASE("beside kernels longer than the tail, the bound is above the exact figure and near it") {
  double sum = 0, sum_reached = 0;
  int count = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed ^ 0xabba);
    const Task high = task_of(random, 1 + random.up_to(3), 30'000, 40'000, /*waits=*/true);
    const Task low = ready_task(random, 2 + random.up_to(3), 30'000);
    const Script high_script = make_script(high.made, kProfile);
    const Script low_script = make_script(low.made, kProfile);
    const Allowance allowance{0.15, 0.02, 0.2};  // two iterations of the ten
    constexpr uint64_t kIterations = 10;
    Oracle exact(high_script, false, low_script, false,
                 {.grid_ns = 0, .step = 0, .frontier = 1'000'000});
    Oracle quick(high_script, false, low_script, false);
    const double all = exact.rate({}, false, kIterations, allowance).most;
    const OracleRate some = quick.rate({}, false, kIterations, allowance);
    INFO("seed " << seed << ": exact " << all << ", most " << some.most << ", reached "
                 << some.reached);
    if (all <= 0) continue;
    CHECK(some.most >= all * (1 - 1e-3));
    CHECK(some.reached <= all * 1.02);  // what is left of a low kernel is rounded
    sum += some.most / all;
    sum_reached += some.reached / all;
    count += 1;
  }
  REQUIRE(count > 20);
  INFO("most " << sum / count << ", reached " << sum_reached / count);
  CHECK(sum / count < 1.05);
  CHECK(sum_reached / count > 0.85);
}

TEST_CASE(
    "a high task of six segments has few options in each, and the bound is near the exact figure") {
  std::vector<play::Op> high_ops, low_ops;
  for (uint64_t i = 0; i < 6; ++i) {
    high_ops.push_back(launch(0, 9'000 + 700 * i, 3'000));
    high_ops.push_back(launch(0, 4'000, 5'000 + 300 * i));
    high_ops.push_back(sync_stream(0, 0));
  }
  for (uint64_t i = 0; i < 40; ++i) low_ops.push_back(launch(0, 900 + 617 * i % 2'300));
  const Script high = make_script(workload("six", high_ops, 4'000), kProfile);
  const Script low = make_script(workload("many", low_ops), kProfile);
  constexpr Allowance kAllowance{0.1, 0.2, 0};
  Oracle exact(high, false, low, false, {.grid_ns = 200, .step = 0, .frontier = 1'000'000});
  Oracle quick(high, false, low, false, {.grid_ns = 200, .frontier = 4});
  const OracleRate all = exact.rate({}, false, 2, kAllowance);
  const OracleRate some = quick.rate({}, false, 2, kAllowance);
  INFO("exact " << all.most << ", most " << some.most << ", reached " << some.reached);
  REQUIRE(all.most == all.reached);
  CHECK(some.most >= all.most - 1e-9);
  CHECK(some.most <= all.most * 1.05);
  CHECK(some.reached <= all.most * 1.02);
  CHECK(some.reached >= all.most * 0.95);

  // A step of the delay is an option or two: a kernel at the end is begun, or not.
  constexpr OracleOptions kSteps{.step = 0.01};
  Interval interval(high_of(high, false), chain_of(low, false), kSteps);
  const int64_t tail = interval.high().alone / 5;
  interval.ask({.most_delay = 2 * tail, .tail = tail, .iterations = 2});
  REQUIRE(interval.high().segments.size() == 6);
  for (size_t segment = 0; segment < 6; ++segment) {
    const size_t options = interval.known_options(segment, {}, tail).all.size();
    CHECK(options > 1);
    CHECK(options <= 2 * (20 + 1));
  }
}

TEST_CASE("what runs at the start is not held against a high task of several segments") {
  const Script high = make_script(workload("high", {launch(0, 10'000, 5'000), sync_stream(0, 0),
                                                    launch(0, 10'000, 20'000), sync_stream(0, 0)}),
                                  kProfile);
  const Script low = make_script(workload("low", {launch(0, 12'000)}), kProfile);
  Oracle oracle(high, false, low, false);
  // Of the second segment's 20,000 ns without the device, one kernel's work.
  const LowState start{.next = 1, .running_ns = 8'000, .ready_ns = 8'000};
  const OracleRate rate = oracle.rate(start, false, 1, {0, 0, 0});
  CHECK(rate.most >= 12'000.0 / 50'000);
  CHECK(rate.reached == rate.most);
}

// A step is not counted of each segment's delay: of 60 segments that would be more than the device has.
TEST_CASE("the oracle gives no more than the high task's kernels leave of the device") {
  std::vector<play::Op> ops;
  for (int n = 0; n < 60; ++n) {
    ops.push_back(launch(0, 100'000));
    ops.push_back(sync_stream(0, 0));
  }
  const Script high = make_script(workload("high", ops), kProfile);
  const Script low = make_script(workload("low", {launch(0, 10'000)}), kProfile);
  Oracle oracle(high, false, low, false);
  const auto alone = static_cast<double>(oracle.alone_ns());
  const double longest = 1.03 * alone;
  const OracleRate rate = oracle.rate({}, false, 100, {});
  CHECK(rate.most <= 1 - 0.99 * 60 * 100'000.0 / longest);
  CHECK(rate.reached <= rate.most);
}

TEST_CASE("no policy that keeps the bound has a share over one") {
  constexpr uint64_t kIterations = 60;
  int kept = 0, undelayed = 0;
  double best = 0;
  for (uint64_t seed = tests::test_seed(); seed < tests::test_seed() + 40; ++seed) {
    Random random(seed ^ 0xf00d);
    const bool always_ready = random.up_to(1) == 0;
    const Task high = task_of(random, 2 + random.up_to(10), 60'000, 120'000, /*waits=*/true);
    const Task low = always_ready ? ready_task(random, 20, 1000 * (10 + random.up_to(60)))
                                  : task_of(random, 20, 40'000, 60'000, /*waits=*/true);
    ExperimentPlan plan;
    plan.node = free_markers();
    plan.high = {make_script(high.made, kProfile), "high", 0, Priority{2}};
    plan.lows.push_back({make_script(low.made, kProfile), "low", 0, Priority{7}});
    plan.policies = {"priority", "fikit", "guarded", "priority in_flight_us=5"};
    plan.iterations = kIterations;
    plan.warmup = random.up_to(1) * 10;
    if (random.up_to(1) == 0) plan.node.coordinator.control_latency = Duration{0};
    const auto result = run_experiment(plan);
    REQUIRE(result.has_value());
    CHECK(result->heading.oracle != "estimate");
    for (const PolicyResult& one : result->policies) {
      INFO("seed " << seed << " under " << one.policy << ": share " << *one.oracle_share
                   << ", of none " << one.oracle0_share.value_or(-1) << ", high "
                   << one.high.slowdown_mean);
      double longest = 0;
      for (const Service& s : one.services) {
        longest = std::max(longest, static_cast<double>((s.ended - s.began).ns));
      }
      REQUIRE(one.services.size() == kIterations);
      CHECK(one.oracle_work >= one.oracle0_work * (1 - 1e-9));
      if (one.high.slowdown_mean <= 1.03 && longest <= 1.05 * one.high.alone.mean) {
        // Once a run, a policy may have a hair more: see what makes the figure smaller in oracle.h.
        CHECK(*one.oracle_share <= 1 + 0.1 / kIterations);
        best = std::max(best, *one.oracle_share);
        ++kept;
      }
      if (longest <= one.high.alone.mean * (1 + 1e-9) && one.oracle0_share) {
        CHECK(*one.oracle0_share <= 1.0001);
        ++undelayed;
      }
    }
  }
  CHECK(kept > 20);
  CHECK(undelayed > 1);  // runs that the second comparison was made for
  CHECK(best > 0.9);
}

TEST_CASE("what the oracle cannot play has a bound and is called so") {
  ExperimentPlan plan;
  plan.node = free_markers();
  plan.high.script = make_script(workload("high", {launch(0, 100'000, 100'000)}, 30'000), kProfile);
  plan.high.task = "high";
  plan.high.priority = Priority{2};
  TaskSpec low;
  low.script = make_script(workload("low", std::vector<play::Op>(50, launch(2, 20'000, 0, 2'000))),
                           kProfile);
  low.task = "low";
  low.priority = Priority{7};
  plan.lows.push_back(low);
  plan.policies = {"priority", "guarded mean_per_mille=0 p99_per_mille=0"};
  plan.iterations = 40;
  const auto oracle_of = [&] {
    const auto result = run_experiment(plan);
    REQUIRE(result.has_value());
    for (const PolicyResult& one : result->policies) {
      REQUIRE(one.oracle_share.has_value());
      CHECK(one.rows[1].oracle_share == *one.oracle_share);
    }
    // Within nothing, the two are the same.
    const PolicyResult& none = result->policies[1];
    CHECK(none.oracle_share == none.oracle0_share);
    CHECK(command::to_json(result->heading, result->rows)["oracle"] == result->heading.oracle);
    return result->heading.oracle;
  };
  CHECK(oracle_of() == "exact");
  plan.load = 0.5;
  CHECK(oracle_of() == "bound");
  plan.load = 0;
  plan.node.sharing = simgpu::Sharing::kTimeSlice;
  CHECK(oracle_of() == "bound");
  plan.node.sharing = simgpu::Sharing::kSerial;
  low.task = "second";
  plan.lows.push_back(low);
  CHECK(oracle_of() == "bound");
}
