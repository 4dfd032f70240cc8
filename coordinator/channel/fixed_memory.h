// Why device memory of a client stays on the GPU when the rest of it goes to host memory. One list:
// the shim keeps how much there is of each kind, lulld reads which ones there are
// (lull_residence.fixed_kinds) and has the words for them.
#pragma once

#include <stdint.h>

namespace lull::channel {

// name, whether the driver refuses a checkpoint of a process that holds it, words
#define LULL_FIXED_MEMORY(ROW)                                                           \
  ROW(kManaged, true, "managed memory")                                                  \
  ROW(kExported, true, "memory that was exported to other processes")                    \
  ROW(kShared, true, "memory that other processes may share (cuIpcGetMemHandle)")        \
  ROW(kImported, true, "memory of another process")                                      \
  ROW(kMulticast, true, "memory of a multicast object")                                  \
  ROW(kArrays, false, "arrays (their size is a lower bound)")                            \
  ROW(kGraphs, false, "memory of graphs")                                                \
  ROW(kRegistered, false, "memory that is registered for access past the driver (RDMA)") \
  ROW(kSparse, false, "memory of sparse arrays")                                         \
  ROW(kPartAccess, false, "access to a part of a mapping")                               \
  ROW(kHostAccess, false, "mapped memory that the host can touch")                       \
  ROW(kMappedOnce, false, "memory is mapped in a way that cannot be repeated")           \
  ROW(kNotMapped, false, "memory that the driver would not map")                         \
  ROW(kCannotMap, false, "the driver cannot map memory of this device")                  \
  ROW(kNoTable, false, "no host memory for the table of device memory")

enum class Fixed : uint32_t {
  kNot,
#define ROW(name, refused, text) name,
  LULL_FIXED_MEMORY(ROW)
#undef ROW
      kCount
};

struct FixedKind {
  bool refuses_checkpoint;
  const char* text;
};
inline constexpr FixedKind kFixedKinds[] = {{false, ""},
#define ROW(name, refused, text) {refused, text},
                                            LULL_FIXED_MEMORY(ROW)
#undef ROW
};
#undef LULL_FIXED_MEMORY

inline constexpr uint32_t kFixedCount = static_cast<uint32_t>(Fixed::kCount);
static_assert(kFixedCount < 64 && sizeof kFixedKinds / sizeof kFixedKinds[0] == kFixedCount);

// A bit of lull_residence.fixed_kinds.
constexpr uint64_t bit_of(Fixed kind) { return uint64_t{1} << static_cast<uint32_t>(kind); }

}  // namespace lull::channel
