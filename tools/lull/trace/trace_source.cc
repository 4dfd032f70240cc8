#include "tools/lull/trace/trace_source.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace lull::trace {

std::expected<Report, std::string> analyse(const std::string& path) {
  return analyse(path, [](const Event&) {});
}

std::expected<int64_t, std::string> parse_time(const std::string& text) {
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(rest, static_cast<size_t>(text.data() + text.size() - rest));
  const double factor = unit.empty() || unit == "us" ? 1e3
                        : unit == "ns"               ? 1
                        : unit == "ms"               ? 1e6
                        : unit == "s"                ? 1e9
                                                     : 0;
  if (error != std::errc{} || factor == 0 || !std::isfinite(number) || number < 0 ||
      number * factor > 4e18) {
    return std::unexpected(
        fmt::format("'{}' is no time: give a number with ns, us, ms or s, as in 1.5ms", text));
  }
  return std::llround(number * factor);
}

std::expected<void, std::string> write_file(const std::string& path, const std::string& text) {
  const std::string half = path + ".part";
  std::FILE* file = std::fopen(half.c_str(), "wbe");
  if (file == nullptr) return std::unexpected(std::strerror(errno));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int why = errno;
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed || std::rename(half.c_str(), path.c_str()) != 0) {
    const int reason = written ? errno : why;
    std::remove(half.c_str());
    return std::unexpected(std::strerror(reason));
  }
  return {};
}

}  // namespace lull::trace
