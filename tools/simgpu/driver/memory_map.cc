#include "tools/simgpu/driver/memory_map.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

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

// The whole pages in it.
void forget_pages(uint64_t begin, uint64_t size_bytes, int advice) {
  const uint64_t first_page = round_up(begin, kPageBytes);
  const uint64_t last_page = (begin + size_bytes) / kPageBytes * kPageBytes;
  if (last_page > first_page) {
    madvise(reinterpret_cast<void*>(first_page), last_page - first_page, advice);
  }
}

// Address space with nothing behind it. `hint`: there or nowhere, unless 0.
uint64_t map_nothing(uint64_t size_bytes, uint64_t hint) {
  void* at = mmap(
      reinterpret_cast<void*>(hint), size_bytes, PROT_NONE,
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (hint != 0 ? MAP_FIXED_NOREPLACE : 0), -1, 0);
  if (at == MAP_FAILED) return 0;
  if (hint != 0 && reinterpret_cast<uint64_t>(at) != hint) {  // a kernel that takes it as a hint
    munmap(at, size_bytes);
    return 0;
  }
  return reinterpret_cast<uint64_t>(at);
}

}  // namespace

uint64_t MemoryMap::reserved_bytes(uint64_t size_bytes) {
  return round_up(std::max<uint64_t>(size_bytes, 1),
                  size_bytes >= kLargeFromBytes ? kLargeAlignBytes : kSmallAlignBytes);
}

bool MemoryMap::open(AddressSpace& arena, uint64_t size_bytes, int map_flags) {
  for (; size_bytes >= kLeastArenaBytes / 4; size_bytes /= 2) {
    void* at = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | map_flags, -1, 0);
    if (at == MAP_FAILED) continue;
    // Neither core dumps nor fork children want it.
    madvise(at, size_bytes, MADV_DONTDUMP);
    madvise(at, size_bytes, MADV_DONTFORK);
    arena.open(reinterpret_cast<uint64_t>(at), size_bytes);
    return true;
  }
  return false;
}

void MemoryMap::give(AddressSpace& arena, uint64_t begin, uint64_t size_bytes) {
  forget_pages(begin, size_bytes, MADV_DONTNEED);
  arena.give(begin, size_bytes);
}

uint64_t MemoryMap::add_device(MemoryRange range, bool below_4g) {
  const std::lock_guard lock(mutex_);
  AddressSpace& arena = below_4g ? low_ : wide_;
  if (!arena.is_open() &&
      !(below_4g ? open(arena, kLowArenaBytes, MAP_32BIT) : open(arena, kWideArenaBytes, 0))) {
    return 0;
  }
  range.reserved_bytes = reserved_bytes(range.size_bytes);
  const bool large = range.reserved_bytes >= kLargeFromBytes;
  range.begin = arena.take(range.reserved_bytes, large ? kLargeAlignBytes : kSmallAlignBytes);
  if (range.begin == 0) return 0;
  range.id = next_id_++;
  // Managed memory is the host's to read as well, and begins as zeros.
  if (range.kind != MemoryKind::kManaged) {
    range.fresh = std::make_shared<FirstTouch>(range.reserved_bytes);
  }
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
  if (range.on_device() && range.kind != MemoryKind::kMapped) {
    give(low_.holds(range.begin) ? low_ : wide_, range.begin, range.reserved_bytes);
  } else if (range.kind == MemoryKind::kPinned) {
    munmap(reinterpret_cast<void*>(range.begin), range.reserved_bytes);
  }
}

std::optional<MemoryRange> MemoryMap::remove(uint64_t begin) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(begin);
  if (found == ranges_.end() || found->second.kind == MemoryKind::kMapped) return std::nullopt;
  const MemoryRange range = found->second;
  ranges_.erase(found);
  drop(range);
  return range;
}

bool MemoryMap::mark_freeing(uint64_t begin) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(begin);
  if (found == ranges_.end() || found->second.freeing || !found->second.on_device() ||
      found->second.kind == MemoryKind::kMapped) {
    return false;
  }
  found->second.freeing = true;
  return true;
}

void MemoryMap::mark_of_graph(uint64_t begin) {
  const std::lock_guard lock(mutex_);
  if (const auto found = ranges_.find(begin); found != ranges_.end()) found->second.of_graph = true;
}

uint64_t MemoryMap::graph_bytes(int device) const {
  const std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [begin, range] : ranges_) {
    if (range.of_graph && range.device == device) bytes += range.reserved_bytes;
  }
  return bytes;
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
    if (at->second.context == context && at->second.kind != MemoryKind::kMapped) {
      drop(at->second);
      removed.push_back(at->second);
      at = ranges_.erase(at);
    } else {
      ++at;
    }
  }
  return removed;
}

// --------------------------------------------------------------------------------------- touching

bool MemoryMap::touch(uint64_t begin, uint64_t bytes, Touch how, int device) {
  const std::lock_guard lock(mutex_);
  const uint64_t end = begin + bytes;
  for (uint64_t at = begin; at < end;) {
    const auto next = ranges_.upper_bound(at);
    const MemoryRange* const range = next == ranges_.begin() ? nullptr : &std::prev(next)->second;
    if (range == nullptr || at - range->begin >= range->reserved_bytes) {
      const auto reserved = reservations_.upper_bound(at);
      if (reserved != reservations_.begin()) {
        const auto& [first, size] = *std::prev(reserved);
        if (at - first < size) return false;  // reserved, and nothing is mapped
      }
      // Nothing of ours up to the next range or reservation.
      uint64_t until = end;
      if (next != ranges_.end()) until = std::min(until, next->first);
      if (reserved != reservations_.end()) until = std::min(until, reserved->first);
      at = until;
      continue;
    }
    const uint64_t until = std::min(end, range->begin + range->reserved_bytes);
    if (range->kind == MemoryKind::kMapped) {
      const auto wanted =
          static_cast<uint8_t>(how == Touch::kWrite ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                    : CU_MEM_ACCESS_FLAGS_PROT_READ);
      const auto allowed = [&](int by) { return (range->access[by] & wanted) == wanted; };
      // A copy is made by whichever of the two devices may.
      if (!allowed(device) && !allowed(range->device)) return false;
    }
    FirstTouch* const fresh = range->physical ? range->physical->fresh.get() : range->fresh.get();
    if (fresh != nullptr) {
      auto* const base = reinterpret_cast<uint8_t*>(range->begin);
      if (how == Touch::kWrite) {
        fresh->before_write(base, at - range->begin, until - at);
      } else {
        fresh->before_read(base, at - range->begin, until - at);
      }
    }
    at = until;
  }
  return true;
}

bool MemoryMap::is_usable(uint64_t address, int device) const {
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return false;
  const MemoryRange& range = std::prev(next)->second;
  if (address - range.begin >= range.reserved_bytes) return false;
  return range.kind == MemoryKind::kMapped ? range.access[device] != 0 : range.device == device;
}

bool MemoryMap::reaches(uint64_t address, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return false;
  const MemoryRange& first = std::prev(next)->second;
  uint64_t end = first.begin + first.reserved_bytes;
  for (; first.kind == MemoryKind::kMapped && next != ranges_.end(); ++next) {
    if (next->first != end || next->second.kind != MemoryKind::kMapped) break;
    end += next->second.reserved_bytes;
  }
  return address < end && bytes <= end - address;
}

// ------------------------------------------------------------------------------ reserved addresses

uint64_t MemoryMap::reserve(uint64_t size_bytes, uint64_t align_bytes, uint64_t hint) {
  align_bytes = std::max(align_bytes, kLargeAlignBytes);
  uint64_t begin = hint != 0 && hint % align_bytes == 0 ? map_nothing(size_bytes, hint) : 0;
  if (begin == 0) {
    // Room for the alignment, of which the ends go back.
    const uint64_t room = map_nothing(size_bytes + align_bytes, 0);
    if (room == 0) return 0;
    begin = round_up(room, align_bytes);
    if (begin > room) munmap(reinterpret_cast<void*>(room), begin - room);
    const uint64_t used = round_up(begin + size_bytes, kPageBytes);
    const uint64_t end = room + size_bytes + align_bytes;
    if (end > used) munmap(reinterpret_cast<void*>(used), end - used);
  }
  madvise(reinterpret_cast<void*>(begin), size_bytes, MADV_DONTDUMP);
  madvise(reinterpret_cast<void*>(begin), size_bytes, MADV_DONTFORK);
  const std::lock_guard lock(mutex_);
  reservations_[begin] = size_bytes;
  reservation_count_.fetch_add(1, std::memory_order_relaxed);
  return begin;
}

bool MemoryMap::unreserve(uint64_t begin, uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = reservations_.find(begin);
  if (found == reservations_.end() || found->second != size_bytes) return false;
  const auto inside = ranges_.lower_bound(begin);
  if (inside != ranges_.end() && inside->first < begin + size_bytes) return false;
  munmap(reinterpret_cast<void*>(begin), size_bytes);
  reservations_.erase(found);
  reservation_count_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

std::optional<Reservation> MemoryMap::reservation(uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto next = reservations_.upper_bound(address);
  if (next == reservations_.begin()) return std::nullopt;
  const auto& [begin, size] = *std::prev(next);
  if (address - begin >= size) return std::nullopt;
  return Reservation{begin, size};
}

CUresult MemoryMap::map(MemoryRange range) {
  const auto room = reservation(range.begin);
  const uint64_t end = range.begin + range.size_bytes;
  if (!room || end > room->begin + room->size_bytes) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.lower_bound(range.begin);
  if (next != ranges_.end() && next->first < end) return CUDA_ERROR_INVALID_VALUE;
  if (next != ranges_.begin()) {
    const MemoryRange& before = std::prev(next)->second;
    if (before.begin + before.reserved_bytes > range.begin) return CUDA_ERROR_INVALID_VALUE;
  }
  if (!PhysicalStore::put(*range.physical, range.begin, range.size_bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  range.kind = MemoryKind::kMapped;
  range.reserved_bytes = range.size_bytes;
  range.id = next_id_++;
  ranges_[range.begin] = range;
  return CUDA_SUCCESS;
}

std::vector<MemoryMap::Ranges::iterator> MemoryMap::whole_mappings(uint64_t begin,
                                                                   uint64_t size_bytes) {
  std::vector<Ranges::iterator> found;
  uint64_t at = begin;
  for (auto next = ranges_.find(begin); next != ranges_.end() && at < begin + size_bytes; ++next) {
    if (next->first != at || next->second.kind != MemoryKind::kMapped) return {};
    found.push_back(next);
    at += next->second.reserved_bytes;
  }
  return at == begin + size_bytes ? found : std::vector<Ranges::iterator>{};
}

std::vector<MemoryRange> MemoryMap::unmap(uint64_t begin, uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  std::vector<MemoryRange> removed;
  for (const auto& mapping : whole_mappings(begin, size_bytes)) {
    removed.push_back(mapping->second);
    ranges_.erase(mapping);
  }
  if (removed.empty()) return removed;
  mmap(reinterpret_cast<void*>(begin), size_bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  madvise(reinterpret_cast<void*>(begin), size_bytes, MADV_DONTDUMP);
  madvise(reinterpret_cast<void*>(begin), size_bytes, MADV_DONTFORK);
  return removed;
}

bool MemoryMap::set_access(uint64_t begin, uint64_t size_bytes, int device, uint8_t flags) {
  const std::lock_guard lock(mutex_);
  const auto mappings = whole_mappings(begin, size_bytes);
  for (const auto& mapping : mappings) mapping->second.access[device] = flags;
  return !mappings.empty();
}

bool MemoryMap::put_again(const Physical& physical) {
  const std::lock_guard lock(mutex_);
  for (const auto& [begin, range] : ranges_) {
    if (range.physical.get() != &physical) continue;
    if (!PhysicalStore::put(physical, begin, range.size_bytes)) return false;
  }
  return true;
}

// ----------------------------------------------------------------------------- out of its place

bool MemoryMap::has_kind(MemoryKind kind) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(ranges_, [&](const auto& entry) { return entry.second.kind == kind; });
}

bool MemoryMap::move_out(const std::vector<std::shared_ptr<Physical>>& physicals,
                         SavedContents& saved) {
  const std::lock_guard lock(mutex_);
  const auto note = [&](uint64_t place, FirstTouch* fresh) {
    if (fresh == nullptr) return;
    fresh->each_touched([&](uint64_t offset, uint64_t bytes) {
      saved.pieces.push_back({place + offset, bytes});
      saved.bytes += bytes;
    });
  };
  for (const auto& [begin, range] : ranges_) note(begin, range.fresh.get());
  const size_t in_arenas = saved.pieces.size();
  for (const auto& physical : physicals) note(physical->home, physical->fresh.get());
  if (saved.bytes == 0) return true;
  void* const copy =
      mmap(nullptr, saved.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) {
    saved = {};
    return false;
  }
  saved.copy = static_cast<uint8_t*>(copy);
  uint8_t* to = saved.copy;
  for (size_t i = 0; i < saved.pieces.size(); ++i) {
    const auto& [address, bytes] = saved.pieces[i];
    std::memcpy(to, reinterpret_cast<void*>(address), bytes);
    to += bytes;
    // What shares a page with others has to be spoiled by hand.
    std::memset(reinterpret_cast<void*>(address), kPoison, std::min(bytes, kPageBytes));
    std::memset(reinterpret_cast<void*>(address + bytes - std::min(bytes, kPageBytes)), kPoison,
                std::min(bytes, kPageBytes));
    forget_pages(address, bytes, i < in_arenas ? MADV_DONTNEED : MADV_REMOVE);
  }
  return true;
}

void MemoryMap::move_back(SavedContents& saved) {
  const uint8_t* from = saved.copy;
  for (const auto& [address, bytes] : saved.pieces) {
    std::memcpy(reinterpret_cast<void*>(address), from, bytes);
    from += bytes;
  }
  if (saved.copy != nullptr) munmap(saved.copy, saved.bytes);
  saved = {};
}

}  // namespace simgpu::driver
