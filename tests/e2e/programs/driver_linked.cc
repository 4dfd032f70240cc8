// driver_linked [LAUNCHES [SPIN_NS]]: linked with -lcuda, calls through the PLT. Built a second
// time with CUDA_API_PER_THREAD_DEFAULT_STREAM (driver_linked_per_thread).
#define DRIVER(name) name
#include "driver_work.h"

int main(int argc, char** argv) {
  DriverWork work;
  work.start();
  return finish(work.run(argument(argc, argv, 1, 10), argument(argc, argv, 2, 10000)));
}
