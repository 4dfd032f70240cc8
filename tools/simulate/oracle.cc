#include "tools/simulate/oracle.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "tools/simgpu/device/device_model.h"

namespace lull::simulate {
namespace {

constexpr int64_t kEver = std::numeric_limits<int64_t>::max() / 4;
constexpr int64_t kGreedyCallNs = 1000;  // as Program's
constexpr size_t kMostStates = 30'000;   // rounded ones; more: a coarser grid
constexpr double kCoarser = 2;
// Where states are left out: of what is spent of the mean allowance, the more the coarser the steps in
// which it goes; and how many states stay in each.
constexpr int64_t kBuckets = 32, kManyBuckets = 128;
constexpr size_t kInBucket = 4;
constexpr int kPrices = 6;                // that are tried
constexpr uint32_t kNone = UINT32_MAX;

// ---- a script as works, waits and what they follow ------------------------------------------------

struct Work {
  uint32_t stretch = 0;  // of the host, between two waits
  int64_t offset = 0;    // of its launch in the stretch
  int64_t length = 0;
  bool kernel = false, compute = false;
  std::vector<uint32_t> after;
};

struct Wait {
  int64_t arrive = 0;  // of the host, in the stretch that the wait ends
  std::vector<uint32_t> on;
  bool all = false;    // that was launched
};

struct Item {
  bool wait = false;
  uint32_t index = 0;
};

struct Flow {
  std::vector<Work> works;
  std::vector<Wait> waits;  // wait i ends stretch i; the last one the iteration
  std::vector<std::pair<uint32_t, int64_t>> calls;  // stretch and offset of each call
  // Alone: in the order in which the device takes it up, and when it ends.
  std::vector<Item> order;
  std::vector<int64_t> work_end, wait_end;
};

Flow flow_of(const Script& script, bool greedy) {
  Flow flow;
  std::vector<uint32_t> last(script.streams, kNone), event(script.events, kNone);
  int64_t host = 0;  // in the stretch: when it is ready for the next call
  const auto stretch = [&] { return static_cast<uint32_t>(flow.waits.size()); };
  const auto wait = [&](int64_t arrive, uint32_t from, uint32_t to) {
    Wait made{.arrive = arrive};
    for (uint32_t stream = from; stream < to; ++stream) {
      if (last[stream] != kNone) made.on.push_back(last[stream]);
      last[stream] = kNone;
    }
    host = arrive;
    if (made.on.empty()) return;
    made.all = std::all_of(last.begin(), last.end(), [](uint32_t work) { return work == kNone; });
    flow.waits.push_back(std::move(made));
    host = 0;
  };
  const auto work = [&](uint32_t stream, Work made) {
    made.stretch = stretch();
    if (last[stream] != kNone) made.after.push_back(last[stream]);
    last[stream] = static_cast<uint32_t>(flow.works.size());
    flow.works.push_back(std::move(made));
  };
  for (const Call& call : script.calls) {
    const int64_t at = host + (greedy ? 0 : static_cast<int64_t>(call.pause_ns));
    host = at + (greedy ? kGreedyCallNs : static_cast<int64_t>(call.call_ns));
    flow.calls.emplace_back(stretch(), at);
    switch (call.kind) {
      case CallKind::kWork:
        work(call.stream, {.offset = at,
                           .length = static_cast<int64_t>(call.work_ns),
                           .kernel = call.op == simgpu::OpKind::kKernel,
                           .compute = simgpu::engine_of(call.op) == simgpu::Engine::kCompute &&
                                      call.work_ns > 0});
        if (call.waits) wait(host, call.stream, call.stream + 1);
        break;
      case CallKind::kRecordEvent:
        event[call.event] = last[call.stream];
        break;
      case CallKind::kWaitEvent:
        if (event[call.event] != kNone) work(call.stream, {.offset = at, .after = {event[call.event]}});
        break;
      case CallKind::kSyncStream:
        wait(at, call.stream, call.stream + 1);
        break;
      case CallKind::kSyncDevice:
        wait(at, 0, script.streams);
        break;
    }
  }
  const bool open = std::any_of(last.begin(), last.end(), [](uint32_t w) { return w != kNone; });
  if (host > 0 || open || flow.waits.empty()) {
    const int64_t arrive = host;
    wait(arrive, 0, script.streams);
    if (!open) flow.waits.push_back({.arrive = arrive, .all = true});
  }

  // Alone: the device takes up what has become ready first.
  const auto works = static_cast<uint32_t>(flow.works.size());
  const auto waits = static_cast<uint32_t>(flow.waits.size());
  std::vector<uint32_t> open_count(works + waits);
  std::vector<int64_t> ready(works + waits, 0);
  std::vector<std::vector<uint32_t>> then(works + waits);
  const auto follows = [&](uint32_t node, uint32_t before) {
    then[before].push_back(node);
    open_count[node] += 1;
  };
  for (uint32_t i = 0; i < works; ++i) {
    for (const uint32_t before : flow.works[i].after) follows(i, before);
    if (flow.works[i].stretch > 0) follows(i, works + flow.works[i].stretch - 1);
  }
  for (uint32_t w = 0; w < waits; ++w) {
    for (const uint32_t before : flow.waits[w].on) follows(works + w, before);
    if (w > 0) follows(works + w, works + w - 1);
  }
  flow.work_end.resize(works);
  flow.wait_end.resize(waits);
  using Due = std::pair<int64_t, uint32_t>;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due;
  const auto offset = [&](uint32_t node) {
    const uint32_t of = node < works ? flow.works[node].stretch : node - works;
    const int64_t base = of == 0 ? 0 : flow.wait_end[of - 1];
    return base + (node < works ? flow.works[node].offset : flow.waits[of].arrive);
  };
  const auto push = [&](uint32_t node) { due.emplace(std::max(ready[node], offset(node)), node); };
  for (uint32_t node = 0; node < works + waits; ++node) {
    if (open_count[node] == 0) push(node);
  }
  int64_t free = 0;
  while (!due.empty()) {
    const auto [at, node] = due.top();
    due.pop();
    int64_t end = at;
    if (node < works) {
      const Work& w = flow.works[node];
      end = (w.compute ? std::max(free, at) : at) + w.length;
      if (w.compute) free = end;
      flow.work_end[node] = end;
    } else {
      flow.wait_end[node - works] = end;
    }
    flow.order.push_back({node >= works, node >= works ? node - works : node});
    for (const uint32_t next : then[node]) {
      ready[next] = std::max(ready[next], end);
      if (--open_count[next] == 0) push(next);
    }
  }
  return flow;
}

// ---- the high task --------------------------------------------------------------------------------

struct Segment {
  std::vector<Item> items;
  int64_t alone = 0;  // from its start to the host's return
  uint32_t first_stretch = 0;
  uint32_t last = kNone;  // work of the compute engine
};

struct High {
  Flow flow;
  std::vector<Segment> segments;
  std::vector<int64_t> latest;  // start of each work, from the start of its segment
  int64_t alone = 0, pause = 0;
  int64_t work = 0;             // on the compute engine
  bool exact = true;
};

High high_of(const Script& script, bool greedy) {
  High high{.flow = flow_of(script, greedy)};
  const Flow& flow = high.flow;
  high.pause = greedy ? 0 : static_cast<int64_t>(script.pause_after_ns);
  high.alone = flow.wait_end.back();
  for (const Work& work : flow.works) high.work += work.compute ? work.length : 0;
  high.latest.assign(flow.works.size(), 0);
  Segment segment;
  int64_t start = 0;
  for (const Item& item : flow.order) {
    segment.items.push_back(item);
    if (!item.wait && flow.works[item.index].compute) segment.last = item.index;
    if (!item.wait) continue;
    high.exact = high.exact && flow.waits[item.index].all;
    if (!flow.waits[item.index].all) continue;
    const int64_t end = flow.wait_end[item.index];
    segment.alone = end - start;
    // Backwards from the host's return.
    std::map<uint32_t, int64_t> base;  // by stretch, the latest
    std::unordered_map<uint32_t, int64_t> finish;
    const auto lower = [](auto& of, uint32_t key, int64_t at) {
      const auto [found, added] = of.emplace(key, at);
      if (!added) found->second = std::min(found->second, at);
    };
    base[item.index + 1] = end;
    int64_t following = end;
    for (auto it = segment.items.rbegin(); it != segment.items.rend(); ++it) {
      if (it->wait) {
        const int64_t back = base.at(it->index + 1);
        for (const uint32_t work : flow.waits[it->index].on) lower(finish, work, back);
        lower(base, it->index, back - flow.waits[it->index].arrive);
        continue;
      }
      const Work& work = flow.works[it->index];
      lower(finish, it->index, end);
      int64_t latest = finish.at(it->index) - work.length;
      if (work.compute) following = latest = std::min(latest, following - work.length);
      for (const uint32_t before : work.after) lower(finish, before, latest);
      lower(base, work.stretch, latest - work.offset);
      high.latest[it->index] = latest - start;
    }
    high.segments.push_back(std::move(segment));
    segment = {.first_stretch = item.index + 1};
    start = end;
  }
  return high;
}

// ---- the low task: one chain on the compute engine ----------------------------------------------

struct Link {
  int64_t length = 0;
  bool kernel = false;
  int64_t offset = -kEver;  // of its launch, from its host's base; -kEver: long launched
  int64_t lag = 0;          // after the end of the one before it: copies
  bool waited = false;      // its end lets the host go on, and gives a new base
  int64_t wait_lag = 0, arrive = -kEver;
  int64_t horizon = 0;      // the latest offset that still matters until the next base
};

struct Chain {
  std::vector<Link> links;
  std::vector<int64_t> calls;  // offset of each call from its base
  int64_t begin = 0;           // and of the iteration
  bool works = false;          // has a kernel
  int64_t longest = 0;
  bool in_order = true;
};

Chain chain_of(const Script& script, bool greedy) {
  const Flow flow = flow_of(script, greedy);
  Chain chain;
  const int64_t pause = greedy ? 0 : static_cast<int64_t>(script.pause_after_ns);
  // Of each work: the last link it waits for, the time from that one's end to its own, and when it
  // would be done for the host's sake alone, in its stretch.
  struct Behind {
    int64_t link = -1, lag = 0, host = 0;
  };
  std::vector<Behind> behind(flow.works.size());
  struct Stretch {
    int64_t group = 0, shift = 0;
  };
  std::vector<Stretch> stretch(flow.waits.size() + 1);
  stretch[0].shift = pause;
  std::vector<int64_t> group_of_link, group_from{-1};  // the link whose end begins the group
  for (const Item& item : flow.order) {
    Behind now;
    const auto gather = [&](const std::vector<uint32_t>& works, uint32_t of) {
      for (const uint32_t before : works) {
        const Behind& b = behind[before];
        if (b.link > now.link) now.link = b.link, now.lag = b.lag;
        else if (b.link == now.link) now.lag = std::max(now.lag, b.lag);
        if (flow.works[before].stretch == of) now.host = std::max(now.host, b.host);
      }
    };
    if (item.wait) {
      const Wait& wait = flow.waits[item.index];
      now.host = wait.arrive;
      gather(wait.on, item.index);
      const Stretch& ends = stretch[item.index];
      Stretch& next = stretch[item.index + 1];
      chain.in_order = chain.in_order && wait.all;
      if (now.link > group_from.back()) {
        Link& link = chain.links[static_cast<size_t>(now.link)];
        link.waited = true;
        link.wait_lag = now.lag;
        link.arrive = ends.shift + now.host;
        group_from.push_back(now.link);
        next = {static_cast<int64_t>(group_from.size()) - 1, 0};
      } else {
        next = {ends.group, ends.shift + now.host};
      }
      continue;
    }
    const Work& work = flow.works[item.index];
    now.host = work.offset;
    gather(work.after, work.stretch);
    if (!work.compute) {
      behind[item.index] = {now.link, now.link < 0 ? 0 : now.lag + work.length,
                            now.host + work.length};
      continue;
    }
    Link link{.length = work.length, .kernel = work.kernel};
    const auto index = static_cast<int64_t>(chain.links.size());
    const Stretch& of = stretch[work.stretch];
    if (of.group + 1 == static_cast<int64_t>(group_from.size())) link.offset = of.shift + now.host;
    if (now.link == index - 1 && now.link > group_from.back()) link.lag = now.lag;
    group_of_link.push_back(static_cast<int64_t>(group_from.size()) - 1);
    chain.links.push_back(link);
    behind[item.index] = {index, 0, 0};
  }
  if (chain.links.empty()) return chain;
  // The iteration ends with a wait for all, so the last link's end is waited for.
  // What the host does after its return from that wait, the next iteration follows.
  const int64_t tail = stretch.back().group == 0 ? 0 : stretch.back().shift;
  for (size_t i = 0; i < chain.links.size(); ++i) {
    if (group_of_link[i] != 0) continue;
    Link& link = chain.links[i];
    if (link.offset > -kEver) link.offset += tail;
    if (link.waited) link.arrive += tail;
  }
  for (const auto& [in, offset] : flow.calls) {
    chain.calls.push_back(stretch[in].shift + offset + (stretch[in].group == 0 ? tail : 0));
  }
  chain.begin = pause + tail;
  int64_t horizon = 0;
  for (size_t i = chain.links.size(); i-- > 0;) {
    Link& link = chain.links[i];
    if (link.waited) horizon = std::max<int64_t>(0, link.arrive);
    horizon = std::max(horizon, link.offset);
    link.horizon = horizon;
  }
  for (const Link& link : chain.links) {
    chain.works = chain.works || link.kernel;
    chain.longest = std::max(chain.longest, link.length);
  }
  chain.in_order = chain.in_order && script.streams == 1;
  return chain;
}

// ---- one segment, one allowance -------------------------------------------------------------------

struct Option {
  LowState low;
  int64_t delay = 0;
  double work = 0;      // until the next iteration begins
  double work_end = 0;  // until this one ends
};

struct Played {
  LowState low;
  int64_t delay = 0;
  int64_t missing = kEver;  // the least more that would have let another low kernel go
  int64_t work = 0, work_end = 0;
  bool crossing = false;    // the last low kernel began before the end and goes on; without it:
  LowState before;
  int64_t before_work = 0;
};

}  // namespace

class Oracle::Impl {
 public:
  Impl(const Script& high, bool high_greedy, const Script& low, bool low_greedy,
       const OracleOptions& options)
      : high_(high_of(high, high_greedy)), chain_(chain_of(low, low_greedy)), options_(options) {
    end_.resize(high_.flow.works.size());
    base_.resize(high_.flow.waits.size() + 1);
    const int64_t idle = high_.alone + high_.pause - high_.work;
    grid_ = options.grid_ns >= 0 ? options.grid_ns : (idle + high_.alone / 32) / 256;
  }

  bool exact() const { return high_.exact && chain_.in_order; }
  int64_t alone() const { return high_.alone; }
  int64_t pause() const { return high_.pause; }

  LowState seen(const Progress& low) const {
    const int64_t length = static_cast<int64_t>(chain_.links.size());
    if (length == 0) return {};
    LowState state;
    state.next = low.completed + (low.running.ns >= 0 ? 1 : 0);
    state.running_ns = std::max<int64_t>(0, low.running.ns);
    const Link& link = at(state.next);
    if (low.between) {
      state.base_ns = low.due.ns - chain_.begin;
    } else {
      const size_t call = std::min(low.call, chain_.calls.size() - 1);
      state.base_ns = low.waiting ? -link.horizon : low.due.ns - chain_.calls[call];
      // The host is about to wait for what runs, or waits: it comes back no sooner than that ends.
      const bool waits = state.next == low.launched && state.next > 0 && at(state.next - 1).waited;
      if (waits) {
        state.base_ns = low.waiting ? state.running_ns : std::min(state.base_ns, state.running_ns);
      }
    }
    state.ready_ns = std::max({int64_t{0}, state.running_ns, state.base_ns + link.offset});
    return canonical(state, 0);
  }

  OracleRate rate(LowState start, bool after_pause, uint64_t iterations, const Allowance& allowance) {
    if (iterations == 0 || !chain_.works) return {};
    const double all = allowance.mean * static_cast<double>(high_.alone) *
                       static_cast<double>(iterations);
    most_delay_ = static_cast<int64_t>(all + 1e-6);
    tail_ = static_cast<int64_t>(allowance.tail * static_cast<double>(high_.alone) + 1e-6);
    most_over_ = static_cast<uint64_t>(allowance.over * static_cast<double>(iterations) + 1e-9);
    time_ = static_cast<double>(iterations) * static_cast<double>(high_.alone) +
            static_cast<double>(iterations - 1) * static_cast<double>(high_.pause);
    iterations_ = iterations;
    std::vector<LowState> starts{canonical(start, 0)};
    if (after_pause) {
      Played waited;
      run_low(start, 0, high_.pause, high_.pause, waited);
      starts = {canonical(waited.low, 0)};
      if (waited.crossing) starts.push_back(canonical(waited.before, 0));
    }
    // An estimate from below where states had to be left out, else exact.
    bool thinned = false;
    const int64_t within = std::min(tail_, most_delay_);
    double reached = frontier(starts, plays_over() ? most_delay_ : within, thinned);
    if (!thinned && !plays_over() && most_over_ > 0 && most_delay_ > tail_) {
      reached = frontier(starts, most_delay_, thinned);
    }
    if (!thinned || plays_over()) return {reached, reached, !thinned};
    const double most = std::max(reached, std::min(relaxed(starts), undisturbed(starts)));
    return {most, reached, true};
  }

 private:
  const Link& at(uint64_t next) const { return chain_.links[next % chain_.links.size()]; }

  // Times that are over say nothing; the rest is rounded down.
  LowState canonical(LowState low, int64_t grid) const {
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

  // The next link begins at `start`.
  void begin(LowState& low, int64_t start) const {
    const Link& link = at(low.next);
    const int64_t end = start + link.length;
    if (link.waited) low.base_ns = std::max(end + link.wait_lag, low.base_ns + link.arrive);
    low.next += 1;
    const Link& next = at(low.next);
    low.running_ns = end;
    low.ready_ns = std::max(end + next.lag, low.base_ns + next.offset);
  }

  // Low work with nobody else from `free` to `boundary`; its times become relative to that.
  void run_low(LowState low, int64_t free, int64_t end, int64_t boundary, Played& played) const {
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

  Played play(const Segment& segment, const LowState& from, int64_t allowed, bool last) {
    const Flow& flow = high_.flow;
    Played played;
    LowState low = from;
    int64_t free = low.running_ns;
    base_[segment.first_stretch] = 0;
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
        if (flow.works[before].stretch >= segment.first_stretch) ready = std::max(ready, end_[before]);
      }
      if (!work.compute) {
        end_[item.index] = ready + work.length;
        continue;
      }
      int64_t rest = work.length;
      const int64_t finish = high_.latest[item.index] + work.length + allowed;
      while (true) {
        const int64_t start = std::max(free, low.ready_ns);
        ready = std::max(ready, free);
        // Only the last one may be held back for a low kernel that is not there yet.
        if (start > ready && start >= ready + rest && item.index != segment.last) break;
        // The part of the high kernel that is done before the low one is there.
        const int64_t done = std::clamp<int64_t>(start - ready, 0, rest);
        const Link& link = at(low.next);
        const int64_t over = start + link.length + (rest - done) - finish;
        if (over > 0) {
          played.missing = std::min(played.missing, over);
          break;
        }
        rest -= done;
        if (link.kernel) played.work += link.length;
        begin(low, start);
        free = start + link.length;
      }
      free = end_[item.index] = std::max(ready, free) + rest;
    }
    played.delay = std::max<int64_t>(0, back - segment.alone);
    // What was running at the start, and is not counted in its link.
    if (from.running_ns > 0 && at(from.next + chain_.links.size() - 1).kernel) {
      played.work += std::min(from.running_ns, back);
    }
    played.work_end = played.work;
    run_low(low, free, back, back + (last ? high_.pause : 0), played);
    return played;
  }

  // What an iteration may come to that begins with `low` so.
  void options(const LowState& low, int64_t most, int64_t grid, std::vector<Option>& out) {
    struct Partial {
      LowState low;
      int64_t delay = 0;
      double work = 0;
      double work_end = 0;
    };
    std::vector<Partial> now{{low}}, next;
    const auto step = static_cast<int64_t>(options_.step * static_cast<double>(high_.alone));
    for (size_t s = 0; s < high_.segments.size(); ++s) {
      const bool last = s + 1 == high_.segments.size();
      next.clear();
      for (const Partial& partial : now) {
        const int64_t limit = most - partial.delay;
        for (int64_t allowed = 0; allowed <= limit;) {
          Played played = play(high_.segments[s], partial.low, allowed, last);
          int64_t top = allowed;
          // Several more kernels within a step count as one option, at the price of the first.
          if (step > 0 && allowed > 0) {
            const int64_t total = partial.delay + allowed;
            const int64_t wide = total <= tail_ ? std::min(step, tail_ - total)
                                                : std::max(step, total / 4);
            top = std::min(limit, allowed + wide);
            if (played.missing <= top - allowed) {
              const int64_t price = std::min(allowed, played.delay);
              played = play(high_.segments[s], partial.low, top, last);
              played.delay = std::min(price, played.delay);
            } else {
              top = allowed;
            }
          }
          const auto keep = [&](const LowState& state, int64_t work, int64_t work_end) {
            next.push_back({canonical(state, grid), partial.delay + played.delay,
                            partial.work + static_cast<double>(work),
                            partial.work + static_cast<double>(work_end)});
          };
          keep(played.low, played.work, played.work_end);
          if (played.crossing && next.back().low.running_ns > 0) {
            keep(played.before, played.before_work, std::min(played.work_end, played.before_work));
            if (last) next.back().work_end = next[next.size() - 2].work_end;
          }
          if (played.missing >= kEver) break;
          allowed = top + played.missing;
        }
      }
      std::swap(now, next);
      if (high_.segments.size() > 1) prune(now);
    }
    out.clear();
    for (const Partial& p : now) out.push_back({p.low, p.delay, p.work, p.work_end});
  }

  // Whoever starts from `a` can do whatever may be done from `b`.
  bool no_worse(const LowState& a, const LowState& b) const {
    if (a.next < b.next || a.running_ns > b.running_ns || a.ready_ns > b.ready_ns) return false;
    if (a.base_ns <= b.base_ns) return true;
    for (uint64_t i = b.next; i < a.next; ++i) {  // a new base since then?
      if (at(i).waited || i > b.next + chain_.links.size()) return true;
    }
    return false;
  }

  template <typename State>
  void prune(std::vector<State>& states) const {
    std::sort(states.begin(), states.end(), [](const State& a, const State& b) {
      return std::tie(b.low.next, a.delay, a.low.running_ns, a.low.ready_ns, b.work_end) <
             std::tie(a.low.next, b.delay, b.low.running_ns, b.low.ready_ns, a.work_end);
    });
    std::vector<State> kept;
    for (const State& state : states) {
      bool dominated = false;
      for (auto other = kept.rbegin(); other != kept.rend() && !dominated; ++other) {
        dominated = other->delay <= state.delay && other->work_end >= state.work_end &&
                    no_worse(other->low, state.low);
        if constexpr (requires { state.over; }) dominated = dominated && other->over <= state.over;
      }
      if (!dominated) kept.push_back(state);
    }
    states = std::move(kept);
  }

  // ---- exactly, or nearly: the Pareto-best states after each iteration ----
  struct Reached {
    LowState low;
    int64_t delay = 0;
    double work = 0, work_end = 0;
    uint64_t over = 0;
  };
  using Key = std::array<int64_t, 4>;
  struct Hash {
    size_t operator()(const Key& key) const {
      uint64_t hash = 0;
      for (const int64_t part : key) {
        hash = (hash ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15ULL;
        hash ^= hash >> 29;
      }
      return hash;
    }
  };
  static Key key_of(const LowState& low) {
    return {static_cast<int64_t>(low.next), low.running_ns, low.ready_ns, low.base_ns};
  }

  // Of the low task's first iteration; the same of any other.
  const std::vector<Option>& known_options(const LowState& low, int64_t most) {
    const auto [found, added] = known_.try_emplace(key_of(low));
    if (added) options(low, most, grid_, found->second);
    return found->second;
  }

  static int64_t least_delay(const std::vector<Option>& options) {
    int64_t least = kEver;
    for (const Option& o : options) least = std::min(least, o.delay);
    return least;
  }

  // The best few for each share of the allowances that is spent; finer about the even pace.
  void thin_out(std::vector<Reached>& states, uint64_t iterations) const {
    const auto even = static_cast<int64_t>(static_cast<double>(most_delay_) *
                                           static_cast<double>(iterations) /
                                           static_cast<double>(iterations_));
    const int64_t buckets = plays_over() ? kManyBuckets : kBuckets;
    const int64_t coarse = most_delay_ / buckets + 1;
    const int64_t fine = tail_ / buckets + 1;
    const auto place = [&](const Reached& r) {
      const int64_t ahead = r.delay - even;
      const bool near = std::abs(ahead) < buckets * fine;
      return std::tuple(r.over, near, near ? (ahead + buckets * fine) / fine : r.delay / coarse);
    };
    std::sort(states.begin(), states.end(), [&](const Reached& a, const Reached& b) {
      return std::tuple(place(a), b.low.next, a.low.running_ns, a.delay) <
             std::tuple(place(b), a.low.next, b.low.running_ns, b.delay);
    });
    size_t kept = 0, in_bucket = 0;
    auto last = place(states.front());
    for (const Reached& state : states) {
      const auto now = place(state);
      in_bucket = now == last ? in_bucket + 1 : 1;
      last = now;
      if (in_bucket <= kInBucket) states[kept++] = state;
    }
    states.resize(kept);
  }

  double frontier(const std::vector<LowState>& starts, int64_t most, bool& thinned) {
    std::vector<Reached> now, next;
    for (const LowState& start : starts) now.push_back({.low = canonical(start, grid_)});
    known_.clear();
    const uint64_t length = chain_.links.size();
    double best = 0;
    for (uint64_t n = 0; n < iterations_; ++n) {
      next.clear();
      for (const Reached& r : now) {
        const int64_t left = most_delay_ - r.delay;
        const int64_t limit = std::min(most, r.over < most_over_ ? left : std::min(left, tail_));
        LowState folded = r.low;
        folded.next %= length;
        const std::vector<Option>& all = known_options(folded, most);
        // What it finds running is not its doing.
        const int64_t found = n == 0 ? least_delay(all) : 0;
        for (const Option& o : all) {
          const int64_t delay = o.delay - found;
          if (delay > limit) continue;
          Reached to{o.low, r.delay + delay, r.work + o.work, 0, r.over + (delay > tail_ ? 1 : 0)};
          to.low.next += r.low.next - folded.next;
          if (n + 1 == iterations_) {
            best = std::max(best, (r.work + o.work_end) / (time_ + static_cast<double>(to.delay)));
          }
          next.push_back(to);
        }
      }
      std::swap(now, next);
      if (n + 1 == iterations_) break;
      if (now.size() > options_.frontier) {
        if (now.size() < 16 * options_.frontier) prune(now);
        if (now.size() > options_.frontier) thin_out(now, n + 1), thinned = true;
      }
      prune(now);
    }
    return best;
  }

  // Whether low kernels may need an iteration that exceeds the tail.
  bool plays_over() const {
    return most_over_ > 0 && most_delay_ > tail_ && chain_.longest > tail_;
  }

  // ---- bounds ----
  // As if the high task were not there, over any time that it may take.
  double undisturbed(const std::vector<LowState>& starts) const {
    double best = 0;
    for (LowState low : starts) {
      const auto shortest = static_cast<int64_t>(time_);
      int64_t free = low.running_ns;
      int64_t work = at(low.next + chain_.links.size() - 1).kernel ? low.running_ns : 0;
      while (free < shortest + most_delay_) {
        const int64_t start = std::max(free, low.ready_ns);
        const Link& link = at(low.next);
        begin(low, start);
        const int64_t before = work + (link.kernel ? std::clamp<int64_t>(shortest - start, 0, link.length) : 0);
        if (free <= shortest) best = std::max(best, static_cast<double>(before) / time_);
        free = start + link.length;
        work += link.kernel ? link.length : 0;
        if (free > shortest) {
          best = std::max(best, static_cast<double>(work) / static_cast<double>(free));
        }
      }
    }
    return best;
  }

  struct Edge {
    uint32_t to = 0;
    float delay = 0;
    double work = 0, work_end = 0;
  };

  // All rounded states that can be reached, in the order of how soon.
  bool explore(const std::vector<LowState>& starts, int64_t grid) {
    edges_.clear();
    first_edge_.assign(1, 0);
    within_.clear();
    std::unordered_map<Key, uint32_t, Hash> index;
    std::vector<LowState> states;
    const auto number = [&](const LowState& low) {
      const auto [found, added] = index.emplace(key_of(low), states.size());
      if (added) states.push_back(low);
      return found->second;
    };
    const uint64_t length = chain_.links.size();
    const auto folded = [&](LowState low) {
      low.next %= length;
      return canonical(low, grid);
    };
    for (const LowState& start : starts) number(folded(start));
    std::vector<Option> choices;
    for (size_t done = 0, depth = 0; depth < iterations_ && done < states.size(); ++depth) {
      const size_t here = states.size();
      within_.push_back(static_cast<uint32_t>(here));
      for (; done < here; ++done) {
        const int64_t most = std::min(tail_, most_delay_);
        options(states[done], most, grid, choices);
        const int64_t found = depth == 0 ? least_delay(choices) : 0;
        for (const Option& o : choices) {
          const int64_t delay = o.delay - found;
          if (delay > most) continue;
          edges_.push_back({number(folded(o.low)), static_cast<float>(delay), o.work, o.work_end});
        }
        first_edge_.push_back(static_cast<uint32_t>(edges_.size()));
        if (states.size() > kMostStates) return false;
      }
    }
    states_ = states.size();
    return true;
  }

  // The most of work - price * delay over all iterations. Those that exceed the tail are not played:
  // they may end in any state, and have the device do nothing but the two tasks' work.
  double value(const std::vector<LowState>& starts, double price) const {
    std::vector<double> before(states_, 0), after(states_, 0);
    const double idle = static_cast<double>(high_.alone + high_.pause - high_.work) -
                        std::max(0.0, price - 1) * static_cast<double>(tail_);
    double jump = 0;  // the most that one of these gains
    double rest = 0;
    for (uint64_t n = 1; n <= iterations_; ++n) {
      const auto known = [&](uint64_t depth) {
        return within_[std::min<uint64_t>(depth, within_.size() - 1)];
      };
      double least_gain = 1e300, most_gain = -1e300, least = 1e300, most = 0;
      for (size_t y = 0; n > 1 && y < known(iterations_ - n + 1); ++y) most = std::max(most, before[y]);
      for (size_t x = 0; x < known(iterations_ - n); ++x) {
        double best = -1e300;
        for (uint32_t e = first_edge_[x]; e < first_edge_[x + 1]; ++e) {
          const Edge& edge = edges_[e];
          best = std::max(best, (n == 1 ? edge.work_end : edge.work) -
                                    price * static_cast<double>(edge.delay) + before[edge.to]);
        }
        after[x] = best;
        least = std::min(least, best);
        least_gain = std::min(least_gain, best - before[x]);
        most_gain = std::max(most_gain, best - before[x]);
      }
      jump = std::max(jump, idle + most - least);
      std::swap(before, after);
      // Settled: every further iteration gains at most this.
      if (n > 8 && most_gain - least_gain < 1e-4 * std::abs(most_gain)) {
        rest = static_cast<double>(iterations_ - n) * most_gain;
        break;
      }
    }
    double best = 0;
    for (size_t x = 0; x < starts.size() && x < states_; ++x) best = std::max(best, before[x]);
    if (most_delay_ > tail_) {
      rest += static_cast<double>(most_over_) * jump +
              std::max(0.0, 1 - price) * static_cast<double>(most_delay_);
    }
    return best + rest;
  }

  double relaxed(const std::vector<LowState>& starts) {
    auto grid = std::max<int64_t>(1, grid_);
    while (!explore(starts, grid)) grid = static_cast<int64_t>(static_cast<double>(grid) * kCoarser);
    const auto bound = [&](double price) {
      const double most = value(starts, price);
      const auto delay = static_cast<double>(most_delay_);
      return std::max(most / time_, (most + price * delay) / (time_ + delay));
    };
    double best = bound(1);
    if (most_delay_ == 0) return best;
    // Convex in the price: by golden section, on its logarithm.
    constexpr double kGolden = 0.6180339887498949;
    double from = -3, to = 5;
    double a = to - kGolden * (to - from), b = from + kGolden * (to - from);
    double at_a = bound(std::exp2(a)), at_b = bound(std::exp2(b));
    for (int i = 0; i < kPrices; ++i) {
      best = std::min({best, at_a, at_b});
      if (at_a < at_b) {
        to = b, b = a, at_b = at_a;
        at_a = bound(std::exp2(a = to - kGolden * (to - from)));
      } else {
        from = a, a = b, at_a = at_b;
        at_b = bound(std::exp2(b = from + kGolden * (to - from)));
      }
    }
    return std::min({best, at_a, at_b});
  }

  High high_;
  Chain chain_;
  OracleOptions options_;
  int64_t grid_ = 0;

  // of the question that is being answered
  int64_t most_delay_ = 0, tail_ = 0;
  uint64_t most_over_ = 0, iterations_ = 0;
  double time_ = 0;

  std::unordered_map<Key, std::vector<Option>, Hash> known_;

  // scratch of play()
  std::vector<int64_t> end_, base_;

  std::vector<Edge> edges_;
  std::vector<uint32_t> first_edge_;  // by state
  std::vector<uint32_t> within_;      // states that can be reached in so many iterations
  size_t states_ = 0;
};

Oracle::Oracle(const Script& high, bool high_greedy, const Script& low, bool low_greedy,
               const OracleOptions& options)
    : impl_(std::make_unique<Impl>(high, high_greedy, low, low_greedy, options)) {}
Oracle::~Oracle() = default;
Oracle::Oracle(Oracle&&) noexcept = default;

bool Oracle::exact() const { return impl_->exact(); }
int64_t Oracle::alone_ns() const { return impl_->alone(); }
int64_t Oracle::pause_ns() const { return impl_->pause(); }
LowState Oracle::seen(const Progress& low) const { return impl_->seen(low); }
OracleRate Oracle::rate(const LowState& start, bool after_pause, uint64_t iterations,
                        const Allowance& allowance) {
  return impl_->rate(start, after_pause, iterations, allowance);
}

}  // namespace lull::simulate
