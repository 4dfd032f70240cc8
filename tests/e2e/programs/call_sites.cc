// call_sites [ROUNDS]: launches one kernel from two functions of the program, from the first every
// other round. Linked as a position-independent program and as one that is not.
#define DRIVER(name) name
#include "driver_work.h"

// Not in line, and with something left to do after the launch: each has a frame of its own.
__attribute__((noinline)) void launch_from_warmup(DriverWork& work, Counts& counts) {
  work.launch(0, 2000);
  counts.launches += 1;
}
__attribute__((noinline)) void launch_from_training(DriverWork& work, Counts& counts) {
  work.launch(0, 2000);
  counts.launches += 1;
}

int main(int argc, char** argv) {
  DriverWork work;
  work.start();
  Counts counts;
  for (unsigned long long i = 0, rounds = argument(argc, argv, 1, 10); i < rounds; ++i) {
    if (i % 2 == 0) launch_from_warmup(work, counts);
    launch_from_training(work, counts);
  }
  CHECK(cuStreamSynchronize(nullptr));
  return finish(counts);
}
