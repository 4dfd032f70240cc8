// The measured program: launches through the bare function and through whatever cuLaunchKernel the
// process was given, in alternating batches, and prints one JSON line. Run by bench.cc in a child,
// with and without liblull.so preloaded.
#pragma once

namespace lull::bench {

// `threads` launch at once. Prints {"bare_ns":..,"launch_ns":..}. Returns an exit
// code.
int run_launcher(int threads, int batches, int calls_per_batch);

}  // namespace lull::bench
