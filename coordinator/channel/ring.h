// One thread's record ring: single producer (the launching thread), single consumer (the daemon).
//
//   producer (shim)                        consumer (daemon)
//   full? -> dropped += 1, return          head = acquire(head)
//   write record                           copy record, check the copy
//   head  = release(head + 1)              tail = release(tail + n)
//
// Indices run free; `head - tail` is the number of records inside. The consumer trusts neither:
// a head that is further from the tail than the ring is long makes it skip to the newest records.
#pragma once

#include "coordinator/channel/gate.h"
#include "coordinator/channel/layout.h"

namespace lull::channel {

// Shim, owner thread of `thread`. False: the ring was full and the record is counted as dropped.
inline bool push_record(lull_thread& thread, lull_record* ring, const lull_record& record) {
  const uint64_t head = atomic64(thread.head).load(std::memory_order_relaxed);
  // Acquire: pairs with the consumer's release of tail; the slot is free once it is seen.
  const uint64_t tail = atomic64(thread.tail).load(std::memory_order_acquire);
  if (head - tail >= kRingRecords) {
    auto dropped = atomic64(thread.dropped);
    dropped.store(dropped.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return false;
  }
  ring[head % kRingRecords] = record;
  // Release: pairs with the acquire of head in `drain_records`.
  atomic64(thread.head).store(head + 1, std::memory_order_release);
  return true;
}

// Daemon. Calls `use(const lull_record&)` with a private copy of each record, oldest first, at
// most `limit`. Returns how many were lost to a producer that lied about its head.
template <typename Use>
inline uint64_t drain_records(lull_thread& thread, const lull_record* ring, uint32_t limit,
                              Use&& use) {
  const uint64_t head = atomic64(thread.head).load(std::memory_order_acquire);
  uint64_t tail = atomic64(thread.tail).load(std::memory_order_relaxed);
  uint64_t lost = 0;
  if (head - tail > kRingRecords) {
    lost = 1;
    tail = head;
  }
  for (uint32_t n = 0; tail != head && n < limit; ++n, ++tail) {
    const lull_record copy = ring[tail % kRingRecords];
    asm volatile("" ::: "memory");  // the copy is what is checked and used, never read again
    use(copy);
  }
  // Release: pairs with the acquire of tail in `push_record`.
  atomic64(thread.tail).store(tail, std::memory_order_release);
  return lost;
}

}  // namespace lull::channel
