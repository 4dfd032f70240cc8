#include "coordinator/engine/task_memory.h"

#include <algorithm>

namespace lull::engine {

TaskKernel* TaskProfile::kernel(KernelId id) {
  auto found = kernels_.find(id);
  if (found != kernels_.end()) return &found->second;
  if (kernels_.size() >= kMaxKernelsPerTask) return nullptr;
  return &kernels_[id];
}

void TaskProfile::add(KernelId id, TaskKernel& kernel, Duration duration, Duration gap,
                      Disturbed disturbed) {
  policies::KernelProfile& profile = kernel.profile;
  const bool first = profile.count() == 0;
  sum_of_means_ns_ -= profile.mean().ns;
  profile.add_duration(duration, disturbed.duration);
  if (gap.ns >= 0) profile.add_gap(gap, disturbed.gap);
  sum_of_means_ns_ += profile.mean().ns;
  if (first) first_measured(id, kernel);
}

void TaskProfile::first_measured(KernelId id, const TaskKernel& kernel) {
  known_ += 1;
  first_lengths_.add(kernel.profile.mean().ns);
  if (kernel_kind(id) != 0) kinds_[kernel_kind(id)].add(kernel);
}

void TaskProfile::recall(KernelId id, const policies::KernelProfile::Saved& saved) {
  TaskKernel* known = kernel(id);
  if (known == nullptr || known->profile.count() >= saved.count) return;
  const bool first = known->profile.count() == 0;
  sum_of_means_ns_ -= known->profile.mean().ns;
  known->profile = policies::KernelProfile::from(saved);
  sum_of_means_ns_ += known->profile.mean().ns;
  if (first) first_measured(id, *known);
}

std::vector<TaskRecord::Kernel> TaskProfile::saved() const {
  std::vector<TaskRecord::Kernel> list;
  for (const auto& [id, kernel] : kernels_) {
    if (kernel.profile.count() > 0) list.push_back({id, {}, kernel.profile.saved()});
  }
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return list;
}

namespace {

KernelId both(KernelId before, KernelId kernel) {
  return KernelId{kernel.value ^ (before.value * 0x9e3779b97f4a7c15ULL + 0x7f4a7c15)};
}

}  // namespace

void TaskProfile::add_pair(KernelId before, KernelId kernel, const policies::KernelProfile& known,
                           Duration duration, Duration gap) {
  const KernelId id = both(before, kernel);
  auto found = pairs_.find(id);
  if (found == pairs_.end()) {
    if (pairs_.size() >= kMaxPairsPerTask) return;
    found = pairs_.emplace(id, policies::PlaceProfile()).first;
  }
  found->second.add(known, duration, gap);
}

const policies::KernelProfile* TaskProfile::pair(KernelId before, KernelId kernel,
                                                 const policies::KernelProfile& known) const {
  const auto found = pairs_.find(both(before, kernel));
  return found == pairs_.end() ? nullptr : found->second.of(known);
}

const KernelKind* TaskProfile::known_kind(KernelId id) const {
  const auto found = kinds_.find(kernel_kind(id));
  return found == kinds_.end() ? nullptr : &found->second;
}

Duration TaskProfile::unknown_kernel(KernelId id) const {
  if (const KernelKind* kind = known_kind(id)) {
    const auto alike = kind->alike();
    int64_t sum = 0;
    for (const TaskKernel* kernel : alike) sum += kernel->profile.mean().ns;
    return {sum / static_cast<int64_t>(alike.size())};
  }
  return known_ == 0 ? kUnknownKernel : Duration{sum_of_means_ns_ / known_};
}

Duration TaskProfile::unknown_at_most(KernelId id) const {
  Duration most = unknown_kernel(id);
  if (const KernelKind* kind = known_kind(id)) {
    for (const TaskKernel* kernel : kind->alike()) {
      most = std::max(most, kernel->profile.durations().at_most());
    }
    return most;
  }
  return std::max(most, first_lengths_.quantile(policies::LengthProfile::kLongPerMille));
}

TaskProfile& TaskMemory::acquire(const std::string& task, ClientId user) {
  auto found = tasks_.find(task);
  if (found == tasks_.end()) {
    if (tasks_.size() >= kMaxTasks) forget_oldest();
    found = tasks_.emplace(task, std::make_unique<TaskProfile>()).first;
  }
  TaskProfile& profile = *found->second;
  profile.last_used_ = ++uses_;
  profile.users.insert(std::lower_bound(profile.users.begin(), profile.users.end(), user), user);
  return profile;
}

void TaskMemory::release(TaskProfile& profile, ClientId user) {
  std::erase(profile.users, user);
  profile.last_used_ = ++uses_;
}

// Tasks in use stay: there are no more of them than clients.
void TaskMemory::forget_oldest() {
  auto oldest = tasks_.end();
  for (auto it = tasks_.begin(); it != tasks_.end(); ++it) {
    if (!it->second->users.empty()) continue;
    if (oldest == tasks_.end() || it->second->last_used_ < oldest->second->last_used_) oldest = it;
  }
  if (oldest != tasks_.end()) tasks_.erase(oldest);
}

}  // namespace lull::engine
