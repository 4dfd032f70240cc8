// How deep JSON nests, looked at before it is parsed: what is nested without end overflows the
// stack of who writes it out again. Not by a callback of nlohmann's parser: with one, the parser
// looks through the whole list again at the end of each object in it, so that 64 KB take a second.
// Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace lull::engine {

// True: an array or object stands in more than `most - 1` others. Text that is no JSON may get
// either answer; the parser refuses it, and goes no deeper before it does.
constexpr bool nests_deeper(std::string_view text, int most) {
  int depth = 0;
  bool quoted = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') quoted = !quoted;
    if (quoted) {
      if (c == '\\') ++at;
    } else if (c == '[' || c == '{') {
      if (++depth > most) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace lull::engine
