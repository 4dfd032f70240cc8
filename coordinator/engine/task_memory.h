// What the engine has learnt of every task's kernels, kept after the clients have gone.
//
// A task is named by the key of ClientAttached; clients with the same key learn together, so the
// daemon puts into the key what must not mix (user, program). Pure; used by the engine only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/engine/task_record.h"
#include "policies/prediction/kernel_profile.h"
#include "policies/prediction/predictor.h"
#include "policies/vocabulary.h"

namespace lull::engine {

inline constexpr size_t kMaxTasks = 1024;
inline constexpr size_t kMaxKernelsPerTask = 8192;
inline constexpr size_t kMaxPairsPerTask = 16384;
inline constexpr int64_t kFewKernels = 8;
inline constexpr Duration kUnknownKernel{50'000};  // before anything of the task is known

// Ids come from the programs: spread, so that nobody can choose a bucket.
struct KernelHash {
  size_t operator()(KernelId id) const {
    uint64_t x = id.value;
    x = (x ^ (x >> 32)) * 0x9e3779b97f4a7c15ULL;
    return x ^ (x >> 29);
  }
};

struct TaskKernel {
  policies::KernelProfile profile;
  policies::PredictorChoice choice;
};

// The kernels of one function and about one size (kernel_kind) whose first measurements came last.
struct KernelKind {
  static constexpr size_t kRemembered = 8;
  std::array<const TaskKernel*, kRemembered> measured{};
  size_t count = 0;

  void add(const TaskKernel& kernel) { measured[count++ % kRemembered] = &kernel; }
  std::span<const TaskKernel* const> alike() const {
    return {measured.data(), std::min(count, kRemembered)};
  }
};

// Which of a measurement's two parts co-running work may have changed.
struct Disturbed {
  bool duration = false;
  bool gap = false;
};

class TaskProfile {
 public:
  // Null when the task has kMaxKernelsPerTask others. Stays valid as long as the task is in use.
  TaskKernel* kernel(KernelId id);
  // Takes a measurement of one of this task's kernels.
  void add(KernelId id, TaskKernel& kernel, Duration duration, Duration gap,
           Disturbed disturbed = {});
  // Takes over what an earlier run knew, unless this kernel has been measured as often since.
  void recall(KernelId id, const policies::KernelProfile::Saved& saved);
  // Every measured kernel, by id.
  std::vector<TaskRecord::Kernel> saved() const;

  // Undisturbed lengths and gaps by pair: the kernel before, and this one. Beyond kMaxPairsPerTask
  // no more pairs are learnt. `known`: what is known of this kernel behind any other.
  void add_pair(KernelId before, KernelId kernel, const policies::KernelProfile& known,
                Duration duration, Duration gap);
  const policies::KernelProfile* pair(KernelId before, KernelId kernel,
                                      const policies::KernelProfile& known) const;

  // How long a kernel that was never measured takes in the mean, and at most. Others of its kind
  // tell both: a program whose shapes change from step to step has new kernels all the time.
  // Without others, these are the mean over all known kernels, and the p95 of their first
  // measurements.
  Duration unknown_kernel(KernelId id) const;
  Duration unknown_at_most(KernelId id) const;
  // By how much it may lengthen other measurements: without limit while few kernels are known.
  Duration unmeasured_at_most(KernelId id) const {
    return known_ < kFewKernels ? Duration{policies::KernelProfile::kLongestNs} : unknown_at_most(id);
  }
  size_t size() const { return kernels_.size(); }

  std::vector<ClientId> users;  // ascending

 private:
  friend class TaskMemory;
  const KernelKind* known_kind(KernelId id) const;
  void first_measured(KernelId id, const TaskKernel& kernel);

  std::unordered_map<KernelId, TaskKernel, KernelHash> kernels_;
  std::unordered_map<uint32_t, KernelKind> kinds_;
  std::unordered_map<KernelId, policies::PlaceProfile, KernelHash> pairs_;  // by both, mixed
  policies::QuantileSketch first_lengths_;                                  // one a kernel
  int64_t sum_of_means_ns_ = 0;
  int64_t known_ = 0;
  uint64_t last_used_ = 0;
};

class TaskMemory {
 public:
  TaskProfile& acquire(const std::string& task, ClientId user);
  void release(TaskProfile& profile, ClientId user);

 private:
  void forget_oldest();

  std::map<std::string, std::unique_ptr<TaskProfile>> tasks_;
  uint64_t uses_ = 0;
};

}  // namespace lull::engine
