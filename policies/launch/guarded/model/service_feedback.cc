#include "policies/launch/guarded/model/service_feedback.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace lull::policies {
namespace {

constexpr size_t kWindow = 64;            // undisturbed services that the mean goes back
constexpr double kRemembered = 1.0 - 1.0 / 256;
constexpr double kFinest = 1.0 / 2'000;   // of a service: no variation is taken for less
// Not what is known of services: so many sigmas off and so much of one, twice.
constexpr double kStrange = 4;
constexpr double kStrangeShare = 1.0 / 32;
constexpr uint32_t kSurely = 2;
constexpr size_t kKinds = 3;  // of services, beside those at hand
// Undisturbed services whose slow ones count, and so many that the slowest is an exception.
constexpr size_t kLately = 192;
constexpr size_t kHundred = 100;
constexpr uint64_t kLongAgo = 4'096;  // services
// Services that differ by less all take the same.
constexpr double kSame = 1.0 / 256;
// One in so many is kept undisturbed.
constexpr uint32_t kOften = 8;
constexpr uint32_t kRarely = 128;
// Before anything is known the scale is 1 give or take a half: the inverse of its variance.
constexpr double kPrior = 4;
constexpr double kLeast = 1.0 / 16;
constexpr double kMost = 4;
// What is uncertain about a service's delay: so much of it, and of the service what no wait shows.
constexpr double kRelativeError = 0.5;
constexpr double kMissed = 1.0 / 64;

}  // namespace

double ServiceFeedback::Known::sigma() const {
  return std::max(std::sqrt(variance), mean * kFinest);
}

double ServiceFeedback::Known::most_off() const {
  return kStrange * sigma() + mean * kStrangeShare;
}

std::vector<ServiceFeedback::Known>::iterator ServiceFeedback::as_before(double by_itself) {
  const auto off = [&](const Known& kind) { return std::abs(by_itself - kind.mean); };
  const auto nearest = std::ranges::min_element(before_, {}, off);
  const bool fits = nearest != before_.end() && off(*nearest) <= nearest->most_off() &&
                    off(*nearest) < off(now_);
  return fits ? nearest : before_.end();
}

void ServiceFeedback::change(std::vector<Known>::iterator before) {
  strange_ = as_before_ = 0;
  Known next;
  if (before != before_.end()) {
    next = std::move(*before);
    before_.erase(before);
  }
  // The first strange ones are none of the kind that is put aside.
  for (; strange_kept_ > 0 && !now_.alone.empty(); --strange_kept_) now_.alone.pop_back();
  strange_kept_ = 0;
  if (known()) before_.push_back(std::move(now_));
  if (before_.size() > kKinds) before_.erase(std::ranges::min_element(before_, {}, &Known::services));
  now_ = std::move(next);
}

void ServiceFeedback::slow(int64_t took_ns) {
  if (lately_.size() == kLately) lately_.pop_front();
  lately_.push_back({services_, took_ns});
  while (lately_.front().service + kLongAgo < services_) lately_.pop_front();
  std::array<int64_t, 2> most{};
  for (const Alone& one : lately_) {
    if (one.took_ns > most[0]) most = {one.took_ns, most[0]};
    else most[1] = std::max(most[1], one.took_ns);
  }
  slow_ = most[lately_.size() >= kHundred ? 1 : 0];
}

bool ServiceFeedback::surely_as(std::vector<Known>::iterator nearest) {
  const auto before = std::exchange(kind_, static_cast<size_t>(nearest - before_.begin()));
  as_before_ = nearest == before_.end() ? 0 : kind_ == before ? as_before_ + 1 : 1;
  return as_before_ >= kSurely;
}

void ServiceFeedback::recount(const ServicePattern& pattern) {
  if (pattern.round() != 0) {
    std::erase_if(now_.alone, [&](const Alone& a) { return a.service < pattern.since(); });
  }
  // Each place of the round counts the same, however many of it were kept.
  struct Place {
    double sum = 0, count = 0;
    double mean() const { return sum / count; }
  };
  std::array<Place, ServicePattern::kLongest> places{};
  const size_t round = std::max<size_t>(1, pattern.round());
  const auto level = [&](const Alone& a) {
    return static_cast<double>(a.took_ns - pattern.offset_of(a.service).ns);
  };
  for (const Alone& a : now_.alone) {
    Place& place = places[a.service % round];
    place.sum += level(a);
    place.count += 1;
  }
  double sum = 0, seen = 0, inverse = 0;
  for (const Place& place : places) {
    if (place.count > 0) sum += place.mean(), seen += 1, inverse += 1 / place.count;
  }
  now_.counts_as = seen > 0 ? seen * seen / inverse : 0;
  now_.mean = seen > 0 ? sum / seen : 0;
  const Place& next = places[pattern.next() % round];
  now_.next = static_cast<double>(pattern.offset().ns) + (next.count > 0 ? next.mean() : now_.mean);
  // About the mean of its place, where there are several of each.
  const auto count = static_cast<double>(now_.alone.size());
  const bool several = count >= 2 * seen;
  double squares = 0;
  for (const Alone& a : now_.alone) {
    const double off = level(a) - (several ? places[a.service % round].mean() : now_.mean);
    squares += off * off;
  }
  now_.variance = count > 1 ? squares / (count - (several ? seen : 1)) : 0;
}

void ServiceFeedback::undisturbed(Duration took, bool kept, const ServicePattern& pattern) {
  recount(pattern);
  const auto sample = static_cast<double>(took.ns);
  strange_ = strange(sample - now_.next) ? strange_ + 1 : 0;
  const auto before = as_before(sample - static_cast<double>(pattern.offset().ns));
  const bool surely = surely_as(before);
  if (strange_ >= kSurely || surely) change(before);
  services_ += 1;
  now_.services += 1;
  slow(took.ns);
  if (!kept && known()) return;
  if (now_.first > 0) {
    now_.first -= 1;
    // A phase of shorter ones than ever; where they are longer the host may be slow for a while only.
    const auto longer = [&](const Known& kind) { return kind.mean > sample; };
    if (std::ranges::all_of(before_, longer)) lately_.clear();
    return;
  }
  if (now_.alone.size() == kWindow) now_.alone.pop_front();
  now_.alone.push_back({pattern.next(), took.ns});
  strange_kept_ = strange_ > 0 ? strange_kept_ + 1 : 0;
  recount(pattern);
}

ServiceFeedback::Cost ServiceFeedback::cost(Duration took, Duration delay, const ServicePattern& pattern) {
  services_ += 1;
  recount(pattern);
  const auto estimate = static_cast<double>(delay.ns);
  const auto scale = [&] { return estimate * static_cast<double>(now_.scale_x1024) / 1024; };
  double scaled = scale();
  if (!known()) return {{static_cast<int64_t>(scaled)}, {static_cast<int64_t>(scaled)}};
  // Others make no service shorter: one that is as they were before is.
  const auto like = as_before(static_cast<double>(took.ns - pattern.offset().ns) - scaled);
  const auto before = like != before_.end() && like->mean < now_.mean ? like : before_.end();
  if (surely_as(before)) {
    change(before);
    recount(pattern);
    scaled = scale();
  }
  const double spread = now_.sigma();
  double seen = static_cast<double>(took.ns) - now_.next;
  strange_ = strange(seen - scaled) ? strange_ + 1 : 0;
  // Where undisturbed ones take as much longer at times, and not by turns, most of what the waits do
  // not show is not others' doing either.
  if (this->spread().ns - pattern.longest_offset().ns > now_.most_off()) {
    const double most = scaled + now_.most_off();
    seen = std::clamp(seen, scaled - most, scaled + most);
  }
  if (delay.ns > 0) {
    now_.disturbed = now_.disturbed * kRemembered + 1;
    now_.delays = now_.delays * kRemembered + estimate;
    now_.longer = now_.longer * kRemembered + seen;
    const double error = spread * std::sqrt(now_.disturbed * (1 + now_.disturbed / now_.counts_as)) / now_.delays;
    const double precision = 1 / (error * error);
    const double ratio = (kPrior + precision * now_.longer / now_.delays) / (kPrior + precision);
    const double doubt = 1 / std::sqrt(kPrior + precision);
    const double cautious = std::clamp(std::max(ratio, std::min(1.0, ratio + doubt)), kLeast, kMost);
    now_.scale_x1024 = static_cast<int64_t>(cautious * 1024);
  }

  const double uncertain = kRelativeError * scaled + kMissed * now_.mean;
  const double weight = uncertain * uncertain / (uncertain * uncertain + spread * spread);
  return {{static_cast<int64_t>(std::max(scaled + weight * (seen - scaled), -spread))},
          {static_cast<int64_t>(seen)}};
}

bool ServiceFeedback::varied() const {
  return now_.alone.size() >= kVaried || (known() && std::sqrt(now_.variance) < now_.mean * kSame);
}

Duration ServiceFeedback::error() const {
  if (now_.alone.empty()) return {};
  return {static_cast<int64_t>(std::sqrt(now_.variance / now_.counts_as))};
}

bool ServiceFeedback::draws_undisturbed(Duration precision) {
  if (!known() || strange_ >= kSurely) return true;
  if (!varied()) return (lot_ ^= 1) % 2 == 0;
  const bool precise = error() <= precision;
  lot_ = lot_ * 1'664'525 + 1'013'904'223;
  return (lot_ >> 16) % (precise ? kRarely : kOften) == 0;
}

}  // namespace lull::policies
