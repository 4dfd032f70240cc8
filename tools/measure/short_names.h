// Names that have to fit a column. Used by tables of every command; any thread. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/command_line/wrapped.h"

namespace lull::command {

// At most `chars` characters (at least 3), what is too long cut in the middle: "a long..of it".
std::string cut_middle(std::string_view name, size_t chars);

// Shortens one name to `chars` characters, whatever the others are.
using ShortenOne = std::string (*)(std::string_view name, size_t chars);

// All of a column's names. Names that differ are shown so that they differ: where `one` makes two
// of them equal, the tokens that tell them apart stay, what they have in common becomes "..", and
// what still fits is filled up. Longer than `chars` only where those tokens are.
std::vector<std::string> shorten_names(const std::vector<std::string>& names, size_t chars,
                                       ShortenOne one = cut_middle);

}  // namespace lull::command
