#include "policies/jobs/decision_check.h"

#include <algorithm>
#include <utility>

namespace lull::jobs {
namespace {

template <typename... F>
struct Overload : F... {
  using F::operator()...;
};

std::string name(JobId id) { return "job " + std::to_string(id.value); }

}  // namespace

DecisionCheck::Job* DecisionCheck::find(JobId id) {
  const auto found = jobs_.find(id.value);
  return found == jobs_.end() ? nullptr : &found->second;
}

// ---- the table ------------------------------------------------------------------------------

uint32_t& DecisionCheck::counter(const Device& device) {
  Group& group = groups_[device.group];
  switch (device.use) {
    case Use::kFree:
      return group.free;
    case Use::kOnLoan:
      return group.on_loan;
    case Use::kGivesWay:
      return group.by_level[device.level];
    case Use::kStays:
      break;
  }
  return group.staying[device.level];
}

void DecisionCheck::recount(const GpuSet& gpus) {
  for (const DeviceId id : gpus) {
    Device& device = devices_[id.value];
    if (!device.present) continue;
    counter(device) -= 1;
    device.use = device.jobs.empty() ? Use::kFree : Use::kGivesWay;
    device.level = kLevels - 1;
    for (const JobId job_id : device.jobs) {
      const Job& job = *find(job_id);
      const size_t own = std::min<size_t>(job.request.gpus, job.gpus.size());
      const auto at = std::find(job.gpus.begin(), job.gpus.end(), id) - job.gpus.begin();
      const bool on_loan = static_cast<size_t>(at) < job.gpus.size() - own;
      device.level = std::min<size_t>(device.level, job.request.priority.level);
      if (on_loan) {
        device.use = Use::kOnLoan;
      } else if (job.stays()) {
        device.use = Use::kStays;
      }
    }
    counter(device) += 1;
  }
}

void DecisionCheck::run(Job& job, const GpuSet& gpus) {
  job.state = State::kRunning;
  job.gpus = gpus;
  for (const DeviceId id : gpus) devices_[id.value].jobs.push_back(job.request.job);
  recount(gpus);
  ++running_;
  waiting_.erase(job.request.job);
}

void DecisionCheck::stop(Job& job, State state) {
  if (job.state == State::kRunning) {
    for (const DeviceId id : job.gpus) std::erase(devices_[id.value].jobs, job.request.job);
    recount(job.gpus);
    --running_;
  }
  job.state = state;
  if (!job.held) waiting_.insert(job.request.job);
}

void DecisionCheck::leave(JobId id) {
  Job* job = find(id);
  if (job == nullptr) return;
  stop(*job, State::kQueued);
  waiting_.erase(id);
  jobs_.erase(id.value);
}

void DecisionCheck::command(const Command& command) {
  Job* job = find(command.job);
  if (job == nullptr) return;
  const bool ran = job->state == State::kRunning;
  switch (command.order) {
    case Command::Order::kSuspend:
      job->held = true;
      job->pinned = false;
      job->wanted.clear();
      waiting_.erase(command.job);
      break;
    case Command::Order::kResume:
      job->held = false;
      if (!ran) waiting_.insert(command.job);
      break;
    case Command::Order::kPin:
      job->pinned = true;
      job->wanted.clear();
      break;
    case Command::Order::kUnpin:
      job->pinned = false;
      job->wanted.clear();
      break;
    case Command::Order::kMigrate:  // pinned again at the end of the step, where it is to be
      job->held = job->pinned = false;
      job->wanted = command.to;
      if (!ran) waiting_.insert(command.job);
      break;
    case Command::Order::kPrioritise:
      job->request.priority = command.priority;
      prioritised_.push_back(command.job);
      break;
    case Command::Order::kResize:
      job->request.most_gpus = command.gpus;
      break;
  }
  if (ran) recount(job->gpus);
}

void DecisionCheck::event(const Event& event) {
  std::visit(
      Overload{
          [&](const JobArrived& e) {
            Job job{.request = e.request, .memory_bytes = e.request.memory_bytes};
            if (jobs_.emplace(e.request.job.value, job).second) waiting_.insert(e.request.job);
          },
          [&](const JobFinished& e) { leave(e.job); },
          [&](const JobFailed& e) { leave(e.job); },
          [&](const JobLost& e) {
            if (Job* job = find(e.job)) stop(*job, State::kQueued);
          },
          [&](const JobStands& e) {
            Job* job = find(e.job);
            if (job == nullptr) return;
            stop(*job, State::kSuspended);
            job->movable = e.movable;
            job->gpus = e.gpus;
            if (!e.running) return;
            // A job there that has other GPUs counts as stopped.
            for (const DeviceId id : e.gpus) {
              const std::vector<JobId> there = devices_[id.value].jobs;
              for (const JobId other : there) {
                if (find(other)->gpus != e.gpus) stop(*find(other), State::kSuspended);
              }
            }
            run(*job, e.gpus);
          },
          [&](const IterationsFinished&) {},
          [&](const MemoryInUse& e) {
            Job* job = find(e.job);
            if (job == nullptr || e.bytes <= job->memory_bytes) return;
            job->memory_bytes = e.bytes;
            grown_.insert(e.job);
          },
          [&](const DeviceLoad&) {},
          [&](const DeviceAppeared& e) {
            Device& device = devices_[e.gpu.device.value];
            if (device.present) return;
            const bool known = device.gpu.memory_bytes != 0;
            device.gpu = e.gpu;
            device.present = true;
            if (!known) {
              auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& one) {
                return one.node == e.gpu.node && one.kind == e.gpu.kind;
              });
              if (group == groups_.end()) {
                groups_.push_back(
                    {.node = e.gpu.node, .kind = e.gpu.kind, .memory_bytes = e.gpu.memory_bytes});
                group = std::prev(groups_.end());
              }
              device.group = static_cast<uint32_t>(group - groups_.begin());
              group->memory_bytes = std::min(group->memory_bytes, e.gpu.memory_bytes);
              largest_ = std::max(largest_, ++group->size);
            }
            groups_[device.group].present++;
            groups_[device.group].free++;
          },
          [&](const DeviceVanished& e) {
            const auto found = devices_.find(e.device.value);
            if (found == devices_.end() || !found->second.present) return;
            const std::vector<JobId> ran = found->second.jobs;
            for (const JobId id : ran) stop(*find(id), State::kSuspended);
            found->second.present = false;
            groups_[found->second.group].present--;
            groups_[found->second.group].free--;
          },
          [&](const MoveDone&) {},
          [&](const Command& e) { command(e); },
          [&](const TimerDue&) {},
      },
      event);
}

// ---- decisions ------------------------------------------------------------------------------

DecisionCheck::Broken DecisionCheck::fits(const Job& job, const GpuSet& gpus) const {
  const JobRequest& request = job.request;
  const size_t most = std::max(request.gpus, request.most_gpus);
  if (gpus.size() < request.gpus || gpus.size() > most) {
    return "it was given " + std::to_string(gpus.size()) + " GPUs and asked for " +
           std::to_string(request.gpus);
  }
  const Device* first = nullptr;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (i > 0 && gpus[i - 1] >= gpus[i]) return "its GPUs are not ascending";
    const auto found = devices_.find(gpus[i].value);
    if (found == devices_.end() || !found->second.present) {
      return "GPU " + std::to_string(gpus[i].value) + " is not there";
    }
    const Device& device = found->second;
    if (first == nullptr) first = &device;
    if (device.gpu.kind != first->gpu.kind) return "its GPUs are of different kinds";
    if ((request.kinds >> device.gpu.kind.value & 1) == 0) return "a GPU of that kind will not do";
    if (request.gpus <= largest_ && device.gpu.node != first->gpu.node) {
      return "it fits into one node and was given GPUs in several";
    }
  }
  return std::nullopt;
}

DecisionCheck::Broken DecisionCheck::memory_holds(const Job& job) const {
  for (const DeviceId id : job.gpus) {
    const Device& device = devices_.at(id.value);
    uint64_t sum = 0;
    for (const JobId other : device.jobs) {
      const uint64_t bytes = jobs_.at(other.value).memory_bytes;
      if (bytes == 0 && device.jobs.size() > 1) {
        return name(other) + " shares GPU " + std::to_string(id.value) +
               " and what memory it needs is not known";
      }
      sum += bytes;
    }
    if (sum > device.gpu.memory_bytes) {
      return "GPU " + std::to_string(id.value) + " has " + std::to_string(device.gpu.memory_bytes) +
             " bytes and its jobs need " + std::to_string(sum);
    }
  }
  return std::nullopt;
}

DecisionCheck::Broken DecisionCheck::go(JobId id, const GpuSet& gpus, bool packed,
                                        const char* what) {
  Job& job = *find(id);
  if (job.held) return std::string("the operator has suspended it");
  if (auto broken = fits(job, gpus)) return broken;
  const bool elsewhere = job.state != State::kQueued && gpus != job.gpus;
  const bool sized = job.state == State::kRunning && gpus.size() != job.gpus.size();
  if (elsewhere && !sized && (!job.request.migratable || !job.movable)) {
    return std::string("it cannot be moved to other GPUs");
  }
  if (job.state == State::kRunning && job.pinned && !sized && gpus != job.wanted) {
    return std::string("the operator has pinned it");
  }
  if (job.state == State::kRunning) stop(job, State::kSuspended);
  bool shared = false;
  for (const DeviceId device_id : gpus) {
    for (const JobId other_id : devices_[device_id.value].jobs) {
      shared = true;
      const Job& other = *find(other_id);
      const std::string where = name(other_id) + " runs on GPU " + std::to_string(device_id.value);
      if (!packed) return where;
      if (other.gpus != gpus) return where + " and has other GPUs, too";
      if (other.request.priority != job.request.priority) {
        return where + " and has another importance";
      }
    }
  }
  if (packed && !shared) return std::string(what) + " where nobody runs";
  run(job, gpus);
  return memory_holds(job);
}

DecisionCheck::Broken DecisionCheck::decide(const Decision& decision) {
  const auto about = [&](JobId id, std::initializer_list<State> states, auto&& then) -> Broken {
    Job* job = find(id);
    if (job == nullptr) return "there is no " + name(id);
    if (std::find(states.begin(), states.end(), job->state) == states.end()) {
      return name(id) + " is not in a state for that";
    }
    return then(*job);
  };
  const auto suspend = [&](Job& job) -> Broken {
    const bool is_there = job.wanted.empty() || job.wanted == job.gpus;
    if (!job.held && job.pinned && is_there) return std::string("the operator has pinned it");
    if (!job.held && (!job.request.suspendable || !job.movable)) {
      return std::string("it cannot be suspended");
    }
    stop(job, State::kSuspended);
    return std::nullopt;
  };
  using enum State;
  return std::visit(Overload{
                        [&](const Place& d) {
                          return about(d.job, {kQueued},
                                       [&](Job&) { return go(d.job, d.gpus, false, "place"); });
                        },
                        [&](const Resume& d) {
                          return about(d.job, {kSuspended},
                                       [&](Job&) { return go(d.job, d.gpus, false, "resume"); });
                        },
                        [&](const Migrate& d) {
                          return about(d.job, {kRunning},
                                       [&](Job&) { return go(d.job, d.gpus, false, "migrate"); });
                        },
                        [&](const Pack& d) {
                          return about(d.job, {kQueued, kSuspended, kRunning},
                                       [&](Job&) { return go(d.job, d.gpus, true, "pack"); });
                        },
                        [&](const Suspend& d) { return about(d.job, {kRunning}, suspend); },
                        [&](const Unpack& d) {
                          return about(d.job, {kRunning}, [&](Job& job) -> Broken {
                            if (devices_[job.gpus.front().value].jobs.size() < 2) {
                              return std::string("it runs alone");
                            }
                            return suspend(job);
                          });
                        },
                        [&](const Grow& d) {
                          return about(d.job, {kRunning}, [&](Job& job) -> Broken {
                            if (d.gpus.size() <= job.gpus.size())
                              return std::string("these are not more GPUs");
                            return go(d.job, d.gpus, false, "grow");
                          });
                        },
                        [&](const Shrink& d) {
                          return about(d.job, {kRunning}, [&](Job& job) -> Broken {
                            if (d.gpus.size() >= job.gpus.size())
                              return std::string("these are not fewer GPUs");
                            return go(d.job, d.gpus, false, "shrink");
                          });
                        },
                        [&](const SetTimer&) -> Broken { return std::nullopt; },
                    },
                    decision.what);
}

// Whether any GPUs of a node would do for it, and nobody wants it on certain ones.
bool DecisionCheck::goes_anywhere(const Job& job) const {
  if (job.pinned || job.request.gpus > largest_) return false;
  return job.state != State::kSuspended || (job.request.migratable && job.movable);
}

DecisionCheck::Broken DecisionCheck::importance(const std::vector<JobId>& started) {
  if (waiting_.empty()) return std::nullopt;
  if (!preemptive_) {
    for (const JobId id : started) {
      const Job* less = find(id);
      if (less == nullptr || less->state != State::kRunning || less->pinned) continue;
      for (const JobId waiting : waiting_) {
        const Job& more = *find(waiting);
        if (more.request.priority >= less->request.priority || !goes_anywhere(more)) continue;
        if (devices_[less->gpus.front().value].jobs.size() > 1) continue;  // it took no free GPU
        const Group& taken = groups_[devices_[less->gpus.front().value].group];
        const bool fits = taken.free + less->gpus.size() >= more.request.gpus &&
                          (more.request.kinds >> taken.kind.value & 1) != 0 &&
                          more.memory_bytes <= taken.memory_bytes;
        if (fits)
          return name(id) + " got GPUs for which the more important " + name(waiting) + " waits";
      }
    }
    return std::nullopt;
  }
  // The most GPUs that a job of a level could have in one node, by kind.
  struct Most {
    std::array<uint32_t, kLevels> gpus{};
    uint64_t memory_bytes = UINT64_MAX;
  };
  std::map<GpuKind, Most> most;
  for (const Group& group : groups_) {
    Most& kind = most[group.kind];
    kind.memory_bytes = std::min(kind.memory_bytes, group.memory_bytes);
    uint32_t could = group.free + group.on_loan;
    for (size_t level = kLevels; level-- > 0;) {
      kind.gpus[level] = std::max(kind.gpus[level], could);
      could += group.by_level[level];  // what jobs less important than level - 1 have
    }
  }
  for (const JobId id : waiting_) {
    const Job& job = *find(id);
    if (!goes_anywhere(job)) continue;
    const auto level = std::min<size_t>(job.request.priority.level, kLevels - 1);
    for (const auto& [kind, could] : most) {
      if ((job.request.kinds >> kind.value & 1) == 0 || job.memory_bytes > could.memory_bytes)
        continue;
      if (could.gpus[level] >= job.request.gpus) {
        return name(id) + " waits while GPUs are free, on loan or with less important jobs";
      }
    }
  }
  return std::nullopt;
}

std::optional<std::string> DecisionCheck::step(std::span<const Event> events,
                                               std::span<const Decision> decisions) {
  bool changed = false;
  std::vector<JobId> pinned_later;
  for (const Event& one : events) {
    event(one);
    changed |= !std::holds_alternative<IterationsFinished>(one) &&
               !std::holds_alternative<DeviceLoad>(one) && !std::holds_alternative<MoveDone>(one);
    if (const auto* order = std::get_if<Command>(&one)) {
      if (order->order == Command::Order::kMigrate) pinned_later.push_back(order->job);
    }
  }
  std::vector<JobId> started;
  for (const Decision& decision : decisions) {
    if (auto broken = decide(decision)) return text_of(decision) + ": " + *broken;
    std::visit(
        [&](const auto& d) {
          if constexpr (requires { d.gpus; }) started.push_back(d.job);
        },
        decision.what);
  }
  for (const JobId id : pinned_later) {
    if (Job* job = find(id)) {
      job->pinned = true;
      if (job->state == State::kRunning) recount(job->gpus);
    }
  }
  for (const JobId id : grown_) {
    const Job* job = find(id);
    if (job == nullptr || job->state != State::kRunning) continue;
    const std::vector<JobId>& there = devices_[job->gpus.front().value].jobs;
    if (std::ranges::all_of(there, [&](JobId one) { return find(one)->stays(); })) continue;
    if (auto broken = memory_holds(*job)) {
      grown_.clear();
      return broken;
    }
  }
  grown_.clear();
  for (const JobId id : std::exchange(prioritised_, {})) {
    const Job* job = find(id);
    if (job == nullptr || job->state != State::kRunning) continue;
    for (const JobId other_id : devices_[job->gpus.front().value].jobs) {
      const Job& other = *find(other_id);
      if (other.request.priority == job->request.priority) continue;
      if (job->stays() && other.stays()) continue;
      return name(id) + " shares GPUs with " + name(other_id) +
             ", which has another importance now";
    }
  }
  if (!changed && decisions.empty()) return std::nullopt;
  return importance(started);
}

}  // namespace lull::jobs
