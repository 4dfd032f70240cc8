// What `lull status --json` shows of jobs and of where their memory is. Loop thread, on request
// only.
//
//   "jobs": [{"job": name, "state": "running|stopping|leaving|suspended|waiting|returning|lost",
//     "level": "in_place|out|given_up" or null while it runs, "target": "running" or the level
//     asked for, "pinned": b, "by_policy": b, "migrates": b, "priority": n, "moving_bytes": n,
//     "moved_bytes": n, "bytes_per_s": n, "reason": why it is not as asked, "waits_for": text,
//     "clients": [ids], "client_count": n,
//     "elastic": {"min": n, "max": n, "gpus": n, "usable": n}, of elastic jobs alone}]
//   "residence" of a client: null of one that cannot be moved, or {"state":
//   "resident|draining|leaving|out|
//     giving_up|given_up|restoring|returning|lost", "can": ["swap", "give_up", "migrate"], "turns":
//     b, "swappable_bytes": n, "fixed_bytes": n, "fixed_why": [texts], "host_bytes": n,
//     "host_wanted_bytes": n, "host_allowance_bytes": n, "moved_bytes": n and "move_ns": n of its
//     last move by its own clock, without draining, "reason": text}
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "coordinator/daemon/session.h"
#include "coordinator/moves/moves.h"

namespace lull::daemon {

inline constexpr size_t kJobClientsShown = 64;

nlohmann::json make_job(const moves::JobStatus& job, const std::string& name);
nlohmann::json client_residence(const Session& session);

}  // namespace lull::daemon
