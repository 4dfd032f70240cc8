#include "tools/simulate/oracle/flow.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <unordered_map>

#include "tools/simgpu/device/device_model.h"

namespace lull::simulate {
namespace {

constexpr int64_t kGreedyCallNs = 1000;  // as Program's

}  // namespace

// ---- a script as works, waits and what they follow ----------------------------------------------

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
                           .call = host - at,
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
        if (event[call.event] == kNone) break;
        work(call.stream, {.offset = at, .after = {event[call.event]}});
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

// ---- the high task ------------------------------------------------------------------------------

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
    if (!item.wait) continue;
    high.exact = high.exact && flow.waits[item.index].all;
    if (!flow.waits[item.index].all) continue;
    const int64_t end = flow.wait_end[item.index];
    segment.start = start;
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

namespace {

std::vector<Item> order_of_launches(const Flow& flow) {
  std::vector<Item> order;
  order.reserve(flow.order.size());
  uint32_t wait = 0;
  for (uint32_t work = 0; work < flow.works.size(); ++work) {
    while (wait < flow.works[work].stretch) order.push_back({.wait = true, .index = wait++});
    order.push_back({.wait = false, .index = work});
  }
  while (wait < flow.waits.size()) order.push_back({.wait = true, .index = wait++});
  return order;
}

}  // namespace

Chain chain_of(const Script& script, bool greedy) {
  const Flow flow = flow_of(script, greedy);
  Chain chain;
  const int64_t pause = greedy ? 0 : static_cast<int64_t>(script.pause_after_ns);
  // For each work: the last link that it waits for, the time from that link's end to its own end,
  // and when it would be done, in its stretch, if only the host delayed it.
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
  for (const Item& item : order_of_launches(flow)) {
    Behind now;
    const auto gather = [&](const std::vector<uint32_t>& works, uint32_t of) {
      for (const uint32_t before : works) {
        const Behind& b = behind[before];
        if (b.link > now.link)
          now.link = b.link, now.lag = b.lag;
        else if (b.link == now.link)
          now.lag = std::max(now.lag, b.lag);
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
    Link link{.length = work.length, .kernel = work.kernel, .call = work.call};
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
  // The next iteration begins after what the host does once that wait has returned.
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

}  // namespace lull::simulate
