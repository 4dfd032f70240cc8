#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "tools/gpu_check/native/probes.h"
#include "tools/gpu_check/native/self_checkpoint.h"

namespace lull::probe {

using nlohmann::json;

namespace {

constexpr size_t kPiece = 256 << 20;

// Every GPU that the process sees, as itself.
std::vector<CUcheckpointGpuPair> identity(Driver& driver) {
  int count = 0;
  LULL_MUST(driver, cuDeviceGetCount, &count);
  std::vector<CUcheckpointGpuPair> pairs(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    LULL_MUST(driver, cuDeviceGet, &device, i);
    LULL_MUST(driver, cuDeviceGetUuid, &pairs[static_cast<size_t>(i)].oldUuid, device);
    pairs[static_cast<size_t>(i)].newUuid = pairs[static_cast<size_t>(i)].oldUuid;
  }
  return pairs;
}

json texts(const std::vector<CUcheckpointGpuPair>& pairs) {
  json all = json::array();
  for (const CUcheckpointGpuPair& pair : pairs) all.push_back(uuid_text(pair.oldUuid));
  return all;
}

}  // namespace

json probe_checkpoint(Driver& driver, const CheckpointWishes& wishes) {
  const Device device(driver);
  SelfCheckpoint checkpoint(driver);  // before any memory is taken
  std::vector<std::pair<CUdeviceptr, size_t>> pieces;
  for (uint64_t made = 0; made < wishes.bytes;) {
    const size_t bytes = std::min<uint64_t>(kPiece, wishes.bytes - made);
    CUdeviceptr memory = 0;
    LULL_MUST(driver, cuMemAlloc, &memory, bytes);
    LULL_MUST(driver, cuMemsetD32, memory, static_cast<unsigned>(0xA5000000u + pieces.size()),
              bytes / 4);
    pieces.emplace_back(memory, bytes);
    made += bytes;
  }
  if (wishes.managed) {
    CUdeviceptr memory = 0;
    LULL_MUST(driver, cuMemAllocManaged, &memory, size_t{2} << 20,
              static_cast<unsigned>(CU_MEM_ATTACH_GLOBAL));
  }
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device.device;
  CUdeviceptr place = 0;
  constexpr size_t kMapped = 32 << 20;
  if (wishes.mapped) {
    CUmemGenericAllocationHandle handle = 0;
    LULL_MUST(driver, cuMemAddressReserve, &place, kMapped, size_t{0}, CUdeviceptr{0}, 0ULL);
    LULL_MUST(driver, cuMemCreate, &handle, kMapped,
              static_cast<const CUmemAllocationProp*>(&wanted), 0ULL);
    LULL_MUST(driver, cuMemMap, place, kMapped, size_t{0}, handle, 0ULL);
    LULL_MUST(driver, cuMemUnmap, place, kMapped);
    LULL_MUST(driver, cuMemRelease, handle);
  }
  LULL_MUST(driver, cuCtxSynchronize);

  // Another thread that calls CUDA all the time: it must stand still and go on, unharmed.
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> launches{0};
  std::atomic<int> thread_error{0};
  std::thread caller([&] {
    CUresult result = driver.cuCtxSetCurrent(device.context);
    CUstream stream = nullptr;
    if (result == CUDA_SUCCESS) result = driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    while (result == CUDA_SUCCESS && !stop.load(std::memory_order_relaxed)) {
      result =
          driver.cuLaunchKernel(device.null_kernel, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
      if (result == CUDA_SUCCESS) result = driver.cuStreamSynchronize(stream);
      launches.fetch_add(1, std::memory_order_relaxed);
    }
    thread_error.store(static_cast<int>(result), std::memory_order_relaxed);
  });

  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const uint64_t launches_before = launches.load();
  const auto seen = identity(driver);
  checkpoint.there_and_back(wishes.paused,
                            wishes.pairs ? seen : std::vector<CUcheckpointGpuPair>{});
  json answer = checkpoint.answer();
  answer["bytes"] = wishes.bytes;
  answer["managed"] = wishes.managed;
  answer["visible"] = texts(seen);
  answer["mapped"] = wishes.mapped;
  answer["uid"] = getuid();
  answer["launches_while_suspended"] = launches.load() - launches_before;
  answer["running_again"] = checkpoint.running();
  if (!checkpoint.running()) {
    // The other thread may hang in the driver for good: say what is known, and leave.
    std::printf("%s\n", answer.dump().c_str());
    std::fflush(stdout);
    _exit(0);
  }
  bool intact = true;
  for (size_t i = 0; i < pieces.size(); ++i) {
    for (const size_t at : {size_t{0}, pieces[i].second - 4}) {
      uint32_t back = 0;
      LULL_MUST(driver, cuMemcpyDtoH, static_cast<void*>(&back), pieces[i].first + at, sizeof back);
      intact = intact && back == 0xA5000000u + i;
    }
  }
  answer["memory_intact"] = intact;
  if (wishes.mapped) {
    CUmemGenericAllocationHandle handle = 0;
    CUmemAccessDesc access{};
    access.location = wanted.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUresult result = driver.cuMemCreate(&handle, kMapped, &wanted, 0);
    if (result == CUDA_SUCCESS) result = driver.cuMemMap(place, kMapped, 0, handle, 0);
    if (result == CUDA_SUCCESS) result = driver.cuMemSetAccess(place, kMapped, &access, 1);
    if (result == CUDA_SUCCESS) result = driver.cuMemsetD32(place, 7, kMapped / 4);
    answer["mapped_again_at_the_same_address"] =
        result == CUDA_SUCCESS ? json(true) : json(driver.name_of(result));
  }
  const uint64_t launches_then = launches.load();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  stop.store(true);
  caller.join();
  answer["other_thread_goes_on"] = launches.load() > launches_then && thread_error.load() == 0;
  return answer;
}

}  // namespace lull::probe
