// The words of the job policies: nodes, GPUs, what a job asks for, and why something is decided.
// Pure. Used by the job policies, the decision check and whoever carries decisions out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::jobs {

using NodeId = Id<struct NodeTag, uint32_t>;      // one machine
using GpuKind = Id<struct GpuKindTag, uint32_t>;  // GPUs of one model; numbered from the fastest
// Jobs that one user tries against each other, as those of a hyper-parameter search (Gandiva's
// multi-job). They are alike: what is measured of one is expected of the others. 0: of none.
using MultiJobId = Id<struct MultiJobTag, uint64_t>;

// One GPU and where it sits. Sockets and switches are numbered within their node.
struct Gpu {
  DeviceId device;
  NodeId node;
  uint32_t socket = 0;
  uint32_t pcie_switch = 0;
  GpuKind kind;
  uint64_t memory_bytes = 0;  // what programs can have of it
};

using GpuSet = std::vector<DeviceId>;  // ascending, each once

inline constexpr uint64_t kAnyKind = ~uint64_t{0};

// What a job asks for. It runs on all its GPUs or not at all, and on GPUs of one kind.
//
// A job that fits into one node gets its GPUs in one node; a larger one gets whole nodes.
struct JobRequest {
  JobId job;
  Priority priority;
  uint32_t gpus = 1;
  // More than `gpus`: an elastic job, which may be given as many while nobody waits for them.
  uint32_t most_gpus = 0;
  uint64_t memory_bytes = 0;  // at most, on each GPU; 0: not known, the job has its GPUs alone
  uint64_t kinds = kAnyKind;  // bit k: a GPU of kind k will do
  MultiJobId multi_job;
  bool suspendable = true;
  bool migratable = true;  // a suspended job may be resumed on other GPUs
  bool elastic() const { return most_gpus > gpus; }
};

// Why something is decided. reason.cc has the words, one row a reason.
enum class Why : uint8_t {
  kFreeGpus,       // GPUs were free
  kOnlySharing,    // no GPU was free: the least used ones are shared
  kNext,           // first in the policy's order
  kMoreImportant,  // `other` is more important
  kTurnOver,       // its turn is over and `other` is next
  kLessService,    // `other` has had less service
  kProfile,        // runs alone to be profiled
  kTryPack,        // tried together with `other`
  kTryPlace,       // changes places with `other`, on trial
  kKeepPack,       // runs together with `other` again: that was faster than taking turns
  kBadPack,        // together with `other` was slower than apart: `value` per mille
  kNoBetter,       // beside `other` all together were no faster: `value` per mille
  kMemory,         // the GPUs' memory does not hold them all
  kVacated,        // GPUs became free: it runs alone there
  kInterference,   // slower than elsewhere: `value` per mille of its best
  kNearer,         // GPUs that are nearer to each other became free
  kDefragment,     // makes room for `other`
  kMadeWay,        // another job's GPUs were needed and this one has others
  kIdleGpus,       // elastic: nobody waits for these GPUs
  kGiveBack,       // elastic: `other` waits
  kOperator,       // the operator said so
  kLostMachine,    // its GPU has vanished
  kNotYet,         // it has arrived, and nothing is decided yet
  kSibling,        // runs beside `other` of its own multi-job, as others of it do
  kTooMany,        // fewer beside `other` make as much together
};

struct Reason {
  Why why = Why::kFreeGpus;
  JobId other{};      // the job that the words name, where they name one
  int64_t value = 0;  // the number that the words name, where they name one
  auto operator<=>(const Reason&) const = default;
};

// The reason in words, as `lull status` and the log of lulld say it: "its turn is over: job 7 is
// next". Jobs are named by `name_of`; empty: by their numbers.
using JobName = std::function<std::string(JobId)>;
std::string text_of(const Reason& reason, const JobName& name_of = {});

}  // namespace lull::jobs
