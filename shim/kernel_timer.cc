#include "shim/kernel_timer.h"

#include "coordinator/channel/model_clock.h"
#include "coordinator/channel/timing_windows.h"
#include "shim/captures.h"
#include "shim/connection.h"
#include "shim/idle_start.h"
#include "shim/system.h"
#include "shim/time_base.h"

namespace lull::shim {

namespace {

// More than a driver lets a program queue on one device, so that with every launch timed the device
// and not this table is what a program waits for.
constexpr uint32_t kSamples = 4096;
constexpr uint32_t kCrowded = kSamples * 3 / 4;  // from here on unknown gaps are not waited for
constexpr uint64_t kOldSample = 1024;            // nor those of samples this many behind
constexpr uint32_t kNotReadyLimit = 4;           // questions answered "not yet" in one harvest
constexpr uint32_t kSkipLimit = 32;              // places passed over in the launch path
constexpr uint32_t kRoomKept = 64;               // records of a ring that are left to launches
constexpr uint32_t kPool = 2 * kSamples;

enum class SampleState : uint32_t { kFree, kRecording, kPending };

constexpr uint64_t kNextUnknown = 0;
constexpr uint64_t kNoNext = UINT64_MAX;

struct Sample {
  std::atomic<SampleState> state;
  uint64_t id;                  // ascending, from 1; place is id % kSamples
  std::atomic<uint64_t> next;   // id of the thread's next timed unit
  uint64_t waits_for_previous;  // 1: the sample before it still needs this begin event
  uint64_t launched_ticks;
  uint64_t sequence;
  uint64_t stream_units;  // what its stream has been given, with it; 0: not known
  uint32_t kernel;
  uint32_t device;
  uint32_t stream;
  uint32_t base;
  CUcontext context;
  CUevent begin;
  CUevent end;
  bool idle;     // the stream, when the begin event was submitted
  bool ran_dry;  // it was busy then, and idle before the launch call returned
  bool settled;
  uint64_t begun_host_ns;  // begin event submitted
  uint64_t lead_ns;        // then until the launch call returned, host time
  uint64_t trail_ns;       // then until the end event was submitted
  SettledUnit unit;        // once settled
  bool starts_late() const { return idle || ran_dry; }  // after its begin event
};

struct PooledEvent {
  CUcontext context;
  CUevent event;
};

Lock timer_lock;
constinit Sample samples[kSamples];
uint64_t last_id;
uint64_t oldest_id = 1;  // no older sample is in use
std::atomic<uint32_t> in_use;
PooledEvent pool[kPool];
uint32_t pooled;
// By first slot of a stream: the last sample that went to it, of any thread. Under timer_lock.
uint64_t last_on_stream[channel::kMaxStreams];
// The shortest run seen of each kernel slot, ns + 1; 0: none.
uint32_t shortest[channel::kMaxKernels];

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
  leave_base(sample.base);
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

// Under timer_lock, both events complete.
const SettledUnit& settle_sample(Attachment& link, Sample& sample) {
  if (sample.settled) return sample.unit;
  sample.settled = true;
  MeasuredUnit measured;
  measured.measured_ns = elapsed_ns(sample.begin, sample.end);
  measured.idle = sample.idle;
  measured.ran_dry = sample.ran_dry;
  measured.lead_ns = channel::device_ns(*link.control, sample.lead_ns);
  measured.trail_ns = channel::device_ns(*link.control, sample.trail_ns);
  uint32_t& least = shortest[sample.kernel];
  if (least != 0) measured.shortest_ns = least - 1;
  sample.unit = settle(measured);
  if (sample.unit.trusted && sample.unit.duration_ns < measured.shortest_ns &&
      sample.unit.duration_ns < UINT32_MAX - 1) {
    least = static_cast<uint32_t>(sample.unit.duration_ns) + 1;
  }
  return sample.unit;
}

// Under timer_lock, inside Relaxed.
enum class Look { kDone, kNotReady, kLater };
Look look_at(ThreadState& thread, Attachment& link, Sample& sample, bool impatient) {
  if (sample.waits_for_previous != 0) return Look::kLater;
  uint64_t next = sample.next.load(std::memory_order_acquire);
  const CUresult end = driver().cuEventQuery(sample.end);
  if (end == CUDA_ERROR_NOT_READY) return Look::kNotReady;
  if (next == kNextUnknown && !impatient) return Look::kLater;
  if (end != CUDA_SUCCESS) {
    drop(sample, /*events_live=*/false);
    return Look::kDone;
  }
  const SettledUnit& unit = settle_sample(link, sample);
  uint64_t gap = channel::kGapUnknown;
  if (next != kNextUnknown && next != kNoNext) {
    Sample& follower = sample_of(next);
    if (follower.id == next && follower.context == sample.context) {
      const CUresult begun = driver().cuEventQuery(follower.starts_late() ? follower.end : follower.begin);
      if (begun == CUDA_ERROR_NOT_READY) return Look::kNotReady;
      if (begun == CUDA_SUCCESS) {
        gap = elapsed_ns(sample.end, follower.begin) + unit.end_shift_ns;
        if (follower.starts_late()) gap += settle_sample(link, follower).start_shift_ns;
      }
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
  record.sequence = sample.sequence;
  record.tsc = sample.launched_ticks;
  record.value0 = unit.duration_ns;
  record.value1 = gap;
  record.device_start = device_start(sample.base, sample.begin, unit.start_shift_ns);
  push(thread, link, record);
  drop(sample, /*events_live=*/true);
  return Look::kDone;
}

enum class Harvest { kQuick, kThorough, kLast };  // launch path, synchronised, context goes

// Under timer_lock, inside Relaxed. Returns the stream slots that were found busy.
uint64_t harvest(ThreadState& thread, Attachment& link, Harvest how) {
  if (in_use.load(std::memory_order_relaxed) == 0) return 0;
  uint32_t not_ready = 0;
  uint32_t skipped = 0;
  uint32_t room = ring_room(thread, link);
  bool done = false;
  uint64_t busy = 0;
  const uint64_t newest = last_id;
  while (oldest_id <= newest &&
         sample_of(oldest_id).state.load(std::memory_order_relaxed) == SampleState::kFree) {
    ++oldest_id;
  }
  // From the oldest on, so that chains are met in their order; each place at most once.
  uint32_t places = 0;
  for (uint64_t id = oldest_id; id <= newest && places < kSamples; ++id, ++places) {
    if (not_ready >= kNotReadyLimit) break;
    if (room <= kRoomKept) {
      // They stay until the daemon has made room, instead of pushing launches out.
      done = true;
      break;
    }
    Sample& sample = sample_of(id);
    if (sample.state.load(std::memory_order_acquire) != SampleState::kPending) continue;
    const uint64_t stream = uint64_t{1} << sample.stream;
    // What comes later on a busy stream is not complete either.
    if ((busy & stream) != 0) {
      if (how == Harvest::kQuick && ++skipped >= kSkipLimit) break;
      continue;
    }
    const bool impatient = how == Harvest::kLast ||
                           in_use.load(std::memory_order_relaxed) >= kCrowded ||
                           newest - sample.id >= kOldSample;
    const Look look = look_at(thread, link, sample, impatient);
    if (look == Look::kNotReady) {
      ++not_ready;
      if (sample.stream != channel::kUntrackedStream) busy |= stream;
    }
    if (look == Look::kDone) {
      done = true;
      --room;
    }
  }
  if (done) ring_doorbell(link);
  return busy;
}

// Under timer_lock. 0: all places are taken.
uint64_t free_id() {
  if (in_use.load(std::memory_order_relaxed) >= kSamples) return 0;
  for (uint32_t n = 1; n <= kSamples; ++n) {
    if (sample_of(last_id + n).id == 0) return last_id + n;
  }
  return 0;
}

// Under timer_lock: places, events and base for one more; null: no room.
Sample* take_sample(CUcontext context, CUevent& base_event) {
  const uint64_t id = free_id();
  if (id == 0) return nullptr;
  const CUevent begin = take_event(context);
  const CUevent end = take_event(context);
  if (begin == nullptr || end == nullptr) {
    give_event(context, begin);
    give_event(context, end);
    return nullptr;
  }
  Sample& sample = sample_of(id);
  last_id = id;
  sample.id = id;
  sample.next.store(kNextUnknown, std::memory_order_relaxed);
  sample.waits_for_previous = 0;
  sample.context = context;
  sample.begin = begin;
  sample.end = end;
  sample.ran_dry = false;
  sample.settled = false;
  const BaseForSample base = base_for(context, channel::monotonic_ns());
  sample.base = base.index;
  base_event = base.record;
  sample.state.store(SampleState::kRecording, std::memory_order_release);
  in_use.fetch_add(1, std::memory_order_relaxed);
  return &sample;
}

void move_window(ThreadState& thread, uint32_t period, ShapeEntry& entry, uint32_t had) {
  const uint32_t before = entry.launches_to_window.load(std::memory_order_relaxed);
  uint32_t to_window = before;
  channel::move_window(period, had, to_window, thread.window);
  if (to_window != before) {
    entry.launches_to_window.store(to_window, std::memory_order_relaxed);
  }
}

bool record_event(ThreadState& thread, CUevent event, uintptr_t stream) {
  OwnCall own(thread);
  return driver().cuEventRecord(event, stream_of(stream)) == CUDA_SUCCESS;
}

// 0: not timed.
uint64_t begin_sample(ThreadState& thread, Attachment& link, const UnitToTime& unit,
                      uint32_t period) {
  if (unit.undisturbed || open_captures.load(std::memory_order_relaxed) > 0) return 0;
  if (unit.stream == kLegacyHandle && live_blocking_streams.load(std::memory_order_relaxed) > 0) {
    return 0;
  }
  if (period == 1) {
    timer_lock.lock();
  } else if (!timer_lock.try_lock()) {
    return 0;  // another thread's turn
  }
  Sample* sample = nullptr;
  uint64_t id = 0;
  CUevent base_event = nullptr;
  {
    Relaxed relaxed(thread);
    const uint64_t busy = harvest(thread, link, Harvest::kQuick);
    CUcontext context = nullptr;
    if (driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != nullptr) {
      sample = take_sample(context, base_event);
    }
    if (sample != nullptr) {
      id = sample->id;
      sample->launched_ticks = channel::ticks();
      sample->sequence = unit.sequence;
      sample->kernel = unit.entry->slot.load(std::memory_order_relaxed);
      sample->device = unit.device;
      sample->stream = unit.stream_slot;
      sample->stream_units = units_of_stream(thread, unit.stream);
      // The harvest has often found out already; else the driver knows.
      sample->idle = (busy >> unit.stream_slot & 1) == 0 &&
                     driver().cuStreamQuery(stream_of(unit.stream)) == CUDA_SUCCESS;
    }
  }
  timer_lock.unlock();
  if (sample == nullptr) return 0;
  // Without the lock: a full stream makes the driver wait, perhaps for another of our threads.
  if (base_event != nullptr) {
    const bool recorded = record_event(thread, base_event, unit.stream);
    Locked locked(timer_lock);
    OwnCall own(thread);
    if (sample->id == id) base_recorded(sample->base, recorded);
  }
  if (record_event(thread, sample->begin, unit.stream)) {
    sample->begun_host_ns = channel::monotonic_ns();
    return id;
  }
  Locked locked(timer_lock);
  OwnCall own(thread);
  if (sample->id == id) drop(*sample, /*events_live=*/true);
  return 0;
}

// Under timer_lock. The gap of the sample before this one ends where this one begins.
void link_to_previous(ThreadState& thread, Sample& sample, uint32_t first_slot) {
  const auto link = [&sample](uint64_t previous_id, uint64_t next) {
    Sample& previous = sample_of(previous_id);
    uint64_t unknown = kNextUnknown;
    if (previous_id == 0 || previous.id != previous_id) return false;
    const bool linked =
        previous.next.compare_exchange_strong(unknown, next, std::memory_order_acq_rel);
    if (linked && next == sample.id) sample.waits_for_previous = 1;
    return linked;
  };
  const auto one_behind = [&sample](uint64_t id) {
    const Sample& before = sample_of(id);
    return id != 0 && before.id == id && before.stream_units + 1 == sample.stream_units;
  };
  const uint64_t own = thread.last_sample;
  const bool same_stream = own != 0 && sample_of(own).id == own &&
                           sample_of(own).stream == sample.stream && sample.stream_units != 0;
  if (!same_stream || one_behind(own)) {
    if (link(own, sample.id)) return;
  } else {
    link(own, kNoNext);  // other threads have been there in between, untimed
  }
  if (first_slot == channel::kUntrackedStream || sample.stream_units == 0) return;
  const uint64_t last = last_on_stream[first_slot];
  if (last != own && one_behind(last)) link(last, sample.id);
}

}  // namespace

bool timing_pending() { return in_use.load(std::memory_order_relaxed) != 0; }

void harvest_timing(ThreadState& thread, Attachment& link) {
  if (!timing_pending() || open_captures.load(std::memory_order_relaxed) > 0) return;
  if (!timer_lock.try_lock()) return;
  {
    Relaxed relaxed(thread);
    harvest(thread, link, Harvest::kThorough);
  }
  timer_lock.unlock();
}

uint64_t begin_timing(ThreadState& thread, Attachment& link, const UnitToTime& unit,
                      uint32_t period) {
  const uint32_t had = unit.entry->samples.load(std::memory_order_relaxed);
  if (period > 1) move_window(thread, period, *unit.entry, had);
  const uint64_t id = begin_sample(thread, link, unit, period);
  if (id != 0) {
    unit.entry->samples.store(had + 1, std::memory_order_relaxed);
  } else if (period == 1) {
    count(thread, link, Counter::kUntimed, 1);
  }
  return id;
}

void end_timing(ThreadState& thread, uint64_t id, uintptr_t stream, bool launched) {
  Sample& sample = sample_of(id);
  const uint64_t launched_host_ns = channel::monotonic_ns();
  sample.lead_ns = launched_host_ns - sample.begun_host_ns;
  if (!sample.idle && sample.lead_ns > kHeldUpNs) {
    // Held up by the machine, with the device running dry, or by a queue that is full?
    Relaxed relaxed(thread);
    sample.ran_dry = driver().cuEventQuery(sample.begin) == CUDA_SUCCESS;
  }
  const bool recorded = launched && record_event(thread, sample.end, stream);
  sample.trail_ns = channel::monotonic_ns() - launched_host_ns;
  if (!recorded) {
    break_chain(thread);
    Locked locked(timer_lock);
    OwnCall own(thread);
    if (sample.id == id) drop(sample, /*events_live=*/true);
    return;
  }
  const uint32_t first_slot = slot_if_bound(thread, stream);
  {
    // Under the lock, so that the predecessor is not harvested and reused in between.
    Locked locked(timer_lock);
    link_to_previous(thread, sample, first_slot);
    if (first_slot != channel::kUntrackedStream) {
      const Sample& newest = sample_of(last_on_stream[first_slot]);
      const bool newer = newest.id != 0 && newest.id == last_on_stream[first_slot] &&
                         newest.stream_units > sample.stream_units;
      if (!newer) last_on_stream[first_slot] = id;
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

void timing_context_gone(CUcontext context, ContextEnd end) {
  if (context == nullptr) return;
  ThreadState& thread = thread_state;
  Locked locked(timer_lock);
  Attachment* link = attachment.load(std::memory_order_acquire);
  if (thread.attachment != link) link = nullptr;
  if (timing_pending() && open_captures.load(std::memory_order_relaxed) == 0 &&
      end != ContextEnd::kDid && link != nullptr) {
    Relaxed relaxed(thread);
    harvest(thread, *link, Harvest::kLast);
  }
  uint64_t lost = 0;  // those that are not complete, or found no room in the ring
  OwnCall own(thread);
  for (Sample& sample : samples) {
    if (sample.id == 0 || sample.context != context) continue;
    // Its thread is between begin_timing and end_timing and uses its events without the lock.
    const bool in_launch =
        sample.state.load(std::memory_order_acquire) == SampleState::kRecording;
    if (in_launch && end == ContextEnd::kMay) continue;
    if (!in_launch && end != ContextEnd::kDid) {
      // The context may live on, and they would with it.
      driver().cuEventDestroy_v2(sample.begin);
      driver().cuEventDestroy_v2(sample.end);
    }
    drop(sample, /*events_live=*/false);
    lost += 1;
  }
  if (lost > 0 && link != nullptr && channel::timing_period(*link->control) == 1)
    count(thread, *link, Counter::kUntimed, lost);
  for (uint32_t n = 0; n < pooled;) {
    if (pool[n].context == context) {
      if (end != ContextEnd::kDid) driver().cuEventDestroy_v2(pool[n].event);
      pool[n] = pool[--pooled];
    } else {
      ++n;
    }
  }
  bases_context_gone(context, end);
}

void forget_timing() {
  Locked locked(timer_lock);
  for (Sample& sample : samples) {
    sample.id = 0;
    sample.state.store(SampleState::kFree, std::memory_order_relaxed);
  }
  forget_bases();
  pooled = 0;
  in_use.store(0, std::memory_order_relaxed);
}

void lock_timer() { timer_lock.lock(); }
void unlock_timer() { timer_lock.unlock(); }

}  // namespace lull::shim
