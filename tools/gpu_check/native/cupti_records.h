/* The few declarations of NVIDIA's CUPTI that the kernel witness needs, written down from its
 * public interface so that nothing of CUPTI has to be there when lull is built. Where a field lies
 * has not changed between CUPTI of CUDA 11 (API version 14) and of CUDA 13.0 (API version 130001):
 * later versions only add fields behind these. A record whose fields make no sense is counted, not
 * used. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
  CUPTI_SUCCESS_ = 0,
  CUPTI_KIND_MEMCPY = 1,
  CUPTI_KIND_MEMSET = 2,
  CUPTI_KIND_CONCURRENT_KERNEL = 10,
  CUPTI_OLDEST_VERSION = 14,
  CUPTI_FLUSH_FORCED = 1
};

/* Copies and memsets: the same layout as far as it is read. */
struct cupti_transfer {
  uint32_t kind;
  uint8_t copy_kind; /* memcpy: 1 to the device, 2 to the host, 8 on the device, .. */
  uint8_t unused[3];
  uint64_t bytes;
  uint64_t start_ns;
  uint64_t end_ns;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  uint32_t correlation;
};

struct cupti_kernel {
  uint32_t kind;
  uint8_t unused1[12];
  uint64_t start_ns;
  uint64_t end_ns;
  uint64_t completed_ns;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  int32_t grid[3];
  int32_t block[3];
  int32_t static_shared_bytes;
  int32_t dynamic_shared_bytes;
  uint32_t unused2[2];
  uint32_t correlation;
  int64_t grid_id;
  const char* name;
  void* unused3;
  uint64_t queued_ns;
  uint64_t submitted_ns;
  uint8_t unused4[8];
  uint64_t graph_node;
};
_Static_assert(offsetof(struct cupti_kernel, start_ns) == 16,
               "as in CUpti_ActivityKernel5 and later");
_Static_assert(offsetof(struct cupti_kernel, stream) == 48,
               "as in CUpti_ActivityKernel5 and later");
_Static_assert(offsetof(struct cupti_kernel, dynamic_shared_bytes) == 80, "CUpti_ActivityKernel5");
_Static_assert(offsetof(struct cupti_kernel, correlation) == 92,
               "as in CUpti_ActivityKernel5 and later");
_Static_assert(offsetof(struct cupti_kernel, name) == 104, "as in CUpti_ActivityKernel5 and later");
_Static_assert(offsetof(struct cupti_kernel, graph_node) == 144,
               "as in CUpti_ActivityKernel5 and later");
_Static_assert(offsetof(struct cupti_transfer, start_ns) == 16,
               "as in CUpti_ActivityMemcpy, Memset");
_Static_assert(offsetof(struct cupti_transfer, stream) == 40, "as in CUpti_ActivityMemcpy, Memset");
