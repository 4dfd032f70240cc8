// steady_work MEGABYTES KERNEL_US PAUSE_US: memory that is filled once, and iterations of six kernels
// and a wait, each followed by a pause, until SIGTERM. Prints `ready` after the first iteration; at the
// end every byte of the memory is checked, and the line every program ends with is printed.
#include <csignal>

#include <cstdint>

#define DRIVER(name) name
#include "driver_work.h"

static volatile std::sig_atomic_t stop_requested = 0;

int main(int argc, char** argv) {
  const auto megabytes = argument(argc, argv, 1, 8), kernel_us = argument(argc, argv, 2, 1000);
  const auto pause_us = argument(argc, argv, 3, 0);
  std::signal(SIGTERM, [](int) { stop_requested = 1; });
  DriverWork work;
  work.start();
  CUstream stream = nullptr;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<uint64_t> words((megabytes << 20) / sizeof(uint64_t)), back(words.size());
  for (size_t i = 0; i < words.size(); ++i) words[i] = i * 0x9e3779b97f4a7c15ULL + 1;
  const size_t bytes = words.size() * sizeof(uint64_t);
  CUdeviceptr memory = 0;
  CHECK(cuMemAlloc(&memory, bytes));
  CHECK(cuMemcpyHtoD(memory, words.data(), bytes));
  constexpr unsigned kOrder[] = {0, 1, 1, 0, 0, 0};
  Counts counts;
  counts.copies = 2;
  while (!stop_requested) {
    for (unsigned which : kOrder) work.launch(which, kernel_us * 1000, stream);
    CHECK(cuStreamSynchronize(stream));
    counts.launches += std::size(kOrder);
    if (counts.launches == std::size(kOrder)) {
      std::printf("ready\n");
      std::fflush(stdout);
    }
    if (pause_us != 0) usleep(static_cast<useconds_t>(pause_us));
  }
  CHECK(cuMemcpyDtoH(back.data(), memory, bytes));
  REQUIRE_THAT(back == words);
  return finish(counts);
}
