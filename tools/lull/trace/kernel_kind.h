// What sort of work a kernel does, judged by its name: one table of rules, read by `show`, JSON and
// the HTML report. A name says what its author meant, so this is for people; nothing schedules by
// it. Any thread. Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tools/lull/trace/report.h"

namespace lull::trace {

// gemm, attention, elementwise, reduction, copy, collective, other. `name`: demangled.
std::string_view work_kind(UnitKind unit, std::string_view name);

struct KindRow {
  std::string_view kind;
  uint64_t count = 0;
  double total_ns = 0;  // of the kernels whose total is known
  bool estimated = false;
};
// The kinds that a report has, longest first.
std::vector<KindRow> kind_rows(const Report& report);

}  // namespace lull::trace
