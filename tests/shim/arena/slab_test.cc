#include "shim/residence/slab.h"

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "tests/seed.h"

using lull::shim::Slab;

namespace {

// A slab with tables of its own.
class TestSlab {
 public:
  explicit TestSlab(uint32_t units) : tables_(Slab::table_bytes(units) / sizeof(uint64_t) + 1) {
    slab_ = Slab{};
    slab_.open(tables_.data(), units);
  }
  Slab* operator->() { return &slab_; }

 private:
  std::vector<uint64_t> tables_;
  Slab slab_;
};

}  // namespace

TEST_CASE("a new slab is one free piece, and can be taken whole") {
  for (const uint32_t units : {1U, 2U, 3U, 4U, 5U, 63U, 64U, 65U, 4096U, 65536U}) {
    TestSlab slab(units);
    CHECK(slab->is_empty());
    CHECK(slab->is_sound());
    CHECK(slab->take(units + 1, 0) == Slab::kNone);
    CHECK(slab->take(units, 7) == 0);
    CHECK(slab->free_units() == 0);
    CHECK(slab->take(1, 0) == Slab::kNone);
    CHECK(slab->word(0) == 7);
    CHECK(slab->piece_at(units - 1) == 0);
    slab->give(0);
    CHECK(slab->is_empty());
    CHECK(slab->is_sound());
  }
}

TEST_CASE("neighbours that are given back merge, in whatever order") {
  const std::vector<std::vector<uint32_t>> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto& order : orders) {
    TestSlab slab(30);
    uint32_t first[3];
    for (auto& piece : first) piece = slab->take(10, 0);
    for (const uint32_t n : order) {
      slab->give(first[n]);
      CHECK(slab->is_sound());
    }
    CHECK(slab->take(30, 0) == 0);
  }
}

TEST_CASE("a unit in no piece, or outside, is in none") {
  TestSlab slab(100);
  const uint32_t a = slab->take(10, 1);
  const uint32_t b = slab->take(10, 2);
  CHECK(slab->piece_at(a + 9) == a);
  CHECK(slab->piece_at(b) == b);
  CHECK(slab->piece_at(50) == Slab::kNone);
  CHECK(slab->piece_at(100) == Slab::kNone);
  slab->give(a);
  CHECK(slab->piece_at(a) == Slab::kNone);
  CHECK(slab->piece_at(b + 3) == b);
}

TEST_CASE("random takes and gives never overlap, and leave the slab empty") {
  const uint64_t seed = lull::tests::test_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20; ++round) {
    const auto units = static_cast<uint32_t>(random() % 5000 + 1);
    TestSlab slab(units);
    std::map<uint32_t, uint32_t> taken;  // first -> size
    uint32_t used = 0;
    for (int step = 0; step < 4000; ++step) {
      if (random() % 100 < 55) {
        const auto size =
            static_cast<uint32_t>(random() % (random() % 8 == 0 ? units : units / 16 + 1) + 1);
        const uint32_t first = slab->take(size, size * 3);
        if (first == Slab::kNone) {
          // Only where there is really no such hole.
          uint32_t hole = 0, end = 0;
          for (const auto& [at, length] : taken) {
            hole = std::max(hole, at - end);
            end = at + length;
          }
          REQUIRE(std::max(hole, units - end) < size);
          continue;
        }
        REQUIRE(first + size <= units);
        const auto next = taken.lower_bound(first);
        REQUIRE((next == taken.end() || next->first >= first + size));
        REQUIRE(
            (next == taken.begin() || std::prev(next)->first + std::prev(next)->second <= first));
        taken[first] = size;
        used += size;
      } else if (!taken.empty()) {
        auto it = taken.begin();
        std::advance(it, static_cast<long>(random() % taken.size()));
        REQUIRE(slab->size(it->first) == it->second);
        REQUIRE(slab->word(it->first) == it->second * 3);
        REQUIRE(slab->piece_at(it->first + it->second - 1) == it->first);
        slab->give(it->first);
        used -= it->second;
        taken.erase(it);
      }
      REQUIRE(slab->free_units() == units - used);
      if (step % 64 == 0) REQUIRE(slab->is_sound());
    }
    for (const auto& [first, size] : taken) slab->give(first);
    CHECK(slab->is_empty());
    CHECK(slab->is_sound());
    CHECK(slab->take(units, 0) == 0);
  }
}
