// The environment in which `lull run` starts a program. Pure: the old environment and the wishes
// in, the new environment out. Called by `lull run`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "policies/vocabulary.h"
#include "tools/lull/installed.h"

namespace lull::command {

using Environment = std::map<std::string, std::string>;

struct LaunchWishes {
  std::optional<int> priority;
  SlowdownBound bound;
  std::string name;
  std::string job;
  uint64_t memory_bytes = 0;  // 0: no limit
  std::string socket;         // empty: the default
  bool require_coordinator = false;
  std::string timing;  // off, sampled, full; empty: as the daemon is set
  bool call_sites = false;
  bool suspendable = false;
  bool migratable = false;
  bool oversubscribe = false;
  std::string elastic;  // MIN:MAX GPUs; empty: as many as it is started with
  std::string visible_devices;  // of one that is migratable: all GPUs, its own first
  uint32_t own_devices = 0;     // so many of them are its own
  bool simulate = false;
  std::string sharing;  // empty: as the device's profile says
  std::optional<double> slow_motion;
  bool has_asan = false;  // the program needs libasan
};

Environment launch_environment(Environment environment, const LaunchWishes& wishes,
                               const Installed& parts);

}  // namespace lull::command
