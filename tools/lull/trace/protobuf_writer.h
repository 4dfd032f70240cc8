// The protobuf wire format, as far as writing needs it: varints, fixed 64 bit, length-delimited.
// Used by the Perfetto export. Pure; a message is a string that grows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lull::trace {

class ProtobufMessage {
 public:
  ProtobufMessage& number(uint32_t field, uint64_t value) {
    key(field, 0);
    varint(value);
    return *this;
  }
  // As int32 and int64 are written: negative ones in ten bytes.
  ProtobufMessage& integer(uint32_t field, int64_t value) {
    return number(field, static_cast<uint64_t>(value));
  }
  ProtobufMessage& fixed64(uint32_t field, uint64_t value) {
    key(field, 1);
    for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>(value >> shift);
    return *this;
  }
  ProtobufMessage& text(uint32_t field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProtobufMessage& message(uint32_t field, const ProtobufMessage& value) {
    return text(field, value.bytes_);
  }

  const std::string& bytes() const { return bytes_; }
  void clear() { bytes_.clear(); }

 private:
  void key(uint32_t field, uint32_t wire_type) { varint(uint64_t{field} << 3 | wire_type); }
  void varint(uint64_t value) {
    while (value >= 0x80) {
      bytes_ += static_cast<char>(value | 0x80);
      value >>= 7;
    }
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace lull::trace
