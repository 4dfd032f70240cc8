// The functions that an ELF file (64 bit, little endian) defines, by address: .symtab, and .dynsym
// where that has been stripped. Pure: bytes in, names out; every offset is checked, so that a
// truncated or hostile file gives fewer names, never a bad read. Used to show call sites.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lull::command {

class ElfSymbols {
 public:
  static constexpr size_t kMaxSymbols = 4U << 20;

  explicit ElfSymbols(std::span<const std::byte> file);

  // The function that holds the address (relative to where the file was loaded), as the linker
  // names it; empty when none does.
  std::string at(uint64_t offset) const;
  size_t size() const { return functions_.size(); }

 private:
  struct Function {
    uint64_t start = 0, length = 0;  // length 0: up to the next one
    uint32_t name = 0;               // in names_
  };
  std::vector<Function> functions_;  // by start
  std::string names_;                // NUL-terminated, one after the other
  uint64_t base_ = 0;                // lowest loaded address
};

}  // namespace lull::command
