// Numbers and strings as bytes: what a block of a trace or a decision log is made of. Varints of
// seven bits a byte, lowest first; signed numbers zigzag. Called by the codecs; any thread. A
// source never reads beyond its end: then it is `bad`, and gives zeros and empty strings.
#pragma once

#include <string.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lull::trace {

inline constexpr size_t kMaxStringBytes = 64UL << 10;  // longer ones are cut when written

// Distances wrap around: any two values have one, and adding it back gives the second.
constexpr uint64_t zigzag(uint64_t distance) { return (distance << 1) ^ (0 - (distance >> 63)); }
constexpr uint64_t unzigzag(uint64_t coded) { return (coded >> 1) ^ (0 - (coded & 1)); }

class ByteSink {
 public:
  void number(uint64_t value) {
    while (value >= 0x80) {
      bytes_.push_back(static_cast<uint8_t>(value) | 0x80);
      value >>= 7;
    }
    bytes_.push_back(static_cast<uint8_t>(value));
  }
  void distance(uint64_t from, uint64_t to) { number(zigzag(to - from)); }
  void integer(int64_t value) { distance(0, static_cast<uint64_t>(value)); }
  void byte(uint8_t value) { bytes_.push_back(value); }
  void real(double value) { raw(&value, sizeof value); }
  void hash(uint64_t value) { raw(&value, sizeof value); }  // a varint would be longer
  void text(std::string_view value) {
    value = value.substr(0, kMaxStringBytes);
    number(value.size());
    bytes_.insert(bytes_.end(), value.begin(), value.end());
  }
  void append(const ByteSink& other) {
    bytes_.insert(bytes_.end(), other.bytes_.begin(), other.bytes_.end());
  }

  size_t size() const { return bytes_.size(); }
  void clear() { bytes_.clear(); }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  std::vector<uint8_t> take() { return std::move(bytes_); }

 private:
  void raw(const void* value, size_t size) {
    const auto* from = static_cast<const uint8_t*>(value);
    bytes_.insert(bytes_.end(), from, from + size);
  }
  std::vector<uint8_t> bytes_;
};

class ByteSource {
 public:
  ByteSource() = default;
  explicit ByteSource(std::span<const uint8_t> bytes)
      : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  uint64_t number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) break;
      const uint8_t byte = *at_++;
      if (shift == 63 && byte > 1) break;
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    bad_ = true;
    return 0;
  }
  // The value that `distance(from, value)` wrote.
  uint64_t from(uint64_t base) { return base + unzigzag(number()); }
  int64_t integer() { return static_cast<int64_t>(from(0)); }
  uint32_t small() {
    const uint64_t value = number();
    if (value > UINT32_MAX) bad_ = true;
    return static_cast<uint32_t>(value);
  }
  uint8_t byte() {
    if (at_ == end_) {
      bad_ = true;
      return 0;
    }
    return *at_++;
  }
  double real() { return raw<double>(); }
  uint64_t hash() { return raw<uint64_t>(); }
  std::string text() { return std::string(text_view()); }
  std::string_view text_view() {
    const uint64_t size = number();
    if (size > kMaxStringBytes || size > left()) {
      bad_ = true;
      return {};
    }
    const std::string_view value(reinterpret_cast<const char*>(at_), size);
    at_ += size;
    return value;
  }
  // The next `size` bytes as a source of their own.
  ByteSource part(uint64_t size) {
    if (size > left()) {
      bad_ = true;
      return {};
    }
    ByteSource part(std::span(at_, size));
    at_ += size;
    return part;
  }

  size_t left() const { return static_cast<size_t>(end_ - at_); }
  bool at_end() const { return at_ == end_; }
  bool bad() const { return bad_; }

 private:
  template <typename T>
  T raw() {
    T value{};
    if (left() < sizeof value) {
      bad_ = true;
    } else {
      memcpy(&value, at_, sizeof value);
      at_ += sizeof value;
    }
    return value;
  }
  const uint8_t* at_ = nullptr;
  const uint8_t* end_ = nullptr;
  bool bad_ = false;
};

// A record's fields, named once for both directions: `fields(codec, record)` calls these with either.
// Each format adds what is its own (instants, enumerations).
struct FieldSink {
  ByteSink& to;
  template <typename Id>
  void id(Id& value) { to.number(value.value); }
  void text(std::string& value) { to.text(value); }
  template <typename Int>
  void number(Int& value) { to.number(static_cast<uint64_t>(value)); }
};

struct FieldSource {
  ByteSource& from;
  bool fits = true;  // every field holds what was read for it
  template <typename Id>
  void id(Id& value) { number(value.value); }
  void text(std::string& value) { value = from.text(); }
  template <typename Int>
  void number(Int& value) {
    const uint64_t raw = from.number();
    value = static_cast<Int>(raw);
    fits = fits && static_cast<uint64_t>(value) == raw;
  }
  // One of an enumeration that begins at 0.
  template <typename Enum>
  void choice(Enum& value, uint64_t raw, Enum last) {
    fits = fits && raw <= static_cast<uint64_t>(last);
    value = fits ? static_cast<Enum>(raw) : Enum{};
  }
  bool good() const { return fits && !from.bad(); }
};

}  // namespace lull::trace
