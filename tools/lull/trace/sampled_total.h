// What all launches of a kernel took, from those that were timed. Called by the analysis when it
// ends; pure.
//
// Each kernel on a device is a stratum of its own, for the sampler times rare kernels more often
// than frequent ones. What was measured counts as it is, once. Each launch that was not timed
// counts as the mean of the kernel's samples, winsorised (Tukey 1962; Dixon and Tukey 1968): the
// kTrimmed largest and smallest of them count as the next one, so that one outlier counts for
// itself only.
//
// The error is half of a 95 % interval: Student's t with the deviation of all samples, outliers
// included, for the mean and for the untimed launches around it. So an outlier does not move an
// estimate but widens its interval. Samples in a row count as fewer than they are. The interval
// assumes that the timed launches are like the others.
#pragma once

#include <cstdint>

#include "tools/lull/trace/log_histogram.h"

namespace lull::trace {

// Of one launch that was not timed.
struct SampleMean {
  uint64_t samples = 0;
  double mean_ns = 0;
  double deviation_ns = 0;  // of one launch
  double independent = 1;   // samples that these are worth
  double student = 0;       // 97.5 % quantile of t
};

SampleMean sample_mean(const LogHistogram& lengths);

// Half of the 95 % interval around what `untimed` launches took.
double error_ns(const SampleMean& mean, uint64_t untimed);

}  // namespace lull::trace
