// loop_launch SPIN_NS SYNC_EVERY [MAX_LAUNCHES [GAP_US]]: short kernels without end (or
// MAX_LAUNCHES of them), synchronising every SYNC_EVERY, pausing GAP_US after that. Prints `ready`
// after the first synchronisation, `running launches=N` each second, and on SIGTERM the line every
// program ends with.
#include <csignal>

#include <chrono>

#define DRIVER(name) name
#include "driver_work.h"

static volatile std::sig_atomic_t stop_requested = 0;

int main(int argc, char** argv) {
  const auto spin_ns = argument(argc, argv, 1, 100000), sync_every = argument(argc, argv, 2, 10);
  const auto most = argument(argc, argv, 3, 0), gap_us = argument(argc, argv, 4, 0);
  std::signal(SIGTERM, [](int) { stop_requested = 1; });
  DriverWork work;
  work.start();
  CUstream stream = nullptr;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  Counts counts;
  auto told = std::chrono::steady_clock::now();
  bool ready = false;
  while (!stop_requested && (most == 0 || counts.launches < most)) {
    work.launch(counts.launches, spin_ns, stream);
    if (++counts.launches % (sync_every ? sync_every : 1) != 0) continue;
    CHECK(cuStreamSynchronize(stream));
    if (gap_us != 0) usleep(static_cast<useconds_t>(gap_us));
    const auto now = std::chrono::steady_clock::now();
    if (ready && now - told < std::chrono::seconds(1)) continue;
    if (ready) {
      std::printf("running launches=%llu\n", counts.launches);
    } else {
      std::printf("ready\n");
    }
    std::fflush(stdout);
    ready = true;
    told = now;
  }
  CHECK(cuStreamSynchronize(stream));
  return finish(counts);
}
