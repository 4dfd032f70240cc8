#include "tools/measure/text_table.h"

#include <catch2/catch.hpp>

using namespace lull::command;

namespace {

TextTable table_of_two() {
  TextTable table({TextTable::key_column("ID"),
                   TextTable::name_column("TASK"),
                   {"FIRST"},
                   {"SECOND"},
                   {"THIRD"}});
  table.add({"1", "serve", "1.25 ms", "12.5 %", "3"});
  table.add({"2", "a long name of the first task", "900 us", "0.1 %", "12345"});
  table.add({"3", "a long name of the other task", "-", "99.9 %", "0"});
  return table;
}

}  // namespace

TEST_CASE("a table is as wide as it has to be where nothing has to fit") {
  CHECK(table_of_two().text(kAnyWidth) ==
        "  ID  TASK                             FIRST  SECOND  THIRD\n"
        "   1  serve                          1.25 ms  12.5 %      3\n"
        "   2  a long name of the first task   900 us   0.1 %  12345\n"
        "   3  a long name of the other task        -  99.9 %      0\n");
}

TEST_CASE("names are shortened in the middle, and what tells them apart stays") {
  CHECK(table_of_two().text(50) ==
        "  ID  TASK                    FIRST  SECOND  THIRD\n"
        "   1  serve                 1.25 ms  12.5 %      3\n"
        "   2  a long na..irst task   900 us   0.1 %  12345\n"
        "   3  a long na..ther task        -  99.9 %      0\n");
  TextTable table({TextTable::name_column("TASK")});
  table.add({"train of the first network of two"});
  table.add({"train of the third network of two"});
  const std::string text = table.text(16);
  CHECK(text.find("first") != std::string::npos);
  CHECK(text.find("third") != std::string::npos);
}

TEST_CASE("where figures have no room the table goes on below, with the names again") {
  CHECK(table_of_two().text(34) ==
        "  ID  TASK             FIRST\n"
        "   1  serve          1.25 ms\n"
        "   2  a lon..t task   900 us\n"
        "   3  a lon..r task        -\n"
        "\n"
        "  ID  TASK           SECOND  THIRD\n"
        "   1  serve          12.5 %      3\n"
        "   2  a lon..t task   0.1 %  12345\n"
        "   3  a lon..r task  99.9 %      0\n");
}

TEST_CASE("a live view leaves columns out instead, the least telling first") {
  TextTable table({TextTable::name_column("TASK"),
                   {"RARE", TextTable::Align::kRight, TextTable::Is::kFigure, 1},
                   {"OFTEN", TextTable::Align::kRight, TextTable::Is::kFigure, 2}});
  table.add({"serve", "11111111", "2"});
  CHECK(table.lines(40) ==
        std::vector<std::string>{"  TASK       RARE  OFTEN", "  serve  11111111      2"});
  CHECK(table.lines(20) == std::vector<std::string>{"  TASK   OFTEN", "  serve      2"});
  CHECK(table.lines(10) == std::vector<std::string>{"  TASK", "  serve"});
}

TEST_CASE("texts are wrapped in their column, and notes below their row") {
  TextTable table({TextTable::key_column("", TextTable::Align::kLeft), TextTable::text_column("")},
                  /*indent=*/0);
  table.add({"fail", "no driver is found on this machine: install one"});
  table.note("a note that is long enough to go on in a second line");
  CHECK(table.text(36) ==
        "fail  no driver is found on this\n"
        "      machine: install one\n"
        "    a note that is long enough to go\n"
        "      on in a second line\n");
  CHECK(table.text(kAnyWidth) ==
        "fail  no driver is found on this machine: install one\n"
        "    a note that is long enough to go on in a second line\n");
}

TEST_CASE("a word that is wider than the line stays whole") {
  CHECK(wrapped("see /a/very/long/path/of/a/file now", 12, 2) ==
        "see\n  /a/very/long/path/of/a/file\n  now");
  CHECK(wrapped("", 10) == "");
  CHECK(wrapped("short", 10) == "short");
  CHECK(wrapped("a b", 1) == "a\nb");
}

TEST_CASE("characters of several bytes take one column and are never parted") {
  TextTable table({TextTable::name_column("TASK"), {"P50"}});
  table.add({"größer", "1 ms"});
  table.add({"klein", "10 ms"});
  CHECK(table.text(kAnyWidth) ==
        "  TASK      P50\n"
        "  größer   1 ms\n"
        "  klein   10 ms\n");
  const std::string cut = cut_middle("ääääääääää", 5);
  CHECK(cut == "ä..ää");
  CHECK(width_of(cut) == 5);
}

TEST_CASE("control characters of a name are shown as blanks") {
  TextTable table({TextTable::name_column("TASK")});
  table.add({"evil\x1b[2J\nname"});
  CHECK(table.text(kAnyWidth) == "  TASK\n  evil [2J name\n");
}
