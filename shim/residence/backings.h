// The arena's tables: physical memory, the addresses it is mapped at in order, the handles of ours
// that programs hold. One lock guards all of them; nothing here calls the driver. `arena_lock` is
// held by the caller of everything that does not say otherwise; driver calls made meanwhile never
// wait for work.
#pragma once

#include "shim/residence/device_arena.h"
#include "shim/system.h"

namespace lull::shim {

inline constexpr int kMaxOrdinals = 64;

struct Mapping {
  RecordHead head;
  uint64_t address;
  uint64_t bytes;
  uint64_t offset;  // into the backing
  Backing* backing;
  Mapping* next;                 // of the same backing
  uint64_t id;                   // never used again: what CU_POINTER_ATTRIBUTE_BUFFER_ID says
  uint8_t access[kMaxOrdinals];  // CUmemAccess_flags, by ordinal
};

extern Lock arena_lock;

// Null: no host memory. The caller fills in what else it knows, then `count_backing`.
Backing* add_backing(CUmemGenericAllocationHandle handle, uint64_t bytes,
                     const CUmemAllocationProp& properties, uint32_t device);
void remove_backing(Backing& backing);
Mapping* add_mapping(Backing& backing, uint64_t address, uint64_t bytes, uint64_t offset);
void remove_mapping(Mapping& mapping);

// The mapping that holds the address; null.
Mapping* mapping_at(uint64_t address);
// Those that begin in the range, in order.
struct MappingRange {
  Mapping** begin_;
  Mapping** end_;
  Mapping** begin() const { return begin_; }
  Mapping** end() const { return end_; }
};
MappingRange mappings_in(uint64_t address, uint64_t bytes);
inline MappingRange all_mappings() { return mappings_in(0, UINT64_MAX); }
Records<Backing>& all_backings();

// The number the program has for its handle, and back; null: not one of ours. 16 bits of it tell
// ours from the driver's, which are addresses or small numbers.
CUmemGenericAllocationHandle token_of(const Backing& backing);
Backing* backing_of_token(CUmemGenericAllocationHandle handle);
// Whether or not the program has a handle to it.
Backing* backing_with_token(CUmemGenericAllocationHandle handle);

// It stays on the device from now on. Null-safe; the first reason stays, but for one that refuses a
// checkpoint.
void fix_backing(Backing* backing, Fixed kind);
// What device_memory counts for the contents has changed by so much.
void change_counted(Backing& backing, int64_t bytes);

uint64_t new_buffer_id();
void forget_backings();

}  // namespace lull::shim
