#include "shim/residence/peer_access.h"

#include <string.h>

#include "shim/residence/mapped_memory.h"
#include "shim/thread_state.h"

namespace lull::shim {

namespace {

constexpr uint32_t kMaxGrants = 1024;

struct Grant {
  const void* source;  // a context, or a pool
  const void* target;  // the peer's context; of a pool: the pool
  CUdevice owner;
  CUdevice ordinal;
};
// Under arena_lock.
Grant grants[kMaxGrants];
uint32_t grant_count;
uint64_t generation;

bool is_granted(CUdevice owner, CUdevice ordinal) {
  if (owner == ordinal) return true;
  for (uint32_t n = 0; n < grant_count; ++n) {
    if (grants[n].owner == owner && grants[n].ordinal == ordinal) return true;
  }
  return false;
}

// On all that is there. The first error; what was changed stays so.
CUresult apply(CUdevice owner, CUdevice ordinal) {
  OwnCall own(thread_state);
  const auto flags =
      static_cast<uint8_t>(is_granted(owner, ordinal) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                      : CU_MEM_ACCESS_FLAGS_PROT_NONE);
  ++generation;
  CUresult first = CUDA_SUCCESS;
  for (Mapping* mapping : all_mappings()) {
    const Backing& backing = *mapping->backing;
    if (!backing.ours || backing.properties.location.id != owner ||
        mapping->access[ordinal] == flags) {
      continue;
    }
    const CUresult result = backing.present
                                ? change_access(mapping->address, mapping->bytes, ordinal, flags)
                                : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) mapping->access[ordinal] = flags;
    if (first == CUDA_SUCCESS) first = result;
  }
  return first;
}

CUresult grant(const Grant& wanted) {
  Locked locked(arena_lock);
  for (uint32_t n = 0; n < grant_count; ++n) {
    if (memcmp(&grants[n], &wanted, sizeof wanted) == 0) return CUDA_SUCCESS;
  }
  if (grant_count == kMaxGrants) return CUDA_ERROR_TOO_MANY_PEERS;
  grants[grant_count++] = wanted;
  const CUresult result = apply(wanted.owner, wanted.ordinal);
  if (result != CUDA_SUCCESS) {
    --grant_count;
    apply(wanted.owner, wanted.ordinal);
  }
  return result;
}

template <typename Match>
void take_back(Match match) {
  Locked locked(arena_lock);
  for (uint32_t n = 0; n < grant_count;) {
    if (!match(grants[n])) {
      ++n;
      continue;
    }
    const Grant gone = grants[n];
    grants[n] = grants[--grant_count];
    if (!is_granted(gone.owner, gone.ordinal)) apply(gone.owner, gone.ordinal);
  }
}

CUdevice device_of(CUcontext context) {
  OwnCall own(thread_state);
  CUdevice ordinal = -1;
  CUcontext before = nullptr;
  if (driver().cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return -1;
  if (driver().cuCtxGetDevice(&ordinal) != CUDA_SUCCESS) ordinal = -1;
  driver().cuCtxPopCurrent_v2(&before);
  return ordinal;
}

bool current(CUcontext& context, CUdevice& ordinal) {
  OwnCall own(thread_state);
  return driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != nullptr &&
         driver().cuCtxGetDevice(&ordinal) == CUDA_SUCCESS;
}

bool is_ordinal(CUdevice ordinal) { return ordinal >= 0 && ordinal < kMaxOrdinals; }

}  // namespace

CUresult peer_access_enabled(CUcontext peer) {
  Grant wanted{};
  CUcontext context = nullptr;
  if (!current(context, wanted.ordinal)) return CUDA_SUCCESS;
  wanted.source = context;
  wanted.target = peer;
  wanted.owner = device_of(peer);
  if (!is_ordinal(wanted.owner) || !is_ordinal(wanted.ordinal)) return CUDA_SUCCESS;
  return grant(wanted);
}

void peer_access_disabled(CUcontext peer) {
  CUcontext context = nullptr;
  CUdevice ordinal = -1;
  if (!current(context, ordinal)) return;
  take_back([&](const Grant& grant) { return grant.source == context && grant.target == peer; });
}

CUresult pool_access_changed(CUmemoryPool pool, CUdevice owner, CUdevice ordinal, bool granted) {
  if (!is_ordinal(owner) || !is_ordinal(ordinal) || owner == ordinal) return CUDA_SUCCESS;
  if (!granted) {
    take_back([&](const Grant& grant) { return grant.source == pool && grant.ordinal == ordinal; });
    return CUDA_SUCCESS;
  }
  Grant wanted{};
  wanted.source = pool;
  wanted.target = pool;
  wanted.owner = owner;
  wanted.ordinal = ordinal;
  return grant(wanted);
}

void peer_access_of_gone(const void* source) {
  take_back([&](const Grant& grant) { return grant.source == source || grant.target == source; });
}

void forget_peer_access() { grant_count = 0; }

void fill_access(CUdevice owner, uint8_t (&access)[kMaxOrdinals]) {
  memset(access, CU_MEM_ACCESS_FLAGS_PROT_NONE, sizeof access);
  access[owner] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  for (uint32_t n = 0; n < grant_count; ++n) {
    if (grants[n].owner == owner) access[grants[n].ordinal] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
}

uint64_t access_generation() { return generation; }

}  // namespace lull::shim
