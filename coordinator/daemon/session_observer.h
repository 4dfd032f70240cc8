// Told what the clients' records say, record by record, beside the engine: the trace recorder is
// one. Called on the loop thread, inside Session::drain; changes nothing that the engine sees. Times
// are when the client says it was, and may lie behind the `now` of the drain.
#pragma once

#include "coordinator/channel/daemon_view.h"
#include "coordinator/channel/layout.h"
#include "policies/vocabulary.h"

namespace lull::daemon {

class Session;

// Records are checked as far as the engine needs it: kernel slots are known, `device` is the one
// the record names.
class SessionObserver {
 public:
  virtual ~SessionObserver() = default;
  // `at`: when it went to the driver.
  virtual void launched(Session& session, const channel::lull_record& record, ThreadSlot thread,
                        DeviceId device, Instant at) = 0;
  virtual void held(Session& session, ThreadSlot thread, Ticket ticket, DeviceId device,
                    Instant since) = 0;
  // `launched`: when the measured unit was launched, kNever: not known.
  virtual void timed(Session& session, const channel::lull_record& record, Instant launched) = 0;
  // `waited`: how long the thread's call took that has shown it; 0: not known, or told before.
  virtual void synced(Session& session, ThreadSlot thread, StreamSlot stream, uint64_t sequence,
                      Duration waited, Instant at) = 0;
  // A range of the program's own marking, ended at `at`; names and kind are as the client says.
  virtual void ranged(Session& session, const channel::lull_record& record, ThreadSlot thread,
                      Duration length, Instant at) = 0;
  virtual void cancelled(Session& session, StreamSlot stream, uint64_t sequence, Instant at) = 0;
};

}  // namespace lull::daemon
