// Replays a decision log, as `lulld --decision-log` writes it, through the engine of this program, and
// says in words what came of it. Called by `lull simulate --replay`; it simulates nothing: no device,
// no programs, only the recorded inputs at their recorded instants.
#pragma once

#include <expected>
#include <string>

namespace lull::simulate {

struct ReplayReport {
  std::string summary;     // one line
  std::string difference;  // one line; empty: every step gave what the log says, in the same order
  std::string note;        // one line, where the log ends early: what is whole was replayed
};

// The error is one line: the file cannot be read, is no decision log, is corrupt, or is empty.
std::expected<ReplayReport, std::string> replay_decisions(const std::string& path,
                                                          const std::string& own_version);

}  // namespace lull::simulate
