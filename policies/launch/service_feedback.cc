#include "policies/launch/service_feedback.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace lull::policies {
namespace {

constexpr double kForgetsSlowest = 1.0 / 64;  // of what it is beyond the mean, each undisturbed one
constexpr size_t kWindow = 64;            // undisturbed services that the mean goes back
constexpr double kRemembered = 1.0 - 1.0 / 256;
constexpr double kFinest = 1.0 / 2'000;   // of a service: no variation is taken for less
// Not what is known of services: so many sigmas off and so much of one, twice.
constexpr double kStrange = 4;
constexpr double kStrangeShare = 1.0 / 32;
constexpr uint32_t kSurely = 2;
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

void ServiceFeedback::change(bool as_before) {
  strange_ = as_before_ = 0;
  Known other = as_before ? std::move(*before_) : Known{};
  // How slow they have been in between may come again.
  if (as_before) other.slowest = std::max(other.slowest, now_.slowest);
  if (as_before || known()) before_ = std::move(now_);
  now_ = std::move(other);
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
  const double usual = before_ ? before_->mean + static_cast<double>(pattern.offset().ns) : 0;
  const bool as_before = before_ && std::abs(sample - usual) <= before_->most_off();
  as_before_ = as_before ? as_before_ + 1 : 0;
  if (strange_ >= kSurely || as_before_ >= kSurely) change(as_before);
  now_.slowest = std::max(sample, now_.slowest);
  if (!kept && known()) return;
  if (now_.first > 0) {
    now_.first -= 1;
    now_.slowest = 0;
    return;
  }
  if (known()) now_.slowest -= (now_.slowest - std::max(sample, now_.mean)) * kForgetsSlowest;
  if (now_.alone.size() == kWindow) now_.alone.pop_front();
  now_.alone.push_back({pattern.next(), took.ns});
  recount(pattern);
}

Duration ServiceFeedback::cost(Duration took, Duration delay, const ServicePattern& pattern) {
  recount(pattern);
  const double scaled = static_cast<double>(delay.ns) * static_cast<double>(now_.scale_x1024) / 1024;
  if (!known()) return {static_cast<int64_t>(scaled)};
  const double spread = now_.sigma();
  const double estimate = static_cast<double>(delay.ns);
  double seen = static_cast<double>(took.ns) - now_.next;
  strange_ = strange(seen - scaled) ? strange_ + 1 : 0;
  // What is far from all that is known says little more than what is just as far as that may be.
  seen = std::clamp(seen, scaled - now_.most_off(), scaled + now_.most_off());
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
  return {static_cast<int64_t>(std::max(scaled + weight * (seen - scaled), -spread))};
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
