// How an iteration of one task goes when nobody is in its way: when each launch is made, when the
// device is through with it, where the host waits, and so how much the device may be delayed at any
// place before the host notices: its slack.
//
// Kept by `guarded` for each task that it protects. Learnt from clean iterations, those in which no
// lower work was on the device; a position is a launch's place in the detected iteration. Pure.
//
//   slack(p) = own time from now until the host's next wait ends - device work until there
#pragma once

#include <cstdint>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::policies {

class OwnTimeline {
 public:
  // ---- recording the iteration in progress ----
  void restart(uint32_t length);  // a new template: forget everything
  void begin(Instant at);
  void launched(uint32_t position, Instant at, Duration predicted);
  // The host has waited for everything launched so far.
  void synced(Instant at);
  // The device is idle since `at`: the end where the program waits by other means.
  void idle(Instant at);
  // The iteration has ended; returns its service time, 0 if nothing of it was seen. `clean`: it
  // counts.
  Duration end(bool clean);

  // ---- what is known ----
  uint32_t length() const { return static_cast<uint32_t>(places_.size()); }
  uint64_t clean_iterations() const { return clean_; }
  bool known() const { return clean_ >= kEnough; }
  Duration service() const { return {service_ns_}; }
  Instant started() const { return started_; }
  // How late the host made its last launch, against its own time.
  Duration host_late() const { return {host_late_ns_}; }
  uint32_t next_position() const { return next_; }
  // Over the launches from `position` to the host's next wait: their work on the device, and when
  // after the start the wait ends.
  struct Stretch {
    Duration work;
    Duration due;
  };
  Stretch stretch(uint32_t position) const;

  static constexpr uint64_t kEnough = 4;

 private:
  struct Place {
    int64_t launch_ns = 0;  // after the start
    int64_t work_ns = 0;
    int64_t sync_ns = -1;   // the wait after this launch ends; < 0: none
  };
  struct Seen {
    int64_t launch_ns = -1;
    int64_t work_ns = 0;
    int64_t sync_ns = -1;
  };
  void derive();

  std::vector<Place> places_;
  std::vector<int64_t> work_after_;    // of the launches from here on to the end
  std::vector<uint32_t> next_wait_;    // the first position from here on with a wait
  std::vector<Seen> seen_;
  Instant started_ = kNever;
  uint32_t next_ = 0;
  uint32_t last_ = 0;
  bool any_ = false;
  int64_t end_ns_ = 0;
  int64_t host_late_ns_ = 0;
  int64_t service_ns_ = 0;
  uint64_t clean_ = 0;
  uint32_t odd_ = 0;  // clean iterations in a row that were far from what is known
};

}  // namespace lull::policies
