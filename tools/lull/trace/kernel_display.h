// Names and shapes of kernels as people read them. Used by everything that shows a trace; any
// thread. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/trace/events.h"

namespace lull::trace {

// The name of the kernel that is meant: those that lull-play builds carry it escaped.
std::string program_name(const std::string& name);

// For terminals: control characters, escapes among them, become spaces.
std::string without_controls(std::string text);

// The demangled name; names that are not mangled (copies, graphs, already demangled ones) as they
// are. Control characters become spaces.
std::string display_name(const std::string& name);

// `name` in at most `chars` characters (at least 8): first without the return type and the
// parameters, then with template arguments left out, <..>, then cut in the middle, "..".
std::string shorten_name(std::string_view name, size_t chars);

// All of a table's names. Names that differ are shown so that they differ: where `shorten_name` makes
// two of them equal, the tokens that tell them apart stay, what they have in common becomes "..", and
// what still fits is filled up. Longer than `chars` only where those tokens are.
std::vector<std::string> shorten_names(const std::vector<std::string>& names, size_t chars);

// "96x1x1 / 128x1x1"; empty for copies, memsets and graphs.
std::string shape_text(const KernelInfo& kernel);

std::string_view kind_name(UnitKind kind);  // kernel, graph, copy, memset

}  // namespace lull::trace
