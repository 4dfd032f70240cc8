// What a client has been granted on a device under credit, and what of that it has spent. The
// engine keeps one a seat, tells it of launches, and publishes what it answers. Pure.
//
// The grant that keeps what is in flight within a bound:
//
//   granted = spent + (bound - in flight - voided)   so that  spent + next <= granted
//                                                    means    in flight + next <= bound
//
// In flight is as predicted, and so is the bound; spent, voided and next are as charged, by the
// kernel's mean. `voided` is what is left of grants that were taken back, as long as the client may
// still spend it.
//
// An odd grant lets one launch through however long while nothing of it is spent (gate.h): given
// only with nothing in flight, and that is how a unit longer than the bound gets through.
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
    Duration step;  // topped up when there is so much to give
    Duration in_flight;
    uint32_t units = 0;      // in flight
    bool long_head = false;  // a launch waits that is longer than the bound, and may go alone
    bool stale = false;      // one waits that should fit: what we take for spent has drifted
  };
  struct Grant {
    Duration granted;        // the total of the epoch
    bool new_epoch = false;  // voids what was granted before
  };
  // What is to be published; nothing: what stands is right. It is in effect `latency` after `now`,
  // here as below.
  std::optional<Grant> grant(const Ask& ask, Instant now, Duration latency);
  // The gate is no credit any more.
  void take_back(Instant now, Duration latency);
  // A launch that nobody let go by name has gone.
  void launched(Duration charged, Instant at, Duration latency);

  bool stands() const { return stands_; }
  bool fits(Duration charged) const { return stands_ && spent_ + charged <= granted_; }
  // Nothing of a grant is spent: whatever waits may go if nothing is in flight.
  bool is_untouched() const { return stands_ && spent_.ns == 0 && granted_.ns > 0; }
  Duration granted() const { return granted_; }
  Duration limit() const { return limit_; }
  Instant granted_at() const { return granted_at_; }
  // When what was taken back is surely not spent any more; kNever: nothing was.
  Instant settles_at() const { return stands_ && voided_.ns > 0 ? voided_until_ : kNever; }

 private:
  bool renews(const Ask& ask) const;
  void void_rest(Instant now, Duration latency);

  bool stands_ = false;
  Duration limit_;  // that was asked for
  Duration granted_;
  Duration spent_;  // what the client's own count should say, as gate.h counts it
  Instant epoch_began_;
  Instant granted_at_;  // last change of the grant
  Duration voided_;
  Instant voided_until_;
};

}  // namespace lull::engine
