// What every program of this folder has in common: the line it ends with, checks, and waiting to be
// looked at. Host code only, C++17, no CUDA headers needed; included by nvcc and g++ alike.
//
// The line on stdout, exact by construction, in the words of the channel's counters:
//   launches=N graph_kernels=N copies=N memsets=N host_functions=N
// `launches` are kernels and graphs handed to the driver; what a capture only records is not one.
// Environment: PROGRAM_WAIT_FILE=path keeps the program alive behind that line until `path` exists.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

struct Counts {
  unsigned long long launches = 0, graph_kernels = 0, copies = 0, memsets = 0, host_functions = 0;
  void add(const Counts& more) {
    launches += more.launches;
    graph_kernels += more.graph_kernels;
    copies += more.copies;
    memsets += more.memsets;
    host_functions += more.host_functions;
  }
};

inline void check(long long result, const char* what, int line) {
  if (result == 0) return;
  std::fprintf(stderr, "program: line %d: %s: error %lld\n", line, what, result);
  std::_Exit(1);
}
#define CHECK(call) check(static_cast<long long>(call), #call, __LINE__)

inline void require(bool good, const char* what, int line) {
  if (good) return;
  std::fprintf(stderr, "program: line %d: not so: %s\n", line, what);
  std::_Exit(1);
}
#define REQUIRE_THAT(condition) require(static_cast<bool>(condition), #condition, __LINE__)

// Waits until PROGRAM_WAIT_FILE exists; goes on at once when that is not set.
inline void wait_until_told() {
  const char* path = std::getenv("PROGRAM_WAIT_FILE");
  while (path != nullptr && access(path, F_OK) != 0) usleep(2000);
}

inline int finish(const Counts& counts) {
  std::printf("launches=%llu graph_kernels=%llu copies=%llu memsets=%llu host_functions=%llu\n",
              counts.launches, counts.graph_kernels, counts.copies, counts.memsets,
              counts.host_functions);
  std::fflush(stdout);
  wait_until_told();
  return 0;
}

inline unsigned long long argument(int argc, char** argv, int index, unsigned long long otherwise) {
  return argc > index ? std::strtoull(argv[index], nullptr, 10) : otherwise;
}
