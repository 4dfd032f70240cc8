// A disk that takes no more: the failure is remembered, the file ends with a whole block, and the
// caller neither waits nor ends.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>

#include "coordinator/trace/block_file.h"
#include "tests/trace/random_trace.h"

namespace lull::trace {
namespace {

// Files cannot grow beyond `bytes` while it lives. The signal is left as it is: the writer's own
// thread must not let it end the program.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

TEST_CASE("a limit of file sizes stops the recording and leaves a right file") {
  TempFolder folder;
  const auto events = random_events(5, 60'000);
  const auto expected = describe(events);
  for (const rlim_t limit : {rlim_t{100'000}, rlim_t{200'001}}) {
    const std::string path = folder.file(fmt::format("{}", limit));
    std::string failure;
    uint64_t dropped = 0;
    {
      FileSizeLimit small(limit);
      auto writer = Writer::create(path, some_info(), Writer::WhenBehind::kWait);
      REQUIRE(writer.has_value());
      for (const Event& event : events) writer->add(event);
      const auto done = writer->finish();
      REQUIRE_FALSE(done.has_value());
      failure = done.error();
      CHECK(writer->failure() == failure);
      dropped = writer->dropped();
      writer->add(events.back());
      CHECK(writer->dropped() == dropped + 1);
    }
    CHECK(failure == fmt::format("cannot write {}: File too large: raise the limit of file sizes "
                                 "(ulimit -f)",
                                 path));
    const WholeTrace got = read_trace(path);
    CHECK(got.problem.empty());
    CHECK(got.events.size() > 1000);
    REQUIRE(got.events.size() < expected.size());
    CHECK(dropped == expected.size() - got.events.size());
    CHECK(std::equal(got.events.begin(), got.events.end(), expected.begin()));
    CHECK(read_bytes(path).size() <= limit);
  }
}

TEST_CASE("a disk that is full at once is said at once") {
  const auto writer = Writer::create("/dev/full", some_info(), Writer::WhenBehind::kDrop);
  REQUIRE_FALSE(writer.has_value());
  CHECK(writer.error() ==
        "cannot write /dev/full: No space left on device: free space, or name a file on another "
        "disk");
}

}  // namespace
}  // namespace lull::trace
