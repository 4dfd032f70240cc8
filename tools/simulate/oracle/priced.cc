#include "tools/simulate/oracle/priced.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <tuple>

namespace lull::simulate {
namespace {

// The prices that are tried lie around these by powers of two: first in coarse steps far around,
// then in fine steps around the best.
constexpr double kMiddleDelay = 64, kMiddleOver = 64;
constexpr int kFar = 20, kClose = 3;
// Labels of all searches together: about 10 s.
constexpr size_t kMostLabels = 3'000'000;
constexpr double kNear = 0.998;  // as Frontier's

}  // namespace

double Priced::iteration() const {
  return static_cast<double>(interval_.high().alone + interval_.high().pause);
}

double Priced::budget(const Price& price) const {
  return iteration() *
             (static_cast<double>(q_.iterations) + static_cast<double>(q_.most_over) * price.over) +
         static_cast<double>(q_.most_delay) * price.delay;
}

double Priced::cost(const Label& label, const Price& price) const {
  return label.time + iteration() * static_cast<double>(label.over) * price.over +
         static_cast<double>(label.least) * price.delay;
}

std::vector<Priced::Price> Priced::about(const Price& price, int times, double step) {
  std::vector<Price> prices;
  for (int i = -times; i <= times; ++i) {
    for (int j = -times; j <= (price.over > 0 ? times : -times); ++j) {
      prices.push_back({price.delay * std::exp2(i * step), price.over * std::exp2(j * step)});
    }
  }
  return prices;
}

Priced::Price Priced::middle(std::vector<Price>& prices) {
  const auto half = prices.begin() + static_cast<std::ptrdiff_t>(prices.size() / 2);
  const auto by_delay = [](const Price& a, const Price& b) { return a.delay < b.delay; };
  std::sort(prices.begin(), prices.end(), [](const Price& a, const Price& b) {
    return std::tie(a.delay, a.over) < std::tie(b.delay, b.over);
  });
  const auto [first, end] = std::equal_range(prices.begin(), prices.end(), *half, by_delay);
  return first[(end - first) / 2];
}

Priced::Found Priced::search(const Price& price) {
  const double all = budget(price);
  const double begun = interval_.done(starts_.front());
  const std::vector<Segment>& segments = interval_.high().segments;
  std::vector<std::vector<Label>> kept(segments.size());
  // Whether `a` makes `b` useless, at no more cost. If `a` has paid for an iteration beyond the
  // tail, `b` has paid as well, or may have to.
  const auto better = [&](const Label& a, const Label& b) {
    return (a.here > q_.tail || (a.here <= b.here && b.here <= q_.tail)) &&
           interval_.no_worse(a.low, b.low);
  };
  const auto hopeless = [&](const Label& label) {
    const std::vector<Label>& others = kept[label.segment];
    return label.cost > all || std::any_of(others.rbegin(), others.rend(), [&](const Label& other) {
             return better(other, label);
           });
  };
  using Due = std::pair<double, uint32_t>;  // cost, and where in `labels`
  std::priority_queue<Due, std::vector<Due>, std::greater<>> queue;
  std::vector<Label> labels;
  std::vector<uint32_t> unused;
  const auto push = [&](const Label& label) {
    if (unused.empty())
      unused.push_back(static_cast<uint32_t>(labels.size())), labels.emplace_back();
    labels[unused.back()] = label;
    queue.emplace(label.cost, unused.back());
    unused.pop_back();
  };
  for (const LowState& start : starts_) {
    Label label{.low = interval_.canonical(start, interval_.grid())};
    // The delay by what runs at the start is not charged.
    label.here = label.least = label.delay = -interval_.least_delay(interval_.folded(label.low));
    label.cost = cost(label, price);
    push(label);
  }
  Found found;
  while (!queue.empty()) {
    const Label label = labels[queue.top().second];
    unused.push_back(queue.top().second);
    queue.pop();
    if (hopeless(label)) continue;
    std::vector<Label>& others = kept[label.segment];
    std::erase_if(others, [&](const Label& other) { return better(label, other); });
    others.push_back(label);
    if (++labels_ > kMostLabels) {
      found.complete = false;
      break;
    }
    const double far = interval_.done(label.low) - begun;
    if (far > found.furthest) {
      found.furthest = far;
      found.at = label;
      // It has done that much, in the time that it takes with the least delay that pays for it.
      const double without = all - static_cast<double>(q_.most_delay) * price.delay;
      const double late = std::max(0.0, label.cost - without) / price.delay;
      found.most = std::max(found.most, far / (q_.time + late));
    }
    const Segment& segment = segments[label.segment];
    const bool last = label.segment + 1 == segments.size();
    const LowState folded = interval_.folded(label.low);
    for (const Option& o : interval_.known_options(label.segment, folded, q_.most_delay).all) {
      Label to = label;
      to.low = o.low;
      to.low.next += label.low.next - folded.next;
      to.delay += o.delay;
      to.least += o.least;
      to.here += o.least;
      if (label.here <= q_.tail && to.here > q_.tail) to.over += 1;
      to.time += static_cast<double>(segment.alone + (last ? interval_.high().pause : 0));
      to.work += o.work;
      to.segment = last ? 0 : label.segment + 1;
      if (last) to.iterations += 1, to.here = 0;
      to.cost = cost(to, price);
      if (last && to.iterations <= q_.iterations && to.delay <= q_.most_delay &&
          to.over <= q_.most_over) {
        const double work = to.iterations == q_.iterations ? label.work + o.work_end : to.work;
        found.reached = std::max(found.reached, work / (q_.time + static_cast<double>(to.delay)));
      }
      if (!hopeless(to)) push(to);
    }
  }
  return found;
}

OracleRate Priced::rate(double reached) {
  OracleRate rate{.most = 1, .reached = reached};
  Price best;
  // Every price gives a bound. What the low task does at one price it can do at every other price
  // whose budget pays for it: such prices need not be tried.
  const auto try_all = [&](std::vector<Price> prices) {
    while (!prices.empty() && rate.reached < kNear * rate.most) {
      const Price price = middle(prices);
      const Found found = search(price);
      rate.reached = std::max(rate.reached, found.reached);
      if (!found.complete) return;
      if (found.most < rate.most) rate.most = found.most, best = price;
      std::erase_if(prices, [&](const Price& other) {
        return (other.delay == price.delay && other.over == price.over) ||
               cost(found.at, other) <= budget(other);
      });
    }
  };
  const double over = q_.most_over > 0 ? 1 : 0;
  try_all(about({kMiddleDelay, over * kMiddleOver}, kFar, 0.5));
  if (labels_ <= kMostLabels) try_all(about(best, kClose, 0.125));
  return rate;
}

}  // namespace lull::simulate
