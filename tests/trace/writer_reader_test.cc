#include <fmt/format.h>
#include <malloc.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <random>

#include "coordinator/trace/block_file.h"
#include "coordinator/trace/byte_stream.h"
#include "tests/seed.h"
#include "tests/trace/random_trace.h"

namespace lull::trace {
namespace {

TEST_CASE("numbers come back as they went") {
  ByteSink sink;
  const uint64_t numbers[] = {0, 1, 127, 128, 300, uint64_t{1} << 63, UINT64_MAX};
  for (const uint64_t number : numbers) sink.number(number);
  for (const uint64_t from : numbers) {
    for (const uint64_t to : numbers) sink.distance(from, to);
  }
  sink.text("kernel");
  sink.real(2.5);
  ByteSource source(sink.bytes());
  for (const uint64_t number : numbers) CHECK(source.number() == number);
  for (const uint64_t from : numbers) {
    for (const uint64_t to : numbers) CHECK(source.from(from) == to);
  }
  CHECK(source.text() == "kernel");
  CHECK(source.real() == 2.5);
  CHECK(source.at_end());
  CHECK_FALSE(source.bad());
  CHECK(source.number() == 0);
  CHECK(source.bad());
}

TEST_CASE("every kind of event comes back in order, whole, however the blocks are cut") {
  TempFolder folder;
  const uint64_t seed = tests::test_seed();
  INFO("seed " << seed);
  const auto events = random_events(seed, 20'000);
  const auto expected = describe(events);
  for (const size_t flush_every : {0UL, 1UL, 7UL, 1000UL}) {
    const std::string path = folder.file(fmt::format("{}.lull", flush_every));
    const size_t count = flush_every == 1 ? 500 : events.size();
    write_trace(path, {events.begin(), events.begin() + static_cast<ptrdiff_t>(count)},
                flush_every);
    const WholeTrace got = read_trace(path);
    REQUIRE(got.open_error.empty());
    CHECK(got.problem.empty());
    CHECK_FALSE(got.was_cut);
    REQUIRE(got.events.size() == count);
    for (size_t n = 0; n < count; ++n) {
      if (got.events[n] != expected[n]) FAIL(n << ": " << got.events[n] << " not " << expected[n]);
    }
  }
}

TEST_CASE("two writings of the same events are the same bytes") {
  TempFolder folder;
  const auto events = random_events(7, 5000);
  write_trace(folder.file("a"), events);
  write_trace(folder.file("b"), events);
  CHECK(read_bytes(folder.file("a")) == read_bytes(folder.file("b")));
}

TEST_CASE("the head says where the trace is from") {
  TempFolder folder;
  write_trace(folder.file("a"), {});
  const WholeTrace got = read_trace(folder.file("a"));
  CHECK(got.open_error.empty());
  CHECK(got.events.empty());
  const FileInfo info = some_info();
  CHECK(got.info.format_version == kFormatVersion);
  CHECK(got.info.created_unix_ns == info.created_unix_ns);
  CHECK(got.info.created_at == info.created_at);
  CHECK(got.info.lull_version == info.lull_version);
  CHECK(got.info.host == info.host);
  CHECK(got.info.source == info.source);
  CHECK(got.info.command == info.command);
  CHECK(got.info.simulated == info.simulated);
  CHECK(got.info.slow_motion == info.slow_motion);
  CHECK(got.info.sharing == info.sharing);
}

TEST_CASE("what is flushed can be read while the recording goes on") {
  TempFolder folder;
  auto writer = Writer::create(folder.file("a"), some_info(), Writer::WhenBehind::kWait);
  REQUIRE(writer.has_value());
  const auto events = random_events(3, 200);
  for (size_t n = 0; n < 100; ++n) writer->add(events[n]);
  REQUIRE(writer->finish().has_value());
  CHECK(read_trace(folder.file("a")).events.size() == 100);
  for (size_t n = 100; n < 200; ++n) writer->add(events[n]);
  CHECK(read_trace(folder.file("a")).events.size() == 100);
  REQUIRE(writer->finish().has_value());
  CHECK(read_trace(folder.file("a")).events == describe(events));
  struct stat about;
  REQUIRE(::stat(folder.file("a").c_str(), &about) == 0);
  CHECK(writer->bytes() == static_cast<uint64_t>(about.st_size));
}

TEST_CASE("a file that is there already is left alone, an empty one is taken") {
  TempFolder folder;
  write_bytes(folder.file("old"), "precious");
  const auto refused = Writer::create(folder.file("old"), some_info(), Writer::WhenBehind::kDrop);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error() ==
        fmt::format("cannot write {}: it is there already: name another, or remove it",
                    folder.file("old")));
  CHECK(read_bytes(folder.file("old")) == "precious");
  write_bytes(folder.file("empty"), "");
  CHECK(Writer::create(folder.file("empty"), some_info(), Writer::WhenBehind::kDrop).has_value());
  const auto nowhere =
      Writer::create(folder.file("no/where"), some_info(), Writer::WhenBehind::kDrop);
  REQUIRE_FALSE(nowhere.has_value());
  CHECK(nowhere.error().find("No such file or directory") != std::string::npos);
}

TEST_CASE(
    "what names nothing that was defined is dropped, counted and said, and the file stays right") {
  TempFolder folder;
  {
    auto writer = Writer::create(folder.file("a"), some_info(), Writer::WhenBehind::kWait);
    REQUIRE(writer.has_value());
    writer->add(ClientStarted{.client = {1}, .at = {1}});
    writer->add(DeviceInfo{.device = {0}});
    writer->add(KernelInfo{.index = 0, .name = "k"});
    writer->add(KernelInfo{.index = 5, .name = "out of order"});
    writer->add(Launch{.client = {1}, .kernel = 1});
    writer->add(Launch{.client = {2}, .kernel = 0});
    writer->add(Launch{.client = {1}, .device = {3}, .kernel = 0});
    writer->add(Launch{.client = {1}, .at = {-5}});
    writer->add(Timing{.client = {1}, .duration = {-1}});
    writer->add(Launch{.client = {1}, .sequence = 1, .at = {7}});
    CHECK(writer->dropped() == 6);
  }
  const WholeTrace got = read_trace(folder.file("a"));
  CHECK(got.problem.empty());
  REQUIRE(got.events.size() == 5);
  CHECK(got.events[3] == describe(Lost{{1}, {7}, 4}));
  CHECK(got.events[4] == describe(Launch{.client = {1}, .sequence = 1, .at = {7}}));
}

TEST_CASE("a long string is cut, not refused") {
  TempFolder folder;
  write_trace(folder.file("a"), {KernelInfo{.name = std::string(1 << 20, 'k'),
                                            .call_site = std::string(1 << 20, 'c')},
                                 PolicyChange{{5}, "fikit"}});
  const WholeTrace got = read_trace(folder.file("a"));
  CHECK(got.problem.empty());
  REQUIRE(got.events.size() == 2);
  CHECK(got.events[0] == describe(KernelInfo{.name = std::string(kMaxStringBytes, 'k'),
                                             .call_site = std::string(kMaxStringBytes, 'c')}));
}

// What a reader keeps does not depend on how much there is to read: shown with two files, the
// second eight times the first, of many blocks each.
TEST_CASE("a reader keeps one block, however long the file is") {
  TempFolder folder;
  const auto make = [&](const std::string& path, uint64_t launches) {
    auto writer = Writer::create(path, some_info(), Writer::WhenBehind::kWait);
    REQUIRE(writer.has_value());
    writer->add(ClientStarted{.client = {1}});
    writer->add(DeviceInfo{.device = {0}});
    for (KernelIndex n = 0; n < 100; ++n) writer->add(KernelInfo{.index = n, .name = "kernel"});
    std::mt19937_64 random(1);
    int64_t at = 0;
    for (uint64_t n = 1; n <= launches; ++n) {
      at += static_cast<int64_t>(3000 + random() % 4000);
      const auto kernel = static_cast<KernelIndex>(n % 100);
      writer->add(Launch{.client = {1}, .kernel = kernel, .sequence = n, .at = {at}});
      writer->add(Timing{.client = {1},
                         .sequence = n,
                         .kernel = kernel,
                         .start = {at + 5000},
                         .duration = {static_cast<int64_t>(2000 + random() % 500)},
                         .gap = {static_cast<int64_t>(random() % 2000)}});
    }
    REQUIRE(writer->finish().has_value());
    return writer->bytes();
  };
  const auto most_kept = [&](const std::string& path, uint64_t launches) {
    const auto used = [] {
      const auto now = ::mallinfo2();
      return now.uordblks + now.hblkhd;
    };
    const size_t before = used();
    auto reader = Reader::open(path);
    REQUIRE(reader.has_value());
    size_t most = 0;
    uint64_t seen = 0, count = 0;
    while (const Event* event = reader->next()) {
      seen += std::holds_alternative<Launch>(*event) ? 1 : 0;
      if (++count % 1000 == 0) most = std::max(most, used() - before);
    }
    CHECK(reader->problem().empty());
    CHECK(seen == launches);
    return most;
  };
  const uint64_t few = 100'000, many = 800'000;
  const uint64_t bytes = make(folder.file("few"), few);
  make(folder.file("many"), many);
  const size_t kept_few = most_kept(folder.file("few"), few);
  const size_t kept_many = most_kept(folder.file("many"), many);
  INFO(fmt::format("{:.2f} bytes a launch, {} and {} bytes kept",
                   static_cast<double>(bytes) / static_cast<double>(few), kept_few, kept_many));
  CHECK(static_cast<double>(bytes) / static_cast<double>(few) <= 16);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(kept_few < (4UL << 20));
  CHECK(kept_many < kept_few + (256UL << 10));
#endif
}

}  // namespace
}  // namespace lull::trace
