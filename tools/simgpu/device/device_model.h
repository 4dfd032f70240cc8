// The simulated devices themselves: plain-data state and the rules that move it through model time.
// PURE: no clock, no system call, no allocation; time arrives as an argument, ties break by id.
// Called by the shared shell (shared_device.h) under its lock, and by tests and simulators without
// one. It does not know what an op means to the program, only what it occupies.
//
// An op's life. `advance_to` owns every transition after submission.
//
//            submit          first of its stream,      an engine takes it      its work is done
//   (free) ---------> queued -- dependencies met --> ready -----------> running -------> complete
//     ^                 |                              ^                   |                |
//     |                 | takes no time                +---- preempted ----+   no token     |
//     |                 +---------------------------------------------------+  <-----------+
//     |                 | external: waits for satisfy()                     |              | token
//     +-----------------+---------------------------------------------------+ <- collect --+
//
// Compute engine (kernels, device-to-device copies, memsets), one per device:
//   serial      one op at a time in order of becoming ready, to its end, whoever's it is.
//   mps         ready ops of all contexts together, in order of becoming ready: each takes the SMs
//               it can fill of those that are left, and advances at granted / demand of its speed.
//               A later op never slows an earlier one. (As the hardware's block dispatcher does it;
//               interference through caches and memory is not modelled.)
//   time_slice  one context at a time; inside it as under mps. It keeps the device until it has no
//               ready op or its slice ends while another context has one; then the next context in
//               cyclic order runs, after `switch_ns`. Slices renew silently while nobody waits, so
//               a newcomer waits for the rest of the slice that is going on. What was running is
//               preempted and continues later. The first context ever pays no switch.
// Copy engines, one for each direction: one copy at a time in order of becoming ready, independent
// of the compute engine and of slices. Ops that take no time happen as soon as they are first.
//
// Crash safety, as far as it is decided here: `model_state` is changed in a private copy that the
// shell publishes as a whole; `op_record`s are changed in place, but only where no published state
// looks (free slots, the link behind a tail), or with values that a replay computes again. Hence
// the one rule for the shell: publish what `advance_to` or a removal freed before the next
// `submit`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tools/simgpu/device/device.h"

namespace simgpu {

inline constexpr uint32_t kMaxRunning = 128;
inline constexpr uint32_t kStreamWords = kMaxStreams / 64;
inline constexpr uint32_t kOpWords = kMaxOps / 64;
inline constexpr uint32_t kFinishedRecords = 64;
inline constexpr uint16_t kNoContext = 0xFFFF;    // time_slice: nobody has run yet
inline constexpr uint16_t kGoneContext = 0xFFFE;  // time_slice: who ran last is destroyed

enum class Engine : uint8_t {
  kCompute = 0,
  kUpload = 1,
  kDownload = 2,
  kInstant = 3,
  kExternal = 4
};
Engine engine_of(OpKind kind);

struct op_point {
  uint16_t context;
  uint16_t stream;
  uint32_t context_generation;
  uint32_t stream_generation;
  uint32_t reserved;
  uint64_t seq;
};

struct op_record {
  // by the submitter, before the commit that makes the op visible
  uint64_t seq;
  uint64_t token;
  uint64_t work_ns;
  uint32_t sm_demand;
  OpKind kind;
  uint8_t wait_count;
  uint16_t next;  // in its stream; meaningful while it is not the tail
  op_point wait_for[kMaxWaits];
  uint64_t submitted_ns;
  // by whoever plays its completion
  uint64_t started_ns;
  uint64_t completed_ns;
  uint64_t done_order;
  uint32_t stream;
  uint16_t done_next;  // in the context's done list; meaningful while it is not the tail
  uint8_t unhurried;   // by the submitter
  uint8_t reserved;
};
static_assert(sizeof(op_record) == 168);

struct stream_state {
  uint32_t generation;
  uint16_t head, tail;  // op slots, while count > 0
  uint16_t count;       // unfinished ops
  uint16_t visible;     // of these, external or with a token and not unhurried
  uint8_t used;
  uint8_t closing;  // destroyed by its owner, still has ops
  uint8_t started;  // the first op has been on an engine
  uint8_t reserved;
  uint64_t completed_seq;
  uint64_t submitted_seq;
  uint64_t ticket;      // order of becoming ready, while ready
  uint64_t remaining;   // SM * ns of the first op's compute work, as of the device's accounted_ns
  uint64_t started_ns;  // of the first op; external: since when it waits
};
static_assert(sizeof(stream_state) == 56);

struct context_state {
  uint64_t dirty_streams[kStreamWords];  // meaningful while the context's dirty bit is set
  uint32_t generation;
  uint8_t used;
  uint8_t reached_new;  // an external op was reached since the last collect
  uint16_t device;
  uint32_t process;
  uint32_t stream_count;
  uint64_t next_seq;
  uint64_t busy_ns;
  uint64_t launches;
  uint64_t memory_bytes;
  uint64_t streams[kStreamWords];   // slots in use
  uint64_t pending[kStreamWords];   // with unfinished ops
  uint64_t blocked[kStreamWords];   // whose first op waits for another
  uint64_t external[kStreamWords];  // whose first op is external and reached
  uint64_t ready[3][kStreamWords];  // whose first op is ready or running, by engine
  uint64_t ops[kOpWords];           // op slots in use
  uint16_t op_count;
  uint16_t done_head, done_tail, done_count;  // complete and not collected
  uint16_t done_visible;                      // of these, not unhurried
};

struct running_op {
  uint16_t context;
  uint16_t stream;
  uint32_t granted_sms;
};

struct copy_engine {
  uint16_t context;
  uint16_t stream;
  uint32_t busy;
  uint64_t ends_ns;
};

struct device_state {
  uint64_t contexts;  // on this device
  uint64_t accounted_ns;
  uint64_t next_event_ns;
  uint64_t busy_ns;
  uint64_t switched_ns;
  uint64_t memory_bytes;
  uint64_t slice_start_ns;
  uint64_t switch_until_ns;
  uint16_t current;    // time_slice: the context that has the device
  uint16_t switch_to;  // kNoContext: no switch going on
  uint16_t contended;
  uint16_t running_count;
  copy_engine copy[2];
  running_op running[kMaxRunning];
};

struct process_state {
  int32_t pid;
  uint32_t used;
  uint64_t pid_namespace;  // shared_device.h; 0: not known
  uint64_t start_time;     // shared_device.h
  uint32_t context_count;
  uint32_t away;  // checkpointed: what its contexts and itself hold is counted on no device
  uint64_t busy_ns[kMaxDevices];  // of contexts that are gone
  uint64_t launches[kMaxDevices];
  uint64_t held_bytes[kMaxDevices];  // without a context
};

// Device memory that several processes may hold; a bit for each holder.
struct shared_block {
  uint64_t id;  // 0: free
  uint64_t bytes;
  uint32_t device;
  uint32_t holders;
};

struct finished_record {
  int32_t pid;
  uint32_t device;
  uint64_t busy_ns;
  uint64_t launches;
};

struct model_head {
  uint64_t time_ns;
  uint64_t next_ticket;
  uint64_t next_done;
  uint64_t contexts;        // live
  uint64_t finished_count;  // total; the table holds the last kFinishedRecords
  uint64_t commits;
  uint64_t last_block;  // newest number given to a shared block
  // What differs from the state that was published before this one.
  uint64_t dirty_contexts;
  uint32_t dirty_devices;
  uint32_t dirty_tables;
  uint32_t dirty_checkpoints;
  uint32_t reserved;
};

// All zero plus `initialise` is the state at model time 0.
struct model_state {
  model_head head;
  device_state device[kMaxDevices];
  process_state process[kMaxProcesses];
  finished_record finished[kFinishedRecords];
  shared_block block[kMaxSharedBlocks];
  checkpoint_record checkpoint[kMaxProcesses];
  context_state context[kMaxContexts];
  stream_state stream[kMaxContexts][kMaxStreams];
};

struct ModelParameters {
  uint32_t device_count = 1;
  Sharing sharing = Sharing::kTimeSlice;
  uint32_t sm_count = 1;
  uint64_t slice_ns = 2'000'000;
  uint64_t switch_ns = 0;
  uint64_t memory_bytes = 0;
};

// Copies into `to`, which is one publication behind `from`, what changed. Returns bytes copied.
size_t copy_changes(const model_state& from, model_state& to);
// Copies everything that either of them uses: `to` may be in any condition.
size_t copy_all(const model_state& from, model_state& to);

// A view of one state and its ops. Cheap to make; the state must not change under it.
class DeviceModel {
 public:
  // Called between the steps of an update; a test kills the process there.
  using StepHook = void (*)();

  DeviceModel(model_state& state, std::span<op_record> ops, const ModelParameters& parameters,
              StepHook hook = nullptr)
      : s_(state), ops_(ops), p_(parameters), hook_(hook) {}

  static void initialise(model_state& state);

  // --- time ---
  ModelNs next_event_ns() const;
  // Plays everything that happens up to and including `now_ns`. Going back is ignored.
  void advance_to(ModelNs now_ns);

  // --- processes, contexts, streams; all at the state's time ---
  std::expected<uint32_t, Status> add_process(int32_t pid, uint64_t start_time,
                                              uint64_t pid_namespace = 0);
  void remove_process(uint32_t process);
  std::expected<ContextId, Status> create_context(uint32_t process, uint32_t device);
  Status destroy_context(ContextId context);
  std::expected<StreamId, Status> create_stream(ContextId context);
  Status destroy_stream(StreamId stream);

  // --- work. `work_ns` is the op's length alone on the device, `sm_demand` 1 .. SMs ---
  std::expected<Seq, Status> submit(StreamId stream, const Op& op, uint64_t work_ns,
                                    uint32_t sm_demand);
  Status satisfy(OpPoint external);
  void collect(uint32_t process, Collected& out);

  // --- memory and checkpoints (process_model.cc); device.h says what they mean ---
  Status allocate(ContextId context, uint64_t bytes);
  void release(ContextId context, uint64_t bytes);
  Status hold(uint32_t process, uint32_t device, uint64_t bytes);
  void drop(uint32_t process, uint32_t device, uint64_t bytes);
  std::expected<uint64_t, Status> share(uint32_t process, uint32_t device, uint64_t bytes);
  Status join(uint32_t process, uint64_t block, uint32_t device, uint64_t bytes);
  void leave(uint32_t process, uint64_t block);
  void leave_devices(uint32_t process);
  Status return_to_devices(uint32_t process, const std::array<uint8_t, kMaxDevices>& to);
  // The request's number.
  std::expected<uint64_t, Status> ask(uint32_t process, const CheckpointRequest& request);
  void answer(uint32_t process, ProcessState state, int32_t answer);
  void set_restore_thread(uint32_t process, int32_t thread);

  // --- asking; nothing changes ---
  bool valid(ContextId context) const;
  bool valid(StreamId stream) const;
  bool is_complete(OpPoint point) const;
  bool has_work_to_report(uint32_t process) const;
  bool is_asked(uint32_t process) const;
  std::optional<uint32_t> find_process(int32_t pid, uint64_t pid_namespace) const;
  StreamId id_of(uint32_t context, uint32_t stream) const;
  // Lower bounds: not before this can the point be complete, or can `collect` have something for
  // the process, unless somebody submits, satisfies or removes something. kNever: not by time
  // alone.
  ModelNs earliest_completion(OpPoint point) const;
  ModelNs earliest_visible(uint32_t process) const;
  ModelNs earliest_visible(StreamId stream) const;
  // Busy time of a context including what its device has not accounted yet.
  uint64_t busy_ns(uint32_t context) const;
  uint64_t device_busy_ns(uint32_t device) const;

  const model_state& state() const { return s_; }

 private:
  void step() const {
    if (hook_ != nullptr) hook_();
  }
  context_state& touch_context(uint32_t context);
  stream_state& touch_stream(uint32_t context, uint32_t stream);
  device_state& touch_device(uint32_t device);
  checkpoint_record& touch_checkpoint(uint32_t process);
  uint64_t free_bytes(uint32_t device) const;
  void forget_process_memory(uint32_t process);
  void move_context(uint32_t context, uint32_t to);
  op_record& op(uint32_t context, uint32_t slot) const { return ops_[context * kMaxOps + slot]; }
  const op_record& first_op(uint32_t context, uint32_t stream) const {
    return op(context, s_.stream[context][stream].head);
  }

  void play(uint32_t device, ModelNs at_ns);
  void account(uint32_t device, ModelNs at_ns);
  void examine(uint32_t context, uint32_t stream, ModelNs at_ns);
  void complete_first(uint32_t context, uint32_t stream, ModelNs at_ns);
  void free_op(uint32_t context, uint32_t slot);
  void free_stream(uint32_t context, uint32_t stream);
  void settle(ModelNs at_ns);
  void reschedule(uint32_t device, ModelNs at_ns);
  void start_copies(uint32_t device, ModelNs at_ns);
  // The contexts whose ops may run now, after slices and switches.
  uint64_t choose_contexts(device_state& device, uint64_t ready, ModelNs at_ns);
  void fill_compute(device_state& device, uint64_t contexts, ModelNs at_ns);
  uint64_t ready_contexts(const device_state& device, Engine engine) const;
  bool waits_met(const op_record& record) const;
  bool point_complete(const op_point& point) const;
  ModelNs bound(uint32_t context, uint32_t stream, Seq until, int depth) const;
  ModelNs start_bound(const device_state& device, uint32_t context) const;
  ModelNs drain_bound(const device_state& device, uint32_t context) const;

  model_state& s_;
  std::span<op_record> ops_;
  const ModelParameters& p_;
  StepHook hook_;
  uint32_t recheck_processes_ = 0;   // dependencies of their streams may be met now
  uint32_t reschedule_devices_ = 0;  // their ready ops changed
};

}  // namespace simgpu
