// A small node as the job scheduler sees it: jobs that stop, leave and return in no time, or
// refuse.
#pragma once

#include <catch2/catch.hpp>

#include "coordinator/jobs/job_scheduler.h"

namespace lull::scheduling {

inline constexpr uint64_t kGiB = 1ULL << 30;
inline constexpr int64_t kMs = 1'000'000;

// Moves as the scheduler sees them. An order is carried out by the next look but one.
class Node {
 public:
  explicit Node(const std::string& text, size_t gpus = 2)
      : policy(text), scheduler(*jobs::parse_job_policy(text)) {
    for (uint32_t n = 0; n < gpus; ++n) {
      view.facts.devices.push_back({DeviceId{n}, 80 * kGiB, 80 * kGiB});
      view.devices.push_back({DeviceId{n}, "H100", Duration{0}});
    }
  }

  // A lulld that has just been started: it knows nothing of what was before.
  void restart() {
    scheduler = JobScheduler(*jobs::parse_job_policy(policy));
    for (JobFacts& job : view.facts.jobs) {
      if (job.state == JobState::kLost) continue;
      job.suspends = job.by_policy = job.migrates = false;
      job.state = JobState::kRunning;
    }
    commands.clear();
  }

  void job(uint64_t id, uint32_t gpu, uint8_t priority = 5, uint64_t bytes = 10 * kGiB) {
    JobFacts& facts = view.facts.jobs.emplace_back();
    facts.job = JobId{id};
    facts.priority = Priority{priority};
    facts.movable = facts.migratable = true;
    facts.devices = {{.device = DeviceId{gpu}, .used_bytes = bytes, .frees_bytes = bytes}};
    std::ranges::sort(view.facts.jobs, {}, &JobFacts::job);
  }
  JobFacts& facts(uint64_t id) {
    return *std::ranges::find(view.facts.jobs, JobId{id}, &JobFacts::job);
  }
  // On so many GPUs, the first ones: as its launcher starts it.
  void elastic(uint64_t id, uint32_t gpus, uint32_t least, uint32_t most) {
    job(id, 0);
    spread(facts(id), gpus);
    facts(id).movable = facts(id).migratable = false;
    view.natures.push_back(
        {.job = JobId{id}, .least_gpus = least, .most_gpus = most, .told_gpus = gpus});
  }
  void end(uint64_t id) {
    std::erase_if(view.facts.jobs, [&](const JobFacts& job) { return job.job == JobId{id}; });
  }
  bool runs(uint64_t id) {
    return facts(id).state == JobState::kRunning && !facts(id).suspends && !facts(id).migrates;
  }
  uint32_t gpu(uint64_t id) { return facts(id).devices.front().device.value; }

  // So many looks, 100 ms apart. Never two jobs on a GPU that have not been packed.
  void look(int times = 1) {
    for (int n = 0; n < times; ++n) {
      now = now + Duration{100 * kMs};
      for (JobFacts& job : view.facts.jobs) carry_out(job);
      follow_numbers();
      for (auto& [job, count] : rates) {
        if (runs(job.value)) count.first += count.second;
      }
      view.paces.clear();
      for (const auto& [job, count] : rates) {
        view.paces.push_back({job, static_cast<uint64_t>(count.first)});
      }
      orders.clear();
      scheduler.step(now, view, commands, orders);
      commands.clear();
      for (const JobOrder& order : orders) take(order);
      REQUIRE(scheduler.broken_rule() == "");
    }
  }

  std::string policy;
  JobScheduler scheduler;
  NodeView view;
  Instant now{1'000'000'000};
  std::vector<JobOrder> orders;
  std::vector<jobs::Command> commands;
  std::map<JobId, std::pair<double, double>> rates;  // iterations, a look
  std::vector<JobId> refuses;                        // each order, once it has been taken
  bool objects = false;                              // moves to every order
  std::map<JobId, jobs::GpuSet> to;                  // where those that migrate go
  size_t orders_taken = 0;
  bool follows = true;  // the launchers of elastic jobs do

 private:
  static void spread(JobFacts& job, uint32_t gpus) {
    job.devices.clear();
    for (uint32_t n = 0; n < gpus; ++n) {
      job.devices.push_back({.device = DeviceId{n}, .used_bytes = 10 * kGiB});
    }
  }

  // A launcher ends its processes; three looks later there are as many as it was told.
  void follow_numbers() {
    for (JobNature& nature : view.natures) {
      if (nature.most_gpus == 0) continue;
      const auto at = std::ranges::find(view.facts.jobs, nature.job, &JobFacts::job);
      if (at != view.facts.jobs.end() && at->devices.size() != nature.told_gpus && follows) {
        away.push_back({*at, 3});
        view.facts.jobs.erase(at);
      }
    }
    for (auto& [job, looks] : away) {
      if (--looks > 0) continue;
      const auto nature = std::ranges::find(view.natures, job.job, &JobNature::job);
      spread(job, nature->told_gpus);
      view.facts.jobs.push_back(job);
    }
    std::erase_if(away, [](const auto& one) { return one.second <= 0; });
    std::ranges::sort(view.facts.jobs, {}, &JobFacts::job);
  }

  void take(const JobOrder& order) {
    const JobId id = std::visit([](const auto& what) { return what.job; }, order);
    if (objects) return scheduler.refused(now, id);
    ++orders_taken;
    if (const auto* resize = std::get_if<ResizeJob>(&order)) {
      std::ranges::find(view.natures, id, &JobNature::job)->told_gpus = resize->gpus;
      return;
    }
    JobFacts& job = facts(id.value);
    if (std::holds_alternative<SuspendJob>(order)) {
      job.suspends = job.by_policy = true;
      job.state = JobState::kStopping;
    } else if (const auto* migrate = std::get_if<MigrateJob>(&order)) {
      job.migrates = true;
      job.suspends = job.by_policy = false;
      to[id] = migrate->to;
    } else {
      job.suspends = job.by_policy = false;
      job.state = JobState::kWaiting;
    }
  }

  void carry_out(JobFacts& job) {
    if (std::ranges::find(refuses, job.job) != refuses.end() &&
        (job.migrates || job.state == JobState::kStopping)) {
      job.migrates = job.suspends = job.by_policy = false;
      job.state = JobState::kRunning;
      return;
    }
    if (job.migrates) {
      job.migrates = false;
      for (size_t n = 0; n < job.devices.size(); ++n) job.devices[n].device = to[job.job].at(n);
      job.state = JobState::kRunning;
    } else if (job.suspends) {
      job.state = JobState::kSuspended;
    } else if (job.state == JobState::kWaiting) {
      job.state = JobState::kRunning;
    }
  }

  std::vector<std::pair<JobFacts, int>> away;
};

}  // namespace lull::scheduling
