#include <algorithm>

#include "coordinator/engine/core.h"
#include "policies/launch/client_table.h"

namespace lull::engine {

namespace {

IterationStatus iteration_of(const Client& client) {
  const policies::IterationDetector& found = client.learned.detector();
  const policies::IterationTimes& times = client.learned.times();
  return {.locked = found.locked(),
          .in_step = found.in_step(),
          .period = found.period(),
          .position = found.position(),
          .confidence = found.confidence_per_mille(),
          .completed = found.completed(),
          .last = found.last_time(),
          .median = times.now(),
          .undisturbed = times.undisturbed(),
          .undisturbed_count = times.undisturbed_count(),
          .slowdown = found.locked() ? times.slowdown_per_mille() : 0,
          .lowest_position = found.lowest_memory_position(),
          .lowest_bytes = found.lowest_memory_bytes()};
}

}  // namespace

std::optional<TaskRecord> Engine::Core::record(ClientId id) const {
  const Client* client = find(id);
  if (client == nullptr || client->usages.empty()) return std::nullopt;
  TaskRecord record{.task = client->task, .gpu = client->model};
  record.kernels = client->profile->saved();
  if (record.kernels.empty()) return std::nullopt;
  record.undisturbed = client->learned.times().undisturbed();
  record.undisturbed_count = std::max<uint64_t>(client->learned.times().undisturbed_count(),
                                                policies::IterationTimes::kTrusted);
  return record;
}

bool Engine::Core::in_the_way(const Client& other, const Client& client, DeviceId device) const {
  if (other.ranks->stands()) return false;
  const DeviceUsage& others = *other.usage(device);
  const bool more_important = other.priority < client.priority;
  return holds_by_prediction()
             ? more_important && (others.units > 0 || !other.pending.empty() ||
                                  now_ - others.last_launch < policies::kActiveFor)
             : other.job != client.job && (others.gate == Gate::kOpen || others.units > 0);
}

std::optional<ClientId> Engine::Core::waits_for(ClientId client, DeviceId device) const {
  const Client* waiting = find(client);
  const DeviceUsage* usage = waiting == nullptr ? nullptr : waiting->usage(device);
  if (usage == nullptr) return std::nullopt;
  for (ClientId member : device_of(*usage).members) {
    if (member != client && in_the_way(*find(member), *waiting, device)) return member;
  }
  return std::nullopt;
}

void Engine::Core::cannot_share(const Client& client, std::vector<UnsharableStatus>& out) const {
  for (const auto& usage : client.usages) {
    const Device& on = device_of(*usage);
    for (ClientId member : on.members) {
      if (out.size() >= kMostShown) return;
      if (find(member)->priority >= client.priority) continue;
      const auto figures = on.policy->figures(member, client.id);
      if (figures && figures->longest > figures->slack)
        out.push_back({member, usage->device, *figures});
    }
  }
}

EngineStatus Engine::Core::status(ClientId from, size_t most_clients) const {
  EngineStatus status;
  status.policy = choice_.text;
  status.notices = notices_;
  status.steps = steps_;
  status.inputs = inputs_;
  status.dropped_inputs = dropped_;

  auto name = [](const Client& client) {
    return (client.task.empty() ? "client " + std::to_string(client.id.value) : client.task) +
           " (priority " + std::to_string(client.priority.level) + ")";
  };
  for (auto at = clients_.lower_bound(from);
       at != clients_.end() && status.clients.size() < most_clients; ++at) {
    const auto& [id, client] = *at;
    ClientStatus& entry = status.clients.emplace_back();
    entry.client = id;
    entry.job = client->job;
    entry.priority = client->priority;
    entry.task = client->task;
    entry.launches = client->launches;
    entry.floor_grants = client->floor_grants;
    entry.kernels = client->profile->size();
    entry.stopped = client->ranks->is_stopped();
    entry.iteration = iteration_of(*client);
    for (const auto& usage : client->usages) {
      entry.devices.push_back(DeviceUsageStatus{
          .device = usage->device,
          .gate = usage->gate,
          .granted = usage->credit.granted(),
          .in_flight = usage->in_flight,
          .device_time = usage->device_time,
          .outstanding = usage->units,
          .works_until = works_until(*client, *usage),
          .marked_every = usage->marked_every,
      });
    }
    cannot_share(*client, entry.cannot_share);
    for (const PendingLaunch& pending : client->pending) {
      const DeviceUsage& usage = *client->usage(pending.device);
      if (pending.released || usage.gate == Gate::kOpen) continue;
      entry.held_threads += 1;
      if (entry.held.size() >= kMostShown) continue;
      HeldStatus& held = entry.held.emplace_back();
      held.thread = pending.thread;
      held.ticket = pending.ticket;
      held.device = pending.device;
      held.stream = pending.stream;
      held.kernel = pending.kernel;
      held.since = pending.since;
      std::string first;
      if (entry.stopped) {
        held.why = "its job is stopped by order";
        continue;
      }
      for (ClientId member : device_of(usage).members) {
        const Client& other = *find(member);
        if (!in_the_way(other, *client, pending.device)) continue;
        if (held.by.empty()) first = name(other);
        held.by.push_back(member);
        if (held.by.size() >= kMostShown) break;
      }
      if (usage.gate == Gate::kCredit) {
        held.why = "at most " + std::to_string(usage.credit.limit().ns / 1000) +
                   " us of it may be in flight" + (first.empty() ? "" : " beside " + first);
      } else if (client->ranks->closed && usage.wanted != Gate::kClosed) {
        held.why = "another process of its job is held";
      } else if (!holds_by_prediction()) {
        held.why = first.empty() ? "waits for its turn" : "waits for its turn after " + first;
      } else {
        held.why = first.empty() ? "a more important task has just left"
                                 : first + " comes first on this device";
      }
    }
  }
  return status;
}

}  // namespace lull::engine
