#include "tools/lull/trace/busy_union.h"

#include <algorithm>

namespace lull::trace {

void BusyUnion::add(int64_t start_ns, int64_t end_ns) {
  waiting_.emplace_back(start_ns, std::max(start_ns, end_ns));
  if (waiting_.size() < kWindow) return;
  sort();
  retire(kWindow / 2);
}

void BusyUnion::sort() {
  const auto fresh = waiting_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  std::sort(fresh, waiting_.end());
  std::inplace_merge(waiting_.begin(), fresh, waiting_.end());
  sorted_ = waiting_.size();
}

void BusyUnion::finish() {
  sort();
  retire(waiting_.size());
  if (!any_) return;
  busy_ns_ += open_until_ns_ - open_from_ns_;
  if (sink_) sink_(open_from_ns_, open_until_ns_);
}

void BusyUnion::retire(size_t how_many) {
  for (size_t i = 0; i < how_many; ++i) {
    const auto [start_ns, end_ns] = waiting_[i];
    if (!any_) {
      any_ = true;
      first_ns_ = open_from_ns_ = start_ns;
      open_until_ns_ = end_ns;
    } else if (start_ns > open_until_ns_) {
      busy_ns_ += open_until_ns_ - open_from_ns_;
      idle_.add(start_ns - open_until_ns_);
      if (sink_) sink_(open_from_ns_, open_until_ns_);
      open_from_ns_ = start_ns;
      open_until_ns_ = end_ns;
    } else {
      open_until_ns_ = std::max(open_until_ns_, end_ns);
    }
    last_ns_ = open_until_ns_;
  }
  sorted_ -= how_many;
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(how_many));
}

}  // namespace lull::trace
