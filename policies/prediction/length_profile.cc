#include "policies/prediction/length_profile.h"

#include <algorithm>

namespace lull::policies {
namespace {

int64_t margin(int64_t ns) { return std::max(ns / 8, LengthProfile::kNoise); }

}  // namespace

void LengthProfile::add(int64_t ns, bool disturbed) {
  ns = std::clamp<int64_t>(ns, 0, kLongestNs);
  const bool lengthens = co_running_ == CoRunning::kLengthens;
  const uint64_t known = lengthens && disturbed ? 1 : kTrusted;
  if (lengthens && count_ > 0 && !seen_alone_ && (!disturbed || ns < p1_ns_))
    forget();
  else if (count_ >= known && (notice(ns, disturbed) || disturbed))
    return;
  count(ns, !disturbed);
  derive();
}

void LengthProfile::forget() {
  sketch_ = {};
  count_ = 0;
  mean_x1024_ = 0;
  seen_alone_ = false;
}

void LengthProfile::count(int64_t ns, bool alone) {
  count_ += 1;
  seen_alone_ |= alone;
  last_ = Duration{ns};
  mean_x1024_ += (ns * 1024 - mean_x1024_) /
                 static_cast<int64_t>(std::min<uint64_t>(count_, uint64_t{kMeanWindow}));
  sketch_.add(ns);
}

void LengthProfile::derive() {
  p1_ns_ = sketch_.quantile_floor(10).ns;
  p99_ns_ = sketch_.quantile(990).ns;
  at_least_ns_ = sketch_.quantile_floor(kShortPerMille).ns;
  at_most_ns_ = sketch_.quantile(kLongPerMille).ns;
}

// Whether the sample belongs to a run that may become a drift, and so is not counted now.
bool LengthProfile::notice(int64_t ns, bool disturbed) {
  const int side = ns > p99_ns_ + margin(p99_ns_) ? 1 : ns < p1_ns_ - margin(p1_ns_) ? -1 : 0;
  const int pushed = static_cast<int>(co_running_);
  if (side != run_side_) {
    if (disturbed && run_side_ == -pushed) {
      if (++run_silent_ > kSilent * run_outside_) end_run();
      return false;
    }
    end_run();
    run_side_ = side;
    run_nearest_ = run_farthest_ = ns;
  }
  if (side == 0) return false;
  static_assert(kEnough % kDrift == 0);
  run_weight_ += kEnough / (disturbed && side == pushed ? kDriftCoRunning : kDrift);
  run_outside_ += 1;
  run_nearest_ = pushed > 0 ? std::min(run_nearest_, ns) : std::max(run_nearest_, ns);
  run_farthest_ = pushed > 0 ? std::max(run_farthest_, ns) : std::min(run_farthest_, ns);
  if (!disturbed) run_.push_back(ns);
  if (run_weight_ < kEnough) return true;
  const int64_t edge = pushed > 0 ? p99_ns_ : p1_ns_;
  const bool unexplained =
      (run_nearest_ - edge) * run_outside_ * pushed >= (run_farthest_ - edge) * kUnlikely * pushed;
  if (side != pushed || run_.size() >= kDrift || unexplained) relearn();
  return true;
}

// Counts the undisturbed samples of the run as any others.
void LengthProfile::end_run() {
  for (const int64_t ns : run_) count(ns, run_alone_);
  if (!run_.empty()) derive();
  run_.clear();
  run_side_ = 0;
  run_weight_ = run_outside_ = run_silent_ = 0;
  run_alone_ = true;
}

void LengthProfile::relearn() {
  run_alone_ = !run_.empty();
  if (!run_alone_) run_.push_back(run_nearest_);
  const auto [least, most] = std::minmax_element(run_.begin(), run_.end());
  const bool returned = left_.samples() > 0 && *least >= left_.quantile_floor(0).ns - kNoise &&
                        *most <= left_.quantile(1000).ns + kNoise;
  if (seen_alone_ && !returned) {
    left_ = sketch_;
    left_mean_x1024_ = mean_x1024_;
  }
  if (!seen_alone_ || !returned) forget();
  if (returned) {
    const int64_t here = sketch_.samples();
    const int64_t back = left_.samples();
    mean_x1024_ = (mean_x1024_ * here + left_mean_x1024_ * back) / (here + back);
    sketch_.add(left_);
    left_ = {};
    seen_alone_ = true;
  } else {
    relearnt_ += 1;
    // Repeated, until there are enough to be trusted.
    for (size_t i = 0; run_.size() < kTrusted; ++i) run_.push_back(run_[i]);
  }
  count_ = sketch_.samples();
  end_run();
}

void LengthProfile::take_up(const Saved& saved) {
  *this = LengthProfile(co_running_);
  count_ = saved.count;
  mean_x1024_ = std::clamp<int64_t>(saved.mean_x1024, 0, kLongestNs * 1024);
  last_ = Duration{std::clamp<int64_t>(saved.last.ns, 0, kLongestNs)};
  sketch_ = QuantileSketch::from(saved.buckets);
  seen_alone_ = true;
  derive();
}

}  // namespace lull::policies
