#include "policies/prediction/iteration_detector.h"

#include <algorithm>

namespace lull::policies {
namespace {

constexpr uint32_t kUnitLook = 5;   // the same unit this many times in a row is worth a look
constexpr uint32_t kReturnRun = 6;  // launches that show where in the template the program is
constexpr uint32_t kLostAfterLeast = 8;
constexpr uint32_t kLostAfterMost = 32;
constexpr uint64_t kGoneAfterLeast = 256;  // launches out of step
constexpr uint32_t kShareWindow = 64;
constexpr uint32_t kGood = 900;
constexpr uint64_t kSettledAfter = 24;  // iterations
constexpr uint64_t kProven = 2;         // iterations followed
constexpr uint32_t kVainRounds = 3;     // iterations that hardly followed the template

}  // namespace

uint32_t IterationDetector::period() const {
  if (!locked()) return 0;
  return period_;
}
uint32_t IterationDetector::template_length() const { return locked() ? current().length() : 0; }
KernelId IterationDetector::kernel_at(uint32_t position) const {
  return position < template_length() ? current().at(position) : KernelId{};
}
std::optional<uint32_t> IterationDetector::place_of_next(KernelId kernel) const {
  if (!in_step()) return std::nullopt;
  const IterationTemplate& plan = current();
  if (plan.at(cursor_) == kernel) return cursor_;
  const auto near = plan.nearest(kernel, cursor_);
  const bool close =
      near && static_cast<uint32_t>(std::abs(plan.distance(*near, cursor_))) <= plan.slack() + 1;
  return close ? near : std::nullopt;
}
Duration IterationDetector::last_time() const {
  return times_.empty() ? Duration{} : times_.back();
}
Duration IterationDetector::median_time() const {
  if (times_.empty()) return Duration{};
  std::vector<Duration> sorted = times_;
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}
uint32_t IterationDetector::confidence_per_mille() const {
  return locked() ? std::min(1000U, hit_share_x16_ / 16) : 0;
}

IterationDetector::Mark IterationDetector::launch(KernelId kernel, Instant at,
                                                  uint64_t memory_bytes) {
  at = last_at_ = std::max(at, last_at_);
  launches_ += 1;
  if (!resting_) history_.push(kernel, at, waited_);
  waited_ = false;
  Mark mark;
  if (locked()) {
    mark = follow(kernel, at, memory_bytes);
  } else {
    look_for_return(kernel, at);
  }
  same_run_ = kernel == last_kernel_ ? same_run_ + 1 : 1;
  last_kernel_ = kernel;
  const bool unit_again = !locked() && same_run_ == kUnitLook && launches_ >= unit_look_at_;
  if (unit_again) unit_look_at_ = launches_ + history_.size() / 4;
  if (launches_ >= analyse_at_ || unit_again) analyse();
  return mark;
}

// Looks more and more rarely: so the cost of a look is bounded for each launch until the next look.
void IterationDetector::analyse() {
  const uint32_t n = history_.size();
  const bool settled = in_step() && confidence_per_mille() >= kGood && n > LaunchHistory::kMost / 2;
  uint64_t pause = locked() ? n / 8 : (n < 2048 ? n / 16 : n / 8);
  // If the program has left its iteration, what it does now may be short as yet: look sooner.
  if (!locked() && left_at_ != 0) {
    pause = std::min(pause, std::max<uint64_t>((launches_ - left_at_) / 4, n / 32));
  }
  if (settled || looks_in_vain_ > 4) pause = n;
  if (looks_in_vain_ > 16) pause = 4 * uint64_t{n};
  analyse_at_ = launches_ + std::max<uint64_t>(pause, n < 64 ? 1 : 4);
  // It has long been in step, and every loop around it has been looked for: the history teaches
  // nothing until the program leaves the iteration.
  if (settled && launches_ - locked_at_ > LaunchHistory::kMost) {
    resting_ = true;
    history_.clear();
    analyse_at_ = UINT64_MAX;
    return;
  }

  // While it follows an iteration, only a loop around that counts; when it has lost it, any loop.
  const bool gone = lost_ && lost_for_ > std::max<uint64_t>(2 * template_length(), kGoneAfterLeast);
  LaunchHistory::Inner inside;
  if (locked() && !gone) {
    inside = {period_, found_slack_, completed_ > kSettledAfter};
  }
  const auto found = history_.repetition(inside);
  if (!found) {
    looks_in_vain_ += n > LaunchHistory::kMost / 2 ? 1 : 0;
    return;
  }
  looks_in_vain_ = 0;
  unlock();
  lock(*found);
}

void IterationDetector::lock(const LaunchHistory::Repetition& found) {
  const uint32_t n = history_.size();
  const uint32_t from = found.start + found.period <= n ? found.start : found.start - found.period;
  std::vector<KernelId> launches;
  for (uint32_t i = from; i < from + found.period; ++i) launches.push_back(history_.kernel(i));
  if (templates_.size() >= kRemembered) templates_.erase(templates_.begin());
  generation_template_ = -1;
  templates_.emplace_back(std::move(launches));
  if (found.slack > 0) templates_.back().widen(found.slack);
  found_slack_ = found.slack;
  times_.clear();
  lengths_.clear();
  completed_ = 0;
  lowest_position_ = 0;
  lowest_bytes_ = 0;
  hit_share_x16_ = 1000 * 16;
  period_ = found.period;
  locked_at_ = launches_;
  const uint32_t into = n - found.start;  // launches of the iteration in progress
  use(templates_.size() - 1, into % found.period);
  started_ = history_.at(found.start < n ? found.start : n - 1);
  in_iteration_ = hits_ = known_ = into;
  whole_ = true;
  if (into == found.period) whole_ = wrapped_ = true;
  last_position_ = (into + found.period - 1) % found.period;
}

void IterationDetector::use(size_t index, uint32_t cursor) {
  if (generation_template_ != static_cast<int>(index) || completed_ == 0) generation_ += 1;
  generation_template_ = static_cast<int>(index);
  current_ = static_cast<int>(index);
  cursor_ = cursor;
  drift_x16_ = 0;
  displaced_ = 0;
  displaced_times_ = 0;
  contradictions_ = 0;
  lost_ = false;
  lost_for_ = 0;
  return_run_ = 0;
  wrapped_ = false;
  whole_ = false;
  in_iteration_ = hits_ = known_ = 0;
  low_bytes_ = bytes_at_lowest_ = UINT64_MAX;
}

// The template stays, in case the program comes back to it, unless it was hardly ever followed.
void IterationDetector::unlock() {
  if (locked() && completed_ < kProven) {
    templates_.erase(templates_.begin() + current_);
    generation_template_ = -1;
  }
  current_ = -1;
  vain_ = 0;
  lost_ = false;
  return_run_ = 0;
  left_at_ = launches_;
  analyse_at_ = launches_ + std::max<uint64_t>(8, history_.size() / 32);
}

// ---- in step ----------------------------------------------------------------------------------

void IterationDetector::score(bool hit) {
  const int64_t now = hit ? 1000 * 16 : 0;
  const auto share = static_cast<int64_t>(hit_share_x16_);
  hit_share_x16_ = static_cast<uint32_t>(share + (now - share) / int64_t{kShareWindow});
}

void IterationDetector::begin(Instant at, Mark& mark) {
  const uint32_t length = current().length();
  // If it was left half way, or hardly followed the template, it does not count.
  const bool enough =
      in_iteration_ * 2 >= length && hits_ * 2 >= known_ && hits_ * 8 >= in_iteration_;
  vain_ = enough ? 0 : vain_ + 1;
  if (whole_ && enough && started_ != kNever) {
    completed_ += 1;
    mark.completed = true;
    mark.took = at - started_;
    mark.launches = in_iteration_;
    if (times_.size() >= kTimesKept) {
      times_.erase(times_.begin());
      lengths_.erase(lengths_.begin());
    }
    times_.push_back(mark.took);
    lengths_.push_back(in_iteration_);
    std::vector<uint32_t> sorted = lengths_;
    const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    period_ = *middle;
    if (low_bytes_ != UINT64_MAX) {
      const bool still = completed_ > 1 && bytes_at_lowest_ != UINT64_MAX &&
                         bytes_at_lowest_ <= low_bytes_ + low_bytes_ / 64;
      if (!still) lowest_position_ = low_position_;
      lowest_bytes_ = still ? bytes_at_lowest_ : low_bytes_;
    }
  }
  started_ = at;
  whole_ = true;
  wrapped_ = false;
  in_iteration_ = hits_ = known_ = 0;
  low_bytes_ = bytes_at_lowest_ = UINT64_MAX;
  mark.started = true;
}

IterationDetector::Mark IterationDetector::follow(KernelId kernel, Instant at,
                                                  uint64_t memory_bytes) {
  Mark mark;
  if (lost_) {
    lost_for_ += 1;
    score(false);
    look_for_return(kernel, at);
    if (lost_ && lost_for_ > std::max<uint64_t>(kGoneAfterLeast, 2 * current().length())) {
      unlock();
    }
    if (!in_step()) return mark;
    mark.in_step = true;
    mark.position = last_position_;
    mark.started = whole_;
    return mark;
  }
  if (wrapped_) begin(at, mark);
  const IterationTemplate& plan = current();
  const uint32_t length = plan.length();
  uint32_t position = cursor_;
  int32_t away = 0;
  bool hit = plan.at(cursor_) == kernel;
  bool known = hit;
  if (!hit) {
    if (const auto near = plan.nearest(kernel, cursor_)) {
      known = true;
      away = plan.distance(*near, cursor_);
      hit = static_cast<uint32_t>(std::abs(away)) <= plan.slack() + 1;
      if (hit) position = *near;
    }
  }
  in_iteration_ += 1;
  hits_ += hit ? 1 : 0;
  known_ += known ? 1 : 0;
  if (known) score(hit);
  if (hit) {
    contradictions_ -= std::min(contradictions_, 1U);
    displaced_times_ = away == displaced_ ? displaced_times_ + 1 : 1;
    displaced_ = away;
    drift_x16_ += (away * 16 - drift_x16_) / 8;
  } else if (known) {
    contradictions_ += 2;
  }
  if (memory_bytes < low_bytes_) {
    low_bytes_ = memory_bytes;
    low_position_ = position;
  }
  if (position == lowest_position_) bytes_at_lowest_ = std::min(bytes_at_lowest_, memory_bytes);
  last_position_ = position;
  mark.in_step = true;
  mark.position = position;

  // The next position. If launches are left out or put in, the same displacement comes repeatedly.
  int32_t shift = 0;
  if (displaced_ != 0 && displaced_times_ >= 3) shift = displaced_;
  if (shift == 0 && std::abs(drift_x16_) >= 24 && plan.slack() > 1) {
    shift = static_cast<int32_t>(drift_x16_ / 16);
  }
  const uint32_t before = cursor_;
  cursor_ = plan.moved(cursor_, 1 + shift);
  if (shift != 0) {
    displaced_ = 0;
    displaced_times_ = 0;
    drift_x16_ = 0;
  }
  const int32_t reached = static_cast<int32_t>(before) + 1 + shift;
  if (reached >= static_cast<int32_t>(length)) wrapped_ = true;
  // Back over the beginning: the iteration before had not ended, and will end once more.
  if (reached < 0 && in_iteration_ * 2 < length) whole_ = false;

  const uint32_t most = 2 * std::clamp(length / 4, kLostAfterLeast, kLostAfterMost);
  if (contradictions_ < most && vain_ < kVainRounds) return mark;
  vain_ = 0;
  lost_ = true;
  lost_for_ = 0;
  if (resting_) {
    resting_ = false;
    analyse_at_ = launches_ + kUnitLook;
  }
  return_run_ = 0;
  whole_ = false;
  mark.in_step = false;
  return mark;
}

// ---- out of step ------------------------------------------------------------------------------

void IterationDetector::look_for_return(KernelId kernel, Instant at) {
  if (return_run_ > 0) {
    const IterationTemplate& plan = templates_[return_template_];
    bool fits = plan.at(return_cursor_) == kernel;
    if (!fits) {
      const auto near = plan.nearest(kernel, return_cursor_);
      // A kernel that the template does not know says nothing.
      fits = !near ||
             static_cast<uint32_t>(std::abs(plan.distance(*near, return_cursor_))) <= plan.slack();
      if (!near) return_run_ -= 1;
    }
    return_run_ = fits ? return_run_ + 1 : 0;
    return_cursor_ = plan.moved(return_cursor_, 1);
    return_for_ += 1;
  }
  if (return_run_ == 0) {
    for (size_t i = 0; i < templates_.size() && return_run_ == 0; ++i) {
      const IterationTemplate& plan = templates_[i];
      if (locked() && static_cast<int>(i) != current_ && lost_for_ < plan.length()) continue;
      std::optional<uint32_t> position = plan.only(kernel);
      if (!position && plan.at(0) == kernel) position = 0;
      if (!position) continue;
      return_template_ = i;
      return_cursor_ = plan.moved(*position, 1);
      return_run_ = 1;
      return_for_ = 1;
      return_at_ = *position == 0 ? at : kNever;
    }
  }
  if (return_run_ < kReturnRun) return;
  const Instant began = return_at_;
  const uint32_t launches = return_for_;
  const bool same = current_ == static_cast<int>(return_template_);
  if (!same && generation_template_ != static_cast<int>(return_template_)) {
    times_.clear();
    lengths_.clear();
    completed_ = 0;
    period_ = templates_[return_template_].length();
  }
  if (!locked()) {
    hit_share_x16_ = 1000 * 8;
  }
  use(return_template_, return_cursor_);
  last_position_ = current().moved(cursor_, -1);
  // If more launches were looked at than the template has, it has begun again meanwhile.
  if (began != kNever && launches < current().length()) {
    started_ = began;
    whole_ = true;
    in_iteration_ = hits_ = known_ = launches;
  }
}

}  // namespace lull::policies
