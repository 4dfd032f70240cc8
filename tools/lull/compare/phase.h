// One phase of a comparison: one task alone, or two together, run until there is enough to measure.
// Called by compare.cc; waits, in real time, within the bounds named here.
#pragma once

#include <functional>
#include <optional>

#include "tools/lull/compare/task.h"

namespace lull::command {

// How long to measure. Without iterations and seconds: as many iterations as fit a short while.
struct Goal {
  std::optional<uint64_t> iterations;  // of the measured task
  std::optional<double> seconds;       // of model time
};

// Real time. The defaults make a pair under four policies take under 90 s.
inline constexpr double kDefaultIterations = 30;
inline constexpr double kCommandIterations = 5;
inline constexpr double kPhaseShortest_s = 4;  // default goal: measured at least this long ...
inline constexpr double kPhaseEnough_s = 12;   // ... and stopped here with a few iterations ...
inline constexpr double kPhaseLongest_s = 30;  // ... or here with any
inline constexpr double kReadyWait_s = 60;
inline constexpr double kStallWait_s = 60;  // no iteration finished for this long
inline constexpr double kFinishWait_s = 4;
// Before the high task comes, the low task may have launched as much ahead as many iterations of
// the high task take. Nothing can hold that work back any more, so it is not measured: the warm-up
// lasts until the low task has finished the iteration it was in, or this long.
inline constexpr double kSettleWait_s = 6;
inline constexpr uint64_t kFewIterations = 8;

inline constexpr size_t kWarmupIterations = 3;  // of a played task, the high one or alone
inline constexpr size_t kLowWarmupIterations = 1;
inline constexpr size_t kCommandWarmupIterations = 1;

struct PhasePlan {
  std::optional<TaskPlan> high, low;
  size_t high_warmup = 0, low_warmup = 0;
  Goal goal;
};

// `progress` is called a few times a second with "12 iterations". The error is one line; after a
// stop signal (StopSignals) it is empty. `device_name` is filled in when a player reports it.
std::expected<PhaseRecord, std::string> run_phase(
    const PhasePlan& plan, const Lab& lab, int serial,
    const std::function<void(const std::string&)>& progress, std::string& device_name);

}  // namespace lull::command
