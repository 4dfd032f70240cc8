// A Report as tables for the terminal: what `lull trace show` prints. One thread. Pure but for the
// symbol tables that CallSites reads.
#pragma once

#include <string>

#include "tools/lull/trace/report_json.h"

namespace lull::trace {

struct TextOptions {
  size_t top = 20;  // kernels
  SortBy by = SortBy::kTime;
  size_t width = 120;  // of the terminal
};

std::string report_text(const Report& report, const TextOptions& options, CallSites& sites);

// One line: what the file is, who recorded it, when, where; says "simulated" where it is.
std::string heading_line(const Report& report);

// "1.23 ms"; "-" for what is not known.
std::string time_text(double ns, bool known = true);

}  // namespace lull::trace
