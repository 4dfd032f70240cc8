// One side of a comparison while it runs: a real process under lull, or several one after another,
// and what is known of its progress. Used by phase.cc on one thread; `poll` never waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "coordinator/channel/model_clock.h"
#include "tools/lull/compare/child_process.h"
#include "tools/measure/measure.h"

namespace lull::command {

inline constexpr const char* kCommandPrefix = "cmd:";

struct TaskPlan {
  std::string workload;  // a file, or cmd:... for the shell
  std::string task;      // its name in tables and to the daemon
  std::string role;      // "high" or "low"; also its priority
  SlowdownBound bound = {};
  bool greedy = false;
  uint64_t seed = 1;
  bool is_command() const { return workload.starts_with(kCommandPrefix); }
};

// Where the tasks of one comparison live.
struct Lab {
  std::string bin;  // folder of lull and lull-play
  ScratchFolder* scratch = nullptr;
  std::string socket;
  std::string sim_device;  // empty: a real GPU
  channel::ModelClock clock;
};

class Task {
 public:
  virtual ~Task() = default;
  // Starts the process. It gets ready, but does not work yet if it can wait.
  static std::expected<std::unique_ptr<Task>, std::string> start(const TaskPlan& plan,
                                                                 const Lab& lab, int serial);
  // Reads what is new. An error ends the comparison: the program failed.
  virtual std::expected<void, std::string> poll() = 0;
  virtual bool ready() const = 0;
  virtual void begin() = 0;
  // Asks it to finish; `finished` says when everything that it reports is read.
  virtual void ask_to_finish() = 0;
  virtual bool finished() const = 0;
  // Ends whatever still runs.
  virtual void end() = 0;
  virtual bool owns(pid_t pid) = 0;
  virtual bool seen_working() const = 0;  // at least one iteration

  // A command's progress is its launches, seen by the sampler; a player reports its own.
  virtual bool counts_launches() const = 0;
  TaskRecord record;
  std::string device_name;  // as the player sees it
};

}  // namespace lull::command
