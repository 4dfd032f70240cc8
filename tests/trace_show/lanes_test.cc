#include "tools/lull/trace/lanes.h"

#include <catch2/catch.hpp>

#include "tests/trace_show/events.h"
#include "tools/lull/trace/analysis.h"
#include "tools/lull/trace/timeline_text.h"

using namespace lull;
using namespace lull::trace;

TEST_CASE("lanes keep every interval as long as there is room") {
  Lanes lanes(1000);
  for (uint32_t i = 0; i < 1000; ++i) {
    lanes.add({LaneKind::kStream, {0}, {1}, {i % 3}, {}}, i * 100, i * 100 + 50, i);
  }
  lanes.finish();
  CHECK(lanes.spans() == 1000);
  CHECK(lanes.stretch_ns() == 0);
}

TEST_CASE("lanes stay within their bound and lose no busy time") {
  const size_t bound = GENERATE(100, 1000, 20'000);
  Lanes lanes(bound);
  constexpr int64_t kMany = 500'000;
  for (int64_t i = 0; i < kMany; ++i) {
    lanes.add({LaneKind::kStream, {0}, {1}, {static_cast<uint32_t>(i % 3)}, {}}, i * 100,
              i * 100 + 50, static_cast<uint32_t>(i % 5));
    REQUIRE(lanes.spans() <= bound + 1);
  }
  lanes.finish();
  CHECK(lanes.stretch_ns() > 0);
  CHECK(lanes.spans() > bound / 8);
  int64_t busy = 0, count = 0, before = -1;
  for (const auto& [key, spans] : lanes.all()) {
    before = -1;
    for (const Span& span : spans) {
      busy += span.busy_ns;
      count += span.count;
      CHECK(span.start_ns > before);
      before = span.start_ns;
    }
  }
  CHECK(busy == kMany * 50);
  CHECK(count == kMany);
}

TEST_CASE("more lanes than spans stay within the bound, over the longest time there is") {
  Lanes lanes(100);
  for (uint32_t i = 0; i < 5000; ++i) {
    const int64_t at = i % 2 == 0 ? 0 : INT64_MAX - 1 - i;
    lanes.add({LaneKind::kStream, {0}, {i}, {1}, {}}, at, at, i);
    lanes.add({LaneKind::kStream, {0}, {i % 40}, {1}, {}}, INT64_MAX / 2, INT64_MAX / 2 + i, i);
    REQUIRE(lanes.spans() <= 101);
  }
  lanes.finish();
  CHECK(lanes.all().size() == 50);
}

TEST_CASE("a timeline far from its origin has an end") {
  constexpr int64_t kFar = int64_t{1} << 62;
  Lanes lanes(100);
  lanes.add({LaneKind::kStream, {0}, {1}, {7}, {}}, kFar - 1000, kFar - 500, 0);
  lanes.finish();
  Analysis analysis{FileInfo{}};
  analysis.feed(lull::trace::testing::started(1, "t"));
  const Report report = analysis.finish();
  TimelineOptions options;
  options.from_ns = kFar - 1000;
  options.until_ns = kFar;
  options.width = 80;
  CHECK(timeline_text(lanes, report, options).find("50.0 %") != std::string::npos);
}

TEST_CASE("the timeline draws how busy each column is") {
  Lanes lanes(100);
  lanes.add({LaneKind::kStream, {0}, {1}, {7}, {}}, 0, 500, 0);
  lanes.add({LaneKind::kStream, {0}, {1}, {7}, {}}, 900, 1000, 0);
  lanes.add({LaneKind::kGate, {}, {1}, {}, {}}, 0, 250, 2);
  lanes.finish();
  Analysis analysis{FileInfo{}};
  analysis.feed(lull::trace::testing::started(1, "t"));
  const Report report = analysis.finish();
  TimelineOptions options;
  options.until_ns = 1000;
  options.ascii = true;
  options.width = 14 + 10 + 40;
  CHECK(timeline_text(lanes, report, options) ==
        "               |0                  |500 ns\n"
        "gpu 0 s7 t (1) ####################                ####  60.0 %\n"
        "held t (1)     ##########                                25.0 %\n");
}

TEST_CASE("launches are drawn only for clients whose units have no recorded start") {
  using namespace lull::trace::testing;
  Lanes lanes(100);
  const auto all = [](int64_t, int64_t) { return true; };
  lanes.feed(launch(1, 0, 0, 1, 100), all);
  lanes.feed(launch(2, 0, 0, 1, 110), all);
  lanes.feed(timing(1, 0, 0, 1, 200, 50), all);
  lanes.feed(timing(2, 0, 0, 1, -1, 50), all);
  lanes.feed(launch(1, 0, 0, 2, 300, 20, 2), all);
  lanes.finish();
  REQUIRE(lanes.all().size() == 3);
  CHECK(lanes.spans() == 3);
  auto lane = lanes.all().begin();
  CHECK(lane->first.kind == LaneKind::kStream);
  CHECK(lane->first.client.value == 1);
  CHECK((++lane)->first.kind == LaneKind::kCalls);
  CHECK(lane->first.client.value == 2);
  CHECK(lane->second[0].start_ns == 110);
  CHECK((++lane)->first.kind == LaneKind::kGate);
}
