#include "policies/launch/guarded/observe/request_times.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "policies/launch/guarded/most_off.h"
#include "policies/launch/guarded/second_largest.h"
#include "policies/launch/guarded/tuning.h"

namespace lull::policies {
namespace {

constexpr size_t kKept = 64;     // requests in the mean
constexpr size_t kLately = 192;  // the second slowest of them is about p99; the second slowest of fewer is less
// At the beginning it is not known well what belongs to a request. So up to four requests do not count, until one takes
// as long as the one before.
constexpr uint32_t kFirst = 4;
constexpr uint32_t kSurely = 2;  // strange requests in a row that begin a new phase
// When three kept requests in a row took less than any before, by a 32nd, those before were not undisturbed. Work that
// nobody reports may have delayed all of those alike: then nothing else shows it.
constexpr uint32_t kShorter = 3;
constexpr int64_t kFinestPart = 2'000;  // the deviation is at least this part of a request
constexpr int64_t kSamePart = 256;      // requests that vary by less than this part all take the same

int64_t root(int64_t of) {  // rounded down
  int64_t r = 0;
  while ((r + 1) * (r + 1) <= of) ++r;
  return r;
}

}  // namespace

void RequestTimes::restart() {
  const uint32_t lot = lot_;
  *this = RequestTimes();
  lot_ = lot;
}

void RequestTimes::forget_slow() {
  if (kept_.empty()) return restart();
  const int64_t least = *std::ranges::min_element(kept_);
  const size_t slow = std::erase_if(kept_, [&](int64_t took) { return took > least + least / kMostOffPart; });
  if (slow > kept_.size()) return restart();
  lately_.clear();
  slow_ = odd_ = {};
  strange_ = 0;
  learn();
}

void RequestTimes::learn() {
  const auto count = static_cast<int64_t>(kept_.size());
  int64_t sum = 0, off = 0;
  for (const int64_t took : kept_) sum += took;
  usual_ = {sum / count};
  for (const int64_t took : kept_) off += std::abs(took - usual_.ns);
  deviation_ = {std::max(off / count, usual_.ns / kFinestPart)};
}

Duration RequestTimes::most_off() const {
  return {most_off_ns(usual_.ns, deviation_.ns)};
}

bool RequestTimes::strange(Duration off) {
  strange_ = known() && std::abs(off.ns) > most_off().ns ? strange_ + 1 : 0;
  return strange_ >= kSurely;
}

void RequestTimes::undisturbed(Duration took, bool kept, bool surely) {
  // Others make no request shorter: so the doubtful requests before it were not undisturbed.
  const bool were_not = !known() && doubtful_ && took < usual_ - most_off();
  if (kept && known()) {
    if (shorter_ == 0) shortest_ = {*std::ranges::min_element(kept_)};
    shorter_ = took.ns + took.ns / kMostOffPart < shortest_.ns ? shorter_ + 1 : 0;
  }
  if (were_not || shorter_ >= kShorter || strange(took - usual_)) restart();
  doubtful_ = doubtful_ || !surely;
  if (strange_ > 0) {  // slow by itself, or the first of a new phase: the next request tells
    odd_ = took;
    return;
  }
  for (const Duration one : {std::exchange(odd_, Duration{}), took}) {
    if (one.ns == 0) continue;
    if (lately_.size() == kLately) lately_.pop_front();
    lately_.push_back(one.ns);
  }
  slow_ = {second_largest(lately_)};
  if (!kept && known()) return;
  const int64_t off = std::abs((took - std::exchange(last_, took)).ns);
  if (first_ < kFirst && off * kSamePart >= took.ns) {
    first_ += 1;
    lately_.clear();
    return;
  }
  first_ = kFirst;
  if (kept_.size() == kKept) kept_.pop_front();
  kept_.push_back(took.ns);
  learn();
}

Duration RequestTimes::cost(Duration took, Duration waits) {
  if (!known()) return waits;
  const Duration seen = took - usual_;
  // Others make no request shorter.
  if (seen.ns < 0 && strange(seen)) {
    restart();
    return waits;
  }
  if (seen.ns >= 0) strange_ = 0;
  // Where some undisturbed requests take much longer than the mean, others did not cause what the waits do not show.
  if (spread() > most_off()) {
    const Duration most = waits + most_off();
    return std::clamp(seen, Duration{} - most_off(), most);
  }
  return seen;
}

bool RequestTimes::well_known() const {
  return kept_.size() >= tuning::kWellKnown || (known() && deviation_.ns < usual_.ns / kSamePart);
}

Duration RequestTimes::error() const {
  // A sigma is 1.25 mean deviations.
  const auto count = static_cast<int64_t>(kept_.size());
  return count == 0 ? Duration{} : Duration{deviation_.ns * 5 * 16 / (4 * root(count * 256))};
}

bool RequestTimes::draw(Duration precision, bool whole) {
  if (whole && (!known() || strange_ > 0)) return true;
  lot_ = lot_ * 1'664'525 + 1'013'904'223;
  const uint32_t one_in = !whole || (well_known() && error() <= precision) ? tuning::kKeptSeldom
                          : well_known()                                   ? tuning::kKeptOften
                                                                           : tuning::kKeptFirst;
  return (lot_ >> 16) % one_in == 0;
}

}  // namespace lull::policies
