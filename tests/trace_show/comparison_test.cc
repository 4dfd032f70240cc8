#include "tools/lull/trace/comparison.h"

#include <catch2/catch.hpp>

#include "tests/trace_show/events.h"
#include "tools/lull/trace/analysis.h"

using namespace lull;
using namespace lull::trace;
using namespace lull::trace::testing;

namespace {

struct Line {
  const char* name;
  uint64_t id;
  int64_t length_ns;
  int times;
};
Report report_of(const std::vector<Line>& lines) {
  Analysis analysis{FileInfo{}};
  analysis.feed(started(1, "t"));
  KernelIndex index = 0;
  uint64_t sequence = 0;
  for (const Line& line : lines) {
    KernelInfo info = kernel(index, line.name);
    info.id = {line.id};
    analysis.feed(info);
    for (int i = 0; i < line.times; ++i) {
      analysis.feed(launch(1, 0, index, ++sequence, 10));
      analysis.feed(timing(1, 0, index, sequence, 10, line.length_ns, 100));
    }
    ++index;
  }
  return analysis.finish();
}

}  // namespace

TEST_CASE("kernels are matched by id, else by looks, and sorted by the change of their total") {
  const Report a = report_of(
      {{"same", 1, 100, 10}, {"slower", 2, 100, 10}, {"gone", 3, 70, 1}, {"rebuilt", 4, 100, 2}});
  const Report b = report_of(
      {{"rebuilt", 44, 90, 2}, {"slower", 2, 300, 10}, {"same", 1, 100, 10}, {"new", 5, 5000, 1}});
  const auto changes = compare(a, b);
  REQUIRE(changes.size() == 5);
  CHECK(changes[0].kernel.name == "new");
  CHECK_FALSE(changes[0].in_a);
  CHECK(changes[0].change_ns() == 5000);
  CHECK(changes[1].kernel.name == "slower");
  CHECK(changes[1].change_ns() == 2000);
  CHECK(changes[2].kernel.name == "gone");
  CHECK_FALSE(changes[2].in_b);
  CHECK(changes[3].kernel.name == "rebuilt");
  CHECK(changes[3].in_a);
  CHECK(changes[3].in_b);
  CHECK(changes[3].change_ns() == -20);
  CHECK(changes[4].change_ns() == 0);
  const auto json = comparison_json(a, b, changes);
  CHECK(json["kernels"][1]["a"]["p50_us"] == 0.1);
  CHECK(json["kernels"][1]["b"]["p50_us"] == 0.3);
  CHECK(json["kernels"][0]["a"].is_null());
  const std::string text = comparison_text(a, b, changes, 3, 120);
  CHECK(text.find("3 of 5") != std::string::npos);
  CHECK(text.find("+200.0 %") != std::string::npos);
}

TEST_CASE("a report compared with itself has not changed") {
  const Report a = report_of({{"x", 1, 100, 3}, {"x", 2, 200, 4}});
  for (const auto& change : compare(a, a)) {
    CHECK(change.change_ns() == 0);
    CHECK(change.in_a);
    CHECK(change.in_b);
    CHECK(change.a.total.count == change.b.total.count);
  }
}
