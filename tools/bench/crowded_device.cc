#include "tools/bench/crowded_device.h"

#include <algorithm>
#include <utility>

namespace lull::bench {
namespace {

constexpr uint8_t kLevels[] = {2, 5, 7};
constexpr int64_t kShortNs = 20'000, kLongNs = 60'000;
constexpr uint64_t kBurst = 8;               // launches of an important program before it waits
constexpr int64_t kBetweenNs = 6'000;        // host time between two launches
constexpr int64_t kPauseNs = 4'000'000;      // ... after a wait
constexpr uint64_t kAhead = 16;              // launches in flight of the others
constexpr uint64_t kTimedEach = 64;          // as lulld samples
constexpr int64_t kQuietNs = 3'000'000'000;  // after it, clients that have launched once are idle
constexpr DeviceId kDevice{0};

}  // namespace

CrowdedDevice::CrowdedDevice(const CrowdPlan& plan)
    : engine_({.policy = plan.policy, .max_clients = plan.members}), programs_(plan.members) {
  for (uint32_t i = 0; i < plan.launching; ++i) {  // of all levels by turns
    const uint32_t near = i * (plan.members / plan.launching);
    programs_[near - near % 3 + i % 3].launches = true;
  }
  for (uint32_t i = 0; i < plan.members; ++i) {
    Program& program = programs_[i];
    program.priority = Priority{kLevels[i % 3]};
    const ClientId client{i + 1};
    give(engine::ClientAttached{client, JobId{client.value}, program.priority,
                                "task " + std::to_string(i)});
    give(engine::DeviceUsed{client, kDevice});
    if (!plan.all_launched) continue;
    now_ns_ = std::max(now_ns_ + kLongNs, free_ns_);
    launch(i, /*released=*/false, program.charge_ns);
    now_ns_ = free_ns_;
    complete(device_.front());
    device_.pop_front();
  }
  now_ns_ += kQuietNs;
  for (uint32_t i = 0; i < plan.members; ++i) {
    if (programs_[i].launches) wake(i, now_ns_ + i);
  }
}

void CrowdedDevice::run(uint64_t inputs) {
  run(inputs, [](const std::function<void()>& step) { step(); });
}

void CrowdedDevice::run(uint64_t inputs, const Around& around) {
  around_ = &around;
  const uint64_t end = inputs_ + inputs;
  while (inputs_ < end) {
    const int64_t acts = due_.empty() ? INT64_MAX : due_.begin()->first;
    const int64_t ends = device_.empty() ? INT64_MAX : device_.front().ends_ns;
    now_ns_ = std::max(now_ns_, std::min({acts, ends, timer_ns_}));
    if (timer_ns_ <= now_ns_) {
      timer_ns_ = INT64_MAX;
      give(engine::TimerFired{});
    } else if (ends <= now_ns_) {
      const Unit unit = device_.front();
      device_.pop_front();
      complete(unit);
    } else {
      const uint32_t index = due_.begin()->second;
      due_.erase(due_.begin());
      act(index);
    }
  }
  around_ = nullptr;
}

// One step of the engine; then what it decided takes effect.
void CrowdedDevice::give(const engine::Input& input) {
  out_.clear();
  const auto step = [&] { engine_.step(Instant{now_ns_}, {&input, 1}, out_); };
  if (around_ == nullptr) {
    step();
  } else {
    (*around_)(step);
  }
  inputs_ += 1;
  outputs_ += out_.size();
  const bool busy = !news_.empty();  // whoever carries the news out is on the stack
  news_.insert(news_.end(), out_.begin(), out_.end());
  while (!busy && !news_.empty()) {
    carry_out(news_.front());
    news_.pop_front();
  }
}

void CrowdedDevice::carry_out(const engine::Output& output) {
  const auto note = [this](uint64_t value) { digest_ = (digest_ ^ value) * 1099511628211ULL; };
  note(output.index());
  if (const auto* gate = std::get_if<engine::SetGate>(&output)) {
    note(gate->client.value), note(static_cast<uint64_t>(gate->gate)),
        note(static_cast<uint64_t>(gate->granted.ns));
    Program& program = programs_[gate->client.value - 1];
    program.gate = gate->gate;
    program.granted_ns = gate->granted.ns;
    if (gate->new_epoch) program.spent_ns = 0;
    if (program.ticket != 0) wake(gate->client.value - 1, now_ns_ + 1);
  } else if (const auto* release = std::get_if<engine::Release>(&output)) {
    note(release->client.value), note(release->ticket.value);
    const uint32_t index = release->client.value - 1;
    if (programs_[index].ticket == release->ticket.value) launch(index, /*released=*/true, 0);
  } else if (const auto* predict = std::get_if<engine::Predict>(&output)) {
    note(predict->client.value), note(static_cast<uint64_t>(predict->length.ns));
    programs_[predict->client.value - 1].charge_ns = predict->length.ns;
  } else if (const auto* timer = std::get_if<engine::SetTimer>(&output)) {
    note(static_cast<uint64_t>(timer->at.ns));
    timer_ns_ = timer->at.ns;
  }
}

int64_t CrowdedDevice::length_ns(const Program& program) {
  return program.priority.level == kLevels[0] ? kShortNs : kLongNs;
}

void CrowdedDevice::act(uint32_t index) {
  const Program& program = programs_[index];
  if (!program.waits) try_launch(index);
}

void CrowdedDevice::try_launch(uint32_t index) {
  Program& program = programs_[index];
  bool goes = program.gate == engine::Gate::kOpen;
  int64_t charged = program.charge_ns;
  if (program.gate == engine::Gate::kCredit) {
    const bool any_length = program.spent_ns == 0 && (program.granted_ns & 1) != 0;
    goes = any_length || program.spent_ns + charged <= program.granted_ns;
    if (goes) charged = std::min(charged, program.granted_ns - program.spent_ns);
    if (goes) program.spent_ns += charged;
  }
  if (goes) {
    launch(index, /*released=*/false, charged);
  } else if (program.ticket == 0) {
    program.ticket = ++program.tickets;
    give(engine::Held{ClientId{index + 1}, kDevice, ThreadSlot{0}, StreamSlot{0},
                      Ticket{program.ticket}, KernelId{index + 1}, Instant{now_ns_}});
  }
}

void CrowdedDevice::launch(uint32_t index, bool released, int64_t charged_ns) {
  Program& program = programs_[index];
  const Ticket ticket{std::exchange(program.ticket, 0U)};
  free_ns_ = std::max(free_ns_, now_ns_) + length_ns(program);
  device_.push_back({index, ++program.launched, free_ns_});
  launched_ += 1;
  const bool important = program.priority.level == kLevels[0];
  if (important && program.launched % kBurst == 0) program.waits = true;
  if (!important && program.launched - program.completed >= kAhead) program.waits = true;
  if (!program.waits && program.launches) wake(index, now_ns_ + kBetweenNs);
  give(engine::Launched{.client = ClientId{index + 1},
                        .device = kDevice,
                        .stream = StreamSlot{0},
                        .sequence = program.launched,
                        .kernel = KernelId{index + 1},
                        .at = Instant{now_ns_},
                        .tracked = true,
                        .ticket = ticket,
                        .thread = ThreadSlot{0},
                        .charged = Duration{released ? 0 : charged_ns}});
}

void CrowdedDevice::complete(const Unit& unit) {
  Program& program = programs_[unit.program];
  const ClientId client{unit.program + 1};
  program.completed = unit.sequence;
  const bool through = program.waits && program.completed == program.launched;
  const bool important = program.priority.level == kLevels[0];
  if (through || (program.waits && !important)) {
    program.waits = false;
    if (program.launches) wake(unit.program, now_ns_ + (important ? kPauseNs : kBetweenNs));
  }
  give(engine::Progressed{client, StreamSlot{0}, unit.sequence,
                          through ? Instant{now_ns_} : kNever});
  if (unit.sequence % kTimedEach == 1) {
    give(engine::Timed{.client = client,
                       .kernel = KernelId{client.value},
                       .duration = Duration{length_ns(program)},
                       .launched = kNever,
                       .stream = StreamSlot{0},
                       .sequence = unit.sequence});
  }
}

}  // namespace lull::bench
