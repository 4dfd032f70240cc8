// The measured program: launches through the bare function and through whatever cuLaunchKernel the
// process was given, in alternating batches, and prints one JSON line. Run by bench.cc in a child,
// with and without liblull.so preloaded.
#pragma once

namespace lull::bench {

// Keeps the calling thread on one processor of those the process may use, counted from the first;
// the last one is the coordinator's. Where they are too few, it stays free.
void stay_on(int processor);
inline constexpr int kLastProcessor = -1;

// `threads` launch at once. Prints {"bare_ns":..,"launch_ns":..}. Returns an exit code.
int run_launcher(int threads, int batches, int calls_per_batch);

}  // namespace lull::bench
