#include "coordinator/moves/host_memory.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "tests/seed.h"

namespace lull::moves {

TEST_CASE("everybody gets what it wants where there is enough, and a part of what is left") {
  const HostWish wishes[] = {{0, 10}, {5, 20}, {3, 0}};
  CHECK(share_host_memory(100, wishes) == std::vector<uint64_t>{32, 42, 25});
}

TEST_CASE("who wants without measure gets no more than others leave") {
  const HostWish wishes[] = {{0, UINT64_MAX}, {0, 10}, {0, 70}};
  CHECK(share_host_memory(100, wishes) == std::vector<uint64_t>{45, 10, 45});
}

TEST_CASE("what somebody has already is not taken back, even where it is too much") {
  const HostWish wishes[] = {{80, 90}, {0, 50}, {40, 40}};
  CHECK(share_host_memory(100, wishes) == std::vector<uint64_t>{80, 0, 40});
}

TEST_CASE("the sum never exceeds the total beyond what is there, nobody has less than before") {
  const uint64_t seed = tests::test_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::vector<HostWish> wishes(random() % 8);
    for (HostWish& wish : wishes)
      wish = {random() % 50, random() % 4 == 0 ? random() : random() % 200};
    const uint64_t total = random() % 500;
    const auto given = share_host_memory(total, wishes);
    uint64_t has = 0, sum = 0;
    for (size_t i = 0; i < wishes.size(); ++i) {
      has += wishes[i].has_bytes;
      sum += given[i];
      CHECK(given[i] >= wishes[i].has_bytes);
    }
    CHECK(sum <= std::max(total, has));
  }
}

}  // namespace lull::moves
