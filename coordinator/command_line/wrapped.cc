#include "coordinator/command_line/wrapped.h"

#include <algorithm>

namespace lull::command {
namespace {

// "300", "(15": it ends in a digit, and is no name of something.
bool is_figure(std::string_view word) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return digit(word.back()) && std::none_of(word.begin(), word.end(), letter);
}

// A line may end at this blank: not between a figure and its unit.
bool parts_words(std::string_view text, size_t i) {
  if (text[i] != ' ' || i == 0 || text[i - 1] == ' ') return false;
  if (i + 1 == text.size() || text[i + 1] == ' ') return true;
  const std::string_view before = text.substr(0, i);
  return !is_figure(before.substr(before.rfind(' ') + 1));
}

}  // namespace

size_t width_of(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string wrapped(std::string_view text, size_t width, size_t indent) {
  std::string out;
  size_t room = width;
  for (;;) {
    // The last blank that a line can end at; the first one where none is near enough.
    size_t at = std::string_view::npos, chars = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      if (parts_words(text, i)) {
        if (chars > room && at != std::string_view::npos) break;
        at = i;
      }
      if ((text[i] & 0xc0) != 0x80) ++chars;
    }
    if (width_of(text) <= room || at == std::string_view::npos) return out.append(text);
    out.append(text.substr(0, at)).append("\n").append(indent, ' ');
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(' ', at)));
    room = width > indent ? width - indent : 1;
  }
}

}  // namespace lull::command
