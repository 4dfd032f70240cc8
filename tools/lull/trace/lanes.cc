#include "tools/lull/trace/lanes.h"

#include <algorithm>

#include "tools/lull/trace/log_histogram.h"

namespace lull::trace {
namespace {

constexpr int64_t kFirstStretchNs = 256;

void merge(Span& into, const Span& span) {
  into.start_ns = std::min(into.start_ns, span.start_ns);
  into.end_ns = std::max(into.end_ns, span.end_ns);
  into.busy_ns = add_ns(into.busy_ns, span.busy_ns);
  into.count += span.count;
  if (span.longest_ns > into.longest_ns) {
    into.longest_ns = span.longest_ns;
    into.what = span.what;
  }
}

}  // namespace

void Lanes::add(const LaneKey& lane, int64_t start_ns, int64_t end_ns, uint32_t what) {
  end_ns = std::max(start_ns, end_ns);
  if (lane.kind == LaneKind::kCalls && drawn_.contains(lane.client.value)) return;
  if (last_lane_ == nullptr || last_key_ != lane) {
    // Half as many lanes as spans: else there is no room in them to merge into.
    const size_t most = std::clamp<size_t>(max_spans_ / 2, 1, kMaxLanes);
    if (lanes_.size() >= most && !lanes_.contains(lane)) return;
  }
  first_ns_ = lanes_.empty() ? start_ns : std::min(first_ns_, start_ns);
  last_ns_ = lanes_.empty() ? end_ns : std::max(last_ns_, end_ns);
  if (last_lane_ == nullptr || last_key_ != lane) {
    if (lane.kind == LaneKind::kStream && drawn_.insert(lane.client.value).second) {
      drop_calls_of_drawn_clients();
    }
    last_lane_ = &lanes_[lane];
    last_key_ = lane;
  }
  const Span span{start_ns, end_ns, end_ns - start_ns, end_ns - start_ns, 1, what};
  if (!last_lane_->empty() && merges(last_lane_->back(), span)) {
    merge(last_lane_->back(), span);
    return;
  }
  last_lane_->push_back(span);
  if (++spans_ > max_spans_) compact();
}

void Lanes::drop_calls_of_drawn_clients() {
  std::erase_if(lanes_, [this](const auto& lane) {
    const bool drop =
        lane.first.kind == LaneKind::kCalls && drawn_.contains(lane.first.client.value);
    if (drop) spans_ -= lane.second.size();
    return drop;
  });
}

void Lanes::finish() { sort(); }

void Lanes::sort() {
  for (auto& [key, spans] : lanes_) {
    std::sort(spans.begin(), spans.end(),
              [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; });
  }
}

void Lanes::compact() {
  sort();
  // Half of the bound is aimed at, so that this is seldom; one span a lane is the least there is.
  const size_t aim = std::max(max_spans_ / 2, lanes_.size());
  do {
    const int64_t range_ns = last_ns_ - first_ns_;
    stretch_ns_ = std::max({add_ns(stretch_ns_, stretch_ns_), kFirstStretchNs,
                            range_ns / static_cast<int64_t>(8 * max_spans_)});
    spans_ = 0;
    for (auto& [key, spans] : lanes_) {
      size_t kept = 0;
      for (size_t i = 0; i < spans.size(); ++i) {
        if (kept > 0 && merges(spans[kept - 1], spans[i])) {
          merge(spans[kept - 1], spans[i]);
        } else {
          spans[kept++] = spans[i];
        }
      }
      spans.resize(kept);
      spans_ += kept;
    }
  } while (spans_ > aim && stretch_ns_ <= (last_ns_ - first_ns_));
}

}  // namespace lull::trace
