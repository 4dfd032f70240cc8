#include "coordinator/trace/block_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <utility>

namespace lull::trace {
namespace {

constexpr uint32_t kBlockMagic = 0x6b626c6cU;  // "llbk"
constexpr int kCompressionLevel = 3;
// A short block is written seldom, and has little to learn from: more care pays.
constexpr int kShortBlockLevel = 12;
constexpr size_t kShortBlockBytes = 32UL << 10;

void put32(uint8_t* to, uint32_t value) {
  for (int n = 0; n < 4; ++n) to[n] = static_cast<uint8_t>(value >> (8 * n));
}
uint32_t get32(const uint8_t* from) {
  uint32_t value = 0;
  for (int n = 0; n < 4; ++n) value |= static_cast<uint32_t>(from[n]) << (8 * n);
  return value;
}
uint32_t checksum(const uint8_t* data, size_t size) {
  return static_cast<uint32_t>(::crc32(0, data, static_cast<unsigned>(size)));
}
const char* name_of(FileKind kind) {
  return kind == FileKind::kTrace ? "a trace" : "a decision log";
}

}  // namespace

std::vector<uint8_t> file_head(FileKind kind) {
  std::vector<uint8_t> head(kFileHeadBytes);
  memcpy(head.data(), kFileMagic.data(), kFileMagic.size());
  put32(head.data() + 8, kFormatVersion);
  put32(head.data() + 12, static_cast<uint32_t>(kind));
  return head;
}

// ---- packing ----------------------------------------------------------------------------------

BlockPacker::BlockPacker() : context_(ZSTD_createCCtx()) {}
BlockPacker::~BlockPacker() { ZSTD_freeCCtx(static_cast<ZSTD_CCtx*>(context_)); }

std::span<const uint8_t> BlockPacker::pack(BlockType type, std::span<const uint8_t> raw) {
  packed_.resize(kBlockHeadBytes + ZSTD_compressBound(raw.size()));
  const size_t stored =
      context_ == nullptr
          ? static_cast<size_t>(-1)
          : ZSTD_compressCCtx(static_cast<ZSTD_CCtx*>(context_), packed_.data() + kBlockHeadBytes,
                              packed_.size() - kBlockHeadBytes, raw.data(), raw.size(),
                              raw.size() < kShortBlockBytes ? kShortBlockLevel : kCompressionLevel);
  if (context_ == nullptr || ZSTD_isError(stored)) return {};
  uint8_t* head = packed_.data();
  put32(head, kBlockMagic);
  put32(head + 4, static_cast<uint32_t>(type));
  put32(head + 8, static_cast<uint32_t>(raw.size()));
  put32(head + 12, static_cast<uint32_t>(stored));
  put32(head + 16, checksum(head + kBlockHeadBytes, stored));
  put32(head + 20, checksum(head, 20));
  return {head, kBlockHeadBytes + stored};
}

// ---- reading ----------------------------------------------------------------------------------

std::expected<BlockFileReader, std::string> BlockFileReader::open(const std::string& path,
                                                                  FileKind kind) {
  BlockFileReader reader;
  reader.path_ = path;
  const auto fail = [&](const std::string& why) {
    return std::unexpected(fmt::format("cannot read {}: {}", path, why));
  };
  const char* make = kind == FileKind::kTrace
                         ? "name a file that `lull trace record` or `lull trace import` wrote"
                         : "name a file that `lulld --decision-log` wrote";
  reader.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (reader.fd_ < 0) return fail(fmt::format("{}: {}", strerror(errno), make));
  struct stat about;
  if (::fstat(reader.fd_, &about) != 0 || !S_ISREG(about.st_mode)) {
    return fail(fmt::format("it is no regular file: {}", make));
  }
  uint8_t head[kFileHeadBytes];
  const size_t got = reader.read_up_to(head, sizeof head);
  if (reader.read_error_ != 0) {
    return fail(fmt::format("byte 0: {}: check the disk", strerror(reader.read_error_)));
  }
  if (got == 0) {
    return fail(
        "byte 0: the file is empty: the recorder ended before it wrote anything: record again");
  }
  if (memcmp(head, kFileMagic.data(), std::min(got, kFileMagic.size())) != 0) {
    return fail(fmt::format("byte 0: it is no lull trace: {}", make));
  }
  if (got < sizeof head) {
    return fail(
        fmt::format("byte {}: cut inside its head: the recorder was killed at once: record "
                    "again",
                    got));
  }
  const uint32_t version = get32(head + 8);
  if (version < kOldestVersion || version > kFormatVersion) {
    return fail(fmt::format(
        "byte 8: format version {}, {} reads versions up to {}: {}", version, "this lull", kFormatVersion,
        version > kFormatVersion ? "use a newer lull" : "use the lull that wrote it"));
  }
  if (get32(head + 12) != static_cast<uint32_t>(kind)) {
    const uint32_t other = get32(head + 12);
    const bool known = other == static_cast<uint32_t>(FileKind::kTrace) ||
                       other == static_cast<uint32_t>(FileKind::kDecisionLog);
    return fail(fmt::format("byte 12: it is {}, not {}: {}",
                            known ? name_of(static_cast<FileKind>(other)) : "of an unknown kind",
                            name_of(kind), make));
  }
  reader.context_ = ZSTD_createDCtx();
  if (reader.context_ == nullptr) return fail("no memory: free some");
  return reader;
}

BlockFileReader::BlockFileReader(BlockFileReader&& other) noexcept { *this = std::move(other); }
BlockFileReader& BlockFileReader::operator=(BlockFileReader&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(context_, other.context_);
  std::swap(raw_, other.raw_);
  std::swap(stored_, other.stored_);
  std::swap(problem_, other.problem_);
  offset_ = other.offset_;
  block_offset_ = other.block_offset_;
  type_ = other.type_;
  read_error_ = other.read_error_;
  ended_ = other.ended_;
  cut_ = other.cut_;
  return *this;
}
BlockFileReader::~BlockFileReader() {
  if (fd_ >= 0) ::close(fd_);
  ZSTD_freeDCtx(static_cast<ZSTD_DCtx*>(context_));
}

size_t BlockFileReader::read_up_to(uint8_t* to, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(fd_, to + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) read_error_ = errno;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  offset_ += done;
  return done;
}

BlockFileReader::Result BlockFileReader::end_with(bool cut, const std::string& why) {
  ended_ = true;
  cut_ = cut;
  problem_ =
      fmt::format("{}: byte {}: {}: everything before it was read", path_, block_offset_, why);
  return Result::kProblem;
}

void BlockFileReader::blame(const std::string& what) {
  if (problem_.empty()) end_with(/*cut=*/false, "the block here is whole but wrong: " + what);
}

BlockFileReader::Result BlockFileReader::next() {
  if (ended_) return problem_.empty() ? Result::kEnd : Result::kProblem;
  block_offset_ = offset_;
  uint8_t head[kBlockHeadBytes];
  const size_t got = read_up_to(head, sizeof head);
  if (read_error_ != 0) return end_with(false, strerror(read_error_));
  if (got == 0) {
    ended_ = true;
    return Result::kEnd;
  }
  constexpr const char* kCut =
      "cut in the middle of a block: the recorder was killed or the disk was full";
  if (got < sizeof head) return end_with(true, kCut);
  // A machine that lost power may leave a file longer than what reached the disk.
  if (std::all_of(head, head + sizeof head, [](uint8_t byte) { return byte == 0; })) {
    return end_with(true, "only zeros follow: the machine went down while it was written");
  }
  if (get32(head) != kBlockMagic || get32(head + 20) != checksum(head, 20)) {
    return end_with(false, "corrupted: the head of a block is not what was written");
  }
  const uint32_t type = get32(head + 4), raw = get32(head + 8), stored = get32(head + 12);
  if ((type != static_cast<uint32_t>(BlockType::kHead) &&
       type != static_cast<uint32_t>(BlockType::kEvents)) ||
      raw > kMaxBlockRawBytes || stored > ZSTD_compressBound(kMaxBlockRawBytes)) {
    return end_with(false, "a block that no lull writes");
  }
  stored_.resize(stored);
  if (read_up_to(stored_.data(), stored) != stored) {
    if (read_error_ != 0) return end_with(false, strerror(read_error_));
    return end_with(true, kCut);
  }
  if (get32(head + 16) != checksum(stored_.data(), stored)) {
    return end_with(false, "corrupted: a block's checksum is wrong");
  }
  raw_.resize(raw);
  const size_t size = ZSTD_decompressDCtx(static_cast<ZSTD_DCtx*>(context_), raw_.data(), raw,
                                          stored_.data(), stored);
  if (ZSTD_isError(size) || size != raw) {
    return end_with(false, "a block that does not unpack to the length it names");
  }
  type_ = static_cast<BlockType>(type);
  return Result::kBlock;
}

}  // namespace lull::trace
