// A Report as tables for the terminal: what `lull trace show` prints. One thread. Pure but for the
// symbol tables that CallSites reads.
#pragma once

#include <string>

#include "tools/lull/trace/report_json.h"

namespace lull::trace {

struct TextOptions {
  size_t top = 20;  // kernels
  SortBy by = SortBy::kTime;
  size_t width = 120;  // of the terminal; names and texts are shortened or wrapped to it, figures are not
};

std::string report_text(const Report& report, const TextOptions& options, CallSites& sites);

// One sentence: which kernel took the time, how busy the GPU was, who waited for whom.
std::string verdict_text(const Report& report);

// One line: what the file is, who recorded it, when, where; says "simulated" where it is.
std::string heading_line(const Report& report);

// "1.23 ms"; "-" for what is not known.
std::string time_text(double ns, bool known = true);

}  // namespace lull::trace
