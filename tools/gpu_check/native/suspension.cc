// A process's device memory out to the host and back to the same addresses, chunk by chunk:
// populate, pin and copy side by side; alone, and with the driver's checkpoint of what is left in
// between.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>

#include "tools/gpu_check/native/probes.h"
#include "tools/gpu_check/native/self_checkpoint.h"

namespace lull::probe {

using nlohmann::json;

namespace {

constexpr size_t kStride = 4096;  // what is compared: a word in so many bytes
constexpr int kLag = 2;           // chunks that are being copied before the first is released

// Host memory that the driver can copy to at full speed once a chunk is populated and pinned.
class Arena {
 public:
  Arena(Driver& driver, size_t bytes, size_t chunk_bytes)
      : driver_(driver), bytes_(bytes), chunk_bytes_(chunk_bytes), pinned_(bytes / chunk_bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw NotHere{"not enough host memory"};
    madvise(data_, bytes, MADV_HUGEPAGE);  // pins twice as fast where it is granted
  }
  ~Arena() {
    forget();
    munmap(data_, bytes_);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void* chunk(size_t n) const { return static_cast<char*>(data_) + n * chunk_bytes_; }

  // Any thread with the context current; each chunk once.
  CUresult prepare(size_t n) {
    if (pinned_[n].load(std::memory_order_relaxed)) return CUDA_SUCCESS;
    std::memset(chunk(n), 0, chunk_bytes_);
    const CUresult result =
        driver_.cuMemHostRegister(chunk(n), chunk_bytes_, CU_MEMHOSTREGISTER_PORTABLE);
    if (result == CUDA_SUCCESS) pinned_[n].store(true, std::memory_order_relaxed);
    return result;
  }

  // Neither pinned nor populated afterwards.
  void forget() {
    for (size_t n = 0; n < pinned_.size(); ++n) {
      if (pinned_[n].exchange(false)) driver_.cuMemHostUnregister(chunk(n));
    }
    madvise(data_, bytes_, MADV_DONTNEED);
  }

 private:
  Driver& driver_;
  size_t bytes_, chunk_bytes_;
  std::vector<std::atomic<bool>> pinned_;
  void* data_;
};

// Device memory at addresses that stay, mapped chunk by chunk.
class Mapped {
 public:
  Mapped(const Device& device, size_t bytes, size_t chunk_bytes)
      : driver_(device.driver), chunk_bytes_(chunk_bytes), handles_(bytes / chunk_bytes) {
    wanted_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted_.location.id = device.device;
    access_.location = wanted_.location;
    access_.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    LULL_MUST(driver_, cuMemAddressReserve, &base_, bytes, size_t{0}, CUdeviceptr{0}, 0ULL);
    for (size_t n = 0; n < handles_.size(); ++n) map(n);
  }

  size_t chunks() const { return handles_.size(); }
  CUdeviceptr chunk(size_t n) const { return base_ + n * chunk_bytes_; }

  void map(size_t n) {
    LULL_MUST(driver_, cuMemCreate, &handles_[n], chunk_bytes_,
              static_cast<const CUmemAllocationProp*>(&wanted_), 0ULL);
    LULL_MUST(driver_, cuMemMap, chunk(n), chunk_bytes_, size_t{0}, handles_[n], 0ULL);
    LULL_MUST(driver_, cuMemSetAccess, chunk(n), chunk_bytes_,
              static_cast<const CUmemAccessDesc*>(&access_), size_t{1});
  }
  void unmap(size_t n) {
    LULL_MUST(driver_, cuMemUnmap, chunk(n), chunk_bytes_);
    LULL_MUST(driver_, cuMemRelease, handles_[n]);
  }

 private:
  Driver& driver_;
  size_t chunk_bytes_;
  std::vector<CUmemGenericAllocationHandle> handles_;
  CUmemAllocationProp wanted_{};
  CUmemAccessDesc access_{};
  CUdeviceptr base_ = 0;
};

class Mover {
 public:
  Mover(const Device& device, const SuspendWishes& wishes)
      : device_(device),
        driver_(device.driver),
        wishes_(wishes),
        memory_(device, wishes.bytes, wishes.chunk_bytes),
        arena_(driver_, wishes.bytes, wishes.chunk_bytes),
        stream_(device.stream()) {
    for (size_t n = 0; n < memory_.chunks(); ++n) {
      copied_.push_back(device.event(CU_EVENT_DISABLE_TIMING));
      LULL_MUST(driver_, cuMemsetD32, memory_.chunk(n), word(n), wishes.chunk_bytes / 4);
    }
    LULL_MUST(driver_, cuCtxSynchronize);
  }

  void prepare_all() {
    for (size_t n = 0; n < memory_.chunks(); ++n) must_prepare(arena_.prepare(n));
  }
  void forget_arena() { arena_.forget(); }

  // ms until everything was on the host and the device's memory free again. What is not prepared
  // is populated and pinned meanwhile.
  double out() {
    const uint64_t start = device_.now_ns();
    std::vector<std::atomic<int>> ready(memory_.chunks());  // 0: not yet, else CUresult + 1
    std::atomic<size_t> next{0};
    {
      std::vector<std::jthread> workers;
      for (int n = 0; n < wishes_.threads; ++n) {
        workers.emplace_back([&] {
          driver_.cuCtxSetCurrent(device_.context);
          for (size_t at = next++; at < ready.size(); at = next++) {
            ready[at].store(static_cast<int>(arena_.prepare(at)) + 1, std::memory_order_release);
            ready[at].notify_one();
          }
        });
      }
      for (size_t n = 0; n < ready.size(); ++n) {
        ready[n].wait(0, std::memory_order_acquire);
        must_prepare(static_cast<CUresult>(ready[n].load(std::memory_order_acquire) - 1));
        LULL_MUST(driver_, cuMemcpyDtoHAsync, arena_.chunk(n), memory_.chunk(n),
                  static_cast<size_t>(wishes_.chunk_bytes), stream_);
        LULL_MUST(driver_, cuEventRecord, copied_[n], stream_);
        if (n >= kLag) release(n - kLag);
      }
      for (size_t n = ready.size() < kLag ? 0 : ready.size() - kLag; n < ready.size(); ++n) {
        release(n);
      }
    }
    return ms_since(start);
  }

  // ms until everything was at its addresses again.
  double back() {
    const uint64_t start = device_.now_ns();
    for (size_t n = 0; n < memory_.chunks(); ++n) {
      memory_.map(n);
      LULL_MUST(driver_, cuMemcpyHtoDAsync, memory_.chunk(n),
                static_cast<const void*>(arena_.chunk(n)), static_cast<size_t>(wishes_.chunk_bytes),
                stream_);
    }
    LULL_MUST(driver_, cuStreamSynchronize, stream_);
    return ms_since(start);
  }

  // The plain copies, all of it prepared and mapped: what the other two are held against.
  std::pair<double, double> copies() {
    const auto each = [&](auto&& copy) {
      const uint64_t start = device_.now_ns();
      for (size_t n = 0; n < memory_.chunks(); ++n) copy(n);
      LULL_MUST(driver_, cuStreamSynchronize, stream_);
      return ms_since(start);
    };
    const double out_ms = each([&](size_t n) {
      LULL_MUST(driver_, cuMemcpyDtoHAsync, arena_.chunk(n), memory_.chunk(n),
                static_cast<size_t>(wishes_.chunk_bytes), stream_);
    });
    const double back_ms = each([&](size_t n) {
      LULL_MUST(driver_, cuMemcpyHtoDAsync, memory_.chunk(n),
                static_cast<const void*>(arena_.chunk(n)), static_cast<size_t>(wishes_.chunk_bytes),
                stream_);
    });
    return {out_ms, back_ms};
  }

  // Whether the device's memory holds what was put there: read into an arena that held something
  // else.
  bool intact() {
    prepare_all();
    for (size_t n = 0; n < memory_.chunks(); ++n) {
      auto* bytes = static_cast<unsigned char*>(arena_.chunk(n));
      for (size_t at = 0; at < wishes_.chunk_bytes; at += kStride) std::memset(bytes + at, 0, 4);
      LULL_MUST(driver_, cuMemcpyDtoHAsync, arena_.chunk(n), memory_.chunk(n),
                static_cast<size_t>(wishes_.chunk_bytes), stream_);
    }
    LULL_MUST(driver_, cuStreamSynchronize, stream_);
    for (size_t n = 0; n < memory_.chunks(); ++n) {
      const auto* bytes = static_cast<const unsigned char*>(arena_.chunk(n));
      for (size_t at = 0; at < wishes_.chunk_bytes; at += kStride) {
        uint32_t found = 0;
        std::memcpy(&found, bytes + at, sizeof found);
        if (found != word(n)) return false;
      }
    }
    return true;
  }

  uint64_t free_bytes() const {
    size_t free_now = 0, total = 0;
    LULL_MUST(driver_, cuMemGetInfo, &free_now, &total);
    return free_now;
  }

 private:
  static unsigned word(size_t chunk) { return 0xA5000000u + static_cast<unsigned>(chunk); }

  void must_prepare(CUresult result) const {
    if (result != CUDA_SUCCESS) throw Refused{"cuMemHostRegister", result};
  }
  void release(size_t n) {
    LULL_MUST(driver_, cuEventSynchronize, copied_[n]);
    memory_.unmap(n);
  }
  double ms_since(uint64_t start) const {
    return static_cast<double>(device_.now_ns() - start) / 1e6;
  }

  const Device& device_;
  Driver& driver_;
  const SuspendWishes& wishes_;
  Mapped memory_;
  Arena arena_;
  CUstream stream_;
  std::vector<CUevent> copied_;
};

// What the driver's checkpoint took and answered while the memory is out. Where the process may no
// longer call CUDA, prints what is known and ends it: any further call may hang for good.
json checkpoint_meanwhile(Driver& driver, const SuspendWishes& wishes, json so_far) {
  try {
    SelfCheckpoint checkpoint(driver);
    checkpoint.there_and_back(wishes.paused);
    json answer = checkpoint.answer();
    answer["running_again"] = checkpoint.running();
    if (checkpoint.running()) return answer;
    so_far["checkpoint"] = std::move(answer);
    std::printf("%s\n", so_far.dump().c_str());
    std::fflush(stdout);
    _exit(0);
  } catch (const Refused& refused) {
    return {{"refused", refused.call + ": " + driver.name_of(refused.result)}};
  } catch (const NotHere& why) {
    return {{"refused", why.reason}};
  }
}

}  // namespace

json probe_suspend(Driver& driver, const SuspendWishes& wanted) {
  const Device device(driver);
  CUmemAllocationProp property{};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  property.location.id = device.device;
  size_t granularity = 0;
  LULL_MUST(driver, cuMemGetAllocationGranularity, &granularity,
            static_cast<const CUmemAllocationProp*>(&property), CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  SuspendWishes wishes = wanted;
  const auto whole = [](uint64_t bytes, uint64_t of) { return (bytes + of - 1) / of * of; };
  wishes.chunk_bytes = whole(std::min(wishes.chunk_bytes, wishes.bytes), granularity);
  wishes.bytes = whole(wishes.bytes, wishes.chunk_bytes);
  Mover mover(device, wishes);

  json answer = {{"bytes", wishes.bytes},
                 {"chunk_bytes", wishes.chunk_bytes},
                 {"threads", wishes.threads},
                 {"prepared", wishes.prepared}};
  std::vector<double> out, back;
  bool intact = true;
  uint64_t freed = UINT64_MAX;
  for (int round = 0; round < wishes.rounds; ++round) {
    if (wishes.prepared) {
      mover.prepare_all();
    } else {
      mover.forget_arena();
    }
    const uint64_t before = mover.free_bytes();
    out.push_back(mover.out());
    const uint64_t after = mover.free_bytes();
    freed = std::min(freed, after - std::min(after, before));
    if (wishes.checkpoint && round + 1 == wishes.rounds) {
      answer["checkpoint"] = checkpoint_meanwhile(driver, wishes, answer);
    }
    back.push_back(mover.back());
    intact = mover.intact() && intact;
  }
  std::vector<double> copy_out, copy_back;
  for (int round = 0; round < wishes.rounds; ++round) {
    const auto [out_ms, back_ms] = mover.copies();
    copy_out.push_back(out_ms);
    copy_back.push_back(back_ms);
  }
  answer["out_ms"] = median(out);
  answer["back_ms"] = median(back);
  answer["copy_out_ms"] = median(copy_out);
  answer["copy_back_ms"] = median(copy_back);
  answer["freed_bytes"] = freed;
  answer["intact"] = intact;
  return answer;
}

}  // namespace lull::probe
