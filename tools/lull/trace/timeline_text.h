// Lanes drawn with characters: one line a lane, one column a stretch of time, the height of the
// block the share of that stretch in which the lane was busy. Used by `lull trace timeline`. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tools/lull/trace/lanes.h"
#include "tools/lull/trace/report.h"

namespace lull::trace {

struct TimelineOptions {
  int64_t from_ns = 0, until_ns = 0;  // as in the trace
  int64_t origin_ns = 0;              // what the axis counts from
  size_t width = 100;                 // of the terminal
  bool ascii = false;                 // no block characters
};

std::string timeline_text(const Lanes& lanes, const Report& report, const TimelineOptions& options);

}  // namespace lull::trace
