// The daemon's configuration file, checked whole before anything starts.
//
//   {
//     "socket": {"mode": "0666", "group": "lull"},
//     "policy": "guarded floor_per_mille=50",
//     "priorities": [{"uid": 1000, "highest": "high", "default": "normal"},
//                    {"any": true, "highest": "normal"}],
//     "operators": [{"gid": 27}],
//     "devices": [{"uuid": "GPU-8f6c...", "name": "NVIDIA H100", "memory_bytes": 85899345920}],
//     "max_clients": 1024, "max_clients_per_user": 512,
//     "timing": "sampled", "timing_period": 64,
//     "trace": "/var/log/lull/node.lull",
//     "decision_log": "/var/log/lull/node.decisions",
//     "profiles": "/var/lib/lull/profiles",
//     "memory_reserve_bytes": 0,
//     "moves": [{"gid": 100, "suspendable": true}, {"any": true, "migratable": false}],
//     "host_memory": "64G",
//     "context_bytes": 536870912,
//     "quantum_s": 60,
//     "job_policy": "none"
//   }
//
// moves: whose programs can be moved; the first rule that matches counts. suspendable, migratable,
// oversubscribe: true gives it to programs that did not ask (`lull run`), as far as they can; false takes it
// from those that did; left out, it is as they ask. Without suspendable there is none of the others.
// host_memory: that the arenas of all jobs together may take, in bytes or as "64G"; default: half of the
// machine's. context_bytes: what a program's context takes of a GPU beside its own memory. quantum_s: how long
// a job that takes turns (--oversubscribe) has its turn. job_policy: who lives on which GPU, decided by one of
// policies/jobs/registry.h; "none": only people move jobs.
//
// Every key may be left out. An error is one line that names the file, the key and what would be
// right; an unknown key is an error.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <expected>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/channel/messages.h"
#include "coordinator/daemon/device_table.h"
#include "coordinator/daemon/priority_rules.h"
#include "policies/jobs/registry.h"
#include "policies/launch/registry.h"

namespace lull::daemon {

// In place of a job policy: no policy moves jobs.
inline constexpr std::string_view kNoJobPolicy = "none";

inline constexpr uint32_t kMaxClientsLimit = 16384;
inline constexpr uint32_t kDefaultTimingPeriod = 64;

// Exactly one of uid, gid, any; nothing: as the program asks.
struct MoveRule {
  PeerMatch who;
  std::optional<bool> suspendable;
  std::optional<bool> migratable;
  std::optional<bool> oversubscribe;
};

struct Config {
  std::optional<mode_t> socket_mode;  // default: 0666 for root's daemon, 0600 for a user's
  std::optional<gid_t> socket_group;
  std::string policy{policies::kDefaultPolicy};
  std::optional<std::vector<PriorityRule>> priorities;
  std::vector<PeerMatch> operators;  // may change policy and priorities, besides root and own user
  // The devices to be coordinated; empty: those that the driver names.
  std::vector<KnownDevice> devices;
  uint32_t max_clients = 1024;
  // Of one user's programs, root's too; at most max_clients. Not given: half of them, rounded up.
  std::optional<uint32_t> max_clients_per_user;
  channel::lull_timing timing = channel::kTimingSampled;  // of clients without a wish of their own
  // When sampled: about one launch of a known kernel in N is timed. 0 and 1 mean off and full.
  uint32_t timing_period = kDefaultTimingPeriod;
  std::string trace;         // record into this file from the start; read at start only
  std::string decision_log;  // as well
  // Where profiles are kept; empty: nowhere; not given: the default place, nowhere for simulated
  // devices. Read at start only.
  std::optional<std::string> profiles;
  uint64_t memory_reserve_bytes = 0;  // of each device, that no single client may take
  std::vector<MoveRule> moves;
  std::optional<uint64_t> host_memory_bytes;
  uint64_t context_bytes = 512ULL << 20;
  uint32_t quantum_s = 60;
  std::string job_policy{kNoJobPolicy};
};

// "off", "sampled", "full"; nothing for anything else.
std::optional<channel::lull_timing> parse_timing(const std::string& word);
uint32_t clients_per_user(const Config& config);
// What lull_control.timing_period says to a client with this wish.
// `recording`: how a trace that is recorded now wants launches timed. It goes before the client's
// wish, except that a client that wishes none is not timed.
uint32_t timing_period_for(const Config& config, uint32_t wish,
                           std::optional<channel::lull_timing> recording = {});

// channel::lull_moves: what this program is granted that asks for `asked`.
uint32_t moves_for(const Config& config, const Peer& peer, uint32_t asked);
// What all arenas may take: as configured, or half of the machine's memory.
uint64_t host_memory_for(const Config& config);

// Says what is wrong with a policy's text, or nothing.
using PolicyCheck = std::function<std::expected<void, std::string>(const std::string&)>;

std::expected<Config, std::string> load_config(const std::string& path, const PolicyCheck& check);
// `name` stands for the file in errors.
std::expected<Config, std::string> parse_config(const std::string& text, const std::string& name,
                                                const PolicyCheck& check);

}  // namespace lull::daemon
