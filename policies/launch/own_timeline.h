// How an iteration of one task goes when nobody is in its way: when the host makes each launch,
// what it is for the device, where the host waits; and so how much the device may be kept from it
// before the host notices: its slack.
//
// Kept by TaskGuard for each task that it protects, and fed with every stretch (the launches up to
// a wait of the host). It learns from those that others did not delay, and so goes on learning while
// they run. A position is a launch's place in the detected iteration. Pure.
//
//   slack = the wait's own end - now - device work until there
//   own end: from the last launch on, the mean of what it took so far less kDeviations times the
//   mean deviation, so that a host of varying pace has less slack, and one of random pauses none.
#pragma once

#include <cstdint>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::policies {

class OwnTimeline {
 public:
  void restart(uint32_t length);  // a new template: forget everything

  // ---- the iteration in progress ----
  // The next launch is the first of an iteration. Whether service_start() has become another.
  bool begin();
  // `backlog`: own work before it that the device would not have done yet with nobody else there.
  void launched(uint32_t position, Instant at, Duration backlog);
  // The pause before a launch that can be relied on: none where it varies as waiting for requests does.
  Duration sure_pause(uint32_t position) const;
  // When the next launch may come at the earliest.
  Instant next_launch() const;
  // The host is away, and most likely for longer than `length` from now: it waits for a request, or
  // for what else comes at random.
  bool is_away(Instant now, Duration length) const;
  // How long it is away is at random there: a request may come at any time.
  bool pauses_at_random() const;
  // Somewhere in most iterations it is surely away for longer than that; or it pauses at random, and
  // for so long that it will be now and then.
  bool goes_away(Duration length) const { return longest_away_ns_ > length.ns; }
  // By how much longer the host has paused before a launch at `position` now than it usually does.
  Duration longer_pause(uint32_t position, Instant now) const;
  // What the launch at `position` took the device, seen or else predicted.
  void worked(uint32_t position, Duration took, bool seen);
  // A wait has ended at `at`: by how much that may at most be later than it ends by itself. Without
  // bound where that varies by more than `precision`.
  Duration lateness(Instant at, Duration precision) const;
  // ... `delay` of it for others; `plain`: nobody was in its way. What was known before the first
  // such time is a guess, and is forgotten.
  void waited(Instant at, Duration delay, bool plain);

  // ---- what is known ----
  uint32_t length() const { return static_cast<uint32_t>(places_.size()); }
  bool known() const { return whole_ >= kEnough; }
  // The host waits in most iterations. Else what was detected is only part of what it waits for, one
  // of ten equal launches say, and says nothing of slack.
  bool has_waits() const { return has_waits_; }
  // When the next wait ends by itself, as far as can be said at `now`.
  Instant due(Instant now) const;
  // What the launch at `position` takes, where that was seen; < 0 else.
  Duration seen_work(uint32_t position) const;
  // Own work of the launches from the one at `from`, made already or the next, to the next wait.
  Duration work(uint32_t from) const;
  // The launch that comes next; after the last one, the first.
  uint32_t next_position() const { return next_ >= places_.size() ? 0 : next_; }
  // Whom an iteration serves waits for most of it: one ends with the wait after the longest stretch,
  // and the next begins with the launch behind that.
  uint32_t service_start() const { return service_start_; }
  // Every launch of such a one has been made.
  bool service_launched() const { return next_position() == service_start_; }
  // The most slack that any moment of an iteration has, at its launches or before its first.
  Duration best_slack() const { return {best_slack_ns_}; }

  static constexpr uint32_t kEnough = 2;  // iterations seen from start to end
  static constexpr int64_t kDeviations = 2;

 private:
  struct Estimate {
    int64_t mean_ns = 0;
    int64_t deviation_ns = 0;
    uint32_t count = 0;
    void add(int64_t sample_ns);
    int64_t low() const { return mean_ns - kDeviations * deviation_ns; }
  };
  struct Place {
    Estimate pause;      // of the host, between what it did before and this launch
    int64_t usual_pause_ns = 0;  // about its median
    Estimate until_end;  // from this launch to the own end of the next wait
    int64_t work_ns = 0;
    uint32_t work_seen = 0;
    int64_t backlog_ns = 0;
    uint32_t waits_per_1024 = 0;
    bool plain = false;  // seen with nobody in its way
  };
  struct Launch {
    uint32_t position = 0;
    Instant at;
    int64_t pause_ns = -1;  // < 0: not known
    int64_t backlog_ns = 0;
  };
  void derive();
  bool wait_is_next() const;  // and not another launch
  bool follows_wait(uint32_t position) const;  // the launch there

  std::vector<Place> places_;
  std::vector<int64_t> work_after_;  // of the launches from here on to the end
  std::vector<uint32_t> next_wait_;  // the first position from here on with a wait
  std::vector<Launch> stretch_;      // launches since the last wait
  Instant host_at_ = kNever;         // its last launch, or the own end of its last wait
  bool waiting_is_over_ = true;      // nothing launched since the last wait
  uint32_t next_ = 0;
  uint32_t in_iteration_ = 0;
  uint32_t whole_ = 0;
  int64_t best_slack_ns_ = 0;
  int64_t longest_away_ns_ = 0;  // half of a sure pause, several times one at random
  uint32_t service_start_ = 0;
  uint32_t begun_ = 0;  // iterations, as far as they are counted
  bool has_waits_ = true;
};

}  // namespace lull::policies
