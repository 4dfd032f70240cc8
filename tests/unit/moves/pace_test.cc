#include "coordinator/moves/pace.h"

#include <catch2/catch.hpp>

namespace lull::moves {

TEST_CASE("beside nobody copies go as fast as they can") { CHECK(pace_beside({}) == Pace{}); }

TEST_CASE("a chunk takes a quarter of what an iteration may lose, the rate half of it") {
  // 3 % of 100 ms are 3 ms, in which 165 MB are copied.
  const Important task{.bound_per_mille = 30, .iteration = Duration{100'000'000}};
  const Pace pace = pace_beside(std::span(&task, 1));
  CHECK(pace.chunk_bytes == Approx(55e9 * 0.003 / 4));
  CHECK(pace.bytes_per_s == Approx(55e9 * 0.03 / 2));
  const double chunks_an_iteration = static_cast<double>(pace.bytes_per_s) * 0.1 / pace.chunk_bytes;
  CHECK(chunks_an_iteration == Approx(2));
}

TEST_CASE("a slower link is paced as it is, and what a client claims is believed within reason") {
  const Important task{.bound_per_mille = 30, .iteration = Duration{100'000'000}};
  const Pace pace = pace_beside(std::span(&task, 1), 12'000'000'000);
  CHECK(pace.chunk_bytes == Approx(12e9 * 0.003 / 4));
  CHECK(pace.bytes_per_s == Approx(12e9 * 0.03 / 2));
  CHECK(pace_beside(std::span(&task, 1), 1).bytes_per_s == Approx(55e9 / 64 * 0.03 / 2));
  CHECK(pace_beside(std::span(&task, 1), UINT64_MAX) == pace_beside(std::span(&task, 1)));
}

TEST_CASE("the most careful of several counts, and nothing is less than the least chunk") {
  const Important tasks[] = {{.bound_per_mille = 30, .iteration = Duration{100'000'000}},
                             {.bound_per_mille = 100, .iteration = Duration{0}},
                             {.bound_per_mille = 0, .iteration = Duration{1'000'000'000}}};
  const Pace pace = pace_beside(tasks);
  CHECK(pace.chunk_bytes == kLeastChunkBytes);
  CHECK(pace.bytes_per_s == static_cast<uint64_t>(55e9 * 0.001 / 2));
}

}  // namespace lull::moves
