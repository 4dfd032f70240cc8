#include "tools/play/kernel_name.h"

#include <cstdio>

namespace lull::play {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}
int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

uint64_t fnv1a_64(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : bytes) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  return hash;
}

std::string escape_kernel_name(std::string_view name) {
  std::string escaped;
  escaped.reserve(name.size() + 16);
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (is_plain(c) && !(i == 0 && is_digit(c))) {
      escaped += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    escaped += '$';
    escaped += kHexDigits[byte >> 4];
    escaped += kHexDigits[byte & 15];
  }
  if (escaped.size() > kMaxEscapedChars) {
    char hash[24];
    std::snprintf(hash, sizeof(hash), "$$%016llx", static_cast<unsigned long long>(fnv1a_64(name)));
    escaped.resize(kCutEscapedChars);
    escaped += hash;
  }
  return escaped;
}

std::string unescape_kernel_name(std::string_view escaped) {
  constexpr size_t kCutMarkChars = 2 + 16;
  bool cut = false;
  std::string_view rest = escaped;
  if (rest.size() == kCutEscapedChars + kCutMarkChars && rest.substr(kCutEscapedChars, 2) == "$$") {
    cut = true;
    rest = rest.substr(0, kCutEscapedChars);
    // An escape that the cut went through says nothing.
    const size_t dollar = rest.find_last_of('$');
    if (dollar != std::string_view::npos && dollar + 3 > rest.size()) rest = rest.substr(0, dollar);
  }
  std::string name;
  name.reserve(rest.size() + 3);
  for (size_t i = 0; i < rest.size(); ++i) {
    if (rest[i] == '$' && i + 2 < rest.size()) {
      const int high = hex_value(rest[i + 1]), low = hex_value(rest[i + 2]);
      if (high >= 0 && low >= 0) {
        name += static_cast<char>(high * 16 + low);
        i += 2;
        continue;
      }
    }
    name += rest[i];
  }
  if (cut) name += "...";
  return name;
}

}  // namespace lull::play
