// Whether liblull.so can work inside a given program: reads the file, never runs it.
// Called by `lull doctor PROGRAM` and, for one fact, by `lull run`.
#pragma once

#include <expected>
#include <string>
#include <vector>

#include "tools/lull/elf_file.h"
#include "tools/lull/findings.h"

namespace lull::command {

// The executable that really runs when `path` is executed: `path` itself, or what its #! names
// (followed through at most 4 scripts; `/usr/bin/env NAME` is looked up along PATH).
std::expected<std::string, std::string> real_executable(const std::string& path);

std::expected<ElfFacts, std::string> read_elf_file(const std::string& path);

// `path` as real_executable gives it.
Findings check_program(const std::string& path);
// A library that the program opens while it runs.
Findings check_plugin(const std::string& path);

}  // namespace lull::command
