#include "policies/launch/guarded/model/iteration_model.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "policies/launch/guarded/most_off.h"

namespace lull::policies {
namespace {

constexpr Duration kAnyLength{INT64_MAX / 4};
// Waits an iteration, times 1024, by waits_per_1024 just behind a wait. has_waits() ends below the first value: the
// host waits in one of four iterations or fewer. It comes back at the second value: about one of two.
constexpr uint32_t kFewWaits = 376;
constexpr uint32_t kManyWaits = 448;
constexpr uint32_t kJudged = 8;  // iterations before the waits are judged
constexpr uint32_t kWindow = 16;      // iterations in a mean
// The deviation of up to four samples says nothing. Two samples are alike if they differ by at most a quarter of how
// far they are from the mean.
constexpr uint32_t kFew = 4;
constexpr int64_t kAlikePart = 4;
constexpr uint32_t kWorkWindow = 4;   // times in the mean of a launch's work
constexpr size_t kMostLaunches = 65'536;  // that are remembered of a stretch
// With this many launches in flight the host waits for a place in the driver's queue, until more have been seen. A
// stream of the simulated driver has 1,024 places, of which a launch takes two where its completion is reported. A
// real one held 1,021 launches, and 510 with a marker behind each (docs/hardware, 2026-11-26).
constexpr uint32_t kQueued = 500;

}  // namespace

void IterationModel::Estimate::add(int64_t sample_ns) {
  count = std::min(count + 1, kWindow);
  const int64_t off = sample_ns - mean_ns;
  mean_ns += off / count;
  if (count > 1) deviation_ns += (std::abs(off) - deviation_ns) / std::min<int64_t>(count, 8);
}

// A full queue may hold the host at first, say, and not later: then its first times say nothing of the others.
void IterationModel::Estimate::add_in_phase(int64_t sample_ns) {
  const std::optional<int64_t> odd = std::exchange(odd_ns, std::nullopt);
  const int64_t off = std::abs(sample_ns - mean_ns);
  if (count >= kEnough && off > most_off_ns(mean_ns, count > kFew ? deviation_ns : 0)) {
    if (!odd) {
      odd_ns = sample_ns;
      return;
    }
    if (std::abs(sample_ns - *odd) <= off / kAlikePart) *this = Estimate();
  }
  if (odd) add(*odd);
  add(sample_ns);
}

void IterationModel::restart(uint32_t length, bool begins_request) {
  *this = IterationModel();
  begins_request_ = begins_request;
  places_.resize(length);
  derive_places();
}

bool IterationModel::begin(bool surely) {
  begins_surely_ = surely;
  const uint32_t start = service_start_;
  begun_ = std::min(begun_ + 1, kJudged);
  if (in_iteration_ > length() / 2) {
    whole_ = std::min(whole_ + 1, kEnough);
    derive();
  }
  iteration_ += 1;
  in_iteration_ = 0;
  next_ = 0;
  return service_start_ != start;
}

void IterationModel::launched(uint32_t position, Instant at, Duration backlog, size_t ahead) {
  if (position >= length()) return;
  const int64_t pause = host_at_ == kNever || position != next_ ? -1 : (at - host_at_).ns;
  if (stretch_.size() < kMostLaunches)
    stretch_.push_back({index(position), at, pause, backlog.ns, static_cast<uint32_t>(ahead)});
  host_at_ = at;
  waiting_is_over_ = false;
  next_ = position + 1;
  in_iteration_ += 1;
  most_ahead_ = std::max(most_ahead_, static_cast<uint32_t>(ahead) + 1);
}

Duration IterationModel::sure_pause() const {
  if (places_.empty()) return {};
  return {place(next_index()).sure_pause_ns()};
}

Instant IterationModel::next_launch() const {
  if (host_at_ == kNever) return Instant{0};
  const Duration until_wait{wait_is_next() ? place(stretch_.back().index).until_end.low() : 0};
  return host_at_ + until_wait + sure_pause();
}

Duration IterationModel::random_pause() const {
  return {comes_at_random(next_position()) ? place(next_index()).pause.mean_ns : 0};
}

Duration IterationModel::longer_pause(uint32_t position, Instant now) const {
  if (position >= length() || position != next_ || host_at_ == kNever) return {};
  const Estimate& usual = place(index(position)).pause;
  return usual.count == 0 ? Duration{} : now - host_at_ - Duration{usual.mean_ns};
}

void IterationModel::worked(LaunchIndex index, Duration took, bool seen) {
  if (index.position >= length()) return;
  Place& place = places_[index.position];
  if (!seen) {
    if (place.work_seen == 0) place.work_ns = took.ns;
    return;
  }
  place.work_seen = std::min(place.work_seen + 1, kWorkWindow);
  place.work_ns += (took.ns - place.work_ns) / place.work_seen;
}

Duration IterationModel::lateness(Instant at, Duration precision) const {
  if (stretch_.empty()) return kAnyLength;
  const Estimate& usual = place(stretch_.back().index).until_end;
  if (usual.count < kEnough || kDeviations * usual.deviation_ns > precision.ns) return kAnyLength;
  return {std::max<int64_t>(0, (at - stretch_.back().at).ns - usual.low())};
}

void IterationModel::waited(Instant at, Duration delay, bool plain, Duration left) {
  host_at_ = at;
  waiting_is_over_ = true;
  if (stretch_.empty()) return;
  const Instant own_end = at + Duration{-delay.ns};
  for (const Launch& launch : stretch_) {
    const bool last = &launch == &stretch_.back();
    Place& place = places_[launch.index.position];
    if (plain && !place.plain) {
      place.pause = place.until_end = place.left = {};
      place.backlog_ns = 0;
      place.plain = true;
    }
    if (launch.pause_ns >= 0 && (plain || place.pause.count == 0)) {
      place.pause.add(launch.pause_ns);
      if (place.pause.low() <= 0)
        place.at_random = kAlike;
      else
        place.at_random -= std::min(place.at_random, 1U);
      // It moves by a quarter at most, so that it follows the more frequent pauses and not the longer ones.
      const int64_t most = place.usual_pause_ns / 4 + 1'000;
      const int64_t off = launch.pause_ns - place.usual_pause_ns;
      place.usual_pause_ns += place.pause.count == 1 ? off : std::clamp(off, -most, most);
    }
    if (plain || place.until_end.count == 0) place.until_end.add_in_phase((own_end - launch.at).ns);
    if (plain) place.ahead = launch.ahead;
    if (plain) place.backlog_ns += (launch.backlog_ns - place.backlog_ns) / place.until_end.count;
    if (last && plain && left.ns >= 0) place.left.add(left.ns);
    place.waits_per_1024 += (last ? 1024 - place.waits_per_1024 + 3 : 0) / 4;
    if (!last) place.waits_per_1024 -= place.waits_per_1024 / 4;
  }
  stretch_.clear();
}

void IterationModel::derive_places() {
  const uint32_t length = this->length();
  work_after_.resize(length + 1);
  next_wait_.resize(length + 1, length == 0 ? 0 : length - 1);
  host_held_.assign(length, 0);
  for (uint32_t p = length; p-- > 0;) {
    work_after_[p] = work_after_[p + 1] + places_[p].work_ns;
    next_wait_[p] = p + 1 == length || places_[p].waits_per_1024 > 512 ? p : next_wait_[p + 1];
  }
  // At times an eighth of the places is taken by markers and by events that measure (channel/progress.h).
  full_ = std::max(kQueued, most_ahead_ - most_ahead_ / 8);
  for (uint32_t p = length; p-- > 0;) {
    const Place& place = places_[p];
    if (next_wait_[p] != p) host_held_[p] = host_held_[p + 1];
    if (p < full_ || place.until_end.count == 0) continue;
    const int64_t room = work_after_[p - full_] - work_after_[p - std::min(place.ahead, full_)];
    host_held_[p] =
        std::max(host_held_[p], place.until_end.mean_ns - work_until_wait_ns(p) - room);
  }
  best_slack_ns_ = find_best_slack_ns();
}

void IterationModel::derive() {
  derive_places();
  // Another stretch must be longer by a quarter, so that the start does not change from time to time.
  int64_t longest = 0;
  uint32_t start = 0;
  // A request begins behind the host's longest pause, where a request is known to be able to begin.
  const auto pause = [](const Place& place) { return place.usual_pause_ns; };
  const bool longest_first =
      begins_surely_ ||
      (begins_request_ && std::ranges::max_element(places_, {}, pause) == places_.begin());
  for (uint32_t p = 0; p < length() && !longest_first; ++p) {
    if (!follows_wait(p)) continue;
    const uint32_t behind = next_wait_[p] + 1 == length() ? 0 : next_wait_[p] + 1;
    const int64_t lasts = places_[p].until_end.mean_ns * (behind == service_start_ ? 5 : 4);
    if (lasts > longest) {
      longest = lasts;
      start = behind;
    }
  }
  service_start_ = start;
  uint32_t waits = 0;
  for (const Place& place : places_) {
    waits += place.waits_per_1024;
  }
  if (begun_ >= kJudged) has_waits_ = waits >= (has_waits_ ? kFewWaits : kManyWaits);
}

int64_t IterationModel::find_best_slack_ns() const {
  int64_t best = 0;
  for (uint32_t p = 0; p < places_.size(); ++p) {
    const int64_t before = follows_wait(p) ? places_[p].sure_pause_ns() : 0;
    best = std::max(best, before + places_[p].until_end.low() - work_until_wait_ns(p));
  }
  return best;
}

// The own work that the device has to do between the launch at `position` and the end of the next wait.
int64_t IterationModel::work_until_wait_ns(uint32_t position) const {
  const uint32_t wait = next_wait_[position];
  return places_[position].backlog_ns + work_after_[position] - work_after_[wait + 1] -
         places_[wait].surely_left_ns();
}

bool IterationModel::follows_wait(uint32_t position) const {
  const uint32_t before = position == 0 ? length() - 1 : position - 1;
  return next_wait_[before] == before;
}

bool IterationModel::wait_is_next() const {
  if (waiting_is_over_) return false;
  return next_ >= length() || (next_ > 0 && next_wait_[next_ - 1] == next_ - 1);
}

Instant IterationModel::due(Instant now, bool idle) const {
  const Duration from_next{place(next_index()).until_end.low()};
  // The next stretch may begin as soon as its first launch may come.
  if (waiting_is_over_ || (idle && wait_is_next())) return std::max(now, next_launch()) + from_next;
  const Instant from_last = host_at_ + Duration{place(stretch_.back().index).until_end.low()};
  // Launches that have not come yet cannot come before now.
  return wait_is_next() ? from_last : std::max(from_last, now + from_next);
}

Duration IterationModel::seen_work(uint32_t position) const {
  if (position >= length() || place(index(position)).work_seen == 0) return {-1};
  return {place(index(position)).work_ns};
}

Duration IterationModel::work(LaunchIndex from, bool idle) const {
  if (from.position >= length()) return {};
  const bool waits = !idle && wait_is_next();
  const LaunchIndex next = waits ? index(next_) : next_index();
  const uint32_t end = waits ? std::min(next_, length()) : next_wait_[next.position] + 1;
  const int64_t after = work_after_[from.position];
  // Launches of the iteration before come first.
  const bool before = from.iteration != next.iteration;
  const int64_t all = after + (before ? work_after_[0] : 0) - work_after_[end];
  const int64_t until_wait = all - places_[end - 1].surely_left_ns();
  // The first launch that may find the queue full.
  const int64_t behind = int64_t{from.position} + full_ - (before ? length() : 0);
  const auto held = static_cast<uint32_t>(std::max<int64_t>(next.position, behind));
  return {std::max<int64_t>(0, until_wait) + (!waits && held < end ? host_held_[held] : 0)};
}

}  // namespace lull::policies
