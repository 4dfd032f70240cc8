#include "tools/lull/launch_environment.h"

#include <catch2/catch.hpp>

using namespace lull::command;

namespace {
const Installed kParts{"/opt/lull/bin", "/opt/lull/lib/lull/liblull.so", "/opt/lull/lib/lull/sim"};
}

TEST_CASE("the library goes before what is preloaded already, and only once") {
  const Environment first = launch_environment({{"LD_PRELOAD", "/a.so:/b.so"}}, {}, kParts);
  CHECK(first.at("LD_PRELOAD") == "/opt/lull/lib/lull/liblull.so:/a.so:/b.so");
  const Environment again = launch_environment(first, {}, kParts);
  CHECK(again == first);
  CHECK(launch_environment({}, {}, kParts).at("LD_PRELOAD") == kParts.shim);
}

TEST_CASE("only what was asked for is set") {
  const Environment bare = launch_environment({{"HOME", "/root"}}, {}, kParts);
  CHECK(bare == Environment{{"HOME", "/root"},
                            {"LD_PRELOAD", kParts.shim},
                            {"LULL_RUN", "1"},
                            {"NVTX_INJECTION64_PATH", kParts.shim}});
  // A tool of the program's own stays.
  CHECK(launch_environment({{"NVTX_INJECTION64_PATH", "/x.so"}}, {}, kParts)
            .at("NVTX_INJECTION64_PATH") == "/x.so");
}

TEST_CASE("every wish reaches the library's variables") {
  LaunchWishes wishes;
  wishes.priority = 2;
  wishes.bound = {30, 50};
  wishes.name = "serve";
  wishes.job = "j1";
  wishes.memory_bytes = uint64_t{20} << 30;
  wishes.socket = "/tmp/s";
  wishes.require_coordinator = true;
  wishes.timing = "full";
  wishes.call_sites = true;
  wishes.suspendable = wishes.migratable = wishes.oversubscribe = true;
  wishes.visible_devices = "GPU-b,GPU-a";
  wishes.own_devices = 1;
  const Environment all = launch_environment({}, wishes, kParts);
  CHECK(all.at("LULL_PRIORITY") == "2");
  CHECK(all.at("LULL_MAX_SLOWDOWN") == "30,50");
  CHECK(all.at("LULL_NAME") == "serve");
  CHECK(all.at("LULL_JOB") == "j1");
  CHECK(all.at("LULL_MEMORY") == "21474836480");
  CHECK(all.at("LULL_SOCKET") == "/tmp/s");
  CHECK(all.at("LULL_REQUIRE_COORDINATOR") == "1");
  CHECK(all.at("LULL_TIMING") == "full");
  CHECK(all.at("LULL_CALL_SITES") == "1");
  CHECK(all.at("LULL_SUSPENDABLE") == "1");
  CHECK(all.at("LULL_MIGRATABLE") == "1");
  CHECK(all.at("LULL_OVERSUBSCRIBE") == "1");
  CHECK(all.at("CUDA_VISIBLE_DEVICES") == "GPU-b,GPU-a");
  CHECK(all.at("LULL_VISIBLE_DEVICES") == "1");
  CHECK_FALSE(all.contains("LD_LIBRARY_PATH"));
}

TEST_CASE("a program below normal is below normal under MPS too, unless its user says otherwise") {
  const auto under = [](int priority, const Environment& before) {
    LaunchWishes wishes;
    wishes.priority = priority;
    const Environment all = launch_environment(before, wishes, kParts);
    const auto found = all.find("CUDA_MPS_CLIENT_PRIORITY");
    return found == all.end() ? "-" : found->second;
  };
  CHECK(under(2, {}) == "-");
  CHECK(under(5, {}) == "-");
  CHECK(under(6, {}) == "1");
  CHECK(under(9, {}) == "1");
  CHECK(under(7, {{"CUDA_MPS_CLIENT_PRIORITY", "0"}}) == "0");
}

TEST_CASE("the simulated driver goes before every other library") {
  LaunchWishes wishes;
  wishes.simulate = true;
  wishes.sharing = "mps";
  wishes.slow_motion = 2.5;
  const Environment all =
      launch_environment({{"LD_LIBRARY_PATH", "/usr/local/cuda/lib64"}}, wishes, kParts);
  CHECK(all.at("LD_LIBRARY_PATH") == "/opt/lull/lib/lull/sim:/usr/local/cuda/lib64");
  CHECK(all.at("SIMGPU_SHARING") == "mps");
  CHECK(all.at("SIMGPU_SLOW_MOTION") == "2.5");
}

TEST_CASE("a program with AddressSanitizer is told to accept the library, whatever its options") {
  LaunchWishes wishes;
  wishes.has_asan = true;
  CHECK(launch_environment({}, wishes, kParts).at("ASAN_OPTIONS") == "verify_asan_link_order=0");
  CHECK(launch_environment({{"ASAN_OPTIONS", "abort_on_error=1"}}, wishes, kParts)
            .at("ASAN_OPTIONS") == "abort_on_error=1:verify_asan_link_order=0");
  CHECK(launch_environment({{"ASAN_OPTIONS", "verify_asan_link_order=1"}}, wishes, kParts)
            .at("ASAN_OPTIONS") == "verify_asan_link_order=1");
}
