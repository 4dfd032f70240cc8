#include "coordinator/daemon/status.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "coordinator/daemon/job_status.h"
#include "coordinator/daemon/log.h"

namespace lull::daemon {
namespace {

using nlohmann::json;

constexpr size_t kUsersShown = 64;      // of a device
constexpr size_t kHeldNameShown = 128;  // bytes of a kernel's name
// About what a client, a device or held launch of it, and a kernel without its name come to as
// JSON.
constexpr size_t kClientBytes = 1200;
constexpr size_t kRowBytes = 350;
constexpr size_t kKernelBytes = 200;

// Null: no limit. 2^64-1 is no number that every reader of JSON can hold.
json bytes_json(uint64_t bytes) { return bytes == UINT64_MAX ? json(nullptr) : json(bytes); }

json client_devices(const Session& session, const engine::ClientStatus* known,
                    const DeviceTable& devices, Instant now) {
  json list = json::array();
  std::set<uint32_t> shown;
  for (uint32_t index = 0; index < session.device_count(); ++index) {
    const auto id = session.device(index);
    if (!id || !shown.insert(id->value).second) continue;
    const DeviceRow* row = devices.find(*id);
    constexpr const char* kGates[] = {"open", "credit", "closed"};
    json device = {
        {"uuid", row != nullptr ? uuid_text(row->known.uuid, row->known.instance) : "?"},
        {"gate", kGates[static_cast<size_t>(session.gate_state(index)) % 3]},
        {"memory_bytes", channel::memory_used(session.region(), index)},
        {"memory_allowance_bytes", bytes_json(channel::memory_allowance(session.region(), index))},
        {"in_flight_ns", 0},
        {"device_time_ns", 0}};
    if (known != nullptr) {
      const auto usage =
          std::find_if(known->devices.begin(), known->devices.end(),
                       [&](const engine::DeviceUsageStatus& s) { return s.device == *id; });
      if (usage != known->devices.end()) {
        const bool works = usage->works_until > now;
        device["in_flight_ns"] = works ? usage->in_flight.ns : 0;
        device["device_time_ns"] = usage->device_time.ns;
        device["outstanding"] = works ? usage->outstanding : 0;
      }
    }
    list.push_back(std::move(device));
  }
  return list;
}

json client_held(const Session& session, const engine::ClientStatus* known, Instant now) {
  json list = json::array();
  if (known == nullptr) return list;
  for (const engine::HeldStatus& held : known->held) {
    json by = json::array();
    for (const ClientId id : held.by) by.push_back(id.value);
    list.push_back(
        {{"thread", session.thread_tid(held.thread)},
         {"kernel", printable(session.kernel_name(held.kernel)).substr(0, kHeldNameShown)},
         {"for_us", std::max<int64_t>(0, now.ns - held.since.ns) / 1000},
         {"by", std::move(by)},
         {"why", held.why}});
  }
  return list;
}

// More important clients that it cannot share a device with.
json client_cannot_share(const engine::ClientStatus* known) {
  json list = json::array();
  if (known == nullptr) return list;
  for (const engine::UnsharableStatus& pair : known->cannot_share) {
    list.push_back({{"with", pair.with.value},
                    {"device", pair.device.value},
                    {"longest_ns", pair.figures.longest.ns},
                    {"slack_ns", std::max<int64_t>(0, pair.figures.slack.ns)}});
  }
  return list;
}

// Devices that the client runs on without the coordinator.
json client_unscheduled(const Session& session, const std::string& why_unknown) {
  json list = json::array();
  for (const Session::UnknownDevice& device : session.unknown_devices()) {
    list.push_back({{"uuid", uuid_text(device.uuid)},
                    {"why", device.told ? why_unknown : "the driver is asked about it"}});
  }
  return list;
}

// Parts of one, as every share here. Null: as the policy is set.
json bound_json(SlowdownBound bound) {
  if (!bound.is_set()) return nullptr;
  return {{"mean", bound.mean_per_mille / 1000.0}, {"p99", bound.p99_per_mille / 1000.0}};
}

// A program counts by the host's clock how long it was held; every other time here is the device's.
int64_t held_ns(const channel::ThreadTotals& totals, double slow_motion) {
  return static_cast<int64_t>(static_cast<double>(totals.held_ns) / std::max(1.0, slow_motion));
}

json client_json(const Session& session, const engine::ClientStatus* known,
                 const DeviceTable& devices, const std::string& why_unknown, Instant now,
                 double slow_motion) {
  const SessionBirth& who = session.who();
  const channel::ThreadTotals totals = session.totals();
  return {{"id", who.id.value},
          {"pid", who.peer.pid},
          {"namespace_pid", who.namespace_pid},
          {"uid", who.peer.uid},
          {"task", who.task},
          {"job", who.job_name},
          {"program", who.program},
          {"priority", who.priority.level},
          {"max_slowdown", bound_json(who.bound)},
          {"devices", client_devices(session, known, devices, now)},
          {"unscheduled", client_unscheduled(session, why_unknown)},
          {"launches", totals.launches},
          {"graph_kernels", totals.graph_kernels},
          {"copies", totals.copies},
          {"memsets", totals.memsets},
          {"dropped", totals.dropped},
          {"untimed", totals.untimed},
          {"held_ns", held_ns(totals, slow_motion)},
          {"held", client_held(session, known, now)},
          {"cannot_share", client_cannot_share(known)},
          {"held_threads", known != nullptr ? known->held_threads : 0},
          {"kernels", session.kernel_count()},
          {"floor_grants", known != nullptr ? known->floor_grants : 0},
          {"unheld_launches", totals.unheld},
          {"lies", session.lies()},
          {"residence", client_residence(session)}};
}

json iteration_json(const engine::IterationStatus& found) {
  return {{"locked", found.locked},
          {"in_step", found.in_step},
          {"period_launches", found.period},
          {"position", found.position},
          {"confidence", found.confidence},
          {"completed", found.completed},
          {"last_ns", found.last.ns},
          {"median_ns", found.median.ns},
          {"undisturbed_ns", found.undisturbed.ns},
          {"undisturbed_count", found.undisturbed_count},
          {"slowdown", static_cast<double>(found.slowdown) / 1000.0},
          {"lowest_memory_position", found.lowest_position},
          {"lowest_memory_bytes", found.lowest_bytes}};
}

// How busy the client is lately, and what it repeats.
void add_rates(json& client, const Session& session, const engine::ClientStatus* known, Instant now,
               double slow_motion, ClientRates& rates) {
  const channel::ThreadTotals totals = session.totals();
  ClientTotals sum{.at = now, .launches = totals.launches, .held_ns = held_ns(totals, slow_motion)};
  if (known != nullptr) {
    for (const engine::DeviceUsageStatus& usage : known->devices) {
      sum.busy_ns = std::max(sum.busy_ns, usage.device_time.ns);
    }
    client["iteration"] = iteration_json(known->iteration);
  }
  const ClientRate rate = rates.look(session.id(), sum);
  client["busy_share"] = rate.busy_share;
  client["launches_per_s"] = rate.launches_per_s;
  client["held_share"] = rate.held_share;
}

json refusals_json(const Refusals& refusals) {
  json users = json::array();
  for (const auto& [uid, user] : refusals.users) {
    users.push_back({{"uid", uid}, {"attempts", user.attempts}, {"why", user.why}});
  }
  return {{"attempts", refusals.attempts}, {"users", std::move(users)}};
}

}  // namespace

bool Refusals::add(uid_t user, const std::string& why) {
  ++attempts;
  if (users.size() >= kUsersKept && !users.contains(user)) return false;
  OfUser& row = users[user];
  ++row.attempts;
  if (row.why == why) return false;
  row.why = why;
  return true;
}

json make_status_head(const engine::EngineStatus& engine, const DeviceTable& devices,
                      const Clock& clock, const DaemonFigures& figures) {
  const RequestFigures& requests = figures.requests;
  json reply = {{"ok", true},
                {"pid", ::getpid()},
                {"version", LULL_VERSION},
                {"simulated", clock.is_simulated()},
                {"sharing", clock.sharing()},
                {"slow_motion", clock.slow_motion()},
                {"control_latency_us", static_cast<double>(clock.control_latency().ns) / 1000.0},
                {"policy", engine.policy},
                {"uptime_s", figures.uptime_s},
                {"now_ns", clock.now().ns},
                {"turns", figures.turns},
                {"records_lied", figures.records_lied},
                {"clients_left", figures.clients_left},
                {"refused", refusals_json(figures.refusals)},
                {"requests",
                 {{"answered", requests.answered},
                  {"reply_bytes", requests.reply_bytes},
                  {"most_pages_a_turn", requests.most_pages_a_turn},
                  {"most_bytes_a_turn", requests.most_bytes_a_turn},
                  {"most_unread_bytes", requests.most_unread_bytes}}},
                {"notices", engine.notices},
                {"devices", json::array()},
                {"clients", json::array()}};
  for (const DeviceRow& row : devices.rows()) {
    json users = json::array();
    for (const ClientId id : row.users) {
      if (users.size() < kUsersShown) users.push_back(id.value);
    }
    reply["devices"].push_back({{"index", row.id.value},
                                {"uuid", uuid_text(row.known.uuid, row.known.instance)},
                                {"name", row.known.name},
                                {"total_bytes", row.known.total_bytes},
                                {"clients", std::move(users)},
                                {"client_count", row.users.size()}});
  }
  return reply;
}

void add_clients(json& reply, uint32_t from, const engine::Engine& engine,
                 const SessionMap& sessions, const DeviceTable& devices,
                 const std::string& why_unknown, const Clock& clock, ClientRates& rates) {
  const Instant now = clock.now();
  const engine::EngineStatus status = engine.status(ClientId{from}, kClientsAPage);
  json& clients = reply["clients"] = json::array();
  size_t bytes = 0;
  for (auto at = sessions.lower_bound(from); at != sessions.end(); ++at) {
    const Session& session = *at->second;
    if (session.gone) continue;
    if (bytes >= kPageBytes || clients.size() >= kClientsAPage) {
      reply["next"] = at->first;
      return;
    }
    // Both lists ascend by client id. One that the engine turned away is not in its list.
    const auto known = std::lower_bound(
        status.clients.begin(), status.clients.end(), session.id(),
        [](const engine::ClientStatus& client, ClientId wanted) { return client.client < wanted; });
    const bool found = known != status.clients.end() && known->client == session.id();
    const engine::ClientStatus* mine = found ? &*known : nullptr;
    json client = client_json(session, mine, devices, why_unknown, now, clock.slow_motion());
    add_rates(client, session, mine, now, clock.slow_motion(), rates);
    bytes += kClientBytes + kRowBytes * (client["devices"].size() + client["held"].size() +
                                         client["cannot_share"].size() +
                                         client["unscheduled"].size());
    clients.push_back(std::move(client));
  }
}

json make_kernels(const Session& session, uint32_t from) {
  json reply = {{"ok", true}, {"kernels", json::array()}};
  json& list = reply["kernels"];
  size_t bytes = 0;
  for (uint32_t slot = from; slot < session.kernel_count(); ++slot) {
    if (bytes >= kPageBytes) {
      reply["next"] = slot;
      break;
    }
    const channel::KernelShape shape = channel::kernel_shape(session.region(), slot);
    constexpr const char* kKinds[] = {"kernel", "graph", "copy", "memset"};
    std::string name = printable(session.slot_name(slot));
    bytes += kKernelBytes + name.size();
    list.push_back({{"name", std::move(name)},
                    {"kind", shape.kind < 4 ? kKinds[shape.kind] : "?"},
                    {"grid", shape.grid},
                    {"block", shape.block},
                    {"shared_bytes", shape.shared_bytes},
                    {"launches", session.slot_launches(slot)},
                    {"predicted_ns", shape.predicted_ns}});
  }
  return reply;
}

}  // namespace lull::daemon
