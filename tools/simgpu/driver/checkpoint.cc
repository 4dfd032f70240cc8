// Checkpoints of processes: the six calls, which ask, and the restore thread, which acts.
#include "tools/simgpu/driver/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "tools/simgpu/device/cost_model.h"
#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/state.h"

namespace simgpu::driver {
namespace {

// While work drains or somebody holds the lock.
constexpr ModelNs kPollNs = 50'000;

// Of the restore thread alone.
struct Restorer {
  ProcessState state = ProcessState::kRunning;
  std::optional<ModelNs> lock_asked_ns;  // the request at hand is a lock, asked for then
  uint64_t bytes_out = 0;                // what went out with the last checkpoint
  SavedContents saved;
};

class Attendant {
 public:
  Attendant(State& state, Restorer& restorer) : s_(state), r_(restorer) {}

  ModelNs attend() {
    const auto request = s_.device->asked();
    if (!request) return kNever;
    switch (request->action) {
      case CheckpointAction::kLock:
        return lock(*request);
      case CheckpointAction::kCheckpoint:
        return finish(checkpoint());
      case CheckpointAction::kRestore:
        return finish(restore(*request));
      case CheckpointAction::kUnlock:
        return finish(unlock());
    }
    return finish(CUDA_ERROR_INVALID_VALUE);
  }

 private:
  const DeviceProfile& profile() const { return s_.profile(0); }

  ModelNs finish(CUresult result) {
    r_.lock_asked_ns.reset();
    s_.device->answer(r_.state, result);
    return s_.device->now_ns();  // somebody may have asked again
  }

  // With State::mutex held.
  void let_in() {
    s_.locked = false;
    s_.unlocked.notify_all();
  }

  // New calls stop at once, the one that is under way ends, what was submitted runs to its end. The
  // thread that has the mutex may be waiting for this one (for room in the ring), so it is only
  // ever tried.
  ModelNs lock(const CheckpointRequest& request) {
    if (r_.state != ProcessState::kRunning) return finish(CUDA_ERROR_ILLEGAL_STATE);
    // A client of the multi-process service has no context of its own to take out.
    if (s_.device->sharing() == Sharing::kMps) return finish(CUDA_ERROR_NOT_SUPPORTED);
    const ModelNs now = s_.device->now_ns();
    if (!r_.lock_asked_ns) r_.lock_asked_ns = now;
    constexpr ModelNs kNsPerMs = 1'000'000;
    const bool late =
        request.timeout_ms != 0 && now >= *r_.lock_asked_ns + request.timeout_ms * kNsPerMs;
    s_.locked = true;
    std::unique_lock lock(s_.mutex, std::try_to_lock);
    if (!lock) return now + kPollNs;
    if (s_.device->is_process_idle()) {
      lock.unlock();
      s_.effects->pump();
      s_.device->pass_until(s_.device->now_ns() + profile().checkpoint_lock_ns);
      r_.state = ProcessState::kLocked;
      return finish(CUDA_SUCCESS);
    }
    if (!late) return now + kPollNs;
    let_in();
    return finish(CUDA_ERROR_NOT_READY);
  }

  CUresult checkpoint() {
    if (r_.state != ProcessState::kLocked) return CUDA_ERROR_ILLEGAL_STATE;
    std::vector<std::shared_ptr<Physical>> physicals;
    bool exported = false;
    for (const auto& [handle, entry] : s_.memory_handles) {
      exported = exported || entry.physical->block != 0;
      if (std::ranges::find(physicals, entry.physical) == physicals.end()) {
        physicals.push_back(entry.physical);
      }
    }
    if (exported || s_.memory.has_kind(MemoryKind::kManaged)) {
      s_.device->pass_until(s_.device->now_ns() + profile().checkpoint_out_ns);
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    const ModelNs begin = s_.device->now_ns();
    {
      const auto alone = s_.memory.hold_alone();
      if (!s_.memory.move_out(physicals, r_.saved)) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    r_.bytes_out = s_.device->held_bytes();
    s_.device->pass_until(begin + moving_ns(profile().checkpoint_out_ns,
                                            profile().checkpoint_out_gb_per_s, r_.bytes_out));
    s_.device->leave_devices();
    r_.state = ProcessState::kCheckpointed;
    return CUDA_SUCCESS;
  }

  using DeviceMap = std::array<uint8_t, kMaxDevices>;

  // Which device takes the place of which. Every device of the machine is recorded in a checkpoint,
  // so pairs name each of them once on either side, and a process that does not see them all cannot
  // be moved.
  std::optional<DeviceMap> device_map(const CheckpointRequest& request) {
    DeviceMap map;
    for (uint8_t i = 0; i < map.size(); ++i) map[i] = i;
    if (request.pair_count == 0) return map;
    const uint32_t count = s_.device->device_count();
    if (request.pair_count != count || s_.visible.size() != count) return std::nullopt;
    const auto index_of = [&](const std::array<uint8_t, 16>& uuid) {
      uint32_t index = 0;
      while (index < count && s_.device->uuid(index) != uuid) ++index;
      return index;
    };
    uint32_t from_seen = 0;
    uint32_t to_seen = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t from = index_of(request.pair[i].from);
      const uint32_t to = index_of(request.pair[i].to);
      if (from == count || to == count) return std::nullopt;
      from_seen |= 1U << from;
      to_seen |= 1U << to;
      map[from] = static_cast<uint8_t>(to);
    }
    const uint32_t all = (1U << count) - 1;
    if (from_seen != all || to_seen != all) return std::nullopt;
    return map;
  }

  CUresult restore(const CheckpointRequest& request) {
    if (r_.state == ProcessState::kFailed) return CUDA_ERROR_OPERATING_SYSTEM;
    if (r_.state != ProcessState::kCheckpointed) return CUDA_ERROR_ILLEGAL_STATE;
    const auto map = device_map(request);
    if (!map) return CUDA_ERROR_INVALID_VALUE;
    const ModelNs begin = s_.device->now_ns();
    if (const Status refused = s_.device->return_to_devices(*map); refused != Status::kOk) {
      r_.state = ProcessState::kFailed;  // as the driver leaves it: for good
      return to_result(refused);
    }
    {
      const std::lock_guard lock(s_.mutex);
      for (uint32_t& device : s_.visible) device = (*map)[device];
    }
    {
      const auto alone = s_.memory.hold_alone();
      s_.memory.move_back(r_.saved);
    }
    s_.device->pass_until(begin + moving_ns(profile().checkpoint_back_ns,
                                            profile().checkpoint_back_gb_per_s, r_.bytes_out));
    r_.state = ProcessState::kLocked;
    return CUDA_SUCCESS;
  }

  CUresult unlock() {
    if (r_.state != ProcessState::kLocked) return CUDA_ERROR_ILLEGAL_STATE;
    s_.device->pass_until(s_.device->now_ns() + profile().checkpoint_unlock_ns);
    r_.state = ProcessState::kRunning;
    const std::lock_guard lock(s_.mutex);
    let_in();
    return CUDA_SUCCESS;
  }

  State& s_;
  Restorer& r_;
};

// None: no process with a restore thread or a context.
std::optional<Device::ProcessView> view_of(int pid) {
  State& state = State::get();
  if (pid != getpid()) return state.device->process_view(pid);
  state.serve();
  // The thread registers itself as its first act.
  for (;;) {
    const auto view = state.device->process_view(pid);
    if (view && view->restore_thread != 0) return view;
    state.device->pass_until(state.device->now_ns() + kPollNs);
  }
}

// Asks the restore thread of the process, which may be the caller's own. One that has no context
// yet has no such thread; for the caller's own process it is started.
CUresult ask(int pid, CheckpointRequest request) {
  if (const CUresult refused = refuse_call()) return refused;
  State& state = State::get();
  if (!view_of(pid)) return CUDA_ERROR_INVALID_VALUE;
  const auto answer = state.device->ask(pid, request);
  return answer ? static_cast<CUresult>(*answer) : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

ModelNs attend_requests() {
  // Never destroyed: the thread runs until the process is gone.
  static Restorer& restorer = *new Restorer;
  return Attendant(State::get(), restorer).attend();
}

}  // namespace simgpu::driver

using namespace simgpu::driver;
using simgpu::CheckpointAction;

SIM_API cuCheckpointProcessGetRestoreThreadId(int pid, int* tid) {
  if (const CUresult refused = refuse_call()) return refused;
  if (tid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto view = view_of(pid);
  if (!view) return CUDA_ERROR_INVALID_VALUE;
  *tid = view->restore_thread;
  return CUDA_SUCCESS;
}

SIM_API cuCheckpointProcessGetState(int pid, CUprocessState* out) {
  if (const CUresult refused = refuse_call()) return refused;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto view = view_of(pid);
  if (!view) return CUDA_ERROR_INVALID_VALUE;
  *out = static_cast<CUprocessState>(view->state);
  return CUDA_SUCCESS;
}

SIM_API cuCheckpointProcessLock(int pid, CUcheckpointLockArgs* arguments) {
  return ask(pid, {.action = CheckpointAction::kLock,
                   .timeout_ms = arguments == nullptr ? 0 : arguments->timeoutMs});
}

SIM_API cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs*) {
  return ask(pid, {.action = CheckpointAction::kCheckpoint});
}

SIM_API cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs* arguments) {
  simgpu::CheckpointRequest request{.action = CheckpointAction::kRestore};
  if (arguments != nullptr && arguments->gpuPairsCount != 0) {
    if (arguments->gpuPairs == nullptr || arguments->gpuPairsCount > request.pair.size()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    request.pair_count = arguments->gpuPairsCount;
    for (unsigned i = 0; i < request.pair_count; ++i) {
      std::memcpy(request.pair[i].from.data(), arguments->gpuPairs[i].oldUuid.bytes, 16);
      std::memcpy(request.pair[i].to.data(), arguments->gpuPairs[i].newUuid.bytes, 16);
    }
  }
  return ask(pid, request);
}

SIM_API cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs*) {
  return ask(pid, {.action = CheckpointAction::kUnlock});
}
