// What `lull status --json` shows: the engine's view and the channel's counters put together.
// Loop thread, on request only; changes nothing.
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

struct DaemonFigures {
  uint64_t uptime_s = 0;
  uint64_t turns = 0;
  uint64_t records_lied = 0;
  uint64_t clients_left = 0;
};

// {"ok":true,"pid":..,"clients":[..],...}
nlohmann::json make_status(const engine::EngineStatus& engine, const SessionMap& sessions,
                           const DeviceTable& devices, const Clock& clock,
                           const DaemonFigures& figures, ClientRates& rates);

// [{"name","kind":"kernel|graph|copy|memset","grid","block","shared_bytes","launches",
//   "predicted_ns"}]: every kernel slot; `launches` are the launch records seen.
nlohmann::json make_kernels(const Session& session);

}  // namespace lull::daemon
