#include "tools/lull/launch_environment.h"

#include <fmt/format.h>

#include "policies/vocabulary.h"

namespace lull::command {
namespace {

// `value` in front of a colon-separated list, unless it is there already.
void put_in_front(Environment& environment, const char* variable, const std::string& value) {
  std::string& list = environment[variable];
  const std::string framed = ":" + list + ":";
  if (framed.find(":" + value + ":") != std::string::npos) return;
  list = list.empty() ? value : value + ":" + list;
}

}  // namespace

Environment launch_environment(Environment environment, const LaunchWishes& wishes,
                               const Installed& parts) {
  put_in_front(environment, "LD_PRELOAD", parts.shim);
  // What the program marks with NVTX goes into traces; a tool of the program's own comes first.
  environment.try_emplace("NVTX_INJECTION64_PATH", parts.shim);
  // Asked for: the library says in one line where it finds no coordinator.
  environment["LULL_RUN"] = "1";
  if (wishes.priority) {
    environment["LULL_PRIORITY"] = fmt::format("{}", *wishes.priority);
    // Under MPS the others' kernels then wait for a block of this program's and not for a kernel, which
    // costs it nothing (docs/hardware, 2026-11-26); else nobody reads it. What the user says stays.
    if (*wishes.priority > Priority{}.level) environment.try_emplace("CUDA_MPS_CLIENT_PRIORITY", "1");
  }
  if (wishes.bound.is_set()) {
    environment["LULL_MAX_SLOWDOWN"] =
        fmt::format("{},{}", wishes.bound.mean_per_mille, wishes.bound.p99_per_mille);
  }
  if (!wishes.name.empty()) environment["LULL_NAME"] = wishes.name;
  if (!wishes.job.empty()) environment["LULL_JOB"] = wishes.job;
  if (wishes.memory_bytes != 0) environment["LULL_MEMORY"] = fmt::format("{}", wishes.memory_bytes);
  if (!wishes.socket.empty()) environment["LULL_SOCKET"] = wishes.socket;
  if (!wishes.timing.empty()) environment["LULL_TIMING"] = wishes.timing;
  if (wishes.call_sites) environment["LULL_CALL_SITES"] = "1";
  if (wishes.require_coordinator) environment["LULL_REQUIRE_COORDINATOR"] = "1";
  if (wishes.suspendable) environment["LULL_SUSPENDABLE"] = "1";
  if (wishes.migratable) {
    environment["LULL_MIGRATABLE"] = "1";
    environment["CUDA_VISIBLE_DEVICES"] = wishes.visible_devices;
    environment["LULL_VISIBLE_DEVICES"] = fmt::format("{}", wishes.own_devices);
  }
  if (wishes.oversubscribe) environment["LULL_OVERSUBSCRIBE"] = "1";
  if (!wishes.elastic.empty()) environment["LULL_ELASTIC"] = wishes.elastic;
  if (wishes.simulate) {
    put_in_front(environment, "LD_LIBRARY_PATH", parts.sim_folder);
    if (!wishes.sharing.empty()) environment["SIMGPU_SHARING"] = wishes.sharing;
    if (wishes.slow_motion)
      environment["SIMGPU_SLOW_MOTION"] = fmt::format("{}", *wishes.slow_motion);
  }
  if (wishes.has_asan) {
    std::string& options = environment["ASAN_OPTIONS"];
    if (options.find("verify_asan_link_order") == std::string::npos) {
      options += (options.empty() ? "" : ":") + std::string("verify_asan_link_order=0");
    }
  }
  return environment;
}

}  // namespace lull::command
