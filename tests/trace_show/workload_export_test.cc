#include "tools/lull/trace/workload_export.h"

#include <catch2/catch.hpp>
#include <functional>

#include "tests/trace_show/events.h"
#include "tools/lull/trace/analysis.h"

using namespace lull;
using namespace lull::trace;
using namespace lull::trace::testing;
using lull::play::OpKind;

namespace {

std::expected<ExportedWorkload, std::string> exported(const std::vector<Event>& events,
                                                      WorkloadChoice choice) {
  Analysis analysis{FileInfo{}};
  for (const Event& event : events) analysis.feed(event);
  const Report report = analysis.finish();
  choice.client = {1};
  WorkloadExport builder(report, choice);
  for (const Event& event : events) builder.feed(event);
  return builder.finish();
}

}  // namespace

TEST_CASE("a stretch becomes pauses, launches and waits, without the time held") {
  std::vector<Event> events = {started(1, "t"),
                               kernel(0, "a"),
                               kernel(1, "Memcpy HtoD (Pageable -> Device)", UnitKind::kCopy),
                               launch(1, 3, 0, 1, 10'000),
                               launch(1, 9, 0, 1, 15'000, 100'000, 2),
                               launch(1, 3, 1, 2, 130'000),
                               launch(2, 0, 0, 1, 131'000),
                               timing(1, 3, 0, 1, 12'000, 5000),
                               timing(1, 9, 0, 1, 120'000, 7000),
                               timing(1, 3, 1, 2, 132'000, 20'000),
                               Synced{{1}, {3}, 2, {155'000}},
                               launch(1, 3, 0, 3, 165'000),
                               timing(1, 3, 0, 3, 170'000, 6000)};
  const auto made = exported(events, {.from_ns = 8'000, .until_ns = 200'000});
  REQUIRE(made.has_value());
  const auto& ops = made->workload.ops;
  REQUIRE(ops.size() == 6);
  CHECK(ops[0].kind == OpKind::Launch);
  CHECK(ops[0].pause_ns == 2000);
  CHECK(ops[0].call_ns == 2000);
  CHECK(ops[0].duration_ns == 5000);
  CHECK(ops[1].stream == 1);
  CHECK(ops[1].pause_ns == 3000);  // 10 + 2 -> 15 us
  CHECK(ops[1].duration_ns == 7000);
  CHECK(ops[2].kind == OpKind::CopyToDevice);
  CHECK(ops[2].pageable);
  CHECK(ops[2].pause_ns == 13'000);  // 15 + 100 held + 2 -> 130 us
  CHECK(ops[2].recorded_ns == 20'000);
  CHECK(ops[3].kind == OpKind::StreamSync);
  CHECK(ops[3].pause_ns == 0);
  CHECK(ops[4].pause_ns == 10'000);
  CHECK(ops[5].kind == OpKind::DeviceSync);
  CHECK(made->workload.streams == 2);
  CHECK(made->workload.kernels.size() == 1);
  CHECK(made->workload.pause_after_ns == 24'000);  // the work is done at 176 us
  const auto again = play::parse_workload(
      [&] {
        auto named = made->workload;
        named.name = "w";
        named.kind = "other";
        named.recorded.gpu = "a \"GPU\"";
        return play::write_workload(named);
      }(),
      "w.json");
  REQUIRE(again.has_value());
  CHECK(again->ops == ops);
  CHECK(again->recorded.gpu == "a \"GPU\"");
}

TEST_CASE("a wait that the host came late to is a pause") {
  std::vector<Event> events = {started(1, "t"), kernel(0, "a"), launch(1, 0, 0, 1, 0),
                               timing(1, 0, 0, 1, 1000, 1000), Synced{{1}, {0}, 1, {900'000}}};
  const auto made = exported(events, {.until_ns = 1'000'000});
  REQUIRE(made.has_value());
  CHECK(made->workload.ops[1].pause_ns == 898'000);
}

TEST_CASE("launches without a length get their kernel's median, or an error where there is none") {
  std::vector<Event> events = {started(1, "t"), kernel(0, "a"), launch(1, 0, 0, 1, 0),
                               launch(1, 0, 0, 2, 5000), timing(1, 0, 0, 1, 1000, 1234)};
  const auto made = exported(events, {.until_ns = 1'000'000});
  REQUIRE(made.has_value());
  CHECK(made->without_length == 1);
  CHECK(made->workload.ops[1].duration_ns == 1234);
  events.pop_back();
  const auto none = exported(events, {.until_ns = 1'000'000});
  REQUIRE_FALSE(none.has_value());
  CHECK(none.error().find("--timing") != std::string::npos);
}

TEST_CASE("long workloads are folded into repeats whose sums are as recorded") {
  std::vector<Event> events = {started(1, "t"), kernel(0, "a"), kernel(1, "b"), kernel(2, "c")};
  int64_t at_ns = 0;
  uint64_t sequence = 0;
  uint64_t all_ns = 0;
  for (int i = 0; i < 300; ++i) {
    for (const KernelIndex k : {0, 1, 0, 2}) {
      at_ns += 5000 + i % 7;
      events.push_back(launch(1, 0, k, ++sequence, at_ns));
      events.push_back(timing(1, 0, k, sequence, at_ns + 100, 1000 + i));
      all_ns += static_cast<uint64_t>(1000 + i);
    }
  }
  const auto whole = exported(events, {.until_ns = INT64_MAX, .max_ops = 100'000});
  const auto folded = exported(events, {.until_ns = INT64_MAX, .max_ops = 100});
  REQUIRE(whole.has_value());
  REQUIRE(folded.has_value());
  CHECK(whole->repeats.empty());
  REQUIRE(folded->repeats.size() == 1);
  CHECK(folded->repeats[0].length == 4);
  CHECK(folded->repeats[0].times == 300);
  CHECK(folded->workload.ops.size() == whole->workload.ops.size());
  CHECK(static_cast<double>(totals(folded->workload).kernel_ns) ==
        Approx(static_cast<double>(all_ns)).epsilon(0.001));
  CHECK(static_cast<double>(totals(folded->workload).host_ns) ==
        Approx(static_cast<double>(totals(whole->workload).host_ns)).epsilon(0.001));
  auto named = folded->workload;
  named.name = "w";
  named.kind = "other";
  const std::string text = play::write_workload(named, folded->repeats);
  CHECK(text.size() < 1500);
  const auto again = play::parse_workload(text, "w.json");
  REQUIRE(again.has_value());
  CHECK(again->ops == named.ops);
}
