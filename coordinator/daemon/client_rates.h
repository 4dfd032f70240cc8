// How much each client does lately, from its totals at two moments: the device's time it gets, its
// launches a second, how much of the time it is held. Moments are those of the answers to `status`,
// at least kShortest apart; the first answer counts from the client's first sight. Model time, as
// the totals' own. Loop thread only.
#pragma once

#include <cstdint>
#include <map>

#include "policies/vocabulary.h"

namespace lull::daemon {

struct ClientTotals {
  Instant at;
  uint64_t launches = 0;
  int64_t busy_ns = 0;  // device time used, on the device where it is most
  int64_t held_ns = 0;  // of all threads together
};

struct ClientRate {
  double busy_share = 0;  // 0 .. 1
  double launches_per_s = 0;
  double held_share = 0;  // 0 .. 1; of several held threads together, 1 at most
};

class ClientRates {
 public:
  static constexpr Duration kShortest{500'000'000};

  void begin(ClientId client, Instant at);
  ClientRate look(ClientId client, const ClientTotals& now);
  void forget(ClientId client) { seen_.erase(client); }

 private:
  struct Seen {
    ClientTotals from;  // the rates are counted from here
    ClientTotals last;  // and next from here
  };
  std::map<ClientId, Seen> seen_;
};

}  // namespace lull::daemon
