// A simulated job: what it asks for, and what it really does, which no policy is told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "policies/jobs/vocabulary.h"

namespace lull::simulate::cluster {

struct JobSpec {
  std::string name;
  double arrival_s = 0;
  uint32_t gpus = 1;
  uint32_t most_gpus = 0;  // more than `gpus`: elastic
  Priority priority;
  uint64_t kinds = jobs::kAnyKind;
  jobs::MultiJobId multi_job;
  uint64_t memory_bytes = 0;  // on each GPU; declared, and what is copied by a move

  // Not told to policies.
  uint64_t iterations = 0;
  double iteration_s = 1;      // alone, on the fastest kind, GPUs near each other
  double busy = 0.5;           // share of the time in which it uses its GPUs when it runs alone
  double locality = 1;         // its speed on GPUs of two sockets or nodes, against near ones
  bool bus = false;            // loads the PCIe switch: slowed by others that do
  double fails_at = 0;         // share of its iterations after which it fails; 0: it does not
  double checkpoint_s = 1800;  // it saves itself so often, and begins again there
  // Of a hyper-parameter search: how good it ends up, 0 to 1; negative: it is part of none.
  double quality = -1;

  // Time alone on the fastest kind.
  double alone_s() const { return static_cast<double>(iterations) * iteration_s; }
};

// Of a search's jobs, and of the one that its owner prefers (simulation.h).
inline constexpr Priority kSearchPriority{7}, kPreferredPriority{5};

using JobSpecs = std::vector<JobSpec>;  // ascending by arrival

}  // namespace lull::simulate::cluster
