#include "shim/device_memory.h"

#include <sys/mman.h>

#include "coordinator/channel/model_clock.h"
#include "shim/connection.h"
#include "shim/devices.h"
#include "shim/residence/device_arena.h"
#include "shim/residence/memory_gate.h"
#include "shim/residence/service.h"
#include "shim/silence.h"
#include "shim/system.h"

namespace lull::shim {

namespace {

// Of a wait for room; how often the daemon is looked at (silence.h).
constexpr uint64_t kRoomSliceNs = 50'000'000;
// A daemon that has looked so often at the client since has answered: the first look may have begun before the
// question was there, the second saw it, and is over when the third begins.
constexpr uint32_t kAnsweringLooks = 3;
// How long the driver is asked again while there is no daemon: one that is started anew is back by then.
constexpr uint64_t kAloneAtMostNs = 60'000'000'000;
constexpr uint64_t kFirstTable = 4096;

struct Allocation {
  uint64_t key;      // address or handle
  uint64_t value;    // bytes; of a mapping: its handle
  CUcontext context;
  MemoryKind kind;
  uint8_t device;
  uint8_t live;      // 0 empty, 1 a hole, 2 in use
  uint8_t fixed;     // channel::Fixed
  uint16_t references;
};

Lock memory_lock;  // the table, and what is wanted
Allocation* table;
uint64_t table_size;
uint64_t table_used;  // not empty
// What the process holds there and what was admitted and is not allocated yet; the latter alone.
std::atomic<uint64_t> used[channel::kMaxDevices];
std::atomic<uint64_t> admitted[channel::kMaxDevices];
// Threads that wait for room there, and for how many bytes the one that asked last does: each asks
// again now and then, so that all have their turn.
struct Wanted {
  uint32_t threads;
  uint64_t bytes;
};
Wanted wanted[channel::kMaxDevices];

uint64_t place(uint64_t key, MemoryKind kind) {
  return ((key ^ (static_cast<uint64_t>(kind) << 60)) * 0x9e3779b97f4a7c15ULL) >> 20;
}

Allocation* find(uint64_t key, MemoryKind kind) {
  for (uint64_t n = 0; n < table_size; ++n) {
    Allocation& entry = table[(place(key, kind) + n) & (table_size - 1)];
    if (entry.live == 0) return nullptr;
    if (entry.live == 2 && entry.key == key && entry.kind == kind) return &entry;
  }
  return nullptr;
}

Allocation* insert_raw(const Allocation& allocation) {
  for (uint64_t n = 0; n < table_size; ++n) {
    Allocation& entry = table[(place(allocation.key, allocation.kind) + n) & (table_size - 1)];
    if (entry.live == 2) continue;
    if (entry.live == 0) ++table_used;
    entry = allocation;
    return &entry;
  }
  return nullptr;
}

bool grow() {
  const uint64_t size = table_size == 0 ? kFirstTable : table_size * 2;
  auto* bigger = static_cast<Allocation*>(map_pages(size * sizeof(Allocation)));
  if (bigger == nullptr) return false;
  Allocation* old = table;
  const uint64_t old_size = table_size;
  table = bigger;
  table_size = size;
  table_used = 0;
  for (uint64_t n = 0; n < old_size; ++n) {
    if (old[n].live == 2) insert_raw(old[n]);
  }
  if (old != nullptr) munmap(old, old_size * sizeof(Allocation));
  return true;
}

void insert(const Allocation& allocation) {
  if (table_used * 4 >= table_size * 3 && !grow() && table_used + 1 >= table_size) return;
  insert_raw(allocation);
}

struct Accounts {
  uint64_t all;   // held or admitted
  uint64_t open;  // admitted alone, at most all of it
};
Accounts accounts(uint32_t device) {
  // Acquire: pairs with the release in try_reserve, which admits before it uses.
  const uint64_t all = used[device].load(std::memory_order_acquire);
  const uint64_t asked = admitted[device].load(std::memory_order_relaxed);
  return {all, asked < all ? asked : all};
}

// What was admitted is wanted until the driver has given it: the driver may refuse it, and a daemon that
// took it for held would not see that somebody waits for it.
void publish(ThreadState& thread, Attachment& link, uint32_t device) {
  {
    // Of two threads the later one has the newer figures.
    Locked locked(memory_lock);
    const auto [all, open] = accounts(device);
    const Wanted& more = wanted[device];
    const uint64_t waits = more.threads == 0 ? 0 : more.bytes;
    channel::publish_memory(link.region, device, all - open,
                            open + waits == 0 ? 0 : all + waits);
  }
  channel::lull_record record{};
  record.kind = channel::kRecordMemory;
  record.device = device;
  record.tsc = channel::ticks();
  push(thread, link, record);
}

void report(uint32_t device) {
  Attachment* link = enter(thread_state);
  if (link == nullptr) return;
  publish(thread_state, *link, device);
  ring_doorbell(*link);
}

// The calling thread waits for room for so many bytes more, while it lives.
class Want {
 public:
  Want(uint32_t device, uint64_t bytes) : device_(device), bytes_(bytes) { ask(+1); }
  ~Want() { ask(-1); }
  Want(const Want&) = delete;
  void ask_again() { ask(0); }

 private:
  void ask(int threads) {
    {
      Locked locked(memory_lock);
      Wanted& more = wanted[device_];
      more.threads += static_cast<uint32_t>(threads);
      if (threads >= 0) more.bytes = bytes_;
    }
    report(device_);
  }

  const uint32_t device_;
  const uint64_t bytes_;
};

bool try_reserve(uint32_t device, uint64_t bytes, uint64_t limit) {
  uint64_t now = used[device].load(std::memory_order_relaxed);
  // First: held must never be told for what is only admitted.
  admitted[device].fetch_add(bytes, std::memory_order_relaxed);
  while (now + bytes <= limit && now + bytes >= now) {
    if (used[device].compare_exchange_weak(now, now + bytes, std::memory_order_release)) {
      return true;
    }
  }
  admitted[device].fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}

// Under memory_lock.
void drop(Allocation& entry) {
  entry.live = 1;
  fixed_memory_gone(static_cast<Fixed>(entry.fixed));
}

// Under memory_lock. Bytes to take off the device's account.
uint64_t drop_reference(Allocation& entry) {
  if (entry.references > 1) {
    --entry.references;
    return 0;
  }
  drop(entry);
  return entry.value;
}

}  // namespace

uint64_t memory_used_bytes(uint32_t device) {
  return used[device].load(std::memory_order_relaxed);
}

uint64_t memory_held_bytes(uint32_t device) {
  const auto [all, open] = accounts(device);
  return all - open;
}

uint64_t memory_limit_bytes(uint32_t device) {
  const uint64_t own = own_memory_limit_bytes();
  Attachment* link = attachment.load(std::memory_order_acquire);
  if (link == nullptr) return own;
  uint32_t index = device != kNoDevice ? device : devices_in_use();
  if (index >= channel::kMaxDevices) index = channel::kMaxDevices - 1;
  const uint64_t allowance = channel::memory_allowance_bytes(*link->control, index);
  if (memory_limit_is_the_jobs()) return allowance;
  return allowance < own ? allowance : own;
}

uint64_t told_memory_limit_bytes(uint32_t device) {
  return takes_turns() ? own_memory_limit_bytes() : memory_limit_bytes(device);
}

bool takes_turns() {
  static std::atomic<uint32_t> known;
  uint32_t state = known.load(std::memory_order_relaxed);
  if (state == 0) {
    state = environment_set("LULL_OVERSUBSCRIBE") ? 2 : 1;
    known.store(state, std::memory_order_relaxed);
  }
  return state == 2 && can_move.load(std::memory_order_relaxed);
}

namespace {

// The calling thread is outside the memory gate while it lives, so that its process can be moved.
class OutsideGate {
 public:
  explicit OutsideGate(ThreadState& thread) : thread_(thread), uses_(thread.uses) {
    end_all_uses(thread);
  }
  ~OutsideGate() {
    if (uses_ == 0) return;
    begin_use(thread_);
    thread_.uses = uses_;
  }
  OutsideGate(const OutsideGate&) = delete;

 private:
  ThreadState& thread_;
  const uint32_t uses_;
};

// Asks for room for `bytes` more, and waits until `may_go` says yes. False: there is no daemon that could
// give it, or it is silent.
template <typename MayGo>
bool wait_for_room(Attachment& link, uint32_t device, uint64_t bytes, MayGo may_go) {
  KeepErrno keep;
  const OutsideGate outside(thread_state);
  uint64_t looked_ns = channel::monotonic_ns();
  Silence silence(channel::looks(*link.control), looked_ns);
  Want want(device, bytes);
  bool goes = false;
  for (;;) {
    const uint32_t wake = channel::wake_sequence(*link.control);
    goes = may_go();
    if (goes || link.gone.load(std::memory_order_acquire) != 0) break;
    futex_wait(&link.control->wake_sequence, wake, kRoomSliceNs, /*private_futex=*/false);
    const uint64_t now = channel::monotonic_ns();
    if (now - looked_ns < kRoomSliceNs - 1'000'000) continue;
    looked_ns = now;
    if (!still_there(link) || silence.lasts_too_long(channel::looks(*link.control), now)) break;
    want.ask_again();
  }
  return goes;
}

// No allowance will ever be that large.
bool can_never_be(uint32_t device, uint64_t bytes) {
  const uint64_t all = used[device].load(std::memory_order_relaxed) + bytes;
  return all > device_total_bytes(device) ||
         (!memory_limit_is_the_jobs() && all > own_memory_limit_bytes());
}

}  // namespace

bool wait_for_memory(uint32_t device, uint64_t& alone_since_ns) {
  if (!takes_turns() || can_never_be(device, 0)) return false;
  Attachment* link = enter(thread_state);
  if (link == nullptr) link = enter_slowly(thread_state);  // looks more often: it waits for it
  if (link != nullptr) {
    // Long enough to find out that the daemon is silent.
    const uint64_t again_ns = channel::monotonic_ns() + 2 * kSilenceNs;
    const uint32_t before = channel::wake_sequence(*link->control);
    const bool led = wait_for_room(*link, device, 0, [&] {
      return channel::wake_sequence(*link->control) != before ||
             channel::monotonic_ns() >= again_ns;
    });
    if (led) {
      alone_since_ns = 0;
      return true;
    }
  }
  const uint64_t now = channel::monotonic_ns();
  if (alone_since_ns == 0) alone_since_ns = now;
  if (now - alone_since_ns > kAloneAtMostNs) return false;
  KeepErrno keep;
  const OutsideGate outside(thread_state);
  uint32_t nobody = 0;
  futex_wait(&nobody, 0, kRoomSliceNs, /*private_futex=*/true);
  return true;
}

bool admit_memory(uint32_t device, uint64_t bytes) {
  if (try_reserve(device, bytes, memory_limit_bytes(device))) return true;
  Attachment* link = enter(thread_state);
  if (link != nullptr && takes_turns()) {
    if (can_never_be(device, bytes)) return false;
    const bool led = wait_for_room(*link, device, bytes, [&] {
      return try_reserve(device, bytes, memory_limit_bytes(device));
    });
    return led || try_reserve(device, bytes, own_memory_limit_bytes());
  }
  if (link == nullptr || !memory_limit_is_the_jobs()) return false;
  // However late the answer comes: a program may not run out of memory because its daemon is slow.
  const uint32_t before = channel::looks(*link->control);
  bool fits = false;
  wait_for_room(*link, device, bytes, [&] {
    const bool answered = channel::looks(*link->control) - before >= kAnsweringLooks;
    fits = try_reserve(device, bytes, memory_limit_bytes(device));
    return fits || answered;
  });
  return fits;
}

void refund_memory(uint32_t device, uint64_t bytes) {
  used[device].fetch_sub(bytes, std::memory_order_relaxed);
  admitted[device].fetch_sub(bytes, std::memory_order_relaxed);
  report(device);
}

void correct_memory(uint32_t device, uint64_t before, uint64_t actual) {
  used[device].fetch_add(actual - before, std::memory_order_relaxed);
  admitted[device].fetch_add(actual - before, std::memory_order_relaxed);
}

void memory_allocated(MemoryKind kind, uint64_t key, uint32_t device, uint64_t bytes, Fixed fixed) {
  want_service();
  CUcontext context = nullptr;
  {
    OwnCall own(thread_state);
    driver().cuCtxGetCurrent(&context);
  }
  {
    Locked locked(memory_lock);
    Allocation* stale = find(key, kind);
    if (stale != nullptr) {
      // Freed by a way without a hook.
      used[stale->device].fetch_sub(stale->value, std::memory_order_relaxed);
      drop(*stale);
    }
    admitted[device].fetch_sub(bytes, std::memory_order_relaxed);
    fixed_memory_made(fixed);
    insert(Allocation{key, bytes, context, kind, static_cast<uint8_t>(device), 2,
                      static_cast<uint8_t>(fixed), 1});
  }
  report(device);
  if (fixed != Fixed::kNot) tell_service();
}

void memory_freed(MemoryKind kind, uint64_t key) {
  uint32_t device;
  {
    Locked locked(memory_lock);
    Allocation* entry = find(key, kind);
    if (entry == nullptr) return;
    device = entry->device;
    used[device].fetch_sub(drop_reference(*entry), std::memory_order_relaxed);
  }
  report(device);
}

void handle_retained(uint64_t handle) {
  Locked locked(memory_lock);
  if (Allocation* entry = find(handle, MemoryKind::kHandle)) ++entry->references;
}

void handle_mapped(uint64_t handle, uint64_t address) {
  Locked locked(memory_lock);
  Allocation* entry = find(handle, MemoryKind::kHandle);
  if (entry == nullptr) return;
  ++entry->references;
  const Allocation mapping{address, handle, entry->context, MemoryKind::kMapping, entry->device, 2,
                           0,       1};
  insert(mapping);
}

void range_unmapped(uint64_t address, uint64_t bytes) {
  uint32_t touched = 0;
  {
    Locked locked(memory_lock);
    for (uint64_t n = 0; n < table_size; ++n) {
      Allocation& mapping = table[n];
      if (mapping.live != 2 || mapping.kind != MemoryKind::kMapping || mapping.key < address ||
          mapping.key - address >= bytes) {
        continue;
      }
      mapping.live = 1;
      if (Allocation* entry = find(mapping.value, MemoryKind::kHandle)) {
        used[entry->device].fetch_sub(drop_reference(*entry), std::memory_order_relaxed);
        touched |= 1U << entry->device;
      }
    }
  }
  for (uint32_t device = 0; device < channel::kMaxDevices; ++device) {
    if ((touched & (1U << device)) != 0) report(device);
  }
}

void memory_of_context_gone(CUcontext context) {
  if (context == nullptr) return;
  uint32_t touched = 0;
  {
    Locked locked(memory_lock);
    for (uint64_t n = 0; n < table_size; ++n) {
      Allocation& entry = table[n];
      const bool dies = entry.kind == MemoryKind::kPointer || entry.kind == MemoryKind::kArray;
      if (entry.live != 2 || !dies || entry.context != context) continue;
      drop(entry);
      used[entry.device].fetch_sub(entry.value, std::memory_order_relaxed);
      touched |= 1U << entry.device;
    }
  }
  for (uint32_t device = 0; device < channel::kMaxDevices; ++device) {
    if ((touched & (1U << device)) != 0) report(device);
  }
}

void forget_all_memory() {
  Locked locked(memory_lock);
  for (uint64_t n = 0; n < table_size; ++n) table[n].live = 0;
  table_used = 0;
  for (auto& bytes : used) bytes.store(0, std::memory_order_relaxed);
  for (auto& bytes : admitted) bytes.store(0, std::memory_order_relaxed);
  for (Wanted& more : wanted) more = {};
}

void announce_memory(ThreadState& thread, Attachment& link) {
  for (uint32_t device = 0; device < devices_in_use(); ++device) publish(thread, link, device);
}

void lock_memory() { memory_lock.lock(); }
void unlock_memory() { memory_lock.unlock(); }

}  // namespace lull::shim
