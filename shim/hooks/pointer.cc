// What a program is told of an address: the arena's allocations are to look like the driver's own.
#include "shim/hooks/moves.h"
#include "shim/residence/memory_gate.h"
#include "shim/residence/pointer_facts.h"
#include "shim/residence/program_handles.h"
#include "shim/submit.h"

using namespace lull::shim;
using lull::channel::Fixed;

namespace {

// No device memory is there.
constexpr CUdeviceptr kNobodys = 1;

template <typename Address, typename Size, typename Call>
CUresult address_range(Address* begin, Size* size, Address address, Call call) {
  CUdeviceptr at = 0;
  uint64_t bytes = 0;
  if (moves() && allocation_range(address, at, bytes)) {
    if (begin != nullptr) *begin = static_cast<Address>(at);
    if (size != nullptr) *size = static_cast<Size>(bytes);
    return CUDA_SUCCESS;
  }
  const bool nowhere = moves() && what_is(address) == Known::kNowhere;
  MemoryUse use(thread_state);
  return forward(thread_state, [&] { return call(nowhere ? Address{kNobodys} : address); });
}

}  // namespace

LULL_ENTRY(cuMemGetAddressRange)
(CUdeviceptr_v1* begin, unsigned int* size, CUdeviceptr_v1 address) {
  return address_range(begin, size, address, [&](CUdeviceptr_v1 at) {
    return driver().cuMemGetAddressRange(begin, size, at);
  });
}
LULL_ENTRY(cuMemGetAddressRange_v2)(CUdeviceptr* begin, size_t* size, CUdeviceptr address) {
  return address_range(begin, size, address, [&](CUdeviceptr at) {
    return driver().cuMemGetAddressRange_v2(begin, size, at);
  });
}

LULL_ENTRY(cuMemGetHandleForAddressRange)
(void* handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
 unsigned long long flags) {
  MemoryUse use(thread_state);
  const bool arena = moves();
  const CUresult result = forward(thread_state, [&] {
    return driver().cuMemGetHandleForAddressRange(handle, address, bytes, type, flags);
  });
  if (result == CUDA_SUCCESS && arena) fix_address(address, bytes, Fixed::kRegistered);
  return result;
}

LULL_ENTRY(cuPointerGetAttribute)(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  MemoryUse use(thread_state);
  if (!moves()) {
    return forward(thread_state,
                   [&] { return driver().cuPointerGetAttribute(value, attribute, address); });
  }
  const CUdeviceptr asked = what_is(address) == Known::kNowhere ? kNobodys : address;
  const CUresult result = forward(
      thread_state, [&] { return driver().cuPointerGetAttribute(value, attribute, asked); });
  if (result == CUDA_SUCCESS && attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) {
    fix_address(address, 1, Fixed::kRegistered);
  }
  // A driver that does not say it of mapped memory says it of its own.
  const bool may_know = result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_VALUE ||
                        result == CUDA_ERROR_NOT_SUPPORTED;
  return may_know && correct_pointer_attribute(attribute, address, value) ? CUDA_SUCCESS : result;
}

LULL_ENTRY(cuPointerGetAttributes)
(unsigned int count, CUpointer_attribute* attributes, void** values, CUdeviceptr address) {
  MemoryUse use(thread_state);
  const bool arena = moves();
  const CUdeviceptr asked = arena && what_is(address) == Known::kNowhere ? kNobodys : address;
  const CUresult result = forward(thread_state, [&] {
    return driver().cuPointerGetAttributes(count, attributes, values, asked);
  });
  if (result != CUDA_SUCCESS || !arena) return result;
  for (unsigned n = 0; n < count; ++n) {
    if (attributes[n] == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
      fix_address(address, 1, Fixed::kRegistered);
    correct_pointer_attribute(attributes[n], address, values[n]);
  }
  return result;
}

// What is set holds for the physical memory that is there now.
LULL_ENTRY(cuPointerSetAttribute)
(const void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  MemoryUse use(thread_state);
  const bool arena = moves();
  const CUdeviceptr asked = arena && what_is(address) == Known::kNowhere ? kNobodys : address;
  const CUresult result = forward(
      thread_state, [&] { return driver().cuPointerSetAttribute(value, attribute, asked); });
  if (result == CUDA_SUCCESS && arena) fix_address(address, 1, Fixed::kRegistered);
  return result;
}
