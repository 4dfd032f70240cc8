#include "tools/simgpu/device/device.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tools/simgpu/device/shared_device.h"

namespace simgpu {
namespace {

using lull::channel::monotonic_ns;

constexpr uint64_t kRingFullPollRealNs = 50'000;

struct Work {
  uint64_t ns;
  uint32_t sm_demand;
};

Work work_of(const DeviceProfile& profile, const Op& op) {
  const auto copied = [&](CopyDirection direction) {
    const uint64_t ns =
        op.duration_ns != 0 ? op.duration_ns : copy_ns(profile, direction, op.bytes, op.pageable);
    return Work{ns, op.sm_demand != 0 ? op.sm_demand : copy_sm_demand(profile, op.bytes)};
  };
  switch (op.kind) {
    case OpKind::kKernel:
      return {op.duration_ns, op.sm_demand != 0 ? op.sm_demand : profile.sm_count};
    case OpKind::kCopyH2D:
      return copied(CopyDirection::kHostToDevice);
    case OpKind::kCopyD2H:
      return copied(CopyDirection::kDeviceToHost);
    case OpKind::kCopyD2D:
      return copied(CopyDirection::kDeviceToDevice);
    case OpKind::kMemset:
      return copied(CopyDirection::kMemset);
    default:
      return {0, 1};
  }
}

uint32_t process_of(const Session& session, StreamId stream) {
  return session.seen().state().context[stream.context.slot].process;
}
uint32_t load_word(uint32_t& word) {
  // Acquire: pairs with the release of whoever bumps it.
  return std::atomic_ref<uint32_t>(word).load(std::memory_order_acquire);
}

// The service thread sleeps by a bound: wake it when this stream now has something earlier.
void tell_service(Session& session, SharedDevice& shared, StreamId stream) {
  const uint32_t process = process_of(session, stream);
  process_wake& wake = shared.control().wake[process];
  if (wake.service_until == 0 || session.seen().earliest_visible(stream) >= wake.service_until)
    return;
  wake.service_until = 0;
  session.wake_service(process);
}

template <typename T>
bool parse_number(const char* text, T& value) {
  const char* end = text + std::strlen(text);
  const auto result = std::from_chars(text, end, value);
  return result.ec == std::errc() && result.ptr == end;
}

}  // namespace

Device::Device(std::unique_ptr<SharedDevice> shared) : shared_(std::move(shared)) {}
Device::~Device() = default;

std::expected<std::unique_ptr<Device>, std::string> Device::open(const std::string& path,
                                                                 const SimParameters& parameters) {
  auto shared = SharedDevice::open_or_create(path, parameters, /*replace=*/false);
  if (!shared) return std::unexpected(shared.error());
  return std::unique_ptr<Device>(new Device(std::move(*shared)));
}

uint32_t Device::device_count() const { return shared_->prefix().device_count; }
const DeviceProfile& Device::profile(uint32_t) const { return shared_->profile(); }
Sharing Device::sharing() const { return static_cast<Sharing>(shared_->prefix().sharing); }
lull::channel::ModelClock Device::clock() const { return shared_->clock(); }
uint64_t Device::control_latency_ns() const { return shared_->prefix().control_latency_ns; }
const std::string& Device::path() const { return shared_->path(); }
bool Device::forked() const { return shared_->forked(); }

std::array<uint8_t, 16> Device::uuid(uint32_t device) const {
  std::array<uint8_t, 16> uuid;
  std::memcpy(uuid.data(), shared_->prefix().uuid, uuid.size());
  uuid[lull::channel::kSimUuidIndex] += static_cast<uint8_t>(device);
  return uuid;
}

std::expected<ContextId, Status> Device::create_context(uint32_t device) {
  if (forked()) return std::unexpected(Status::kForked);
  if (device >= device_count()) return std::unexpected(Status::kStale);
  Session session(*shared_);
  auto process = session.own_process();
  if (!process) return std::unexpected(process.error());
  return session.model().create_context(*process, device);
}

Status Device::destroy_context(ContextId context) {
  if (forked()) return Status::kForked;
  Session session(*shared_);
  if (!session.seen().valid(context)) return Status::kStale;
  session.wake_everybody();
  return session.model().destroy_context(context);
}

std::expected<StreamId, Status> Device::create_stream(ContextId context) {
  if (forked()) return std::unexpected(Status::kForked);
  Session session(*shared_);
  if (!session.seen().valid(context)) return std::unexpected(Status::kStale);
  return session.model().create_stream(context);
}

Status Device::destroy_stream(StreamId stream) {
  if (forked()) return Status::kForked;
  Session session(*shared_);
  if (!session.seen().valid(stream)) return Status::kStale;
  session.wake_changed(process_of(session, stream));
  return session.model().destroy_stream(stream);
}

std::expected<Seq, Status> Device::submit(StreamId stream, const Op& op) {
  return submit(stream, std::span<const Op>(&op, 1));
}

std::expected<Seq, Status> Device::submit(StreamId stream, std::span<const Op> ops) {
  Seq last = 0;
  size_t done = 0;
  while (done < ops.size()) {
    if (forked()) return std::unexpected(Status::kForked);
    uint64_t retry_real_ns = 0;
    uint32_t* word = nullptr;
    uint32_t seen = 0;
    {
      Session session(*shared_);
      if (!session.seen().valid(stream)) return std::unexpected(Status::kStale);
      bool visible = false;
      for (; done < ops.size(); ++done) {
        const uint32_t in_flight = session.seen().state().context[stream.context.slot].op_count;
        if (in_flight == kMaxOps) break;
        const Work work = work_of(shared_->profile(), ops[done]);
        auto seq = session.model().submit(stream, ops[done], work.ns, work.sm_demand);
        if (!seq) return seq;
        last = *seq;
        visible = visible || (ops[done].token != 0 && !ops[done].unhurried) ||
                  engine_of(ops[done].kind) == Engine::kExternal;
      }
      session.commit();
      if (visible) tell_service(session, *shared_, stream);
      if (done == ops.size()) return last;
      const ModelNs next =
          std::min(session.seen().next_event_ns(), session.now_ns() + kMaxSleepRealNs);
      // Full of completed ops that nobody has collected yet: look again soon.
      const bool uncollected = session.seen().state().context[stream.context.slot].done_count > 0;
      retry_real_ns = session.real_ns() + kRingFullPollRealNs;
      if (!uncollected) retry_real_ns = std::max(retry_real_ns, clock().to_monotonic_ns(next));
      word = &shared_->control().wake[process_of(session, stream)].change_word;
      seen = load_word(*word);
    }
    shared_->sleep(*word, seen, retry_real_ns, 0);
  }
  return last;
}

std::expected<Seq, Status> Device::try_submit(StreamId stream, const Op& op) {
  if (forked()) return std::unexpected(Status::kForked);
  Session session(*shared_);
  if (!session.seen().valid(stream)) return std::unexpected(Status::kStale);
  if (session.seen().state().context[stream.context.slot].op_count == kMaxOps) {
    return std::unexpected(Status::kRingFull);
  }
  const Work work = work_of(shared_->profile(), op);
  auto seq = session.model().submit(stream, op, work.ns, work.sm_demand);
  session.commit();
  tell_service(session, *shared_, stream);
  return seq;
}

Status Device::satisfy(OpPoint external) {
  if (forked()) return Status::kForked;
  Session session(*shared_);
  const Status status = session.model().satisfy(external);
  if (status == Status::kOk) {
    const uint32_t process = process_of(session, external.stream);
    shared_->control().wake[process].service_until = 0;
    session.wake_service(process);
    session.wake_changed(process);
  }
  return status;
}

bool Device::is_complete(OpPoint point) {
  if (forked()) return true;
  Session session(*shared_);
  return session.seen().is_complete(point);
}

bool Device::are_complete(std::span<const OpPoint> points) {
  if (forked()) return true;
  Session session(*shared_);
  return std::all_of(points.begin(), points.end(),
                     [&](const OpPoint& point) { return session.seen().is_complete(point); });
}

bool Device::is_idle(StreamId stream) {
  if (forked()) return true;
  Session session(*shared_);
  return !session.seen().valid(stream) ||
         session.seen().state().stream[stream.context.slot][stream.slot].count == 0;
}

bool Device::is_idle(ContextId context) { return unfinished(context).empty(); }

bool Device::is_process_idle() {
  if (forked() || shared_->process() == kMaxProcesses) return true;
  Session session(*shared_);
  for (uint32_t c = 0; c < kMaxContexts; ++c) {
    const context_state& context = session.seen().state().context[c];
    if (context.used == 0 || context.process != shared_->process()) continue;
    for (const uint64_t word : context.pending) {
      if (word != 0) return false;
    }
  }
  return true;
}

OpPoint Device::last_submitted(StreamId stream) {
  if (forked()) return {};
  Session session(*shared_);
  if (!session.seen().valid(stream)) return {};
  return {stream, session.seen().state().stream[stream.context.slot][stream.slot].submitted_seq};
}

std::vector<OpPoint> Device::unfinished(ContextId context) {
  std::vector<OpPoint> points;
  if (forked()) return points;
  Session session(*shared_);
  if (!session.seen().valid(context)) return points;
  const model_state& state = session.seen().state();
  for (uint32_t s = 0; s < kMaxStreams; ++s) {
    if (state.stream[context.slot][s].count == 0) continue;
    points.push_back(
        {session.seen().id_of(context.slot, s), state.stream[context.slot][s].submitted_seq});
  }
  return points;
}

bool Device::wait_until(OpPoint point, ModelNs deadline_ns, uint64_t spin_real_ns) {
  const auto model_clock = clock();
  while (!forked()) {
    ModelNs target = 0;
    uint32_t* word = nullptr;
    uint32_t seen = 0;
    uint64_t real_ns = 0;
    {
      Session session(*shared_);
      if (session.seen().is_complete(point)) return true;
      if (session.now_ns() >= deadline_ns) return false;
      target = std::min(session.seen().earliest_completion(point), deadline_ns);
      // Far enough to be capped by `sleep`, near enough for the conversion.
      target = std::min(target, session.now_ns() + kMaxSleepRealNs);
      real_ns = session.real_ns();
      word = &shared_->control().wake[process_of(session, point.stream)].change_word;
      seen = load_word(*word);
    }
    // One more nanosecond: the conversion rounds down.
    const uint64_t until = std::max(model_clock.to_monotonic_ns(target) + 1, real_ns + 1000);
    shared_->sleep(*word, seen, until, spin_real_ns);
  }
  return false;
}

void Device::collect(Collected& out) {
  out.completed.clear();
  out.reached.clear();
  if (forked() || shared_->process() == kMaxProcesses) return;
  Session session(*shared_);
  if (!session.seen().has_work_to_report(shared_->process())) return;
  session.model().collect(shared_->process(), out);
}

void Device::wait_for_work(ModelNs at_most_ns, uint64_t spin_real_ns) {
  if (forked() || shared_->process() == kMaxProcesses) return;
  // The kernel may otherwise add 50 us to every sleep. Once for each thread that comes by here.
  thread_local const int slack = prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  (void)slack;
  process_wake& wake = shared_->wake();
  ModelNs target = 0;
  uint32_t seen = 0;
  {
    Session session(*shared_);
    if (session.seen().is_asked(shared_->process()) &&
        session.seen().state().checkpoint[shared_->process()].asked !=
            attended_.load(std::memory_order_relaxed)) {
      return;
    }
    target = std::min(session.seen().earliest_visible(shared_->process()), at_most_ns);
    if (target <= session.now_ns()) return;
    wake.service_until = target;
    seen = load_word(wake.service_word);
    // Acquire: pairs with the release in wake_service. Looked at after the word has been read.
    if (shared_->service_wanted.exchange(false, std::memory_order_acq_rel)) return;
    target = std::min(target, session.now_ns() + kMaxSleepRealNs);
  }
  shared_->sleep(wake.service_word, seen, clock().to_monotonic_ns(target) + 1, spin_real_ns);
  shared_->service_wanted.store(false, std::memory_order_relaxed);
}

void Device::wake_service() {
  if (forked() || shared_->process() == kMaxProcesses) return;
  shared_->service_wanted.store(true, std::memory_order_release);
  std::atomic_ref<uint32_t>(shared_->wake().service_word).fetch_add(1, std::memory_order_release);
  SharedDevice::wake_word(shared_->wake().service_word);
}

Status Device::allocate(ContextId context, uint64_t bytes) {
  if (forked()) return Status::kForked;
  Session session(*shared_);
  return session.model().allocate(context, bytes);
}

void Device::release(ContextId context, uint64_t bytes) {
  if (forked()) return;
  Session session(*shared_);
  session.model().release(context, bytes);
}

void Device::pass_until(ModelNs until_ns) const {
  constexpr uint64_t kSpinRealNs = 60'000;
  const uint64_t end = clock().to_monotonic_ns(until_ns) + 1;
  while (!forked()) {
    const uint64_t now = monotonic_ns();
    if (now >= end) return;
    if (end - now <= kSpinRealNs) {
      sched_yield();
      continue;
    }
    const uint64_t wake_at = end - kSpinRealNs;
    const timespec deadline{static_cast<time_t>(wake_at / 1'000'000'000),
                            static_cast<long>(wake_at % 1'000'000'000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, nullptr);
  }
}

Status Device::hold(uint32_t device, uint64_t bytes) {
  if (forked()) return Status::kForked;
  Session session(*shared_);
  const auto process = session.own_process();
  return process ? session.model().hold(*process, device, bytes) : process.error();
}

void Device::drop(uint32_t device, uint64_t bytes) {
  if (forked() || shared_->process() == kMaxProcesses) return;
  Session session(*shared_);
  session.model().drop(shared_->process(), device, bytes);
}

std::expected<uint64_t, Status> Device::share(uint32_t device, uint64_t bytes) {
  if (forked()) return std::unexpected(Status::kForked);
  Session session(*shared_);
  const auto process = session.own_process();
  if (!process) return std::unexpected(process.error());
  return session.model().share(*process, device, bytes);
}

Status Device::join(uint64_t block, uint32_t device, uint64_t bytes) {
  if (forked()) return Status::kForked;
  if (device >= device_count()) return Status::kStale;
  Session session(*shared_);
  const auto process = session.own_process();
  return process ? session.model().join(*process, block, device, bytes) : process.error();
}

void Device::leave(uint64_t block) {
  if (forked() || shared_->process() == kMaxProcesses) return;
  Session session(*shared_);
  session.model().leave(shared_->process(), block);
}

// ----------------------------------------------------------------------------------- checkpoints

std::optional<Device::ProcessView> Device::process_view(int32_t pid) {
  if (forked()) return std::nullopt;
  Session session(*shared_);
  const auto process = session.seen().find_process(pid, shared_->pid_namespace());
  // The dead are removed a little later.
  if (!process || session.is_dead(*process)) return std::nullopt;
  const checkpoint_record& record = session.seen().state().checkpoint[*process];
  return ProcessView{record.state, record.restore_thread};
}

std::expected<int32_t, Status> Device::ask(int32_t pid, const CheckpointRequest& request) {
  uint64_t number = 0;
  uint64_t start_time = 0;
  for (;;) {
    if (forked()) return std::unexpected(Status::kForked);
    uint32_t* word = nullptr;
    uint32_t seen = 0;
    uint64_t until_real_ns = 0;
    {
      Session session(*shared_);
      const auto process = session.seen().find_process(pid, shared_->pid_namespace());
      if (!process) return std::unexpected(Status::kStale);
      const process_state& state = session.seen().state().process[*process];
      if (number != 0 && state.start_time != start_time) return std::unexpected(Status::kStale);
      const checkpoint_record& record = session.seen().state().checkpoint[*process];
      if (number != 0 && record.answered >= number) {
        // So late that many others have asked since: the answer is lost.
        if (record.answered - number >= kKeptAnswers) return std::unexpected(Status::kStale);
        return record.answer[number % kKeptAnswers];
      }
      if (number == 0 && !session.seen().is_asked(*process)) {
        number = *session.model().ask(*process, request);
        start_time = state.start_time;
        shared_->control().wake[*process].service_until = 0;
        session.wake_service(*process);
      }
      word = &shared_->control().wake[*process].change_word;
      seen = load_word(*word);
      until_real_ns = session.real_ns() + kMaxSleepRealNs;
    }
    shared_->sleep(*word, seen, until_real_ns, 0);
  }
}

Status Device::serve_requests() {
  if (forked()) return Status::kForked;
  Session session(*shared_);
  const auto process = session.own_process();
  if (!process) return process.error();
  session.hold_life(*process);
  session.model().set_restore_thread(*process, static_cast<int32_t>(gettid()));
  return Status::kOk;
}

std::optional<CheckpointRequest> Device::asked() {
  if (forked() || shared_->process() == kMaxProcesses) return std::nullopt;
  Session session(*shared_);
  if (!session.seen().is_asked(shared_->process())) return std::nullopt;
  const checkpoint_record& record = session.seen().state().checkpoint[shared_->process()];
  attended_.store(record.asked, std::memory_order_relaxed);
  return record.request;
}

void Device::answer(ProcessState state, int32_t answer) {
  if (forked() || shared_->process() == kMaxProcesses) return;
  Session session(*shared_);
  session.model().answer(shared_->process(), state, answer);
  session.wake_changed(shared_->process());
}

uint64_t Device::held_bytes() {
  if (forked() || shared_->process() == kMaxProcesses) return 0;
  Session session(*shared_);
  const model_state& state = session.seen().state();
  uint64_t bytes = 0;
  for (const uint64_t held : state.process[shared_->process()].held_bytes) bytes += held;
  for (const context_state& context : state.context) {
    if (context.used != 0 && context.process == shared_->process()) bytes += context.memory_bytes;
  }
  return bytes;
}

void Device::leave_devices() {
  if (forked() || shared_->process() == kMaxProcesses) return;
  Session session(*shared_);
  session.model().leave_devices(shared_->process());
}

Status Device::return_to_devices(const std::array<uint8_t, kMaxDevices>& to) {
  if (forked() || shared_->process() == kMaxProcesses) return Status::kStale;
  Session session(*shared_);
  return session.model().return_to_devices(shared_->process(), to);
}

MemoryInfo Device::memory_info(uint32_t device) {
  const uint64_t total = profile(device).memory_bytes;
  if (forked() || device >= device_count()) return {total, total};
  Session session(*shared_);
  return {total - session.seen().state().device[device].memory_bytes, total};
}

// ------------------------------------------------------------------------------------ environment

std::string device_path_from_environment() {
  const char* path = std::getenv("SIMGPU_DEVICE");
  if (path != nullptr && *path != '\0') return path;
  return fmt::format("/dev/shm/simgpu-{}", getuid());
}

std::expected<SimParameters, std::string> parameters_from_environment() {
  SimParameters parameters;
  const auto given = [](const char* name) -> const char* {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : nullptr;
  };
  const auto wrong = [](const char* name, const char* value, const char* right) {
    return std::unexpected(
        fmt::format("lull: {}={}: not a possible value: {}", name, value, right));
  };
  if (const char* path = given("SIMGPU_PROFILE")) {
    auto profile = read_profile_file(path);
    if (!profile) return std::unexpected(profile.error());
    parameters.profile = *profile;
  }
  if (const char* sharing = given("SIMGPU_SHARING")) {
    const std::string_view text = sharing;
    if (text == "time_slice") {
      parameters.sharing = Sharing::kTimeSlice;
    } else if (text == "mps") {
      parameters.sharing = Sharing::kMps;
    } else if (text == "serial") {
      parameters.sharing = Sharing::kSerial;
    } else {
      return wrong("SIMGPU_SHARING", sharing, "time_slice, mps or serial would be right");
    }
  }
  if (const char* factor = given("SIMGPU_SLOW_MOTION")) {
    if (!parse_number(factor, parameters.slow_motion) || !(parameters.slow_motion >= 1)) {
      return wrong("SIMGPU_SLOW_MOTION", factor, "a number of at least 1 would be right");
    }
  }
  if (const char* latency = given("SIMGPU_CONTROL_LATENCY_NS")) {
    if (!parse_number(latency, parameters.control_latency_ns)) {
      return wrong("SIMGPU_CONTROL_LATENCY_NS", latency, "a whole number would be right");
    }
  }
  if (const char* devices = given("SIMGPU_DEVICES")) {
    if (!parse_number(devices, parameters.devices) || parameters.devices < 1 ||
        parameters.devices > kMaxDevices) {
      return wrong("SIMGPU_DEVICES", devices, "1 to 16 would be right");
    }
  }
  return parameters;
}

std::expected<Device*, std::string> open_device_from_environment() {
  static std::mutex mutex;
  static Device* opened = nullptr;
  const std::lock_guard lock(mutex);
  if (opened != nullptr) return opened;
  auto parameters = parameters_from_environment();
  if (!parameters) return std::unexpected(parameters.error());
  auto device = Device::open(device_path_from_environment(), *parameters);
  if (!device) return std::unexpected(device.error());
  // Never closed: other threads may still be in it when the process leaves.
  opened = device->release();
  return opened;
}

}  // namespace simgpu
