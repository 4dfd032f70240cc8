// Services that take different times by turns.
#include "policies/launch/guarded/model/service_pattern.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

using namespace lull;
using namespace lull::policies;

namespace {

constexpr Duration ms(double ms) { return {static_cast<int64_t>(ms * 1e6)}; }

// Of a round: so long each, give or take `noise_ms`; `known`: how many they are.
void serve(ServicePattern& pattern, const std::vector<double>& round_ms, int services,
           double noise_ms = 0, bool known = false) {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0, noise_ms > 0 ? noise_ms : 1);
  for (int n = 0; n < services; ++n) {
    const double own = round_ms[static_cast<size_t>(n) % round_ms.size()];
    pattern.add(ms(own + (noise_ms > 0 ? noise(random) : 0)), known ? round_ms.size() : 0);
  }
}

}  // namespace

TEST_CASE("a round is found, and says what comes next") {
  for (const double noise_ms : {0.0, 0.2}) {
    ServicePattern pattern;
    serve(pattern, {80, 80, 80, 92}, 60, noise_ms);  // every fourth step updates the weights
    REQUIRE(pattern.round() == 4);
    CHECK(static_cast<double>(pattern.longest_offset().ns) == Approx(9e6).margin(0.3e6));
    for (int n = 0; n < 8; ++n) {
      const double off = n % 4 == 3 ? 9e6 : -3e6;
      CHECK(static_cast<double>(pattern.offset().ns) == Approx(off).margin(0.5e6));
      CHECK(pattern.offset() == pattern.offset_of(pattern.next()));
      pattern.add(ms(n % 4 == 3 ? 92 : 80));
    }
  }
}

TEST_CASE("the shortest round is taken, and the longest is twelve") {
  for (size_t length = 2; length <= ServicePattern::kLongest + 1; ++length) {
    std::vector<double> round_ms(length, 10);
    round_ms.back() = 14;
    ServicePattern pattern;
    serve(pattern, round_ms, 400);
    CHECK(pattern.round() == (length <= ServicePattern::kLongest ? length : 0));
  }
}

TEST_CASE("services that are all alike, or differ at random, have no round") {
  ServicePattern same;
  serve(same, {10}, 1'000, 0.01);
  CHECK(same.round() == 0);
  CHECK(same.offset().ns == 0);
  CHECK(same.longest_offset().ns == 0);
  for (const double part : {0.02, 0.1, 0.5, 1.0}) {  // of all, so many are longer
    std::mt19937 random(3);
    std::uniform_real_distribution<double> lot(0, 1);
    ServicePattern pattern;
    int in_round = 0;
    for (int n = 0; n < 20'000; ++n) {
      pattern.add(ms(lot(random) < part ? 10 + lot(random) : 10));
      in_round += pattern.round() != 0 ? 1 : 0;
    }
    INFO(part);
    CHECK(in_round < 20);
  }
}

TEST_CASE("a round that is over is forgotten, and another one found") {
  ServicePattern pattern;
  serve(pattern, {80, 80, 80, 92}, 60);
  REQUIRE(pattern.round() == 4);
  serve(pattern, {80}, 200);
  CHECK(pattern.round() == 0);
  serve(pattern, {80, 90}, 200);
  CHECK(pattern.round() == 2);
}

TEST_CASE("after a gap in the services the round is found anew, and their numbers go on") {
  ServicePattern pattern;
  serve(pattern, {80, 80, 80, 92}, 61);
  REQUIRE(pattern.round() == 4);
  pattern.restart();
  CHECK(pattern.round() == 0);
  CHECK(pattern.offset().ns == 0);
  CHECK(pattern.since() == 61);
  CHECK(pattern.next() == 61);
  serve(pattern, {80, 80, 80, 92}, 60);
  REQUIRE(pattern.round() == 4);
  for (int n = 0; n < 3; ++n) {
    CHECK(pattern.offset() < Duration{0});
    pattern.add(ms(80));
  }
  CHECK(pattern.offset() > Duration{0});
}

TEST_CASE("a round that is known need not be told from what its services take") {
  const std::vector<double> steps_ms{80, 90, 82, 78, 78, 79};
  ServicePattern found, known;
  serve(found, steps_ms, 240, /*noise_ms=*/4);
  REQUIRE(found.round() == 0);
  serve(known, steps_ms, 5, 4, /*known=*/true);
  CHECK(known.round() == 0);
  serve(known, steps_ms, 1, 4, true);
  CHECK(known.round() == 6);
  known.restart();
  serve(known, steps_ms, 240, 4, true);
  REQUIRE(known.round() == 6);
  for (size_t n = 0; n < 6; ++n) {
    INFO(n);
    const double off = (steps_ms[n] - 487.0 / 6) * 1e6;
    CHECK(static_cast<double>(known.offset_of(known.since() + n).ns) == Approx(off).margin(3e6));
  }
}

TEST_CASE("of a longer round than can be kept nothing is told") {
  ServicePattern pattern;
  serve(pattern, std::vector<double>(ServicePattern::kLongest + 1, 80), 200, 0, /*known=*/true);
  CHECK(pattern.round() == 0);
}
