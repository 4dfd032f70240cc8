#include "policies/launch/own_timeline.h"

#include <algorithm>
#include <cstdlib>

namespace lull::policies {
namespace {

constexpr int64_t kWindow = 16;      // clean iterations that the means go back
constexpr int64_t kOddShare = 16;    // further off than one in so many: something has changed
constexpr uint32_t kOddEnough = 2;   // so often in a row: learn anew

void follow(int64_t& mean, int64_t sample, int64_t weight) { mean += (sample - mean) / weight; }

}  // namespace

void OwnTimeline::restart(uint32_t length) {
  *this = OwnTimeline();
  places_.resize(length);
  seen_.resize(length);
  work_after_.assign(length + 1, 0);
  next_wait_.assign(length + 1, length == 0 ? 0 : length - 1);
}

void OwnTimeline::begin(Instant at) {
  std::fill(seen_.begin(), seen_.end(), Seen{});
  started_ = at;
  next_ = 0;
  last_ = 0;
  any_ = false;
  end_ns_ = 0;
  host_late_ns_ = 0;
}

void OwnTimeline::launched(uint32_t position, Instant at, Duration predicted) {
  if (position >= seen_.size() || started_ == kNever) return;
  Seen& seen = seen_[position];
  seen.launch_ns = (at - started_).ns;
  seen.work_ns += predicted.ns;
  last_ = position;
  next_ = position + 1;
  any_ = true;
  if (known()) host_late_ns_ = std::max<int64_t>(0, seen.launch_ns - places_[position].launch_ns);
}

void OwnTimeline::synced(Instant at) {
  if (!any_) return;
  seen_[last_].sync_ns = (at - started_).ns;
  end_ns_ = std::max(end_ns_, seen_[last_].sync_ns);
}

void OwnTimeline::idle(Instant at) {
  if (any_) end_ns_ = std::max(end_ns_, (at - started_).ns);
}

Duration OwnTimeline::end(bool clean) {
  if (!any_ || started_ == kNever || next_ < places_.size() / 2) return {};
  const int64_t service = end_ns_;
  if (clean && service > 0) {
    const bool odd = clean_ > 0 && std::abs(service - service_ns_) > service_ns_ / kOddShare;
    odd_ = odd ? odd_ + 1 : 0;
    if (odd_ >= kOddEnough) {
      clean_ = 0;
      odd_ = 0;
    }
    clean_ += 1;
    const int64_t weight = static_cast<int64_t>(std::min<uint64_t>(clean_, kWindow));
    follow(service_ns_, service, weight);
    for (size_t p = 0; p < places_.size(); ++p) {
      Place& place = places_[p];
      const Seen& seen = seen_[p];
      if (seen.launch_ns < 0) continue;
      follow(place.launch_ns, seen.launch_ns, weight);
      follow(place.work_ns, seen.work_ns, weight);
      if (seen.sync_ns < 0) {
        if (weight == 1) place.sync_ns = -1;
      } else if (place.sync_ns < 0) {
        place.sync_ns = seen.sync_ns;
      } else {
        follow(place.sync_ns, seen.sync_ns, weight);
      }
    }
    derive();
  }
  return {service};
}

void OwnTimeline::derive() {
  const auto length = static_cast<uint32_t>(places_.size());
  // The iteration ends with a wait, by whatever means.
  if (places_.back().sync_ns < 0) places_.back().sync_ns = service_ns_;
  for (uint32_t p = length; p-- > 0;) {
    work_after_[p] = work_after_[p + 1] + places_[p].work_ns;
    next_wait_[p] = places_[p].sync_ns >= 0 ? p : next_wait_[p + 1];
  }
}

OwnTimeline::Stretch OwnTimeline::stretch(uint32_t position) const {
  if (position >= places_.size()) return {Duration{}, Duration{service_ns_}};
  const uint32_t wait = next_wait_[position];
  return {Duration{work_after_[position] - work_after_[wait + 1]}, Duration{places_[wait].sync_ns}};
}

}  // namespace lull::policies
