// Random jobs under each job policy: they come and end, refuse to be moved for a while, are lost,
// get another importance, and are suspended, resumed, migrated and pinned by people at any moment,
// while lulld is restarted. After each look the policy has broken no rule (decision_check.h); once
// nobody disturbs any more, no job waits beside a GPU that nobody uses.
#include <algorithm>
#include <random>
#include <set>

#include "job_node.h"
#include "tests/seed.h"

namespace lull::scheduling {
namespace {

class Chaos {
 public:
  Chaos(const std::string& policy, uint32_t gpus, uint64_t seed)
      : node_(policy, gpus), gpus_(gpus), random_(seed) {}

  void run(int looks) {
    for (int n = 0; n < looks; ++n) {
      act();
      node_.objects = chance(30);
      look();
    }
    calm_down();
  }

 private:
  using Order = jobs::Command::Order;

  uint64_t pick(uint64_t low, uint64_t high) { return low + random_() % (high - low + 1); }
  bool chance(uint64_t in) { return pick(1, in) == 1; }

  void act() {
    auto& jobs = node_.view.facts.jobs;
    if (jobs.size() < 2 * gpus_ && chance(8)) return arrive();
    if (jobs.empty()) return;
    JobFacts& job = jobs[pick(0, jobs.size() - 1)];
    const uint64_t id = job.job.value;
    switch (pick(0, 60)) {
      case 0:
      case 1:
        return node_.end(id);
      case 2:
        job.state = JobState::kLost;
        return;
      case 3:
        wanted_.clear();
        return node_.restart();
      case 4:
        node_.refuses = chance(2) ? std::vector<JobId>{job.job} : std::vector<JobId>{};
        return;
      case 5:
        job.priority = Priority{static_cast<uint8_t>(pick(2, 4))};
        return;
      case 6:
        for (auto& on : job.devices) on.used_bytes = std::min(on.used_bytes + 5 * kGiB, 60 * kGiB);
        return;
      default:
        if (chance(4)) person(job);
    }
  }

  void arrive() {
    const uint64_t id = ++made_;
    const auto first = static_cast<uint32_t>(pick(0, gpus_ - 1));
    node_.job(id, first, static_cast<uint8_t>(pick(2, 4)), pick(1, 45) * kGiB);
    JobFacts& job = node_.facts(id);
    if (first + 1 < gpus_ && chance(4)) {
      job.devices.push_back(job.devices.front());
      job.devices.back().device = DeviceId{first + 1};
    }
    job.takes_turns = chance(8);
    job.movable = !chance(4);
    job.migratable = job.movable && !chance(3);
    able_[id] = {job.movable, job.migratable};
    job.untold = chance(3);
    if (chance(3)) {
      node_.view.natures.push_back({.job = JobId{id}, .multi_job = jobs::MultiJobId{pick(1, 2)}});
    }
    node_.rates[JobId{id}] = {0, static_cast<double>(pick(1, 40)) / 10};
  }

  // What moves would refuse is not asked.
  void person(JobFacts& job) {
    if (job.state == JobState::kLost) return;
    const bool pinned = job.pinned;
    jobs::Command command{.job = job.job};
    switch (pick(0, 3)) {
      case 0:
        if (pinned) return;
        command.order = Order::kSuspend;
        wanted_.erase(job.job);
        job.suspends = true;
        job.by_policy = job.migrates = false;
        if (job.state != JobState::kSuspended) job.state = JobState::kStopping;
        break;
      case 1:
        if (!job.suspends) return;
        command.order = Order::kResume;
        job.suspends = job.by_policy = false;
        job.state = JobState::kWaiting;
        break;
      case 2: {
        if (pinned || !job.migratable || job.devices.size() > 1) return;
        if (job.state != JobState::kRunning && job.state != JobState::kSuspended) return;
        const auto to = static_cast<uint32_t>(pick(0, gpus_ - 1));
        if (DeviceId{to} == job.devices.front().device) return;
        command.order = Order::kMigrate;
        wanted_.insert(job.job);
        command.to = node_.to[job.job] = {DeviceId{to}};
        job.migrates = true;
        job.suspends = job.by_policy = false;
        break;
      }
      default:
        command.order = pinned ? Order::kUnpin : Order::kPin;
        wanted_.erase(job.job);
        job.pinned = !pinned;
        job.movable = able_[job.job.value].first && !job.pinned;
        job.migratable = able_[job.job.value].second && !job.pinned;
    }
    node_.commands.push_back(command);
  }

  void look() {
    for (JobFacts& job : node_.view.facts.jobs) {
      if (job.untold && chance(3)) job.untold = false;
    }
    for (DeviceUse& device : node_.view.devices) {
      device.busy = device.busy + Duration{static_cast<int64_t>(pick(0, 100)) * kMs};
    }
    node_.look();
    std::ranges::sort(node_.view.natures, {}, &JobNature::job);
  }

  // Two that share a GPU, but not all of their GPUs. Nobody can part them if neither can be moved,
  // and the policies know of one at a time.
  bool overlap() const {
    const auto& jobs = node_.view.facts.jobs;
    return std::ranges::any_of(jobs, [&](const JobFacts& one) {
      return std::ranges::any_of(jobs, [&](const JobFacts& other) {
        return one.devices.size() > other.devices.size() && !one.suspends && !other.suspends &&
               std::ranges::any_of(one.devices, [&](const auto& on) {
                 return on.device == other.devices.front().device;
               });
      });
    });
  }

  void calm_down() {
    node_.objects = false;
    node_.refuses.clear();
    std::erase_if(node_.view.facts.jobs,
                  [](const JobFacts& job) { return job.state == JobState::kLost; });
    for (int n = 0; n < 1500; ++n) look();
    if (overlap()) return;
    const auto& jobs = node_.view.facts.jobs;
    for (uint32_t n = 0; n < gpus_; ++n) {
      const bool used = std::ranges::any_of(jobs, [&](const JobFacts& job) {
        return job.state != JobState::kSuspended && is_on(job, n);
      });
      if (used) continue;
      for (const JobFacts& job : jobs) {
        if (!job.by_policy || job.pinned || job.devices.size() > 1) continue;
        if (wanted_.contains(job.job)) continue;
        INFO("job " << job.job.value << " and GPU " << n << ": "
                    << node_.scheduler.why_not_running(job.job));
        CHECK_FALSE((job.migratable || is_on(job, n)));
      }
    }
  }

  static bool is_on(const JobFacts& job, uint32_t gpu) {
    return std::ranges::any_of(job.devices,
                               [&](const auto& on) { return on.device == DeviceId{gpu}; });
  }

  Node node_;
  uint32_t gpus_;
  std::mt19937_64 random_;
  uint64_t made_ = 0;
  // To be moved, and to other GPUs, while nobody has pinned it.
  std::map<uint64_t, std::pair<bool, bool>> able_;
  std::set<JobId> wanted_;  // by a person, on a GPU that others may have
};

}  // namespace

TEST_CASE("random jobs: no policy breaks a rule, and nobody waits beside a free GPU") {
  const std::string policy =
      GENERATE("static", "fifo skip=1", "time_slice quantum_s=2", "las", "gandiva quantum_s=2",
               "gandiva quantum_s=2 survivors_first=1");
  const uint64_t first = tests::test_seed();
  for (uint64_t n = 0; n < 60; ++n) {
    const uint64_t seed = first + n;
    CAPTURE(policy, seed);
    Chaos(policy, 1 + static_cast<uint32_t>(seed % 4), seed).run(1000);
  }
}

}  // namespace lull::scheduling
