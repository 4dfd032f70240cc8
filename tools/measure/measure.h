// The arithmetic of `lull compare` and `lull simulate`: from what two tasks did to the rows of
// their tables. Pure: no clock, no files, no processes. Times are model ns, unstretched.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policies/vocabulary.h"
#include "tools/measure/text_table.h"

namespace lull::command {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// A quantity that only grows, known at some instants and taken as linear between them.
class Curve {
 public:
  // Points out of order, or lower than the last one, are left out.
  void add(double at_ns, double value);
  bool empty() const { return points_.empty(); }
  double last_at_ns() const { return points_.empty() ? 0 : points_.back().at_ns; }
  double last_value() const { return points_.empty() ? 0 : points_.back().value; }
  // Before the first point its value, after the last point that one's.
  double at(double at_ns) const;
  struct Point {
    double at_ns = 0, value = 0;
  };
  // The last point not after, and the first one after `at_ns`; the same one outside of both ends.
  std::pair<Point, Point> around(double at_ns) const;

 private:
  std::vector<Point> points_;
};

struct Window {
  double start_ns = 0, end_ns = 0;
  double length_ns() const { return end_ns - start_ns; }
};

struct Iteration {
  double start_ns = 0, end_ns = 0;
};

// What one task did in one phase.
struct TaskRecord {
  std::vector<Iteration> iterations;  // finished ones, in order, with those of the warm-up
  Curve work;              // recorded kernel time completed (players) or launches (commands)
  Curve device_time;       // time its kernels occupied the device
  double late_p99_ns = 0;  // how late the player made its calls; 0 for commands
};
struct PhaseRecord {
  std::optional<TaskRecord> high, low;
  Curve device_busy;            // at least one kernel of anybody running
  std::string stopped_because;  // why it ended before its goal; empty when it reached it
};

struct Spread {
  double mean = 0, p50 = 0, p99 = 0;  // NaN without values
};
// Quantiles by linear interpolation between the two nearest values.
Spread spread(std::vector<double> values);

// Iterations [warmup, end) of `record`: their lengths, and the window they span. The window of an
// empty list is empty.
std::vector<double> measured_lengths_ns(const TaskRecord& record, size_t warmup);
Window measured_window(const TaskRecord& record, size_t warmup);

// Work per ns inside the window; NaN for an empty window. Between two known points, work is spread
// as the task's device time is (it may have been held for a part of that time). Past the last known
// point it grows with the device time, at the exchange rate of the finished iterations (of
// `reference` when there is none).
double work_rate(const TaskRecord& record, const Window& window, const TaskRecord& reference);
double growth_share(const Curve& curve, const Window& window);

struct Row {
  std::string policy, task, role;
  uint64_t completed = 0;
  // NaN: not known; JSON null, "-" in the table.
  double jct_ms_mean, p50_ms, p99_ms, slowdown_p50, slowdown_p99, throughput_ratio, device_share,
      gpu_busy;
  bool valid = true;
  std::string reason;  // why it is not valid
  // Known to the simulator only; their columns are there where any row has them.
  double slowdown_mean = kUnknown;
  double response_ms_mean = kUnknown, response_p50_ms = kUnknown, response_p99_ms = kUnknown;
  double oracle_share = kUnknown, oracle0_share = kUnknown;
  double oracle_found_share = kUnknown;  // of what the oracle found a schedule for
};

struct Side {
  std::string task;
  size_t warmup = 0;
  uint64_t iterations_min = 1;  // fewer: the row is not valid
};

inline constexpr double kLateShareMax = 0.02;  // of the high task's mean JCT alone

// The rows of a phase: `alone_high` and `alone_low` are the phases in which each ran alone. A
// phase with one side only gives one row.
std::vector<Row> make_rows(const std::string& policy, const PhaseRecord& phase, const Side& high,
                           const Side& low, const PhaseRecord& alone_high,
                           const PhaseRecord& alone_low);

struct Heading {
  std::string device;
  bool simulated = false;
  std::string sharing;
  double slow_motion = 1;
  double control_latency_us = 0;
  double player_late_p99_us = 0;
  bool low_greedy = false;
  SlowdownBound bound = {};  // that the high task states
  // How sharp the oracle's figure is: "exact", "close", "estimate" or "bound"; empty: there is none.
  std::string oracle;
  std::string arrivals;  // empty: closed loop, or not simulated in one process
};

// The table in lines of at most `width` characters, ended by what verdict() says.
std::string show_table(const Heading& heading, const std::vector<Row>& rows,
                       size_t width = kAnyWidth);
// One sentence: which policy keeps the high task within its bound (guarded's preset where it states
// none) and lets the others do most; where none does, which costs it least; what both do under
// `share`.
std::string verdict(const Heading& heading, const std::vector<Row>& rows);
nlohmann::json to_json(const Heading& heading, const std::vector<Row>& rows);

}  // namespace lull::command
