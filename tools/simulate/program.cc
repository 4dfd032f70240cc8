#include "tools/simulate/program.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "coordinator/channel/progress.h"

namespace lull::simulate {
namespace {

constexpr uint32_t kQueuePlaces = simgpu::kMaxOps;  // what a driver queues before a launch waits
constexpr uint32_t kGreedyCallNs = 1000;
constexpr ThreadSlot kThread{0};

}  // namespace

Program::Program(const ProgramPlan& plan, ClientId client, simgpu::DeviceModel& device,
                 CoordinatorModel& coordinator, Duration jitter, uint32_t timing_period,
                 Instant now)
    : plan_(plan),
      script_(*plan.script),
      client_(client),
      device_(device),
      coordinator_(coordinator),
      jitter_(jitter),
      random_(plan.seed),
      arrivals_(plan.seed ^ 0x5ca1ab1e),
      wake_(now),
      events_(script_.events),
      predictions_(script_.units.size()),
      timer_(timing_period, script_.units.size()) {
  process_ = *device_.add_process(static_cast<int32_t>(client.value), 1);
  context_ = *device_.create_context(process_, plan.device);
  streams_.resize(script_.streams);
  for (Stream& stream : streams_) stream.id = *device_.create_stream(context_);
  for (uint32_t unit = 0; unit < script_.units.size(); ++unit) {
    unit_by_id_.emplace_back(script_.units[unit].id.value, unit);
  }
  std::sort(unit_by_id_.begin(), unit_by_id_.end());
  const JobId job = plan.job.value != 0 ? plan.job : JobId{(uint64_t{1} << 32) + client.value};
  coordinator_.attach({client_, job, plan.priority, plan.task, plan.bound}, DeviceId{plan.device},
                      script_.streams, now);
  timeline_.restart(static_cast<uint64_t>(now.ns));
  next_arrival_ = now;
  begin_iteration(now);
}

// ---- host ---------------------------------------------------------------------------------------

void Program::begin_iteration(Instant now) {
  position_ = 0;
  state_ = State::kCalling;
  Instant start = now;
  arrived_ = kNever;
  if (plan_.arrival_interval_ns > 0) {
    next_arrival_ =
        next_arrival_ + Duration{std::llround(arrivals_.exponential(plan_.arrival_interval_ns))};
    arrived_ = next_arrival_;
    start = std::max(now, arrived_);
  } else if (iteration_ > 0 && !plan_.greedy) {
    start = now + Duration{static_cast<int64_t>(script_.pause_after_ns)};
  }
  began_ = kNever;
  if (start > now) start = late(start);
  wake_ = start;
}

void Program::plan_call(Instant ready) {
  const Duration pause{plan_.greedy ? 0 : static_cast<int64_t>(script_.calls[position_].pause_ns)};
  deadline_ = ready + pause;
  state_ = State::kCalling;
  wake_ = pause.ns > 0 ? late(deadline_) : deadline_;
}

void Program::end_iteration(Instant now) {
  services_.push_back({arrived_ == kNever ? began_ : arrived_, began_, now});
  iteration_ += 1;
  if (iteration_ >= plan_.iterations) {
    leave(now);
    return;
  }
  begin_iteration(now);
}

void Program::act(Instant now) {
  while (wake_ <= now && state_ != State::kEnded) {
    if (state_ == State::kCalling && began_ == kNever) {
      if (stopping_) {
        leave(now);
        return;
      }
      began_ = now;
      timeline_.restart(static_cast<uint64_t>(now.ns));
      plan_call(now);
      continue;
    }
    switch (state_) {
      case State::kCalling:
        if (stopping_ && in_flight_ == 0) {
          leave(now);
          return;
        }
        if (stopping_) {  // waits for what it has launched
          state_ = State::kSyncing;
          waiting_for_device_ = true;
          wake_ = kNever;
          return;
        }
        called_ = now;
        if (!make_call(now)) return;
        break;
      case State::kHeld:
      case State::kFull:
        if (!make_call(now)) return;
        break;
      case State::kSyncing:
        if (!is_synced()) {
          wake_ = kNever;
          return;
        }
        returned(now);
        break;
      case State::kEnded:
        return;
    }
  }
}

// The call has returned, or did something that takes the host no time.
void Program::returned(Instant now) {
  const Call& call = script_.calls[position_];
  const bool sync = call.kind == CallKind::kSyncStream || call.kind == CallKind::kSyncDevice;
  // A blocking read-back says so too, as in shim/hooks/copy.cc.
  const bool read_back = call.waits && call.op == simgpu::OpKind::kCopyD2H;
  if (sync || read_back) {
    for (uint32_t slot = 0; slot < streams_.size(); ++slot) {
      if (call.kind != CallKind::kSyncDevice && slot != call.stream) continue;
      Stream& stream = streams_[slot];
      if (stream.sequence <= stream.synced) continue;  // told before
      stream.synced = stream.sequence;
      coordinator_.synced(client_, StreamSlot{slot}, stream.sequence, now);
    }
    timer_.harvest([&](const TimerModel::Sample& sample, Duration duration, Duration gap) {
      measured(sample, duration, gap, now);
    });
  }
  if (sync) {
    timeline_.blocking_call(static_cast<uint64_t>(now.ns));
  } else {
    const uint64_t marker_ns = std::exchange(marked_, false) ? script_.marker_host_ns : 0;
    const uint64_t call_ns = (plan_.greedy ? kGreedyCallNs : call.call_ns) + marker_ns;
    timeline_.async_call(static_cast<uint64_t>(deadline_.ns), call_ns,
                         static_cast<uint64_t>(called_.ns), static_cast<uint64_t>(now.ns));
  }
  position_ += 1;
  if (stopping_ && in_flight_ == 0 && sync) {
    leave(now);
    return;
  }
  if (position_ == script_.calls.size()) {
    end_iteration(now);
    return;
  }
  const Instant ready{static_cast<int64_t>(timeline_.ready_ns())};
  if (plan_.greedy) {
    deadline_ = std::max(ready, now);
    state_ = State::kCalling;
    wake_ = deadline_;
  } else {
    plan_call(ready);
  }
}

bool Program::make_call(Instant now) {
  const Call& call = script_.calls[position_];
  switch (call.kind) {
    case CallKind::kWork: {
      if (queued_weight_ + 4 > kQueuePlaces) {
        state_ = State::kFull;
        wake_ = kNever;
        return false;
      }
      if (call.care == Care::kUnit && !pass_gate(call, now)) return false;
      submit_work(call, now);
      if (call.waits) {
        state_ = State::kSyncing;
        waiting_for_device_ = false;
        sync_stream_ = call.stream;
        wake_ = kNever;
        return false;
      }
      break;
    }
    case CallKind::kRecordEvent:
      events_[call.event] = {call.stream, streams_[call.stream].last_device_seq};
      break;
    case CallKind::kWaitEvent:
      wait_event(call, now);
      break;
    case CallKind::kSyncStream:
    case CallKind::kSyncDevice:
      state_ = State::kSyncing;
      waiting_for_device_ = call.kind == CallKind::kSyncDevice;
      sync_stream_ = call.stream;
      if (!is_synced()) {
        wake_ = kNever;
        return false;
      }
      break;
  }
  returned(now);
  return true;
}

bool Program::is_synced() const {
  return waiting_for_device_ ? in_flight_ == 0 : streams_[sync_stream_].units.empty();
}

void Program::leave(Instant now) {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  wake_ = kNever;
  coordinator_.detach(client_, now);
  device_.remove_process(process_);
  in_flight_ = 0;
  busy_.clear();
}

void Program::kill(Instant now) { leave(now); }

// ---- shim ---------------------------------------------------------------------------------------

uint32_t Program::predicted(const Call& call) const {
  const uint32_t told = predictions_[call.unit];
  return told != 0 ? told : script_.units[call.unit].default_ns;
}

bool Program::may_go(const Call& call) {
  switch (channel::gate_state(gate_)) {
    case channel::GateState::kOpen:
      return true;
    case channel::GateState::kCredit:
      if (!channel::try_spend(gate_, spent_, predicted(call))) return false;
      charged_ = channel::charged_ns(gate_, predicted(call));
      return true;
    default:
      return false;
  }
}

bool Program::pass_gate(const Call& call, Instant now) {
  if (may_go(call)) return true;
  if (ticket_ != 0 && released_ == ticket_) return true;
  if (ticket_ == 0) {
    ticket_ = ++last_ticket_;
    held_since_ = now;
    coordinator_.held({.client = client_,
                       .device = DeviceId{plan_.device},
                       .thread = kThread,
                       .stream = StreamSlot{call.stream},
                       .ticket = Ticket{ticket_},
                       .kernel = script_.units[call.unit].id,
                       .at = now},
                      now);
  }
  state_ = State::kHeld;
  wake_ = kNever;
  return false;
}

void Program::submit_work(const Call& call, Instant now) {
  Stream& stream = streams_[call.stream];
  Unit unit;
  unit.kernel = call.op == simgpu::OpKind::kKernel;
  uint64_t work_ns = call.work_ns;
  if (unit.kernel && iteration_ >= plan_.drift_from) {
    work_ns = static_cast<uint64_t>(static_cast<double>(work_ns) * plan_.drift);
  }
  unit.kernel_ns = unit.kernel ? static_cast<double>(call.kernel_ns) : 0;
  if (call.care != Care::kQuiet) {
    if (charged_ != 0) {
      unit.credit = Duration{charged_};
      credit_in_flight_ += unit.credit;
      longest_credit_unit_ = std::max(longest_credit_unit_, unit.credit);
    }
    unit.sequence = ++stream.sequence;
    unit.tracked = call.stream < channel::kUntrackedStream &&
                   channel::takes_marker(marked_every_, unit.sequence, stream.marked,
                                         stream.synced + 1 == unit.sequence);
    if (unit.tracked) stream.marked = unit.sequence;
    marked_ = unit.tracked;
    if (unit.tracked) work_ns += script_.marker_ns;
    coordinator_.launched({.client = client_,
                           .device = DeviceId{plan_.device},
                           .stream = StreamSlot{call.stream},
                           .sequence = unit.sequence,
                           .kernel = script_.units[call.unit].id,
                           .at = now,
                           .tracked = unit.tracked,
                           .ticket = Ticket{ticket_},
                           .thread = kThread,
                           .charged = unit.credit,
                           .memory_bytes = script_.memory_bytes,
                           .copy = call.op == simgpu::OpKind::kCopyH2D ||
                                   call.op == simgpu::OpKind::kCopyD2H},
                          now);
    ticket_ = 0;
    charged_ = 0;
    unit.weight += unit.tracked ? 1 : 0;
    unit.sample = timer_.launch(
        call.unit, call.stream, unit.sequence, now,
        [&](const TimerModel::Sample& sample, Duration duration, Duration gap) {
          measured(sample, duration, gap, now);
        });
    if (unit.sample != 0) {
      unit.weight += 2;
      if (stream.units.empty()) timer_.begun(unit.sample, now);
    }
    launches_ += 1;
  }
  if (simgpu::engine_of(call.op) == simgpu::Engine::kCompute) unit.compute_ns = work_ns;
  launched_compute_ += unit.compute_ns > 0 ? 1 : 0;
  unit.device_seq = *device_.submit(stream.id, {.kind = call.op}, work_ns, call.sm_demand);
  stream.last_device_seq = unit.device_seq;
  if (stream.units.empty()) busy_.push_back(call.stream);
  stream.units.push_back(unit);
  in_flight_ += 1;
  queued_weight_ += unit.weight;
}

void Program::measured(const TimerModel::Sample& sample, Duration duration, Duration gap,
                       Instant now) {
  coordinator_.timed({client_, script_.units[sample.unit].id, duration, gap, sample.launched,
                      StreamSlot{sample.stream}, sample.sequence},
                     now);
}

void Program::wait_event(const Call& call, Instant) {
  const auto [other, seq] = events_[call.event];
  if (seq == 0 || other == call.stream) return;
  const simgpu::OpPoint point{streams_[other].id, seq};
  if (device_.is_complete(point)) return;
  Stream& stream = streams_[call.stream];
  simgpu::Op op{.kind = simgpu::OpKind::kMarker};
  op.wait_for[0] = point;
  op.wait_count = 1;
  Unit unit;
  unit.device_seq = *device_.submit(stream.id, op, 0, 1);
  stream.last_device_seq = unit.device_seq;
  if (stream.units.empty()) busy_.push_back(call.stream);
  stream.units.push_back(unit);
  in_flight_ += 1;
  queued_weight_ += 1;
}

void Program::collect(Instant now) {
  bool any = false;
  for (size_t i = 0; i < busy_.size();) {
    const uint32_t slot = busy_[i];
    Stream& stream = streams_[slot];
    const uint64_t completed = on_device(stream).completed_seq;
    uint64_t written = 0;
    while (!stream.units.empty() && stream.units.front().device_seq <= completed) {
      const Unit& unit = stream.units.front();
      if (unit.sample != 0) timer_.ended(unit.sample, now);
      if (unit.tracked) written = unit.sequence;
      if (unit.sequence != 0) completions_ += 1;
      completed_kernel_ns_ += unit.kernel_ns;
      completed_compute_ += unit.compute_ns > 0 ? 1 : 0;
      if (plan_.ran && unit.compute_ns > 0) {
        plan_.ran(now - Duration{static_cast<int64_t>(unit.compute_ns)}, now);
      }
      credit_in_flight_ -= unit.credit;
      queued_weight_ -= unit.weight;
      in_flight_ -= 1;
      stream.units.pop_front();
      if (!stream.units.empty() && stream.units.front().sample != 0) {
        timer_.begun(stream.units.front().sample, now);
      }
      any = true;
    }
    if (written != 0) coordinator_.progressed(client_, StreamSlot{slot}, written, now);
    if (stream.units.empty()) {
      busy_[i] = busy_.back();
      busy_.pop_back();
    } else {
      ++i;
    }
  }
  if (!any) return;
  if (state_ == State::kFull) wake_ = now;
  if (state_ == State::kSyncing && wake_ == kNever && is_synced()) wake_ = late(now);
}

double Program::executed_kernel_ns(Instant now) const {
  double executed = completed_kernel_ns_;
  for (const uint32_t slot : busy_) {
    const Unit& unit = streams_[slot].units.front();
    const simgpu::stream_state& device = on_device(streams_[slot]);
    if (unit.kernel_ns <= 0 || device.started == 0) continue;
    const double since = static_cast<double>(static_cast<uint64_t>(now.ns) - device.started_ns);
    executed += std::min(unit.kernel_ns, since);
  }
  return executed;
}

Progress Program::progress(Instant now) const {
  Progress progress{.launched = launched_compute_, .completed = completed_compute_, .call = position_};
  for (const uint32_t slot : busy_) {
    const Unit& unit = streams_[slot].units.front();
    const simgpu::stream_state& device = on_device(streams_[slot]);
    if (unit.compute_ns == 0 || device.started == 0) continue;
    const Instant end{static_cast<int64_t>(device.started_ns + unit.compute_ns)};
    progress.running = std::max(end - now, Duration{0});
  }
  progress.between = state_ == State::kCalling && began_ == kNever;
  progress.waiting = state_ == State::kSyncing;
  if (state_ == State::kCalling) {
    progress.due = (progress.between ? wake_ : deadline_) - now;
  }
  return progress;
}

// ---- what the coordinator publishes -------------------------------------------------------------

void Program::set_gate(const engine::SetGate& gate, Instant now) {
  if (gate.new_epoch) ++epoch_;
  constexpr channel::GateState kStates[] = {channel::GateState::kOpen, channel::GateState::kCredit,
                                            channel::GateState::kClosed};
  const channel::GateState state = kStates[static_cast<size_t>(gate.gate)];
  const uint64_t granted = state == channel::GateState::kCredit
                               ? static_cast<uint64_t>(std::max<int64_t>(0, gate.granted.ns))
                               : 0;
  gate_ = channel::pack_gate(state, epoch_, granted);
  if (state_ == State::kHeld && state != channel::GateState::kClosed && wake_ == kNever) {
    wake_ = late(now);
  }
}

void Program::release(const engine::Release& release, Instant now) {
  released_ = release.ticket.value;
  if (state_ == State::kHeld && released_ == ticket_ && wake_ == kNever) wake_ = late(now);
}

void Program::set_progress(const engine::SetProgress& progress) {
  marked_every_ = progress.every;
}

void Program::predict(const engine::Predict& prediction, Instant now) {
  const auto found = std::lower_bound(unit_by_id_.begin(), unit_by_id_.end(),
                                      std::pair<uint64_t, uint32_t>{prediction.kernel.value, 0});
  if (found == unit_by_id_.end() || found->first != prediction.kernel.value) return;
  const bool waited_for = predictions_[found->second] == 0;
  predictions_[found->second] = channel::told_ns(prediction.length.ns);
  if (waited_for && state_ == State::kHeld && wake_ == kNever) wake_ = late(now);
}

}  // namespace lull::simulate
