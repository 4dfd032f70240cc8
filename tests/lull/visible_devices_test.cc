#include "tools/lull/visible_devices.h"

#include <catch2/catch.hpp>

namespace lull::command {
namespace {

const std::vector<Gpu> kMachine = {{"GPU-aa", "H100"}, {"GPU-ab", "H100"}, {"GPU-c", "H100"}};

std::string list(const std::optional<std::string>& wanted, uint32_t own) {
  const auto visible = all_devices(wanted, kMachine);
  if (!visible) return visible.error();
  CHECK(visible->own == own);
  return visible->list;
}

}  // namespace

TEST_CASE("without a mask all GPUs are the program's own") {
  CHECK(list(std::nullopt, 3) == "GPU-aa,GPU-ab,GPU-c");
}

TEST_CASE("its own come first, in its order, then the others") {
  CHECK(list("2", 1) == "GPU-c,GPU-aa,GPU-ab");
  CHECK(list(" 2 , 0", 2) == "GPU-c,GPU-aa,GPU-ab");
  CHECK(list("GPU-c,1", 2) == "GPU-c,GPU-ab,GPU-aa");
}

TEST_CASE("as the driver does, it stops at what names no GPU") {
  CHECK(list("1,9,0", 1) == "GPU-ab,GPU-aa,GPU-c");
  CHECK(list("1,-1,0", 1) == "GPU-ab,GPU-aa,GPU-c");
  CHECK(list("", 0) == "CUDA_VISIBLE_DEVICES names no GPU of this machine");
  CHECK(list("nothing", 0) == "CUDA_VISIBLE_DEVICES names no GPU of this machine");
  CHECK(list("0,0", 0) == "CUDA_VISIBLE_DEVICES names a GPU twice");
}

TEST_CASE("what the driver cannot move between is not shown") {
  CHECK_FALSE(all_devices("0", {}));
  CHECK_FALSE(all_devices("0", {{"GPU-a", "H100"}, {"GPU-b", "A100"}}));
  CHECK_FALSE(all_devices("0", {{"MIG-a", "H100"}}));
  CHECK_FALSE(all_devices("MIG-a", kMachine));
}

}  // namespace lull::command
