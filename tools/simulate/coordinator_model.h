// The coordinator of a simulated node: the real engine, fed as the daemon feeds it.
//
//   shim model -- record, progress --> waits for the next look (every `poll`, rarer the longer the
//     ^                                client has been quiet) --> engine.step --> publish queue
//     +---- publish, `latency` after the cause of the decision ---------------------+
//
// Called by Node, which owns the clock. It decides nothing and knows no device.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coordinator/daemon/look_schedule.h"
#include "coordinator/daemon/publish_queue.h"
#include "coordinator/engine/engine.h"
#include "tools/simulate/simulated_policies.h"

namespace lull::simulate {

struct CoordinatorOptions {
  std::string policy = "share";
  std::optional<policies::Predictor> predictor;  // none: the policy's own
  Duration control_latency{10'000};
  Duration marker;  // what one takes of the device
  Duration poll{daemon::kCloseSpacingNs};
  std::string model;  // of the devices, as the driver names them
  std::span<const policies::PolicyRow> policies = simulated_policies();
};

class CoordinatorModel {
 public:
  explicit CoordinatorModel(const CoordinatorOptions& options);

  // ---- what clients do; `now` never goes back ----
  void attach(const engine::ClientAttached& client, DeviceId device, uint32_t streams, Instant now);
  void detach(ClientId client, Instant now);
  void set_policy(const std::string& text, Instant now);
  void launched(const engine::Launched& launch, Instant now);
  void held(const engine::Held& held, Instant now);
  void timed(const engine::Timed& timed, Instant now);
  // The host has seen the stream's work up to `sequence` complete.
  void synced(ClientId client, StreamSlot stream, uint64_t sequence, Instant now);
  // The device has written `sequence` to the stream's progress word.
  void progressed(ClientId client, StreamSlot stream, uint64_t sequence, Instant now);

  // ---- time ----
  // When it wants to act next, by looking, by the engine's timer, or by publishing.
  Instant next() const;
  Instant next_publish() const { return queue_.next(); }
  // Looks and steps the engine, if that is due.
  void step(Instant now);
  template <typename Use>
  void publish(Instant now, Use&& use) {
    queue_.pop_due(now, use);
  }

  // Each step of the engine: its inputs as they go in, its outputs as they came.
  using Watch = std::function<void(Instant, std::span<const engine::Input>,
                                   std::span<const engine::Output>)>;
  void watch(Watch watch) { watch_ = std::move(watch); }
  engine::EngineStatus status() const { return engine_.status(); }
  const std::vector<std::string>& notices() const { return notices_; }
  uint64_t steps() const { return steps_; }

 private:
  struct Word {
    uint64_t launched = 0, tracked = 0, completed = 0, written = 0;
  };
  struct Session {
    bool present = false;
    bool news = false;
    uint32_t waiting = 0;  // threads held
    uint64_t tracked_streams = 0;
    uint64_t written_streams = 0;
    Instant last_event{0};
    std::vector<Word> words;  // by stream
  };

  Session& session(ClientId client) { return sessions_[client.value]; }
  // Something is there to be seen of this client.
  void notice(Session& session, Instant now);
  void tell(engine::Input input, Instant at);
  void complete(ClientId client, StreamSlot stream, uint64_t sequence, Instant at, bool synced);

  CoordinatorOptions options_;
  engine::Engine engine_;
  std::vector<Session> sessions_;  // by client id
  std::vector<engine::Input> inputs_;
  Instant cause_{0};
  std::vector<engine::Output> outputs_;
  daemon::PublishQueue queue_;
  Instant look_at_ = kNever;
  Instant timer_ = kNever;
  Watch watch_;
  std::vector<std::string> notices_;
  uint64_t steps_ = 0;
};

}  // namespace lull::simulate
