// What a reader says of files that are no traces, or were traces once.
#include <fmt/format.h>
#include <zlib.h>

#include <catch2/catch.hpp>
#include <random>

#include "coordinator/trace/block_file.h"
#include "coordinator/trace/event_codec.h"
#include "tests/seed.h"
#include "tests/trace/random_trace.h"

namespace lull::trace {
namespace {

std::string open_error(const std::string& path) {
  const auto reader = Reader::open(path);
  return reader ? "" : reader.error();
}

// A file of these raw blocks, each packed as the writer packs it.
std::string file_of(const std::vector<std::pair<BlockType, std::vector<uint8_t>>>& blocks) {
  const auto head = file_head(FileKind::kTrace);
  std::string bytes(head.begin(), head.end());
  BlockPacker packer;
  for (const auto& [type, raw] : blocks) {
    const auto packed = packer.pack(type, raw);
    bytes.append(packed.begin(), packed.end());
  }
  return bytes;
}

// The starts of the blocks, and the end.
std::vector<size_t> block_starts(const std::string& path) {
  auto file = BlockFileReader::open(path, FileKind::kTrace);
  REQUIRE(file.has_value());
  std::vector<size_t> starts;
  while (file->next() == BlockFileReader::Result::kBlock) starts.push_back(file->offset());
  starts.push_back(read_bytes(path).size());
  return starts;
}

TEST_CASE("files that are no traces are refused with the byte and what to do") {
  TempFolder folder;
  const std::string path = folder.file("a");
  const std::string name_it = "name a file that `lull trace record` or `lull trace import` wrote";
  CHECK(open_error(path) ==
        fmt::format("cannot read {}: No such file or directory: {}", path, name_it));
  CHECK(open_error(folder.file("")) ==
        fmt::format("cannot read {}: it is no regular file: {}", folder.file(""), name_it));
  write_bytes(path, "");
  CHECK(open_error(path) ==
        fmt::format("cannot read {}: byte 0: the file is empty: the recorder ended before it wrote "
                    "anything: record again",
                    path));
  write_bytes(path, "{\"traceEvents\": []}");
  CHECK(open_error(path) ==
        fmt::format("cannot read {}: byte 0: it is no lull trace: {}", path, name_it));
  write_trace(folder.file("good"), {});
  const std::string good = read_bytes(folder.file("good"));
  for (const size_t size : {3UL, 12UL, 16UL, 30UL, good.size() - 1}) {
    write_bytes(path, good.substr(0, size));
    INFO(size);
    CHECK(open_error(path).starts_with(fmt::format("cannot read {}: byte ", path)));
    CHECK(open_error(path).ends_with(": record again"));
  }
  std::string newer = good;
  newer[8] = 3;
  write_bytes(path, newer);
  CHECK(open_error(path) == fmt::format("cannot read {}: byte 8: format version 3, this lull reads "
                                        "versions up to 2: use a newer lull",
                                        path));
  std::string older = good;
  older[8] = 1;
  write_bytes(path, older);
  CHECK(Reader::open(path).has_value());
  std::string log = good;
  log[12] = 2;
  write_bytes(path, log);
  CHECK(
      open_error(path) ==
      fmt::format("cannot read {}: byte 12: it is a decision log, not a trace: {}", path, name_it));
}

TEST_CASE("a cut file is read up to its last whole block, wherever it is cut") {
  TempFolder folder;
  const std::string path = folder.file("a"), cut = folder.file("cut");
  const auto events = random_events(11, 3000);
  const auto expected = describe(events);
  write_trace(path, events, 250);
  const std::string bytes = read_bytes(path);
  const std::vector<size_t> starts = block_starts(path);
  REQUIRE(starts.size() == 14);  // the head, twelve blocks, the end
  for (size_t size = starts[1]; size <= bytes.size(); size += 97) {
    write_bytes(cut, bytes.substr(0, size));
    const WholeTrace got = read_trace(cut);
    size_t whole = 0;
    while (whole + 2 < starts.size() && starts[whole + 2] <= size) ++whole;
    INFO("cut at " << size);
    REQUIRE(got.events.size() == whole * 250);
    CHECK(std::equal(got.events.begin(), got.events.end(), expected.begin()));
    const bool between = size == starts[whole + 1];
    CHECK(got.was_cut == !between);
    CHECK(got.problem == (between ? ""
                                  : fmt::format("{}: byte {}: cut in the middle of a block: the "
                                                "recorder was killed or the disk was full: "
                                                "everything before it was read",
                                                cut, starts[whole + 1])));
  }
  write_bytes(cut, bytes + std::string(5000, '\0'));
  const WholeTrace zeros = read_trace(cut);
  CHECK(zeros.events == expected);
  CHECK(zeros.was_cut);
}

TEST_CASE("a flipped bit ends the reading before its block, and is not taken for a cut") {
  TempFolder folder;
  const std::string path = folder.file("a"), flipped = folder.file("flipped");
  const auto events = random_events(12, 2000);
  const auto expected = describe(events);
  write_trace(path, events, 200);
  const std::string bytes = read_bytes(path);
  const std::vector<size_t> starts = block_starts(path);
  const uint64_t seed = tests::test_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int n = 0; n < 500; ++n) {
    const size_t at = starts[1] + random() % (bytes.size() - starts[1]);
    std::string bad = bytes;
    bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
    write_bytes(flipped, bad);
    const WholeTrace got = read_trace(flipped);
    size_t block = 0;
    while (starts[block + 2] <= at) ++block;
    INFO("byte " << at);
    REQUIRE(got.events.size() == block * 200);
    CHECK(std::equal(got.events.begin(), got.events.end(), expected.begin()));
    CHECK_FALSE(got.was_cut);
    CHECK(got.problem.starts_with(
        fmt::format("{}: byte {}: corrupted: ", flipped, starts[block + 1])));
  }
}

// Blocks that are whole, with right checksums, whose content is not.
TEST_CASE("a block whose fields lie is refused with its byte, and what came before stands") {
  TempFolder folder;
  const std::string path = folder.file("a");
  const std::vector<Event> before{ClientStarted{.client = {1}}, DeviceInfo{.device = {0}},
                                  KernelInfo{.name = "k"}};
  const auto check = [&](const std::vector<Event>& lies, const std::string& why) {
    BlockEncoder first, second;
    for (const Event& event : before) first.add(event);
    for (const Event& event : lies) second.add(event);
    const auto head = encode_info(some_info());
    const auto good = first.take();
    const size_t at = file_of({{BlockType::kHead, head}, {BlockType::kEvents, good}}).size();
    write_bytes(path, file_of({{BlockType::kHead, head},
                               {BlockType::kEvents, good},
                               {BlockType::kEvents, second.take()}}));
    const WholeTrace got = read_trace(path);
    INFO(why);
    CHECK(got.events.size() == before.size() + lies.size() - 1);
    CHECK(got.problem ==
          fmt::format("{}: byte {}: the block here is whole but wrong: {}: everything "
                      "before it was read",
                      path, at, why));
    CHECK_FALSE(got.was_cut);
  };
  const Launch fine{.client = {1}, .sequence = 1};
  check({fine, Launch{.client = {1}, .kernel = 1}},
        "a launch names kernel 1, which was not defined before");
  check({fine, Launch{.client = {9}}}, "a launch names client 9, which was not defined before");
  check({Launch{.client = {1}, .device = {4}}},
        "a launch names device 4, which was not defined before");
  check({Timing{.client = {1}, .kernel = 77}},
        "a timing names kernel 77, which was not defined before");
  check({Synced{.client = {3}}}, "an event names client 3, which was not defined before");
  check({RangeInfo{.index = 1}}, "a range is defined out of order");
  check({RangeInfo{}, Range{.client = {3}}}, "a range names client 3, which was not defined before");
  check({Range{.client = {1}}}, "a range names name 0, which was not defined before");
  check({MemoryUse{.client = {1}, .device = {2}}},
        "a use of memory names an unknown client or device");
  check({Launch{.client = {1}, .at = {-1}}}, "an event has a time or a level that cannot be");
  check({Timing{.client = {1}, .duration = {-5}}}, "an event has a time or a level that cannot be");
  check({ClientStarted{.client = {2}, .priority = {10}}},
        "an event has a time or a level that cannot be");
}

TEST_CASE("a block that unpacks to more than it says, or to a mountain, is refused") {
  TempFolder folder;
  const std::string path = folder.file("a");
  const auto head = encode_info(some_info());
  const std::vector<uint8_t> mountain(3UL << 20, 0);
  write_bytes(path, file_of({{BlockType::kHead, head}, {BlockType::kEvents, mountain}}));
  CHECK(read_trace(path).problem.find("a block that no lull writes") != std::string::npos);
  std::string bytes =
      file_of({{BlockType::kHead, head}, {BlockType::kEvents, std::vector<uint8_t>(1000, 0)}});
  const size_t at = file_of({{BlockType::kHead, head}}).size();
  bytes[at + 8] = 100;  // raw length
  bytes[at + 9] = 0;
  const auto crc =
      static_cast<uint32_t>(::crc32(0, reinterpret_cast<const uint8_t*>(bytes.data()) + at, 20));
  for (int n = 0; n < 4; ++n)
    bytes[at + 20 + static_cast<size_t>(n)] = static_cast<char>(crc >> (8 * n));
  write_bytes(path, bytes);
  CHECK(read_trace(path).problem.find("does not unpack to the length it names") !=
        std::string::npos);
}

// Random damage at every layer: to the file (checksums catch it), and to the raw bytes of a block
// before it is packed, where only the decoder's and the reader's own checks stand in the way. Under
// the sanitizers this is what shows that nothing is read beyond a bound.
TEST_CASE("the reader survives thousands of mutated files") {
  TempFolder folder;
  const uint64_t seed = tests::test_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const auto mutate = [&](auto& bytes, size_t from) {
    const size_t times = 1 + random() % 8;
    for (size_t n = 0; n < times && bytes.size() > from; ++n) {
      const size_t at = from + random() % (bytes.size() - from);
      switch (random() % 6) {
        case 0:
          bytes[at] = static_cast<uint8_t>(random());
          break;
        case 1:
          bytes[at] = static_cast<uint8_t>(bytes[at] ^ (1 << random() % 8));
          break;
        case 2:
          bytes[at] = 0xff;
          break;
        case 3:
          bytes.resize(at);
          break;
        case 4:
          bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), 1 + random() % 9,
                       static_cast<uint8_t>(random()));
          break;
        default:
          bytes.erase(bytes.begin() + static_cast<ptrdiff_t>(at),
                      bytes.begin() +
                          static_cast<ptrdiff_t>(std::min(bytes.size(), at + 1 + random() % 9)));
      }
    }
  };
  const auto head = encode_info(some_info());
  const std::string path = folder.file("a");
  uint64_t whole = 0, refused = 0;
  for (int n = 0; n < 5000; ++n) {
    const auto events = random_events(random(), 20 + random() % 60);
    BlockEncoder encoder;
    for (const Event& event : events) encoder.add(event);
    std::vector<uint8_t> raw = encoder.take();
    std::vector<uint8_t> info = head;
    if (n % 2 == 0) mutate(raw, 0);
    if (n % 16 == 0) mutate(info, 0);
    std::string bytes = file_of({{BlockType::kHead, info}, {BlockType::kEvents, raw}});
    if (n % 2 == 1) mutate(bytes, 0);
    write_bytes(path, bytes);
    const WholeTrace got = read_trace(path);
    (got.open_error.empty() && got.problem.empty() ? whole : refused) += 1;
    if (!got.open_error.empty()) CHECK(got.open_error.starts_with("cannot read " + path + ": "));
    if (!got.problem.empty()) CHECK(got.problem.starts_with(path + ": byte "));
  }
  CHECK(refused > 3000);
  CHECK(whole > 0);
}

}  // namespace
}  // namespace lull::trace
