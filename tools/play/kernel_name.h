// Kernel names as PTX identifiers. Recorded names are demangled C++ with blanks, colons and
// brackets; lull-play launches them under an escaped name, tools turn it back for display.
//
//   [A-Za-z0-9_]  as it is, but a leading digit is escaped
//   other bytes   $ and two lower-case hexadecimal digits
//   longer than 900 characters escaped: the first 880, then $$ and 16 hexadecimal digits of
//                 FNV-1a 64 of the whole name
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lull::play {

inline constexpr size_t kMaxEscapedChars = 900;
inline constexpr size_t kCutEscapedChars = 880;

uint64_t fnv1a_64(std::string_view bytes);
std::string escape_kernel_name(std::string_view name);
// The name for people: exact unless it was cut, then it ends in "...". A name that holds no
// well-formed escape comes back unchanged.
std::string unescape_kernel_name(std::string_view escaped);

}  // namespace lull::play
