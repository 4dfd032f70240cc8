#include "tools/simgpu/driver/image.h"

#include <elf.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

namespace simgpu::driver {
namespace {

constexpr uint32_t kFatbinWrapperMagic = 0x466243b1;
constexpr uint32_t kFatbinMagic = 0xba55ed50;
constexpr uint64_t kFatbinFlagLz4 = 0x2000;
constexpr uint64_t kFatbinFlagZstd = 0x8000;
constexpr size_t kMaxDecompressedBytes = size_t{1} << 30;

template <class T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// --- PTX ---------------------------------------------------------------------------------------

uint32_t type_bytes(std::string_view type) {
  if (type == ".pred") return 1;
  size_t digits = type.size();
  while (digits > 0 && type[digits - 1] >= '0' && type[digits - 1] <= '9') --digits;
  if (digits == type.size() || type.size() < 3) return 0;
  const char kind = type[1];
  if (type[0] != '.' || !(kind == 'u' || kind == 's' || kind == 'b' || kind == 'f')) return 0;
  if (digits != 2 && !(type.starts_with(".bf") && digits == 3)) return 0;
  return static_cast<uint32_t>(
             std::strtoul(std::string(type.substr(digits)).c_str(), nullptr, 10)) /
         8;
}

// Words, dotted words, numbers, and single punctuation marks; comments and strings left out.
class PtxTokens {
 public:
  explicit PtxTokens(std::string_view text) : text_(text) { advance(); }
  std::string_view peek() const { return token_; }
  bool done() const { return token_.empty(); }
  std::string_view next() {
    const std::string_view token = token_;
    advance();
    return token;
  }

 private:
  static bool word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || c == '%' || c == '.' || c == '-';
  }
  void advance() {
    for (;;) {
      while (at_ < text_.size() && static_cast<unsigned char>(text_[at_]) <= ' ') ++at_;
      const std::string_view rest = text_.substr(at_);
      if (rest.starts_with("//")) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (rest.starts_with("/*")) {
        const size_t end = text_.find("*/", at_ + 2);
        at_ = end == text_.npos ? text_.size() : end + 2;
      } else if (rest.starts_with('"')) {
        const size_t end = text_.find('"', at_ + 1);
        at_ = end == text_.npos ? text_.size() : end + 1;
      } else {
        break;
      }
    }
    const size_t begin = at_;
    if (at_ < text_.size() && word(text_[at_])) {
      while (at_ < text_.size() && word(text_[at_])) ++at_;
    } else if (at_ < text_.size()) {
      ++at_;
    }
    token_ = text_.substr(begin, at_ - begin);
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string_view token_;
};

struct PtxVariable {
  std::string name;
  uint32_t element_bytes = 0;
  uint32_t align_bytes = 0;
  bool is_u64 = false;
  uint64_t size_bytes = 0;
};

// From after the state space (.param, .shared, .global, .const) to the name and its dimensions.
PtxVariable read_variable(PtxTokens& tokens) {
  PtxVariable variable;
  uint32_t vector = 1;
  while (!tokens.done() && tokens.peek().starts_with('.')) {
    const std::string token(tokens.next());
    if (token == ".align") {
      const auto align = std::strtoul(std::string(tokens.next()).c_str(), nullptr, 0);
      // `.ptr .align` after the type speaks of what is pointed to.
      if (variable.element_bytes == 0) variable.align_bytes = static_cast<uint32_t>(align);
    } else if (token == ".v2" || token == ".v4") {
      vector = token == ".v2" ? 2 : 4;
    } else if (const uint32_t bytes = type_bytes(token); bytes != 0) {
      variable.element_bytes = bytes;
      variable.is_u64 = token == ".u64" || token == ".s64" || token == ".b64";
    } else if (token == ".texref" || token == ".samplerref" || token == ".surfref") {
      variable.element_bytes = 8;
    }
  }
  variable.element_bytes *= vector;
  variable.name = tokens.next();
  uint64_t count = 1;
  bool array = false;
  while (tokens.peek() == "[") {
    tokens.next();
    array = true;
    if (tokens.peek() == "]") {
      count = 0;  // an open dimension: extern, or sized by its initial values
    } else {
      count *= std::strtoull(std::string(tokens.next()).c_str(), nullptr, 0);
    }
    if (tokens.peek() == "]") tokens.next();
  }
  if (array) variable.is_u64 = false;
  if (variable.align_bytes == 0) variable.align_bytes = std::max(1u, variable.element_bytes);
  variable.size_bytes = count * variable.element_bytes;
  return variable;
}

bool is_spin_name(std::string_view name) { return name == "spin_ns" || name.ends_with("_spin_ns"); }

// False: it has no end.
bool read_entry(PtxTokens& tokens, Image& image) {
  ImageKernel kernel;
  kernel.name = tokens.next();
  if (tokens.peek() == "(") {
    tokens.next();
    while (!tokens.done() && tokens.peek() != ")") {
      if (tokens.peek() == ".param") {
        tokens.next();
        const PtxVariable variable = read_variable(tokens);
        const uint32_t offset = (kernel.parameter_bytes + variable.align_bytes - 1) /
                                variable.align_bytes * variable.align_bytes;
        if (variable.is_u64 && is_spin_name(variable.name)) {
          kernel.spin_parameter = static_cast<int>(kernel.parameters.size());
        }
        kernel.parameters.push_back(
            {variable.name, offset, static_cast<uint32_t>(variable.size_bytes)});
        kernel.parameter_bytes = offset + static_cast<uint32_t>(variable.size_bytes);
      } else {
        tokens.next();
      }
    }
    tokens.next();
  }
  while (!tokens.done() && tokens.peek() != "{" && tokens.peek() != ";") {
    const std::string_view token = tokens.next();
    if (token == ".maxntid" || token == ".reqntid") {
      uint64_t threads = std::strtoull(std::string(tokens.next()).c_str(), nullptr, 0);
      while (tokens.peek() == ",") {
        tokens.next();
        threads *= std::strtoull(std::string(tokens.next()).c_str(), nullptr, 0);
      }
      if (threads > 0 && threads <= 1024) kernel.max_threads = static_cast<uint32_t>(threads);
    }
  }
  if (tokens.peek() == ";") return true;  // a declaration
  int depth = 0;
  do {
    const std::string_view token = tokens.next();
    if (token == "{") ++depth;
    if (token == "}") --depth;
    if (token == ".shared") {
      kernel.static_shared_bytes += static_cast<uint32_t>(read_variable(tokens).size_bytes);
    }
  } while (depth > 0 && !tokens.done());
  image.kernels.push_back(std::move(kernel));
  return depth == 0;
}

void read_global(PtxTokens& tokens, bool is_extern, bool managed, Image& image) {
  const PtxVariable variable = read_variable(tokens);
  ImageGlobal global{variable.name, variable.size_bytes, {}, managed};
  if (tokens.peek() == "=") {
    while (!tokens.done() && tokens.peek() != ";") {
      std::string token(tokens.next());
      if (token == "=" || token == "{" || token == "}" || token == ",") continue;
      uint64_t value = 0;
      if (token.starts_with("0f") || token.starts_with("0d")) {
        value = std::strtoull(token.c_str() + 2, nullptr, 16);
      } else {
        value = std::strtoull(token.c_str(), nullptr, 0);
      }
      const size_t at = global.initial.size();
      global.initial.resize(at + variable.element_bytes);
      std::memcpy(global.initial.data() + at, &value,
                  std::min<size_t>(sizeof value, variable.element_bytes));
    }
    global.size_bytes = std::max<uint64_t>(global.size_bytes, global.initial.size());
  }
  if (!is_extern && global.size_bytes > 0) image.globals.push_back(std::move(global));
}

std::expected<Image, CUresult> read_ptx(std::string_view text) {
  PtxTokens tokens(text);
  if (tokens.peek() != ".version") return std::unexpected(CUDA_ERROR_INVALID_IMAGE);
  Image image;
  bool is_extern = false;
  bool managed = false;
  bool target = false;
  int depth = 0;
  while (!tokens.done()) {
    const std::string_view token = tokens.next();
    if (token == "{") ++depth;
    if (token == "}" && --depth < 0) return std::unexpected(CUDA_ERROR_INVALID_PTX);
    if (token == ";" || token == "}") is_extern = managed = false;
    if (token == ".target") target = true;
    if (token == ".extern") is_extern = true;
    if (token == ".attribute") {
      while (!tokens.done() && tokens.peek() != ")") managed |= tokens.next() == ".managed";
    }
    if (depth > 0) continue;
    if (token == ".entry" && !read_entry(tokens, image)) {
      return std::unexpected(CUDA_ERROR_INVALID_PTX);
    }
    if (token == ".global" || token == ".const") {
      // Attributes may stand between the space and the type.
      if (tokens.peek() == ".attribute") {
        tokens.next();
        while (!tokens.done() && tokens.peek() != ")") managed |= tokens.next() == ".managed";
        tokens.next();
      }
      read_global(tokens, is_extern, managed, image);
    }
  }
  if (depth != 0 || !target) return std::unexpected(CUDA_ERROR_INVALID_PTX);
  return image;
}

// --- ELF ---------------------------------------------------------------------------------------

size_t elf_bytes(const uint8_t* data) {
  const auto header = load<Elf64_Ehdr>(data);
  size_t end = header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
  end = std::max<size_t>(end, header.e_phoff + size_t{header.e_phnum} * header.e_phentsize);
  for (int i = 0; i < header.e_shnum; ++i) {
    const auto section = load<Elf64_Shdr>(data + header.e_shoff + size_t{header.e_shentsize} * i);
    if (section.sh_type != SHT_NOBITS)
      end = std::max<size_t>(end, section.sh_offset + section.sh_size);
  }
  return end;
}

// The kernel's parameters out of `.nv.info.<kernel>`: records {format, attribute, size}, of which
// attribute 0x17 describes one parameter (ordinal, offset, size in the upper 14 bits).
void read_nv_info(const uint8_t* data, size_t size, ImageKernel& kernel) {
  constexpr uint8_t kSizedFormat = 4;
  constexpr uint8_t kParameterInfo = 0x17;
  for (size_t at = 0; at + 4 <= size;) {
    const uint8_t format = data[at];
    const uint8_t attribute = data[at + 1];
    const uint16_t value = load<uint16_t>(data + at + 2);
    at += 4;
    if (format != kSizedFormat) continue;
    if (at + value > size) return;
    if (attribute == kParameterInfo && value >= 12) {
      const uint16_t ordinal = load<uint16_t>(data + at + 4);
      if (ordinal < 4096) {
        if (kernel.parameters.size() <= ordinal) kernel.parameters.resize(ordinal + size_t{1});
        kernel.parameters[ordinal].offset_bytes = load<uint16_t>(data + at + 6);
        kernel.parameters[ordinal].size_bytes = load<uint32_t>(data + at + 8) >> 18;
      }
    }
    at += value;
  }
  for (const ImageParameter& parameter : kernel.parameters) {
    kernel.parameter_bytes =
        std::max(kernel.parameter_bytes, parameter.offset_bytes + parameter.size_bytes);
  }
}

std::expected<Image, CUresult> read_elf(const uint8_t* data, size_t size) {
  const auto invalid = std::unexpected(CUDA_ERROR_INVALID_IMAGE);
  if (size < sizeof(Elf64_Ehdr) || data[EI_CLASS] != ELFCLASS64) return invalid;
  const auto header = load<Elf64_Ehdr>(data);
  if (header.e_shoff > size || header.e_shentsize != sizeof(Elf64_Shdr) ||
      size - header.e_shoff < size_t{header.e_shnum} * sizeof(Elf64_Shdr) ||
      header.e_shstrndx >= header.e_shnum) {
    return invalid;
  }
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), data + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_NOBITS &&
        (section.sh_offset > size || size - section.sh_offset < section.sh_size)) {
      return invalid;
    }
  }
  const auto text = [&](size_t string_section, size_t at) -> std::string {
    if (string_section >= sections.size()) return {};
    const Elf64_Shdr& strings = sections[string_section];
    if (strings.sh_type == SHT_NOBITS || at >= strings.sh_size) return {};
    const char* begin = reinterpret_cast<const char*>(data + strings.sh_offset + at);
    return std::string(begin, strnlen(begin, strings.sh_size - at));
  };
  Image image;
  std::set<std::string> kernels;
  for (const Elf64_Shdr& section : sections) {
    const std::string name = text(header.e_shstrndx, section.sh_name);
    // Only a kernel has a constant bank for its parameters; device functions have none.
    constexpr std::string_view kPrefix = ".nv.constant0.";
    if (name.starts_with(kPrefix)) kernels.insert(name.substr(kPrefix.size()));
  }
  for (const std::string& name : kernels) {
    ImageKernel kernel;
    kernel.name = name;
    bool has_code = false;
    for (const Elf64_Shdr& section : sections) {
      const std::string section_name = text(header.e_shstrndx, section.sh_name);
      if (section_name == ".text." + name) has_code = true;
      if (section_name == ".nv.info." + name && section.sh_type != SHT_NOBITS) {
        read_nv_info(data + section.sh_offset, section.sh_size, kernel);
      }
      if (section_name == ".nv.shared." + name) {
        kernel.static_shared_bytes = static_cast<uint32_t>(section.sh_size);
      }
    }
    if (has_code) image.kernels.push_back(std::move(kernel));
  }
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    for (size_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = load<Elf64_Sym>(data + section.sh_offset + at);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx >= sections.size())
        continue;
      const Elf64_Shdr& home = sections[symbol.st_shndx];
      const std::string home_name = text(header.e_shstrndx, home.sh_name);
      if (!home_name.starts_with(".nv.global") && home_name != ".nv.constant3") continue;
      ImageGlobal global{text(section.sh_link, symbol.st_name), symbol.st_size, {}, false};
      if (home.sh_type != SHT_NOBITS && symbol.st_value <= home.sh_size &&
          symbol.st_size <= home.sh_size - symbol.st_value) {
        const uint8_t* begin = data + home.sh_offset + symbol.st_value;
        global.initial.assign(begin, begin + symbol.st_size);
      }
      if (!global.name.empty() && global.size_bytes > 0) image.globals.push_back(std::move(global));
    }
  }
  return image;
}

// --- fat binaries ------------------------------------------------------------------------------

bool lz4_decompress(const uint8_t* in, size_t in_bytes, uint8_t* out, size_t out_bytes) {
  const uint8_t* const in_end = in + in_bytes;
  size_t at = 0;
  const auto extended = [&](size_t length) {
    if (length < 15) return length;
    while (in < in_end) {
      const uint8_t more = *in++;
      length += more;
      if (more != 255) break;
    }
    return length;
  };
  while (in < in_end) {
    const uint8_t token = *in++;
    const size_t literals = extended(token >> 4);
    if (literals > static_cast<size_t>(in_end - in) || literals > out_bytes - at) return false;
    std::memcpy(out + at, in, literals);
    in += literals;
    at += literals;
    if (in_end - in < 2) break;
    const size_t distance = in[0] | size_t{in[1]} << 8;
    in += 2;
    const size_t length = extended(token & 15) + 4;
    if (distance == 0 || distance > at || length > out_bytes - at) return false;
    for (size_t i = 0; i < length; ++i, ++at) out[at] = out[at - distance];
  }
  return at == out_bytes;
}

std::expected<Image, CUresult> read_fatbin(const uint8_t* data, size_t limit) {
  const auto invalid = std::unexpected(CUDA_ERROR_INVALID_IMAGE);
  if (limit < 16) return invalid;
  const uint16_t header_bytes = load<uint16_t>(data + 6);
  const uint64_t body_bytes = load<uint64_t>(data + 8);
  if (header_bytes < 16 || header_bytes > limit || body_bytes > limit - header_bytes)
    return invalid;
  const uint8_t* at = data + header_bytes;
  const uint8_t* const end = at + body_bytes;
  constexpr uint16_t kPtx = 1;
  constexpr uint16_t kElf = 2;
  std::expected<Image, CUresult> best = std::unexpected(CUDA_ERROR_NO_BINARY_FOR_GPU);
  bool best_is_ptx = false;
  uint32_t best_arch = 0;
  while (end - at >= 64) {
    const uint16_t kind = load<uint16_t>(at);
    const uint32_t entry_bytes = load<uint32_t>(at + 4);
    const uint64_t padded_bytes = load<uint64_t>(at + 8);
    const uint32_t compressed_bytes = load<uint32_t>(at + 16);
    const uint32_t arch = load<uint32_t>(at + 28);
    const uint64_t flags = load<uint64_t>(at + 40);
    const uint64_t plain_bytes = load<uint64_t>(at + 56);
    const uint64_t rest = static_cast<uint64_t>(end - at);
    if (entry_bytes < 64 || entry_bytes > rest || padded_bytes > rest - entry_bytes) return invalid;
    const uint8_t* payload = at + entry_bytes;
    const bool better = kind == kPtx ? !best_is_ptx || arch > best_arch
                                     : kind == kElf && !best_is_ptx && arch >= best_arch;
    if (better) {
      std::vector<uint8_t> plain;
      if (flags & (kFatbinFlagZstd | kFatbinFlagLz4)) {
        if (plain_bytes > kMaxDecompressedBytes || compressed_bytes > padded_bytes) return invalid;
        plain.resize(plain_bytes);
        const bool ok = flags & kFatbinFlagZstd
                            ? ZSTD_decompress(plain.data(), plain.size(), payload,
                                              compressed_bytes) == plain_bytes
                            : lz4_decompress(payload, compressed_bytes, plain.data(), plain.size());
        if (!ok) return invalid;
      } else {
        plain.assign(payload, payload + padded_bytes);
      }
      const char* text = reinterpret_cast<const char*>(plain.data());
      auto image = kind == kPtx ? read_ptx({text, strnlen(text, plain.size())})
                                : read_elf(plain.data(), plain.size());
      if (image) {
        best = std::move(image);
        best_is_ptx = kind == kPtx;
        best_arch = arch;
      }
    }
    at = payload + padded_bytes;
  }
  return best;
}

}  // namespace

std::expected<Image, CUresult> read_image(const void* data, std::optional<size_t> size_bytes) {
  const auto invalid = std::unexpected(CUDA_ERROR_INVALID_IMAGE);
  if (data == nullptr) return std::unexpected(CUDA_ERROR_INVALID_VALUE);
  const uint8_t* bytes = static_cast<const uint8_t*>(data);
  const size_t limit = size_bytes.value_or(SIZE_MAX / 2);
  if (limit < 4) return invalid;
  // A text shorter than a magic number ends in its own zero: look at one byte at a time.
  const auto is = [&](uint32_t magic) {
    for (int i = 0; i < 4; ++i) {
      if (bytes[i] != static_cast<uint8_t>(magic >> (8 * i))) return false;
    }
    return true;
  };
  if (is(kFatbinWrapperMagic)) {
    if (limit < 24) return invalid;
    const uint8_t* fatbin = load<const uint8_t*>(bytes + 8);
    if (fatbin == nullptr || load<uint32_t>(fatbin) != kFatbinMagic) return invalid;
    return read_fatbin(fatbin, SIZE_MAX / 2);
  }
  if (is(kFatbinMagic)) return read_fatbin(bytes, limit);
  if (is(0x464c457f)) return read_elf(bytes, size_bytes ? limit : elf_bytes(bytes));
  const char* text = reinterpret_cast<const char*>(bytes);
  return read_ptx({text, size_bytes ? strnlen(text, limit) : std::strlen(text)});
}

}  // namespace simgpu::driver
