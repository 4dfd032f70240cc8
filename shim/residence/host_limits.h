// How much more host memory this process may take and keep: what the machine has left, and what
// each cgroup above it has left. Reads /proc and /sys with plain read(); no heap, no state. The
// roots are arguments for tests ("/proc", "/sys/fs/cgroup").
#pragma once

#include <stdint.h>

namespace lull::shim {

enum class HostBound { kNone, kMachine, kCgroup };

struct HostRoom {
  uint64_t left_bytes;           // of small and huge pages that are not reserved, in all
  uint64_t reserved_huge_bytes;  // free pages of the hugetlb pool, 2 MiB each; not in `left_bytes`
  HostBound bound;               // what bounds left_bytes
};
HostRoom host_room(const char* proc, const char* cgroups);

// Pinned memory cannot be reclaimed: everybody else's bursts and page cache have to fit into what
// is left. A tenth of the machine, and 1 GiB where that is little (systemd-oomd and earlyoom act at
// about 10 % left, the kernel's own reclaim below 1 %).
uint64_t host_reserve_bytes(uint64_t total_bytes);

}  // namespace lull::shim
