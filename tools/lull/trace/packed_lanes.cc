#include "tools/lull/trace/packed_lanes.h"

#include <zlib.h>

#include <string_view>

namespace lull::trace {

void pack_spans(const std::vector<Span>& spans, int64_t origin_ns, ByteSink& out) {
  int64_t end_ns = origin_ns;
  for (const Span& span : spans) {
    out.integer(span.start_ns - end_ns);
    end_ns = span.end_ns;
  }
  const auto number = [&](int64_t value) { out.number(static_cast<uint64_t>(value)); };
  for (const Span& span : spans) number(span.end_ns - span.start_ns);
  for (const Span& span : spans) out.number(span.what);
  for (const Span& span : spans) out.number(span.count - 1);
  for (const Span& span : spans) out.integer(span.end_ns - span.start_ns - span.busy_ns);
}

std::string packed_text(const std::vector<uint8_t>& bytes) {
  uLongf size = compressBound(bytes.size());
  std::vector<uint8_t> packed(size);
  if (compress2(packed.data(), &size, bytes.data(), bytes.size(), Z_DEFAULT_COMPRESSION) != Z_OK) {
    return {};
  }
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((size + 2) / 3 * 4);
  for (size_t at = 0; at < size; at += 3) {
    uint32_t three = 0;
    for (size_t n = 0; n < 3; ++n) three = three << 8 | (at + n < size ? packed[at + n] : 0);
    for (size_t n = 0; n < 4; ++n) {
      text += at + n <= size ? kDigits[three >> (18 - 6 * n) & 63] : '=';
    }
  }
  return text;
}

}  // namespace lull::trace
