#include "tools/simulate/oracle/priced.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <tuple>
#include <unordered_map>

namespace lull::simulate {
namespace {

// Prices are in an iteration's time, and those that are tried powers of two about these: far and
// then close.
constexpr double kMiddleDelay = 64, kMiddleOver = 64;
constexpr int kFar = 20, kClose = 3;
// Where a schedule is looked for: into how many parts each allowance is cut, how many labels there
// may be, and how much of the allowances may be wasted on the way.
constexpr int64_t kParts[] = {4, 64};
constexpr size_t kMostLabels = 60'000;
constexpr double kLoss = 0.1, kNear = 0.99;

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
  return iteration() * (static_cast<double>(label.iterations) +
                        static_cast<double>(label.over) * price.over) +
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

Priced::Found Priced::search(const Price& price, Keep keep, int64_t parts, const Found* guide) {
  const double all = budget(price);
  const double begun = interval_.done(starts_.front());
  std::unordered_map<int64_t, std::vector<Label>> kept;
  const auto among = [&](const Label& label) -> std::vector<Label>& {
    const auto n = static_cast<int64_t>(label.iterations);
    const auto over = static_cast<int64_t>(label.over);
    if (keep == Keep::kOne) return kept[0];
    const int64_t spent = label.delay / (q_.most_delay / parts + 1);
    const int64_t gone = n * parts / static_cast<int64_t>(q_.iterations);
    return kept[(over * (parts + 1) + spent) * (parts + 1) + gone];
  };
  const auto better = [&](const Label& a, const Label& b) {
    return interval_.no_worse(a.low, b.low);
  };
  const auto allowed = [&](const Label& label) {
    return label.iterations <= q_.iterations && label.delay <= q_.most_delay &&
           label.over <= q_.most_over;
  };
  const auto hopeless = [&](const Label& label) {
    if (keep == Keep::kOne ? label.cost > all : !allowed(label)) return true;
    if (guide != nullptr) {
      const auto least = std::lower_bound(guide->course.begin(), guide->course.end(),
                                          std::pair(interval_.done(label.low) - begun, 0.0));
      if (least != guide->course.end() &&
          cost(label, guide->price) > least->second + kLoss * budget(guide->price)) {
        return true;
      }
    }
    const std::vector<Label>& others = among(label);
    return std::any_of(others.rbegin(), others.rend(),
                       [&](const Label& other) { return better(other, label); });
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
    label.found = least_delay(interval_.known_options(interval_.folded(label.low), q_.most_delay));
    push(label);
  }
  Found found{.price = price};
  size_t count = 0;
  while (!queue.empty()) {
    const Label label = labels[queue.top().second];
    unused.push_back(queue.top().second);
    queue.pop();
    if (hopeless(label)) continue;
    std::vector<Label>& others = among(label);
    std::erase_if(others, [&](const Label& other) { return better(label, other); });
    others.push_back(label);
    count += 1;
    if (keep == Keep::kSome && count > kMostLabels) break;
    const double far = interval_.done(label.low) - begun;
    if (far > found.furthest) {
      found.furthest = far;
      found.at = label;
      found.course.emplace_back(far, label.cost);
      // All of that, and the least delay that pays for it.
      const double without = all - static_cast<double>(q_.most_delay) * price.delay;
      const double late = std::max(0.0, label.cost - without) / price.delay;
      found.most = std::max(found.most, far / (q_.time + late));
    }
    for (const Option& o : interval_.known_options(interval_.folded(label.low), q_.most_delay).all) {
      Label to = label;
      to.low = o.low;
      to.low.next += label.low.next - label.low.next % interval_.length();
      const int64_t delay = std::max<int64_t>(0, o.delay - label.found);
      const int64_t least = std::max<int64_t>(0, o.least - label.found);
      to.found = 0;
      to.delay += delay;
      to.least += least;
      to.iterations += 1;
      to.work += o.work;
      to.cost += iteration() + static_cast<double>(least) * price.delay;
      if (least > q_.tail) to.over += 1, to.cost += iteration() * price.over;
      if (allowed(to)) {
        const double work = to.iterations == q_.iterations ? label.work + o.work_end : to.work;
        found.reached = std::max(found.reached, work / (q_.time + static_cast<double>(to.delay)));
      }
      if (keep == Keep::kSome && to.iterations >= q_.iterations) continue;
      if (!hopeless(to)) push(to);
    }
  }
  return found;
}

OracleRate Priced::rate(double undisturbed) {
  OracleRate rate{.most = 1};
  Found guide;
  // Every price gives a bound; what one price lets the low task do, it may do at every other that
  // pays for the same.
  const auto try_all = [&](std::vector<Price> prices) {
    while (!prices.empty()) {
      const Price price = middle(prices);
      Found found = search(price, Keep::kOne);
      std::erase_if(prices, [&](const Price& other) {
        return (other.delay == price.delay && other.over == price.over) ||
               cost(found.at, other) <= budget(other);
      });
      rate.reached = std::max(rate.reached, found.reached);
      if (found.most >= rate.most) continue;
      rate.most = found.most;
      guide = std::move(found);
    }
  };
  const double over = q_.most_over > 0 ? 1 : 0;
  try_all(about({kMiddleDelay, over * kMiddleOver}, kFar, 0.5));
  try_all(about(guide.price, kClose, 0.125));
  for (const int64_t parts : kParts) {
    if (rate.reached >= kNear * rate.most) break;
    const Found found = search(guide.price, Keep::kSome, parts, &guide);
    rate.reached = std::max(rate.reached, found.reached);
  }
  rate.most = std::max(rate.reached, std::min(rate.most, undisturbed));
  return rate;
}

}  // namespace lull::simulate
