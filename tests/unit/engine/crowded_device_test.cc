// What a step costs beside many clients that do not launch, in basic blocks of the engine and of
// guarded (the compiler counts them; CMakeLists.txt): nothing here looks at a clock. Where each
// step looks at each client, a step among 1,024 takes a hundred times what it takes among 30, and
// more.
#include "tools/bench/crowded_device.h"

#include <catch2/catch.hpp>
#include <cstdint>

using namespace lull;

namespace {

uint64_t blocks_run = 0;

}  // namespace

extern "C" void __sanitizer_cov_trace_pc();
extern "C" void __sanitizer_cov_trace_pc() { blocks_run += 1; }

namespace {

constexpr uint64_t kWarmUp = 2000;  // inputs
constexpr uint64_t kCounted = 500;

uint64_t blocks(const bench::CrowdPlan& plan) {
  bench::CrowdedDevice device(plan);
  device.run(kWarmUp);
  uint64_t counted = 0;
  device.run(kCounted, [&](const std::function<void()>& step) {
    const uint64_t before = blocks_run;
    step();
    counted += blocks_run - before;
  });
  return counted;
}

}  // namespace

TEST_CASE("a step of ten launching clients costs about the same among 30 and among 1,024") {
  for (const char* policy : {"guarded", "guarded floor_per_mille=50"}) {
    const uint64_t few = blocks({.members = 30, .policy = policy});
    const uint64_t many = blocks({.members = 1024, .policy = policy});
    CAPTURE(policy, few / kCounted, many / kCounted);
    CHECK(few / kCounted > 50);  // they are counted
    CHECK(many < 2 * few);
  }
}

TEST_CASE("what is decided in a crowd depends on nothing but the inputs") {
  for (const bool all_launched : {false, true}) {
    bench::CrowdedDevice first({.members = 90, .all_launched = all_launched});
    bench::CrowdedDevice second({.members = 90, .all_launched = all_launched});
    first.run(3000);
    second.run(3000);
    CHECK(first.digest() == second.digest());
    CHECK(first.launched() > 500);
    CHECK(first.status().notices.empty());
  }
}
