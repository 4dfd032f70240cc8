#include "tools/lull/elf_file.h"

#include <dlfcn.h>
#include <elf.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <random>
#include <string>

using namespace lull::command;

namespace {

std::vector<std::byte> file_bytes(const char* path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

}  // namespace

// Never called: the scan for RTLD_DEEPBIND is to find this very call in the test's own file.
extern "C" [[gnu::noinline, gnu::used]] void* open_deepbind(const char* path) {
  return dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
}

TEST_CASE("the reader knows its own program: dynamic, 64 bit, with its libraries and imports") {
  const auto facts = read_elf(file_bytes("/proc/self/exe"));
  REQUIRE(facts);
  CHECK(facts->is_64_bit);
  CHECK(facts->has_interpreter);
  CHECK(facts->is_dynamic);
  CHECK(facts->needs("libc.so"));
  CHECK_FALSE(facts->needs("libcuda.so"));
  CHECK(facts->imports_name("dlopen"));
  CHECK_FALSE(facts->imports_name("dlmopen"));
#if defined(__x86_64__)
  CHECK(facts->opens_deepbind);
#endif
}

TEST_CASE("a program without RTLD_DEEPBIND is not accused of it") {
  const auto facts = read_elf(file_bytes("/bin/sh"));
  REQUIRE(facts);
  CHECK_FALSE(facts->opens_deepbind);
  CHECK_FALSE(facts->launches_on_device);
}

TEST_CASE("what is no ELF file is refused by name") {
  const std::string text = "#!/bin/sh\n";
  CHECK(read_elf(std::as_bytes(std::span(text))).error() == "is no ELF file");
  CHECK_FALSE(read_elf({}));
}

TEST_CASE("headers of static, 32-bit and big-endian files are told apart") {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_machine = EM_X86_64;
  const auto as_bytes = [&] { return std::as_bytes(std::span(&header, 1)); };
  const auto bare = read_elf(as_bytes());
  REQUIRE(bare);
  CHECK_FALSE(bare->has_interpreter);
  CHECK_FALSE(bare->is_dynamic);
  header.e_ident[EI_DATA] = ELFDATA2MSB;
  CHECK_FALSE(read_elf(as_bytes()));
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_CLASS] = ELFCLASS32;
  const auto small = read_elf(as_bytes());
  REQUIRE(small);
  CHECK_FALSE(small->is_64_bit);
}

TEST_CASE("every truncation and any damage is read without a bad access") {
  const std::vector<std::byte> whole = file_bytes("/bin/sh");
  REQUIRE(whole.size() > 4096);
  for (size_t size = 0; size < 1024; ++size) (void)read_elf(std::span(whole).first(size));
  for (size_t size = 1024; size < whole.size(); size += 997)
    (void)read_elf(std::span(whole).first(size));
  const unsigned seed = 20;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int n = 0; n < 300; ++n) {
    std::vector<std::byte> damaged = whole;
    for (int k = 0; k < 8; ++k) {
      const size_t at = random() % (n % 2 ? 1024 : damaged.size());
      damaged[at] = static_cast<std::byte>(random());
    }
    (void)read_elf(damaged);
  }
  SUCCEED();
}
