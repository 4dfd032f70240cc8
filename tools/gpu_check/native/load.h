// One kernel again and again, as a busy program keeps a device: which one, how large, and how many
// are done. Used by `load` (orders on stdin) and by what needs its kernels.
#pragma once

#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "tools/gpu_check/native/driver.h"

namespace lull::probe {

// The kernels of load_kernels.h on this device, and what a launch of them needs to know.
struct LoadKernels {
  explicit LoadKernels(const Device& device);

  int attribute(CUdevice_attribute which) const;
  // Blocks of a kernel that one multiprocessor holds at once.
  uint32_t blocks_per_sm(CUfunction function, uint32_t threads) const;

  const Device& device;
  CUfunction held = nullptr;
  CUfunction multiply = nullptr;  // on tensor cores where there are some
  CUfunction stream = nullptr;
  CUfunction reread = nullptr;
  bool tensor_cores = false;
  uint32_t sm_count = 0;  // as this process sees it: an MPS client with a cap sees fewer
  uint32_t threads_per_sm = 0;
};

class Load {
 public:
  explicit Load(const Device& device);

  // Begins with another kernel and says what it is: its grid, `kernel_us`, how long it takes
  // with the device to itself (to be asked while nobody else uses it), and what it must give was
  // given. Throws std::runtime_error when a kernel computes something else than it should.
  // How many rounds make kernel_us is found out the first time, and kept: then the device may
  // be shared.
  // `held` blocks of block_us, as many as make kernel_us; 0: one wave of blocks of kernel_us.
  nlohmann::json blocks(double kernel_us, double block_us);
  // Matrix multiplications of constant operands; a copy of more than any cache holds; reading what
  // the second-level cache holds. Each fills half of every multiprocessor, for about kernel_us.
  nlohmann::json compute(double kernel_us);
  nlohmann::json bandwidth(double kernel_us);
  nlohmann::json cache(double kernel_us);
  // Waits for what is on the device, and stops.
  void stop();

  bool running() const { return function_ != nullptr; }
  // Launches until two are on the device; waits for the older one if there are.
  void keep_busy();
  // {"done": kernels since it began, "now_ns": time}
  nlohmann::json mark() const;

 private:
  static constexpr size_t kAhead = 2;

  void launch();
  // One launch, from event to event.
  double timed_us();
  // As many rounds as take about kernel_us; arguments_[rounds] says how many.
  nlohmann::json begin(const char* name, size_t rounds, double kernel_us);
  CUdeviceptr memory(size_t bytes, uint32_t word);
  std::vector<uint32_t> first_and_last(CUdeviceptr from, size_t words) const;

  const Device& device_;
  LoadKernels kernels_;
  CUstream stream_ = nullptr;
  std::array<CUevent, kAhead> done_event_{};
  CUevent from_ = nullptr, to_ = nullptr;

  CUfunction function_ = nullptr;
  uint32_t grid_ = 0, threads_ = 0;
  std::vector<uint64_t> arguments_;
  std::map<std::string, uint64_t> rounds_;  // by kernel, once found out
  uint64_t launched_ = 0, done_ = 0;
  CUdeviceptr source_ = 0, target_ = 0, kept_ = 0, sums_ = 0;  // made when first needed
};

}  // namespace lull::probe
