// Jobs from files: our own JSON, and three public traces as they are published (README.md has the
// columns and their sources). What a trace does not say (memory, use, iterations) is drawn from the
// seed as for made jobs. Reads files; errors are one line.
#pragma once

#include <expected>
#include <string>

#include "tools/simulate/cluster/job_spec.h"

namespace lull::simulate::cluster {

enum class TraceFormat : uint8_t { kOwn, kPhilly, kHelios, kPai };

// `limit`: the first so many jobs by arrival; 0: all of them.
[[nodiscard]] std::expected<JobSpecs, std::string> read_jobs(const std::string& path,
                                                             TraceFormat format, uint64_t seed,
                                                             uint64_t limit = 0);
[[nodiscard]] std::expected<JobSpecs, std::string> parse_jobs(const std::string& text,
                                                              TraceFormat format, uint64_t seed,
                                                              uint64_t limit = 0);

}  // namespace lull::simulate::cluster
