#include "coordinator/engine/task_memory.h"

#include <algorithm>

namespace lull::engine {

policies::KernelProfile* TaskProfile::kernel(KernelId id) {
  auto found = kernels_.find(id);
  if (found != kernels_.end()) return &found->second;
  if (kernels_.size() >= kMaxKernelsPerTask) return nullptr;
  return &kernels_[id];
}

void TaskProfile::add(policies::KernelProfile& kernel, Duration duration, Duration gap,
                      bool disturbed) {
  if (kernel.count() == 0) known_ += 1;
  sum_of_means_ns_ -= kernel.mean().ns;
  kernel.add(duration, gap, disturbed);
  sum_of_means_ns_ += kernel.mean().ns;
}

Duration TaskProfile::unknown_kernel() const {
  return known_ == 0 ? kUnknownKernel : Duration{sum_of_means_ns_ / known_};
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
