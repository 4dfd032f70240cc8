#include <sys/mman.h>

#include <cstring>
#include <functional>

#include "tools/gpu_check/native/probes.h"

namespace lull::probe {

using nlohmann::json;

namespace {

// Host memory that the driver knows nothing of, populated.
struct Pageable {
  explicit Pageable(size_t wanted) : bytes(wanted) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw NotHere{"not enough host memory"};
    std::memset(data, 1, bytes);
  }
  ~Pageable() { munmap(data, bytes); }
  Pageable(const Pageable&) = delete;
  Pageable& operator=(const Pageable&) = delete;
  void* data;
  size_t bytes;
};

int repeats_for(uint64_t bytes) { return bytes <= (1 << 20) ? 100 : bytes <= (64 << 20) ? 20 : 5; }

json row(const char* kind, uint64_t bytes, const std::vector<double>& us) {
  const double middle = median(us);
  return {{"kind", kind},
          {"bytes", bytes},
          {"us_p50", middle},
          {"us_p90", quantile(us, 0.9)},
          {"gb_per_s", middle > 0 ? static_cast<double>(bytes) / middle / 1e3 : 0}};
}

}  // namespace

json probe_copies(Driver& driver, uint64_t most_bytes) {
  const Device device(driver);
  const CUstream stream = device.stream(), other = device.stream();
  const CUevent from = device.event(), to = device.event();
  const Pageable pageable(most_bytes);
  void *pinned = nullptr, *pinned_too = nullptr;
  LULL_MUST(driver, cuMemHostAlloc, &pinned, static_cast<size_t>(most_bytes), 0u);
  LULL_MUST(driver, cuMemHostAlloc, &pinned_too, static_cast<size_t>(most_bytes), 0u);
  std::memset(pinned, 1, most_bytes);
  std::memset(pinned_too, 1, most_bytes);
  CUdeviceptr memory = 0, second = 0;
  LULL_MUST(driver, cuMemAlloc, &memory, static_cast<size_t>(most_bytes));
  LULL_MUST(driver, cuMemAlloc, &second, static_cast<size_t>(most_bytes));

  json rows = json::array();
  const auto by_events = [&](const char* kind, uint64_t bytes, const std::function<void()>& copy) {
    std::vector<double> us;
    for (int i = -1; i < repeats_for(bytes); ++i) {
      LULL_MUST(driver, cuEventRecord, from, stream);
      copy();
      LULL_MUST(driver, cuEventRecord, to, stream);
      LULL_MUST(driver, cuStreamSynchronize, stream);
      if (i >= 0) us.push_back(device.elapsed_us(from, to));
    }
    rows.push_back(row(kind, bytes, us));
  };
  const auto by_clock = [&](const char* kind, uint64_t bytes, const std::function<void()>& copy) {
    std::vector<double> us;
    for (int i = -1; i < repeats_for(bytes); ++i) {
      const uint64_t start = device.now_ns();
      copy();
      if (i >= 0) us.push_back(static_cast<double>(device.now_ns() - start) / 1e3);
    }
    rows.push_back(row(kind, bytes, us));
  };
  for (const uint64_t wanted :
       {uint64_t{4096}, uint64_t{1} << 20, uint64_t{64} << 20, most_bytes}) {
    const size_t bytes = std::min(wanted, most_bytes);
    by_events("h2d_pinned", bytes,
              [&] { LULL_MUST(driver, cuMemcpyHtoDAsync, memory, pinned, bytes, stream); });
    by_events("d2h_pinned", bytes,
              [&] { LULL_MUST(driver, cuMemcpyDtoHAsync, pinned, memory, bytes, stream); });
    by_events("d2d", bytes,
              [&] { LULL_MUST(driver, cuMemcpyDtoDAsync, second, memory, bytes, stream); });
    by_events("memset", bytes, [&] {
      LULL_MUST(driver, cuMemsetD8Async, memory, static_cast<unsigned char>(3), bytes, stream);
    });
    by_clock("h2d_pageable", bytes,
             [&] { LULL_MUST(driver, cuMemcpyHtoD, memory, pageable.data, bytes); });
    by_clock("d2h_pageable", bytes,
             [&] { LULL_MUST(driver, cuMemcpyDtoH, pageable.data, memory, bytes); });
    // Both ways at once: until both are done; the speed is each one's.
    by_clock("both_ways_pinned", bytes, [&] {
      LULL_MUST(driver, cuMemcpyHtoDAsync, memory, pinned, bytes, stream);
      LULL_MUST(driver, cuMemcpyDtoHAsync, pinned_too, second, bytes, other);
      LULL_MUST(driver, cuStreamSynchronize, stream);
      LULL_MUST(driver, cuStreamSynchronize, other);
    });
    if (bytes == most_bytes) break;
  }
  LULL_MUST(driver, cuMemFree, memory);
  LULL_MUST(driver, cuMemFree, second);
  LULL_MUST(driver, cuMemFreeHost, pinned);
  LULL_MUST(driver, cuMemFreeHost, pinned_too);
  return {{"rows", rows}};
}

}  // namespace lull::probe
