// The driver's checkpoint of the calling process: what each call took and answered. One thread;
// other threads that call CUDA meanwhile stand still in it.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "tools/gpu_check/native/driver.h"

namespace lull::probe {

class SelfCheckpoint {
 public:
  // Throws NotHere when the driver has no such calls, Refused when it supports none here.
  explicit SelfCheckpoint(Driver& driver);

  // Lock, checkpoint, restore, unlock. `paused`: once checkpointed, says so on stdout and waits for
  // a line on stdin; when the restore fails too, and tries it once more. `pairs`: what the restore
  // is told of the GPUs; empty: nothing.
  void there_and_back(bool paused, std::vector<CUcheckpointGpuPair> pairs = {});

  // Whether the process may call CUDA again.
  bool running() const { return running_; }
  // {"calls": [{call, ms, result, resident_bytes}], "resident_bytes_before", "refused"?}
  const nlohmann::json& answer() const { return answer_; }

 private:
  template <typename Function, typename Arguments>
  bool call(const char* name, Function function, Arguments* arguments);

  Driver& driver_;
  nlohmann::json answer_;
  bool running_ = true;
};

}  // namespace lull::probe
