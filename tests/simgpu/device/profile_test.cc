// Profiles and costs.
#include <catch2/catch.hpp>

#include <cstring>
#include <fstream>

#include "tools/simgpu/device/cost_model.h"

using namespace simgpu;
using Catch::Matchers::Contains;

namespace {
std::string error_of(const std::string& json) {
  const auto profile = parse_profile(json, "some.json");
  REQUIRE_FALSE(profile);
  CHECK(profile.error().find('\n') == std::string::npos);
  CHECK_THAT(profile.error(), Contains("some.json"));
  return profile.error();
}
}  // namespace

TEST_CASE("the shipped H100 profile is the one that is compiled in") {
  const auto profile = read_profile_file(PROFILES "/h100.json");
  REQUIRE(profile);
  const DeviceProfile built_in = built_in_profile();
  CHECK(std::memcmp(&*profile, &built_in, sizeof built_in) == 0);
}

TEST_CASE("the shipped H200 profile has its own memory") {
  const auto profile = read_profile_file(PROFILES "/h200.json");
  REQUIRE(profile);
  CHECK(std::string(profile->name) == "simulated H200");
  CHECK(profile->sm_count == 132);
  CHECK(profile->memory_bytes > 141'000'000'000);
}

TEST_CASE("what was measured and is no part of the model changes nothing") {
  const auto plain = parse_profile(R"({"name": "x"})", "a");
  const auto more =
      parse_profile(R"({"name": "x", "measured": {"block_wait": {"p99_us": 3}}})", "b");
  REQUIRE(plain);
  REQUIRE(more);
  CHECK(std::memcmp(&*plain, &*more, sizeof *plain) == 0);
}

TEST_CASE("a wrong profile is told by file, key and what would be right") {
  CHECK_THAT(error_of("{\"name\": \"x\", \"sm_count\": 0}"),
             Contains("sm_count") && Contains("1 to 1024"));
  CHECK_THAT(error_of("{\"name\": \"x\", \"sm_count\": 1.5}"), Contains("a whole number"));
  CHECK_THAT(error_of("{\"name\": \"x\", \"slice_ns\": \"2 ms\"}"),
             Contains("slice_ns") && Contains("a number"));
  CHECK_THAT(error_of("{\"name\": \"x\", \"slise_ns\": 1}"),
             Contains("slise_ns") && Contains("slice_ns,"));
  CHECK_THAT(error_of("{\"name\": \"x\", \"memory_bytes\": -5}"), Contains("memory_bytes"));
  CHECK_THAT(error_of("{\"sm_count\": 4}"), Contains("\"name\" is missing"));
  CHECK_THAT(error_of("[]"), Contains("an object"));
  CHECK_THAT(error_of("{\"name\": \"x\","), Contains("not JSON at byte"));
  CHECK_THAT(error_of("{\"name\": \"x\", \"costs\": [{\"ns\": 5}]}"), Contains("costs[0].kernel"));
  CHECK_THAT(error_of("{\"name\": \"x\", \"costs\": [{\"kernel\": \"a\"}]}"),
             Contains("one of ns"));
  CHECK_THAT(
      error_of("{\"name\": \"x\", \"costs\": [{\"kernel\": \"a\", \"ns\": 1, \"wave_ns\": 1}]}"),
      Contains("not both"));
  CHECK_THAT(
      error_of("{\"name\": \"x\", \"costs\": [{\"kernel\": \"a\", \"ns\": 1, \"blocks\": 1}]}"),
      Contains("costs[0].blocks"));
  CHECK_THAT(error_of("{\"name\": \"x\", \"assumptions\": {\"nothing\": \"y\"}}"),
             Contains("nothing"));
  CHECK_THAT(error_of("{\"name\": \"x\", \"measured\": 5}"), Contains("measured"));
  const auto missing = read_profile_file("/nowhere/profile.json");
  REQUIRE_FALSE(missing);
  CHECK_THAT(missing.error(), Contains("/nowhere/profile.json") && Contains("No such file"));
}

TEST_CASE("globs match as shells do") {
  CHECK(glob_matches("*gemm*", "ampere_sgemm_128"));
  CHECK(glob_matches("a?c", "abc"));
  CHECK(glob_matches("*", ""));
  CHECK(glob_matches("a*b*c", "a_b_b_c"));
  CHECK_FALSE(glob_matches("gemm", "sgemm"));
  CHECK_FALSE(glob_matches("a?c", "ac"));
  CHECK_FALSE(glob_matches("a*b", "a_b_c"));
}

TEST_CASE("the first rule whose name fits decides, then spin_ns, then the waves of blocks") {
  const auto profile =
      parse_profile(R"({"name": "x", "wave_ns": 5000, "min_kernel_ns": 2000, "costs": [
      {"kernel": "fixed*", "ns": 777, "sm_demand": 3},
      {"kernel": "waves*", "wave_ns": 100},
      {"kernel": "f*", "ns": 1}]})",
                    "x");
  REQUIRE(profile);
  KernelLaunch launch{.name = "fixed_one", .grid = {1, 1, 1}, .block = {256, 1, 1}};
  CHECK(kernel_cost(*profile, launch).duration_ns == 777);
  CHECK(kernel_cost(*profile, launch).sm_demand == 3);
  launch.name = "waves";
  launch.grid[0] = 8 * 132 * 2 + 1;  // 8 blocks of 256 threads an SM: two waves and one block
  CHECK(kernel_cost(*profile, launch).duration_ns == 300);
  CHECK(kernel_cost(*profile, launch).sm_demand == 132);
  launch.name = "spinner";
  launch.spin_ns = 123'456;
  launch.grid[0] = 17;  // fills three SMs
  CHECK(kernel_cost(*profile, launch).duration_ns == 123'456);
  CHECK(kernel_cost(*profile, launch).sm_demand == 3);
  launch.spin_ns.reset();
  CHECK(kernel_cost(*profile, launch).duration_ns == 5000);
  CHECK(is_spin_parameter("spin_ns"));
  CHECK(is_spin_parameter("kernel_param_spin_ns"));
  CHECK_FALSE(is_spin_parameter("spin_ns_2"));
}

TEST_CASE("occupancy is bounded by threads, registers, shared memory and blocks") {
  const DeviceProfile p = built_in_profile();
  CHECK(blocks_per_sm(p, 1024, 0, 16) == 2);
  CHECK(blocks_per_sm(p, 32, 0, 16) == 32);
  CHECK(blocks_per_sm(p, 256, 0, 255) == 1);
  CHECK(blocks_per_sm(p, 128, 100 * 1024, 16) == 2);
  CHECK(blocks_per_sm(p, 128, 300 * 1024, 16) == 0);
}

TEST_CASE("copies cost their latency and their bytes, pageable ones more") {
  DeviceProfile p = built_in_profile();
  p.copy_latency_ns = 1000;
  p.h2d_gb_per_s = 50;
  p.pageable_factor = 0.5;
  CHECK(copy_ns(p, CopyDirection::kHostToDevice, 50'000, false) == 2000);
  CHECK(copy_ns(p, CopyDirection::kHostToDevice, 50'000, true) == 3000);
  CHECK(copy_sm_demand(p, 1) == 1);
  CHECK(copy_sm_demand(p, 1 << 30) == 132);
}
