#include "policies/launch/guarded/model/service_pattern.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace lull::policies {
namespace {

constexpr int64_t kWindow = 32;     // services that the differences go back
constexpr int64_t kUsual = 8;       // rounds that the usual times go back
constexpr uint64_t kCompared = 24;  // services at a distance, before a round is believed in
// So many times more alike than at shorter distances: to be a round, and to stay one.
constexpr int64_t kAlike = 6;
constexpr int64_t kStillAlike = 3;
// Services that differ by a smaller part of one are all alike.
constexpr int64_t kSame = 256;

}  // namespace

// Whether services at this distance differ `times` less than those that are nearer.
bool ServicePattern::alike(size_t distance, int64_t times) const {
  int64_t nearer = 0;
  for (size_t d = 1; d < distance; ++d) nearer += differs_[d - 1];
  const auto others = static_cast<int64_t>(distance) - 1;
  const int64_t service = last_[count_ % kLongest];
  return nearer > others * service / kSame && differs_[distance - 1] * times * others <= nearer;
}

size_t ServicePattern::found(size_t known) const {
  if (known > 1 && known <= kLongest) return count_ - since_ + 1 >= known ? known : 0;
  if (round_ != 0 && alike(round_, kStillAlike)) return round_;
  for (size_t d = 2; d <= kLongest; ++d) {
    if (count_ - since_ >= d + kCompared && alike(d, kAlike)) return d;
  }
  return 0;
}

void ServicePattern::restart() {
  const uint64_t count = count_;
  *this = ServicePattern();
  count_ = since_ = count;
}

void ServicePattern::add(Duration by_itself, size_t known) {
  for (size_t d = 1; d <= std::min<uint64_t>(count_ - since_, kLongest); ++d) {
    const int64_t differs = std::abs(by_itself.ns - last_[(count_ - d) % kLongest]);
    const auto compared = static_cast<int64_t>(count_ - since_ - d + 1);
    differs_[d - 1] += (differs - differs_[d - 1]) / std::min(compared, kWindow);
  }
  last_[count_ % kLongest] = by_itself.ns;
  const size_t before = round_;
  round_ = found(known);
  if (round_ != 0 && round_ != before) {
    for (size_t d = 0; d < round_; ++d) {
      usual_[(count_ - d) % round_] = last_[(count_ - d) % kLongest];
    }
  } else if (round_ != 0) {
    int64_t& usual = usual_[count_ % round_];
    usual += (by_itself.ns - usual) / kUsual;
  }
  const auto end = usual_.begin() + static_cast<ptrdiff_t>(round_);
  mean_ns_ = longest_ns_ = 0;
  if (round_ != 0) {
    mean_ns_ = std::accumulate(usual_.begin(), end, int64_t{0}) / static_cast<int64_t>(round_);
    longest_ns_ = *std::max_element(usual_.begin(), end);
  }
  count_ += 1;
}

}  // namespace lull::policies
