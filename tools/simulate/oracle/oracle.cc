#include "tools/simulate/oracle/oracle.h"

#include <algorithm>
#include <vector>

#include "tools/simulate/oracle/flow.h"
#include "tools/simulate/oracle/frontier.h"
#include "tools/simulate/oracle/interval.h"

namespace lull::simulate {

class Oracle::Impl {
 public:
  Impl(const Script& high, bool high_greedy, const Script& low, bool low_greedy,
       const OracleOptions& options)
      : interval_(high_of(high, high_greedy), chain_of(low, low_greedy), options) {}

  bool exact() const { return interval_.high().exact && interval_.chain().in_order; }
  int64_t alone() const { return interval_.high().alone; }
  int64_t pause() const { return interval_.high().pause; }

  LowState seen(const Progress& low) const {
    const Chain& chain = interval_.chain();
    if (chain.links.empty()) return {};
    LowState state;
    state.next = low.completed + (low.running.ns >= 0 ? 1 : 0);
    state.running_ns = std::max<int64_t>(0, low.running.ns);
    const Link& link = interval_.at(state.next);
    if (low.between) {
      state.base_ns = low.due.ns - chain.begin;
    } else {
      const size_t call = std::min(low.call, chain.calls.size() - 1);
      state.base_ns = low.waiting ? -link.horizon : low.due.ns - chain.calls[call];
      // If the host waits for what runs, or is about to, it comes back no sooner than that ends.
      const bool waits =
          state.next == low.launched && state.next > 0 && interval_.at(state.next - 1).waited;
      if (waits) {
        state.base_ns = low.waiting ? state.running_ns : std::min(state.base_ns, state.running_ns);
      }
    }
    state.ready_ns = std::max({int64_t{0}, state.running_ns, state.base_ns + link.offset});
    return interval_.canonical(state, 0);
  }

  OracleRate rate(LowState start, bool after_pause, uint64_t iterations,
                  const Allowance& allowance) {
    if (iterations == 0 || !interval_.chain().works) return {};
    const auto one = static_cast<double>(alone());
    const auto count = static_cast<double>(iterations);
    const double time = count * one + (count - 1) * static_cast<double>(pause());
    const double most_delay = allowance.mean * one * count;
    interval_.ask({.most_delay = static_cast<int64_t>(most_delay + 1e-6),
                   .tail = static_cast<int64_t>(allowance.tail * one + 1e-6),
                   .most_over = static_cast<uint64_t>(allowance.over * count + 1e-9),
                   .iterations = iterations,
                   .time = time});
    std::vector<LowState> starts{interval_.canonical(start, 0)};
    if (after_pause) {
      Played waited;
      interval_.run_low(start, 0, pause(), pause(), waited);
      starts = {interval_.canonical(waited.low, 0)};
      if (waited.crossing) starts.push_back(interval_.canonical(waited.before, 0));
    }
    // Up to a step of each segment's delay is not counted. With many segments the figure may so
    // exceed what the high task's kernels leave of the device. No schedule can do more than that.
    // The kernels of the last iteration do not count, as its end may not wait for them.
    const double left = 1 - (count - 1) * static_cast<double>(interval_.high().work) / (time + most_delay);
    const OracleRate found = Frontier(interval_, starts).rate();
    if (found.most <= left) return found;
    return {std::max(0.0, left), found.reached <= left ? found.reached : 0};
  }

 private:
  Interval interval_;
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
