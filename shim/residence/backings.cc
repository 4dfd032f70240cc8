#include "shim/residence/backings.h"

#include <string.h>
#include <sys/mman.h>

#include "shim/device_memory.h"
#include "shim/devices.h"
#include "shim/thread_state.h"

namespace lull::shim {

Lock arena_lock;

namespace {

constexpr uint64_t kTokenTag = 0x111aULL;  // bits 48 to 63; never those of an address
constexpr uint64_t kFirstIndex = 1024;

Records<Backing> backings;
Records<Mapping> mappings;
// By address.
Mapping** ordered;
uint64_t ordered_count;
uint64_t ordered_room;
std::atomic<uint64_t> next_id;

// By device: physical bytes that can be swapped, physical bytes that cannot, what device_memory
// counts for the contents of both, and what graphs hold.
struct Sums {
  std::atomic<uint64_t> swappable;
  std::atomic<uint64_t> fixed;
  std::atomic<uint64_t> counted;
  std::atomic<uint64_t> graphs;
};
Sums sums[channel::kMaxDevices];
std::atomic<bool> any_graphs;
std::atomic<uint32_t> live_kinds[channel::kFixedCount];  // how many things of that kind there are

std::atomic<uint64_t>& sum_of(const Backing& backing) {
  Sums& of = sums[backing.device];
  return backing.fixed != Fixed::kNot ? of.fixed : of.swappable;
}

std::atomic<uint32_t>& count_of(Fixed kind) { return live_kinds[static_cast<uint32_t>(kind)]; }
bool refuses(Fixed kind) {
  return channel::kFixedKinds[static_cast<uint32_t>(kind)].refuses_checkpoint;
}

// The first mapping at or above the address.
uint64_t place_of(uint64_t address) {
  uint64_t low = 0;
  uint64_t high = ordered_count;
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    if (ordered[middle]->address < address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

bool make_room() {
  if (ordered_count < ordered_room) return true;
  const uint64_t room = ordered_room == 0 ? kFirstIndex : ordered_room * 2;
  auto** bigger = static_cast<Mapping**>(map_pages(room * sizeof(Mapping*)));
  if (bigger == nullptr) return false;
  if (ordered != nullptr) {
    memcpy(bigger, ordered, ordered_count * sizeof(Mapping*));
    munmap(ordered, ordered_room * sizeof(Mapping*));
  }
  ordered = bigger;
  ordered_room = room;
  return true;
}

}  // namespace

Backing* add_backing(CUmemGenericAllocationHandle handle, uint64_t bytes,
                     const CUmemAllocationProp& properties, uint32_t device) {
  Backing* backing = backings.take();
  if (backing == nullptr) return nullptr;
  backing->handle = handle;
  backing->bytes = bytes;
  backing->properties = properties;
  backing->device = device;
  backing->present = true;
  sum_of(*backing).fetch_add(bytes, std::memory_order_relaxed);
  return backing;
}

void remove_backing(Backing& backing) {
  sum_of(backing).fetch_sub(backing.bytes, std::memory_order_relaxed);
  change_counted(backing, -static_cast<int64_t>(backing.counted));
  fixed_memory_gone(backing.fixed);
  backings.give(&backing);
}

Mapping* add_mapping(Backing& backing, uint64_t address, uint64_t bytes, uint64_t offset) {
  if (!make_room()) return nullptr;
  Mapping* mapping = mappings.take();
  if (mapping == nullptr) return nullptr;
  mapping->address = address;
  mapping->bytes = bytes;
  mapping->offset = offset;
  mapping->backing = &backing;
  mapping->id = new_buffer_id();
  mapping->next = backing.mappings;
  backing.mappings = mapping;
  const uint64_t place = place_of(address);
  memmove(ordered + place + 1, ordered + place, (ordered_count - place) * sizeof(Mapping*));
  ordered[place] = mapping;
  ++ordered_count;
  return mapping;
}

void remove_mapping(Mapping& mapping) {
  const uint64_t place = place_of(mapping.address);
  --ordered_count;
  memmove(ordered + place, ordered + place + 1, (ordered_count - place) * sizeof(Mapping*));
  Mapping** link = &mapping.backing->mappings;
  while (*link != &mapping) link = &(*link)->next;
  *link = mapping.next;
  mappings.give(&mapping);
}

Mapping* mapping_at(uint64_t address) {
  const uint64_t after = address == UINT64_MAX ? ordered_count : place_of(address + 1);
  if (after == 0) return nullptr;
  Mapping* mapping = ordered[after - 1];
  return address - mapping->address < mapping->bytes ? mapping : nullptr;
}

MappingRange mappings_in(uint64_t address, uint64_t bytes) {
  const uint64_t end = bytes > UINT64_MAX - address ? UINT64_MAX : address + bytes;
  return {ordered + place_of(address), ordered + place_of(end)};
}

Records<Backing>& all_backings() { return backings; }

CUmemGenericAllocationHandle token_of(const Backing& backing) {
  return kTokenTag << 48 | (backing.head.generation & 0xffffULL) << 32 | backing.head.index;
}

Backing* backing_with_token(CUmemGenericAllocationHandle handle) {
  const uint32_t index = static_cast<uint32_t>(handle);
  if (handle >> 48 != kTokenTag || index >= backings.count()) return nullptr;
  Backing* backing = backings.at(index);
  return backing->head.in_use && token_of(*backing) == handle ? backing : nullptr;
}

Backing* backing_of_token(CUmemGenericAllocationHandle handle) {
  Backing* backing = backing_with_token(handle);
  return backing != nullptr && backing->references > 0 ? backing : nullptr;
}

void fix_backing(Backing* backing, Fixed kind) {
  if (backing == nullptr) return;
  if (backing->fixed != Fixed::kNot && (refuses(backing->fixed) || !refuses(kind))) return;
  fixed_memory_made(kind);
  fixed_memory_gone(backing->fixed);
  sum_of(*backing).fetch_sub(backing->bytes, std::memory_order_relaxed);
  backing->fixed = kind;
  sum_of(*backing).fetch_add(backing->bytes, std::memory_order_relaxed);
}

void change_counted(Backing& backing, int64_t bytes) {
  backing.counted += static_cast<uint64_t>(bytes);
  sums[backing.device].counted.fetch_add(static_cast<uint64_t>(bytes), std::memory_order_relaxed);
}

void fixed_memory_made(Fixed kind) {
  if (kind != Fixed::kNot) count_of(kind).fetch_add(1, std::memory_order_relaxed);
}
void fixed_memory_gone(Fixed kind) {
  if (kind != Fixed::kNot) count_of(kind).fetch_sub(1, std::memory_order_relaxed);
}

void graphs_may_allocate() { any_graphs.store(true, std::memory_order_relaxed); }

void look_at_graph_memory() {
  if (!any_graphs.load(std::memory_order_relaxed)) return;
  OwnCall own(thread_state);
  for (uint32_t device = 0; device < devices_in_use(); ++device) {
    cuuint64_t bytes = 0;
    const CUresult result = driver().cuDeviceGetGraphMemAttribute(
        device_ordinal(device), CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes);
    if (result == CUDA_SUCCESS) sums[device].graphs.store(bytes, std::memory_order_relaxed);
  }
}

uint64_t new_buffer_id() {
  // Above all that a driver counts.
  return uint64_t{1} << 62 | next_id.fetch_add(1, std::memory_order_relaxed);
}

uint64_t swappable_bytes(uint32_t device) {
  return device < channel::kMaxDevices ? sums[device].swappable.load(std::memory_order_relaxed) : 0;
}

// What device_memory counts and the arena does not is what the driver holds for the program
// directly.
uint64_t fixed_bytes(uint32_t device) {
  if (device >= channel::kMaxDevices) return 0;
  const Sums& of = sums[device];
  const uint64_t all = memory_held_bytes(device);
  const uint64_t arena = of.counted.load(std::memory_order_relaxed);
  return of.fixed.load(std::memory_order_relaxed) + of.graphs.load(std::memory_order_relaxed) +
         (all > arena ? all - arena : 0);
}

uint64_t fixed_kinds() {
  uint64_t kinds = 0;
  for (uint32_t kind = 1; kind < channel::kFixedCount; ++kind) {
    if (live_kinds[kind].load(std::memory_order_relaxed) != 0)
      kinds |= bit_of(static_cast<Fixed>(kind));
  }
  for (const Sums& of : sums) {
    if (of.graphs.load(std::memory_order_relaxed) != 0) kinds |= bit_of(Fixed::kGraphs);
  }
  return kinds;
}

const char* fixed_memory_reason() {
  const uint64_t kinds = fixed_kinds();
  const char* reason = "";
  for (uint32_t kind = channel::kFixedCount - 1; kind > 0; --kind) {
    if ((kinds & bit_of(static_cast<Fixed>(kind))) == 0) continue;
    reason = channel::kFixedKinds[kind].text;  // those that refuse a checkpoint come first
  }
  return reason;
}

void forget_backings() {
  backings.forget();
  mappings.forget();
  ordered_count = 0;
  for (Sums& of : sums) {
    of.swappable.store(0, std::memory_order_relaxed);
    of.fixed.store(0, std::memory_order_relaxed);
    of.counted.store(0, std::memory_order_relaxed);
    of.graphs.store(0, std::memory_order_relaxed);
  }
  any_graphs.store(false, std::memory_order_relaxed);
  for (auto& count : live_kinds) count.store(0, std::memory_order_relaxed);
}

}  // namespace lull::shim
