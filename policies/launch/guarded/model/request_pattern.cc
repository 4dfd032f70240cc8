#include "policies/launch/guarded/model/request_pattern.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <ranges>
#include <utility>

namespace lull::policies {
namespace {

// How many of the longest pauses have to come at one place of a period: 16 where it has two places, 6 where it has five
// or more. By chance 16 come at one of two places once in 32,000 times, and 6 at one of five once in 3,000. They must
// also be one in eight of the pauses at that place; no more, as the host hardly pauses between requests that queue.
constexpr size_t kLongPausesOfTwo = 16, kLongPauses = 6;
constexpr size_t kLongOneIn = 8;
// The pause there must be longer by a third than the longest pause of the shortest repetition, and by a tenth than
// that of any shorter multiple found.
constexpr int64_t kLonger_x1000 = 1'333, kLongerStill_x1000 = 1'100;
// A pause is surely the longest if it is more than twice the second longest.
constexpr int64_t kSurely = 2;
// Steps come evenly where the longest pause between them is at most twice the shortest and a host's jitter, and the
// pause before the first step is more than eight times as long. Of two or three pauses one is always the odd one.
constexpr size_t kEvenSteps = 4;
constexpr int64_t kEven = 2, kEvenJitter = 5'000, kFarLonger = 8;
// After this many stretches, and a period, that are not as they should be, the period is forgotten.
constexpr size_t kLost = 16;

// The least prime factor. A multiple of a period has at least this many places that are alike.
size_t least_factor(size_t of) {
  for (size_t factor = 2; factor * factor <= of; ++factor) {
    if (of % factor == 0) return factor;
  }
  return of;
}

}  // namespace

IterationPlace RequestPattern::launch(KernelId kernel, Instant at, const IterationPlace& detected) {
  if (current_.empty()) pause_ = waited_at_ == kNever ? Duration{} : at - waited_at_;
  if (current_.size() < kMostLaunches) current_.push_back(kernel);
  if (!known()) {
    if (detected.length != 0 &&
        std::exchange(detected_, detected.generation) != detected.generation)
      generation_ += 1;
    IterationPlace place = detected;
    place.generation = generation_;
    return place;
  }
  IterationPlace place{.length = length_, .generation = generation_};
  const Kind& expected = kinds_[period_[next_]];
  in_step_ = in_step_ && cursor_ < expected.size() && expected[cursor_] == kernel;
  if (!in_step_) return place;
  place.in_step = true;
  place.position = start_[next_] + cursor_;
  place.started = place.position == 0;
  cursor_ += 1;
  return place;
}

void RequestPattern::forget() {
  kinds_.clear();
  launches_of_kinds_ = 0;
  history_.clear();
  period_.clear();
  begin_ = {};
  in_step_ = false;
  generation_ += 1;
}

std::optional<size_t> RequestPattern::kind_of_current() {
  const auto at = std::ranges::find(kinds_, current_);
  if (at != kinds_.end()) return static_cast<size_t>(at - kinds_.begin());
  if (current_.size() >= kMostLaunches) return {};
  if (kinds_.size() >= kMostKinds || launches_of_kinds_ + current_.size() > kMostLaunches) forget();
  launches_of_kinds_ += current_.size();
  kinds_.push_back(current_);
  return kinds_.size() - 1;
}

void RequestPattern::waited(Instant at) {
  waited_at_ = at;
  if (current_.empty()) return;
  const std::optional<size_t> kind = kind_of_current();
  current_.clear();
  if (!kind) return forget();
  if (history_.size() == kRemembered) history_.pop_front();
  history_.push_back({*kind, pause_});
  if (known()) follow();
  if (!in_step_) {
    if (const size_t distance = find_repetition(); distance > 0) use_last(distance);
  } else if (++followed_ >= look_at_ && next_ == 0) {
    look_at_ += std::min(look_at_, kRemembered);
    look_again();
  }
}

// Looks for a longer period. At first requests may come so fast that the pauses between them look like others.
void RequestPattern::look_again() {
  const size_t distance = find_multiple(period_.size());
  const Longest longest = longest_pause(distance);
  if (distance > period_.size() || (longest.before != 0 && longest.surely)) return use_last(distance);
  begin_ = longest.before == 0 ? longest : Longest{};
}

// A stretch has ended.
void RequestPattern::follow() {
  const bool whole = in_step_ && cursor_ == kinds_[period_[next_]].size();
  cursor_ = 0;
  next_ = (next_ + 1) % period_.size();
  in_step_ = whole || align();
  out_of_step_ = whole ? 0 : out_of_step_ + 1;
  if (out_of_step_ > kLost + period_.size()) forget();
}

// Finds the place in the period at which the last stretches match it. Returns whether there is one.
bool RequestPattern::align() {
  const size_t size = period_.size(), compared = std::min({size, history_.size(), size_t{4}});
  for (size_t last = 0; last < size; ++last) {
    const auto is = [&](size_t back) {
      return period_[(last + size - back) % size] == history_[history_.size() - 1 - back].kind;
    };
    size_t same = 0;
    while (same < compared && is(same)) ++same;
    if (same < compared) continue;
    next_ = (last + 1) % size;
    return true;
  }
  return false;
}

// The last `distance` stretches, two at least, were like those at this distance before them.
bool RequestPattern::repeats(size_t distance) const {
  const size_t compared = std::max<size_t>(distance, 2);
  if (history_.size() < distance + compared) return false;
  for (size_t n = history_.size() - compared; n < history_.size(); ++n) {
    if (history_[n].kind != history_[n - distance].kind) return false;
  }
  return true;
}

size_t RequestPattern::find_repetition() const {
  for (size_t distance = 1; distance <= kLongest; ++distance) {
    if (repeats(distance)) return distance;
  }
  return 0;
}

// Returns a multiple of the distance at which the longest pauses all come at one place; without one, the distance.
// Called seldom: it orders all pauses.
size_t RequestPattern::find_multiple(size_t distance) const {
  const size_t size = history_.size();
  const auto is_longer = [&](size_t back, size_t than) {
    const Duration pause = history_[size - back].pause, other = history_[size - than].pause;
    return pause != other ? pause > other : back < than;
  };
  std::vector<size_t> longest(size);  // how far back each pause is, the longest first
  std::iota(longest.begin(), longest.end(), size_t{1});
  const size_t most = std::min(size, std::max(kLongPausesOfTwo, size / 2 / kLongOneIn));
  std::ranges::partial_sort(longest, longest.begin() + static_cast<ptrdiff_t>(most), is_longer);
  size_t found = distance;
  const size_t repetition = find_repetition();
  const Duration shortest = longest_pause(repetition == 0 ? distance : repetition).mean;
  Duration pause = longest_pause(distance).mean;
  for (size_t multiple = 2 * distance; multiple <= kLongest; multiple += distance) {
    const size_t there = size / multiple;
    const size_t compared =
        std::max({kLongPauses, kLongPausesOfTwo * 2 / least_factor(multiple / std::gcd(multiple, found)),
                  there / kLongOneIn});
    if (compared > there / 2) continue;
    const bool one_place = std::ranges::all_of(
        longest | std::views::take(compared),
        [&](size_t back) { return back % multiple == longest.front() % multiple; });
    if (!one_place || !repeats(multiple)) continue;
    const Duration mean = longest_pause(multiple).mean;
    const bool longer = mean.ns / kLonger_x1000 * 1'000 > shortest.ns &&
                        mean.ns / kLongerStill_x1000 * 1'000 > pause.ns;
    if (longer) found = multiple, pause = mean;
  }
  return found;
}

// Which of `stretches` stretches has the longest pause before it, by the means of all pauses remembered.
RequestPattern::Longest RequestPattern::longest_pause(size_t stretches) const {
  Longest found;
  int64_t longest = -1, second = 0, shortest = INT64_MAX;
  for (size_t n = 0; n < stretches; ++n) {
    int64_t sum = 0, count = 0;
    for (size_t back = stretches - n; back <= history_.size(); back += stretches) {
      sum += history_[history_.size() - back].pause.ns;
      count += 1;
    }
    second = std::max(second, std::min(longest, sum / count));
    shortest = std::min(shortest, sum / count);
    if (sum / count > longest) longest = sum / count, found.before = n;
  }
  found.mean = Duration{longest};
  found.surely = stretches == 1 || (history_.size() >= kCompared && longest > kSurely * second);
  found.even = found.surely && stretches >= kEvenSteps && second <= kEven * shortest + kEvenJitter &&
               longest > kFarLonger * second;
  return found;
}

// Takes the last `stretches` stretches as the period. It begins behind the longest pause.
void RequestPattern::use_last(size_t stretches) {
  const Longest longest = longest_pause(stretches);
  const size_t before = longest.before;
  std::vector<size_t> kinds;
  std::vector<uint32_t> start;
  uint32_t length = 0;
  for (size_t n = 0; n < stretches; ++n) {
    const size_t kind = history_[history_.size() - stretches + (n + before) % stretches].kind;
    kinds.push_back(kind);
    start.push_back(length);
    length += static_cast<uint32_t>(kinds_[kind].size());
  }
  if (length > kMostLaunches) return;
  begin_ = longest;
  period_ = std::move(kinds);
  start_ = std::move(start);
  length_ = length;
  next_ = (stretches - before) % stretches;
  cursor_ = 0;
  in_step_ = true;
  out_of_step_ = followed_ = 0;
  look_at_ = kCompared;
  generation_ += 1;
}

}  // namespace lull::policies
