// The simulated GPU as its users see it: devices that several processes share, kept in a shared
// file (SIMGPU_DEVICE). Called by the driver stand-in (tools/simgpu/driver), from any thread.
//
//   submit ----> stream (FIFO) ----> compute engine | copy engines | at once ----> completed
//                                        whoever calls plays what is due               |
//   effects are applied by the process that submitted them  <---- collect <------------+
//
// There is no thread in here. Every method locks the device, plays all internal events up to now
// in model time, acts, and commits: completion times are exact in model time, however late anybody
// wakes. Between two calls of any process nothing happens, and nobody can tell.
//
// What it does not do: it has no memory contents and no notion of legacy streams, events, graphs or
// pointers. The API layer keeps those and expresses them by FIFO streams, `wait_for` and tokens:
//   an event      = a kEventRecord op; its time is the Completion of its token, its query is
//                   `is_complete`
//   legacy stream = ops that wait for the last op of each blocking stream, and the other way round
//   a data effect = an op with a token; the API layer applies it when `collect` returns the token
//
// After fork the child's methods all answer Status::kForked: the child is not a client.
// A process that dies (noticed by the others) loses its contexts, ops and memory.
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coordinator/channel/model_clock.h"
#include "tools/simgpu/device/checkpoint_record.h"
#include "tools/simgpu/device/cost_model.h"
#include "tools/simgpu/device/profile.h"

namespace simgpu {

using ModelNs = uint64_t;  // model time, ns since the device was created
inline constexpr ModelNs kNever = UINT64_MAX;
using Seq = uint64_t;  // per context, from 1, increasing over all streams

inline constexpr uint32_t kMaxProcesses = 32;      // live at one time
inline constexpr uint32_t kMaxContexts = 64;       // live at one time, all processes and devices
inline constexpr uint32_t kMaxStreams = 256;       // per context
inline constexpr uint32_t kMaxOps = 1024;          // per context: submitted and not yet collected
inline constexpr uint32_t kMaxWaits = 4;           // dependencies of one op
inline constexpr uint32_t kMaxSharedBlocks = 256;  // held by more than one process, or made to be

enum class Sharing : uint32_t { kTimeSlice = 0, kMps = 1, kSerial = 2 };

enum class Status : uint32_t {
  kOk = 0,
  kOutOfMemory,  // the device has not that many bytes left
  kTableFull,    // one of the bounds above
  kStale,        // the context or stream does not exist (any more)
  kRingFull,     // try_submit: kMaxOps ops are in flight
  kForked,       // the caller is a fork child of the process that opened the device
  kBusy,         // ask: another request for that process is not answered yet
};

// Ids name a slot and its use, so that a destroyed one never means its successor. All zero: none.
struct ContextId {
  uint32_t slot = 0;
  uint32_t generation = 0;  // 0: no context
  explicit operator bool() const { return generation != 0; }
  auto operator<=>(const ContextId&) const = default;
};
struct StreamId {
  ContextId context;
  uint32_t slot = 0;
  uint32_t generation = 0;  // 0: no stream
  explicit operator bool() const { return generation != 0; }
  auto operator<=>(const StreamId&) const = default;
};
// The op `seq` of `stream`, and with it everything before it on that stream.
struct OpPoint {
  StreamId stream;
  Seq seq = 0;
};

enum class OpKind : uint8_t {
  kKernel = 0,        // compute engine, `duration_ns`, `sm_demand`
  kCopyH2D = 1,       // its copy engine; length from `bytes` unless `duration_ns` is given
  kCopyD2H = 2,       // its copy engine
  kCopyD2D = 3,       // compute engine, length from `bytes` unless `duration_ns` is given
  kMemset = 4,        // compute engine, likewise
  kEventRecord = 5,   // takes no time
  kWriteValue = 6,    // takes no time; the write is the token's effect
  kMarker = 7,        // takes no time: a wait (with `wait_for`), a nop, a host-to-host copy, ...
  kWaitValue = 8,     // external: blocks its stream until the process calls `satisfy`
  kHostFunction = 9,  // external: likewise; the process runs the function, then calls `satisfy`
};

struct Op {
  OpKind kind = OpKind::kMarker;
  ModelNs duration_ns = 0;  // kernels; for copies and memsets 0 means: from `bytes`
  uint32_t sm_demand = 0;   // SMs it can fill; 0: kernels all, copies by `bytes`
  uint64_t bytes = 0;
  bool pageable = false;  // the host side of the copy is pageable memory
  // Ops that must be complete first, of any stream of any context of this process (any device).
  // Points with no stream, or whose stream is gone, count as complete.
  std::array<OpPoint, kMaxWaits> wait_for{};
  uint32_t wait_count = 0;
  // Not 0: `collect` reports the completion of this op. 0: nobody asks. External ops are reported
  // as ReachedWait with their token and never as Completion.
  uint64_t token = 0;
  // Its completion is reported like any other, but nobody is woken for it: whoever collects next,
  // or the service thread on its rounds, finds it.
  bool unhurried = false;
};

struct Completion {
  uint64_t token = 0;
  OpPoint at;
  OpKind kind = OpKind::kMarker;
  ModelNs submitted_ns = 0;
  ModelNs started_ns = 0;  // first moment on an engine; for ops without length = completed_ns
  ModelNs completed_ns = 0;
};

// An external op (value wait, host function) that is the first of its stream, all dependencies met.
struct ReachedWait {
  uint64_t token = 0;
  OpPoint at;
  OpKind kind = OpKind::kWaitValue;
  ModelNs reached_ns = 0;
};

struct Collected {
  std::vector<Completion> completed;  // in order of completion
  std::vector<ReachedWait> reached;   // every one still waiting, again on each call
};

struct MemoryInfo {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};

struct SimParameters {
  DeviceProfile profile = built_in_profile();
  Sharing sharing = Sharing::kTimeSlice;
  double slow_motion = 1.0;
  uint64_t control_latency_ns = kNever;  // kNever: the profile's
  uint32_t devices = 1;
};

class SharedDevice;  // the mapped file; shared_device.h

// One per process is enough (it holds every device of the file); more do no harm.
class Device {
 public:
  // Opens the file, created with `parameters` when absent (whoever comes first; its parameters
  // then hold for all). The error is one line: what, why, what to do.
  static std::expected<std::unique_ptr<Device>, std::string> open(const std::string& path,
                                                                  const SimParameters& parameters);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // --- constant after opening; no lock ---
  uint32_t device_count() const;
  const DeviceProfile& profile(uint32_t device) const;
  std::array<uint8_t, 16> uuid(uint32_t device) const;
  Sharing sharing() const;
  lull::channel::ModelClock clock() const;
  uint64_t control_latency_ns() const;
  const std::string& path() const;
  ModelNs now_ns() const { return clock().now_ns(); }
  // True in a fork child of the process that opened it.
  bool forked() const;

  // --- contexts and streams ---
  // A process may have several contexts on a device; the engine treats each as its own client.
  std::expected<ContextId, Status> create_context(uint32_t device);
  // What is in flight is dropped, its tokens are never reported; its memory is freed.
  Status destroy_context(ContextId context);
  std::expected<StreamId, Status> create_stream(ContextId context);
  // The id is stale from now on; work that is in flight still runs, tokens are still reported.
  Status destroy_stream(StreamId stream);

  // --- work ---
  // Appends to the stream and returns the op's sequence number. Blocks while the context has
  // kMaxOps ops in flight (a completed op with a token counts until it is collected): hold no lock
  // that the collecting thread needs. Costs about a microsecond otherwise.
  std::expected<Seq, Status> submit(StreamId stream, const Op& op);
  // All of them, in order, under one lock while there is room; the last one's number.
  std::expected<Seq, Status> submit(StreamId stream, std::span<const Op> ops);
  // Never blocks: kRingFull instead.
  std::expected<Seq, Status> try_submit(StreamId stream, const Op& op);
  // Completes an external op, now. kStale when it is not the first of its stream.
  Status satisfy(OpPoint external);

  // --- asking ---
  // True as well for stale streams and for `seq` 0.
  bool is_complete(OpPoint point);
  // All points at once, under one lock.
  bool are_complete(std::span<const OpPoint> points);
  // True when no op of the stream (of any stream of the context) is unfinished.
  bool is_idle(StreamId stream);
  bool is_idle(ContextId context);
  // Of all contexts of the calling process.
  bool is_process_idle();
  // The last op submitted to the stream: what a synchronisation waits for. seq 0: none so far.
  OpPoint last_submitted(StreamId stream);
  // The last ops of every stream of the context that still has unfinished ones.
  std::vector<OpPoint> unfinished(ContextId context);

  // --- waiting ---
  // Returns true once `point` is complete, false at the deadline (model time) or when the process
  // is a fork child. Sleeps; spins for the last `spin_real_ns` of each wait, because sleeps are
  // late by 25 to 55 us. External ops of the same process make progress only if another thread
  // serves them; `wait_until` does not collect.
  bool wait_until(OpPoint point, ModelNs deadline_ns = kNever, uint64_t spin_real_ns = 60'000);

  // --- the service thread of a process ---
  // Everything of this process (all contexts) that has completed since the last call, with the
  // external ops that wait. Any thread; the caller serialises applying the effects.
  void collect(Collected& out);
  // Sleeps until something new may be there to collect, or a submission, `satisfy`, a dead process
  // or `wake_service` changes when that will be, or `at_most_ns` (model time) has come; never
  // longer than 20 ms of real time (dead processes are looked for). One thread at a time.
  void wait_for_work(ModelNs at_most_ns = kNever, uint64_t spin_real_ns = 0);
  void wake_service();
  // Keeps the calling thread until then; true to the microsecond. Hold no lock.
  void pass_until(ModelNs until_ns) const;

  // --- memory: numbers only, shared by all processes on the device ---
  // Of a context: goes with it.
  Status allocate(ContextId context, uint64_t bytes);
  void release(ContextId context, uint64_t bytes);
  // Of the calling process, whatever contexts it has: goes with the process.
  Status hold(uint32_t device, uint64_t bytes);
  void drop(uint32_t device, uint64_t bytes);
  // What was held becomes a block that other processes may join, counted once; its number. The
  // block goes when its last holder leaves or dies.
  std::expected<uint64_t, Status> share(uint32_t device, uint64_t bytes);
  // A block that is gone meanwhile (its contents are in a file that travels) is counted anew.
  Status join(uint64_t block, uint32_t device, uint64_t bytes);
  void leave(uint64_t block);
  MemoryInfo memory_info(uint32_t device);

  // --- checkpoints of processes (checkpoint_record.h) ---
  struct ProcessView {
    ProcessState state = ProcessState::kRunning;
    int32_t restore_thread = 0;
  };
  // Of a live process with a context or a restore thread on these devices.
  std::optional<ProcessView> process_view(int32_t pid);
  // Has the restore thread of the process do it; returns its answer. Blocks until then, behind
  // other requesters. kStale: there is no such process, or it died meanwhile.
  std::expected<int32_t, Status> ask(int32_t pid, const CheckpointRequest& request);
  // The calling thread is the restore thread of its process from now on: it looks at `asked`
  // whenever `wait_for_work` returns, and answers, if not at once. `wait_for_work` returns for a
  // request that `asked` has not given out yet.
  Status serve_requests();
  std::optional<CheckpointRequest> asked();
  void answer(ProcessState state, int32_t answer);
  // All that the calling process holds, with its contexts and without.
  uint64_t held_bytes();
  // The process gives all its memory back to the devices and keeps its contexts, idle ones.
  void leave_devices();
  // The reverse; what was on device i comes to device to[i]. kOutOfMemory: nothing has changed.
  Status return_to_devices(const std::array<uint8_t, kMaxDevices>& to);

  SharedDevice& shared() { return *shared_; }

 private:
  explicit Device(std::unique_ptr<SharedDevice> shared);
  std::unique_ptr<SharedDevice> shared_;
  std::atomic<uint64_t> attended_{0};  // the newest request that `asked` gave out
};

// What SIMGPU_PROFILE, SIMGPU_SHARING, SIMGPU_SLOW_MOTION, SIMGPU_CONTROL_LATENCY_NS and
// SIMGPU_DEVICES ask for, and SIMGPU_DEVICE or /dev/shm/simgpu-<uid>.
std::expected<SimParameters, std::string> parameters_from_environment();
std::string device_path_from_environment();
// The process's device, opened on the first call and never closed.
std::expected<Device*, std::string> open_device_from_environment();

}  // namespace simgpu
