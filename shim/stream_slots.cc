#include "shim/stream_slots.h"

#include "shim/connection.h"
#include "shim/devices.h"
#include "shim/system.h"

namespace lull::shim {

constinit StreamSlot stream_slots[channel::kMaxStreams];
constinit std::atomic<uint64_t> stream_table[kStreamTable];
std::atomic<uint32_t> only_legacy_ref;
std::atomic<uint32_t> stream_generation;
std::atomic<int32_t> live_blocking_streams;

namespace {

constexpr uint64_t kHole = 1;
constexpr uint32_t kTableFull = kStreamTable * 3 / 4;
constexpr uint32_t kEvents = 1024;

Lock streams_lock;
uint32_t table_used;  // words that are not 0; under streams_lock
std::atomic<uint32_t> legacy_ref[channel::kMaxDevices];

// Streams created but without work yet are in no slot: their kind is remembered here.
struct CreatedStream {
  uintptr_t handle;
  bool blocking;
};
constexpr uint32_t kCreated = 4096;
CreatedStream created[kCreated];  // open addressing, 0 empty, 1 a hole; under streams_lock

struct EventMark {
  std::atomic<CUevent> event;
  std::atomic<uint64_t> mark;  // slot << 56 | sequence
};
constinit EventMark events[kEvents];

CreatedStream* find_created(uintptr_t handle) {
  uint32_t at = stream_hash(handle) * (kCreated / kStreamTable);
  for (uint32_t n = 0; n < kCreated; ++n, at = (at + 1) % kCreated) {
    if (created[at].handle == handle) return &created[at];
    if (created[at].handle == 0) return nullptr;
  }
  return nullptr;
}

// Under streams_lock. kUntrackedStream: none free.
uint32_t take_free_slot(ThreadState* owner, uint32_t device, uintptr_t handle, CUcontext context,
                        bool blocking) {
  for (uint32_t slot = 0; slot < channel::kUntrackedStream; ++slot) {
    StreamSlot& candidate = stream_slots[slot];
    if (candidate.used.load(std::memory_order_relaxed) != 0) continue;
    candidate.device = device;
    candidate.handle = handle;
    candidate.context = context;
    candidate.blocking = blocking;
    candidate.others.store(0, std::memory_order_relaxed);
    candidate.owner.store(owner, std::memory_order_relaxed);
    candidate.used.store(1, std::memory_order_release);
    return slot;
  }
  return channel::kUntrackedStream;
}

// Under streams_lock.
void free_slots(uint32_t slot) {
  stream_generation.fetch_add(1, std::memory_order_relaxed);
  if (slot == channel::kUntrackedStream) return;
  StreamSlot& stream = stream_slots[slot];
  const uint32_t others = stream.others.load(std::memory_order_relaxed);
  if (others != 0 && others - 1 != channel::kUntrackedStream) {
    stream_slots[others - 1].used.store(0, std::memory_order_release);
  }
  stream.owner.store(nullptr, std::memory_order_relaxed);
  stream.used.store(0, std::memory_order_release);
}

// Under streams_lock.
void drop_from_table(uintptr_t handle) {
  for (uint32_t at = stream_hash(handle), n = 0; n < kStreamTable; ++n) {
    auto& word = stream_table[(at + n) % kStreamTable];
    const uint64_t seen = word.load(std::memory_order_relaxed);
    if (seen == 0) return;
    if (seen >> 12 != handle) continue;
    // A hole at the end of a chain is no hole.
    if (stream_table[(at + n + 1) % kStreamTable].load(std::memory_order_relaxed) == 0) {
      word.store(0, std::memory_order_release);
      --table_used;
    } else {
      word.store(kHole, std::memory_order_release);
    }
    free_slots(static_cast<uint32_t>(seen & 0xff));
    return;
  }
}

// Under streams_lock.
void add_to_table(uintptr_t handle, uint32_t device, uint32_t slot) {
  const uint64_t entry = (static_cast<uint64_t>(handle) << 12) | (device << 8) | slot;
  for (uint32_t at = stream_hash(handle), n = 0; n < kStreamTable; ++n) {
    auto& word = stream_table[(at + n) % kStreamTable];
    const uint64_t seen = word.load(std::memory_order_relaxed);
    if (seen > kHole) continue;
    if (seen == 0) {
      if (table_used >= kTableFull) return;  // found by bind_stream each time instead
      ++table_used;
    }
    word.store(entry, std::memory_order_release);
    return;
  }
}

CUcontext current_context() {
  CUcontext context = nullptr;
  OwnCall own(thread_state);
  return driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

}  // namespace

StreamRef bind_others(uint32_t slot, uint32_t device) {
  if (slot == channel::kUntrackedStream) return {slot, device, 0};
  Locked locked(streams_lock);
  StreamSlot& stream = stream_slots[slot];
  uint32_t others = stream.others.load(std::memory_order_relaxed);
  if (others == 0) {
    others = take_free_slot(nullptr, device, stream.handle, stream.context, stream.blocking) + 1;
    stream.others.store(others, std::memory_order_release);
  }
  return {others - 1, device, 0};
}

StreamRef bind_stream(ThreadState& thread, uintptr_t handle) {
  if (handle == kPerThreadHandle && thread.per_thread_ref != 0 && single_device()) [[likely]] {
    return own_part(thread, thread.per_thread_ref - 1, thread.per_thread_device);
  }
  const uint32_t device = current_device();
  if (device == kNoDevice) return {channel::kUntrackedStream, kNoDevice, 0};
  if (handle == kLegacyHandle) {
    uint32_t ref = legacy_ref[device].load(std::memory_order_acquire);
    if (ref == 0) {
      Locked locked(streams_lock);
      ref = legacy_ref[device].load(std::memory_order_relaxed);
      if (ref == 0) {
        ref = take_free_slot(&thread, device, handle, nullptr, /*blocking=*/true) + 1;
        legacy_ref[device].store(ref, std::memory_order_release);
      }
    }
    if (device == 0 && single_device()) only_legacy_ref.store(ref, std::memory_order_relaxed);
    return own_part(thread, ref - 1, device);
  }
  if (handle == kPerThreadHandle) {
    if (thread.per_thread_ref != 0) {
      // One slot a thread: the same thread's stream on a second device goes without.
      return own_part(thread,
                      thread.per_thread_device == device ? thread.per_thread_ref - 1
                                                         : channel::kUntrackedStream,
                      device);
    }
    {
      Locked locked(streams_lock);
      thread.per_thread_ref =
          take_free_slot(&thread, device, handle, nullptr, /*blocking=*/true) + 1;
    }
    thread.per_thread_device = device;
    live_blocking_streams.fetch_add(1, std::memory_order_relaxed);
    return own_part(thread, thread.per_thread_ref - 1, device);
  }
  const CUcontext context = current_context();
  unsigned flags = CU_STREAM_NON_BLOCKING;
  {
    OwnCall own(thread);
    if (driver().cuStreamGetFlags(stream_of(handle), &flags) != CUDA_SUCCESS) flags = 0;
  }
  uint32_t slot = channel::kUntrackedStream;
  {
    Locked locked(streams_lock);
    bool bound = false;  // by another thread meanwhile
    for (uint32_t at = stream_hash(handle), n = 0; n < kStreamTable && !bound; ++n) {
      const uint64_t word =
          stream_table[(at + n) % kStreamTable].load(std::memory_order_relaxed);
      if (word >> 12 == handle) {
        bound = true;
        slot = static_cast<uint32_t>(word & 0xff);
      }
      if (word == 0) break;
    }
    if (!bound) {
      const bool blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
      slot = take_free_slot(&thread, device, handle, context, blocking);
      add_to_table(handle, device, slot);
    }
  }
  return own_part(thread, slot, device);
}

StreamRef find_stream_slowly(ThreadState& thread, uintptr_t handle) {
  const uint32_t generation = stream_generation.load(std::memory_order_relaxed);
  StreamRef found{channel::kUntrackedStream, kNoDevice, 0};
  bool known = false;
  const uint32_t legacy = only_legacy_ref.load(std::memory_order_relaxed);
  if (handle == kLegacyHandle && legacy != 0) {
    found = own_part(thread, legacy - 1, 0);
    known = true;
  }
  for (uint32_t at = stream_hash(handle), n = 0; handle > kPerThreadHandle && n < kStreamTable;
       ++n) {
    const uint64_t word = stream_table[(at + n) % kStreamTable].load(std::memory_order_acquire);
    if (word >> 12 == handle) {
      found = own_part(thread, static_cast<uint32_t>(word & 0xff),
                       static_cast<uint32_t>((word >> 8) & 0xf));
      known = true;
      break;
    }
    if (word == 0) break;
  }
  if (!known) found = bind_stream(thread, handle);
  // The null streams of a process with several devices depend on the current context.
  if (found.device != kNoDevice && (handle > kPerThreadHandle || single_device())) {
    thread.recent_stream = handle;
    thread.recent_generation = generation;
    thread.recent_slot = found.slot;
    thread.recent_device = found.device;
    thread.recent_owned = found.owned;
  }
  return found;
}

uint32_t slot_if_bound(ThreadState& thread, uintptr_t handle) {
  if (handle == kPerThreadHandle) {
    return thread.per_thread_ref != 0 ? thread.per_thread_ref - 1 : channel::kUntrackedStream;
  }
  if (handle == kLegacyHandle) {
    const uint32_t only = only_legacy_ref.load(std::memory_order_relaxed);
    if (only != 0) return only - 1;
    const uint32_t device = current_device();
    if (device == kNoDevice) return channel::kUntrackedStream;
    const uint32_t ref = legacy_ref[device].load(std::memory_order_acquire);
    return ref != 0 ? ref - 1 : channel::kUntrackedStream;
  }
  for (uint32_t at = stream_hash(handle), n = 0; n < kStreamTable; ++n) {
    const uint64_t word = stream_table[(at + n) % kStreamTable].load(std::memory_order_acquire);
    if (word >> 12 == handle) return static_cast<uint32_t>(word & 0xff);
    if (word == 0) break;
  }
  return channel::kUntrackedStream;
}

uint64_t units_of_stream(ThreadState& thread, uintptr_t handle) {
  const uint32_t slot = slot_if_bound(thread, handle);
  if (slot == channel::kUntrackedStream) return 0;
  const auto units_of = [](const StreamSlot& part) {
    return part.sequence.load(std::memory_order_relaxed) -
           part.asides.load(std::memory_order_relaxed);
  };
  const StreamSlot& stream = stream_slots[slot];
  const uint32_t others = stream.others.load(std::memory_order_acquire);
  if (others == 0) return units_of(stream);
  if (others - 1 == channel::kUntrackedStream) return 0;
  return units_of(stream) + units_of(stream_slots[others - 1]);
}

void stream_created(CUstream stream, bool blocking) {
  const auto handle = reinterpret_cast<uintptr_t>(stream);
  Locked locked(streams_lock);
  drop_from_table(handle);  // the address of one that died unseen
  if (!blocking) return;
  uint32_t at = stream_hash(handle) * (kCreated / kStreamTable);
  for (uint32_t n = 0; n < kCreated; ++n, at = (at + 1) % kCreated) {
    if (created[at].handle == handle) return;
    if (created[at].handle <= 1) {
      created[at] = {handle, true};
      live_blocking_streams.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
}

void stream_destroyed(CUstream stream) {
  const auto handle = reinterpret_cast<uintptr_t>(stream);
  if (handle <= kPerThreadHandle) return;
  Locked locked(streams_lock);
  drop_from_table(handle);
  if (CreatedStream* known = find_created(handle)) {
    known->handle = 1;
    live_blocking_streams.fetch_sub(1, std::memory_order_relaxed);
  }
}

void streams_of_context_gone(CUcontext context) {
  if (context == nullptr) return;
  SeenSequences seen;
  {
    Locked locked(streams_lock);
    for (uint32_t slot = 0; slot < channel::kUntrackedStream; ++slot) {
      StreamSlot& stream = stream_slots[slot];
      if (stream.used.load(std::memory_order_relaxed) == 0 || stream.context != context) continue;
      const uint64_t sequence = stream.sequence.load(std::memory_order_relaxed);
      if (sequence != 0) seen.of[seen.count++] = {static_cast<uint8_t>(slot), sequence};
    }
    for (uint32_t slot = 0; slot < channel::kUntrackedStream; ++slot) {
      StreamSlot& stream = stream_slots[slot];
      if (stream.used.load(std::memory_order_relaxed) == 0 || stream.context != context) continue;
      const uintptr_t handle = stream.handle;
      drop_from_table(handle);
      if (CreatedStream* known = find_created(handle)) {
        known->handle = 1;
        live_blocking_streams.fetch_sub(1, std::memory_order_relaxed);
      }
    }
  }
  if (Attachment* link = enter(thread_state)) report_complete(thread_state, *link, seen, /*began=*/0);
}

void release_per_thread_stream(ThreadState& thread) {
  if (thread.per_thread_ref == 0) return;
  live_blocking_streams.fetch_sub(1, std::memory_order_relaxed);
  const uint32_t slot = thread.per_thread_ref - 1;
  thread.per_thread_ref = 0;
  Locked locked(streams_lock);
  free_slots(slot);
}

void forget_streams() {
  Locked locked(streams_lock);
  stream_generation.fetch_add(1, std::memory_order_relaxed);
  for (auto& word : stream_table) word.store(0, std::memory_order_relaxed);
  table_used = 0;
  for (auto& slot : stream_slots) slot.used.store(0, std::memory_order_relaxed);
  for (auto& ref : legacy_ref) ref.store(0, std::memory_order_relaxed);
  for (auto& stream : created) stream.handle = 0;
  only_legacy_ref.store(0, std::memory_order_relaxed);
  live_blocking_streams.store(0, std::memory_order_relaxed);
}

void remember_stream(ThreadState& thread, uintptr_t handle, SeenSequences& seen) {
  const uint32_t slot = slot_if_bound(thread, handle);
  if (slot == channel::kUntrackedStream) return;
  const auto add = [&](uint32_t which) {
    const uint64_t sequence = stream_slots[which].sequence.load(std::memory_order_relaxed);
    if (sequence != 0) seen.of[seen.count++] = {static_cast<uint8_t>(which), sequence};
  };
  add(slot);
  const uint32_t others = stream_slots[slot].others.load(std::memory_order_acquire);
  if (others != 0 && others - 1 != channel::kUntrackedStream) add(others - 1);
  if (handle != kLegacyHandle || live_blocking_streams.load(std::memory_order_relaxed) <= 0) return;
  // What the legacy stream has done, the blocking streams of its device have done before it.
  for (uint32_t other = 0; other < channel::kUntrackedStream; ++other) {
    const StreamSlot& stream = stream_slots[other];
    if (other != slot && other + 1 != others && stream.used.load(std::memory_order_acquire) != 0 && stream.blocking &&
        stream.handle > kPerThreadHandle && stream.device == stream_slots[slot].device) {
      add(other);
    }
  }
}

void remember_device(uint32_t device, SeenSequences& seen) {
  for (uint32_t slot = 0; slot < channel::kUntrackedStream; ++slot) {
    const StreamSlot& stream = stream_slots[slot];
    const uint64_t sequence = stream.sequence.load(std::memory_order_relaxed);
    if (sequence != 0 && stream.device == device) {
      seen.of[seen.count++] = {static_cast<uint8_t>(slot), sequence};
    }
  }
}

void report_complete(ThreadState& thread, Attachment& link, const SeenSequences& seen,
                     uint64_t began) {
  if (seen.count == 0) return;
  const bool records = channel::record_mode(*link.control) != channel::kRecordNothing;
  for (uint32_t n = 0; n < seen.count; ++n) {
    const uint32_t slot = seen.of[n].slot;
    channel::raise_completed(link.region, slot, seen.of[n].sequence);
    // That the host has waited is news even where the device has said so before, but only once: a
    // program may poll. Of two threads that come here together both may say it.
    std::atomic<uint64_t>& synced = stream_slots[slot].synced;
    if (!records || seen.of[n].sequence <= synced.load(std::memory_order_relaxed)) continue;
    synced.store(seen.of[n].sequence, std::memory_order_relaxed);
    channel::lull_record record{};
    record.kind = channel::kRecordSynced;
    record.device = stream_slots[slot].device;
    record.stream = slot;
    record.sequence = seen.of[n].sequence;
    record.tsc = channel::ticks();
    if (began != 0) record.value1 = record.tsc - began;
    began = 0;
    push(thread, link, record);
  }
  if (records) ring_doorbell(link);
}

namespace {
EventMark& event_mark(CUevent event) {
  return events[(reinterpret_cast<uintptr_t>(event) * 0x9e3779b97f4a7c15ULL) >> 54];
}
}  // namespace

void event_recorded(ThreadState& thread, CUevent event, uintptr_t handle) {
  uint32_t slot = slot_if_bound(thread, handle);
  if (slot != channel::kUntrackedStream) {
    // Of two parts the recording thread's own: what it launched is what it waits for.
    const StreamSlot& stream = stream_slots[slot];
    const uint32_t others = stream.others.load(std::memory_order_acquire);
    if (others != 0 && stream.owner.load(std::memory_order_relaxed) != &thread) slot = others - 1;
  }
  EventMark& entry = event_mark(event);
  // Null in between: a reader that races with this finds the event changed and takes nothing.
  entry.event.store(nullptr, std::memory_order_release);
  if (slot >= channel::kUntrackedStream) return;
  entry.mark.store((static_cast<uint64_t>(slot) << 56) |
                       stream_slots[slot].sequence.load(std::memory_order_relaxed),
                   std::memory_order_release);
  entry.event.store(event, std::memory_order_release);
}

void event_forgotten(CUevent event) {
  EventMark& entry = event_mark(event);
  if (entry.event.load(std::memory_order_relaxed) == event) {
    entry.event.store(nullptr, std::memory_order_relaxed);
  }
}

void remember_event(CUevent event, SeenSequences& seen) {
  EventMark& entry = event_mark(event);
  if (entry.event.load(std::memory_order_acquire) != event) return;
  const uint64_t mark = entry.mark.load(std::memory_order_acquire);
  if (entry.event.load(std::memory_order_acquire) != event) return;
  const uint64_t sequence = mark & ((uint64_t{1} << 56) - 1);
  if (sequence != 0) seen.of[seen.count++] = {static_cast<uint8_t>(mark >> 56), sequence};
}

void lock_streams() { streams_lock.lock(); }
void unlock_streams() { streams_lock.unlock(); }

}  // namespace lull::shim
