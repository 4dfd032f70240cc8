// Columns of text, each as wide as its widest cell. Used by what `lull trace` prints; any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lull::trace {

class TextTable {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string heading;
    Align align = Align::kRight;
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  // Characters that all columns but the last take, with the blanks between.
  size_t width_before_last() const;
  // Each line indented by two blanks, ended by a newline, without blanks at its end.
  std::string text() const;

 private:
  std::vector<size_t> widths() const;
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lull::trace
