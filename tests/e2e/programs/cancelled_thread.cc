// cancelled_thread [LAUNCHES]: a thread is cancelled while it waits in the driver for a long kernel
// (one launch); the program then goes on with LAUNCHES of its own.
#define DRIVER(name) name
#include "driver_work.h"

#include <pthread.h>

#include <atomic>

static DriverWork work;
static std::atomic<bool> launched{false};

static void* wait_in_driver(void*) {
  CHECK(cuCtxSetCurrent(work.context));
  CUstream stream = nullptr;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  work.launch(0, 50'000'000, stream);
  launched = true;
  for (;;) {  // cancelled inside the driver where that has a cancellation point, else here
    cuStreamSynchronize(stream);
    pthread_testcancel();
  }
}

int main(int argc, char** argv) {
  work.start();
  pthread_t thread;
  CHECK(pthread_create(&thread, nullptr, wait_in_driver, nullptr));
  while (!launched) usleep(100);
  usleep(1000);
  CHECK(pthread_cancel(thread));
  void* result = nullptr;
  CHECK(pthread_join(thread, &result));
  REQUIRE_THAT(result == PTHREAD_CANCELED);
  Counts counts = work.run(argument(argc, argv, 1, 10), 10000);
  counts.launches += 1;
  return finish(counts);
}
