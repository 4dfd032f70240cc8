#include "tools/lull/trace/busy_union.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

using lull::trace::BusyUnion;

TEST_CASE("the union of intervals of several streams is that of a bitmap") {
  const auto seed = GENERATE(1, 2, 3, 4);
  INFO("seed " << seed);
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  std::vector<bool> busy(20'000);
  BusyUnion united;
  int64_t last = 0, first = INT64_MAX;
  int64_t at[3] = {0, 0, 0};
  for (int i = 0; i < 900; ++i) {
    int64_t& stream = at[random() % 3];
    const int64_t start = stream + static_cast<int64_t>(random() % 40);
    const int64_t end = std::min<int64_t>(start + static_cast<int64_t>(random() % 20), 19'999);
    if (start >= 19'000) continue;
    stream = end;
    for (int64_t t = start; t < end; ++t) busy[static_cast<size_t>(t)] = true;
    united.add(start, end);
    first = std::min(first, start);
    last = std::max(last, end);
  }
  united.finish();
  CHECK(united.busy_ns() == std::count(busy.begin(), busy.end(), true));
  CHECK(united.first_ns() == first);
  CHECK(united.last_ns() == last);
  CHECK(united.idle().total_ns() + united.busy_ns() == last - first);
}

TEST_CASE("millions of intervals need no more than the window") {
  BusyUnion united;
  for (int64_t i = 0; i < 2'000'000; ++i) united.add(i * 10, i * 10 + 7);
  united.finish();
  CHECK(united.busy_ns() == 14'000'000);
  CHECK(united.idle().count() == 1'999'999);
  CHECK(united.kept_bytes() < 4 * BusyUnion::kWindow * 16);
}

TEST_CASE("the sink sees each busy interval once, in order") {
  std::vector<std::pair<int64_t, int64_t>> seen;
  BusyUnion united([&](int64_t start, int64_t end) { seen.emplace_back(start, end); });
  united.add(100, 200);
  united.add(0, 50);
  united.add(40, 60);
  united.add(200, 210);
  united.finish();
  CHECK(seen == std::vector<std::pair<int64_t, int64_t>>{{0, 60}, {100, 210}});
}

TEST_CASE("nothing added is nothing busy") {
  BusyUnion united;
  united.finish();
  CHECK(united.empty());
  CHECK(united.busy_ns() == 0);
}
