#include "coordinator/jobs/job_scheduler.h"

#include <algorithm>

namespace lull::scheduling {

using jobs::GpuSet;

namespace {

// Null: it is not there.
const JobFacts* find(const NodeFacts& facts, JobId id) {
  const auto at = std::ranges::lower_bound(facts.jobs, id, {}, &JobFacts::job);
  return at != facts.jobs.end() && at->job == id ? &*at : nullptr;
}

GpuSet gpus_of(const JobFacts& job) {
  GpuSet gpus;
  for (const jobs::JobOnDevice& on : job.devices) {
    if (on.used_bytes > 0) gpus.push_back(on.device);
  }
  return gpus;
}

JobNature nature_of(const NodeView& view, JobId id) {
  const auto at = std::ranges::lower_bound(view.natures, id, {}, &JobNature::job);
  return at != view.natures.end() && at->job == id ? *at : JobNature{.job = id, .name = {}};
}

uint64_t most_bytes(const JobFacts& job) {
  uint64_t most = 0;
  for (const jobs::JobOnDevice& on : job.devices) most = std::max(most, on.used_bytes);
  return most;
}

bool is_running(const JobFacts& job) {
  return job.state == JobState::kRunning && !job.migrates && !job.suspends;
}

// While nobody has pinned it, of one that is not elastic.
bool can_be_moved(const JobFacts& job) { return job.movable && !job.takes_turns; }

bool share_a_gpu(const GpuSet& a, const GpuSet& b) {
  return std::ranges::any_of(a, [&](DeviceId id) { return std::ranges::binary_search(b, id); });
}

// Some of the GPUs are the same, but not all.
bool overlap(const std::optional<GpuSet>& a, const GpuSet& b) {
  return a && *a != b && share_a_gpu(*a, b);
}

JobId job_of(const jobs::Decision& decision) {
  return std::visit(
      [](const auto& what) {
        if constexpr (requires { what.job; }) return what.job;
        return JobId{};
      },
      decision.what);
}

std::string name_of(const jobs::Event& event) {
  static constexpr const char* kNames[] = {
      "arrived", "finished", "failed",   "lost",  "stands",  "iterations", "memory",
      "load",    "appeared", "vanished", "moved", "command", "timer"};
  static_assert(std::size(kNames) == std::variant_size_v<jobs::Event>);
  std::string text = kNames[event.index()];
  std::visit(
      [&](const auto& what) {
        if constexpr (requires { what.job; }) text += " " + std::to_string(what.job.value);
      },
      event);
  return text;
}

}  // namespace

JobScheduler::JobScheduler(jobs::JobPolicyChoice choice)
    : choice_(std::move(choice)),
      policy_(choice_.row->make(choice_.values)),
      check_(choice_.row->preemptive) {}

void JobScheduler::step(Instant now, const NodeView& view, std::span<const jobs::Command> commands,
                        std::vector<JobOrder>& out) {
  if (!broken_.empty()) return;
  look_at_devices(now, view);
  look_at_jobs(now, view);
  look_at_pace(now, view);
  for (const jobs::Command& command : commands) note(command);
  if (timer_ <= now) {
    timer_ = kNever;
    events_.emplace_back(jobs::TimerDue{});
  }
  ask_policy(now);
  if (!broken_.empty()) {
    for (JobOrder& order : let_go(view.facts)) out.push_back(std::move(order));
    return;
  }
  bring(now, view, out);
  last_ = view.facts;
}

// ---- what the policy is told --------------------------------------------------------------------

void JobScheduler::look_at_devices(Instant now, const NodeView& view) {
  for (const DeviceUse& seen : view.devices) {
    if (devices_.contains(seen.device)) continue;
    uint64_t memory = 0;
    for (const jobs::DeviceFacts& facts : view.facts.devices) {
      if (facts.device == seen.device) memory = facts.total_bytes;
    }
    if (memory == 0) continue;  // nothing can be placed there
    devices_.emplace(seen.device, seen);
    auto model = std::ranges::find(models_, seen.model);
    if (model == models_.end()) model = models_.insert(models_.end(), seen.model);
    const auto kind = static_cast<uint32_t>(model - models_.begin());
    events_.emplace_back(jobs::DeviceAppeared{
        {.device = seen.device, .kind = jobs::GpuKind{kind}, .memory_bytes = memory}});
  }
  std::erase_if(devices_, [&](const auto& known) {
    const bool here =
        std::ranges::find(view.devices, known.first, &DeviceUse::device) != view.devices.end();
    if (!here) events_.emplace_back(jobs::DeviceVanished{known.first});
    return !here;
  });
  if (now < loads_at_ + kCountFor) return;
  const Duration since = now - loads_at_;
  for (const DeviceUse& seen : view.devices) {
    const auto known = devices_.find(seen.device);
    if (known == devices_.end()) continue;
    const Duration busy = seen.busy - known->second.busy;
    known->second.busy = seen.busy;
    if (loads_at_.ns == 0 || busy.ns < 0) continue;
    events_.emplace_back(jobs::DeviceLoad{
        seen.device, static_cast<uint32_t>(std::min<int64_t>(1000, busy.ns * 1000 / since.ns))});
  }
  loads_at_ = now;
}

void JobScheduler::note(const jobs::Command& command) {
  using Order = jobs::Command::Order;
  const auto at = residents_.find(command.job);
  if (at == residents_.end()) return;
  events_.emplace_back(command);
  if (command.order == Order::kSuspend || command.order == Order::kResume ||
      command.order == Order::kMigrate) {
    at->second.order.reset();  // it takes the place of the policy's
    at->second.held = command.order == Order::kSuspend;
  }
}

void JobScheduler::arrive(const JobFacts& job, const GpuSet& gpus, const JobNature& nature) {
  const bool movable = can_be_moved(job) && nature.most_gpus == 0;
  const auto count = static_cast<uint32_t>(gpus.size());
  jobs::JobRequest request{.job = job.job,
                           .priority = job.priority,
                           .gpus = count,
                           .multi_job = nature.multi_job,
                           .suspendable = movable,
                           .migratable = movable && job.migratable};
  if (nature.most_gpus > 0) {
    request.gpus = std::min(count, nature.least_gpus);
    request.most_gpus = std::max(count, nature.most_gpus);
  }
  events_.emplace_back(jobs::JobArrived{request});
  events_.emplace_back(jobs::MemoryInUse{job.job, most_bytes(job)});
  // A job that can be moved has its place from the policy; until then it shall not run.
  const bool held = job.suspends && !job.by_policy;
  const bool may_be_moved = movable || nature.most_gpus > 0;
  events_.emplace_back(jobs::JobStands{job.job, !movable, gpus, may_be_moved});
  if (!movable) vacate(job.job, gpus);
  if (job.pinned)
    events_.emplace_back(jobs::Command{.job = job.job, .order = jobs::Command::Order::kPin});
  if (held)
    events_.emplace_back(jobs::Command{.job = job.job, .order = jobs::Command::Order::kSuspend});
  Resident& resident = residents_[job.job];
  resident = {.priority = job.priority,
              .gpus = gpus,
              .movable = may_be_moved,
              .able = movable,
              .held = held,
              .memory_bytes = most_bytes(job),
              .nature = nature};
  if (!movable) resident.target = gpus;
}

// A job stands on these GPUs, and shares them only with those that have exactly the same.
void JobScheduler::vacate(JobId id, const GpuSet& gpus) {
  for (auto& [other_id, other] : residents_) {
    if (other_id != id && overlap(other.target, gpus)) other.target.reset();
  }
}

// Of one that has another importance: said, where the policy may stop it.
bool JobScheduler::is_gone(Instant now, const NodeView& view, JobId id, Resident& job) {
  const JobFacts* facts = find(view.facts, id);
  if (facts != nullptr && facts->state == JobState::kLost) return true;
  const bool follows = job.resized != kNever && now - job.resized < kFollowsWithin;
  if (facts == nullptr) return !follows;
  const GpuSet gpus = gpus_of(*facts);
  if (!job.elastic() && gpus.size() != job.gpus.size()) return true;
  if (job.elastic() && gpus.empty() && !follows) return true;
  // It arrives as one that can be moved.
  if (!job.elastic() && !job.able && can_be_moved(*facts)) return true;
  if (facts->priority == job.priority) return false;
  if (!job.movable || job.elastic() || facts->pinned) return true;
  job.priority = facts->priority;
  events_.emplace_back(jobs::Command{
      .job = id, .order = jobs::Command::Order::kPrioritise, .priority = facts->priority});
  return false;
}

void JobScheduler::look_at_jobs(Instant now, const NodeView& view) {
  for (auto at = residents_.begin(); at != residents_.end();) {
    const JobId id = at->first;
    const bool gone = is_gone(now, view, id, at->second);
    at = gone ? residents_.erase(at) : std::next(at);
    if (gone) events_.emplace_back(jobs::JobFinished{id});
  }
  for (const JobFacts& job : view.facts.jobs) {
    const GpuSet gpus = gpus_of(job);
    const bool known_gpus =
        std::ranges::all_of(gpus, [&](DeviceId id) { return devices_.contains(id); });
    if (gpus.empty() || !known_gpus || job.untold || job.state == JobState::kLost) continue;
    const auto at = residents_.find(job.job);
    if (at == residents_.end()) {
      arrive(job, gpus, nature_of(view, job.job));
      count_anew(gpus, view);
      continue;
    }
    Resident& resident = at->second;
    if (const uint64_t bytes = most_bytes(job); bytes > resident.memory_bytes) {
      resident.memory_bytes = bytes;
      events_.emplace_back(jobs::MemoryInUse{job.job, bytes});
    }
    if (resident.elastic()) {
      resident.nature = nature_of(view, job.job);
      look_at_size(now, job, resident);
    } else if (now >= resident.refused_until) {
      const bool movable = !job.takes_turns && (job.movable || (job.pinned && resident.able));
      if (movable != resident.movable) stand(job, resident, movable);
      resident.refused_until = Instant{0};
    }
    if (resident.held && is_running(job)) {  // a person's, too, may come to nothing
      events_.emplace_back(jobs::Command{.job = job.job, .order = jobs::Command::Order::kResume});
      resident.held = false;
    }
    // An order that moves has taken and that came to nothing: the job was brought back.
    if (resident.order && is_running(job)) {
      const auto* migrate = std::get_if<MigrateJob>(&*resident.order);
      const bool failed = std::holds_alternative<SuspendJob>(*resident.order) ||
                          (migrate != nullptr && migrate->to != gpus);
      resident.order.reset();
      if (failed) refuse(now, job, resident);
    } else if (resident.order && job.state == JobState::kSuspended) {
      resident.order.reset();
    }
    if (resident.on_the_way && is_running(job) && resident.target == gpus) {
      resident.on_the_way = false;
      events_.emplace_back(jobs::MoveDone{job.job, now - resident.sent});
    }
    const JobFacts* before = find(last_, job.job);
    const bool as_before =
        before != nullptr && is_running(*before) == is_running(job) && gpus_of(*before) == gpus;
    if (!as_before) {
      if (before != nullptr) count_anew(gpus_of(*before), view);
      count_anew(gpus, view);
    }
    // One that the policy takes to be immovable, and that a person has moved or let go on; or that
    // shared a GPU with another such one, which has left.
    const bool elsewhere = is_running(job) && resident.target != gpus;
    const auto is_in_its_way = [&](const auto& other) {
      return other.first != job.job && !other.second.movable && overlap(other.second.target, gpus);
    };
    if (elsewhere && !resident.movable && !resident.elastic() &&
        (!as_before || std::ranges::none_of(residents_, is_in_its_way))) {
      stand(job, resident, /*movable=*/false);
    }
  }
  for (const JobFacts& job : last_.jobs) {
    if (find(view.facts, job.job) == nullptr) count_anew(gpus_of(job), view);
  }
}

// An elastic job has followed its number, or has another one than it was told, or does not follow.
void JobScheduler::look_at_size(Instant now, const JobFacts& facts, Resident& job) {
  const GpuSet gpus = gpus_of(facts);
  const bool waits = job.resized != kNever;
  if (waits && job.target && gpus.size() == job.target->size()) {
    job.resized = kNever;
    job.gpus = gpus;
    if (gpus != *job.target) return stand_where_it_is(facts, job, job.movable);
    job.on_the_way = false;
    events_.emplace_back(jobs::MoveDone{facts.job, now - job.sent});
  } else if (waits && now - job.resized >= kFollowsWithin) {
    job.refused_until = now + kRefusedFor;
    stand_where_it_is(facts, job, /*movable=*/false);
  } else if (!waits && gpus != job.gpus) {
    stand_where_it_is(facts, job, job.movable);
  } else if (!job.movable && now >= job.refused_until) {
    stand_where_it_is(facts, job, /*movable=*/true);
  }
}

void JobScheduler::stand_where_it_is(const JobFacts& facts, Resident& job, bool movable) {
  job.gpus = gpus_of(facts);
  job.movable = movable;
  job.resized = kNever;
  job.on_the_way = false;
  job.target = job.gpus;
  vacate(facts.job, job.gpus);
  events_.emplace_back(jobs::JobStands{facts.job, true, job.gpus, movable});
}

// Where it is now is where it shall be, as far as the policy is concerned. But for one that can be
// moved (again) and runs where others have their place: as when it arrives, it gets one of the
// policy.
void JobScheduler::stand(const JobFacts& facts, Resident& job, bool movable) {
  const GpuSet gpus = gpus_of(facts);
  const bool intrudes = movable && std::ranges::any_of(residents_, [&](const auto& other) {
                          return other.first != facts.job && other.second.target &&
                                 share_a_gpu(*other.second.target, gpus);
                        });
  const bool runs = is_running(facts) && !intrudes;
  job.movable = movable;
  job.order.reset();
  job.on_the_way = false;
  job.target = runs ? std::optional(gpus) : std::nullopt;
  if (runs) vacate(facts.job, gpus);
  events_.emplace_back(jobs::JobStands{facts.job, runs, gpus, movable});
}

void JobScheduler::refuse(Instant now, const JobFacts& facts, Resident& job) {
  job.refused_until = now + kRefusedFor;
  stand(facts, job, /*movable=*/false);
}

// Who shares one of these GPUs runs differently from now on.
void JobScheduler::count_anew(const GpuSet& gpus, const NodeView& view) {
  for (const JobFacts& job : view.facts.jobs) {
    const auto at = residents_.find(job.job);
    if (at != residents_.end() && share_a_gpu(gpus_of(job), gpus)) at->second.counted_at = kNever;
  }
}

void JobScheduler::look_at_pace(Instant now, const NodeView& view) {
  for (const JobPace& pace : view.paces) {
    const auto at = residents_.find(pace.job);
    const JobFacts* facts = find(view.facts, pace.job);
    if (at == residents_.end() || facts == nullptr) continue;
    Resident& job = at->second;
    if (!is_running(*facts) || pace.iterations < job.counted) {
      job.counted_at = kNever;
      job.counted = pace.iterations;
      continue;
    }
    if (pace.iterations == job.counted) continue;
    // One has just ended.
    if (job.counted_at == kNever) {
      job.counted_at = now;
      job.counted = pace.iterations;
    } else if (now - job.counted_at >= kCountFor) {
      const uint64_t count = pace.iterations - job.counted;
      const Duration each{(now - job.counted_at).ns / static_cast<int64_t>(count)};
      events_.emplace_back(jobs::IterationsFinished{pace.job, count, each});
      job.counted_at = now;
      job.counted = pace.iterations;
    }
  }
}

// ---- decisions ----------------------------------------------------------------------------------

void JobScheduler::ask_policy(Instant now) {
  if (events_.empty()) return;
  std::vector<jobs::Decision> decisions;
  policy_->step(now, events_, decisions);
  if (auto broken = check_.step(events_, decisions)) {
    broken_ = *broken + " (told of:";
    for (const jobs::Event& event : events_) broken_ += " " + name_of(event);
    broken_ += ")";
    events_.clear();
    return;
  }
  events_.clear();
  for (const jobs::Decision& decision : decisions) set_target(now, decision);
}

void JobScheduler::set_target(Instant now, const jobs::Decision& decision) {
  if (const auto* timer = std::get_if<jobs::SetTimer>(&decision.what)) {
    timer_ = timer->at;
    return;
  }
  const JobId id = job_of(decision);
  const auto at = residents_.find(id);
  if (at == residents_.end()) return;
  Resident& job = at->second;
  std::visit(
      [&](const auto& what) {
        if constexpr (requires { what.gpus; }) {
          job.on_the_way = job.target != what.gpus;
          job.target = what.gpus;
        } else {
          job.target.reset();
        }
      },
      decision.what);
  job.sent = now;
  job.decision = jobs::text_of(decision, [&](JobId named) {
    const auto found = residents_.find(named);
    const bool known = found != residents_.end() && !found->second.nature.name.empty();
    return known ? found->second.nature.name : std::to_string(named.value);
  });
  decisions_.push_back({now, id, job.decision});
  if (decisions_.size() > kDecisionsKept) decisions_.pop_front();
}

// ---- orders -------------------------------------------------------------------------------------

// Nobody is there who shall not share these GPUs with the job.
bool JobScheduler::is_free_for(const NodeView& view, JobId id, const GpuSet& gpus) const {
  return std::ranges::none_of(view.facts.jobs, [&](const JobFacts& other) {
    if (other.job == id || !share_a_gpu(gpus_of(other), gpus)) return false;
    if (other.state == JobState::kSuspended) return false;
    const auto at = residents_.find(other.job);
    return at != residents_.end() && at->second.target != gpus;
  });
}

void JobScheduler::bring(Instant now, const NodeView& view, std::vector<JobOrder>& out) {
  for (const JobFacts& facts : view.facts.jobs) {
    const auto at = residents_.find(facts.job);
    if (at == residents_.end() || !at->second.movable) continue;
    Resident& job = at->second;
    if (job.elastic()) {
      if (!sizes_jobs() || !job.target) continue;
      const auto count = static_cast<uint32_t>(job.target->size());
      const uint32_t wanted = std::min(count, job.nature.most_gpus);
      if (wanted != gpus_of(facts).size() && job.resized == kNever) job.resized = now;
      if (wanted != job.nature.told_gpus) out.push_back(ResizeJob{facts.job, wanted});
      continue;
    }
    if (facts.suspends && !facts.by_policy) continue;  // a person's
    const bool rests = facts.state == JobState::kRunning || facts.state == JobState::kSuspended;
    const GpuSet gpus = gpus_of(facts);
    const auto order = [&](JobOrder what) {
      job.order = what;
      out.push_back(std::move(what));
    };
    if (!job.target) {
      if (!facts.suspends && !facts.migrates) order(SuspendJob{facts.job});
      continue;
    }
    const bool here = gpus == *job.target;
    if ((here && !facts.suspends) || !rests) continue;  // it is there, or on its way
    if (!is_free_for(view, facts.job, *job.target)) {
      // Two that change places leave both first.
      if (!here && !facts.suspends) order(SuspendJob{facts.job});
      continue;
    }
    if (here) {
      order(ResumeJob{facts.job});
    } else {
      order(MigrateJob{facts.job, *job.target});
    }
  }
}

void JobScheduler::refused(Instant now, JobId id) {
  const auto at = residents_.find(id);
  const JobFacts* facts = find(last_, id);
  if (at == residents_.end() || facts == nullptr) return;
  refuse(now, *facts, at->second);
}

std::vector<JobOrder> JobScheduler::let_go(const NodeFacts& facts) const {
  std::vector<JobOrder> orders;
  for (const JobFacts& job : facts.jobs) {
    if (job.suspends && job.by_policy && residents_.contains(job.job)) {
      orders.emplace_back(ResumeJob{job.job});
    }
  }
  return orders;
}

std::string JobScheduler::why_not_running(JobId job) const {
  const auto at = residents_.find(job);
  if (at == residents_.end() || at->second.target) return {};
  if (!at->second.decision.empty()) return at->second.decision;
  return jobs::text_of(jobs::Reason{jobs::Why::kNotYet});
}

std::string JobScheduler::last_decision(JobId job) const {
  const auto at = residents_.find(job);
  return at == residents_.end() ? std::string() : at->second.decision;
}

}  // namespace lull::scheduling
