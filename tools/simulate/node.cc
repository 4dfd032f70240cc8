#include "tools/simulate/node.h"

#include <algorithm>

namespace lull::simulate {
namespace {

simgpu::ModelParameters parameters_of(const NodeOptions& options) {
  simgpu::ModelParameters p;
  p.device_count = options.devices;
  p.sharing = options.sharing;
  p.sm_count = options.profile.sm_count;
  p.slice_ns = options.profile.slice_ns;
  p.switch_ns = options.profile.switch_ns;
  p.memory_bytes = options.profile.memory_bytes;
  return p;
}

CoordinatorOptions coordinator_of(const NodeOptions& options) {
  CoordinatorOptions c = options.coordinator;
  if (c.model.empty()) c.model = options.profile.name;
  c.marker = {static_cast<int64_t>(options.profile.marker_ns)};
  return c;
}

}  // namespace

Node::Node(const NodeOptions& options)
    : options_(options),
      parameters_(parameters_of(options)),
      state_(std::make_unique<simgpu::model_state>()),
      ops_(size_t{simgpu::kMaxContexts} * simgpu::kMaxOps),
      device_(*state_, ops_, parameters_),
      coordinator_(coordinator_of(options)) {
  simgpu::DeviceModel::initialise(*state_);
}

Program& Node::start(const ProgramPlan& plan) {
  const ClientId client{static_cast<uint32_t>(programs_.size() + 1)};
  programs_.push_back(std::make_unique<Program>(plan, client, device_, coordinator_,
                                                options_.jitter, options_.timing_period, now_));
  live_.push_back(programs_.back().get());
  return *live_.back();
}

void Node::stop(Program& program) {
  program.ask_to_stop();
  run([&] { return program.ended(); });
}

Instant Node::next() const {
  const uint64_t device = device_.next_event_ns();
  Instant at = device == simgpu::kNever ? kNever : Instant{static_cast<int64_t>(device)};
  at = std::min(at, coordinator_.next());
  for (const Program* program : live_) at = std::min(at, program->wake());
  return at;
}

bool Node::advance() {
  const Instant at = next();
  if (at == kNever) return false;
  now_ = std::max(now_, at);
  const bool device_moves = device_.next_event_ns() <= static_cast<uint64_t>(now_.ns);
  device_.advance_to(static_cast<uint64_t>(now_.ns));
  if (device_moves) {
    for (Program* program : live_) {
      if (program->has_work()) program->collect(now_);
    }
  }
  if (coordinator_.next_publish() <= now_) {
    coordinator_.publish(now_, [&](const engine::Output& output) {
      std::visit(
          [&](const auto& o) {
            using T = std::decay_t<decltype(o)>;
            if constexpr (requires { o.client; }) {
              Program& program = *programs_[o.client.value - 1];
              if (program.ended()) return;
              if constexpr (std::is_same_v<T, engine::SetGate>) program.set_gate(o, now_);
              if constexpr (std::is_same_v<T, engine::Release>) program.release(o, now_);
              if constexpr (std::is_same_v<T, engine::SetProgress>) program.set_progress(o);
              if constexpr (std::is_same_v<T, engine::Predict>) program.predict(o, now_);
            }
          },
          output);
    });
  }
  bool left = false;
  for (Program* program : live_) {
    if (program->wake() <= now_) program->act(now_);
    // What takes no time on an idle device is complete at once.
    if (program->has_work()) program->collect(now_);
    left = left || program->ended();
  }
  if (left) std::erase_if(live_, [](const Program* program) { return program->ended(); });
  coordinator_.step(now_);
  return true;
}

double Node::device_time_ns(const Program& program) const {
  if (program.ended()) return 0;
  return static_cast<double>(device_.busy_ns(program.context().slot));
}

double Node::device_busy_ns(uint32_t device) const {
  return static_cast<double>(device_.device_busy_ns(device));
}

uint64_t Node::kernel_events() const {
  uint64_t events = 0;
  for (const auto& program : programs_) events += program->launches() + program->completions();
  return events;
}

}  // namespace lull::simulate
