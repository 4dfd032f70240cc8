#include "tools/lull/trace/text_table.h"

#include <algorithm>

namespace lull::trace {
namespace {

constexpr size_t kIndent = 2, kBetween = 2;

// Columns of a terminal: bytes of UTF-8 that begin a character.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

std::vector<size_t> TextTable::widths() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    widths.push_back(width_of(columns_[i].heading));
    for (const auto& row : rows_) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  return widths;
}

size_t TextTable::width_before_last() const {
  size_t sum = kIndent;
  const auto all = widths();
  for (size_t i = 0; i + 1 < all.size(); ++i) sum += all[i] + kBetween;
  return sum;
}

std::string TextTable::text() const {
  const auto width = widths();
  std::string out;
  const auto line = [&](const auto& cell) {
    std::string text(kIndent, ' ');
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string& shown = cell(i);
      const std::string blanks(width[i] - width_of(shown), ' ');
      if (i > 0) text.append(kBetween, ' ');
      text += columns_[i].align == Align::kRight ? blanks + shown : shown + blanks;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  };
  line([&](size_t i) -> const std::string& { return columns_[i].heading; });
  for (const auto& row : rows_) line([&](size_t i) -> const std::string& { return row[i]; });
  return out;
}

}  // namespace lull::trace
