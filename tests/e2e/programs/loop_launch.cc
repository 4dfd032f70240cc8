// loop_launch SPIN_NS SYNC_EVERY [MAX_LAUNCHES [GAP_US [FILE RANK]]]: short kernels without end (or
// MAX_LAUNCHES of them), synchronising every SYNC_EVERY, pausing GAP_US after that. Of two with the
// same FILE, ranks 0 and 1, none gets further ahead of the other than kApart launches. Prints
// `ready` after the first synchronisation, `running launches=N` each second, and on SIGTERM the line
// every program ends with.
#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <csignal>

#define DRIVER(name) name
#include "driver_work.h"

static volatile std::sig_atomic_t stop_requested = 0;
constexpr unsigned long long kApart = 64;

// What both have launched.
static std::atomic<unsigned long long>* shared_counts(const char* file) {
  const int fd = open(file, O_RDWR | O_CREAT, 0600);
  const size_t bytes = 2 * sizeof(std::atomic<unsigned long long>);
  void* counts = fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0
                     ? MAP_FAILED
                     : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (counts == MAP_FAILED) {
    std::perror(file);
    std::exit(1);
  }
  return static_cast<std::atomic<unsigned long long>*>(counts);
}

int main(int argc, char** argv) {
  const auto spin_ns = argument(argc, argv, 1, 100000), sync_every = argument(argc, argv, 2, 10);
  const auto most = argument(argc, argv, 3, 0), gap_us = argument(argc, argv, 4, 0);
  std::atomic<unsigned long long>* both = argc > 6 ? shared_counts(argv[5]) : nullptr;
  const auto rank = argument(argc, argv, 6, 0) % 2;
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
    if (both != nullptr) {
      both[rank] = counts.launches;
      while (!stop_requested && counts.launches > both[1 - rank] + kApart) usleep(100);
    }
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
