#include "tools/gpu_check/native/load.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "tools/gpu_check/native/load_kernels.h"
#include "tools/gpu_check/native/orders.h"
#include "tools/gpu_check/native/probes.h"

namespace lull::probe {

using nlohmann::json;

namespace {

constexpr int kFirstTensorMajor = 8;
constexpr uint32_t kUnrolled = 4;     // elements a thread moves in one loop of stream and reread
constexpr size_t kElementBytes = 16;  // of stream and reread
// Copied from and to, each: several times any second-level cache (50 MiB on an H100).
constexpr size_t kStreamBytes = 256 << 20;
// What `cache` reads again and again: a quarter of the second-level cache, so that two fit.
constexpr size_t kCacheShare = 4;
constexpr size_t kLeastCacheBytes = 1 << 20;  // where the device does not say how much it has
constexpr int kCalibrations = 3;              // each nearer to the length that is wanted
constexpr uint64_t kMostRounds = 1 << 20;     // the sums stay exact in a float

CUmodule loaded(Driver& driver, const std::string& ptx) {
  CUmodule module = nullptr;
  LULL_MUST(driver, cuModuleLoadData, &module, static_cast<const void*>(ptx.c_str()));
  return module;
}

CUfunction function_of(Driver& driver, CUmodule module, const char* name) {
  CUfunction function = nullptr;
  LULL_MUST(driver, cuModuleGetFunction, &function, module, name);
  return function;
}

float as_float(uint32_t word) {
  float value = 0;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

}  // namespace

LoadKernels::LoadKernels(const Device& on) : device(on) {
  Driver& driver = device.driver;
  sm_count = static_cast<uint32_t>(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  threads_per_sm =
      static_cast<uint32_t>(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR));
  const CUmodule module = loaded(driver, load_ptx());
  held = function_of(driver, module, "held");
  stream = function_of(driver, module, "stream");
  reread = function_of(driver, module, "reread");
  tensor_cores = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= kFirstTensorMajor;
  multiply = tensor_cores ? function_of(driver, loaded(driver, tensor_ptx()), "multiply")
                          : function_of(driver, module, "multiply_add");
}

int LoadKernels::attribute(CUdevice_attribute which) const {
  int value = 0;
  LULL_MUST(device.driver, cuDeviceGetAttribute, &value, which, device.device);
  return value;
}

uint32_t LoadKernels::blocks_per_sm(CUfunction function, uint32_t threads) const {
  int blocks = 0;
  LULL_MUST(device.driver, cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, function,
            static_cast<int>(threads), size_t{0});
  return std::max(1, blocks);
}

Load::Load(const Device& device) : device_(device), kernels_(device), stream_(device.stream()) {
  for (CUevent& event : done_event_) event = device.event(CU_EVENT_BLOCKING_SYNC);
  from_ = device.event();
  to_ = device.event();
}

void Load::launch() {
  std::vector<void*> arguments;
  for (uint64_t& value : arguments_) arguments.push_back(&value);
  LULL_MUST(device_.driver, cuLaunchKernel, function_, grid_, 1u, 1u, threads_, 1u, 1u, 0u, stream_,
            arguments.data(), static_cast<void**>(nullptr));
}

double Load::timed_us() {
  LULL_MUST(device_.driver, cuEventRecord, from_, stream_);
  launch();
  LULL_MUST(device_.driver, cuEventRecord, to_, stream_);
  LULL_MUST(device_.driver, cuStreamSynchronize, stream_);
  return device_.elapsed_us(from_, to_);
}

void Load::stop() {
  if (!running()) return;
  LULL_MUST(device_.driver, cuStreamSynchronize, stream_);
  function_ = nullptr;
}

void Load::keep_busy() {
  while (launched_ < done_ + kAhead) {
    launch();
    LULL_MUST(device_.driver, cuEventRecord, done_event_[launched_ % kAhead], stream_);
    ++launched_;
  }
  LULL_MUST(device_.driver, cuEventSynchronize, done_event_[done_ % kAhead]);
  ++done_;
}

json Load::mark() const { return {{"done", done_}, {"now_ns", device_.now_ns()}}; }

CUdeviceptr Load::memory(size_t bytes, uint32_t word) {
  CUdeviceptr made = 0;
  LULL_MUST(device_.driver, cuMemAlloc, &made, bytes);
  LULL_MUST(device_.driver, cuMemsetD32, made, word, bytes / 4);
  LULL_MUST(device_.driver, cuCtxSynchronize);  // the load's stream does not wait for it
  return made;
}

std::vector<uint32_t> Load::first_and_last(CUdeviceptr from, size_t words) const {
  std::vector<uint32_t> found(2);
  LULL_MUST(device_.driver, cuMemcpyDtoH, static_cast<void*>(&found[0]), from, size_t{4});
  LULL_MUST(device_.driver, cuMemcpyDtoH, static_cast<void*>(&found[1]), from + 4 * (words - 1),
            size_t{4});
  return found;
}

json Load::blocks(double kernel_us, double block_us) {
  stop();
  function_ = kernels_.held;
  // Two blocks fill a multiprocessor: nothing finds a place beside them.
  threads_ = std::min(1024u, kernels_.threads_per_sm / 2);
  const uint32_t per_sm = kernels_.blocks_per_sm(function_, threads_);
  const double each_us = block_us > 0 ? block_us : kernel_us;
  const auto waves = static_cast<uint32_t>(std::max(1.0, std::round(kernel_us / each_us)));
  grid_ = waves * per_sm * kernels_.sm_count;
  arguments_ = {static_cast<uint64_t>(each_us * 1e3), static_cast<uint64_t>(kernel_us * 1e3)};
  launched_ = done_ = 0;
  timed_us();
  return {{"running", "blocks"},
          {"grid", grid_},
          {"threads", threads_},
          {"waves", waves},
          {"sm_count", kernels_.sm_count},
          {"fills_the_device", per_sm * threads_ == kernels_.threads_per_sm},
          {"kernel_us", timed_us()}};
}

json Load::begin(const char* name, size_t rounds, double kernel_us) {
  grid_ = kernels_.sm_count;
  threads_ = kLoadThreads;
  launched_ = done_ = 0;
  timed_us();  // the first also pays for what the driver does once
  const auto [known, fresh] = rounds_.try_emplace(name, arguments_[rounds]);
  for (int i = 0; i < kCalibrations && fresh && !device_.driver.simulated; ++i) {
    const double share = kernel_us / std::max(1.0, timed_us());
    const auto wanted = static_cast<uint64_t>(static_cast<double>(known->second) * share);
    known->second = arguments_[rounds] = std::clamp<uint64_t>(wanted, 1, kMostRounds);
  }
  arguments_[rounds] = known->second;
  const double took_us = timed_us();
  return {{"running", name},
          {"grid", grid_},
          {"threads", threads_},
          {"sm_count", kernels_.sm_count},
          {"kernel_us", took_us},
          {"rounds", arguments_[rounds]},
          {"checked", !device_.driver.simulated}};
}

json Load::compute(double kernel_us) {
  stop();
  const size_t words = size_t{kernels_.sm_count} * kLoadThreads;
  if (sums_ == 0) sums_ = memory(words * 4, 0);
  function_ = kernels_.multiply;
  arguments_ = {sums_, 16, static_cast<uint64_t>(kernel_us * 1e3)};
  json answer = begin("compute", 1, kernel_us);
  answer["tensor_cores"] = kernels_.tensor_cores;
  const auto rounds = static_cast<float>(arguments_[1]);
  for (const uint32_t word : first_and_last(sums_, words)) {
    if (device_.driver.simulated) break;
    if (as_float(word) != rounds * (kernels_.tensor_cores ? 512.0f : 16.0f)) {
      throw std::runtime_error("the matrix multiplication gave " + std::to_string(as_float(word)) +
                               " after " + std::to_string(arguments_[1]) + " rounds");
    }
  }
  return answer;
}

json Load::bandwidth(double kernel_us) {
  stop();
  const size_t loop_bytes = size_t{kernels_.sm_count} * kLoadThreads * kUnrolled * kElementBytes;
  // The simulated GPU reads nothing of it, but keeps it in the host's memory.
  const size_t wanted = device_.driver.simulated ? 0 : kStreamBytes;
  const uint64_t loops = std::max<uint64_t>(1, wanted / loop_bytes);
  const size_t bytes = loops * loop_bytes;
  constexpr uint32_t kWord = 0x5bd1e995;
  if (source_ == 0) {
    source_ = memory(bytes, kWord);
    target_ = memory(bytes, 0);
  }
  function_ = kernels_.stream;
  arguments_ = {source_, target_, loops, 1, static_cast<uint64_t>(kernel_us * 1e3)};
  json answer = begin("bandwidth", 3, kernel_us);
  answer["bytes_a_kernel"] = 2 * bytes * arguments_[3];
  for (const uint32_t word : first_and_last(target_, bytes / 4)) {
    if (!device_.driver.simulated && word != kWord) {
      throw std::runtime_error("the copy did not arrive");
    }
  }
  return answer;
}

json Load::cache(double kernel_us) {
  stop();
  const size_t words = size_t{kernels_.sm_count} * kLoadThreads;
  const size_t loop_bytes = words * kUnrolled * kElementBytes;
  const size_t wanted = std::max(
      kLeastCacheBytes,
      static_cast<size_t>(kernels_.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)) / kCacheShare);
  const uint64_t loops = std::max<uint64_t>(1, wanted / loop_bytes);
  if (kept_ == 0) kept_ = memory(loops * loop_bytes, 1);
  if (sums_ == 0) sums_ = memory(words * 4, 0);
  function_ = kernels_.reread;
  arguments_ = {kept_, sums_, loops, 1, static_cast<uint64_t>(kernel_us * 1e3)};
  json answer = begin("cache", 3, kernel_us);
  answer["bytes"] = loops * loop_bytes;
  answer["bytes_a_kernel"] = loops * loop_bytes * arguments_[3];
  const uint64_t sum = kUnrolled * (kElementBytes / 4) * loops * arguments_[3];
  for (const uint32_t word : first_and_last(sums_, words)) {
    if (!device_.driver.simulated && word != static_cast<uint32_t>(sum)) {
      throw std::runtime_error("the words read gave " + std::to_string(word) + ", not " +
                               std::to_string(sum));
    }
  }
  return answer;
}

json probe_load(Driver& driver) {
  const Device device(driver);
  Load load(device);
  Orders orders;
  answer({{"ready", static_cast<int>(getpid())}});
  uint64_t obeyed = 0;
  for (;;) {
    if (load.running()) load.keep_busy();
    if (load.running() && !orders.waiting()) continue;
    const auto order = orders.next();
    if (!order) break;
    std::istringstream words(*order);
    std::string what;
    double kernel_us = 0, block_us = 0;
    words >> what >> kernel_us >> block_us;
    if (what == "idle") {
      load.stop();
      answer(load.mark());
    } else if (what == "mark") {
      answer(load.mark());
    } else if (kernel_us < 1 || kernel_us > 1e6 || block_us < 0) {
      throw std::runtime_error("order '" + *order +
                               "': blocks KERNEL_US BLOCK_US, compute, bandwidth or cache "
                               "KERNEL_US (1 to 1e6), mark or idle would be right");
    } else if (what == "blocks") {
      answer(load.blocks(kernel_us, block_us));
    } else if (what == "compute") {
      answer(load.compute(kernel_us));
    } else if (what == "bandwidth") {
      answer(load.bandwidth(kernel_us));
    } else if (what == "cache") {
      answer(load.cache(kernel_us));
    } else {
      throw std::runtime_error("order '" + *order + "' is not known");
    }
    ++obeyed;
  }
  load.stop();
  return {{"obeyed", obeyed}};
}

}  // namespace lull::probe
