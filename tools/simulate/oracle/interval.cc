#include "tools/simulate/oracle/interval.h"

namespace lull::simulate {
namespace {

constexpr int64_t kBeyond = 16;  // beyond the tail a step is this part of the delay
constexpr int64_t kTiny = 32;    // a segment below this part of an iteration gets no allowance

}  // namespace

size_t KeyHash::operator()(const Key& key) const {
  uint64_t hash = 0;
  for (const int64_t part : key) {
    hash = (hash ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

Key key_of(const LowState& low) {
  return {static_cast<int64_t>(low.next), low.running_ns, low.ready_ns, low.base_ns, 0, 0};
}

Interval::Interval(High high, Chain chain, const OracleOptions& options)
    : high_(std::move(high)), chain_(std::move(chain)), options_(options) {
  known_.resize(high_.segments.size());
  end_.resize(high_.flow.works.size());
  base_.resize(high_.flow.waits.size() + 1);
  const int64_t idle = high_.alone + high_.pause - high_.work;
  grid_ = options.grid_ns >= 0 ? options.grid_ns : (idle + high_.alone / 32) / 256;
  done_.assign(1, 0);
  waited_.assign(1, 0);
  for (const Link& link : chain_.links) {
    done_.push_back(done_.back() + (link.kernel ? link.length : 0));
    waited_.push_back(waited_.back() + (link.waited ? 1 : 0));
  }
}

// ---- the low task -------------------------------------------------------------------------------

LowState Interval::canonical(LowState low, int64_t grid) const {
  const auto down = [](int64_t value, int64_t to) {
    return to <= 1 ? value : (value >= 0 ? value / to : -((-value + to - 1) / to)) * to;
  };
  const Link& link = at(low.next);
  const bool kept_waiting = low.ready_ns > low.running_ns && low.ready_ns > 0 &&
                            low.ready_ns == low.base_ns + link.offset;
  low.running_ns = down(std::max<int64_t>(0, low.running_ns), grid);
  low.ready_ns = std::max(down(std::max<int64_t>(0, low.ready_ns), grid), low.running_ns);
  low.base_ns = kept_waiting ? low.ready_ns - link.offset : down(low.base_ns, 8 * grid);
  low.base_ns = std::max(low.base_ns, -link.horizon);
  return low;
}

LowState Interval::folded(LowState low) const {
  low.next %= chain_.links.size();
  return low;
}

void Interval::begin(LowState& low, int64_t start) const {
  const Link& link = at(low.next);
  const int64_t end = start + link.length;
  if (link.waited) low.base_ns = std::max(end + link.wait_lag, low.base_ns + link.arrive);
  low.next += 1;
  const Link& next = at(low.next);
  low.running_ns = end;
  low.ready_ns = std::max(end + next.lag, low.base_ns + next.offset);
}

void Interval::run_low(LowState low, int64_t free, int64_t end, int64_t boundary,
                       Played& played) const {
  LowState before = low;
  played.crossing = false;
  while (true) {
    const int64_t start = std::max(free, low.ready_ns);
    if (start >= boundary) break;
    const Link& link = at(low.next);
    if (link.kernel) {
      played.work_end += std::max<int64_t>(0, std::min(end, start + link.length) - start);
    }
    if (start + link.length > boundary) {
      before = low;
      before.running_ns = 0;
      played.crossing = true;
      played.before_work = played.work;
    }
    if (link.kernel) played.work += std::min(boundary, start + link.length) - start;
    begin(low, start);
    free = start + link.length;
  }
  low.running_ns = std::max<int64_t>(0, free - boundary);
  const auto shift = [&](LowState& state) {
    state.ready_ns -= boundary;
    state.base_ns -= boundary;
  };
  shift(low);
  shift(before);
  played.low = low;
  played.before = before;
}

double Interval::done(const LowState& low) const {
  const bool kernel = at(low.next + length() - 1).kernel;
  return static_cast<double>(static_cast<int64_t>(low.next / length()) * done_.back() +
                             done_[low.next % length()] - (kernel ? low.running_ns : 0));
}

bool Interval::no_worse(const LowState& a, const LowState& b) const {
  if (a.next < b.next || a.running_ns > b.running_ns || a.ready_ns > b.ready_ns) return false;
  if (a.base_ns <= b.base_ns) return true;
  // A new base since then?
  if (a.next > b.next + length() + 1) return true;
  const auto waited = [&](uint64_t next) {
    return next / length() * waited_.back() + waited_[next % length()];
  };
  return waited(a.next) > waited(b.next);
}

// ---- a segment ---------------------------------------------------------------------------------

// The next low kernel goes behind the last high one. Its host is held until that high kernel has
// joined the queue, or for less: if the low kernels before it had begun later, one behind each high
// kernel, it might have been launched while they were in the queue. Where the high kernels may be
// late enough, this is taken to cost nothing. Returns how much later they would have to be, too.
int64_t Interval::hold(LowState& low) const {
  const InFront& behind = in_front_.back();
  const Link& link = at(low.next);
  if (link.offset <= -kEver) return kEver;
  int64_t missing = kEver;
  const int64_t unheld = low.base_ns + link.offset + link.call;
  int64_t go = behind.joined;
  // The low kernels so far, and all work, since the end of the high kernel in front.
  int64_t lows = 0, between = behind.length;
  int64_t joined = behind.joined;  // when the next high kernel joins then
  for (size_t i = in_front_.size() - 1, back = 1; go > unheld && back <= low.next; ++back, --i) {
    const Link& earlier = at(low.next - back);
    if (earlier.waited || earlier.offset <= -kEver) break;
    const int64_t since = link.offset - earlier.offset - earlier.call;
    // The earlier low kernel ends when that high kernel joins, or later.
    const int64_t latest = joined - earlier.length + since;
    lows += earlier.length;
    between += earlier.length;
    if (i == 0) {
      go = std::min(go, latest);
      break;
    }
    const InFront& high = in_front_[i - 1];
    if (high.alone + between > behind.finish) {
      missing = high.alone + between - behind.finish;
      break;
    }
    if (high.ended + since < latest) {
      go = std::min(go, latest);
      break;
    }
    joined = std::max(high.alone - high.length, high.joined - lows);
    go = std::min(go, joined + since);
    between += high.length;
  }
  low.base_ns += std::max<int64_t>(0, go - unheld);
  return missing;
}

Played Interval::play(const Segment& segment, const LowState& from, int64_t allowed, bool last) {
  const Flow& flow = high_.flow;
  Played played;
  LowState low = from;
  int64_t free = low.running_ns;
  base_[segment.first_stretch] = 0;
  in_front_.clear();
  bool held = false;  // the next low kernel, until now
  int64_t back = 0;
  for (const Item& item : segment.items) {
    if (item.wait) {
      const Wait& wait = flow.waits[item.index];
      back = base_[item.index] + wait.arrive;
      for (const uint32_t work : wait.on) back = std::max(back, end_[work]);
      base_[item.index + 1] = back;
      continue;
    }
    const Work& work = flow.works[item.index];
    int64_t ready = base_[work.stretch] + work.offset;
    for (const uint32_t before : work.after) {
      if (flow.works[before].stretch >= segment.first_stretch)
        ready = std::max(ready, end_[before]);
    }
    if (!work.compute) {
      end_[item.index] = ready + work.length;
      continue;
    }
    const int64_t joined = ready;
    const int64_t finish = high_.latest[item.index] + work.length + allowed;
    InFront high{.joined = joined,
                 .alone = flow.work_end[item.index] - segment.start,
                 .length = work.length,
                 .finish = finish};
    // A low kernel that joins later goes behind this high one.
    while (low.ready_ns <= joined) {
      const int64_t start = std::max(free, low.ready_ns);
      const Link& link = at(low.next);
      const int64_t over = std::max(joined, start + link.length) + work.length - finish;
      if (over > 0) {
        played.missing = std::min(played.missing, over);
        low.ready_ns = joined;
        held = true;
        break;
      }
      if (held) played.missing = std::min(played.missing, hold(low));
      held = false;
      if (link.kernel) played.work += link.length;
      begin(low, start);
      free = start + link.length;
    }
    free = end_[item.index] = high.ended = std::max(joined, free) + work.length;
    in_front_.push_back(high);
  }
  if (held) played.missing = std::min(played.missing, hold(low));
  back = std::max<int64_t>(0, back);
  played.delay = std::max<int64_t>(0, back - segment.alone);
  // The kernel that was running at the start is not counted above.
  if (from.running_ns > 0 && at(from.next + length() - 1).kernel) {
    played.work += std::min(from.running_ns, back);
  }
  played.work_end = played.work;
  run_low(low, free, back, back + (last ? high_.pause : 0), played);
  return played;
}

void Interval::options(size_t index, const LowState& low, int64_t most, int64_t grid,
                       Options& out) {
  out.all.clear();
  const Segment& segment = high_.segments[index];
  const bool last = index + 1 == high_.segments.size();
  const auto step = static_cast<int64_t>(options_.step * static_cast<double>(high_.alone));
  const bool tiny = plays_over() && step > 0 && segment.alone < high_.alone / kTiny;
  const int64_t left = tiny ? 0 : most;
  int64_t undelayed = 0;
  int64_t allowed = 0;
  while (allowed <= left) {
    // Several more kernels within a step are one option.
    int64_t top = allowed;
    if (step > 0 && allowed > 0) {
      top = allowed <= question_.tail ? std::min(allowed + step, question_.tail)
                                      : allowed + std::max(step, allowed / kBeyond);
      top = std::min(left, top);
    }
    const Played played = play(segment, low, top, last);
    if (allowed == 0) undelayed = played.delay;
    const int64_t least = std::max(undelayed, std::min(allowed, played.delay));
    const auto keep = [&](const LowState& state, int64_t work, int64_t work_end) {
      out.all.push_back({canonical(state, grid), plays_over() ? played.delay : least, least,
                         static_cast<double>(work), static_cast<double>(last ? work_end : work)});
    };
    keep(played.low, played.work, played.work_end);
    if (played.crossing && out.all.back().low.running_ns > 0) {
      keep(played.before, played.before_work, played.work_end);
    }
    allowed = played.missing >= kEver ? kEver : top + played.missing;
  }
  out.complete = allowed == kEver;
  if (high_.segments.size() > 1 || plays_over()) prune(out.all);
}

const Options& Interval::known_options(size_t segment, const LowState& low, int64_t most) {
  Key key = key_of(low);
  key[4] = most;
  key[5] = plays_over() ? -1 - question_.tail : question_.tail;
  const auto [found, added] = known_[segment].try_emplace(key);
  if (added) options(segment, low, most, grid_, found->second);
  return found->second;
}

int64_t Interval::least_delay(LowState low) {
  int64_t delay = 0;
  for (size_t s = 0; s < high_.segments.size(); ++s) {
    const Played played = play(high_.segments[s], low, 0, s + 1 == high_.segments.size());
    delay += played.delay;
    low = canonical(played.crossing ? played.before : played.low, grid_);
  }
  return delay;
}

}  // namespace lull::simulate
