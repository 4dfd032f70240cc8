// The file that traces and decision logs are kept in: append-only, a head and then blocks, each
// compressed on its own, with its length and its checksums. Whatever happens to the writer, all
// whole blocks can be read. What is in a block is the codecs' business.
//
//   offset 0   "lulltrc\n"   u32 format version   u32 kind (FileKind)            all little-endian
//   then       block, block, block ...
//   block      u32 magic  u32 type  u32 raw bytes  u32 stored bytes  u32 crc32 of the stored bytes
//              u32 crc32 of the five words before   stored bytes: one zstd frame of `raw bytes`
//
// A version changes when an older reader could not make sense of a file. Here: the layout, packing
// and unpacking a block, and reading a file block by block; one thread at a time each.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lull::trace {

inline constexpr std::string_view kFileMagic = "lulltrc\n";
inline constexpr uint32_t kFormatVersion = 2;
inline constexpr uint32_t kOldestVersion = 1;  // that this lull reads; 2 has more kinds of events
enum class FileKind : uint32_t { kTrace = 1, kDecisionLog = 2 };
enum class BlockType : uint32_t { kHead = 1, kEvents = 2 };

inline constexpr size_t kFileHeadBytes = 16;
inline constexpr size_t kBlockHeadBytes = 24;
inline constexpr size_t kBlockRawBytes = 64UL << 10;    // a block ends when it is this long
inline constexpr size_t kMaxBlockRawBytes = 2UL << 20;  // no block is ever longer

std::vector<uint8_t> file_head(FileKind kind);

// Turns raw bytes into a block as it goes to the file.
class BlockPacker {
 public:
  BlockPacker();
  ~BlockPacker();
  BlockPacker(const BlockPacker&) = delete;
  // Valid until the next call. Empty: no memory.
  std::span<const uint8_t> pack(BlockType type, std::span<const uint8_t> raw);

 private:
  void* context_;  // ZSTD_CCtx
  std::vector<uint8_t> packed_;
};

// Reads block after block. Holds one block.
class BlockFileReader {
 public:
  // Checks the file's head. Error: "cannot read FILE: byte N: why: what to do".
  static std::expected<BlockFileReader, std::string> open(const std::string& path, FileKind kind);
  BlockFileReader(BlockFileReader&&) noexcept;
  BlockFileReader& operator=(BlockFileReader&&) noexcept;
  ~BlockFileReader();

  enum class Result { kBlock, kEnd, kProblem };
  // The next block. After kEnd or kProblem: the same again.
  Result next();

  BlockType type() const { return type_; }
  std::span<const uint8_t> raw() const { return raw_; }
  uint64_t offset() const { return block_offset_; }  // of the block last read
  const std::string& path() const { return path_; }

  // After kProblem: "FILE: byte N: why: what was read", and whether the file just stops there.
  const std::string& problem() const { return problem_; }
  bool was_cut() const { return cut_; }
  // Makes the current block a problem: its content lies. `what` is half a line.
  void blame(const std::string& what);
  // The bytes held, for tests of the bound.
  size_t held_bytes() const { return raw_.capacity() + stored_.capacity(); }

 private:
  BlockFileReader() = default;
  size_t read_up_to(uint8_t* to, size_t size);
  Result end_with(bool cut, const std::string& why);

  std::string path_;
  int fd_ = -1;
  void* context_ = nullptr;  // ZSTD_DCtx
  uint64_t offset_ = 0;
  uint64_t block_offset_ = 0;
  BlockType type_ = BlockType::kHead;
  std::vector<uint8_t> raw_;
  std::vector<uint8_t> stored_;
  int read_error_ = 0;
  bool ended_ = false;
  bool cut_ = false;
  std::string problem_;
};

}  // namespace lull::trace
