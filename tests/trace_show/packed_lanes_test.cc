#include "tools/lull/trace/packed_lanes.h"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <random>

#include "tests/seed.h"

using namespace lull;
using namespace lull::trace;

namespace {

std::vector<uint8_t> from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<uint8_t> out;
  REQUIRE(text.size() % 4 == 0);
  for (size_t at = 0; at < text.size(); at += 4) {
    uint32_t word = 0;
    size_t given = 0;
    for (size_t n = 0; n < 4; ++n) {
      const size_t digit = digits.find(text[at + n]);
      given += digit != std::string::npos;
      word = word << 6 | (digit != std::string::npos ? static_cast<uint32_t>(digit) : 0);
    }
    for (size_t n = 0; n + 1 < given; ++n) out.push_back(static_cast<uint8_t>(word >> (16 - 8 * n)));
  }
  return out;
}

}  // namespace

TEST_CASE("packed spans are the spans again") {
  const uint64_t seed = tests::test_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  constexpr int64_t kOrigin = 1'000'000;
  for (const size_t count : {0UL, 1UL, 2UL, 3UL, 1000UL}) {
    std::vector<Span> spans;
    int64_t at_ns = kOrigin - 50;
    for (size_t n = 0; n < count; ++n) {
      at_ns += below(5000);
      Span span{.start_ns = at_ns, .end_ns = at_ns + below(3000)};
      span.busy_ns = span.end_ns - span.start_ns;
      span.what = static_cast<uint32_t>(below(UINT32_MAX));
      if (below(4) == 0) {
        span.count = static_cast<uint32_t>(1 + below(1000));
        span.busy_ns += below(2000) - 1000;  // streams of several threads overlap in one lane
      }
      spans.push_back(span);
    }
    ByteSink sink;
    pack_spans(spans, kOrigin, sink);
    const auto packed = from_base64(packed_text(sink.bytes()));
    std::vector<uint8_t> raw(sink.size() + 1);
    uLongf size = raw.size();
    REQUIRE(uncompress(raw.data(), &size, packed.data(), packed.size()) == Z_OK);
    raw.resize(size);
    REQUIRE(raw == sink.bytes());

    ByteSource in(raw);
    const auto integer = [&] { return static_cast<int64_t>(in.from(0)); };
    std::vector<int64_t> starts;
    for (size_t n = 0; n < count; ++n) starts.push_back(integer());
    int64_t end_ns = kOrigin;
    for (size_t n = 0; n < count; ++n) {
      CHECK(end_ns + starts[n] == spans[n].start_ns);
      end_ns = spans[n].start_ns + static_cast<int64_t>(in.number());
      CHECK(end_ns == spans[n].end_ns);
    }
    for (const Span& span : spans) CHECK(in.number() == span.what);
    for (const Span& span : spans) CHECK(in.number() + 1 == span.count);
    for (const Span& span : spans) CHECK(span.end_ns - span.start_ns - integer() == span.busy_ns);
    CHECK(in.at_end());
    CHECK_FALSE(in.bad());
  }
}
