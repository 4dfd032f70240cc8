// trace_scribe FILE SEED COUNT: writes random_events(SEED, COUNT) as fast as it can, in short blocks;
// says `go` before the first. For tests that kill it meanwhile.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "tests/trace/random_trace.h"

int main(int argc, char** argv) {
  using namespace lull::trace;
  if (argc != 4) return 2;
  const auto events = random_events(std::strtoull(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10));
  auto writer = Writer::create(argv[1], some_info(), Writer::WhenBehind::kWait);
  if (!writer) {
    fmt::print(stderr, "{}\n", writer.error());
    return 1;
  }
  fmt::print("go\n");
  std::fflush(stdout);
  for (size_t n = 0; n < events.size(); ++n) {
    writer->add(events[n]);
    if (n % 10 == 9) writer->flush();
  }
  return writer->finish() ? 0 : 1;
}
