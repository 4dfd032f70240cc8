// Processor time of the calling thread: what a piece of work costs, without the time in which the
// thread was stopped or had no processor. A pause of several times that length stays short however
// late the loop is.
#pragma once

#include <time.h>

#include <cstdint>

namespace lull::daemon {

inline uint64_t processor_ns() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<uint64_t>(used.tv_sec) * 1'000'000'000ULL +
         static_cast<uint64_t>(used.tv_nsec);
}

}  // namespace lull::daemon
