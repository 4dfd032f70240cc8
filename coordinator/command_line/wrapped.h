// Text in lines that fit a terminal: of help, and of every command's output. Any thread. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lull::command {

// Columns of a terminal that `text` takes: bytes of UTF-8 that begin a character.
size_t width_of(std::string_view text);

// `text` in lines of at most `width` characters, broken at blanks; those after the first begin with
// `indent` blanks. A longer word stays whole. No newline at the end.
std::string wrapped(std::string_view text, size_t width, size_t indent = 0);

}  // namespace lull::command
