// A thread of the shim's own: detached, with all signals blocked, so that the program's handlers
// never run on it. What it calls is nobody's unit of work: it sets thread_state.depth itself. Any
// thread starts one; it ends with the process and is not there in a fork child.
#pragma once

#include <pthread.h>
#include <signal.h>

#include "shim/system.h"

namespace lull::shim {

// False: the system has none.
inline bool start_quiet_thread(void* (*run)(void*)) {
  KeepErrno keep;
  // The thread inherits the mask. Of one thread, on Linux.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const bool running = pthread_create(&thread, &attributes, run, nullptr) == 0;
  pthread_attr_destroy(&attributes);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return running;
}

}  // namespace lull::shim
