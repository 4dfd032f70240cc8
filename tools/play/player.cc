#include "tools/play/player.h"

#include <errno.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "tools/play/driver.h"
#include "tools/play/lateness.h"
#include "tools/play/spin_kernels.h"
#include "tools/play/timeline.h"

namespace lull::play {
namespace {

constexpr uint64_t kMaxBufferBytes = 256ULL << 20;
constexpr uint32_t kMaxDynamicSharedBytes = 48 * 1024;
// A thread that sleeps is woken tens of microseconds late: shorter waits spin, and where device
// time is real time the end of a longer one does too.
constexpr uint64_t kSpinNs = 60'000;
constexpr double kUnstretched = 2.0;  // slow motion below this: waits end spinning

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// One operation with all that its call needs, made beforehand.
struct PreparedOp {
  Op op;
  CUfunction function = nullptr;
  Extent grid, block;
  uint32_t shared_bytes = 0;
  size_t bytes = 0;  // what is really moved
  uint64_t spin_ns = 0, ticket = 0;
  CUdeviceptr start_word = 0;
  void* parameters[3] = {};
};

struct Player::State {
  Driver driver;
  channel::ModelClock clock;
  PlayOptions options;
  std::string device_name, note;
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  std::vector<CUstream> streams;
  std::vector<CUevent> events;
  std::vector<uint64_t> tickets;  // of each stream
  CUdeviceptr start_words = 0, buffer = 0;
  size_t half_bytes = 0;  // where the source of a copy on the device begins
  void* pinned = nullptr;
  std::vector<char> pageable;
  std::vector<PreparedOp> ops;
  uint64_t pause_after_ns = 0;
  bool first_iteration = true;
  HostTimeline timeline;
  Lateness iteration_late, late;
  uint64_t random = 0;

  std::expected<void, std::string> prepare(const Workload& workload);
  std::expected<void, std::string> allocate(const Workload& workload);
  bool wait_until(uint64_t deadline_ns, const std::atomic<bool>& stop);
  CUresult call(PreparedOp& prepared);
  uint64_t pause(uint64_t pause_ns);
};

#define LULL_TRY(name, ...)                                                                  \
  if (const CUresult result_ = driver.name(__VA_ARGS__); result_ != CUDA_SUCCESS) {          \
    return std::unexpected(driver.describe(#name, result_) + ": the device cannot play it"); \
  }

std::expected<void, std::string> Player::State::allocate(const Workload& workload) {
  uint64_t host_bytes = 0, pageable_bytes = 0, device_bytes = 1, on_device_bytes = 0;
  bool cut = false;
  for (const Op& op : workload.ops) {
    const uint64_t bytes = std::min(op.bytes, kMaxBufferBytes);
    cut |= op.bytes > kMaxBufferBytes;
    if (op.is_copy() || op.kind == OpKind::Memset) device_bytes = std::max(device_bytes, bytes);
    if (op.kind == OpKind::CopyOnDevice) on_device_bytes = std::max(on_device_bytes, bytes);
    if (op.kind == OpKind::CopyToDevice || op.kind == OpKind::CopyToHost) {
      uint64_t& host = op.pageable ? pageable_bytes : host_bytes;
      host = std::max(host, bytes);
    }
  }
  if (cut) note = "copies longer than 256 MiB are played as 256 MiB";
  half_bytes = (std::max(device_bytes, on_device_bytes) + 255) / 256 * 256;
  LULL_TRY(cuMemAlloc, &buffer, half_bytes + std::max<uint64_t>(on_device_bytes, 1));
  LULL_TRY(cuMemAlloc, &start_words, workload.streams * sizeof(uint64_t));
  LULL_TRY(cuMemsetD8Async, start_words, 0, workload.streams * sizeof(uint64_t), streams[0]);
  LULL_TRY(cuStreamSynchronize, streams[0]);
  if (host_bytes > 0) {
    LULL_TRY(cuMemHostAlloc, &pinned, host_bytes, 0);
    std::memset(pinned, 0, host_bytes);
  }
  pageable.resize(pageable_bytes);
  return {};
}

std::expected<void, std::string> Player::State::prepare(const Workload& workload) {
  int count = 0;
  LULL_TRY(cuDeviceGetCount, &count);
  if (options.device < 0 || options.device >= count) {
    return std::unexpected("there is no device " + std::to_string(options.device) +
                           ": this machine has " + std::to_string(count) + ", counted from 0");
  }
  LULL_TRY(cuDeviceGet, &device, options.device);
  char name[256] = {};
  LULL_TRY(cuDeviceGetName, name, sizeof(name), device);
  device_name = name;
  LULL_TRY(cuDevicePrimaryCtxRetain, &context, device);
  LULL_TRY(cuCtxSetCurrent, context);
  auto found_clock = driver.clock();
  if (!found_clock) return std::unexpected(found_clock.error());
  clock = *found_clock;

  streams.resize(workload.streams);
  tickets.resize(workload.streams);
  for (auto& stream : streams) LULL_TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  events.resize(workload.events);
  for (auto& event : events) LULL_TRY(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  if (auto done = allocate(workload); !done) return done;

  const auto names = entry_names(workload);
  std::vector<CUfunction> functions(names.size());
  if (!names.empty()) {
    const std::string ptx = spin_module_ptx(names);
    LULL_TRY(cuModuleLoadData, &module, ptx.c_str());
    for (size_t i = 0; i < names.size(); ++i) {
      LULL_TRY(cuModuleGetFunction, &functions[i], module, names[i].c_str());
    }
  }

  ops.resize(workload.ops.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    PreparedOp& prepared = ops[i];
    const Op& op = prepared.op = workload.ops[i];
    prepared.bytes = std::min<uint64_t>(op.bytes, kMaxBufferBytes);
    if (op.kind != OpKind::Launch) continue;
    const Kernel& kernel = workload.kernels[op.kernel];
    prepared.function = functions[op.kernel];
    prepared.grid = kernel.grid;
    prepared.block = kernel.block;
    prepared.shared_bytes = std::min(kernel.shared_bytes, kMaxDynamicSharedBytes);
    prepared.spin_ns = op.duration_ns;
    prepared.start_word = start_words + op.stream * sizeof(uint64_t);
    prepared.parameters[0] = &prepared.spin_ns;
    prepared.parameters[1] = &prepared.start_word;
    prepared.parameters[2] = &prepared.ticket;
  }
  pause_after_ns = workload.pause_after_ns;
  random = options.seed;
  prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
  return {};
}
#undef LULL_TRY

// True when the deadline lay ahead, that is, when this call could be late.
bool Player::State::wait_until(uint64_t deadline_ns, const std::atomic<bool>& stop) {
  const uint64_t target = clock.to_monotonic_ns(deadline_ns);
  uint64_t now = channel::monotonic_ns();
  if (now >= target) return false;
  const uint64_t margin = clock.slow_motion < kUnstretched ? kSpinNs : 0;
  if (target - now > kSpinNs + margin) {
    const uint64_t wake = target - margin;
    const timespec at{static_cast<time_t>(wake / 1'000'000'000),
                      static_cast<long>(wake % 1'000'000'000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
      if (stop.load(std::memory_order_relaxed)) return false;
    }
  }
  while (channel::monotonic_ns() < target) pause_briefly();
  return true;
}

uint64_t Player::State::pause(uint64_t pause_ns) {
  if (options.greedy) return 0;
  if (options.jitter_ns == 0) return pause_ns;
  random += 0x9e3779b97f4a7c15ULL;  // splitmix64
  uint64_t mixed = random;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
  return pause_ns + (mixed ^ (mixed >> 31)) % (options.jitter_ns + 1);
}

CUresult Player::State::call(PreparedOp& p) {
  const Op& op = p.op;
  CUstream stream = streams[op.stream];
  char* const host = op.pageable ? pageable.data() : static_cast<char*>(pinned);
  switch (op.kind) {
    case OpKind::Launch:
      p.ticket = ++tickets[op.stream];
      return driver.cuLaunchKernel(p.function, p.grid.x, p.grid.y, p.grid.z, p.block.x, p.block.y,
                                   p.block.z, p.shared_bytes, stream, p.parameters, nullptr);
    case OpKind::CopyToDevice:
      return driver.cuMemcpyHtoDAsync(buffer, host, p.bytes, stream);
    case OpKind::CopyToHost:
      return driver.cuMemcpyDtoHAsync(host, buffer, p.bytes, stream);
    case OpKind::CopyOnDevice:
      return driver.cuMemcpyDtoDAsync(buffer, buffer + half_bytes, p.bytes, stream);
    case OpKind::Memset:
      return driver.cuMemsetD8Async(buffer, 0, p.bytes, stream);
    case OpKind::StreamSync:
      return driver.cuStreamSynchronize(stream);
    case OpKind::DeviceSync:
      return driver.cuCtxSynchronize();
    case OpKind::EventRecord:
      return driver.cuEventRecord(events[op.event], stream);
    case OpKind::EventWait:
      return driver.cuStreamWaitEvent(stream, events[op.event], 0);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

Player::Player(std::unique_ptr<State> state) : state_(std::move(state)) {}

Player::~Player() {
  // What is in flight is waited for; the process ends right after, and the driver frees the rest.
  State& s = *state_;
  if (s.context == nullptr) return;
  s.driver.cuCtxSynchronize();
  for (CUevent event : s.events) {
    if (event != nullptr) s.driver.cuEventDestroy(event);
  }
  for (CUstream stream : s.streams) {
    if (stream != nullptr) s.driver.cuStreamDestroy(stream);
  }
  if (s.buffer != 0) s.driver.cuMemFree(s.buffer);
  if (s.start_words != 0) s.driver.cuMemFree(s.start_words);
  if (s.pinned != nullptr) s.driver.cuMemFreeHost(s.pinned);
  if (s.module != nullptr) s.driver.cuModuleUnload(s.module);
  s.driver.cuDevicePrimaryCtxRelease(s.device);
}

std::expected<std::unique_ptr<Player>, std::string> Player::create(const Workload& workload,
                                                                   const PlayOptions& options) {
  auto driver = open_driver();
  if (!driver) return std::unexpected(driver.error());
  std::unique_ptr<Player> player(new Player(std::make_unique<State>()));
  player->state_->driver = *driver;
  player->state_->options = options;
  if (auto done = player->state_->prepare(workload); !done) return std::unexpected(done.error());
  return player;
}

bool Player::simulated() const { return state_->driver.simulated(); }
double Player::slow_motion() const { return state_->clock.slow_motion; }
const std::string& Player::device_name() const { return state_->device_name; }
const std::string& Player::note() const { return state_->note; }
uint64_t Player::now_ns() const { return state_->clock.now_ns(); }
uint64_t Player::late_p99_ns() const { return state_->late.quantile_ns(0.99); }
uint64_t Player::late_max_ns() const { return state_->late.max_ns(); }
void Player::forget_lateness() { state_->late.clear(); }

std::expected<IterationResult, std::string> Player::play_iteration(const std::atomic<bool>& stop) {
  State& s = *state_;
  IterationResult result;
  s.iteration_late.clear();
  if (!s.first_iteration && s.pause_after_ns > 0 && !s.options.greedy) {
    const uint64_t start_ns = s.timeline.deadline_ns(s.pause_after_ns);
    s.wait_until(start_ns, stop);
  }
  s.first_iteration = false;
  result.start_ns = now_ns();
  s.timeline.restart(result.start_ns);
  for (PreparedOp& prepared : s.ops) {
    if (stop.load(std::memory_order_relaxed)) break;
    const Op& op = prepared.op;
    const uint64_t deadline_ns = s.timeline.deadline_ns(s.pause(op.pause_ns));
    const bool waited = !s.options.greedy && s.wait_until(deadline_ns, stop);
    if (stop.load(std::memory_order_relaxed)) break;
    const uint64_t called_ns = now_ns();
    if (waited) {
      const uint64_t late_ns = called_ns > deadline_ns ? called_ns - deadline_ns : 0;
      s.iteration_late.add(late_ns);
      s.late.add(late_ns);
    }
    if (const CUresult code = s.call(prepared); code != CUDA_SUCCESS) {
      return std::unexpected(s.driver.describe(to_string(op.kind), code) + ": the device failed");
    }
    const uint64_t returned_ns = now_ns();
    if (op.is_sync()) {
      s.timeline.blocking_call(returned_ns);
    } else {
      s.timeline.async_call(deadline_ns, op.call_ns, called_ns, returned_ns);
    }
    if (op.kind == OpKind::Launch) {
      ++result.launches;
      result.kernel_ns += op.duration_ns;
    }
    if (&prepared == &s.ops.back()) result.complete = true;
  }
  if (!result.complete) s.driver.cuCtxSynchronize();
  result.end_ns = now_ns();
  s.timeline.restart(result.end_ns);
  result.late_p99_ns = s.iteration_late.quantile_ns(0.99);
  return result;
}

}  // namespace lull::play
