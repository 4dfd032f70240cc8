#include "policies/launch/service_feedback.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lull::policies {
namespace {

constexpr double kForgetsSlowest = 1.0 / 64;  // of what it is beyond the mean, each undisturbed one
constexpr size_t kWindow = 64;            // undisturbed services that the mean goes back
constexpr double kRemembered = 1.0 - 1.0 / 256;
constexpr double kFinest = 1.0 / 2'000;   // of a service: no variation is taken for less
// Not what is known of services: so many sigmas off and so much of one, twice.
constexpr double kStrange = 4;
constexpr double kStrangeShare = 1.0 / 32;
constexpr uint32_t kSurelyStrange = 2;
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

double ServiceFeedback::sigma() const {
  return std::max(std::sqrt(variance_), mean_ * kFinest);
}

bool ServiceFeedback::strange(double off) const {
  return known() && std::abs(off) > kStrange * sigma() + mean_ * kStrangeShare;
}

void ServiceFeedback::recount(const ServicePattern& pattern) {
  if (pattern.round() != 0) {
    std::erase_if(alone_, [&](const Alone& a) { return a.service < pattern.since(); });
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
  for (const Alone& a : alone_) {
    Place& place = places[a.service % round];
    place.sum += level(a);
    place.count += 1;
  }
  double sum = 0, seen = 0, inverse = 0;
  for (const Place& place : places) {
    if (place.count > 0) sum += place.mean(), seen += 1, inverse += 1 / place.count;
  }
  counts_as_ = seen > 0 ? seen * seen / inverse : 0;
  mean_ = seen > 0 ? sum / seen : 0;
  const Place& next = places[pattern.next() % round];
  next_ = static_cast<double>(pattern.offset().ns) + (next.count > 0 ? next.mean() : mean_);
  // About the mean of its place, where there are several of each.
  const auto count = static_cast<double>(alone_.size());
  const bool several = count >= 2 * seen;
  double squares = 0;
  for (const Alone& a : alone_) {
    const double off = level(a) - (several ? places[a.service % round].mean() : mean_);
    squares += off * off;
  }
  variance_ = count > 1 ? squares / (count - (several ? seen : 1)) : 0;
}

void ServiceFeedback::undisturbed(Duration took, bool kept, const ServicePattern& pattern) {
  recount(pattern);
  const auto sample = static_cast<double>(took.ns);
  // Another phase of the program: what was known of the one before is of no use.
  strange_ = strange(sample - next_) ? strange_ + 1 : 0;
  if (strange_ >= kSurelyStrange) restart();
  slowest_ = std::max(sample, slowest_);
  if (!kept && known()) return;
  if (first_ > 0) {
    first_ -= 1;
    slowest_ = 0;
    return;
  }
  if (known()) slowest_ -= (slowest_ - std::max(sample, mean_)) * kForgetsSlowest;
  if (alone_.size() == kWindow) alone_.pop_front();
  alone_.push_back({pattern.next(), took.ns});
  recount(pattern);
}

Duration ServiceFeedback::cost(Duration took, Duration delay, const ServicePattern& pattern) {
  recount(pattern);
  const double scaled = static_cast<double>(delay.ns) * static_cast<double>(scale_x1024_) / 1024;
  if (!known()) return {static_cast<int64_t>(scaled)};
  const double spread = sigma();
  const double estimate = static_cast<double>(delay.ns);
  const double seen = static_cast<double>(took.ns) - next_;
  strange_ = strange(seen - scaled) ? strange_ + 1 : 0;
  if (delay.ns > 0) {
    disturbed_ = disturbed_ * kRemembered + 1;
    delays_ = delays_ * kRemembered + estimate;
    longer_ = longer_ * kRemembered + seen;
    const double error = spread * std::sqrt(disturbed_ * (1 + disturbed_ / counts_as_)) / delays_;
    const double precision = 1 / (error * error);
    const double ratio = (kPrior + precision * longer_ / delays_) / (kPrior + precision);
    const double doubt = 1 / std::sqrt(kPrior + precision);
    const double cautious = std::clamp(std::max(ratio, std::min(1.0, ratio + doubt)), kLeast, kMost);
    scale_x1024_ = static_cast<int64_t>(cautious * 1024);
  }

  const double uncertain = kRelativeError * scaled + kMissed * mean_;
  const double weight = uncertain * uncertain / (uncertain * uncertain + spread * spread);
  return {static_cast<int64_t>(std::max(scaled + weight * (seen - scaled), -spread))};
}

bool ServiceFeedback::varied() const {
  return alone_.size() >= kVaried || (known() && std::sqrt(variance_) < mean_ * kSame);
}

Duration ServiceFeedback::error() const {
  if (alone_.empty()) return {};
  return {static_cast<int64_t>(std::sqrt(variance_ / counts_as_))};
}

bool ServiceFeedback::draws_undisturbed(Duration precision) {
  if (!known() || strange_ >= kSurelyStrange) return true;
  if (!varied()) return (lot_ ^= 1) % 2 == 0;
  const bool precise = error() <= precision;
  lot_ = lot_ * 1'664'525 + 1'013'904'223;
  return (lot_ >> 16) % (precise ? kRarely : kOften) == 0;
}

}  // namespace lull::policies
