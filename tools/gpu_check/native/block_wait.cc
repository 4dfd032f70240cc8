#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <sstream>
#include <stdexcept>

#include "tools/gpu_check/native/load.h"
#include "tools/gpu_check/native/orders.h"
#include "tools/gpu_check/native/probes.h"

namespace lull::probe {

using nlohmann::json;

namespace {

constexpr uint32_t kThreads = 256;
constexpr int kWarmup = 20;
constexpr double kMostMs = 60'000;
// The end of a pause is waited for awake: a thread that slept launches later.
constexpr uint64_t kAwake_ns = 60'000;

double tenths(double us) { return std::round(us * 10) / 10; }

// Real time goes on `slow_motion` times as fast as the device's.
void pause_until(const Device& device, uint64_t end_ns) {
  const uint64_t now = device.now_ns();
  if (now + kAwake_ns < end_ns) {
    const auto real_ns = static_cast<uint64_t>(static_cast<double>(end_ns - now - kAwake_ns) *
                                               device.clock.slow_motion);
    const timespec pause{static_cast<time_t>(real_ns / 1'000'000'000),
                         static_cast<long>(real_ns % 1'000'000'000)};
    nanosleep(&pause, nullptr);
  }
  while (device.now_ns() < end_ns) {
  }
}

class Rounds {
 public:
  explicit Rounds(const Device& device)
      : device_(device),
        kernels_(device),
        stream_(device.stream()),
        from_(device.event()),
        to_(device.event()) {}

  // Kernel, wait for it, pause: for `ms`, pauses of half to one and a half of pause_us. A kernel
  // of `blocks` blocks a multiprocessor (0: all that it holds), each running for spin_us.
  json run(double ms, double pause_us, double spin_us, uint32_t blocks) {
    const uint32_t most = kernels_.blocks_per_sm(kernels_.held, kThreads);
    const uint32_t grid = kernels_.sm_count * (blocks == 0 ? most : std::min(blocks, most));
    uint64_t spin_ns = static_cast<uint64_t>(spin_us * 1e3), cost_ns = spin_ns;
    void* arguments[] = {&spin_ns, &cost_ns};
    const auto round = [&] {
      Driver& driver = device_.driver;
      LULL_MUST(driver, cuEventRecord, from_, stream_);
      LULL_MUST(driver, cuLaunchKernel, kernels_.held, grid, 1u, 1u, kThreads, 1u, 1u, 0u, stream_,
                arguments, static_cast<void**>(nullptr));
      LULL_MUST(driver, cuEventRecord, to_, stream_);
      LULL_MUST(driver, cuStreamSynchronize, stream_);
    };
    std::uniform_real_distribution<double> share(0.5, 1.5);
    json host_us = json::array(), device_us = json::array();
    const uint64_t end_ns = device_.now_ns() + static_cast<uint64_t>(ms * 1e6);
    for (uint64_t start_ns = device_.now_ns(); start_ns < end_ns; start_ns = device_.now_ns()) {
      round();
      const uint64_t done_ns = device_.now_ns();
      host_us.push_back(tenths(static_cast<double>(done_ns - start_ns) / 1e3));
      device_us.push_back(tenths(device_.elapsed_us(from_, to_)));
      pause_until(device_, done_ns + static_cast<uint64_t>(pause_us * 1e3 * share(random_)));
    }
    return {{"grid", grid}, {"host_us", host_us}, {"device_us", device_us}};
  }

 private:
  const Device& device_;
  LoadKernels kernels_;
  CUstream stream_;
  CUevent from_, to_;
  std::mt19937_64 random_{static_cast<uint64_t>(getpid())};
};

}  // namespace

json probe_waits(Driver& driver) {
  const Device device(driver);
  Rounds rounds(device);
  for (int i = 0; i < kWarmup; ++i) rounds.run(0.001, 1, 1, 1);
  Orders orders;
  answer({{"ready", static_cast<int>(getpid())}});
  uint64_t obeyed = 0;
  while (const auto order = orders.next()) {
    std::istringstream words(*order);
    std::string what;
    double ms = 0, pause_us = 0, spin_us = 0;
    uint32_t blocks = 0;
    words >> what >> ms >> pause_us >> spin_us >> blocks;
    if (what != "rounds" || words.fail() || !(ms > 0 && ms <= kMostMs) || !(pause_us >= 1) ||
        !(spin_us >= 1)) {
      throw std::runtime_error("order '" + *order +
                               "': rounds MS (to 60000) PAUSE_US SPIN_US (at least 1) "
                               "BLOCKS_A_MULTIPROCESSOR (0: all) would be right");
    }
    answer(rounds.run(ms, pause_us, spin_us, blocks));
    ++obeyed;
  }
  return {{"obeyed", obeyed}};
}

}  // namespace lull::probe
