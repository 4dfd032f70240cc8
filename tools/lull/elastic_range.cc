#include "tools/lull/elastic_range.h"

#include <fmt/format.h>

#include <charconv>

#include "coordinator/daemon/device_table.h"

namespace lull::command {

std::expected<ElasticRange, std::string> parse_elastic(const std::string& text) {
  ElasticRange range;
  const char* const end = text.data() + text.size();
  const auto least = std::from_chars(text.data(), end, range.least);
  const bool divided = least.ec == std::errc() && least.ptr != end && *least.ptr == ':';
  const auto most = divided ? std::from_chars(least.ptr + 1, end, range.most) : least;
  if (!divided || most.ec != std::errc() || most.ptr != end) {
    return std::unexpected(fmt::format("'{}' is no range: use MIN:MAX, for example 1:4", text));
  }
  if (range.least < 1 || range.least > range.most || range.most > daemon::kMaxNodeDevices) {
    return std::unexpected(
        fmt::format("'{}' is out of range: use 1 or more, MAX no less than MIN and at most {}", text,
                    daemon::kMaxNodeDevices));
  }
  return range;
}

}  // namespace lull::command
