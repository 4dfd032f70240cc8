#include "tools/lull/elf_symbols.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace lull::command {
namespace {

template <typename T>
std::optional<T> read_at(std::span<const std::byte> file, uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, file.data() + offset, sizeof(T));
  return value;
}

}  // namespace

ElfSymbols::ElfSymbols(std::span<const std::byte> file) {
  const auto header = read_at<Elf64_Ehdr>(file, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB) {
    return;
  }
  bool any_part = false;
  for (unsigned n = 0; n < header->e_phnum && header->e_phentsize == sizeof(Elf64_Phdr); ++n) {
    const auto part = read_at<Elf64_Phdr>(file, header->e_phoff + n * sizeof(Elf64_Phdr));
    if (!part) break;
    if (part->p_type != PT_LOAD) continue;
    // Where the file was loaded, as dladdr and libunwind say it, is its first page.
    const uint64_t page = part->p_vaddr & ~uint64_t{4095};
    base_ = any_part ? std::min(base_, page) : page;
    any_part = true;
  }
  if (header->e_shentsize != sizeof(Elf64_Shdr)) return;
  const auto section = [&](unsigned n) {
    return read_at<Elf64_Shdr>(file, header->e_shoff + uint64_t{n} * sizeof(Elf64_Shdr));
  };
  for (const uint32_t wanted : {SHT_SYMTAB, SHT_DYNSYM}) {
    for (unsigned n = 0; n < header->e_shnum && functions_.empty(); ++n) {
      const auto table = section(n);
      if (!table) break;
      if (table->sh_type != wanted) continue;
      const auto strings = section(table->sh_link);
      if (!strings || strings->sh_offset > file.size()) continue;
      const uint64_t text_size =
          std::min<uint64_t>(strings->sh_size, file.size() - strings->sh_offset);
      const char* text = reinterpret_cast<const char*>(file.data()) + strings->sh_offset;
      const uint64_t count = std::min<uint64_t>(table->sh_size / sizeof(Elf64_Sym), kMaxSymbols);
      for (uint64_t i = 1; i < count; ++i) {
        const auto symbol = read_at<Elf64_Sym>(file, table->sh_offset + i * sizeof(Elf64_Sym));
        if (!symbol) break;
        const auto type = ELF64_ST_TYPE(symbol->st_info);
        if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol->st_shndx == SHN_UNDEF) continue;
        if (symbol->st_name == 0 || symbol->st_name >= text_size) continue;
        const char* name = text + symbol->st_name;
        const size_t length = strnlen(name, text_size - symbol->st_name);
        if (names_.size() + length + 1 > UINT32_MAX) break;
        functions_.push_back(
            {symbol->st_value, symbol->st_size, static_cast<uint32_t>(names_.size())});
        names_.append(name, length).push_back('\0');
      }
    }
  }
  std::stable_sort(functions_.begin(), functions_.end(),
                   [](const Function& a, const Function& b) { return a.start < b.start; });
}

std::string ElfSymbols::at(uint64_t offset) const {
  const uint64_t address = base_ + offset;
  auto after = std::upper_bound(functions_.begin(), functions_.end(), address,
                                [](uint64_t value, const Function& f) { return value < f.start; });
  // Aliases and nested ranges: the nearest one that reaches the address.
  for (int tries = 0; after != functions_.begin() && tries < 16; ++tries) {
    --after;
    if (after->length == 0 || address - after->start < after->length) {
      return std::string(names_.c_str() + after->name);
    }
  }
  return {};
}

}  // namespace lull::command
