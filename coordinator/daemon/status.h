// What `lull status --json` shows: the engine's view and the channel's counters put together, in
// pages (coordinator/channel/messages.h). Loop thread, on request only; changes nothing.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "coordinator/daemon/client_rates.h"
#include "coordinator/daemon/clock.h"
#include "coordinator/daemon/device_table.h"
#include "coordinator/daemon/session.h"
#include "coordinator/engine/engine.h"

namespace lull::daemon {

using SessionMap = std::map<uint32_t, std::unique_ptr<Session>>;  // by client id

// What tools have asked for, and what that cost at most: pages and bytes built in one turn of the
// loop, and bytes of replies that nobody had read yet.
struct RequestFigures {
  uint64_t answered = 0;
  uint64_t reply_bytes = 0;
  uint64_t most_pages_a_turn = 0;
  uint64_t most_bytes_a_turn = 0;
  uint64_t most_unread_bytes = 0;
};

// Programs that asked to attach and were not let: attempts, of which a program makes one a second.
struct Refusals {
  static constexpr size_t kUsersKept = 64;  // by name; others count in `attempts` only
  struct OfUser {
    uint64_t attempts = 0;
    std::string why;  // of the last
  };
  uint64_t attempts = 0;
  std::map<uid_t, OfUser> users;

  // True: not what this user was told the last time.
  bool add(uid_t user, const std::string& why);
};

struct DaemonFigures {
  uint64_t uptime_s = 0;
  uint64_t turns = 0;
  uint64_t records_lied = 0;
  uint64_t clients_left = 0;
  uint64_t profiles_recalled = 0;
  Refusals refusals;
  RequestFigures requests;
};

// A page ends with the row that makes it about so long, and rows are bounded: 16 clients at most,
// kernels with names of 512 bytes at most.
inline constexpr size_t kPageBytes = 32768;
inline constexpr size_t kClientsAPage = 16;
// What a page never exceeds, as JSON: the head of a status with its devices, and one more row.
inline constexpr size_t kLongestPageBytes = 262144;

// {"ok":true,"pid":..,"clients":[..],...}: all but the clients.
nlohmann::json make_status_head(const engine::EngineStatus& engine, const DeviceTable& devices,
                                const Clock& clock, const DaemonFigures& figures);

// Adds a page of clients, from this id on, and `next` where there are more.
void add_clients(nlohmann::json& reply, uint32_t from, const engine::Engine& engine,
                 const SessionMap& sessions, const DeviceTable& devices,
                 const std::string& why_unknown, const Clock& clock, ClientRates& rates);

// {"ok":true,"kernels":[{"name","kind":"kernel|graph|copy|memset","grid","block","shared_bytes",
//   "launches","predicted_ns"}]}: a page of kernel slots, from this one on, and `next` where there
// are more; `launches` are the launch records seen.
nlohmann::json make_kernels(const Session& session, uint32_t from);

}  // namespace lull::daemon
