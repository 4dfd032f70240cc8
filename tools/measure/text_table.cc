#include "tools/measure/text_table.h"

#include <algorithm>
#include <numeric>

namespace lull::command {
namespace {

constexpr size_t kBetween = 2, kNoteIndent = 4;  // of notes: after the table's own
// What a name and a wrapped text keep before the table goes on below.
constexpr size_t kLeastName = 12, kLeastText = 24;

std::string plain(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = ' ';
  }
  return text;
}

std::string filled(const std::string& text, size_t width, TextTable::Align align) {
  const std::string blanks(width - std::min(width, width_of(text)), ' ');
  return align == TextTable::Align::kRight ? blanks + text : text + blanks;
}

// The lines after the first, further to the right.
std::string indented(const std::string& lines, size_t by) {
  std::string out;
  for (const char c : lines) {
    out += c;
    if (c == '\n') out.append(by, ' ');
  }
  return out;
}

}  // namespace

void TextTable::add(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = plain(std::move(cell));
  cells.resize(columns_.size());
  rows_.push_back({std::move(cells), {}});
}

void TextTable::note(std::string text) { rows_.back().notes.push_back(plain(std::move(text))); }

bool TextTable::is_in_each_block(size_t column) const {
  return columns_[column].is == Is::kKey || columns_[column].is == Is::kName;
}

std::vector<size_t> TextTable::all_columns() const {
  std::vector<size_t> all(columns_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

// `columns` in as few blocks as there have to be, with names of at most `name_chars`.
TextTable::Layout TextTable::layout(const std::vector<size_t>& columns,
                                    const std::vector<size_t>& natural, size_t width,
                                    size_t name_chars) const {
  Layout out;
  out.widths = natural;
  size_t keys = indent_;
  for (const size_t i : columns) {
    if (columns_[i].is == Is::kName) {
      out.widths[i] = std::max(width_of(columns_[i].heading), std::min(natural[i], name_chars));
    }
    if (is_in_each_block(i)) keys += out.widths[i] + kBetween;
  }
  std::vector<bool> in_block(columns_.size());
  size_t used = keys;
  const auto end_block = [&] {
    out.blocks.emplace_back();
    for (const size_t i : columns) {
      if (is_in_each_block(i) || in_block[i]) out.blocks.back().push_back(i);
    }
    out.widest = std::max(out.widest, used - kBetween);
    in_block.assign(columns_.size(), false);
    used = keys;
  };
  for (const size_t i : columns) {
    if (is_in_each_block(i)) continue;
    const bool is_text = columns_[i].is == Is::kText;
    const size_t least = is_text ? std::min(natural[i], kLeastText) : natural[i];
    if (used > keys && (width < used || width - used < least)) end_block();
    if (is_text) {
      out.widths[i] = std::min(natural[i], std::max(least, width > used ? width - used : 0));
    }
    in_block[i] = true;
    used += out.widths[i] + kBetween;
  }
  if (used > keys || out.blocks.empty()) end_block();
  return out;
}

// The longest names that make the table no longer.
TextTable::Layout TextTable::best_layout(const std::vector<size_t>& columns, size_t width) const {
  std::vector<size_t> natural;
  size_t most = kLeastName;
  for (size_t i = 0; i < columns_.size(); ++i) {
    natural.push_back(width_of(columns_[i].heading));
    for (const Row& row : rows_) natural[i] = std::max(natural[i], width_of(row.cells[i]));
    if (columns_[i].is == Is::kName) most = std::max(most, natural[i]);
  }
  if (width == kAnyWidth) return layout(columns, natural, width, most);
  Layout best = layout(columns, natural, width, kLeastName);
  for (size_t chars = kLeastName + 1; chars <= most; ++chars) {
    Layout next = layout(columns, natural, width, chars);
    if (next.blocks.size() > best.blocks.size() || next.widest > width) break;
    best = std::move(next);
  }
  return best;
}

std::vector<std::vector<std::string>> TextTable::shown_rows(const Layout& layout) const {
  std::vector<std::vector<std::string>> out(rows_.size() + 1);
  for (size_t i = 0; i < columns_.size(); ++i) {
    std::vector<std::string> cells;
    bool fit = true;
    for (const Row& row : rows_) {
      cells.push_back(row.cells[i]);
      fit = fit && width_of(row.cells[i]) <= layout.widths[i];
    }
    if (columns_[i].is == Is::kName && !fit) {
      cells = shorten_names(cells, layout.widths[i], columns_[i].shorten);
      // Where even what tells them apart is too long.
      for (std::string& cell : cells) cell = cut_middle(cell, layout.widths[i]);
    }
    out.front().push_back(columns_[i].heading);
    for (size_t row = 0; row < cells.size(); ++row) out[row + 1].push_back(std::move(cells[row]));
  }
  return out;
}

std::string TextTable::line(const Layout& layout, const std::vector<size_t>& block,
                            const std::vector<std::string>& cells) const {
  std::string out(indent_, ' ');
  for (const size_t i : block) {
    if (i != block.front()) out.append(kBetween, ' ');
    if (columns_[i].is == Is::kText) {
      out += indented(wrapped(cells[i], layout.widths[i]), out.size());
    } else {
      out += filled(cells[i], layout.widths[i], columns_[i].align);
    }
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out;
}

std::string TextTable::text(size_t width) const {
  const Layout chosen = best_layout(all_columns(), width);
  const auto rows = shown_rows(chosen);
  const std::string blanks(indent_ + kNoteIndent, ' ');
  const bool heads = std::any_of(columns_.begin(), columns_.end(),
                                 [](const Column& column) { return !column.heading.empty(); });
  std::string out;
  for (const auto& block : chosen.blocks) {
    if (!out.empty()) out += '\n';
    for (size_t i = heads ? 0 : 1; i < rows.size(); ++i) {
      out += line(chosen, block, rows[i]) + '\n';
      if (i == 0 || &block != &chosen.blocks.back()) continue;
      for (const std::string& note : rows_[i - 1].notes) {
        out += wrapped(blanks + note, width, blanks.size() + kBetween) + '\n';
      }
    }
  }
  return out;
}

std::vector<std::string> TextTable::lines(size_t width) const {
  std::vector<size_t> columns = all_columns();
  Layout chosen = best_layout(columns, width);
  while (chosen.blocks.size() > 1 || chosen.widest > width) {
    auto least = columns.end();
    for (auto i = columns.begin(); i != columns.end(); ++i) {
      if (columns_[*i].is == Is::kName) continue;
      if (least == columns.end() || columns_[*i].keep < columns_[*least].keep) least = i;
    }
    if (least == columns.end()) break;
    columns.erase(least);
    chosen = best_layout(columns, width);
  }
  std::vector<std::string> out;
  for (const auto& row : shown_rows(chosen))
    out.push_back(line(chosen, chosen.blocks.front(), row));
  return out;
}

}  // namespace lull::command
