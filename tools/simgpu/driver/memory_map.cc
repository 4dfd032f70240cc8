#include "tools/simgpu/driver/memory_map.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace simgpu::driver {
namespace {

constexpr uint64_t kSmallAlignBytes = 512;
constexpr uint64_t kLargeAlignBytes = uint64_t{2} << 20;
constexpr uint64_t kLargeFromBytes = uint64_t{1} << 20;
constexpr uint64_t kWideArenaBytes = uint64_t{4} << 40;
constexpr uint64_t kLeastArenaBytes = uint64_t{1} << 30;
constexpr uint64_t kLowArenaBytes = uint64_t{512} << 20;
constexpr uint64_t kPageBytes = 4096;

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

uint64_t MemoryMap::reserved_bytes(uint64_t size_bytes) {
  return round_up(std::max<uint64_t>(size_bytes, 1),
                  size_bytes >= kLargeFromBytes ? kLargeAlignBytes : kSmallAlignBytes);
}

bool MemoryMap::reserve(Arena& arena, uint64_t size_bytes, int map_flags) {
  for (; size_bytes >= kLeastArenaBytes / 4; size_bytes /= 2) {
    void* at = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | map_flags, -1, 0);
    if (at == MAP_FAILED) continue;
    // Neither core dumps nor fork children want it.
    madvise(at, size_bytes, MADV_DONTDUMP);
    madvise(at, size_bytes, MADV_DONTFORK);
    arena.begin = reinterpret_cast<uint64_t>(at);
    arena.size_bytes = size_bytes;
    arena.holes[arena.begin] = size_bytes;
    return true;
  }
  return false;
}

uint64_t MemoryMap::take(Arena& arena, uint64_t size_bytes, uint64_t align_bytes) {
  for (auto hole = arena.holes.begin(); hole != arena.holes.end(); ++hole) {
    const auto [begin, size] = *hole;
    const uint64_t at = round_up(begin, align_bytes);
    if (at + size_bytes > begin + size) continue;
    arena.holes.erase(hole);
    if (at > begin) arena.holes[begin] = at - begin;
    if (at + size_bytes < begin + size)
      arena.holes[at + size_bytes] = begin + size - at - size_bytes;
    return at;
  }
  return 0;
}

void MemoryMap::give(Arena& arena, uint64_t begin, uint64_t size_bytes) {
  const uint64_t first_page = round_up(begin, kPageBytes);
  const uint64_t last_page = (begin + size_bytes) / kPageBytes * kPageBytes;
  if (last_page > first_page) {
    madvise(reinterpret_cast<void*>(first_page), last_page - first_page, MADV_DONTNEED);
  }
  auto next = arena.holes.lower_bound(begin);
  if (next != arena.holes.end() && begin + size_bytes == next->first) {
    size_bytes += next->second;
    next = arena.holes.erase(next);
  }
  if (next != arena.holes.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      previous->second += size_bytes;
      return;
    }
  }
  arena.holes[begin] = size_bytes;
}

uint64_t MemoryMap::add_device(MemoryRange range, bool below_4g) {
  const std::lock_guard lock(mutex_);
  Arena& arena = below_4g ? low_ : wide_;
  if (arena.size_bytes == 0 && !(below_4g ? reserve(arena, kLowArenaBytes, MAP_32BIT)
                                          : reserve(arena, kWideArenaBytes, 0))) {
    return 0;
  }
  range.reserved_bytes = reserved_bytes(range.size_bytes);
  const bool large = range.reserved_bytes >= kLargeFromBytes;
  range.begin = take(arena, range.reserved_bytes, large ? kLargeAlignBytes : kSmallAlignBytes);
  if (range.begin == 0) return 0;
  range.id = next_id_++;
  ranges_[range.begin] = range;
  return range.begin;
}

uint64_t MemoryMap::add_pinned(MemoryRange range) {
  range.reserved_bytes = round_up(std::max<uint64_t>(range.size_bytes, 1), kPageBytes);
  void* at = mmap(nullptr, range.reserved_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return 0;
  const std::lock_guard lock(mutex_);
  range.kind = MemoryKind::kPinned;
  range.begin = reinterpret_cast<uint64_t>(at);
  range.id = next_id_++;
  ranges_[range.begin] = range;
  return range.begin;
}

bool MemoryMap::add_registered(MemoryRange range) {
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.lower_bound(range.begin);
  if (next != ranges_.end() && next->first < range.begin + range.size_bytes) return false;
  if (next != ranges_.begin()) {
    const MemoryRange& previous = std::prev(next)->second;
    if (previous.begin + previous.size_bytes > range.begin) return false;
  }
  range.kind = MemoryKind::kRegistered;
  range.reserved_bytes = range.size_bytes;
  range.id = next_id_++;
  ranges_[range.begin] = range;
  return true;
}

void MemoryMap::drop(const MemoryRange& range) {
  if (range.on_device()) {
    const bool low = range.begin >= low_.begin && range.begin < low_.begin + low_.size_bytes;
    give(low ? low_ : wide_, range.begin, range.reserved_bytes);
  } else if (range.kind == MemoryKind::kPinned) {
    munmap(reinterpret_cast<void*>(range.begin), range.reserved_bytes);
  }
}

std::optional<MemoryRange> MemoryMap::remove(uint64_t begin) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(begin);
  if (found == ranges_.end()) return std::nullopt;
  const MemoryRange range = found->second;
  ranges_.erase(found);
  drop(range);
  return range;
}

bool MemoryMap::mark_freeing(uint64_t begin) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(begin);
  if (found == ranges_.end() || found->second.freeing || !found->second.on_device()) return false;
  found->second.freeing = true;
  return true;
}

std::optional<MemoryRange> MemoryMap::find(uint64_t address) const {
  const std::lock_guard lock(mutex_);
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return std::nullopt;
  const MemoryRange& range = std::prev(next)->second;
  if (address - range.begin >= std::max<uint64_t>(range.size_bytes, 1)) return std::nullopt;
  return range;
}

std::vector<MemoryRange> MemoryMap::remove_context(uint64_t context) {
  const std::lock_guard lock(mutex_);
  std::vector<MemoryRange> removed;
  for (auto at = ranges_.begin(); at != ranges_.end();) {
    if (at->second.context == context) {
      drop(at->second);
      removed.push_back(at->second);
      at = ranges_.erase(at);
    } else {
      ++at;
    }
  }
  return removed;
}

}  // namespace simgpu::driver
