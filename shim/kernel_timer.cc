#include "shim/kernel_timer.h"

#include "shim/connection.h"
#include "shim/system.h"

namespace lull::shim {

namespace {

constexpr uint32_t kSamples = 128;
constexpr uint32_t kCrowded = 96;      // from here on unknown gaps are not waited for
constexpr uint32_t kNotReadyLimit = 4;  // questions answered "not yet" in one harvest
constexpr uint32_t kPool = 512;

enum class SampleState : uint32_t { kFree, kRecording, kPending };

constexpr uint64_t kNextUnknown = 0;
constexpr uint64_t kNoNext = UINT64_MAX;

struct Sample {
  std::atomic<SampleState> state;
  uint64_t id;                  // ascending, from 1; place is id % kSamples
  std::atomic<uint64_t> next;   // id of the thread's next timed unit
  uint64_t waits_for_previous;  // 1: the sample before it still needs this begin event
  uint64_t launched_ticks;
  uint32_t kernel;
  uint32_t device;
  uint32_t stream;
  CUcontext context;
  CUevent begin;
  CUevent end;
};

struct PooledEvent {
  CUcontext context;
  CUevent event;
};

Lock timer_lock;
constinit Sample samples[kSamples];
uint64_t last_id;
std::atomic<uint32_t> in_use;
PooledEvent pool[kPool];
uint32_t pooled;

Sample& sample_of(uint64_t id) { return samples[id % kSamples]; }

// Own calls that a capture of another thread would forbid.
class Relaxed {
 public:
  explicit Relaxed(ThreadState& thread) : own_(thread) {
    driver().cuThreadExchangeStreamCaptureMode(&mode_);
  }
  ~Relaxed() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }
  Relaxed(const Relaxed&) = delete;

 private:
  Cancellation off_;  // nothing unwinds while timer_lock is held
  OwnCall own_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// Under timer_lock.
CUevent take_event(CUcontext context) {
  for (uint32_t n = pooled; n-- > 0;) {
    if (pool[n].context != context) continue;
    const CUevent event = pool[n].event;
    pool[n] = pool[--pooled];
    return event;
  }
  CUevent event = nullptr;
  return driver().cuEventCreate(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS ? event : nullptr;
}
void give_event(CUcontext context, CUevent event) {
  if (event == nullptr) return;
  if (pooled < kPool) {
    pool[pooled++] = {context, event};
  } else {
    driver().cuEventDestroy_v2(event);
  }
}

void drop(Sample& sample, bool events_live) {
  if (events_live) {
    give_event(sample.context, sample.begin);
    give_event(sample.context, sample.end);
  }
  const uint64_t next = sample.next.load(std::memory_order_relaxed);
  if (next != kNextUnknown && next != kNoNext && sample_of(next).id == next) {
    sample_of(next).waits_for_previous = 0;
  }
  sample.id = 0;
  sample.begin = sample.end = nullptr;
  sample.state.store(SampleState::kFree, std::memory_order_release);
  in_use.fetch_sub(1, std::memory_order_relaxed);
}

uint64_t elapsed_ns(CUevent from, CUevent to) {
  float ms = 0;
  if (driver().cuEventElapsedTime(&ms, from, to) != CUDA_SUCCESS || ms <= 0) return 0;
  return static_cast<uint64_t>(static_cast<double>(ms) * 1e6 + 0.5);
}

// Under timer_lock, inside Relaxed. True: the sample is done with.
enum class Look { kDone, kNotReady, kLater };
Look look_at(ThreadState& thread, Attachment& link, Sample& sample, bool crowded) {
  if (sample.waits_for_previous != 0) return Look::kLater;
  uint64_t next = sample.next.load(std::memory_order_acquire);
  if (next == kNextUnknown && !crowded) return Look::kLater;
  const CUresult end = driver().cuEventQuery(sample.end);
  if (end == CUDA_ERROR_NOT_READY) return Look::kNotReady;
  if (end != CUDA_SUCCESS) {
    drop(sample, /*events_live=*/false);
    return Look::kDone;
  }
  uint64_t gap = channel::kGapUnknown;
  if (next != kNextUnknown && next != kNoNext) {
    Sample& follower = sample_of(next);
    if (follower.id == next && follower.context == sample.context) {
      const CUresult begun = driver().cuEventQuery(follower.begin);
      if (begun == CUDA_ERROR_NOT_READY) return Look::kNotReady;
      if (begun == CUDA_SUCCESS) gap = elapsed_ns(sample.end, follower.begin);
    }
  }
  if (next == kNextUnknown) {
    // Decided now; the owner may be setting it at this moment, then it loses.
    sample.next.compare_exchange_strong(next, kNoNext, std::memory_order_acq_rel);
  }
  channel::lull_record record{};
  record.kind = channel::kRecordTiming;
  record.kernel = sample.kernel;
  record.device = sample.device;
  record.stream = sample.stream;
  record.sequence = sample.launched_ticks;
  record.tsc = channel::ticks();
  record.value0 = elapsed_ns(sample.begin, sample.end);
  record.value1 = gap;
  push(thread, link, record);
  drop(sample, /*events_live=*/true);
  return Look::kDone;
}

// Under timer_lock, inside Relaxed.
void harvest(ThreadState& thread, Attachment& link) {
  if (in_use.load(std::memory_order_relaxed) == 0) return;
  uint32_t not_ready = 0;
  bool done = false;
  // From the oldest place on, so that chains are met in their order.
  for (uint64_t id = last_id + 1; id <= last_id + kSamples && not_ready < kNotReadyLimit; ++id) {
    Sample& sample = sample_of(id);
    if (sample.state.load(std::memory_order_acquire) != SampleState::kPending) continue;
    const bool crowded = in_use.load(std::memory_order_relaxed) >= kCrowded;
    const Look look = look_at(thread, link, sample, crowded);
    if (look == Look::kNotReady) ++not_ready;
    if (look == Look::kDone) done = true;
  }
  if (done) ring_doorbell(link);
}

// Under timer_lock. 0: all places are taken.
uint64_t free_id() {
  for (uint32_t n = 1; n <= kSamples; ++n) {
    if (sample_of(last_id + n).id == 0) return last_id + n;
  }
  return 0;
}

}  // namespace

bool timing_pending() { return in_use.load(std::memory_order_relaxed) != 0; }

void harvest_timing(ThreadState& thread, Attachment& link) {
  if (!timing_pending() || open_captures.load(std::memory_order_relaxed) > 0) return;
  if (!timer_lock.try_lock()) return;
  {
    Relaxed relaxed(thread);
    harvest(thread, link);
  }
  timer_lock.unlock();
}

uint64_t begin_timing(ThreadState& thread, Attachment& link, uint32_t period, ShapeEntry& entry,
                      uint32_t device, uint32_t stream_slot, uintptr_t stream) {
  if (open_captures.load(std::memory_order_relaxed) > 0) return 0;
  if (stream == kLegacyHandle && live_blocking_streams.load(std::memory_order_relaxed) > 0) {
    return 0;
  }
  const uint32_t had = entry.samples.load(std::memory_order_relaxed);
  if (entry.launches_to_window.load(std::memory_order_relaxed) == 0) {
    if (had >= kWarmUpSamples) {
      entry.launches_to_window.store(period, std::memory_order_relaxed);
      thread.window_left = kWindowUnits;
    } else if (had + 1 >= kWarmUpSamples) {
      entry.launches_to_window.store(period, std::memory_order_relaxed);
    }
  }
  // Also when it comes to nothing, or a window that cannot be timed would never end.
  if (thread.window_left != 0) --thread.window_left;
  if (!timer_lock.try_lock()) return 0;  // another thread's turn
  uint64_t id = 0;
  {
    Relaxed relaxed(thread);
    harvest(thread, link);
    const uint64_t free = free_id();
    Sample& sample = sample_of(free);
    CUcontext context = nullptr;
    if (free != 0 && driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS &&
        context != nullptr) {
      const CUevent begin = take_event(context);
      const CUevent end = take_event(context);
      if (begin != nullptr && end != nullptr) {
        id = last_id = free;
        sample.id = id;
        sample.next.store(kNextUnknown, std::memory_order_relaxed);
        sample.waits_for_previous = 0;
        sample.launched_ticks = channel::ticks();
        sample.kernel = entry.slot.load(std::memory_order_relaxed);
        sample.device = device;
        sample.stream = stream_slot;
        sample.context = context;
        sample.begin = begin;
        sample.end = end;
        sample.state.store(SampleState::kRecording, std::memory_order_release);
        in_use.fetch_add(1, std::memory_order_relaxed);
      } else {
        give_event(context, begin);
        give_event(context, end);
      }
    }
  }
  timer_lock.unlock();
  // Without the lock: a full stream makes the driver wait, perhaps for another of our threads.
  if (id != 0) {
    Sample& sample = sample_of(id);
    bool recorded;
    {
      OwnCall own(thread);
      recorded = driver().cuEventRecord(sample.begin, stream_of(stream)) == CUDA_SUCCESS;
    }
    if (!recorded) {
      Locked locked(timer_lock);
      OwnCall own(thread);
      if (sample.id == id) drop(sample, /*events_live=*/true);
      id = 0;
    }
  }
  if (id != 0) entry.samples.store(had + 1, std::memory_order_relaxed);
  return id;
}

void end_timing(ThreadState& thread, uint64_t id, uintptr_t stream, bool launched) {
  Sample& sample = sample_of(id);
  bool recorded = false;
  if (launched) {
    OwnCall own(thread);
    recorded = driver().cuEventRecord(sample.end, stream_of(stream)) == CUDA_SUCCESS;
  }
  if (!recorded) {
    break_chain(thread);
    Locked locked(timer_lock);
    OwnCall own(thread);
    if (sample.id == id) drop(sample, /*events_live=*/true);
    return;
  }
  if (thread.last_sample != 0) {
    // Under the lock, so that the predecessor is not harvested and reused in between.
    Locked locked(timer_lock);
    Sample& previous = sample_of(thread.last_sample);
    uint64_t unknown = kNextUnknown;
    if (previous.id == thread.last_sample &&
        previous.next.compare_exchange_strong(unknown, id, std::memory_order_acq_rel)) {
      sample.waits_for_previous = 1;
    }
  }
  thread.last_sample = id;
  sample.state.store(SampleState::kPending, std::memory_order_release);
}

void break_chain_slowly(ThreadState& thread) {
  Locked locked(timer_lock);
  Sample& last = sample_of(thread.last_sample);
  uint64_t unknown = kNextUnknown;
  if (last.id == thread.last_sample) {
    last.next.compare_exchange_strong(unknown, kNoNext, std::memory_order_acq_rel);
  }
  thread.last_sample = 0;
}

void leave_timing(ThreadState& thread) { break_chain(thread); }

void timing_context_gone(CUcontext context) {
  if (context == nullptr) return;
  Locked locked(timer_lock);
  OwnCall own(thread_state);
  for (Sample& sample : samples) {
    if (sample.id != 0 && sample.context == context) drop(sample, /*events_live=*/false);
  }
  for (uint32_t n = 0; n < pooled;) {
    if (pool[n].context == context) {
      driver().cuEventDestroy_v2(pool[n].event);
      pool[n] = pool[--pooled];
    } else {
      ++n;
    }
  }
}

void forget_timing() {
  Locked locked(timer_lock);
  for (Sample& sample : samples) {
    sample.id = 0;
    sample.state.store(SampleState::kFree, std::memory_order_relaxed);
  }
  pooled = 0;
  in_use.store(0, std::memory_order_relaxed);
}

void lock_timer() { timer_lock.lock(); }
void unlock_timer() { timer_lock.unlock(); }

}  // namespace lull::shim
