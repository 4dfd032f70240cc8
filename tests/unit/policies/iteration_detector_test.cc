#include "policies/prediction/iteration_detector.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/unit/policies/generated_program.h"

using namespace lull;
using namespace lull::policies;
using lull::test::GeneratedLaunch;
using lull::test::GeneratedProgram;

namespace {

struct Verdict {
  uint32_t locked_in = 0;      // iteration in which the lock that lasts was first there
  uint32_t first_lock = 0;     // iteration of the first lock
  uint64_t windows = 0;        // iterations after the first lock
  uint64_t right = 0;          // with the right period throughout
  uint64_t starts = 0, right_starts = 0;
  IterationDetector detector;
};

struct Truth {
  uint32_t period = 0;
  uint32_t slack = 0;
};

Verdict judge(const std::vector<GeneratedLaunch>& launches, Truth truth) {
  Verdict verdict;
  uint32_t current = 0;
  bool all_right = false;
  bool begun = false;
  auto close = [&] {
    if (!begun) return;
    verdict.windows += 1;
    verdict.right += all_right ? 1 : 0;
    if (all_right && verdict.locked_in == 0) verdict.locked_in = current;
    if (!all_right) verdict.locked_in = 0;
  };
  for (const GeneratedLaunch& launch : launches) {
    const auto mark = verdict.detector.launch(launch.kernel, launch.at, launch.memory_bytes);
    if (launch.iteration == 0) continue;
    if (launch.iteration != current) {
      close();
      current = launch.iteration;
      all_right = true;
      begun = verdict.detector.locked();
    }
    if (verdict.detector.locked() && verdict.first_lock == 0) verdict.first_lock = current;
    const uint32_t period = verdict.detector.period();
    all_right &= period + truth.slack >= truth.period && period <= truth.period + truth.slack;
    if (mark.started) verdict.starts += 1;
  }
  close();
  return verdict;
}

using Make = std::function<void(GeneratedProgram&)>;
struct Case {
  const char* name;
  Make make;
  uint32_t slack;  // of the period, in launches
  uint32_t group = 1;  // iterations of the generator that are one for the detector
};

void training_step(GeneratedProgram& p, uint64_t base, uint32_t forward, uint32_t backward, uint32_t optimizer) {
  p.begin_iteration();
  p.pause(400'000);
  p.run(base, forward);
  p.run(base + 1000, backward);
  p.run(base + 2000, optimizer);
}

const Case kCases[] = {
    {"plain loop", [](GeneratedProgram& p) {
       for (int i = 0; i < 100; ++i) { p.begin_iteration(); p.pause(200'000); p.run(10, 40); }
     }, 0},
    {"long loop in which the host never pauses", [](GeneratedProgram& p) {
       for (int i = 0; i < 100; ++i) { p.begin_iteration(); p.run(10, 140); }
     }, 0},
    {"warm-up prologue, then a loop", [](GeneratedProgram& p) {
       for (int i = 0; i < 700; ++i) p.launch(5000 + p.pick(300));
       for (int i = 0; i < 100; ++i) training_step(p, 10, 60, 110, 8);
     }, 0},
    {"24 layers in a pass", [](GeneratedProgram& p) {
       for (int i = 0; i < 100; ++i) {
         p.begin_iteration();
         p.pause(300'000);
         p.run(10, 5);
         for (int layer = 0; layer < 24; ++layer) p.run(100, 14);
         p.run(200, 6);
       }
     }, 0},
    {"24 layers without any pause", [](GeneratedProgram& p) {
       for (int i = 0; i < 100; ++i) {
         p.begin_iteration();
         p.run(10, 3);
         for (int layer = 0; layer < 24; ++layer) p.run(100, 14);
         p.run(200, 4);
       }
     }, 0},
    {"layers forwards and backwards, and an optimizer", [](GeneratedProgram& p) {
       for (int i = 0; i < 100; ++i) {
         p.begin_iteration();
         p.pause(300'000);
         p.run(10, 5);
         for (int layer = 0; layer < 12; ++layer) p.run(100, 14);
         p.run(200, 6);
         for (int layer = 0; layer < 12; ++layer) p.run(300, 26);
         for (int parameter = 0; parameter < 50; ++parameter) p.run(400, 2);
       }
     }, 0},
    {"gradient accumulation by four", [](GeneratedProgram& p) {
       for (int i = 0; i < 100; ++i) {
         p.begin_iteration();
         for (int micro = 0; micro < 4; ++micro) { p.pause(300'000); p.run(10, 150); p.run(400, 200); }
         p.run(1000, 30);
       }
     }, 0},
    {"three loops within one another", [](GeneratedProgram& p) {
       for (int i = 0; i < 100; ++i) {
         p.begin_iteration();
         for (int micro = 0; micro < 3; ++micro) {
           p.run(10, 4);
           for (int layer = 0; layer < 6; ++layer) p.run(100, 11);
           p.run(200, 7);
         }
         p.run(1000, 9);
       }
     }, 0},
    {"validation every tenth iteration, with the kernels of the forward pass", [](GeneratedProgram& p) {
       for (int i = 1; i <= 200; ++i) {
         training_step(p, 10, 100, 180, 12);
         if (i % 10 != 0) continue;
         p.no_iteration();
         for (int batch = 0; batch < 3; ++batch) { p.pause(200'000); p.run(10, 100); }
       }
     }, 0},
    {"validation every 25th iteration, with kernels of its own", [](GeneratedProgram& p) {
       for (int i = 1; i <= 200; ++i) {
         training_step(p, 10, 100, 180, 12);
         if (i % 25 != 0) continue;
         p.no_iteration();
         for (int batch = 0; batch < 2; ++batch) { p.pause(200'000); p.run(7000, 100); }
       }
     }, 0},
    {"long validation at irregular times", [](GeneratedProgram& p) {
       for (int i = 1; i <= 200; ++i) {
         training_step(p, 10, 100, 180, 12);
         if (!p.chance(40)) continue;
         p.no_iteration();
         for (int batch = 0; batch < 2; ++batch) { p.pause(200'000); p.run(7000, 90); p.run(50, 40); }
       }
     }, 0},
    {"random skips of one launch in forty", [](GeneratedProgram& p) {
       for (int i = 0; i < 100; ++i) {
         p.begin_iteration();
         p.pause(300'000);
         for (uint64_t k = 0; k < 200; ++k) if (!p.chance(25)) p.launch(10 + k);
       }
     }, 8},
    {"a block that is left out one time in five", [](GeneratedProgram& p) {
       for (int i = 0; i < 100; ++i) {
         p.begin_iteration();
         p.pause(300'000);
         p.run(10, 80);
         if (!p.chance(200)) p.run(500, 12);
         p.run(200, 60);
       }
     }, 2},
    {"two alternating shapes, most kernels the same", [](GeneratedProgram& p) {
       for (int i = 0; i < 120; ++i) {
         p.begin_iteration();
         p.pause(300'000);
         p.run(10, 110);
         p.run(i % 2 == 0 ? 500 : 600, 40);
       }
     }, 0},
    {"two alternating shapes, nearly nothing the same: the pair", [](GeneratedProgram& p) {
       for (int i = 0; i < 240; ++i) {
         if (i % 2 == 0) p.begin_iteration();
         p.pause(300'000);
         p.run(i % 2 == 0 ? 500 : 600, 110);
         p.run(10, 10);
       }
     }, 0},
    {"shapes that vary without end around a fixed optimizer", [](GeneratedProgram& p) {
       for (int i = 0; i < 120; ++i) {
         p.begin_iteration();
         p.pause(300'000);
         const uint64_t shape = 1000 * (100 + p.pick(40));
         p.run(shape, 140);
         p.run(10, 50);
       }
     }, 0},
    {"a graph that is the whole step", [](GeneratedProgram& p) {
       for (int i = 0; i < 200; ++i) { p.begin_iteration(); p.pause(2'000'000); p.launch(7); }
     }, 0},
    {"warm-up, then a graph that is the whole step", [](GeneratedProgram& p) {
       for (int i = 0; i < 3; ++i) p.run(100, 90);
       for (int i = 0; i < 200; ++i) { p.begin_iteration(); p.pause(2'000'000); p.launch(7); }
     }, 0},
    {"two graphs and a copy", [](GeneratedProgram& p) {
       for (int i = 0; i < 200; ++i) {
         p.begin_iteration();
         p.pause(900'000); p.launch(3); p.launch(7); p.pause(200'000); p.launch(8);
       }
     }, 0},
    {"four streams from four threads", [](GeneratedProgram& p) {
       std::vector<std::vector<uint64_t>> threads(4);
       for (uint64_t t = 0; t < 4; ++t)
         for (uint64_t k = 0; k < 40 + 10 * t; ++k) threads[t].push_back(1000 * (t + 1) + k);
       for (int i = 0; i < 100; ++i) {
         p.begin_iteration();
         p.pause(300'000);
         for (const uint64_t k : interleave(p, threads)) p.launch(k);
       }
     }, 1},
    {"four streams from four threads, few kernels", [](GeneratedProgram& p) {
       std::vector<std::vector<uint64_t>> threads(4);
       for (uint64_t t = 0; t < 4; ++t)
         for (uint64_t k = 0; k < 50; ++k) threads[t].push_back(1000 * (t + 1) + k % 17);
       for (int i = 0; i < 100; ++i) {
         p.begin_iteration();
         p.pause(300'000);
         for (const uint64_t k : interleave(p, threads)) p.launch(k);
       }
     }, 1},
};

}  // namespace

TEST_CASE("the iteration of generated programs is found within five and stays found") {
  for (const Case& one : kCases) {
    for (uint32_t seed = 1; seed <= 3; ++seed) {
      GeneratedProgram program(seed);
      one.make(program);
      const Verdict verdict = judge(program.launches(), {program.period(), one.slack});
      INFO(one.name << ", seed " << seed << ": period " << program.period() << ", found "
                    << verdict.detector.period() << ", first lock in iteration " << verdict.first_lock
                    << ", for good in " << verdict.locked_in << ", right in " << verdict.right << " of "
                    << verdict.windows << ", completed " << verdict.detector.completed() << ", confidence "
                    << verdict.detector.confidence_per_mille());
      CHECK(verdict.first_lock > 0);
      CHECK(verdict.first_lock <= 5);
      CHECK(verdict.right * 100 >= verdict.windows * 95);
      CHECK(verdict.detector.completed() * 100 >= uint64_t{program.iterations()} * 75);
    }
  }
}

TEST_CASE("a short loop without pauses counts as one when it is longer than any stack of layers") {
  GeneratedProgram program(3);
  for (int i = 0; i < 300; ++i) {
    program.begin_iteration();
    program.run(10, 9);
  }
  const Verdict verdict = judge(program.launches(), {9, 0});
  CHECK(verdict.first_lock >= LaunchHistory::kMostInner);
  CHECK(verdict.first_lock <= LaunchHistory::kMostInner * 5 / 4);
  CHECK(verdict.right == verdict.windows);
}

namespace {

// 30 launches, after which the host waits for the device, and 14 more, after which it waits again.
void request(GeneratedProgram& program, IterationDetector& detector, uint64_t base) {
  const auto run = [&](uint64_t from, uint32_t count) {
    for (uint32_t k = 0; k < count; ++k) {
      program.launch(from + k);
      detector.launch(program.launches().back().kernel, program.launches().back().at);
    }
    detector.waited();
  };
  run(base, 30);
  program.pause(30'000);
  run(base + 100, 14);
}

using Arrival = std::function<int64_t(GeneratedProgram&)>;  // since the last request, ns
int64_t at_random(GeneratedProgram& p, double mean_ns) {
  return 1 + static_cast<int64_t>(-mean_ns * std::log((1 + p.pick(10'000)) / 10'001.0));
}
const struct {
  const char* name;
  Arrival next;
} kArrivals[] = {
    {"rarely", [](GeneratedProgram& p) { return at_random(p, 20e6); }},
    {"often", [](GeneratedProgram& p) { return at_random(p, 1e6); }},
    {"at once or late", [](GeneratedProgram& p) -> int64_t { return p.chance(500) ? 20'000 : 5'000'000; }},
    {"one that came meanwhile is served at once",
     [](GeneratedProgram& p) { return std::max<int64_t>(1, at_random(p, 2e6) - 2'000'000); }},
};

template <typename Kernels>
IterationDetector requests(uint32_t seed, int count, const Arrival& next, Kernels kernels) {
  GeneratedProgram program(seed);
  IterationDetector detector;
  for (int n = 0; n < count; ++n) {
    program.pause(next(program));
    request(program, detector, kernels(n));
  }
  return detector;
}

}  // namespace

TEST_CASE("requests that come at random are found one by one, not as groups") {
  for (const auto& arrivals : kArrivals) {
    for (uint32_t seed = 1; seed <= 100; ++seed) {
      for (const int count : {8, 60}) {
        const IterationDetector detector =
            requests(seed, count, arrivals.next, [](int) { return 500; });
        INFO(arrivals.name << ", seed " << seed << ", " << count << " requests");
        CHECK(detector.period() == 44);
      }
    }
  }
}

TEST_CASE("two requests by turns that come at random stay a pair") {
  for (const auto& arrivals : kArrivals) {
    for (uint32_t seed = 1; seed <= 100; ++seed) {
      for (const int count : {14, 60}) {
        const IterationDetector detector =
            requests(seed, count, arrivals.next, [](int n) { return n % 2 == 0 ? 500 : 900; });
        INFO(arrivals.name << ", seed " << seed << ", " << count << " requests");
        CHECK(detector.period() == 88);
      }
    }
  }
}

namespace {

using Noise = std::function<uint64_t(GeneratedProgram&, uint64_t state)>;
struct NoiseCase {
  const char* name;
  Noise next;
};

const NoiseCase kNoise[] = {
    {"three kernels at random", [](GeneratedProgram& p, uint64_t) -> uint64_t { return p.pick(3); }},
    {"eight kernels at random", [](GeneratedProgram& p, uint64_t) -> uint64_t { return p.pick(8); }},
    {"fifty kernels at random", [](GeneratedProgram& p, uint64_t) -> uint64_t { return p.pick(50); }},
    {"two thousand kernels at random", [](GeneratedProgram& p, uint64_t) -> uint64_t { return p.pick(2000); }},
    {"a million kernels at random", [](GeneratedProgram& p, uint64_t) -> uint64_t { return p.pick(1'000'000); }},
    {"one kernel mostly, others at random", [](GeneratedProgram& p, uint64_t) -> uint64_t {
       return p.chance(700) ? 0 : 1 + p.pick(20); }},
    {"frequencies of all sizes", [](GeneratedProgram& p, uint64_t) -> uint64_t {
       return std::min({p.pick(300), p.pick(300), p.pick(300)}); }},
    {"a walk over a ring of forty", [](GeneratedProgram& p, uint64_t s) -> uint64_t {
       return (s + (p.chance(500) ? 1 : 39)) % 40; }},
    {"a walk with steps of all kinds", [](GeneratedProgram& p, uint64_t s) -> uint64_t {
       return (s + p.pick(7) + 97) % 100; }},
    {"a chain with three successors each", [](GeneratedProgram& p, uint64_t s) -> uint64_t {
       return (s * 7 + p.pick(3) * 13 + 5) % 61; }},
    {"a chain with two successors each", [](GeneratedProgram& p, uint64_t s) -> uint64_t {
       return (s * 2 + p.pick(2)) % 128; }},
};

}  // namespace

TEST_CASE("no iteration is claimed where there is none") {
  for (const NoiseCase& one : kNoise) {
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      GeneratedProgram program(seed * 77);
      IterationDetector detector;
      uint64_t state = 0;
      uint64_t locked = 0;
      for (int i = 0; i < 40'000; ++i) {
        state = one.next(program, state);
        program.launches().clear();
        program.pause(int64_t{1000} << program.pick(10));
        program.launch(state);
        const GeneratedLaunch& launch = program.launches().back();
        detector.launch(launch.kernel, launch.at, 0);
        locked += detector.locked() ? 1 : 0;
      }
      INFO(one.name << ", seed " << seed << ", period " << detector.period());
      CHECK(locked == 0);
    }
  }
}
