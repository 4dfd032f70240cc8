#include "tools/lull/elf_file.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>

namespace lull::command {
namespace {

constexpr uint64_t kRtldLazyOrNow = 3;
constexpr uint64_t kRtldDeepbind = 8;
constexpr uint64_t kRtldKnownFlags = 0x110f;
constexpr size_t kFlagsToCallBytes = 48;  // how far before the call the flags may be loaded
constexpr size_t kSymbolsMax = 1U << 20;

struct Class32 {
  using Ehdr = Elf32_Ehdr;
  using Phdr = Elf32_Phdr;
  using Shdr = Elf32_Shdr;
  using Dyn = Elf32_Dyn;
  using Sym = Elf32_Sym;
  using Rela = Elf32_Rela;
};
struct Class64 {
  using Ehdr = Elf64_Ehdr;
  using Phdr = Elf64_Phdr;
  using Shdr = Elf64_Shdr;
  using Dyn = Elf64_Dyn;
  using Sym = Elf64_Sym;
  using Rela = Elf64_Rela;
};

template <typename Class>
class Reader {
 public:
  explicit Reader(std::span<const std::byte> file) : file_(file) {}

  std::expected<ElfFacts, std::string> read() {
    const auto header = at<typename Class::Ehdr>(0);
    if (!header) return std::unexpected("is cut off inside its ELF header");
    header_ = *header;
    facts_.is_64_bit = std::is_same_v<Class, Class64>;
    facts_.machine = header_.e_machine;
    if (header_.e_phnum != 0 && header_.e_phentsize != sizeof(typename Class::Phdr)) {
      return std::unexpected("has program headers of an unknown size");
    }
    for (unsigned n = 0; n < header_.e_phnum; ++n) {
      const auto part =
          at<typename Class::Phdr>(header_.e_phoff + n * sizeof(typename Class::Phdr));
      if (!part) return std::unexpected("is cut off inside its program headers");
      parts_.push_back(*part);
      facts_.has_interpreter |= part->p_type == PT_INTERP;
      facts_.is_dynamic |= part->p_type == PT_DYNAMIC;
    }
    read_dynamic();
    if constexpr (std::is_same_v<Class, Class64>) {
      if (header_.e_machine == EM_X86_64 && facts_.imports_name("dlopen")) find_deepbind();
    }
    find_device_launches();
    return std::move(facts_);
  }

 private:
  template <typename T>
  std::optional<T> at(uint64_t offset) const {
    if (offset > file_.size() || file_.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, file_.data() + offset, sizeof(T));
    return value;
  }
  std::span<const std::byte> bytes(uint64_t offset, uint64_t size) const {
    if (offset > file_.size()) return {};
    return file_.subspan(offset, std::min<uint64_t>(size, file_.size() - offset));
  }
  // File offset of a virtual address; nullopt when no loaded part holds it.
  std::optional<uint64_t> offset_of(uint64_t address) const {
    for (const auto& part : parts_) {
      if (part.p_type == PT_LOAD && address >= part.p_vaddr &&
          address - part.p_vaddr < part.p_filesz) {
        return part.p_offset + (address - part.p_vaddr);
      }
    }
    return std::nullopt;
  }
  std::string string_at(uint64_t table, uint64_t table_size, uint64_t offset) const {
    if (offset >= table_size) return {};
    const auto rest = bytes(table + offset, table_size - offset);
    const auto* text = reinterpret_cast<const char*>(rest.data());
    return std::string(text, strnlen(text, rest.size()));
  }

  void read_dynamic() {
    uint64_t strings = 0, strings_size = 0, symbols = 0, rpath = 0, runpath = 0;
    bool has_rpath = false, has_runpath = false;
    std::vector<uint64_t> needed;
    for (const auto& part : parts_) {
      if (part.p_type != PT_DYNAMIC) continue;
      for (uint64_t at_byte = 0; at_byte + sizeof(typename Class::Dyn) <= part.p_filesz;
           at_byte += sizeof(typename Class::Dyn)) {
        const auto entry = at<typename Class::Dyn>(part.p_offset + at_byte);
        if (!entry || entry->d_tag == DT_NULL) break;
        const uint64_t value = entry->d_un.d_val;
        switch (entry->d_tag) {
          case DT_NEEDED:
            needed.push_back(value);
            break;
          case DT_STRTAB:
            strings = value;
            break;
          case DT_STRSZ:
            strings_size = value;
            break;
          case DT_SYMTAB:
            symbols = value;
            break;
          case DT_RPATH:
            rpath = value;
            has_rpath = true;
            break;
          case DT_RUNPATH:
            runpath = value;
            has_runpath = true;
            break;
          case DT_RELA:
            rela_ = value;
            break;
          case DT_RELASZ:
            rela_size_ = value;
            break;
          case DT_JMPREL:
            jmprel_ = value;
            break;
          case DT_PLTRELSZ:
            jmprel_size_ = value;
            break;
        }
      }
    }
    const auto table = offset_of(strings);
    if (!table) return;
    strings_ = *table;
    strings_size_ = strings_size;
    for (const uint64_t name : needed)
      facts_.needed.push_back(string_at(strings_, strings_size, name));
    if (has_rpath) facts_.rpath = string_at(strings_, strings_size, rpath);
    if (has_runpath) facts_.runpath = string_at(strings_, strings_size, runpath);

    // The dynamic symbol table does not say its length; the string table follows it in every
    // linker's output, and the section headers say it where they have not been stripped.
    const auto symbol_table = offset_of(symbols);
    if (!symbol_table) return;
    symbols_ = *symbol_table;
    uint64_t count = strings_ > symbols_ ? (strings_ - symbols_) / sizeof(typename Class::Sym) : 0;
    for_each_section([&](const auto& section) {
      if (section.sh_type == SHT_DYNSYM) count = section.sh_size / sizeof(typename Class::Sym);
    });
    for (uint64_t n = 1; n < std::min<uint64_t>(count, kSymbolsMax); ++n) {
      const auto symbol = at<typename Class::Sym>(symbols_ + n * sizeof(typename Class::Sym));
      if (!symbol) break;
      if (symbol->st_shndx != SHN_UNDEF) continue;
      std::string name = string_at(strings_, strings_size_, symbol->st_name);
      if (!name.empty()) facts_.imports.push_back(std::move(name));
    }
  }

  template <typename Use>
  void for_each_section(Use&& use) const {
    if (header_.e_shentsize != sizeof(typename Class::Shdr)) return;
    for (unsigned n = 0; n < header_.e_shnum; ++n) {
      const auto section =
          at<typename Class::Shdr>(header_.e_shoff + n * sizeof(typename Class::Shdr));
      if (!section) return;
      use(*section);
    }
  }

  // Looks for `mov esi, flags` shortly before a call that ends in dlopen, through its PLT stub or
  // its GOT slot.
  void find_deepbind() {
    std::vector<uint64_t> slots;
    for (const auto& [table, size] : {std::pair{rela_, rela_size_}, {jmprel_, jmprel_size_}}) {
      const auto start = offset_of(table);
      if (!start) continue;
      for (uint64_t n = 0; n + sizeof(Elf64_Rela) <= size; n += sizeof(Elf64_Rela)) {
        const auto entry = at<Elf64_Rela>(*start + n);
        if (!entry) break;
        const uint64_t type = ELF64_R_TYPE(entry->r_info);
        if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
        const auto symbol =
            at<Elf64_Sym>(symbols_ + ELF64_R_SYM(entry->r_info) * sizeof(Elf64_Sym));
        if (symbol && string_at(strings_, strings_size_, symbol->st_name) == "dlopen") {
          slots.push_back(entry->r_offset);
        }
      }
    }
    const auto is_slot = [&](uint64_t address) {
      return std::find(slots.begin(), slots.end(), address) != slots.end();
    };
    // endbr64? bnd? jmp *slot(%rip)
    const auto is_stub = [&](uint64_t address) {
      const auto start = offset_of(address);
      if (!start) return false;
      const auto code = bytes(*start, 16);
      size_t n = 0;
      const auto byte = [&](size_t i) {
        return i < code.size() ? std::to_integer<int>(code[i]) : -1;
      };
      if (byte(0) == 0xf3 && byte(1) == 0x0f && byte(2) == 0x1e && byte(3) == 0xfa) n = 4;
      if (byte(n) == 0xf2) ++n;
      if (byte(n) != 0xff || byte(n + 1) != 0x25) return false;
      const auto away = at<int32_t>(*start + n + 2);
      return away && is_slot(address + n + 6 + static_cast<int64_t>(*away));
    };
    for (const auto& part : parts_) {
      if (part.p_type != PT_LOAD || !(part.p_flags & PF_X)) continue;
      const auto code = bytes(part.p_offset, part.p_filesz);
      size_t flags_at = SIZE_MAX;
      for (size_t n = 0; n + 6 <= code.size(); ++n) {
        const int first = std::to_integer<int>(code[n]);
        int32_t value;
        if (first == 0xbe) {  // mov esi, imm32
          std::memcpy(&value, &code[n + 1], 4);
          const auto flags = static_cast<uint32_t>(value);
          if ((flags & kRtldDeepbind) && (flags & kRtldLazyOrNow) && !(flags & ~kRtldKnownFlags)) {
            flags_at = n;
          }
          continue;
        }
        const bool relative = first == 0xe8 || first == 0xe9;  // call, or a tail call
        const bool indirect =
            first == 0xff && (code[n + 1] == std::byte{0x15} || code[n + 1] == std::byte{0x25});
        if ((!relative && !indirect) || flags_at == SIZE_MAX || n - flags_at > kFlagsToCallBytes) {
          continue;
        }
        std::memcpy(&value, &code[n + (relative ? 1 : 2)], 4);
        const uint64_t after = part.p_vaddr + n + (relative ? 5 : 6);
        const uint64_t target = after + static_cast<int64_t>(value);
        if (relative ? is_stub(target) : is_slot(target)) {
          facts_.opens_deepbind = true;
          return;
        }
      }
    }
  }

  void find_device_launches() {
    const auto names = at<typename Class::Shdr>(header_.e_shoff + uint64_t{header_.e_shstrndx} *
                                                                      sizeof(typename Class::Shdr));
    if (!names || header_.e_shentsize != sizeof(typename Class::Shdr)) return;
    for_each_section([&](const auto& section) {
      const std::string name = string_at(names->sh_offset, names->sh_size, section.sh_name);
      if (name != ".nv_fatbin" && name != "__nv_relfatbin") return;
      const auto code = bytes(section.sh_offset, section.sh_size);
      const std::string_view text(reinterpret_cast<const char*>(code.data()), code.size());
      for (const char* call : {"cudaLaunchDevice", "cudaCDP2LaunchDevice", "cudaGetParameterBuffer",
                               "cudaCDP2GetParameterBuffer"}) {
        facts_.launches_on_device |= text.find(call) != std::string_view::npos;
      }
    });
  }

  std::span<const std::byte> file_;
  typename Class::Ehdr header_{};
  std::vector<typename Class::Phdr> parts_;
  ElfFacts facts_;
  uint64_t strings_ = 0, strings_size_ = 0, symbols_ = 0;
  uint64_t rela_ = 0, rela_size_ = 0, jmprel_ = 0, jmprel_size_ = 0;
};

}  // namespace

bool ElfFacts::needs(std::string_view prefix) const {
  return std::any_of(needed.begin(), needed.end(),
                     [&](const std::string& name) { return name.starts_with(prefix); });
}

bool ElfFacts::imports_name(std::string_view name) const {
  return std::find(imports.begin(), imports.end(), name) != imports.end();
}

std::expected<ElfFacts, std::string> read_elf(std::span<const std::byte> file) {
  if (file.size() < EI_NIDENT || std::memcmp(file.data(), ELFMAG, SELFMAG) != 0) {
    return std::unexpected("is no ELF file");
  }
  if (std::to_integer<int>(file[EI_DATA]) != ELFDATA2LSB) {
    return std::unexpected("is for a big-endian machine");
  }
  switch (std::to_integer<int>(file[EI_CLASS])) {
    case ELFCLASS32:
      return Reader<Class32>(file).read();
    case ELFCLASS64:
      return Reader<Class64>(file).read();
    default:
      return std::unexpected("is neither a 32-bit nor a 64-bit ELF file");
  }
}

}  // namespace lull::command
