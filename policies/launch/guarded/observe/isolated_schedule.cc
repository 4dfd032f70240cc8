#include "policies/launch/guarded/observe/isolated_schedule.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace lull::policies {
namespace {

// A host that returns later than this after the device was through was not waiting for the device.
constexpr Duration kHostCame{100'000};
// How long a run of own work must be to show how long that work really takes, and how long runs are remembered.
constexpr Duration kCalibrates{500'000};
constexpr Duration kRemembered{100'000'000};
constexpr int64_t kNoiseForgotten = 64;  // stretches
// However the device is shared, a client with work that can run gets a turn after this time, or after the unit that is
// running.
constexpr Duration kLongestTurn{2'500'000};
// After this many launches without a wait, an idle device is taken for a wait.
constexpr uint32_t kLaunchesAWait = 65'536;
// With this many launches in flight, a launch may have to wait for a place in the driver's queue.
constexpr size_t kDeepQueue = 256;
// Where the device is never through with all of several streams, the times of this many launches are told together.
constexpr size_t kToldAtMost = 1'024;

}  // namespace

void IsolatedSchedule::look_for_wait() {
  launches_ += 1;
  if (launches_ > kLaunchesAWait && idle() && began_ != kNever) {
    wait_ = {.at = moved_at_, .end = moved_at_, .own_end = own_free_};
  }
}

bool IsolatedSchedule::begins_stretch(Instant at, bool lower_in_flight) {
  if (began_ != kNever) return false;
  began_ = at;
  // Behind others' work it may wait for a change of hands that nobody knows of: a copy can hide one.
  if (idle()) clean_ = !lower_in_flight && !switch_.behind();
  return true;
}

void IsolatedSchedule::submitted(const Submitted& launch, bool in_step, bool lower_in_flight) {
  const IterationPlace& place = launch.place;
  Duration work = scaled(launch.expected), seen{-1};
  Stream& its = stream(launch.stream);
  // A full queue makes the host wait; with nobody else there, the host would have come earlier.
  if (in_step && in_flight_.size() >= kDeepQueue) {
    host_late_ =
        std::max(Duration{}, host_late_ + timeline_.longer_pause(place.position, launch.at));
  }
  const Instant free = std::max(own_free_, launch.at - host_late_);
  if (place.in_step) {
    timeline_.launched(place.position, launch.at, std::max(Duration{}, free - launch.at),
                       in_flight_.size());
    if (in_step) seen = timeline_.seen_work(place.position);
    if (seen.ns >= 0) {
      work = seen;
    } else {
      timeline_.worked(timeline_.index(place.position), launch.copy ? Duration{} : work,
                       /*seen=*/false);
    }
  }
  if (!launch.copy) knows_work_ = knows_work_ && seen.ns >= 0;
  if (launch.copy) {  // copies run beside kernels
    its.own_free = std::max(its.own_free, launch.at) + launch.expected;
  } else {
    own_free_ = free + work;
    its.own_free = std::max(free, its.own_free) + work;
    if (computing_ == 0) {
      moved_at_ = busy_since_ = launch.at;
      kernel_costs_.own_begins(launch.at);
      // The launch may wait for copies of its own client. Until they end, nothing shows how long it takes.
      const bool copies = !in_flight_.empty();
      Instant can_run = launch.at;
      for (const InFlight& copy : in_flight_) can_run = std::max(can_run, copy.own_end);
      switch_.own_begins(launch.at, can_run);
      // The device had caught up; the host may still be late.
      const int64_t late = host_late_.ns;
      blocked_ns_ = (switch_.behind() ? longest_switch().ns : 0) + std::min(blocked_ns_, late);
      blocked_before_ns_ = std::min(blocked_before_ns_, late);
      beside_ns_ = std::min(beside_ns_, late);
      lower_turn_ns_ = 0;
      run_ = lower_in_flight || switch_.behind() || copies ? Run{} : Run{launch.at, launch.at};
      several_streams_ = false;
    } else {
      several_streams_ = several_streams_ || launch.stream != computes_on_;
    }
    computes_on_ = launch.stream;
    computing_ += 1;
    if (computing_ == 1) count_beside(launch.at, lower_there_);
  }
  in_flight_.push_back({++launched_, launch.at, launch.stream, launch.copy,
                        timeline_.index(in_step ? place.position : kOutOfStep), launch.expected,
                        std::max(Duration{}, seen), its.own_free});
}

void IsolatedSchedule::completed(const Completed& completed, Instant now, bool lower_in_flight) {
  Stream& its = stream(completed.stream);
  // The host waits for this work and knows better. It says so when it returns.
  if (!completed.reported && timeline_.wait_is_next()) {
    its.unreported += completed.units;
    return;
  }
  done_.clear();
  take_done(completed.stream, completed.units + std::exchange(its.unreported, 0), now, completed.reported);
  progress(completed.reported, now, lower_in_flight);
}

void IsolatedSchedule::take_done(StreamSlot slot, uint32_t left, Instant now, bool reported) {
  Stream& its = stream(slot);
  its.end = now;
  bool first_went = false;
  for (auto launch = in_flight_.begin(); launch != in_flight_.end() && left > 0;) {
    if (launch->stream != slot) {
      ++launch;
      continue;
    }
    its.own_end = launch->own_end;
    if (!launch->copy) done_.push_back(*launch);
    if (launch == in_flight_.begin()) {
      first_went = true;
    } else if (reported) {
      overtook_.push_back(launch->index);
      overtook_work_ += timeline_.work_at(launch->index);
    }
    launch = in_flight_.erase(launch);
    left -= 1;
  }
  if (!first_went || overtook_.empty()) return;
  std::erase_if(overtook_, [&](IterationModel::LaunchIndex done) {
    return in_flight_.empty() || !done.follows(in_flight_.front().index);
  });
  overtook_work_ = {};
  for (const IterationModel::LaunchIndex done : overtook_) overtook_work_ += timeline_.work_at(done);
}

// The launches in done_ are through.
void IsolatedSchedule::progress(bool reported, Instant now, bool lower_in_flight) {
  if (done_.empty()) return;
  computing_ -= static_cast<uint32_t>(done_.size());
  count_beside(now, lower_there_);
  Duration seen, work;
  bool known = true;
  Instant last{0};
  for (const InFlight& launch : done_) {
    last = std::max(last, launch.at);
    seen += launch.seen;
    known = known && launch.seen.ns > 0;
    work += likely_work(launch);
  }
  kernel_costs_.own_done(seen, known, computing_ > 0, now);
  switch_.own_done(work, last, reported, now);
  lower_turn_ns_ = 0;
  // Work cannot have been delayed for longer than since its launch.
  blocked_ns_ = std::clamp<int64_t>((now - last + host_late_).ns, 0, blocked_ns_);
  moved_at_ = now;
  // With several streams, the time that one launch seems to take may be another's. So such times count only together:
  // when the device is through with all launches, or with many of them.
  const bool tells = !several_streams_ || computing_ == 0 || run_.seen.size() >= kToldAtMost;
  if (run_.from != kNever) see_work(reported, now);
  for (const InFlight& launch : done_)
    if (reported || !several_streams_) reached_ = std::max(reached_, launch.number);
  if (tells) {
    several_streams_ = false;
    for (const auto& [index, took] : run_.seen) timeline_.worked(index, took, /*seen=*/true);
    run_.seen.clear();
  }
  if (lower_in_flight) {
    run_ = {};
  } else if (!tells) {
    return;
  } else if (run_.from == kNever) {
    run_ = {now, now};
  } else if (run_.until - run_.from >= kCalibrates) {
    calibrate();
  }
}

void IsolatedSchedule::synced(const Synced& wait, bool lower_in_flight) {
  // All streams' launches share the time. Told one after the other, the first stream would get all of it.
  done_.clear();
  for (uint32_t slot = 0; slot < streams_.size(); ++slot) {
    if (streams_[slot].unreported > 0)
      take_done(StreamSlot{slot}, std::exchange(streams_[slot].unreported, 0), wait.at);
  }
  progress(/*reported=*/true, wait.at, lower_in_flight);
  const Stream& its = stream(wait.stream);
  if (wait_.at == kNever) wait_ = {.at = wait.at};
  wait_.at = std::max(wait_.at, wait.at);
  wait_.end = std::max(wait_.end, its.end);
  wait_.own_end = std::max(wait_.own_end, its.own_end);
  wait_.left = left_to_do(wait);
}

// Own work of streams that the host did not wait for.
Duration IsolatedSchedule::left_to_do(const Synced& wait) const {
  Duration left;
  for (const InFlight& launch : in_flight_) {
    if (launch.copy || launch.stream == wait.stream) continue;
    left += likely_work(launch);
  }
  // Less the part of the first launch that has run.
  return std::max(Duration{}, left - std::max(Duration{}, wait.at - moved_at_));
}

Duration IsolatedSchedule::delay(Instant at, Instant through, Instant own_end) const {
  if (blocked_ns_ == 0 || at - through > kHostCame) return {};
  // Others cost no more than the time that they were in the way. Where the wait's own end is well known, they cost no
  // more than the wait ended later than that: a later pause of the host may have made up for the rest.
  const Duration late = timeline_.lateness(at, Duration{blocked_ns_ / 4}) + host_late_;
  // Where each launch has been seen with nobody in its way, it is known how much longer they took: so all time beside
  // lower work counts as in the way.
  const int64_t in_the_way = knows_work_ ? std::max(blocked_ns_, beside_ns_) : blocked_ns_;
  const int64_t most = std::min(in_the_way, late.ns);
  return {most < 4 * noise_ns_ ? most : std::clamp<int64_t>((through - own_end).ns, 0, most)};
}

std::optional<IsolatedSchedule::Waited> IsolatedSchedule::settle(bool lower_in_flight) {
  const Wait wait = std::exchange(wait_, Wait{});
  if (wait.at == kNever || (began_ == kNever && blocked_ns_ == 0)) return {};
  launches_ = 0;
  const Instant at = wait.at;
  const Instant through = std::min(wait.end, at);
  const bool waited = at - through <= kHostCame;
  if (blocked_ns_ == 0) {
    const int64_t off = waited ? std::abs((through - wait.own_end).ns) : 0;
    noise_ns_ = std::max(off, noise_ns_ - noise_ns_ / kNoiseForgotten);
  }
  const int64_t delay = this->delay(at, through, wait.own_end).ns;
  // From here on the isolated schedule starts level with the real device.
  if (idle()) {
    shift(std::min(at, own_free_) - own_free_);
  } else if (waited) {
    shift(through - wait.own_end);
  }
  timeline_.waited(at, Duration{delay}, blocked_ns_ == 0 || delay == 0,
                   blocked_ns_ == 0 ? wait.left : Duration{-1});
  const Waited result{began_ == kNever ? waited_until_ : began_, at, Duration{delay}, clean_};
  waited_until_ = at;
  began_ = kNever;
  // Work that the host did not wait for may still be late.
  host_late_ = {};
  blocked_ns_ = idle() ? 0 : std::max<int64_t>(0, blocked_ns_ - delay);
  beside_ns_ = 0;
  knows_work_ = true;
  blocked_before_ns_ = blocked_ns_;
  clean_ = !lower_in_flight && blocked_ns_ == 0;
  return result;
}

void IsolatedSchedule::disturbed(bool copy, Instant at) {
  clean_ = false;
  if (!copy) switch_.others_came();
  if (!copy) count_beside(at, lower_there_ + 1);
  run_ = {};
}

void IsolatedSchedule::lower_ran(Instant from, Instant until) {
  if (computing_ == 0) return;
  // Own work that could run would have had its turn by now, so lower work is not what holds it up.
  if (lower_turn_ns_ >= kLongestTurn.ns) return;
  const int64_t ran = std::max<int64_t>(0, (until - std::max(from, busy_since_)).ns);
  lower_turn_ns_ += ran;
  blocked_ns_ += ran;
}

void IsolatedSchedule::lower_ended(uint32_t kernels, uint32_t left, Instant now) {
  count_beside(now, left);
  switch_.others_ended(kernels, left, now);
  // The device changes hands back to own work that waits.
  if (kernels > 0 && left == 0 && computing_ > 0) blocked_ns_ += longest_switch().ns;
}

// Adds the time until now in which own and lower work were on the device together.
void IsolatedSchedule::count_beside(Instant now, uint32_t lower_there) {
  if (beside_since_ != kNever) beside_ns_ += std::max<int64_t>(0, (now - beside_since_).ns);
  lower_there_ = lower_there;
  beside_since_ = computing_ > 0 && lower_there_ > 0 ? now : kNever;
}

void IsolatedSchedule::catch_up(uint32_t left, Instant moved_at) {
  disturbed(/*copy=*/true, Instant{0});
  lower_there_ = left;
  switch_.others_came(std::max(left, 1U));
  switch_.others_ended(1, left, moved_at);
  kernel_costs_.forget_running();
}

IsolatedSchedule::Stream& IsolatedSchedule::stream(StreamSlot slot) {
  if (streams_.size() <= slot.value) streams_.resize(slot.value + 1);
  return streams_[slot.value];
}

void IsolatedSchedule::shift(Duration by) {
  own_free_ = own_free_ + by;
  for (Stream& its : streams_) {
    its.own_end = its.own_end + by;
    its.own_free = its.own_free + by;
  }
  for (InFlight& launch : in_flight_) launch.own_end = launch.own_end + by;
}

// With nobody else there, the launches in done_ took the time since the last report. While several streams are at work,
// that time goes to the launches that were reported and came behind all that was through. The others get none.
void IsolatedSchedule::see_work(bool reported, Instant now) {
  const bool goes_on = computing_ > 0 && several_streams_;
  const auto is_ahead = [&](const InFlight& launch) {
    return launch.number > reached_ && (reported || !goes_on);
  };
  const bool all = !goes_on && std::ranges::none_of(done_, is_ahead);
  const auto counts = [&](const InFlight& launch) { return all || is_ahead(launch); };
  int64_t predicted = 0, units = 0;
  for (const InFlight& launch : done_) {
    run_.predicted += launch.predicted;
    if (!counts(launch)) continue;
    predicted += scaled(launch.predicted).ns;
    units += 1;
  }
  Duration took = now - run_.until;
  // Ends are seen late. Between two ends that evens out, but not for work that began with its launch.
  if (run_.until == busy_since_)
    took = std::max(took - KernelCosts::kSeenLate, std::min(took, Duration{predicted}));
  for (const InFlight& launch : done_) {
    Duration share;
    if (counts(launch))
      share = {predicted == 0 ? took.ns / units
                              : took.ns / 64 * scaled(launch.predicted).ns / predicted * 64};
    run_.seen.emplace_back(launch.index, share);
  }
  if (units > 0) run_.until = now;
}

// The device has done only own work for a while. Compares the real length of that work with the predicted one.
void IsolatedSchedule::calibrate() {
  real_ns_ += (run_.until - run_.from).ns;
  predicted_ns_ += run_.predicted.ns;
  run_ = {run_.until, run_.until};
  if (predicted_ns_ > 0) {
    scale_x1024_ = std::clamp<int64_t>(real_ns_ * 1024 / predicted_ns_, 128, 16'384);
  }
  // Old runs count less and less: half after the length of a request, or after kRemembered if that is longer.
  if (real_ns_ > 2 * std::max(service_.ns, kRemembered.ns)) {
    real_ns_ /= 2;
    predicted_ns_ /= 2;
  }
}

}  // namespace lull::policies
