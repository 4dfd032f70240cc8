// Writes a made-up trace for the tests that need a file: two tasks on one GPU, the second held by
// the first, kernels with hostile names, an iteration that repeats. The same arguments give the
// same file.
//
//   make_trace FILE LAUNCHES [TIMED_ONE_IN]
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "coordinator/trace/writer.h"

using namespace lull;
using namespace lull::trace;

namespace {

constexpr const char* kNames[] = {
    "_Z9vectorAddPKfS0_Pfi",
    "</script><script>window.broken=1</script>",
    "void gemm<128, 64>(float const*, float const*, float*)",
    "quote\"backslash\\ampersand&<b>",
    "_ZN2at6native18elementwise_kernelILi128ELi4EEEviPf",
    "softmax",
};
constexpr uint32_t kKernels = std::size(kNames);
constexpr uint32_t kPerIteration = 24;

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const uint64_t launches = std::strtoull(argv[2], nullptr, 10);
  const uint64_t timed_one_in = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
  FileInfo info;
  info.created_unix_ns = 1'700'000'000'000'000'000;
  info.created_at = {1'000'000'000};
  info.lull_version = "test";
  info.host = "nowhere";
  info.source = "make_trace";
  info.simulated = true;
  info.slow_motion = 20;
  info.sharing = "time_slice";
  auto writer = Writer::create(argv[1], info, Writer::WhenBehind::kWait);
  if (!writer) {
    std::fprintf(stderr, "%s\n", writer.error().c_str());
    return 1;
  }
  writer->add(
      DeviceInfo{{0}, "GPU-00000000-0000-0000-0000-000000000000", "Made-up GPU", 80ULL << 30});
  writer->add(PolicyChange{{1'000'000'000}, "priority"});
  for (uint32_t c = 1; c <= 2; ++c) {
    writer->add(ClientStarted{{c},
                              {1'000'000'000},
                              static_cast<int32_t>(1000 + c),
                              {static_cast<uint8_t>(c == 1 ? 2 : 7)},
                              c == 1 ? "serve" : "train",
                              "",
                              c == 1 ? "serve.py" : "train.py"});
  }
  for (uint32_t k = 0; k < kKernels; ++k) {
    KernelInfo kernel;
    kernel.index = k;
    kernel.id = {1000 + k};
    kernel.name = kNames[k];
    kernel.grid = {k + 1, 2, 1};
    kernel.block = {128, 1, 1};
    writer->add(kernel);
  }
  writer->add(RangeInfo{0, "", "step </script>"});
  writer->add(RangeInfo{1, "data", "load"});
  std::mt19937_64 random(7);
  int64_t host_ns[3] = {0, 1'001'000'000, 1'001'000'000};
  int64_t device_ns[3] = {0, 1'001'000'000, 1'001'000'000};
  int64_t step_ns[3] = {0, 1'000'500'000, 1'000'500'000};
  uint64_t sequence[3] = {0, 0, 0}, mine[3] = {0, 0, 0};
  for (uint64_t n = 0; n < launches; ++n) {
    const uint32_t c = n % 3 == 0 ? 1 : 2;
    const uint64_t place = mine[c]++ % kPerIteration;
    Launch launch;
    launch.client = {c};
    // One of a kind at the beginning and at the end, three that take turns between.
    launch.kernel = static_cast<KernelIndex>(place == 0    ? 0
                                             : place >= 22 ? place - 18
                                                           : 1 + (place - 1) % 3);
    launch.sequence = ++sequence[c];
    host_ns[c] += 4000 + static_cast<int64_t>(random() % 500) + (place == 0 ? 60'000 : 0);
    launch.at = {host_ns[c]};
    if (c == 2 && place % 8 == 0) {
      launch.held = {20'000 + static_cast<int64_t>(random() % 30'000)};
      launch.held_by = {1};
    }
    host_ns[c] += launch.held.ns;
    writer->add(launch);
    if (place == 0 || place == 12) {
      writer->add(MemoryUse{{c}, {0}, {host_ns[c]}, (place == 0 ? 1ULL : 3ULL) << 30});
    }
    const int64_t start_ns = std::max(device_ns[c], host_ns[c] + 2000);
    const int64_t length_ns =
        2000 + 1500 * static_cast<int64_t>(launch.kernel) + static_cast<int64_t>(random() % 400);
    device_ns[c] = start_ns + length_ns;
    if (n % timed_one_in != 0) continue;
    Timing timing;
    timing.client = {c};
    timing.sequence = launch.sequence;
    timing.kernel = launch.kernel;
    timing.start = {start_ns};
    timing.duration = {length_ns};
    timing.gap = {static_cast<int64_t>(random() % 3000)};
    writer->add(timing);
    if (place == kPerIteration - 1) {
      writer->add(Synced{{c}, {0}, launch.sequence, {device_ns[c] + 3000}});
      writer->add(Waited{{c}, {0}, {host_ns[c]}, {device_ns[c] + 3000}});
      host_ns[c] = device_ns[c] + 3000;
      writer->add(Range{{c}, {0}, 1, RangeKind::kNested, 1, {step_ns[c]}, {step_ns[c] + 2000}});
      writer->add(Range{{c}, {0}, 0, RangeKind::kNested, 0, {step_ns[c]}, {host_ns[c]}});
      step_ns[c] = host_ns[c] + 10;
    }
  }
  for (uint32_t c = 1; c <= 2; ++c) {
    writer->add(ClientEnded{{c}, {host_ns[c]}, mine[c], 0, 0, 0});
  }
  if (const auto done = writer->finish(); !done) {
    std::fprintf(stderr, "%s\n", done.error().c_str());
    return 1;
  }
  return 0;
}
