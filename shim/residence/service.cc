#include "shim/residence/service.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>

#include "coordinator/channel/model_clock.h"
#include "coordinator/channel/residence.h"
#include "shim/captures.h"
#include "shim/connection.h"
#include "shim/devices.h"
#include "shim/residence/context_wait.h"
#include "shim/residence/device_arena.h"
#include "shim/residence/gpu_lock.h"
#include "shim/residence/host_arena.h"
#include "shim/residence/live_contexts.h"
#include "shim/residence/memory_gate.h"
#include "shim/residence/mover.h"
#include "shim/residence/quiet_thread.h"
#include "shim/silence.h"
#include "shim/system.h"

// With our own handle, as the start files would have it.
extern "C" int __cxa_atexit(void (*function)(void*), void* argument, void* dso);
extern "C" void* __dso_handle;

namespace lull::shim {

namespace {

using channel::lull_move_result;
using channel::lull_order;
using channel::lull_residence_state;

constexpr uint64_t kIdleNs = 1'000'000'000;
constexpr uint64_t kSuspendedNs = 50'000'000;
// While submitted work completes. Long against a query (a microsecond), short against a move.
constexpr uint64_t kDrainPollNs = 100'000;
// Of a wait in which another order, or the process's end, is looked for now and then.
constexpr uint64_t kSliceNs = 50'000'000;
// Between two tries of a way back: a full GPU changes when somebody else ends.
constexpr uint64_t kRetryNs = 100'000'000;
// Without a word of the order: a second is what a held launch waits for a silent lulld.
constexpr uint32_t kDefaultDrainMs = 1000;
// What a context that the driver has taken out may need beyond known memory: one of an H100 has
// about 0.5 GB (docs/hardware: resident memory of a checkpoint), modules and graphs come on top.
constexpr uint64_t kContextBytes = 1ULL << 30;

std::atomic<uint32_t> started;
std::atomic<uint32_t> exiting;
std::atomic<uint32_t> bell;                // a futex: goes up when there is something to look at
std::atomic<uint32_t*> waits_at{nullptr};  // where the thread sleeps
Lock step_lock;                            // held while the thread is at work

struct Outcome {
  lull_move_result result = channel::kMoveDone;
  const char* reason = "";
};

class Service {
 public:
  [[noreturn]] void run() {
    for (;;) {
      uint64_t sleep_ns = 0;
      {
        Locked locked(step_lock);
        sleep_ns = step();
      }
      if (sleep_ns != 0) sleep(sleep_ns);
    }
  }

 private:
  bool resident() const { return state_ == channel::kResident; }
  static bool ends() { return exiting.load(std::memory_order_acquire) != 0; }

  // Returns how long to wait for news.
  uint64_t step() {
    if (state_ == channel::kLost) return kIdleNs;
    // The libraries that the process has loaded are coming down.
    if (ends() && (resident() || held_at_memory_gate() == 0)) return kIdleNs;
    seen_bell_ = bell.load(std::memory_order_acquire);
    follow_coordinator();
    lull_order order;
    if (newest_order(order) && order.number != handled_) {
      carry_out(order);
      return 0;
    }
    publish_figures();
    if (!resident() && (returns_ || !is_led())) return way_back_alone() ? 0 : kRetryNs;
    if (resident()) {
      reclaim_freed();
      return prepare();
    }
    ring();
    return kSuspendedNs;
  }

  // ---- the coordinator -------------------------------------------------------------------------

  void follow_coordinator() {
    ThreadState& thread = thread_state;
    Attachment* link = enter_slowly(thread);
    if (link == link_) return;
    link_ = link;
    if (link == nullptr) return;
    // A new coordinator: it has ordered nothing yet, and knows nothing of what another one did.
    handled_ = 0;
    silent_ = false;
    silence_ = Silence(channel::looks(*link->control), channel::monotonic_ns());
    rung_ns_ = 0;
    channel::publish_abilities(*link->client,
                               abilities() | (has_returned_ ? uint32_t{channel::kHasReturned} : 0));
    said_swappable_ = UINT64_MAX;
    publish_figures();
    enter_state(state_);
  }

  // Whether a coordinator decides where this process's memory is.
  bool is_led() {
    look_at_coordinator();
    return link_ != nullptr && link_->gone.load(std::memory_order_acquire) == 0 && !silent_ &&
           channel::order_number(*link_->control) != 0;
  }

  // At most every 50 ms; rings the doorbell, so that a coordinator that runs shows it.
  void look_at_coordinator() {
    if (link_ == nullptr) return;
    const uint64_t now = channel::monotonic_ns();
    if (now - rung_ns_ < kSuspendedNs - 1'000'000) return;
    rung_ns_ = now;
    if (!still_there(*link_)) return;
    silent_ = silence_.lasts_too_long(channel::looks(*link_->control), now);
    ring();
  }

  void ring() {
    if (link_ == nullptr) return;
    channel::lull_record record{};
    record.kind = channel::kRecordResidence;
    record.tsc = channel::ticks();
    // A record makes a coordinator look that polls the rings, the bell one that sleeps.
    if (ring_room(thread_state, *link_) > channel::kRingRecords / 2)
      push(thread_state, *link_, record);
    channel::fence_before_doorbell();
    ring_doorbell(*link_);
  }

  bool newest_order(lull_order& order) {
    if (link_ == nullptr) return false;
    // Odd for as long as it takes to copy half a kilobyte.
    while (channel::order_number(*link_->control) != 0) {
      if (channel::read_order(*link_->control, order)) return true;
      if (!still_there(*link_)) return false;
      sched_yield();
    }
    return false;
  }

  // Whether the move under way, towards `resident` or away from it, is still what is wanted.
  bool is_still_wanted(bool wants_resident) {
    // A process that ends is not kept, unless for a call that waits for its memory.
    if (ends() && (!wants_resident || held_at_memory_gate() == 0)) return false;
    if (link_ != nullptr && channel::order_number(*link_->control) != current_.number) {
      lull_order newer;
      if (newest_order(newer) && (newer.target == channel::kTargetResident) != wants_resident)
        return false;
    }
    if (wants_resident) {
      look_at_coordinator();
      return true;
    }
    return is_led();
  }
  static bool goes_on_out() { return self->is_still_wanted(/*wants_resident=*/false); }
  static bool goes_on_back() { return self->is_still_wanted(/*wants_resident=*/true); }

  // ---- reports ---------------------------------------------------------------------------------

  void enter_state(lull_residence_state state) {
    state_ = state;
    if (link_ == nullptr) return;
    channel::publish_state(*link_->client, state);
    ring();
  }

  void report(const lull_order& order, const Outcome& outcome) {
    if (link_ == nullptr) return;
    const uint64_t took = moving_since_ns_ != 0 ? channel::monotonic_ns() - moving_since_ns_ : 0;
    channel::publish_result(*link_->client, order.number, outcome.result, outcome.reason, took);
    ring();
  }

  void publish_figures() {
    if (link_ == nullptr) return;
    // A driver whose context is checkpointed answers nobody.
    if (resident()) look_at_graph_memory();
    channel::publish_fixed_kinds(*link_->client, fixed_kinds());
    uint64_t all = 0;
    for (uint32_t device = 0; device < devices_in_use(); ++device) {
      const uint64_t swappable = swappable_bytes(device);
      const uint64_t fixed = fixed_bytes(device);
      channel::publish_swappable(*link_->client, device, swappable, fixed);
      all += swappable + fixed;
    }
    const uint64_t host = host_arena_bytes();
    channel::publish_host(*link_->client, host, std::max(wanted_host_bytes(), host));
    if (all + host == said_swappable_) return;
    said_swappable_ = all + host;
    ring();
  }

  uint64_t wanted_host_bytes() const {
    uint64_t bytes = 0;
    for (uint32_t device = 0; device < devices_in_use(); ++device) bytes += swappable_bytes(device);
    return bytes;
  }

  uint32_t abilities() {
    if (abilities_ != 0) return abilities_;
    abilities_ = channel::kCanSwap;
    CUprocessState driver_state;
    OwnCall own(thread_state);
    if (driver().cuCheckpointProcessGetState(getpid(), &driver_state) == CUDA_SUCCESS) {
      abilities_ |= channel::kCanGiveUp;
      if (environment_set("LULL_MIGRATABLE")) abilities_ |= channel::kCanMigrate;
    }
    return abilities_;
  }

  // ---- orders ----------------------------------------------------------------------------------

  void carry_out(const lull_order& order) {
    current_ = order;
    // Whoever orders is alive.
    silent_ = false;
    silence_ = Silence(channel::looks(*link_->control), channel::monotonic_ns());
    handled_ = order.number;
    has_returned_ = false;
    returns_ = false;
    moving_since_ns_ = 0;
    const uint32_t drain_ms = order.drain_ms != 0 ? order.drain_ms : kDefaultDrainMs;
    // Submitted work takes the device's time, which may run slower than ours.
    drain_ns_ = uint64_t{drain_ms} * 1'000'000;
    if (link_ != nullptr) drain_ns_ = channel::host_ns(*link_->control, drain_ns_);
    Outcome outcome;
    switch (order.target) {
      case channel::kTargetOut:
        outcome = to_out(order);
        break;
      case channel::kTargetGivenUp:
        outcome = to_given_up();
        break;
      case channel::kTargetResident:
        outcome = to_resident(order);
        break;
      default:
        outcome = {channel::kMoveRefused, "an order that this version of lull does not know"};
    }
    report(order, outcome);
  }

  Outcome to_out(const lull_order& order) {
    if (state_ == channel::kGivenUp) return restore(order);
    if (resident()) return leave();
    // A way back that was turned round has brought some of it.
    return present_bytes() != 0 ? copy_out() : Outcome{};
  }

  Outcome to_given_up() {
    if (state_ == channel::kGivenUp) return {};
    const bool from_resident = resident();
    if (from_resident || present_bytes() != 0) {
      const Outcome left = from_resident ? leave() : copy_out();
      if (left.result != channel::kMoveDone) return left;
    }
    const Outcome given = give_up();
    if (given.result != channel::kMoveDone && from_resident) undo();
    return given;
  }

  Outcome to_resident(const lull_order& order) {
    if (state_ == channel::kGivenUp) {
      const Outcome restored = restore(order);
      if (restored.result != channel::kMoveDone) return restored;
    }
    return resident() ? Outcome{} : come_back();
  }

  // ---- resident -> out -------------------------------------------------------------------------

  Outcome leave() {
    const char* reason = "";
    if (!host_arena_fits(wanted_host_bytes(), channel::host_allowance(*link_->control), reason)) {
      return {channel::kMoveNoHostMemory, reason};
    }
    enter_state(channel::kDraining);
    const Outcome drained = drain();
    if (drained.result != channel::kMoveDone) {
      open_memory_gate();
      enter_state(channel::kResident);
      return drained;
    }
    return copy_out();
  }

  Outcome copy_out() {
    moving_since_ns_ = channel::monotonic_ns();
    enter_state(channel::kLeaving);
    const MoveResult moved = move_out(goes_on_out);
    if (moved.end == MoveEnd::kDone) {
      enter_state(channel::kOut);
      return {};
    }
    if (ends()) {
      stay_out();
    } else {
      undo();
    }
    switch (moved.end) {
      case MoveEnd::kReplaced:
        return {channel::kMoveReplaced, "a later order came first"};
      case MoveEnd::kNoHostMemory:
        return {channel::kMoveNoHostMemory, moved.reason};
      default:
        return {channel::kMoveRefused, moved.reason};
    }
  }

  // What an order that failed has moved comes back; where it cannot, it is tried again and again.
  void undo() {
    const Outcome back = come_back();
    returns_ = back.result != channel::kMoveDone;
  }

  // Of a process that ends: what is out stays there until somebody asks for it.
  void stay_out() {
    returns_ = true;
    enter_state(channel::kOut);
  }

  Outcome drain() {
    const uint64_t deadline = channel::monotonic_ns() + drain_ns_;
    const Outcome replaced{channel::kMoveReplaced, "a later order came first"};
    for (;;) {
      // A capture that is open has to end before its streams can be looked at, and none begins
      // while the gate is shut.
      while (open_captures.load(std::memory_order_seq_cst) > 0) {
        if (channel::monotonic_ns() >= deadline)
          return {channel::kMoveBusy, "a stream capture is open"};
        if (!goes_on_out()) return replaced;
        pause(kDrainPollNs);
      }
      while (!shut_memory_gate(std::min(deadline, channel::monotonic_ns() + kSliceNs))) {
        if (channel::monotonic_ns() >= deadline)
          return {channel::kMoveBusy, "a call that uses device memory did not return in time"};
        if (!goes_on_out()) return replaced;
      }
      if (open_captures.load(std::memory_order_seq_cst) <= 0) break;
      open_memory_gate();
    }
    while (work_of_program() == Work::kUnderWay) {
      if (channel::monotonic_ns() >= deadline) {
        return {channel::kMoveBusy, "submitted work did not complete in time"};
      }
      if (!goes_on_out()) return replaced;
      pause(kDrainPollNs);
    }
    ContextWork work;
    do {
      work = wait_for_work(std::min(deadline, channel::monotonic_ns() + kSliceNs));
      if (!goes_on_out()) return replaced;
    } while (work == ContextWork::kUnderWay && channel::monotonic_ns() < deadline);
    switch (work) {
      case ContextWork::kUnderWay:
        return {channel::kMoveBusy, "submitted work did not complete in time"};
      case ContextWork::kCannotAsk:
        return {channel::kMoveBusy, "the driver does not say whether submitted work is complete"};
      default:
        return {};
    }
  }

  // ---- out -> resident -------------------------------------------------------------------------

  Outcome come_back() {
    moving_since_ns_ = channel::monotonic_ns();
    enter_state(channel::kReturning);
    const MoveResult moved = move_back(goes_on_back);
    if (moved.end == MoveEnd::kDone) {
      open_memory_gate();
      enter_state(channel::kResident);
      return {};
    }
    if (ends()) {
      stay_out();
    } else {
      enter_state(channel::kOut);
    }
    switch (moved.end) {
      case MoveEnd::kReplaced:
        return {channel::kMoveReplaced, "a later order came first"};
      case MoveEnd::kNoDeviceMemory:
        return {channel::kMoveNoDeviceMemory, moved.reason};
      default:
        return {channel::kMoveRefused, moved.reason};
    }
  }

  // ---- out <-> given up ------------------------------------------------------------------------

  Outcome give_up() {
    if ((abilities() & channel::kCanGiveUp) == 0) {
      return {channel::kMoveRefused, "the driver has no checkpoint of processes"};
    }
    if (moving_since_ns_ == 0) moving_since_ns_ = channel::monotonic_ns();
    enter_state(channel::kGivingUp);
    OwnCall own(thread_state);
    CUcheckpointLockArgs how;
    memset(&how, 0, sizeof how);
    how.timeoutMs = current_.drain_ms != 0 ? current_.drain_ms : kDefaultDrainMs;
    CUresult result = driver().cuCheckpointProcessLock(getpid(), &how);
    if (result == CUDA_SUCCESS) {
      CUcheckpointCheckpointArgs arguments;
      memset(&arguments, 0, sizeof arguments);
      result = driver().cuCheckpointProcessCheckpoint(getpid(), &arguments);
      if (result != CUDA_SUCCESS) unlock();
    }
    if (result == CUDA_SUCCESS) {
      enter_state(channel::kGivenUp);
      return {};
    }
    enter_state(channel::kOut);
    if (result == CUDA_ERROR_NOT_READY) {
      return {channel::kMoveBusy, "calls into the driver did not return in time"};
    }
    const char* fixed = fixed_memory_reason();
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
      return {channel::kMoveRefused,
              fixed[0] != '\0'
                  ? fixed
                  : "the driver refused a checkpoint: managed, shared or imported memory, or MPS"};
    }
    snprintf(reason_, sizeof reason_, "the driver refused a checkpoint (error %d)",
             static_cast<int>(result));
    return {channel::kMoveRefused, reason_};
  }

  static void unlock() {
    CUcheckpointUnlockArgs arguments;
    memset(&arguments, 0, sizeof arguments);
    driver().cuCheckpointProcessUnlock(getpid(), &arguments);
  }

  Outcome restore(const lull_order& order) {
    moving_since_ns_ = channel::monotonic_ns();
    enter_state(channel::kRestoring);
    OwnCall own(thread_state);
    CUcheckpointGpuPair pairs[channel::kMaxDevices];
    const uint32_t count = std::min(order.pair_count, channel::kMaxDevices);
    for (uint32_t n = 0; n < count; ++n) {
      memcpy(pairs[n].oldUuid.bytes, order.pair[n].from, 16);
      memcpy(pairs[n].newUuid.bytes, order.pair[n].to, 16);
    }
    CUcheckpointRestoreArgs how;
    memset(&how, 0, sizeof how);
    if (count != 0) {
      how.gpuPairs = pairs;
      how.gpuPairsCount = count;
    }
    const CUresult result = driver().cuCheckpointProcessRestore(getpid(), &how);
    if (result != CUDA_SUCCESS) return restore_failed(result);
    unlock();
    if (count != 0) devices_moved();
    if (devices_in_use() > 0) check_host_arena(device_ordinal(0));
    enter_state(channel::kOut);
    return {};
  }

  Outcome restore_failed(CUresult result) {
    CUprocessState driver_state = CU_PROCESS_STATE_FAILED;
    const CUresult asked = driver().cuCheckpointProcessGetState(getpid(), &driver_state);
    if (asked == CUDA_SUCCESS && driver_state == CU_PROCESS_STATE_CHECKPOINTED) {
      enter_state(channel::kGivenUp);
      snprintf(reason_, sizeof reason_, "the driver refused to restore the context (error %d)",
               static_cast<int>(result));
      return {
          result == CUDA_ERROR_OUT_OF_MEMORY ? channel::kMoveNoDeviceMemory : channel::kMoveRefused,
          reason_};
    }
    say("lull: the driver could not restore this process's GPU context (error %d): its calls never "
        "return: "
        "end the program",
        static_cast<int>(result));
    enter_state(channel::kLost);
    return {channel::kMoveRefused, "the driver could not restore the context: the process is lost"};
  }

  // ---- without a coordinator -------------------------------------------------------------------

  // True: something has changed.
  bool way_back_alone() {
    GpuLocks locks;
    if (!locks.take()) return false;
    const lull_order nowhere{};
    if (state_ == channel::kGivenUp) {
      if (!has_room_for_context()) return false;
      if (restore(nowhere).result != channel::kMoveDone) return false;
    }
    if (!has_room_for_memory() || come_back().result != channel::kMoveDone) return false;
    has_returned_ = !returns_;
    returns_ = false;
    return true;
  }

  // Trying costs the GPU work, and whoever looks a state that comes and goes.
  static bool has_room_for_memory() {
    OwnCall own(thread_state);
    for (uint32_t device = 0; device < devices_in_use(); ++device) {
      const uint64_t needed = absent_bytes(device);
      size_t free_bytes = 0;
      size_t total = 0;
      if (needed != 0 &&
          driver().cuCtxSetCurrent(context_on(device_ordinal(device))) == CUDA_SUCCESS &&
          driver().cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS && free_bytes < needed) {
        return false;
      }
    }
    return true;
  }

  // A restore without memory is the end of the process: only where the GPU shows what the driver
  // took out, and a tenth more. Where nothing can be asked, the lock of the GPU has to do.
  static bool has_room_for_context() {
    for (uint32_t device = 0; device < devices_in_use(); ++device) {
      uint8_t uuid[16];
      device_uuid(device, uuid);
      const uint64_t needed = fixed_bytes(device) + kContextBytes;
      if (free_on_gpu(uuid) < needed + needed / 10) return false;
    }
    return true;
  }

  // ---- at rest ---------------------------------------------------------------------------------

  // One piece of the host arena; how long to wait then.
  uint64_t prepare() {
    if (link_ == nullptr || devices_in_use() == 0 || !still_there(*link_)) return kIdleNs;
    const uint64_t wanted = wanted_host_bytes();
    trim_host_arena(wanted);
    const char* reason = "";
    const HostMemory made = prepare_host_arena(wanted, channel::host_allowance(*link_->control),
                                               device_ordinal(0), reason);
    if (made == HostMemory::kRefused) return kIdleNs;
    publish_figures();
    if (made == HostMemory::kReady) return kIdleNs;
    return open_captures.load(std::memory_order_relaxed) > 0 ? kSuspendedNs : 0;
  }

  void sleep(uint64_t ns) {
    uint32_t* word = reinterpret_cast<uint32_t*>(&bell);
    uint32_t seen = seen_bell_;
    bool shared = false;
    if (link_ != nullptr) {
      word = &link_->control->order.number;
      seen = handled_;
      shared = true;
    }
    waits_at.store(word, std::memory_order_seq_cst);
    // Told in between: the bell has moved.
    if (bell.load(std::memory_order_seq_cst) == seen_bell_) futex_wait(word, seen, ns, !shared);
    waits_at.store(nullptr, std::memory_order_seq_cst);
  }

  static void pause(uint64_t ns) {
    const timespec time{0, static_cast<long>(ns)};
    nanosleep(&time, nullptr);
  }

 public:
  static Service* self;

 private:
  Attachment* link_ = nullptr;
  lull_residence_state state_ = channel::kResident;
  uint32_t handled_ = 0;
  lull_order current_{};
  bool returns_ = false;  // a failed order has left memory out
  bool has_returned_ = false;  // alone, and no coordinator has ordered anything since
  bool silent_ = false;
  Silence silence_{0, 0};
  uint64_t rung_ns_ = 0;
  uint64_t drain_ns_ = 0;
  uint64_t moving_since_ns_ = 0;
  uint64_t said_swappable_ = UINT64_MAX;
  uint32_t abilities_ = 0;
  uint32_t seen_bell_ = 0;
  char reason_[96] = {};
};

Service* Service::self;

void* serve(void*) {
  prctl(PR_SET_NAME, "lull", 0, 0, 0);
  // What it calls is nobody's unit of work.
  thread_state.depth = 1;
  Service service;
  Service::self = &service;
  service.run();
}

// The libraries that the thread calls come down after this: it breaks off what it is at, and rests.
void process_exits(void*) {
  exiting.store(1, std::memory_order_release);
  Locked locked(step_lock);
}

void ring_bell() {
  bell.fetch_add(1, std::memory_order_seq_cst);
  uint32_t* word = waits_at.load(std::memory_order_seq_cst);
  if (word == nullptr) return;
  KeepErrno keep;
  // In memory of the coordinator's or of our own.
  futex_wake(word, 1, word == reinterpret_cast<uint32_t*>(&bell));
}

}  // namespace

void want_service() {
  if (!can_move.load(std::memory_order_relaxed)) return;
  uint32_t no = 0;
  if (started.load(std::memory_order_relaxed) != 0 ||
      !started.compare_exchange_strong(no, 1, std::memory_order_relaxed)) {
    return;
  }
  KeepErrno keep;
  static bool registered;
  if (!registered) {
    registered = true;
    __cxa_atexit(process_exits, nullptr, &__dso_handle);
  }
  // Without it nothing ever moves; asked again at the next allocation.
  if (!start_quiet_thread(serve)) started.store(0, std::memory_order_relaxed);
}

void tell_service() {
  if (started.load(std::memory_order_relaxed) != 0) ring_bell();
}

void service_context_pauses(CUcontext context, bool dies) {
  if (!can_move.load(std::memory_order_relaxed)) return;
  context_pauses(context);
  leave_context(context);
  arena_context_pauses(context);
  if (dies) {
    host_arena_context_gone(context, /*alive=*/true);
  } else {
    host_arena_context_pauses();
  }
}

void service_context_stays(CUcontext context) { context_stays(context); }

void service_context_gone(CUcontext context) {
  if (!can_move.load(std::memory_order_relaxed)) return;
  context_ends(context);
  host_arena_context_gone(context, /*alive=*/false);
}

void forget_service() {
  started.store(0, std::memory_order_relaxed);
  exiting.store(0, std::memory_order_relaxed);
  waits_at.store(nullptr, std::memory_order_relaxed);
  step_lock.try_lock();
  step_lock.unlock();
  forget_host_arena();
  forget_live_contexts();
  forget_context_wait();
}

}  // namespace lull::shim
