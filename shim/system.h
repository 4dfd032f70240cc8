// What the shim needs from the system and may not take from libstdc++: a lock, a futex, text that
// stays, one line on stderr. Any thread. Nothing here allocates from the program's heap or leaves
// errno changed.
#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stddef.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace lull::shim {

struct KeepErrno {
  int saved = errno;
  ~KeepErrno() { errno = saved; }
};

// `private_futex` false: the word is in memory shared with the daemon. Not a cancellation point.
inline void futex_wait(uint32_t* word, uint32_t seen, uint64_t timeout_ns, bool private_futex) {
  timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000ULL),
                   static_cast<long>(timeout_ns % 1'000'000'000ULL)};
  syscall(SYS_futex, word, private_futex ? FUTEX_WAIT_PRIVATE : FUTEX_WAIT, seen, &timeout,
          nullptr, 0);
}
inline void futex_wake(uint32_t* word, int waiters, bool private_futex) {
  syscall(SYS_futex, word, private_futex ? FUTEX_WAKE_PRIVATE : FUTEX_WAKE, waiters, nullptr,
          nullptr, 0);
}

// 0 free, 1 taken, 2 taken and waited for. Guards short sections of the shim; never held at the
// gate or across a driver call that may block. fork takes all of them first (connection.cc).
class Lock {
 public:
  bool try_lock() {
    uint32_t free = 0;
    return word_.compare_exchange_strong(free, 1, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  void lock() {
    if (try_lock()) return;
    KeepErrno keep;
    while (word_.exchange(2, std::memory_order_acquire) != 0) {
      futex_wait(reinterpret_cast<uint32_t*>(&word_), 2, 1'000'000'000ULL, true);
    }
  }
  void unlock() {
    if (word_.exchange(0, std::memory_order_release) == 2) {
      KeepErrno keep;
      futex_wake(reinterpret_cast<uint32_t*>(&word_), 1, true);
    }
  }

 private:
  std::atomic<uint32_t> word_{0};
};

class Locked {
 public:
  explicit Locked(Lock& lock) : lock_(lock) { lock_.lock(); }
  ~Locked() { lock_.unlock(); }
  Locked(const Locked&) = delete;

 private:
  Lock& lock_;
};

// Zeroed pages, or null. They are never given back.
void* map_pages(size_t bytes);

// One line to stderr in one write, at most 400 bytes; the newline is added.
[[gnu::format(printf, 1, 2)]] void say(const char* format, ...);

// Environment. `getenv` without surprises: null for unset and for empty.
const char* environment(const char* name);
inline bool environment_set(const char* name) {
  const char* value = environment(name);
  return value != nullptr && value[0] == '1' && value[1] == '\0';
}

// While it lives the thread is not cancelled: poll, send and what a driver does are cancellation
// points, and nothing of ours may be unwound with a lock or a doorbell in its hands.
struct Cancellation {
  int before = 0;
  Cancellation() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before); }
  ~Cancellation() { pthread_setcancelstate(before, nullptr); }
  Cancellation(const Cancellation&) = delete;
};

}  // namespace lull::shim
