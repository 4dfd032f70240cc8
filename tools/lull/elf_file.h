// What an ELF file says about itself, as far as preloading is concerned. Pure: bytes in, facts
// out; every offset is checked, so that a truncated or hostile file gives an error or fewer facts,
// never a bad read. Called by `lull doctor` and `lull run`. Knows nothing of the file system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <vector>

namespace lull::command {

struct ElfFacts {
  bool is_64_bit = false;
  uint16_t machine = 0;              // EM_X86_64, ...
  bool has_interpreter = false;      // PT_INTERP: ld.so starts it, so LD_PRELOAD is read
  bool is_dynamic = false;           // PT_DYNAMIC
  std::vector<std::string> needed;   // DT_NEEDED
  std::string rpath;                 // DT_RPATH (searched before LD_LIBRARY_PATH)
  std::string runpath;               // DT_RUNPATH (searched after)
  std::vector<std::string> imports;  // undefined dynamic symbols
  // A call of dlopen whose flags are a constant with RTLD_DEEPBIND (x86-64; flags that are
  // computed are not seen).
  bool opens_deepbind = false;
  // Device code that launches kernels itself, as far as it is not compressed.
  bool launches_on_device = false;

  bool needs(std::string_view prefix) const;
  bool imports_name(std::string_view name) const;
};

std::expected<ElfFacts, std::string> read_elf(std::span<const std::byte> file);

}  // namespace lull::command
