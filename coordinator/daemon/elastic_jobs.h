// The elastic jobs of this node: how many GPUs each may use now. A user's job is known by its name.
// The number outlives the job's processes, for an elastic job restarts them when the number
// changes. Called by Daemon, on the loop thread. It starts and stops no process: whoever runs the
// job asks for the number and follows it
// (`lull discover`). Pure: time is a count of requests.
//
//   declare (lull run --elastic, lull discover)         resize (lull resize)
//        |                                                  |
//        +--> min .. max, number = max --> asked, followed <-+ number within min .. max
//
// A job policy that sizes jobs (registry.h) allows each so many GPUs: what is told is the person's
// number, or that if it is less. A job that comes under one begins with min.
//
// A user has kMaxElasticJobsOfUser at most; another one replaces the one that nobody has asked for
// the longest.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <expected>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "policies/vocabulary.h"

namespace lull::daemon {

inline constexpr size_t kMaxElasticJobsOfUser = 64;
inline constexpr size_t kMaxElasticUsers = 256;
inline constexpr uint32_t kAnyNumber = UINT32_MAX;

struct ElasticJob {
  uint32_t least = 1;
  uint32_t most = 1;
  uint32_t gpus = 1;              // a person's, least .. most
  uint32_t allowed = kAnyNumber;  // by the job policy

  // The number that its launcher is told.
  uint32_t told() const { return std::max(least, std::min(gpus, allowed)); }

  bool operator==(const ElasticJob&) const = default;
};

class ElasticJobs {
 public:
  // 1 <= least <= most. A job that is known keeps its number, as far as the range has it. Errors: one line.
  std::expected<ElasticJob, std::string> declare(uid_t user, const std::string& job, uint32_t least,
                                                 uint32_t most);
  // Asking counts as use. Nothing: the user has no elastic job of that name.
  std::optional<ElasticJob> ask(uid_t user, const std::string& job);
  // The same without counting.
  std::optional<ElasticJob> find(uid_t user, const std::string& job) const;
  std::expected<ElasticJob, std::string> resize(uid_t user, const std::string& job, uint32_t gpus);
  // Its id, from its first processes on; 0: it had none, or there is no such job.
  JobId job_id(uid_t user, const std::string& job) const;
  void remember(uid_t user, const std::string& job, JobId id);
  // The job policy's. Nobody's where the user has no such job.
  void allow(uid_t user, const std::string& job, uint32_t gpus);
  // No policy decides any more.
  void allow_all();
  // From now on jobs begin with their least number, else with their most.
  void begin_with_least(bool least) { begin_with_least_ = least; }

 private:
  struct Entry {
    ElasticJob job;
    uint64_t used = 0;
    JobId id = {};
  };
  using Jobs = std::map<std::string, Entry>;

  std::map<uid_t, Jobs> users_;
  Entry* entry_of(uid_t user, const std::string& job);

  uint64_t requests_ = 0;
  bool begin_with_least_ = false;
};

// What may be used of a job's number where the node has `present` GPUs (0: not known): never under its least.
uint32_t usable_gpus(const ElasticJob& job, uint32_t present);

}  // namespace lull::daemon
