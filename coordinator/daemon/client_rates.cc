#include "coordinator/daemon/client_rates.h"

#include <algorithm>

namespace lull::daemon {

void ClientRates::begin(ClientId client, Instant at) {
  const ClientTotals nothing{.at = at};
  seen_.try_emplace(client, Seen{nothing, nothing});
}

ClientRate ClientRates::look(ClientId client, const ClientTotals& now) {
  Seen& seen = seen_.try_emplace(client, Seen{now, now}).first->second;
  if (now.at - seen.last.at >= kShortest) {
    seen.from = seen.last;
    seen.last = now;
  }
  const double span_ns = static_cast<double>((now.at - seen.from.at).ns);
  if (span_ns <= 0) return {};
  const auto share = [&](int64_t ns) {
    return std::clamp(static_cast<double>(ns) / span_ns, 0.0, 1.0);
  };
  const uint64_t launches = now.launches - std::min(now.launches, seen.from.launches);
  return {.busy_share = share(now.busy_ns - seen.from.busy_ns),
          .launches_per_s = static_cast<double>(launches) * 1e9 / span_ns,
          .held_share = share(now.held_ns - seen.from.held_ns)};
}

}  // namespace lull::daemon
