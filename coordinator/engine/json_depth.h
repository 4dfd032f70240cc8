// How deep JSON nests, checked before it is parsed: very deep nesting overflows the stack of the
// code that writes it out again. A callback of nlohmann's parser is too slow: with one, the parser
// goes through the whole list at the end of each object in it, and 64 KB take a second. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace lull::engine {

// True: an array or object stands in more than `most - 1` others. For text that is not JSON the
// answer may be either; the parser refuses such text, and goes no deeper before it does.
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
