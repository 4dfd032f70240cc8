// What is known of the jobs of one multi-job, such as a hyper-parameter search: they are alike.
// Pure; owned by Cluster (cluster.h).
//
// How fast one goes alone, and how busy it keeps its GPU, is expected of the others, too: so not
// each has to be profiled alone. Jobs that ended tell after how many iterations their owner looks
// at a job: most are ended at the first look.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "policies/jobs/unit.h"

namespace lull::jobs {

class MultiJob {
 public:
  // One of them did `count` iterations alone.
  void ran_alone(GpuKind kind, size_t gpus, uint64_t count, Duration each);
  void was_busy(uint32_t per_mille);
  void ended(uint64_t iterations);

  // Gives a job of it that was not measured itself what is expected of it.
  void expect(Job& job) const;
  // How many looks of the owner a job has passed with this many iterations; 0: not known yet.
  uint64_t looks(uint64_t iterations) const;

  // `together` jobs on a GPU are not tried again for `first`; the next time for twice as long.
  void too_many(Instant now, size_t together, Duration first);

  size_t members = 0;  // jobs of it that are there

  // The most of them that were faster together than by turns; and a number that was not, which is
  // not tried again until `bad_until`.
  size_t good_together = 1;
  size_t bad_together = SIZE_MAX;
  Instant bad_until;
  Duration bad_for;  // the next time

 private:
  struct Alone {
    GpuKind kind;
    size_t gpus;
    Pace pace;
  };
  std::vector<Alone> alone_;
  uint64_t loads_ = 0, load_per_mille_ = 0;  // how many, and their sum
  std::deque<uint64_t> ends_;                // iterations of the last that ended
};

}  // namespace lull::jobs
