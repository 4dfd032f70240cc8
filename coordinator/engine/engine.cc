#include "coordinator/engine/engine.h"

#include <algorithm>

#include "coordinator/engine/core.h"

namespace lull::engine {
namespace {

template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};

// Later instants would overflow when a duration is added; the clock never gets there.
constexpr Instant kLatest{INT64_MAX / 4};
// How many decisions a policy may take in a step: some for each client and thread, and a few more.
constexpr size_t kDecisionsPerMember = 8 + kMaxPending;
constexpr size_t kDecisionsAnyway = 64;

}  // namespace

Engine::Engine(EngineOptions options) : core_(std::make_unique<Core>(std::move(options))) {}
Engine::~Engine() = default;
void Engine::step(Instant now, std::span<const Input> inputs, std::vector<Output>& out) {
  core_->step(now, inputs, out);
}
EngineStatus Engine::status(ClientId from, size_t most_clients) const {
  return core_->status(from, most_clients);
}
std::string Engine::policy() const { return core_->policy(); }
std::optional<TaskRecord> Engine::record(ClientId client) const { return core_->record(client); }
std::optional<ClientId> Engine::waits_for(ClientId client, DeviceId device) const {
  return core_->waits_for(client, device);
}

Engine::Core::Core(EngineOptions options) : options_(std::move(options)) {
  auto choice = policies::parse_policy(options_.policy, options_.policies);
  if (!choice) {
    bad_first_policy_ = choice.error();
    choice = policies::parse_policy("share");
  }
  choice_ = *choice;
}

void Engine::Core::step(Instant now, std::span<const Input> inputs, std::vector<Output>& out) {
  out_ = &out;
  now_ = std::clamp(now, now_, kLatest);
  steps_ += 1;
  inputs_ += inputs.size();
  if (!bad_first_policy_.empty()) {
    notice("policy share: " + bad_first_policy_);
    bad_first_policy_.clear();
  }

  for (const Input& input : inputs) {
    std::visit([this](const auto& i) { take(i); }, input);
  }
  while (!wakes_.empty() && wakes_.begin()->first <= now_) {
    Client& client = *find(wakes_.begin()->second);
    wakes_.erase(wakes_.begin());
    client.wake = kNever;
    mark(client);
  }
  // The list grows while it is read.
  for (size_t i = 0; i < dirty_.size(); ++i) {
    retire_due(*dirty_[i]);
    expire_grants(*dirty_[i]);
  }
  follow_orders();
  ask_policies();
  for (size_t i = 0; i < dirty_.size(); ++i) {
    look_for_inversion(*dirty_[i]);
    watchdog(*dirty_[i]);
  }
  apply_job_rules();

  std::ranges::sort(dirty_, {}, &Client::id);
  for (Client* client : dirty_) {
    client->dirty = false;
    publish(*client);
    set_wake(*client);
  }
  dirty_.clear();
  set_timer();
  out_ = nullptr;
}

void Engine::Core::mark(Client& client) {
  if (client.dirty) return;
  client.dirty = true;
  dirty_.push_back(&client);
}

void Engine::Core::mark_all(const Device& on) {
  for (ClientId member : on.members) {
    if (Client* client = find(member)) mark(*client);
  }
}

void Engine::Core::notice(std::string text) {
  if (notices_.size() >= kNoticesKept) notices_.erase(notices_.begin());
  notices_.push_back(text);
  put(Notice{std::move(text)});
}

void Engine::Core::use_policy(const policies::PolicyChoice& choice) {
  choice_ = choice;
  for (auto& [id, on] : devices_) {
    on.policy = choice_.row->make(choice_.values);
    on.policy_timer = kNever;
    replay(id, on);
    watch_device(id, on);
    mark_all(on);
  }
}

// Tells a new policy the present state. All its clients begin with an open gate.
void Engine::Core::replay(DeviceId id, Device& on) {
  on.events.clear();
  std::vector<std::pair<uint64_t, ClientId>> by_arrival;
  for (ClientId member : on.members) {
    by_arrival.emplace_back(find(member)->ranks->arrival, member);
  }
  std::sort(by_arrival.begin(), by_arrival.end());
  for (const auto& [arrival, member] : by_arrival) introduce(id, on, *find(member));
  on.stuck_level = kNobodyStuck;
}

// Introduces a client to the policy: that it has joined, what it has in flight, which threads wait.
void Engine::Core::introduce(DeviceId id, Device& on, Client& client) {
  DeviceUsage& usage = *client.usage(id);
  usage.wanted = Gate::kOpen;
  usage.stuck = false;
  tell(on, client,
       policies::Joined{client.id, client.job, client.priority, client.ranks->arrival,
                        usage.last_launch, client.bound, client.has_peers});
  for (uint32_t slot = 0; slot < client.streams.size(); ++slot) {
    for (const Unit& unit : client.streams[slot].units) {
      if (unit.device != id) continue;
      Duration predicted = unit.predicted;
      Duration expected = unit.expected;
      for (uint32_t i = 0; i < unit.count; ++i, predicted = expected = Duration{}) {
        tell(on, client,
             policies::Submitted{.client = client.id,
                                 .thread = {},
                                 .kernel = {},
                                 .predicted = predicted,
                                 .gap = {-1},
                                 .at = unit.at,
                                 .expected = expected,
                                 .stream = StreamSlot{slot}});
      }
    }
  }
  if (client.ranks->is_stopped()) return;
  for (PendingLaunch& pending : client.pending) {
    if (pending.device != id || pending.released) continue;
    // As this policy's predictor says it.
    pending.said =
        predict(client, use_kernel(client, pending.kernel), client.learned.next(pending.kernel));
    tell(on, client, waiting(client, pending));
  }
}

void Engine::Core::ask_policies() {
  for (auto it = devices_.begin(); it != devices_.end(); ++it) {
    auto& [id, on] = *it;
    if (on.policy_timer <= now_) {
      on.policy_timer = kNever;
      on.events.push_back(policies::TimerDue{});
    }
    if (on.events.empty()) continue;
    decisions_.clear();
    on.policy->step(now_, on.events, decisions_);
    on.events.clear();
    std::string broken;
    if (decisions_.size() > kDecisionsAnyway + kDecisionsPerMember * on.members.size()) {
      broken = std::to_string(decisions_.size()) + " decisions in one step";
    }
    for (size_t i = 0; i < decisions_.size() && broken.empty(); ++i) {
      broken = carry_out(id, on, decisions_[i]);
    }
    if (!broken.empty()) {
      eject(id, broken);
      return;  // `share` has taken its place, and decides nothing
    }
  }
}

std::string Engine::Core::carry_out(DeviceId id, Device& on, const policies::Decision& decision) {
  auto set_gate = [&](ClientId client_id, Gate gate, Duration bound,
                      bool any_length = true) -> std::string {
    Client* client = find(client_id);
    DeviceUsage* usage = client == nullptr ? nullptr : client->usage(id);
    if (usage == nullptr) {
      return "a gate for client " + std::to_string(client_id.value) + ", which is not there";
    }
    if (bound.ns < 0 || bound > policies::kMaxCreditBound) {
      return "a credit of " + std::to_string(bound.ns) + " ns for client " +
             std::to_string(client_id.value);
    }
    usage->wanted = gate;
    usage->bound = bound;
    usage->any_length = any_length;
    mark(*client);
    return {};
  };
  return std::visit(
      Overloaded{
          [&](const policies::Open& d) { return set_gate(d.client, Gate::kOpen, {}); },
          [&](const policies::Credit& d) { 
            return set_gate(d.client, Gate::kCredit, d.bound, d.any_length);
          },
          [&](const policies::Close& d) { return set_gate(d.client, Gate::kClosed, {}); },
          [&](const policies::ReleaseLaunch& d) -> std::string {
            if (Client* client = find(d.client)) {
              for (PendingLaunch& pending : client->pending) {
                if (pending.thread != d.thread || pending.ticket != d.ticket ||
                    pending.device != id) {
                  continue;
                }
                if (pending.released) break;
                release(*client, pending, /*tell_policy=*/false);
                return {};
              }
            }
            return "release of ticket " + std::to_string(d.ticket.value) + " of client " +
                   std::to_string(d.client.value) + ", which is not waiting";
          },
          [&](const policies::WakeAt& d) -> std::string {
            if (d.at <= now_) return "a timer that is not in the future";
            on.policy_timer = d.at;
            return {};
          },
      },
      decision);
}

void Engine::Core::eject(DeviceId id, const std::string& broken_rule) {
  const std::string name(choice_.row->name);
  use_policy(*policies::parse_policy("share"));
  // `share` takes no decision, so there is nothing to ask it.
  for (auto& [device_id, on] : devices_) on.events.clear();
  notice("policy " + name + " broke a rule on device " + std::to_string(id.value) + " (" +
         broken_rule + "): replaced by share; mend it or name another policy");
}

void Engine::Core::set_timer() {
  Instant next = wakes_.empty() ? kNever : wakes_.begin()->first;
  for (const auto& [id, on] : devices_) next = std::min(next, on.policy_timer);
  if (next < timer_ || timer_ <= now_) {
    timer_ = next;
    put(SetTimer{next});
  }
}

}  // namespace lull::engine
