#include "tools/lull/trace/kernel_display.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "tests/seed.h"
#include "tools/lull/trace/call_site.h"

using namespace lull::trace;

TEST_CASE("mangled names are shown demangled, others as they are") {
  CHECK(display_name("_Z9vectorAddPKfS0_Pfi") ==
        "vectorAdd(float const*, float const*, float*, int)");
  CHECK(display_name("Memcpy HtoD (Pinned -> Device)") == "Memcpy HtoD (Pinned -> Device)");
  CHECK(display_name("_Znonsense!") == "_Znonsense!");
  CHECK(display_name("a\nb") == "a b");
  CHECK(display_name("void$20f$3cint$3e$28$29") == "void f<int>()");
}

TEST_CASE("long names lose return type and parameters first, then template arguments") {
  const std::string name =
      "void at::native::elementwise<4, std::array<char*, 2ul> >(int, std::array<char*, 2ul>)";
  CHECK(shorten_name(name, 200) == name);
  CHECK(shorten_name(name, 60) == "at::native::elementwise<4, std::array<char*, 2ul> >");
  CHECK(shorten_name(name, 40) == "at::native::elementwise<..>");
  const std::string cut = shorten_name(name, 20);
  CHECK(cut.size() == 20);
  CHECK(cut.find("..") != std::string::npos);
  CHECK(shorten_name("Memcpy DtoH (Device -> Pageable)", 20).size() == 20);
}

extern "C" __attribute__((visibility("default"), noinline)) void lull_test_call_site_target() {
  asm volatile("");
}

TEST_CASE("a call site is shown by the symbols of the file it names") {
  Dl_info info{};
  REQUIRE(dladdr(reinterpret_cast<void*>(&lull_test_call_site_target), &info) != 0);
  const auto offset = reinterpret_cast<uintptr_t>(&lull_test_call_site_target) -
                      reinterpret_cast<uintptr_t>(info.dli_fbase);
  CallSites sites;
  const auto frames =
      sites.frames(fmt::format("/proc/self/exe+{:#x};/nowhere/lib.so+0x12;garbage;", offset));
  REQUIRE(frames.size() == 3);
  CHECK(frames[0] == "lull_test_call_site_target [exe]");
  CHECK(frames[1] == "lib.so+0x12");
  CHECK(frames[2] == "garbage");
  CHECK(sites.line("/nowhere/a+0x1;/nowhere/b+0x2;/nowhere/c+0x3", 2) == "a+0x1 < b+0x2 < ..");
}

TEST_CASE("symbols of files that are none are none") {
  const std::string junk(4096, '\x7f');
  const auto bytes = std::as_bytes(std::span(junk));
  CHECK(lull::command::ElfSymbols(bytes).at(16).empty());
  CHECK(lull::command::ElfSymbols(bytes.first(3)).at(0).empty());
}

TEST_CASE("names that differ are shown so that they differ, at any width") {
  const std::vector<std::string> names = {
      "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
      "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>)",
      "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>, "
      "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::Half>)",
      "void at::native::vectorized_elementwise_kernel<2, at::native::CUDAFunctor_add<float>, "
      "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>)",
      "void at::native::vectorized_elementwise_kernel<4, at::native::GeluFunctor<float>, "
      "std::array<char*, 2ul> >(int, at::native::GeluFunctor<float>)",
      "gemm_64x64<1>(float*)",
      "gemm_64x64<1, 2>(float*)",
      "Memcpy DtoH (Device -> Pageable)"};
  for (size_t chars = 8; chars < 200; ++chars) {
    const auto shown = shorten_names(names, chars);
    CHECK(std::set<std::string>(shown.begin(), shown.end()).size() == names.size());
    if (chars < 40) continue;
    for (const std::string& name : shown) {
      INFO(name);
      CHECK(name.size() <= chars);
    }
  }
  const auto shown = shorten_names(names, 60);
  CHECK(shown[1].find("c10") != std::string::npos);
  CHECK(shown[3].find("Gelu") != std::string::npos);
  // The same name is the same in each row.
  CHECK(shorten_names({names[0], names[1], names[0]}, 40)[0] ==
        shorten_names({names[0], names[1], names[0]}, 40)[2]);
}

TEST_CASE("made-up names that differ in one token stay apart") {
  std::mt19937_64 random(lull::tests::test_seed());
  for (int round = 0; round < 200; ++round) {
    std::set<std::string> names;
    for (int n = 0; n < 12; ++n) {
      std::string name = "ns::kernel<";
      for (int argument = 0; argument < 8; ++argument) {
        name += (argument > 0 ? ", T" : "T") + std::to_string(random() % 2);
      }
      names.insert(name + ">");
    }
    const std::vector<std::string> all(names.begin(), names.end());
    for (const size_t chars : {8, 20, 30}) {
      const auto shown = shorten_names(all, chars);
      CHECK(std::set<std::string>(shown.begin(), shown.end()).size() == all.size());
    }
  }
}
