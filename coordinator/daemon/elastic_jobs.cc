#include "coordinator/daemon/elastic_jobs.h"

#include <fmt/format.h>

#include <algorithm>

namespace lull::daemon {

std::expected<ElasticJob, std::string> ElasticJobs::declare(uid_t user, const std::string& job,
                                                            uint32_t least, uint32_t most) {
  if (!users_.contains(user) && users_.size() >= kMaxElasticUsers) {
    return std::unexpected(
        fmt::format("{} users have elastic jobs already: no more are kept", kMaxElasticUsers));
  }
  Jobs& jobs = users_[user];
  const auto known = jobs.find(job);
  if (known == jobs.end() && jobs.size() >= kMaxElasticJobsOfUser) {
    jobs.erase(std::ranges::min_element(
        jobs, {}, [](const auto& entry) { return entry.second.used; }));
  }
  const uint32_t gpus = known == jobs.end() ? most : std::clamp(known->second.job.gpus, least, most);
  const uint32_t allowed = known != jobs.end() ? known->second.job.allowed
                           : begin_with_least_ ? least
                                               : kAnyNumber;
  const ElasticJob declared{.least = least, .most = most, .gpus = gpus, .allowed = allowed};
  Entry& entry = jobs[job];
  entry.job = declared;
  entry.used = ++requests_;
  return declared;
}

std::optional<ElasticJob> ElasticJobs::ask(uid_t user, const std::string& job) {
  const auto jobs = users_.find(user);
  if (jobs == users_.end()) return std::nullopt;
  const auto entry = jobs->second.find(job);
  if (entry == jobs->second.end()) return std::nullopt;
  entry->second.used = ++requests_;
  return entry->second.job;
}

std::optional<ElasticJob> ElasticJobs::find(uid_t user, const std::string& job) const {
  const auto jobs = users_.find(user);
  if (jobs == users_.end()) return std::nullopt;
  const auto entry = jobs->second.find(job);
  return entry == jobs->second.end() ? std::nullopt : std::optional(entry->second.job);
}

std::expected<ElasticJob, std::string> ElasticJobs::resize(uid_t user, const std::string& job,
                                                           uint32_t gpus) {
  const auto now = ask(user, job);
  if (!now) return std::unexpected("it is not elastic");
  if (gpus < now->least || gpus > now->most) {
    return std::unexpected(fmt::format("{} GPUs are not within {}:{}, which it was started with",
                                       gpus, now->least, now->most));
  }
  ElasticJob& kept = users_[user][job].job;
  kept.gpus = gpus;
  return kept;
}

ElasticJobs::Entry* ElasticJobs::entry_of(uid_t user, const std::string& job) {
  const auto jobs = users_.find(user);
  if (jobs == users_.end()) return nullptr;
  const auto entry = jobs->second.find(job);
  return entry == jobs->second.end() ? nullptr : &entry->second;
}

JobId ElasticJobs::job_id(uid_t user, const std::string& job) const {
  const auto jobs = users_.find(user);
  if (jobs == users_.end()) return {};
  const auto entry = jobs->second.find(job);
  return entry == jobs->second.end() ? JobId{} : entry->second.id;
}

void ElasticJobs::remember(uid_t user, const std::string& job, JobId id) {
  if (Entry* entry = entry_of(user, job)) entry->id = id;
}

void ElasticJobs::allow(uid_t user, const std::string& job, uint32_t gpus) {
  if (Entry* entry = entry_of(user, job)) entry->job.allowed = gpus;
}

void ElasticJobs::allow_all() {
  for (auto& [user, jobs] : users_) {
    for (auto& [name, entry] : jobs) entry.job.allowed = kAnyNumber;
  }
}

uint32_t usable_gpus(const ElasticJob& job, uint32_t present) {
  return present == 0 ? job.told() : std::max(job.least, std::min(job.told(), present));
}

}  // namespace lull::daemon
