// The five real recordings, where they are at hand: LULL_SHARED_TRACES, or beside the checkout.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "tools/play/kineto.h"

using namespace lull::play;

namespace {

std::filesystem::path folder() {
  const char* named = std::getenv("LULL_SHARED_TRACES");
  return named != nullptr ? std::filesystem::path(named)
                          : std::filesystem::path(LULL_TRACES_BESIDE);
}

struct Figures {
  const char* file;
  uint64_t operations, with_call;
  double span_ms, busy_percent;
  double op_p50_us, op_p90_us, gap_p50_us, gap_p90_us, gap_max_us;
  uint64_t streams;
  double iteration_ms;  // recorded length of what is replayed
};
constexpr Figures kFigures[] = {
    {"h100-bert-small-inference", 61, 61, 3.9, 8, 3.6, 8.2, 50, 118, 248, 1, 4.03},
    {"h100-vit-image-detection-inference", 156, 156, 7.6, 16, 8.2, 13.6, 42, 61, 143, 1, 7.71},
    {"h100-qwen1.5-0.5b-inference", 1707, 1198, 49.7, 92, 26.5, 50.5, 1.4, 2.0, 291, 1, 34.92},
    {"h100-timesformer", 534, 534, 160.0, 99, 57, 164, 1.4, 2.3, 573, 1, 164.69},
    {"a100-training-4-streams", 9450, 9450, 464.6, 84, 8, 42, 2, 31, 2443, 4, 464.7},
};

}  // namespace

TEST_CASE("the figures of the real recordings are those of their list") {
  if (!std::filesystem::exists(folder())) {
    WARN("skipped: no traces in " << folder().string());
    return;
  }
  for (const Figures& expected : kFigures) {
    INFO(expected.file);
    const auto trace = read_kineto_file((folder() / expected.file).string() + ".json.gz");
    REQUIRE(trace.has_value());
    const TraceSummary got = summarize(*trace);
    const auto us = [](int64_t ns) { return static_cast<double>(ns) / 1e3; };
    CHECK(got.operations == expected.operations);
    CHECK(got.with_call == expected.with_call);
    CHECK(us(got.span_ns) / 1e3 == Approx(expected.span_ms).margin(0.05));
    CHECK(std::lround(got.busy_share() * 100) == std::lround(expected.busy_percent));
    CHECK(us(got.operation_p50_ns) == Approx(expected.op_p50_us).epsilon(0.02));
    CHECK(us(got.operation_p90_ns) == Approx(expected.op_p90_us).epsilon(0.02));
    CHECK(us(got.gap_p50_ns) == Approx(expected.gap_p50_us).epsilon(0.05));
    CHECK(us(got.gap_p90_ns) == Approx(expected.gap_p90_us).epsilon(0.05));
    CHECK(us(got.gap_max_ns) == Approx(expected.gap_max_us).epsilon(0.02));
    CHECK(got.streams == expected.streams);

    const auto import = import_kineto(*trace, expected.file);
    REQUIRE(import.has_value());
    const WorkloadTotals sum = totals(import->workload);
    CHECK(sum.launches + sum.copies + sum.memsets == expected.with_call);
    CHECK(import->cropped == expected.operations - expected.with_call);
    CHECK(us(import->recorded_ns) / 1e3 == Approx(expected.iteration_ms).epsilon(0.005));
    // The host alone is never slower than the recording was.
    CHECK(sum.host_ns <= static_cast<uint64_t>(import->recorded_ns));
    const auto again = parse_workload(write_workload(import->workload), "again.json");
    REQUIRE(again.has_value());
    CHECK(again->ops == import->workload.ops);
  }
}
