#include "policies/launch/task_guard.h"

#include <algorithm>

namespace lull::policies {
namespace {

constexpr uint64_t kCleanEvery = 64;
// Of what is allowed, so much is aimed at: what cannot be foreseen takes the rest.
constexpr int64_t kAimPerMille = 900;
constexpr int64_t kTailAimPerMille = 850;
// Iterations over the tail bound: one in a hundred is allowed.
constexpr int64_t kTailEarned_x1000 = 9;
constexpr int64_t kTailMost_x1000 = 2'000;
// The mean account holds at most so many iterations' worth, or what the longest unit costs.
constexpr int64_t kAccountIterations = 32;

}  // namespace

bool TaskGuard::between_iterations() const {
  return in_flight_.empty() && timeline_.next_position() >= timeline_.length();
}

void TaskGuard::submitted(const Submitted& launch, Instant now, bool lower_in_flight) {
  const IterationDetector::Mark mark = detector_.launch(launch.kernel, launch.at);
  if (detector_.locked() && (generation_ != detector_.generation() ||
                             timeline_.length() != detector_.template_length())) {
    generation_ = detector_.generation();
    timeline_.restart(detector_.template_length());
    began_ = false;
    clean_wanted_ = true;
  }
  if (mark.started) {
    if (began_) finish_iteration(now);
    timeline_.begin(launch.at);
    began_ = true;
    clean_ = !lower_in_flight;
  }
  if (in_flight_.empty()) moved_at_ = launch.at;
  in_flight_.push_back({mark.position, mark.in_step && began_, launch.predicted});
  if (mark.in_step && began_) timeline_.launched(mark.position, launch.at, launch.predicted);
}

void TaskGuard::completed(uint32_t units, Instant now, bool idle) {
  for (; units > 0 && !in_flight_.empty(); --units) in_flight_.pop_front();
  if (idle) in_flight_.clear();
  moved_at_ = now;
  if (idle && began_) timeline_.idle(now);
}

void TaskGuard::synced(Instant at) {
  if (began_) timeline_.synced(at);
}

void TaskGuard::finish_iteration(Instant) {
  const bool was_known = timeline_.known();
  const Duration own = timeline_.service();
  const Duration took = timeline_.end(clean_);
  if (took.ns == 0) return;
  iterations_ += 1;
  since_clean_ = clean_ ? 0 : since_clean_ + 1;
  if (was_known) {
    const int64_t delay = took.ns - own.ns;
    const int64_t earned = own.ns * limits_.mean_per_mille / 1000 * kAimPerMille / 1000;
    // What a clean iteration took too long is no debt of the others.
    account_ns_ += earned - (clean_ ? 0 : delay);
    const int64_t most = std::max(kAccountIterations * earned, longest_waiting_.ns * 5 / 4);
    account_ns_ = std::clamp(account_ns_, -64 * earned, most);
    tail_x1000_ += kTailEarned_x1000;
    if (!clean_ && delay > own.ns * limits_.tail_per_mille / 1000) tail_x1000_ -= 1000;
    tail_x1000_ = std::min(tail_x1000_, kTailMost_x1000);
    over_ = delay > earned ? over_ + 1 : 0;
  }
  tail_open_ = false;
  clean_wanted_ = !timeline_.known() || since_clean_ >= kCleanEvery || account_ns_ < 0;
}

int64_t TaskGuard::slack_ns(Instant now, bool lower_in_flight) const {
  if (between_iterations()) {
    // The next one may begin at any moment.
    const OwnTimeline::Stretch first = timeline_.stretch(0);
    return first.due.ns - first.work.ns;
  }
  const uint32_t position =
      in_flight_.empty() ? timeline_.next_position() : in_flight_.front().position;
  const OwnTimeline::Stretch rest = timeline_.stretch(position);
  int64_t work = rest.work.ns;
  if (!in_flight_.empty() && !lower_in_flight) {
    work -= std::min((now - moved_at_).ns, in_flight_.front().predicted.ns);
  }
  const int64_t due = (timeline_.started() - now).ns + rest.due.ns + timeline_.host_late().ns;
  return due - work;
}

int64_t TaskGuard::allowed_delay_ns() const {
  const int64_t own = timeline_.service().ns;
  const int64_t tail = own * limits_.tail_per_mille / 1000 * kTailAimPerMille / 1000;
  const int64_t late = timeline_.host_late().ns;  // spent already
  if (tail_open_) return std::max<int64_t>(0, account_ns_ - late);
  // Saving for a long unit: nothing is spent on others.
  if (longest_waiting_.ns > 0) return 0;
  return std::max<int64_t>(0, std::min(tail, account_ns_) - late);
}

Duration TaskGuard::room(Instant now, bool lower_in_flight) const {
  return {slack_ns(now, lower_in_flight) + allowed_delay_ns()};
}

Duration TaskGuard::best_slack() const {
  const OwnTimeline::Stretch first = timeline_.stretch(0);
  return {std::max<int64_t>(0, first.due.ns - first.work.ns)};
}

bool TaskGuard::affords(Duration length, Instant now) const {
  const int64_t own = timeline_.service().ns;
  const int64_t cost = std::max<int64_t>(0, length.ns - slack_ns(now, true)) +
                       timeline_.host_late().ns;
  if (cost > account_ns_) return false;
  const int64_t tail = own * limits_.tail_per_mille / 1000 * kTailAimPerMille / 1000;
  return cost <= tail || tail_open_ || tail_x1000_ >= 1000;
}

}  // namespace lull::policies
