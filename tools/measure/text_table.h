// The one writer of tables: columns of text in lines that fit their reader's width. Used by every
// command that prints a table; any thread. Pure: who calls says how wide
// (tools/lull/output_width.h).
//
// What becomes of a row that is wider than the line, in this order:
//   1. texts are wrapped in their column, names are shortened in the middle (short_names.h)
//   2. the table goes on below, the names again in front of the columns that had no room; or, where
//      it was asked for, the least telling columns are left out
// A figure is never shortened.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/command_line/wrapped.h"
#include "tools/measure/short_names.h"

namespace lull::command {

inline constexpr size_t kAnyWidth =
    static_cast<size_t>(-1);  // a pipe or a file: nothing has to fit

class TextTable {
 public:
  enum class Align { kLeft, kRight };
  enum class Is {
    kFigure,  // stands as it is
    kKey,     // so does this; it is there again where the table goes on below
    kName,    // is shortened; it is there again, too
    kText,    // is wrapped; the last column
  };
  struct Column {
    std::string heading;
    Align align = Align::kRight;
    Is is = Is::kFigure;
    int keep = 0;  // where columns are left out: the lowest go first
    ShortenOne shorten = cut_middle;
  };
  static Column name_column(std::string heading, ShortenOne shorten = cut_middle) {
    return {std::move(heading), Align::kLeft, Is::kName, 0, shorten};
  }
  static Column key_column(std::string heading, Align align = Align::kRight) {
    return {std::move(heading), align, Is::kKey};
  }
  static Column word_column(std::string heading) { return {std::move(heading), Align::kLeft}; }
  static Column text_column(std::string heading) {
    return {std::move(heading), Align::kLeft, Is::kText};
  }

  // `indent`: blanks in front of each line.
  explicit TextTable(std::vector<Column> columns, size_t indent = 2)
      : columns_(std::move(columns)), indent_(indent) {}

  // A cell for each column. Control characters are shown as blanks.
  void add(std::vector<std::string> cells);
  // A sentence under the row that was added last.
  void note(std::string text);
  bool empty() const { return rows_.empty(); }

  // The heading first, where any column has one. Each line ends with a newline, without blanks
  // before it.
  std::string text(size_t width) const;
  // One line for the heading and one for each row, whole columns left out until they fit; without
  // notes and newlines.
  std::vector<std::string> lines(size_t width) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    std::vector<std::string> notes;
  };
  // Which columns stand side by side, how wide each is, and the widest line.
  struct Layout {
    std::vector<std::vector<size_t>> blocks;
    std::vector<size_t> widths;
    size_t widest = 0;
  };
  bool is_in_each_block(size_t column) const;
  Layout layout(const std::vector<size_t>& columns, const std::vector<size_t>& natural,
                size_t width, size_t name_chars) const;
  Layout best_layout(const std::vector<size_t>& columns, size_t width) const;
  // The heading and each row as they are shown: names shortened.
  std::vector<std::vector<std::string>> shown_rows(const Layout& layout) const;
  std::string line(const Layout& layout, const std::vector<size_t>& block,
                   const std::vector<std::string>& cells) const;
  std::vector<size_t> all_columns() const;

  std::vector<Column> columns_;
  size_t indent_;
  std::vector<Row> rows_;
};

}  // namespace lull::command
