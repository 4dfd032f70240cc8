// What `lull doctor` finds: one line a check. A plain list; program_check.h and machine_check.h
// fill it, doctor.cc prints it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lull::command {

enum class Verdict { kOk, kWarn, kFail };

struct Finding {
  Verdict verdict = Verdict::kOk;
  std::string check;  // what was looked at, two or three words
  std::string seen;   // what was found
  std::string mend;   // what to do; empty when ok
};
using Findings = std::vector<Finding>;

// The table, in lines of at most `width` characters, and one sentence: whether lull works here, and
// what to mend first. Pure.
std::string findings_text(const Findings& findings, size_t width);

}  // namespace lull::command
