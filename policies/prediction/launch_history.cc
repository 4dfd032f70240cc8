#include "policies/prediction/launch_history.h"

#include <algorithm>
#include <bit>

namespace lull::policies {
namespace {

constexpr uint32_t kAgreement = 600;  // per mille, beyond chance
constexpr uint32_t kExact = 950;      // agreement, without slack, at which nothing strays
constexpr uint32_t kSupport = 150;    // per mille of the launches
constexpr uint32_t kBits = 32;        // of evidence
constexpr uint32_t kHops = 16;        // occurrences of a kernel looked at one by one
constexpr uint32_t kCandidates = 24;
constexpr uint32_t kBurstApart = 128;  // launches between two bursts of a kernel, at least
constexpr uint32_t kPart = 8;          // the latest eighth of the history is looked at by itself
constexpr uint32_t kPartFrom = 1024;   // if the history has this many launches
constexpr uint32_t kSample = 192;      // launches of a candidate looked at first
constexpr uint32_t kSlackFrom = 16;    // shorter periods must be exact
constexpr uint32_t kPeriods = 3;       // repeats that establish a period
constexpr uint32_t kFewLaunches = 48;  // shorter windows take in more periods, if there are more
constexpr uint32_t kUnitRepeats = 5;
constexpr uint32_t kLikelyPeriods =
    4;  // ... where chance is likelier: a short period, or a settled inner loop
constexpr uint32_t kSurePeriods = 5;  // ... where it is likeliest: few inner repeats
constexpr uint32_t kUnitPauseNs = 50'000;
constexpr uint32_t kKnownFor = 1024;  // a kernel not seen for this many launches is not known
constexpr uint32_t kUnitRun = 64;

uint64_t spread(uint64_t x) {
  x = (x ^ (x >> 32)) * 0x9e3779b97f4a7c15ULL;
  return x ^ (x >> 29);
}

bool alike(uint32_t a, uint32_t b) {  // pauses of one kind: within a factor of two
  return std::max(a, b) / 2 <= std::min(a, b);
}

// 16 * log2(numerator / denominator), rounded down to a whole sixteenth; numerator the greater.
int64_t bits_x16(uint64_t numerator, uint64_t denominator) {
  const uint64_t ratio_x16 = numerator * 16 / denominator;
  const int64_t octave = std::bit_width(ratio_x16) - 1;
  // Linear between powers of two: at most 0.09 bits too little.
  return octave * 16 + static_cast<int64_t>((ratio_x16 - (uint64_t{1} << octave)) * 16 >> octave) -
         64;
}

}  // namespace

int32_t& LaunchHistory::Table::operator[](uint64_t key) {
  if ((used + 1) * 2 > rows.size()) {
    std::vector<Row> old(std::max<size_t>(64, rows.size() * 2));
    old.swap(rows);
    for (const Row& row : old) {
      if (row.value == kFree) continue;
      size_t at = spread(row.key) & (rows.size() - 1);
      while (rows[at].value != kFree) at = (at + 1) & (rows.size() - 1);
      rows[at] = row;
    }
  }
  size_t at = spread(key) & (rows.size() - 1);
  while (rows[at].value != kFree) {
    if (rows[at].key == key) return rows[at].value;
    at = (at + 1) & (rows.size() - 1);
  }
  used += 1;
  rows[at] = {key, kNone};
  return rows[at].value;
}

void LaunchHistory::Table::clear() {
  std::fill(rows.begin(), rows.end(), Row{});
  used = 0;
}

void LaunchHistory::clear() {
  ids_.clear();
  contexts_.clear();
  kernels_.clear();
  last_.clear();
  symbols_.clear();
  previous_.clear();
  previous_context_.clear();
  gaps_ns_.clear();
  waited_.clear();
}

void LaunchHistory::push(KernelId kernel, Instant at, bool waited) {
  const int64_t gap = last_at_.ns == INT64_MIN ? 0 : at.ns - last_at_.ns;
  last_at_ = at;
  if (symbols_.size() >= kMost) drop_half();
  append(kernel, static_cast<uint32_t>(std::clamp<int64_t>(gap, 0, UINT32_MAX)), waited);
}

void LaunchHistory::append(KernelId kernel, uint32_t gap_ns, bool waited) {
  const auto index = static_cast<int32_t>(symbols_.size());
  int32_t& id = ids_[kernel.value];
  if (id == kNone) {
    id = static_cast<int32_t>(kernels_.size());
    kernels_.push_back(kernel);
    last_.push_back(kNone);
  }
  const auto symbol = static_cast<uint32_t>(id);
  previous_.push_back(last_[symbol]);
  last_[symbol] = index;
  symbols_.push_back(symbol);
  gaps_ns_.push_back(gap_ns);
  waited_.push_back(waited);
  if (index < 2) {
    previous_context_.push_back(kNone);
    return;
  }
  const uint64_t context = spread(spread(symbols_[static_cast<size_t>(index) - 2] + 1) * 31 +
                                  symbols_[static_cast<size_t>(index) - 1]) *
                               31 +
                           symbol;
  int32_t& before = contexts_[context];
  previous_context_.push_back(before);
  before = index;
}

void LaunchHistory::drop_half() {
  std::vector<KernelId> kernels;
  for (uint32_t i = size() / 2; i < size(); ++i) kernels.push_back(kernel(i));
  const auto kept = static_cast<ptrdiff_t>(kernels.size());
  const std::vector<uint32_t> gaps(gaps_ns_.end() - kept, gaps_ns_.end());
  const std::vector<bool> waited(waited_.end() - kept, waited_.end());
  clear();
  for (size_t i = 0; i < kernels.size(); ++i) append(kernels[i], gaps[i], waited[i]);
}

Instant LaunchHistory::at(uint32_t index) const {
  int64_t ns = last_at_.ns;
  for (uint32_t i = size() - 1; i > index; --i) ns -= gaps_ns_[i];
  return Instant{ns};
}

// ---- scoring ----------------------------------------------------------------------------------

bool LaunchHistory::Score::established() const {
  return agreement >= kAgreement && support >= kSupport && bits >= kBits;
}

int32_t LaunchHistory::back(uint32_t index, uint32_t period, uint32_t slack, bool by_context,
                            uint32_t& often) const {
  const auto& links = by_context ? previous_context_ : previous_;
  const auto nearest = static_cast<int32_t>(index - period + slack);
  const auto farthest = static_cast<int32_t>(index) - static_cast<int32_t>(period + slack);
  often = 1;
  int32_t j = links[index];
  if (slack == 0) {
    const auto there = index - period;
    for (uint32_t hop = 0; j > nearest && hop < kHops; ++hop) {
      ++often;
      j = links[static_cast<size_t>(j)];
    }
    if (j > nearest) often = kHops * period / (index - static_cast<uint32_t>(j));
    return symbols_[there] == symbols_[index] ? nearest : kNone;
  }
  for (uint32_t hop = 0; j > nearest; ++hop) {
    if (hop >= kHops) {
      often = period;  // the kernel is so frequent that finding it says nothing
      return kNone;
    }
    ++often;
    j = links[static_cast<size_t>(j)];
  }
  if (j < farthest || j < 0) return kNone;
  // Of several within the slack it takes the one nearest to its place.
  for (int32_t next = links[static_cast<size_t>(j)];
       next >= farthest && next >= 0 &&
       std::abs(next + static_cast<int32_t>(period) - static_cast<int32_t>(index)) <
           std::abs(j + static_cast<int32_t>(period) - static_cast<int32_t>(index));
       next = links[static_cast<size_t>(next)]) {
    j = next;
  }
  return j;
}

LaunchHistory::Score LaunchHistory::score(uint32_t period, uint32_t periods, uint32_t slack,
                                          bool by_context, uint32_t stride) const {
  Score result;
  result.slack = slack;
  result.by_context = by_context;
  const uint32_t n = size();
  const uint32_t span = (periods - 1) * period;
  if (uint64_t{periods} * period + slack > n) return result;
  const auto& links = by_context ? previous_context_ : previous_;
  const uint32_t width = 2 * slack + 1;
  const uint32_t known_for = std::max(4 * period, kKnownFor);
  uint64_t hits = 0;
  uint64_t informative = 0;
  uint64_t chance_x1024 = 0;
  std::vector<uint32_t> lags;
  int64_t bits = 0;
  int64_t time_bits = 0;
  for (uint32_t i = n - span; i < n; i += stride) {
    if (links[i] < 0 || links[i] + static_cast<int64_t>(known_for) < i) continue;
    uint32_t often = 0;
    const int32_t j = back(i, period, slack, by_context, often);
    const uint64_t chance = uint64_t{width} * often * 1024 / period;
    if (slack > 0 ? chance > 512 : chance >= 1024) continue;
    informative += 1;
    chance_x1024 += chance;
    if (j == kNone) {
      bits -= 32;
      continue;
    }
    hits += 1;
    if (slack > 0) lags.push_back(i - static_cast<uint32_t>(j));
    bits += bits_x16(period, uint64_t{width} * often);
    if (slack == 0) {
      // Only a pause unlike the one before it tells something.
      const uint32_t gap = gaps_ns_[i];
      if (!alike(gap, gaps_ns_[i - 1])) {
        time_bits += alike(gap, gaps_ns_[static_cast<size_t>(j)]) ? 24 : -32;
      }
    }
  }
  const uint64_t all = informative * 1024;
  if (hits * 1024 <= chance_x1024 || all <= chance_x1024) return result;
  result.agreement =
      static_cast<uint32_t>((hits * 1024 - chance_x1024) * 1000 / (all - chance_x1024));
  result.support = static_cast<uint32_t>(hits * 1000 * stride / span);
  result.bits =
      static_cast<uint32_t>(std::max<int64_t>(0, bits + std::max<int64_t>(0, time_bits)) / 16);
  result.period = period;
  if (!lags.empty()) {
    const auto middle = lags.begin() + static_cast<ptrdiff_t>(lags.size() / 2);
    std::nth_element(lags.begin(), middle, lags.end());
    result.period = *middle;
  }
  return result;
}

LaunchHistory::Score LaunchHistory::score(uint32_t period, uint32_t periods) const {
  periods = std::max(periods, std::min(1 + kFewLaunches / period, size() / period));
  // A sample tells which candidates are not worth a whole look.
  const uint32_t stride = std::max(1U, (periods - 1) * period / kSample);
  Score best;
  for (const uint32_t share : {0U, 16U, 8U}) {
    if (share != 0 && period < kSlackFrom) break;
    const uint32_t slack = share == 0 ? 0 : period / share;
    for (const bool by_context : {false, true}) {
      if (share == 0 && by_context) continue;
      if (stride > 1) {
        const Score sample = score(period, periods, slack, by_context, stride);
        if (sample.agreement * 2 < kAgreement || sample.support * 2 < kSupport) continue;
      }
      const Score other = score(period, periods, slack, by_context, 1);
      if (other.established() && (!best.established() || other.agreement > best.agreement + 50)) {
        best = other;
      }
      if (best.established() && best.agreement >= 900) return best;
    }
  }
  return best;
}

// Distances that are frequent in the whole history, or in its latest part: the program may have
// changed what it does.
std::vector<uint32_t> LaunchHistory::candidates() const {
  std::vector<uint32_t> periods;
  add_candidates(0, periods);
  if (size() >= kPartFrom) add_candidates(size() - size() / kPart, periods);
  std::sort(periods.begin(), periods.end());
  periods.erase(std::unique(periods.begin(), periods.end()), periods.end());
  return periods;
}

void LaunchHistory::add_candidates(uint32_t from, std::vector<uint32_t>& periods) const {
  const uint32_t length = size() - from;
  const uint32_t most = std::min(kLongestPeriod, length / kPeriods);
  // Distances between launches of the same kernel, or of the same three in a row.
  std::vector<uint32_t> counts(most + 2, 0);
  // Distances between beginnings: of bursts in which a kernel comes, and of what follows a pause.
  // A loop around other loops may show in nothing else.
  std::vector<uint32_t> beginnings(most + 2, 0);
  std::vector<int32_t> began(kernels_.size(), kNone);
  uint64_t host_ns = 0;
  for (uint32_t i = from; i < size(); ++i) host_ns += gaps_ns_[i];
  const uint64_t long_ns = std::max<uint64_t>(kUnitPauseNs, host_ns * 8 / length);
  uint32_t paused = from;
  for (uint32_t i = from; i < size(); ++i) {
    for (const auto* links : {&previous_, &previous_context_}) {
      const int32_t before = (*links)[i];
      if (before < static_cast<int32_t>(from)) continue;
      const uint32_t distance = i - static_cast<uint32_t>(before);
      if (distance <= most) counts[distance] += 1;
    }
    const bool begins = previous_[i] < 0 || i - static_cast<uint32_t>(previous_[i]) >= kBurstApart;
    if (begins) {
      int32_t& start = began[symbols_[i]];
      if (start != kNone && i - static_cast<uint32_t>(start) <= most) {
        beginnings[i - static_cast<uint32_t>(start)] += 1;
      }
      start = static_cast<int32_t>(i);
    }
    if (gaps_ns_[i] >= long_ns && i > from) {
      if (i - paused <= most) beginnings[i - paused] += 2;
      paused = i;
    }
  }
  struct Band {
    uint32_t period;
    uint32_t beginning;
    uint64_t weight;
  };
  std::vector<Band> bands;
  for (uint32_t low = 2; low <= most;) {
    const uint32_t end = std::min(most + 1, low + std::max(1U, low / 32));
    uint32_t best = low;
    uint32_t best_beginning = low;
    uint64_t mass = 0;
    for (uint32_t d = low; d < end; ++d) {
      mass += counts[d] + beginnings[d];
      if (counts[d] > counts[best]) best = d;
      if (beginnings[d] > beginnings[best_beginning]) best_beginning = d;
    }
    if (counts[best] == 0) best = best_beginning;
    if (beginnings[best_beginning] < 2) best_beginning = best;
    // At least one match in each period, over half of the launches looked at.
    if (mass >= 2 && mass * low * 2 >= length) bands.push_back({best, best_beginning, mass * low});
    low = end;
  }
  std::sort(bands.begin(), bands.end(), [](const Band& a, const Band& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.period < b.period;
  });
  if (bands.size() > kCandidates) bands.resize(kCandidates);
  for (const Band& band : bands) {
    periods.push_back(band.period);
    periods.push_back(band.beginning);
  }
}

// ---- loops within loops -----------------------------------------------------------------------

// Whether the host pauses in each of the last periods, at the same place. With `inner`: in more of
// them, and each time for much longer than where the inner loop begins again.
bool LaunchHistory::pauses(uint32_t period, uint32_t inner) const {
  const uint32_t n = size();
  const uint32_t periods = inner > 0 ? kLikelyPeriods : kPeriods;
  if (n < periods * period + 1) return false;
  uint32_t before = 0;
  for (uint32_t back = 0; back < periods; ++back) {
    const uint32_t end = n - back * period;
    uint32_t longest = end - period;
    uint64_t sum = 0;
    for (uint32_t i = end - period; i < end; ++i) {
      sum += gaps_ns_[i];
      if (gaps_ns_[i] > gaps_ns_[longest]) longest = i;
    }
    const uint64_t pause = gaps_ns_[longest];
    for (uint32_t i = end - period; inner > 0 && i < end; ++i) {
      const uint32_t apart = i > longest ? i - longest : longest - i;
      const uint32_t off = std::min(apart % inner, inner - apart % inner);
      if (apart * 2 > inner && off <= inner / 8 && pause < 3 * uint64_t{gaps_ns_[i]}) return false;
    }
    if (pause < kUnitPauseNs || pause * 10 < sum || pause * (period - 1) < 4 * (sum - pause)) {
      return false;
    }
    if (back > 0) {
      // If a period has two pauses, now the one and now the other may be the longest.
      const uint32_t there = before - period;
      const uint32_t least = std::max(there - period / 8, end - period);
      bool again = false;
      for (uint32_t i = least; i <= there + period / 8 && i < end; ++i) {
        again = again || (gaps_ns_[i] >= kUnitPauseNs && gaps_ns_[i] >= pause / 2);
        if (gaps_ns_[i] == pause) longest = i;
      }
      if (!again) return false;
      if (inner == 0) {
        before = there;
        continue;
      }
      const uint32_t apart = before - longest;
      if (apart > period + period / 8 || apart < period - period / 8) return false;
    }
    before = longest;
  }
  return true;
}

// Whether the host waits for the device in each of the last periods, at the same place.
bool LaunchHistory::waits(uint32_t period) const {
  const uint32_t n = size();
  if (n < kPeriods * period) return false;
  for (uint32_t i = n - period; i < n; ++i) {
    bool always = true;
    for (uint32_t back = 0; back < kPeriods; ++back) always = always && waited_[i - back * period];
    if (always) return true;
  }
  return false;
}

// Whether the last `times` periods are the same kernels with the same waits, and the host waits in
// each. Then they count one by one: requests that come at random would else be taken for groups,
// where the times between them repeat by chance.
bool LaunchHistory::is_same(uint32_t period, uint32_t times) const {
  const uint32_t n = size();
  if (n < (times + 1) * period || !waits(period)) return false;
  for (uint32_t i = n - times * period; i < n; ++i) {
    if (symbols_[i] != symbols_[i - period] || waited_[i] != waited_[i - period]) return false;
  }
  return true;
}

bool LaunchHistory::is_layer_like(uint32_t period) const {
  return period <= kLayerLaunches && !pauses(period) && !waits(period);
}

// Whether the outer period is the iteration that the inner one is a part of.
bool LaunchHistory::encloses(const Valid& inner, const Valid& outer) const {
  if (outer.period < inner.period + inner.period / 4 || outer.period / inner.period > kMostInner) {
    return false;
  }
  const uint32_t n = size();
  const uint32_t from = n - 2 * outer.period;
  const auto found = [this](uint32_t i, const Valid& in, bool by_context) {
    uint32_t often = 0;
    return i >= in.period + in.score.slack &&
           back(i, in.period, in.score.slack, by_context, often) != kNone;
  };
  // Kernels of the inner loop, and how many launches have no match one inner period back.
  std::vector<bool> is_inner(kernels_.size(), false);
  uint32_t misses = 0;
  for (uint32_t i = from; i < n; ++i) {
    const bool here = found(i, inner, false) || (inner.score.by_context && found(i, inner, true));
    if (here) is_inner[symbols_[i]] = true;
    misses += here ? 0 : 1;
  }
  // What does not belong to the inner loop must come in every repetition of the outer one.
  uint32_t others = 0;
  uint32_t own[2] = {0, 0};
  for (uint32_t i = from; i < n; ++i) {
    if (is_inner[symbols_[i]]) continue;
    others += 1;
    if (found(i, outer, outer.score.by_context)) own[i < n - outer.period ? 0 : 1] += 1;
  }
  // If requests come at random, it may look as if the host paused after every second one.
  const bool by_chance = outer.period < 4 * inner.period || outer.period % inner.period == 0;
  if (!pauses(inner.period) && pauses(outer.period, by_chance ? inner.period : 0)) return true;
  if (own[0] == 0 || own[1] == 0 || (own[0] + own[1]) * 4 < others * 3) return false;
  if (is_layer_like(inner.period)) return true;
  // If the outer period is a multiple of the inner one, nothing comes between: every few inner
  // repetitions only look different.
  const uint32_t rest = outer.period % inner.period;
  // If the outer loop is exact the inner one does not stray, whatever slack it was found with.
  const Score long_look =
      score(outer.period, outer.period < 4 * inner.period ? kSurePeriods : kLikelyPeriods);
  const bool exact = outer.score.slack == 0 && outer.score.agreement >= kExact &&
                     long_look.slack == 0 && long_look.agreement >= kExact;
  const uint32_t stray =
      exact ? 0
            : std::max(outer.score.slack,
                       inner.score.slack * ((outer.period + inner.period / 2) / inner.period));
  if (std::min(rest, inner.period - rest) <= stray) return false;
  // A few repetitions of a loop that strays take about the same number of launches again by chance.
  if (outer.period < 4 * inner.period &&
      (inner.score.slack > 0 ? !exact : !long_look.established())) {
    return false;
  }
  // The first inner repetition after the interruption has no match either.
  const uint32_t interruption = misses / 2 - std::min(misses / 2, inner.period);
  return interruption * 4 <= inner.period || interruption >= 4 * inner.period;
}

// The same unit over and over: evenly spaced from its first appearance, or very often.
bool LaunchHistory::one_unit() const {
  const uint32_t n = size();
  uint32_t run = 1;
  while (run < n && run < kUnitRun && symbols_[n - 1 - run] == symbols_[n - 1]) ++run;
  if (run >= kUnitRun) return true;
  if (run < kUnitRepeats || previous_[n - run] != kNone) return false;
  const auto [least, most] =
      std::minmax_element(gaps_ns_.end() - (kUnitRepeats - 1), gaps_ns_.end());
  return *least >= kUnitPauseNs && alike(*least, *most);
}

uint32_t LaunchHistory::start_of(const Valid& found) const {
  const uint32_t n = size();
  const uint32_t period = found.period;
  uint64_t sum = 0;
  uint32_t longest = n;
  uint64_t pause = 0;
  uint32_t often = 0;
  for (uint32_t i = n - period; i < n; ++i) {
    sum += gaps_ns_[i];
    const int32_t j = back(i, period, found.score.slack, found.score.by_context, often);
    if (j == kNone) continue;
    const uint64_t both = std::min(gaps_ns_[i], gaps_ns_[static_cast<size_t>(j)]);
    if (both > pause) {
      pause = both;
      longest = i;
    }
  }
  if (longest < n && pause * 20 >= sum && pause * period >= 4 * sum) return longest;
  // No pause: after a wait for the device, the longest.
  longest = n;
  pause = 0;
  for (uint32_t i = n - period; i < n; ++i) {
    if (!waited_[i] || !waited_[i - period] || (longest < n && gaps_ns_[i] <= pause)) continue;
    longest = i;
    pause = gaps_ns_[i];
  }
  if (longest < n) return longest;
  // No wait: where it began to repeat.
  uint32_t first = n - period;
  uint32_t misses = 0;
  for (uint32_t i = n - 1; i >= period + found.score.slack; --i) {
    if (back(i, period, found.score.slack, found.score.by_context, often) != kNone) {
      first = i - period;
      misses -= std::min(misses, 1U);
    } else if (++misses > std::max(4U, period / 4)) {
      break;
    }
  }
  return n - period + (first + period - n % period) % period;
}

std::optional<LaunchHistory::Repetition> LaunchHistory::repetition(const Inner& inside) const {
  const uint32_t n = size();
  if (n < kUnitRepeats) return std::nullopt;
  if (inside.period == 0 && one_unit()) return Repetition{.period = 1, .start = n - 1};
  std::vector<Valid> valid;
  for (const uint32_t period : candidates()) {
    if (period <= inside.period) continue;
    // A few launches may come three times by chance, in a program that does a little of everything.
    const bool careful = inside.settled || period <= kLayerLaunches;
    const Score scored = score(period, careful ? kLikelyPeriods : kPeriods);
    if (!scored.established()) continue;
    const Valid one{scored.slack == 0 ? period : std::min(scored.period, kLongestPeriod), scored};
    if (!valid.empty() && one.period <= valid.back().period + valid.back().period / 32) {
      if (one.score.agreement > valid.back().score.agreement) valid.back() = one;
    } else {
      valid.push_back(one);
    }
  }
  if (valid.empty()) return std::nullopt;
  Valid found = valid.front();
  if (inside.period != 0) found = Valid{inside.period, Score{.slack = inside.slack}};
  for (const Valid& other : valid) {
    if (encloses(found, other)) found = other;
  }
  for (const uint32_t times : {2U, 3U, 5U}) {
    while (found.score.slack == 0 && found.period % times == 0 &&
           is_same(found.period / times, times)) {
      found.period /= times;
    }
  }
  if (found.period <= inside.period) return std::nullopt;
  // A short loop in which the host neither pauses nor waits is the iteration only if it repeats
  // more often than any program has layers.
  if (is_layer_like(found.period) && !score(found.period, kMostInner).established()) {
    return std::nullopt;
  }
  if (n < 2 * found.period + found.score.slack) return std::nullopt;
  return Repetition{.period = found.period, .start = start_of(found), .slack = found.score.slack};
}

}  // namespace lull::policies
