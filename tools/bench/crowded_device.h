// A device with many clients of which few launch, around the real engine: what a decision costs
// there. Used by `lull-bench --decisions` and by a test that counts its instructions. Pure: model
// time, no clock; the same plan gives the same inputs and outputs.
//
//   programs --- Launched, Held, Progressed, Timed ---> Engine::step, one input a step
//      ^------------------- gates, releases ------------------'
//
// The device runs one unit at a time in order of arrival. Important programs launch eight short
// units, wait for them and pause; the others launch as far ahead as their gates let them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "coordinator/engine/engine.h"

namespace lull::bench {

struct CrowdPlan {
  uint32_t members = 1024;  // >= launching; a third of each at levels 2, 5 and 7
  uint32_t launching = 10;  // spread over the levels
  // The quiet ones have launched once, long ago; false: never.
  bool all_launched = true;
  std::string policy = "guarded";
};

class CrowdedDevice {
 public:
  // What surrounds each call of Engine::step: calls `step` exactly once.
  using Around = std::function<void(const std::function<void()>& step)>;

  explicit CrowdedDevice(const CrowdPlan& plan);
  // Goes on until the engine has been given so many more inputs.
  void run(uint64_t inputs, const Around& around);
  void run(uint64_t inputs);

  uint64_t outputs() const { return outputs_; }    // of all steps so far
  uint64_t launched() const { return launched_; }  // units that have gone to the device
  uint64_t digest() const { return digest_; }      // of everything that the engine has put out
  engine::EngineStatus status() const { return engine_.status(); }

 private:
  struct Program {
    Priority priority;
    bool launches = false;
    engine::Gate gate = engine::Gate::kOpen;
    int64_t granted_ns = 0, spent_ns = 0;
    int64_t charge_ns = 0;  // of its next launch
    uint64_t launched = 0, completed = 0;
    uint32_t ticket = 0;  // of the launch that is held; 0: none
    uint32_t tickets = 0;
    bool waits = false;  // for all that it has launched
  };
  struct Unit {
    uint32_t program;
    uint64_t sequence;
    int64_t ends_ns;
  };

  void give(const engine::Input& input);
  void carry_out(const engine::Output& output);
  void act(uint32_t index);
  void try_launch(uint32_t index);
  void launch(uint32_t index, bool released, int64_t charged_ns);
  void complete(const Unit& unit);
  void wake(uint32_t index, int64_t at_ns) { due_.insert({at_ns, index}); }
  static int64_t length_ns(const Program& program);

  engine::Engine engine_;
  std::vector<Program> programs_;               // client id: index + 1
  std::set<std::pair<int64_t, uint32_t>> due_;  // when a program acts next
  std::deque<Unit> device_;
  std::vector<engine::Output> out_;
  std::deque<engine::Output> news_;  // not carried out yet
  const Around* around_ = nullptr;
  int64_t now_ns_ = 0, free_ns_ = 0, timer_ns_ = INT64_MAX;
  uint64_t inputs_ = 0, outputs_ = 0, launched_ = 0, digest_ = 1469598103934665603ULL;
};

}  // namespace lull::bench
