#include "tools/gpu_check/native/self_checkpoint.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>

namespace lull::probe {

using nlohmann::json;

namespace {

constexpr unsigned kLockWait_ms = 10000;

uint64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    uint64_t kib = 0;
    if (word == "VmRSS:" && status >> kib) return kib << 10;
  }
  return 0;
}

void say_and_wait(const char* state) {
  std::printf("%s\n", json{{"state", state}, {"pid", getpid()}}.dump().c_str());
  std::fflush(stdout);
  char line[64];
  if (std::fgets(line, sizeof line, stdin) == nullptr) line[0] = 0;
}

}  // namespace

SelfCheckpoint::SelfCheckpoint(Driver& driver) : driver_(driver) {
  if (driver.cuCheckpointProcessLock == nullptr) {
    throw NotHere{"the driver has no cuCheckpointProcessLock (12.8 or newer has)"};
  }
  CUprocessState state = CU_PROCESS_STATE_RUNNING;
  LULL_MUST(driver, cuCheckpointProcessGetState, static_cast<int>(getpid()), &state);
  answer_ = {{"calls", json::array()}};
}

template <typename Function, typename Arguments>
bool SelfCheckpoint::call(const char* name, Function function, Arguments* arguments) {
  const auto start = std::chrono::steady_clock::now();
  const CUresult result =
      function == nullptr ? CUDA_ERROR_NOT_SUPPORTED : function(getpid(), arguments);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  answer_["calls"].push_back({{"call", name},
                              {"ms", took.count()},
                              {"result", static_cast<int>(result)},
                              {"resident_bytes", resident_bytes()}});
  if (result != CUDA_SUCCESS)
    answer_["refused"] = std::string(name) + ": " + driver_.name_of(result);
  return result == CUDA_SUCCESS;
}

void SelfCheckpoint::there_and_back(bool paused, std::vector<CUcheckpointGpuPair> pairs) {
  answer_["resident_bytes_before"] = resident_bytes();
  CUcheckpointLockArgs lock{};
  lock.timeoutMs = kLockWait_ms;
  CUcheckpointCheckpointArgs save{};
  CUcheckpointRestoreArgs restore{};
  if (!pairs.empty()) {
    restore.gpuPairs = pairs.data();
    restore.gpuPairsCount = static_cast<unsigned>(pairs.size());
  }
  CUcheckpointUnlockArgs unlock{};
  if (!call("lock", driver_.cuCheckpointProcessLock, &lock)) return;
  running_ = false;
  if (call("checkpoint", driver_.cuCheckpointProcessCheckpoint, &save)) {
    if (paused) say_and_wait("checkpointed");
    const bool restored = call("restore", driver_.cuCheckpointProcessRestore, &restore);
    if (!restored && paused) {
      say_and_wait("restore failed");
      call("restore", driver_.cuCheckpointProcessRestore, &restore);
    }
  }
  running_ = call("unlock", driver_.cuCheckpointProcessUnlock, &unlock);
}

}  // namespace lull::probe
