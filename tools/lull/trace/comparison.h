// Two reports side by side: what each kernel costs in the one and in the other. Used by
// `lull trace diff`; one thread. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/lull/trace/report.h"

namespace lull::trace {

// One kernel over all its devices, in one file.
struct KernelSide {
  Total total;
  LogHistogram duration, gap;
};

// Kernels are the same when their ids are; what is left then when name, shape and shared memory
// are (another image or call site).
struct KernelChange {
  KernelInfo kernel;
  bool in_a = false, in_b = false;
  KernelSide a, b;
  double change_ns() const;  // of the total; unknown totals count as 0
};

std::vector<KernelChange> compare(const Report& a, const Report& b);  // largest change first

std::string comparison_text(const Report& a, const Report& b,
                            const std::vector<KernelChange>& changes, size_t top, size_t width);
nlohmann::ordered_json comparison_json(const Report& a, const Report& b,
                                       const std::vector<KernelChange>& changes);

}  // namespace lull::trace
