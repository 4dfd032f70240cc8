#include <algorithm>

#include "coordinator/engine/core.h"
#include "policies/launch/client_table.h"

namespace lull::engine {

EngineStatus Engine::Core::status() const {
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
  for (const auto& [id, client] : clients_) {
    ClientStatus& entry = status.clients.emplace_back();
    entry.client = id;
    entry.job = client->job;
    entry.priority = client->priority;
    entry.task = client->task;
    entry.launches = client->launches;
    entry.floor_grants = client->floor_grants;
    entry.kernels = client->profile->size();
    for (const auto& seat : client->seats) {
      entry.devices.push_back(SeatStatus{
          .device = seat->device,
          .gate = seat->gate,
          .granted = seat->gate == Gate::kCredit ? seat->granted : Duration{},
          .in_flight = seat->in_flight,
          .device_time = seat->device_time,
          .outstanding = seat->units,
          .every_launch = seat->every_launch,
      });
    }
    for (const Head& head : client->heads) {
      const Seat& seat = *client->seat(head.device);
      if (head.released || seat.gate == Gate::kOpen) continue;
      HeldStatus& held = entry.held.emplace_back();
      held.thread = head.thread;
      held.ticket = head.ticket;
      held.device = head.device;
      held.stream = head.stream;
      held.kernel = head.kernel;
      held.since = head.since;
      std::string first;
      for (ClientId member : device_of(seat).members) {
        const Client& other = *find(member);
        const Seat& others = *other.seat(head.device);
        const bool more_important = other.priority < client->priority;
        const bool in_the_way =
            holds_by_prediction()
                ? more_important && (others.units > 0 || !other.heads.empty() ||
                                     now_ - others.last_launch < policies::kActiveFor)
                : other.job != client->job && (others.gate == Gate::kOpen || others.units > 0);
        if (!in_the_way) continue;
        if (held.by.empty()) first = name(other);
        held.by.push_back(member);
      }
      if (seat.gate == Gate::kCredit) {
        held.why = "at most " + std::to_string(seat.bound.ns / 1000) +
                   " us of it may be in flight" + (first.empty() ? "" : " beside " + first);
      } else if (jobs_.find(client->job)->second.closed && seat.wanted != Gate::kClosed) {
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
