// How many GPUs an elastic job can use: "MIN:MAX", as `lull run --elastic` and `lull discover` take it, and
// LULL_ELASTIC holds it. Pure.
#pragma once

#include <cstdint>
#include <expected>
#include <string>

namespace lull::command {

struct ElasticRange {
  uint32_t least = 0;  // 1 .. most
  uint32_t most = 0;   // up to 128, GPUs of a node
};

// Errors: why, and what would be right.
std::expected<ElasticRange, std::string> parse_elastic(const std::string& text);

}  // namespace lull::command
