#include "tools/measure/measure.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/lull/fits.h"

using namespace lull::command;

namespace {

// `count` iterations of `length_ns`, one after the other from `start_ns`, each `kernel_ns` of work.
TaskRecord steady(int count, double start_ns, double length_ns, double kernel_ns) {
  TaskRecord record;
  record.work.add(start_ns, 0);
  record.device_time.add(start_ns, 0);
  for (int n = 0; n < count; ++n) {
    const double from = start_ns + n * length_ns;
    record.iterations.push_back({from, from + length_ns});
    record.work.add(from + length_ns, (n + 1) * kernel_ns);
    record.device_time.add(from + length_ns, (n + 1) * kernel_ns);
  }
  return record;
}

}  // namespace

TEST_CASE("a curve is linear between its points and flat outside") {
  Curve curve;
  CHECK(curve.at(5) == 0);
  curve.add(10, 100);
  curve.add(20, 200);
  CHECK(curve.at(0) == 100);
  CHECK(curve.at(15) == Approx(150));
  CHECK(curve.at(99) == 200);
}

TEST_CASE("a curve takes no point that goes back") {
  Curve curve;
  curve.add(10, 100);
  curve.add(9, 200);
  curve.add(20, 50);
  CHECK(curve.last_at_ns() == 10);
  CHECK(curve.at(30) == 100);
}

TEST_CASE("quantiles lie between the nearest values, and of nothing they are unknown") {
  const Spread one = spread({7});
  CHECK(one.mean == 7);
  CHECK(one.p99 == 7);
  const Spread many = spread({4, 1, 3, 2, 5});
  CHECK(many.mean == Approx(3));
  CHECK(many.p50 == Approx(3));
  CHECK(many.p99 == Approx(4.96));
  CHECK(std::isnan(spread({}).p50));
}

TEST_CASE("the warm-up is not measured") {
  const TaskRecord record = steady(5, 1000, 100, 10);
  CHECK(measured_lengths_ns(record, 3).size() == 2);
  CHECK(measured_window(record, 3).start_ns == 1300);
  CHECK(measured_window(record, 3).end_ns == 1500);
  CHECK(measured_window(record, 9).length_ns() == 0);
}

TEST_CASE("work inside a long iteration is spread as its device time is") {
  TaskRecord low;
  low.iterations.push_back({0, 1000});
  low.work.add(0, 0);
  low.work.add(1000, 400);
  low.device_time.add(0, 0);
  low.device_time.add(500, 400);  // worked in the first half, held in the second
  low.device_time.add(1000, 400);
  CHECK(work_rate(low, {500, 1000}, low) == Approx(0));
  CHECK(work_rate(low, {0, 500}, low) == Approx(0.8));
}

TEST_CASE("an unfinished iteration counts by the device time it had") {
  TaskRecord low = steady(1, 0, 1000, 500);
  low.device_time.add(2000, 750);
  CHECK(work_rate(low, {1000, 2000}, low) == Approx(0.25));
  // Not one finished: the rate of exchange is that of the task alone.
  TaskRecord none;
  none.device_time.add(0, 0);
  none.device_time.add(1000, 300);
  const TaskRecord alone = steady(2, 0, 1000, 800);
  CHECK(work_rate(none, {0, 1000}, alone) == Approx(0.3));
  CHECK(std::isnan(work_rate(low, {0, 0}, low)));
}

namespace {

struct Pair {
  PhaseRecord alone_high, alone_low, together;
  Side high{"serve", 1, 3}, low{"train", 0, 1};
  Pair() {
    alone_high.high = steady(11, 0, 1e6, 1e5);
    alone_low.low = steady(4, 0, 10e6, 9e6);
    together.high = steady(11, 5e6, 1.2e6, 1e5);
    together.low = steady(2, 0, 20e6, 9e6);
    together.device_busy.add(0, 0);
    together.device_busy.add(100e6, 50e6);
  }
};

}  // namespace

TEST_CASE("rows compare each task with itself alone, in the window of the high task") {
  Pair pair;
  const auto rows =
      make_rows("fikit", pair.together, pair.high, pair.low, pair.alone_high, pair.alone_low);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].role == "high");
  CHECK(rows[0].task == "serve");
  CHECK(rows[0].completed == 10);
  CHECK(rows[0].jct_ms_mean == Approx(1.2));
  CHECK(rows[0].slowdown_p50 == Approx(1.2));
  CHECK(rows[0].slowdown_p99 == Approx(1.2));
  CHECK(rows[0].device_share == Approx(0.1 / 1.2));
  CHECK(rows[0].gpu_busy == Approx(0.5));
  CHECK(rows[0].valid);
  CHECK(rows[1].role == "low");
  CHECK(rows[1].throughput_ratio == Approx(0.5));
  CHECK(rows[1].device_share == Approx(0.45));
  CHECK(rows[1].completed == 0);  // none lies inside the window as a whole
  CHECK(std::isnan(rows[1].jct_ms_mean));
  CHECK(rows[1].valid);
}

TEST_CASE("a task compared with itself alone is 1") {
  Pair pair;
  const auto rows =
      make_rows("alone", pair.alone_low, pair.high, pair.low, pair.alone_high, pair.alone_low);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].role == "low");
  CHECK(rows[0].throughput_ratio == Approx(1));
  CHECK(rows[0].slowdown_p50 == Approx(1));
  CHECK(rows[0].device_share == Approx(0.9));
}

TEST_CASE("a player that was late makes its rows invalid") {
  Pair pair;
  pair.together.high->late_p99_ns = 0.021e6;
  auto rows =
      make_rows("share", pair.together, pair.high, pair.low, pair.alone_high, pair.alone_low);
  CHECK_FALSE(rows[0].valid);
  CHECK_FALSE(rows[1].valid);
  CHECK(rows[0].reason.find("slow-motion") != std::string::npos);
  pair.together.high->late_p99_ns = 0.019e6;
  rows = make_rows("share", pair.together, pair.high, pair.low, pair.alone_high, pair.alone_low);
  CHECK(rows[0].valid);
}

TEST_CASE("too few iterations, or a stalled phase, make its rows invalid") {
  Pair pair;
  pair.high.iterations_min = 11;
  auto rows =
      make_rows("share", pair.together, pair.high, pair.low, pair.alone_high, pair.alone_low);
  CHECK_FALSE(rows[0].valid);
  CHECK(rows[0].reason.find("10 iterations") != std::string::npos);
  pair.high.iterations_min = 3;
  pair.together.high = TaskRecord{};
  pair.together.stopped_because = "stalled";
  rows = make_rows("share", pair.together, pair.high, pair.low, pair.alone_high, pair.alone_low);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].reason == "stalled");
  CHECK(std::isnan(rows[1].throughput_ratio));
}

TEST_CASE("the JSON has every promised field, and null for what is not known") {
  Pair pair;
  const auto rows =
      make_rows("share", pair.together, pair.high, pair.low, pair.alone_high, pair.alone_low);
  Heading heading;
  heading.device = "NVIDIA H100";
  heading.simulated = true;
  heading.sharing = "mps";
  heading.slow_motion = 20;
  const auto json = to_json(heading, rows);
  for (const char* key : {"device", "simulated", "sharing", "slow_motion", "control_latency_us",
                          "player_late_p99_us", "rows"}) {
    INFO(key);
    CHECK(json.contains(key));
  }
  for (const char* key :
       {"policy", "task", "role", "completed", "jct_ms_mean", "p50_ms", "p99_ms", "slowdown_p50",
        "slowdown_p99", "throughput_ratio", "device_share", "gpu_busy", "valid"}) {
    INFO(key);
    CHECK(json["rows"][0].contains(key));
  }
  CHECK(json["rows"][1]["jct_ms_mean"].is_null());
}

TEST_CASE("the table says that it is simulated, and which rows do not count") {
  Pair pair;
  pair.together.stopped_because = "stalled";
  const auto rows =
      make_rows("share", pair.together, pair.high, pair.low, pair.alone_high, pair.alone_low);
  Heading heading;
  heading.simulated = true;
  heading.device = "NVIDIA H100";
  const std::string table = show_table(heading, rows);
  CHECK(table.starts_with("simulated: NVIDIA H100"));
  CHECK(table.find("INVALID: stalled") != std::string::npos);
  CHECK(table.find("nan") == std::string::npos);
}

namespace {

std::vector<Row> rows_of(const Pair& pair, const std::vector<std::string>& policies) {
  std::vector<Row> rows;
  const auto keep = [&](const std::string& policy, const PhaseRecord& phase) {
    for (Row& row : make_rows(policy, phase, pair.high, pair.low, pair.alone_high, pair.alone_low)) {
      rows.push_back(std::move(row));
    }
  };
  keep("alone", pair.alone_high);
  keep("alone", pair.alone_low);
  for (const std::string& policy : policies) keep(policy, pair.together);
  return rows;
}

}  // namespace

TEST_CASE("the table fits the terminal, with every figure, and ends in a sentence") {
  Pair pair;
  pair.high.task = "serving of a large language model";
  pair.low.task = "serving of a small language model";
  auto rows = rows_of(pair, {"share", "guarded mean_per_mille=30 p99_per_mille=50"});
  rows.back().valid = false;
  rows.back().reason = "the player was 120 us late, more than 2 % of the JCT alone: use a quieter machine";
  for (Row& row : rows) row.slowdown_mean = 1.2345;
  Heading heading;
  heading.simulated = true;
  heading.device = "simulated H100";
  heading.sharing = "time_slice";
  heading.bound = {30, 50};
  testing::check_fits([&](size_t width) { return show_table(heading, rows, width); }, kAnyWidth);
}

TEST_CASE("the verdict names the policy within the bound that lets the other do most") {
  Pair pair;
  Heading heading;
  auto rows = rows_of(pair, {"share", "priority", "guarded"});
  rows[4].jct_ms_mean = 1.01;  // priority
  rows[4].slowdown_p99 = 1.01;
  rows[5].throughput_ratio = 0.1;
  rows[6].jct_ms_mean = 1.02;  // guarded
  rows[6].slowdown_p99 = 1.04;
  rows[7].throughput_ratio = 0.3;
  CHECK(verdict(heading, rows) ==
        "serve is kept within its bound under guarded: it loses 2.0 % in the mean and 4.0 % at p99 (may: 3 % in the "
        "mean and 5 % at p99) in 10 iterations, and train does 30 % of what it does alone; under share it loses 20.0 % "
        "in the mean and 20.0 % at p99, and train does 50 % of what it does alone.");
  rows[6].slowdown_p99 = rows[4].slowdown_p99 = 1.06;
  heading.simulated = true;
  CHECK(verdict(heading, rows).starts_with(
      "Simulated: serve is over its bound everywhere, least under priority: it loses 1.0 % in the mean and 6.0 % at p99"));
}

TEST_CASE("the verdict judges by no row that is invalid") {
  Pair pair;
  Heading heading;
  auto rows = rows_of(pair, {"share", "guarded"});
  rows[4].valid = false;
  CHECK(verdict(heading, rows).find("under guarded") == std::string::npos);
  CHECK(verdict(heading, rows).ends_with("; 1 of 2 policies cannot be judged."));
  rows[2].valid = false;
  CHECK(verdict(heading, rows) == "no row of two programs together is valid: nothing can be said.");
}
