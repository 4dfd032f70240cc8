#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tools/gpu_check/native/probes.h"

namespace lull::probe {

using nlohmann::json;

namespace {

class Stopwatch {
 public:
  explicit Stopwatch(const Device& device) : device_(device) {}
  template <typename Call>
  void time(std::vector<double>& us, Call&& call) {
    const uint64_t start = device_.now_ns();
    call();
    us.push_back(static_cast<double>(device_.now_ns() - start) / 1e3);
  }

 private:
  const Device& device_;
};

}  // namespace

json probe_mapping(Driver& driver, uint64_t most_bytes) {
  const Device device(driver);
  Stopwatch watch(device);
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device.device;
  size_t least = 0, advised = 0;
  LULL_MUST(driver, cuMemGetAllocationGranularity, &least, &wanted,
            CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  LULL_MUST(driver, cuMemGetAllocationGranularity, &advised, &wanted,
            CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  CUmemAccessDesc access{};
  access.location = wanted.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

  json rows = json::array();
  for (const uint64_t size : {uint64_t{2} << 20, uint64_t{32} << 20, uint64_t{1} << 30}) {
    if (size > most_bytes) break;
    const size_t bytes = (size + least - 1) / least * least;
    const int repeats = size <= (uint64_t{2} << 20) ? 50 : size <= (uint64_t{32} << 20) ? 20 : 5;
    std::vector<double> reserve, create, map, allow, unmap, release, free, again;
    bool same_place = true;
    for (int i = 0; i < repeats; ++i) {
      CUdeviceptr place = 0;
      CUmemGenericAllocationHandle handle = 0;
      watch.time(reserve, [&] {
        LULL_MUST(driver, cuMemAddressReserve, &place, bytes, size_t{0}, CUdeviceptr{0}, 0ULL);
      });
      watch.time(create, [&] {
        LULL_MUST(driver, cuMemCreate, &handle, bytes,
                  static_cast<const CUmemAllocationProp*>(&wanted), 0ULL);
      });
      watch.time(map, [&] { LULL_MUST(driver, cuMemMap, place, bytes, size_t{0}, handle, 0ULL); });
      watch.time(allow, [&] {
        LULL_MUST(driver, cuMemSetAccess, place, bytes,
                  static_cast<const CUmemAccessDesc*>(&access), size_t{1});
      });
      LULL_MUST(driver, cuMemsetD32, place, 0x600Du, bytes / 4);
      LULL_MUST(driver, cuCtxSynchronize);
      watch.time(unmap, [&] { LULL_MUST(driver, cuMemUnmap, place, bytes); });
      watch.time(release, [&] { LULL_MUST(driver, cuMemRelease, handle); });
      // New memory at the old address: what a resume does.
      watch.time(again, [&] {
        LULL_MUST(driver, cuMemCreate, &handle, bytes,
                  static_cast<const CUmemAllocationProp*>(&wanted), 0ULL);
        LULL_MUST(driver, cuMemMap, place, bytes, size_t{0}, handle, 0ULL);
        LULL_MUST(driver, cuMemSetAccess, place, bytes,
                  static_cast<const CUmemAccessDesc*>(&access), size_t{1});
      });
      uint32_t back = 0;
      LULL_MUST(driver, cuMemsetD32, place, 0xCAFEu, bytes / 4);
      LULL_MUST(driver, cuMemcpyDtoH, static_cast<void*>(&back), place + bytes - 4, sizeof back);
      same_place = same_place && back == 0xCAFE;
      LULL_MUST(driver, cuMemUnmap, place, bytes);
      LULL_MUST(driver, cuMemRelease, handle);
      watch.time(free, [&] { LULL_MUST(driver, cuMemAddressFree, place, bytes); });
    }
    rows.push_back({{"bytes", bytes},
                    {"repeats", repeats},
                    {"reserve_us", median(reserve)},
                    {"create_us", median(create)},
                    {"map_us", median(map)},
                    {"set_access_us", median(allow)},
                    {"unmap_us", median(unmap)},
                    {"release_us", median(release)},
                    {"address_free_us", median(free)},
                    {"back_at_the_same_address_us", median(again)},
                    {"usable_at_the_same_address", same_place}});
  }
  return {{"granularity_bytes", least}, {"granularity_advised_bytes", advised}, {"rows", rows}};
}

json probe_registration(Driver& driver, uint64_t bytes) {
  const Device device(driver);
  Stopwatch watch(device);
  const CUstream stream = device.stream();
  const CUevent from = device.event(), to = device.event();
  CUdeviceptr memory = 0;
  LULL_MUST(driver, cuMemAlloc, &memory, static_cast<size_t>(bytes));
  json rows = json::array();
  const auto measure = [&](const char* kind, void* data) {
    std::vector<double> populate, pin, unpin, out, in;
    watch.time(populate, [&] { std::memset(data, 1, bytes); });
    for (int i = 0; i < 3; ++i) {
      watch.time(
          pin, [&] { LULL_MUST(driver, cuMemHostRegister, data, static_cast<size_t>(bytes), 0u); });
      LULL_MUST(driver, cuEventRecord, from, stream);
      LULL_MUST(driver, cuMemcpyDtoHAsync, data, memory, static_cast<size_t>(bytes), stream);
      LULL_MUST(driver, cuEventRecord, to, stream);
      LULL_MUST(driver, cuStreamSynchronize, stream);
      out.push_back(device.elapsed_us(from, to));
      LULL_MUST(driver, cuEventRecord, from, stream);
      LULL_MUST(driver, cuMemcpyHtoDAsync, memory, static_cast<const void*>(data),
                static_cast<size_t>(bytes), stream);
      LULL_MUST(driver, cuEventRecord, to, stream);
      LULL_MUST(driver, cuStreamSynchronize, stream);
      in.push_back(device.elapsed_us(from, to));
      watch.time(unpin, [&] { LULL_MUST(driver, cuMemHostUnregister, data); });
    }
    const auto rate = [&](const std::vector<double>& us) {
      const double middle = median(us);
      return middle > 0 ? static_cast<double>(bytes) / middle / 1e3 : 0;
    };
    rows.push_back({{"kind", kind},
                    {"bytes", bytes},
                    {"populate_gb_per_s", rate(populate)},
                    {"register_gb_per_s", rate(pin)},
                    {"unregister_gb_per_s", rate(unpin)},
                    {"d2h_gb_per_s", rate(out)},
                    {"h2d_gb_per_s", rate(in)}});
  };
  void* small = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (small == MAP_FAILED) throw NotHere{"not enough host memory"};
  madvise(small, bytes, MADV_NOHUGEPAGE);
  measure("anonymous, 4 KiB pages", small);
  munmap(small, bytes);
  void* large = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (large != MAP_FAILED) {
    const bool asked = madvise(large, bytes, MADV_HUGEPAGE) == 0;
    measure(asked ? "anonymous, huge pages asked for" : "anonymous, huge pages refused", large);
    munmap(large, bytes);
  }
  const int file = memfd_create("lull-device-probe", MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0) {
    void* shared = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared != MAP_FAILED) {
      measure("memfd", shared);
      munmap(shared, bytes);
    }
  }
  if (file >= 0) close(file);
  LULL_MUST(driver, cuMemFree, memory);
  return {{"rows", rows}};
}

}  // namespace lull::probe
