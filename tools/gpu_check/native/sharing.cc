#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <random>
#include <string>

#include "tools/gpu_check/native/probes.h"

namespace lull::probe {

using nlohmann::json;

namespace {

// Says that the process is ready and waits for the file; an empty name waits for nothing.
void ready_until(const std::string& start_file) {
  std::printf("{\"ready\":%d}\n", static_cast<int>(getpid()));
  std::fflush(stdout);
  while (!start_file.empty() && access(start_file.c_str(), F_OK) != 0) {
    const timespec pause{0, 200'000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

json probe_watch(Driver& driver, double spin_ms, const std::string& start_file) {
  const Device device(driver);
  if (driver.simulated) throw NotHere{"the simulated GPU runs no code: its slice is a parameter"};
  constexpr uint64_t kMost = 8192;
  const size_t bytes = (3 + 2 * kMost) * sizeof(uint64_t);
  CUdeviceptr out = 0;
  LULL_MUST(driver, cuMemAlloc, &out, bytes);
  LULL_MUST(driver, cuMemsetD32, out, 0u, bytes / 4);
  const CUstream stream = device.stream();
  std::vector<uint64_t> words(3 + 2 * kMost);
  uint64_t gap_ns = 5000;  // shorter than a switch
  const auto run = [&](uint64_t spin_ns) {
    uint64_t most = kMost;
    void* arguments[] = {&out, &spin_ns, &gap_ns, &most};
    device.launch(device.watch, stream, arguments);
    LULL_MUST(driver, cuStreamSynchronize, stream);
    LULL_MUST(driver, cuMemcpyDtoH, static_cast<void*>(words.data()), out, bytes);
  };
  // Longer than any step of the device's timer: 20 gaps in 5 ms are the timer's, not a neighbour's.
  run(1'000'000);
  for (run(5'000'000); words[1] > 20; run(5'000'000)) {
    gap_ns *= 2;
    if (gap_ns > 100'000) throw NotHere{"the device's timer ticks too coarsely to see a switch"};
  }
  ready_until(start_file);
  run(static_cast<uint64_t>(spin_ms * 1e6));
  json gaps = json::array();
  for (uint64_t i = 0; i < std::min(words[1], kMost); ++i) {
    gaps.push_back({words[3 + 2 * i], words[4 + 2 * i]});
  }
  return {{"start_ns", words[0]},
          {"end_ns", words[2]},
          {"gaps", gaps},
          {"full", words[1] >= kMost},
          {"gap_ns", gap_ns}};
}

json probe_rounds(Driver& driver, const RoundWishes& wishes, const std::string& start_file) {
  const Device device(driver);
  const CUstream stream = device.stream();
  uint64_t spin_ns = static_cast<uint64_t>(wishes.spin_us * 1e3);
  void* arguments[] = {&spin_ns};
  const auto round = [&] {
    device.launch(spin_ns ? device.spin : device.null_kernel, stream, spin_ns ? arguments : nullptr);
    LULL_MUST(driver, cuStreamSynchronize, stream);
  };
  for (int i = 0; i < 20; ++i) round();
  ready_until(start_file);
  std::mt19937_64 random(static_cast<uint64_t>(getpid()));
  std::uniform_real_distribution<double> share(0.5, 1.5);
  json rounds = json::array();
  const uint64_t begin_ns = device.now_ns(), length_ns = static_cast<uint64_t>(wishes.ms * 1e6);
  for (uint64_t start_ns = begin_ns; start_ns - begin_ns < length_ns;) {
    round();
    const uint64_t end_ns = device.now_ns();
    rounds.push_back({start_ns, end_ns});
    const auto pause_ns = static_cast<uint64_t>(wishes.pause_us * 1e3 * share(random));
    while ((start_ns = device.now_ns()) - end_ns < pause_ns) {
    }
  }
  return {{"spin_ns", spin_ns}, {"rounds", rounds}};
}

json probe_hog(Driver& driver, uint64_t leave_bytes) {
  const Device device(driver);
  constexpr size_t kPiece = 64 << 20;
  uint64_t held = 0;
  for (;;) {
    size_t free_bytes = 0, total = 0;
    LULL_MUST(driver, cuMemGetInfo, &free_bytes, &total);
    if (free_bytes < leave_bytes + kPiece) break;
    CUdeviceptr memory = 0;
    if (driver.cuMemAlloc(&memory, kPiece) != CUDA_SUCCESS) break;
    held += kPiece;
  }
  std::printf("{\"held_bytes\":%llu}\n", static_cast<unsigned long long>(held));
  std::fflush(stdout);
  char line[64];
  if (std::fgets(line, sizeof line, stdin) == nullptr) line[0] = 0;
  return {{"held_bytes", held}};
}

}  // namespace lull::probe
