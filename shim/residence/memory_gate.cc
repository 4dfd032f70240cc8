#include "shim/residence/memory_gate.h"

#include "coordinator/channel/model_clock.h"
#include "shim/connection.h"
#include "shim/system.h"

namespace lull::shim {

std::atomic<bool> can_move;

namespace {

// Threads beyond share a line: slower, and right all the same.
constexpr uint32_t kLines = 256;
constexpr uint64_t kSliceNs = 1'000'000'000;

struct alignas(64) Line {
  std::atomic<uint32_t> inside;
};
constinit Line lines[kLines];
std::atomic<uint32_t> lines_given;

std::atomic<uint32_t> shut;      // a futex: 1 while it is
std::atomic<uint32_t> departed;  // a futex: goes up with each use that ends while it is shut
std::atomic<uint32_t> held;

uint32_t* word(std::atomic<uint32_t>& futex) { return reinterpret_cast<uint32_t*>(&futex); }

Line& line_of(ThreadState& thread) {
  if (thread.use_line == 0) [[unlikely]] {
    thread.use_line = lines_given.fetch_add(1, std::memory_order_relaxed) % kLines + 1;
    register_thread_end(thread);
  }
  return lines[thread.use_line - 1];
}

void leave(Line& line) {
  // seq_cst, all in this file: a thread that comes and a service thread that shuts the gate must
  // not both miss each other.
  line.inside.fetch_sub(1, std::memory_order_seq_cst);
  if (shut.load(std::memory_order_seq_cst) == 0) [[likely]]
    return;
  KeepErrno keep;
  departed.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(word(departed), 1, /*private_futex=*/true);
}

// A line that is empty once stays empty of anybody who is really inside: who comes later sees the
// gate shut and leaves again.
bool all_have_left() {
  for (Line& line : lines) {
    if (line.inside.load(std::memory_order_seq_cst) != 0) return false;
  }
  return true;
}

}  // namespace

void begin_use(ThreadState& thread) {
  if (thread.uses != 0) {
    ++thread.uses;
    return;
  }
  Line& line = line_of(thread);
  for (;;) {
    line.inside.fetch_add(1, std::memory_order_seq_cst);
    if (shut.load(std::memory_order_seq_cst) == 0) [[likely]]
      break;
    leave(line);
    KeepErrno keep;
    held.fetch_add(1, std::memory_order_relaxed);
    while (shut.load(std::memory_order_acquire) != 0) {
      futex_wait(word(shut), 1, kSliceNs, /*private_futex=*/true);
    }
    held.fetch_sub(1, std::memory_order_relaxed);
  }
  thread.uses = 1;
}

void end_use(ThreadState& thread) {
  if (thread.uses == 0 || --thread.uses != 0) return;
  leave(line_of(thread));
}

void end_all_uses(ThreadState& thread) {
  if (thread.uses == 0) return;
  thread.uses = 1;
  end_use(thread);
}

bool shut_memory_gate(uint64_t deadline_ns) {
  shut.store(1, std::memory_order_seq_cst);
  for (;;) {
    const uint32_t seen = departed.load(std::memory_order_seq_cst);
    if (all_have_left()) return true;
    const uint64_t now = channel::monotonic_ns();
    if (now >= deadline_ns) return false;
    futex_wait(word(departed), seen, deadline_ns - now, /*private_futex=*/true);
  }
}

void open_memory_gate() {
  shut.store(0, std::memory_order_seq_cst);
  futex_wake(word(shut), INT32_MAX, /*private_futex=*/true);
}

uint32_t held_at_memory_gate() { return held.load(std::memory_order_relaxed); }

void forget_memory_gate() {
  shut.store(0, std::memory_order_relaxed);
  held.store(0, std::memory_order_relaxed);
  for (Line& line : lines) line.inside.store(0, std::memory_order_relaxed);
}

}  // namespace lull::shim
