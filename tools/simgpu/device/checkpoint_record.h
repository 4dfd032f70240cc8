// What a process's checkpoint state is and how one process asks for another's, as plain data in the
// device's shared file. Written by DeviceModel (device_model.h) only.
//
//            lock             checkpoint                restore
//   running -----> locked -----------------> checkpointed -----> locked -----> running
//      ^             |                            |                     unlock
//      +-- unlock ---+                            +-- no memory --> failed (for good)
//
// Whoever wants a transition writes a request; the restore thread of the process itself makes the
// transition and answers. One request at a time for each process. A requester that dies leaves a
// request that is carried out all the same; a process that dies takes its record along.
#pragma once

#include <array>
#include <cstdint>

namespace simgpu {

inline constexpr uint32_t kMaxDevices = 16;
inline constexpr uint32_t kKeptAnswers = 32;

// As CUprocessState counts.
enum class ProcessState : uint32_t { kRunning = 0, kLocked = 1, kCheckpointed = 2, kFailed = 3 };
enum class CheckpointAction : uint32_t { kLock = 0, kCheckpoint = 1, kRestore = 2, kUnlock = 3 };

// What was on `from` comes back on `to`; UUIDs.
struct DevicePair {
  std::array<uint8_t, 16> from;
  std::array<uint8_t, 16> to;
};

struct CheckpointRequest {
  CheckpointAction action = CheckpointAction::kLock;
  uint32_t timeout_ms = 0;  // of a lock; 0: none
  uint32_t pair_count = 0;  // of a restore; 0: every device stays what it is
  uint32_t reserved = 0;
  std::array<DevicePair, kMaxDevices> pair{};
};

struct checkpoint_record {
  ProcessState state;
  int32_t restore_thread;  // thread id; 0: nobody serves requests yet
  uint64_t asked;          // number of the newest request
  uint64_t answered;       // number of the newest answered one; less than `asked`: one is pending
  int32_t answer[kKeptAnswers];  // by number modulo kKeptAnswers; what it means is the API layer's
  CheckpointRequest request;
};

}  // namespace simgpu
