// What every table has to keep, at any width: it fits, and no figure is lost or cut.
#pragma once

#include <catch2/catch.hpp>
#include <set>
#include <sstream>
#include <string>

#include "tools/measure/short_names.h"

namespace lull::command::testing {

inline constexpr size_t kWidths[] = {60, 80, 200};

inline std::set<std::string> figures_of(const std::string& text) {
  std::set<std::string> figures;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    if (word.find_first_of("0123456789") == 0) figures.insert(word);
  }
  return figures;
}

// `shown(width)` is the table at that width.
template <typename Shown>
void check_fits(Shown&& shown, size_t any_width) {
  const std::set<std::string> all = figures_of(shown(any_width));
  for (const size_t width : kWidths) {
    const std::string text = shown(width);
    INFO(width << "\n" << text);
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) CHECK(width_of(line) <= width);
    const std::set<std::string> figures = figures_of(text);
    for (const std::string& figure : all) {
      INFO(figure);
      CHECK(figures.contains(figure));
    }
    // The last line is the end of a sentence.
    CHECK(text.ends_with(".\n"));
  }
}

}  // namespace lull::command::testing
