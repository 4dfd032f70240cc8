#include "shim/residence/host_arena.h"

#include <linux/mman.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "shim/captures.h"
#include "shim/residence/host_limits.h"
#include "shim/residence/live_contexts.h"
#include "shim/system.h"

// Of kernels newer than some headers.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace lull::shim {

namespace {

constexpr uint64_t kHugeBytes = 2ULL << 20;
constexpr uint64_t kSmallBytes = 4096;
// 256 GiB in full pieces, and the smaller ones that a growing program begins with.
constexpr uint32_t kMostPieces = 8192;

struct Piece {
  char* at;
  uint64_t offset;
  uint64_t bytes;
  CUcontext registered;  // null: not
};

Lock pieces_lock;  // registrations; never at the same time as another lock of the shim's but the
                   // contexts'
Piece pieces[kMostPieces];
uint32_t piece_count;
uint64_t ready_bytes;
char refusal[128];

constexpr uint64_t mib(uint64_t bytes) { return bytes >> 20; }

// Pages that nobody has touched are there at the first touch: all of them, now.
bool populate(char* at, uint64_t bytes, bool reserved) {
  if (madvise(at, bytes, MADV_POPULATE_WRITE) == 0) return true;
  // Before Linux 5.14 touching has to do. A reserved huge page that its cgroup is refused would be
  // the end of the process.
  if (errno != EINVAL || reserved) return false;
  for (uint64_t n = 0; n < bytes; n += kSmallBytes) static_cast<volatile char*>(at)[n] = 0;
  return true;
}

char* map_reserved(uint64_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT), -1, 0);
  if (at == MAP_FAILED) return nullptr;
  madvise(at, bytes, MADV_DONTFORK);
  if (populate(static_cast<char*>(at), bytes, /*reserved=*/true)) return static_cast<char*>(at);
  munmap(at, bytes);
  return nullptr;
}

// At a multiple of a huge page, so that the kernel may use them.
char* map_any(uint64_t bytes) {
  void* raw = mmap(nullptr, bytes + kHugeBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(raw);
  char* at = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(raw) + kHugeBytes - 1) &
                                     ~(kHugeBytes - 1));
  if (at != begin) munmap(begin, static_cast<size_t>(at - begin));
  const uint64_t behind = static_cast<uint64_t>(begin + bytes + kHugeBytes - (at + bytes));
  if (behind != 0) munmap(at + bytes, behind);
  madvise(at, bytes, MADV_DONTFORK);
  madvise(at, bytes, MADV_HUGEPAGE);
  if (populate(at, bytes, /*reserved=*/false)) return at;
  munmap(at, bytes);
  return nullptr;
}

// Under pieces_lock. Registering is forbidden while a thread captures in the strictest mode, but
// for a thread that says it knows.
CUresult register_piece(Piece& piece, CUdevice ordinal) {
  OwnCall own(thread_state);
  const CUcontext context = context_on(ordinal);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (driver().cuCtxSetCurrent(context) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_CONTEXT;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver().cuThreadExchangeStreamCaptureMode(&mode);
  CUresult result =
      driver().cuMemHostRegister_v2(piece.at, piece.bytes, CU_MEMHOSTREGISTER_PORTABLE);
  driver().cuThreadExchangeStreamCaptureMode(&mode);
  if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) result = CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) piece.registered = context;
  return result;
}

// Under pieces_lock.
void unregister_piece(Piece& piece) {
  if (piece.registered == nullptr) return;
  OwnCall own(thread_state);
  CUcontext before = nullptr;
  driver().cuCtxGetCurrent(&before);
  if (before != piece.registered) driver().cuCtxSetCurrent(piece.registered);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver().cuThreadExchangeStreamCaptureMode(&mode);
  driver().cuMemHostUnregister(piece.at);
  driver().cuThreadExchangeStreamCaptureMode(&mode);
  if (before != piece.registered) driver().cuCtxSetCurrent(before);
  piece.registered = nullptr;
}

// How large the next piece is: as much as is missing, but an eighth of what there is at the least,
// so that a program that grows by little has few pieces.
uint64_t next_bytes(uint64_t wanted_bytes) {
  const uint64_t bytes = std::max(wanted_bytes - ready_bytes, ready_bytes / 8);
  return std::min((bytes + kHugeBytes - 1) & ~(kHugeBytes - 1), kHostPieceBytes);
}

bool unregistered() {
  for (uint32_t n = 0; n < piece_count; ++n) {
    if (pieces[n].registered == nullptr) return true;
  }
  return false;
}

}  // namespace

uint64_t host_arena_bytes() { return ready_bytes; }

bool host_arena_fits(uint64_t wanted_bytes, uint64_t allowance_bytes, const char*& reason) {
  if (wanted_bytes <= ready_bytes) return true;
  reason = refusal;
  if (wanted_bytes > allowance_bytes) {
    snprintf(refusal, sizeof refusal,
             "host memory: %llu MiB needed, the operator's host_memory leaves this job %llu MiB",
             static_cast<unsigned long long>(mib(wanted_bytes)),
             static_cast<unsigned long long>(mib(allowance_bytes)));
    return false;
  }
  const HostRoom room = host_room("/proc", "/sys/fs/cgroup");
  const uint64_t missing = wanted_bytes - ready_bytes;
  const uint64_t small =
      missing > room.reserved_huge_bytes ? missing - room.reserved_huge_bytes : 0;
  if (small <= room.left_bytes) return true;
  snprintf(refusal, sizeof refusal, "host memory: %llu MiB more needed, %s %llu MiB",
           static_cast<unsigned long long>(mib(missing)),
           room.bound == HostBound::kCgroup ? "the cgroup's memory.max leaves"
                                            : "the machine has room for",
           static_cast<unsigned long long>(mib(room.left_bytes + room.reserved_huge_bytes)));
  return false;
}

HostMemory prepare_host_arena(uint64_t wanted_bytes, uint64_t allowance_bytes, CUdevice ordinal,
                              const char*& reason) {
  KeepErrno keep;
  const bool captures = open_captures.load(std::memory_order_relaxed) > 0;
  if (!captures && unregistered()) {
    Locked locked(pieces_lock);
    for (uint32_t n = 0; n < piece_count; ++n) {
      if (pieces[n].registered != nullptr) continue;
      if (register_piece(pieces[n], ordinal) == CUDA_SUCCESS) return HostMemory::kMoreToDo;
      break;
    }
  }
  if (wanted_bytes <= ready_bytes) return HostMemory::kReady;
  if (captures) return HostMemory::kMoreToDo;
  if (!host_arena_fits(wanted_bytes, allowance_bytes, reason)) return HostMemory::kRefused;
  if (piece_count == kMostPieces) {
    reason = "host memory: more pieces than lull keeps";
    return HostMemory::kRefused;
  }
  Piece piece{nullptr, ready_bytes, next_bytes(wanted_bytes), nullptr};
  piece.at = map_reserved(piece.bytes);
  if (piece.at == nullptr) piece.at = map_any(piece.bytes);
  if (piece.at == nullptr) {
    reason = refusal;
    snprintf(refusal, sizeof refusal, "host memory: the kernel refused %llu MiB (errno %d)",
             static_cast<unsigned long long>(mib(piece.bytes)), errno);
    return HostMemory::kRefused;
  }
  Locked locked(pieces_lock);
  const CUresult result = register_piece(piece, ordinal);
  if (result != CUDA_SUCCESS) {
    munmap(piece.at, piece.bytes);
    reason = refusal;
    snprintf(refusal, sizeof refusal, "host memory: the driver refused to pin %llu MiB (error %d)",
             static_cast<unsigned long long>(mib(piece.bytes)), static_cast<int>(result));
    return HostMemory::kRefused;
  }
  pieces[piece_count++] = piece;
  ready_bytes += piece.bytes;
  return ready_bytes >= wanted_bytes ? HostMemory::kReady : HostMemory::kMoreToDo;
}

char* host_arena_at(uint64_t offset, uint64_t& left_bytes) {
  uint32_t low = 0;
  uint32_t high = piece_count;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    (pieces[middle].offset <= offset ? low : high) = middle;
  }
  const uint64_t inside = offset - pieces[low].offset;
  left_bytes = pieces[low].bytes - inside;
  return pieces[low].at + inside;
}

void trim_host_arena(uint64_t wanted_bytes) {
  const uint64_t kept = wanted_bytes + wanted_bytes / 8;
  Locked locked(pieces_lock);
  while (piece_count > 0 && pieces[piece_count - 1].offset >= kept) {
    Piece& last = pieces[--piece_count];
    unregister_piece(last);
    munmap(last.at, last.bytes);
    ready_bytes -= last.bytes;
  }
}

void check_host_arena(CUdevice ordinal) {
  Locked locked(pieces_lock);
  OwnCall own(thread_state);
  const CUcontext context = context_on(ordinal);
  if (context == nullptr || driver().cuCtxSetCurrent(context) != CUDA_SUCCESS) return;
  for (uint32_t n = 0; n < piece_count; ++n) {
    unsigned flags = 0;
    if (driver().cuMemHostGetFlags(&flags, pieces[n].at) == CUDA_SUCCESS) continue;
    pieces[n].registered = nullptr;
    register_piece(pieces[n], ordinal);
  }
}

void host_arena_context_pauses() {
  // Registering goes on under the lock, in a context that is not given out any more.
  Locked locked(pieces_lock);
}

void host_arena_context_gone(CUcontext context, bool alive) {
  KeepErrno keep;
  Locked locked(pieces_lock);
  for (uint32_t n = 0; n < piece_count; ++n) {
    if (pieces[n].registered != context) continue;
    if (alive) unregister_piece(pieces[n]);
    pieces[n].registered = nullptr;
  }
}

void forget_host_arena() {
  // The memory itself is not in the child.
  piece_count = 0;
  ready_bytes = 0;
  pieces_lock.try_lock();
  pieces_lock.unlock();
}

}  // namespace lull::shim
