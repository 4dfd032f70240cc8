#include "tools/simgpu/driver/physical.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace simgpu::driver {
namespace {

constexpr uint64_t kStoreBytes = uint64_t{4} << 40;
constexpr uint64_t kLeastStoreBytes = uint64_t{1} << 30;
constexpr uint64_t kAlignBytes = uint64_t{2} << 20;
constexpr uint64_t kTrailerBytes = 4096;
constexpr char kMagic[8] = {'s', 'i', 'm', 'g', 'p', 'u', 'M', '1'};
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// Shared: the pages can be mapped again elsewhere. Neither core dumps nor fork children want them.
uint64_t map_file(int descriptor, uint64_t bytes) {
  void* at =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (at == MAP_FAILED) return 0;
  madvise(at, bytes, MADV_DONTDUMP);
  madvise(at, bytes, MADV_DONTFORK);
  return reinterpret_cast<uint64_t>(at);
}

uint8_t* bytes_at(uint64_t address) { return reinterpret_cast<uint8_t*>(address); }

}  // namespace

std::shared_ptr<Physical> PhysicalStore::create(uint64_t size_bytes,
                                                const CUmemAllocationProp& properties) {
  for (uint64_t bytes = kStoreBytes; !home_.is_open() && bytes >= kLeastStoreBytes; bytes /= 2) {
    const int file = memfd_create("simgpu", MFD_CLOEXEC);
    if (file < 0) return nullptr;
    const uint64_t at = ftruncate(file, static_cast<off_t>(bytes)) == 0 ? map_file(file, bytes) : 0;
    close(file);  // the mapping keeps it
    if (at != 0) home_.open(at, bytes);
  }
  const uint64_t home = home_.take(size_bytes, kAlignBytes);
  if (home == 0) return nullptr;
  auto physical = std::make_shared<Physical>();
  physical->home = home;
  physical->size_bytes = size_bytes;
  physical->id = next_id_++;
  physical->properties = properties;
  physical->fresh = std::make_shared<FirstTouch>(size_bytes);
  return physical;
}

void PhysicalStore::destroy(Physical& physical) {
  if (physical.file >= 0) {
    munmap(bytes_at(physical.home), physical.size_bytes);
    close(physical.file);
  } else {
    madvise(bytes_at(physical.home), physical.size_bytes, MADV_REMOVE);
    home_.give(physical.home, physical.size_bytes);
  }
  physical.home = 0;
}

bool PhysicalStore::put(const Physical& physical, uint64_t address, uint64_t bytes) {
  // Length 0 of a shared mapping: its pages appear a second time.
  return mremap(bytes_at(physical.home), 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                bytes_at(address)) != MAP_FAILED;
}

bool PhysicalStore::move_to_file(Physical& physical, const exported_memory& what) {
  const int file = memfd_create("simgpu-exported", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return false;
  exported_memory trailer = what;
  std::memcpy(trailer.magic, kMagic, sizeof trailer.magic);
  const auto end = static_cast<off_t>(physical.size_bytes);
  const bool written = ftruncate(file, end + static_cast<off_t>(kTrailerBytes)) == 0 &&
                       pwrite(file, &trailer, sizeof trailer, end) == ssize_t{sizeof trailer} &&
                       fcntl(file, F_ADD_SEALS, kSeals | F_SEAL_SEAL) == 0;
  const uint64_t home = written ? map_file(file, physical.size_bytes) : 0;
  if (home == 0) {
    close(file);
    return false;
  }
  physical.fresh->before_read(bytes_at(physical.home), 0, physical.size_bytes);
  std::memcpy(bytes_at(home), bytes_at(physical.home), physical.size_bytes);
  destroy(physical);
  physical.home = home;
  physical.file = file;
  physical.block = what.block;
  physical.fresh = nullptr;
  return true;
}

std::expected<exported_memory, CUresult> PhysicalStore::read_file(int descriptor) {
  const auto wrong = std::unexpected(CUDA_ERROR_INVALID_VALUE);
  struct stat info;
  exported_memory what;
  if (fstat(descriptor, &info) != 0 || info.st_size <= off_t{kTrailerBytes} ||
      pread(descriptor, &what, sizeof what, info.st_size - off_t{kTrailerBytes}) !=
          ssize_t{sizeof what}) {
    return wrong;
  }
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals ||
      std::memcmp(what.magic, kMagic, sizeof kMagic) != 0 || what.size_bytes % kAlignBytes != 0 ||
      what.size_bytes + kTrailerBytes != static_cast<uint64_t>(info.st_size)) {
    return wrong;
  }
  return what;
}

std::shared_ptr<Physical> PhysicalStore::open_file(int descriptor, const exported_memory& what) {
  const int file = fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
  if (file < 0) return nullptr;
  const uint64_t home = map_file(file, what.size_bytes);
  if (home == 0) {
    close(file);
    return nullptr;
  }
  auto physical = std::make_shared<Physical>();
  physical->home = home;
  physical->size_bytes = what.size_bytes;
  physical->id = next_id_++;
  physical->properties = what.properties;
  physical->block = what.block;
  physical->file = file;
  return physical;
}

}  // namespace simgpu::driver
