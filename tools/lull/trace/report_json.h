// A Report as JSON (`lull trace show --json`, and inside the HTML report) and as CSV. Used by the
// show and export commands; one thread. Times are us, with three decimals. The README of this
// folder lists the fields.
#pragma once

#include <expected>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/lull/trace/call_site.h"
#include "tools/lull/trace/report.h"

namespace lull::trace {

enum class SortBy { kTime, kCount, kGap };

// Rows of `report.kernels` in the order asked for: by total time, by launches, or by the time that
// passed in gaps after them.
std::vector<const KernelRow*> sorted_kernels(const Report& report, SortBy by);

nlohmann::ordered_json report_json(const Report& report, SortBy by, CallSites& sites);

// One of the JSON's lists (kernels, tasks, streams, devices, held, iterations) as CSV, with a
// heading; lists inside rows are joined. The error is half a line.
std::expected<std::string, std::string> report_csv(const nlohmann::ordered_json& report,
                                                   const std::string& table);

}  // namespace lull::trace
