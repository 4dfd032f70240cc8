// How much credit a client has been granted on a device, and how much of that it has spent. The
// engine keeps one ledger a client and device, tells it of launches, and publishes what it answers.
// Pure.
//
// The grant that keeps what is in flight within a bound:
//
//   granted = spent + (bound - in flight - voided)   so that  spent + next <= granted
//                                                    means    in flight + next <= bound
//
// `in flight` and `bound` count predicted lengths. `spent`, `voided` and `next` count what launches
// are charged, the kernel's mean. `voided` is what is left of grants that were taken back, as long
// as the client may still spend it.
//
// While nothing of an odd grant is spent, it lets one launch of any length through (gate.h). It is
// given only while nothing is in flight. So a unit longer than the bound gets through.
//
//           grant, of a new epoch            grant: topped up, less, or of a new epoch
//   none ---------------------------> stands ----+
//    ^                                 | ^       |
//    +------------ take_back ----------+ +-------+
#pragma once

#include <optional>

#include "policies/vocabulary.h"

namespace lull::engine {

class CreditLedger {
 public:
  struct Ask {
    Duration bound;
    bool any_length = true;
    Duration step;  // topped up when there is at least this much to give
    Duration in_flight;
    uint32_t units = 0;      // in flight
    bool long_launch = false;  // a launch waits that is longer than the bound, and may go alone
    bool stale = false;      // a launch waits that should fit: the count of spent credit is wrong
  };
  struct Grant {
    Duration granted;        // the total of the epoch
    bool new_epoch = false;  // voids what was granted before
  };
  // What to publish; nothing: the present grant stays. A change takes effect `latency` after `now`,
  // here and below.
  std::optional<Grant> grant(const Ask& ask, Instant now, Duration latency);
  // The gate is no longer a credit.
  void take_back(Instant now, Duration latency);
  // A launch that was not released by name has gone.
  void launched(Duration charged, Instant at, Duration latency);

  bool stands() const { return stands_; }
  bool fits(Duration charged) const { return stands_ && spent_ + charged <= granted_; }
  // Nothing of the grant is spent.
  bool is_untouched() const { return stands_ && spent_.ns == 0 && granted_.ns > 0; }
  // The untouched grant lets a launch with this charge through: it fits, or the grant is for any length.
  bool lets_through(Duration charged) const {
    return is_untouched() && (fits(charged) || is_for_any_length());
  }
  Duration granted() const { return granted_; }
  Duration limit() const { return limit_; }
  Instant granted_at() const { return granted_at_; }
  // From when on credit that was taken back can no longer be spent; kNever: none was taken back.
  Instant settles_at() const { return stands_ && voided_.ns > 0 ? voided_until_ : kNever; }

 private:
  bool is_for_any_length() const { return (granted_.ns & 1) != 0; }
  bool renews(const Ask& ask) const;
  void void_rest(Instant now, Duration latency);

  bool stands_ = false;
  Duration limit_;  // the bound last asked for
  Duration granted_;
  Duration spent_;  // what the client's own count should say, as gate.h counts it
  Instant epoch_began_;
  Instant granted_at_;  // last change of the grant
  Duration voided_;
  Instant voided_until_;
};

}  // namespace lull::engine
