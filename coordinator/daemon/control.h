// The requests of tools (`lull status`, `lull policy`, ...): one JSON object in, one JSON reply
// out.
//
//   {"op":"ping"}                                   {"ok":true,"version":..,"pid":..}
//   {"op":"status"}                                 {"ok":true, ...} (status.h); paged
//   {"op":"kernels","client":3}     {"ok":true,"kernels":[{"name","kind","launches",..}]}; paged
//   {"op":"policy"}                                 {"ok":true,"policy":".."}
//   {"op":"policy","policy":"fikit epsilon_us=5"}   {"ok":true,"policy":"normalised"}
//   {"op":"job_policy"[,"policy":"gandiva"]}        {"ok":true,"policy":"normalised"}; "none": nobody moves jobs
//   {"op":"priority","task":"train","level":7}      {"ok":true,"changed":[client ids],"level":7}
//   {"op":"may","priority":2}                       {"ok":true,"priority":2,"highest":2}
//   {"op":"trace","file":"/a/b.lull"}               {"ok":true,"trace":{"file","running",..}}
//       may have "timing":"full" (off, sampled): of all clients that do not wish none, until it stops
//   {"op":"trace","stop":true}                      the same; with neither: how it stands
//   {"op":"profile"}                                {"ok":true,"directory":..,"profiles":[{..}]};
//   paged
//   {"op":"profile","show":"train"}                 {"ok":true,"records":[{..}]}; paged
//   {"op":"profile","forget":"train"}               {"ok":true,"forgotten":2,"running":1}
//   {"op":"suspend","job":"train","level":"auto","at":"iteration"}   {"ok":true,"job":{..}} (job_status.h)
//       level: auto, in_place, out, given_up; at: iteration, now; both may be left out
//   {"op":"resume","job":"train"}                   the same; "job" is a job's or task's name, a pid or a
//   {"op":"migrate","job":"train","to":[1]}         client id; "to": GPUs by index or UUID
//   {"op":"pin","job":"train","pinned":true}
//   {"op":"resize","job":"train","gpus":2}          of an elastic job
//   {"op":"elastic","job":"train"[,"min":1,"max":4]}
//       {"ok":true,"elastic":{"min":1,"max":4,"gpus":2,"usable":2}}; min and max declare it; usable: of the
//       GPUs that the node has
//   {"op":"job","job":"train"}                      how it stands
//   anything wrong                                  {"ok":false,"error":"one line"}
//
// Paged: a reply that says "next" is followed by asking the same with that as "from"
// (coordinator/channel/messages.h).
//
// Here is what requests mean and who may make them; the daemon does them. Loop thread.
#pragma once

#include <expected>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "coordinator/daemon/elastic_jobs.h"
#include "coordinator/daemon/priority_rules.h"
#include "coordinator/daemon/trace_recorder.h"
#include "coordinator/moves/events.h"

namespace lull::daemon {

inline constexpr size_t kMaxRequestBytes = 65536;

// What `lull profile` asks: with neither, the list.
struct ProfileOrder {
  std::string show;    // a task
  std::string forget;  // a task
  uint32_t from = 0;
};

// What is asked of a job.
struct JobOrder {
  enum class What : uint8_t { kShow, kSuspend, kResume, kMigrate, kPin, kResize };
  What what = What::kShow;
  std::string job;
  std::optional<moves::Level> level;
  moves::At at = moves::At::kIteration;
  std::vector<std::string> to;  // indices or UUIDs
  bool pinned = true;
  uint32_t gpus = 0;
};

// What the daemon can do for a tool. Errors are one line.
class ControlTarget {
 public:
  virtual ~ControlTarget() = default;
  // Pages, from the client or the kernel slot asked for on.
  virtual nlohmann::json status(uint32_t from) = 0;
  virtual std::expected<nlohmann::json, std::string> kernels(ClientId client, uint32_t from) = 0;
  virtual std::string policy_text() = 0;
  // Returns the normalised text.
  virtual std::expected<std::string, std::string> change_policy(const std::string& text,
                                                                const Peer& peer) = 0;
  virtual std::string job_policy_text() = 0;
  virtual std::expected<std::string, std::string> change_job_policy(const std::string& text,
                                                                    const Peer& peer) = 0;
  // `task`: a task's name, a pid or a client id. Returns the clients changed.
  virtual std::expected<std::vector<ClientId>, std::string> change_priority(const std::string& task,
                                                                            Priority level,
                                                                            const Peer& peer) = 0;
  // A list of entries, or records, or how many were forgotten (profile_store.h). It takes a disk's
  // time: `then` is called once, later or now.
  using Then = std::function<void(std::expected<nlohmann::json, std::string>)>;
  virtual void profiles(const ProfileOrder& order, const Peer& peer, Then then) = 0;
  virtual PriorityVerdict judge(const Peer& peer, Priority asked) const = 0;
  // Begins a trace, ends the one that runs, or neither. How the trace stands; null: there is none.
  virtual std::expected<nlohmann::json, std::string> trace(const std::optional<TraceOrder>& order,
                                                           bool stop, const Peer& peer) = 0;
  // Declares an elastic job of the peer's, with a range, or looks at it. "elastic" of the reply.
  virtual std::expected<nlohmann::json, std::string> elastic_job(
      const std::string& job, const std::optional<ElasticJob>& range, const Peer& peer) = 0;
  // How the job then stands.
  virtual std::expected<nlohmann::json, std::string> move_job(const JobOrder& order,
                                                              const Peer& peer) = 0;
};

// `reply` is called once with the reply's text, later or before this returns; never throws,
// whatever the request is.
void answer(std::string_view request, const Peer& peer, ControlTarget& target,
            const std::function<void(std::string)>& reply);

}  // namespace lull::daemon
