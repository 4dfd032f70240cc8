// Jobs from files: our own JSON, and three public traces as they are published (README.md has the
// columns and their sources). What a trace does not say (memory, use, iterations) is drawn from the
// seed as for made jobs. Reads files; errors are one line.
#pragma once

#include <cstdint>
#include <expected>
#include <string>

#include "tools/simulate/cluster/job_spec.h"

namespace lull::simulate::cluster {

enum class TraceFormat : uint8_t { kOwn, kPhilly, kHelios, kPai };

// What a trace has that is no job here: rows, in a Philly log jobs.
struct LeftOut {
  uint64_t without_gpu = 0;
  uint64_t not_run = 0;     // never ran, or had not ended when the trace did
  uint64_t unreadable = 0;  // columns are missing, or say nothing that can be read
  std::string first;        // of the unreadable: where, and what is wrong

  uint64_t all() const { return without_gpu + not_run + unreadable; }
  // One line; empty: nothing is left out.
  std::string text() const;
};

struct JobFile {
  JobSpecs jobs;
  LeftOut left_out;
};

// `limit`: the first so many jobs by arrival; 0: all of them. A mistake in a file of our own is an
// error; of a public trace what cannot be read is left out and counted, and a file without any job
// is an error.
[[nodiscard]] std::expected<JobFile, std::string> read_jobs(const std::string& path,
                                                            TraceFormat format, uint64_t seed,
                                                            uint64_t limit = 0);
[[nodiscard]] std::expected<JobFile, std::string> parse_jobs(const std::string& text,
                                                             TraceFormat format, uint64_t seed,
                                                             uint64_t limit = 0);

}  // namespace lull::simulate::cluster
