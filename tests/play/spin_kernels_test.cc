#include "tools/play/spin_kernels.h"

#include <catch2/catch.hpp>

using namespace lull::play;

namespace {
size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}
}  // namespace

TEST_CASE("one entry is made for each distinct name") {
  Workload workload;
  workload.kernels = {{"f<int>", {1, 1, 1}, {32, 1, 1}, 0},
                      {"g", {1, 1, 1}, {32, 1, 1}, 0},
                      {"f<int>", {8, 1, 1}, {64, 1, 1}, 0}};
  const auto names = entry_names(workload);
  CHECK(names == std::vector<std::string>{"f$3cint$3e", "g", "f$3cint$3e"});
  const std::string ptx = spin_module_ptx(names);
  CHECK(occurrences(ptx, ".visible .entry ") == 2);
  CHECK(occurrences(ptx, ".visible .entry f$3cint$3e(") == 1);
  CHECK(occurrences(ptx, ".visible .entry g(") == 1);
}

TEST_CASE("the first parameter of every entry is the time it keeps the device busy") {
  const std::string ptx = spin_module_ptx({"a", "b"});
  CHECK(occurrences(ptx, "(\n  .param .u64 spin_ns,\n") == 2);
  CHECK(ptx.starts_with(".version"));
  CHECK(occurrences(ptx, ".target sm_52") == 1);
}
