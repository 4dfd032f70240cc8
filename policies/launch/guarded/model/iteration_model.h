// How an iteration of one task goes when nobody is in its way: when the host makes each launch,
// what it is for the device, where the host waits; and so how much the device may be kept from it
// before the host notices: its slack.
//
// Kept by IsolatedSchedule for each task that it protects, and fed with every stretch (the launches up to
// a wait of the host). It learns from those that others did not delay, and so goes on learning while
// they run. A position is a launch's place in the detected iteration. Pure.
//
//   slack = the wait's own end - now - device work until there
//   own end: from the last launch on, the mean of what it took so far less kDeviations times the
//   mean deviation, so that a host of varying pace has less slack, and one of random pauses none.
//   Where two in a row are alike and unlike those before, a new phase has begun: only they count.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::policies {

class IterationModel {
 public:
  // A new template: forget everything. `begins_request`: it begins where a request does.
  void restart(uint32_t length, bool begins_request = false);

  // ---- the iteration in progress ----
  // A launch, and in which iteration of all it comes.
  struct Spot {
    uint32_t position = 0;
    uint32_t iteration = 0;
    bool operator==(const Spot&) const = default;
    bool follows(const Spot& other) const {
      return iteration != other.iteration ? iteration == other.iteration + 1
                                          : position > other.position;
    }
  };
  // The next launch is the first of an iteration, and surely that of a request, or not. Whether service_start() has
  // become another.
  bool begin(bool surely = false);
  // `backlog`: own work before it that the device would not have done yet with nobody else there;
  // `ahead`: launches before it that it has not done.
  void launched(uint32_t position, Instant at, Duration backlog, size_t ahead);
  Spot spot(uint32_t position) const { return {position, iteration_}; }
  // The pause before the next launch that can be relied on: none where it varies as waiting for
  // requests does.
  Duration sure_pause() const;
  // When the next launch may come at the earliest; where a wait is next, after that.
  Instant next_launch() const;
  // Where the client may be back at any time: after how long in the mean; 0 elsewhere.
  Duration random_pause() const;
  // Requests arrive: the pause before the first launch cannot be relied on.
  bool begins_at_random() const {
    return comes_at_random(service_start_);
  }
  // By how much longer the host has paused before a launch at `position` now than it usually does;
  // negative: shorter.
  Duration longer_pause(uint32_t position, Instant now) const;
  // What the launch there took the device, seen or else predicted.
  void worked(Spot spot, Duration took, bool seen);
  // A wait has ended at `at`: by how much that may at most be later than it ends by itself. Without
  // bound where that varies by more than `precision`.
  Duration lateness(Instant at, Duration precision) const;
  // ... `delay` of it for others; `plain`: nobody was in its way. What was known before the first
  // such time is a guess, and is forgotten. `left`: own work of other streams that is not done yet,
  // and need not be; < 0: not known.
  void waited(Instant at, Duration delay, bool plain, Duration left = {});

  // ---- what is known ----
  uint32_t length() const { return static_cast<uint32_t>(places_.size()); }
  bool known() const { return whole_ >= kEnough; }
  // The host waits in most iterations. Else what was detected is only part of what it waits for, one
  // of ten equal launches say, and says nothing of slack.
  bool has_waits() const { return has_waits_; }
  // When the next wait ends by itself, as far as can be said at `now`; with nothing on the device
  // (`idle`), the next that anything could delay: the host is about to return from the one at hand.
  Instant due(Instant now, bool idle = false) const;
  // What the launch at `position` takes, where that was seen; < 0 else.
  Duration seen_work(uint32_t position) const;
  // Own work of the launches from the one at `from`, made already or the next, to the next wait, less
  // what that surely leaves to do.
  Duration work(Spot from, bool idle = false) const;
  // Own work up to the next wait that the host has not launched yet; `service`: up to the service's end, or of all the
  // next one.
  Duration to_launch(bool service) const {
    if (length() == 0 || (!service && wait_is_next())) return {};
    const uint32_t next = next_position();
    if (!service) return {work_after_[next] - work_after_[next_wait_[next] + 1]};
    if (next == service_start_ && !waiting_is_over_) return {};
    const int64_t wraps = next < service_start_ ? 0 : work_after_[0];
    return {work_after_[next] - work_after_[service_start_] + wraps};
  }
  // Of that launch alone, as `work` counts it.
  Duration work_at(Spot spot) const {
    if (spot.position >= length()) return {};
    return {work_after_[spot.position] - work_after_[spot.position + 1]};
  }
  // The launch that comes next; after the last one, the first.
  uint32_t next_position() const { return next_ >= length() ? 0 : next_; }
  Spot next_spot() const {
    return next_ < length() ? spot(next_) : Spot{0, iteration_ + 1};
  }
  // Whom an iteration serves waits for most of it: one ends with the wait after the longest stretch,
  // and the next begins with the launch behind that.
  uint32_t service_start() const { return service_start_; }
  // The host waits next, or does so already: it makes no other launch before.
  bool wait_is_next() const;
  // Every launch of such a one has been made.
  bool service_launched() const { return next_position() == service_start_; }
  // The most slack that any moment of an iteration has, at its launches or before its first.
  Duration best_slack() const { return {best_slack_ns_}; }

  static constexpr uint32_t kEnough = 2;  // iterations seen from start to end
  static constexpr int64_t kDeviations = 2;
  // A pause is taken to vary as waiting for requests does until so many have been seen that did not. Of
  // exponential ones 2 in 100 come where the last few happened to be alike; 1 in 1,000 behind so many such.
  static constexpr uint32_t kAlike = 8;

  bool operator==(const IterationModel&) const = default;

 private:
  struct Estimate {
    int64_t mean_ns = 0;
    int64_t deviation_ns = 0;
    uint32_t count = 0;
    std::optional<int64_t> odd_ns;  // the last sample, unlike those before it: the next one tells what it is
    void add(int64_t sample_ns);
    // ... where phases of the program differ: two in a row that are alike, and unlike those before, count alone.
    void add_in_phase(int64_t sample_ns);
    int64_t low() const { return mean_ns - kDeviations * deviation_ns; }
    bool operator==(const Estimate&) const = default;
  };
  struct Place {
    Estimate pause;      // of the host, between what it did before and this launch
    uint32_t at_random = kAlike;  // for so many more times it varies as waiting for requests does
    int64_t usual_pause_ns = 0;  // about its median
    Estimate until_end;  // from this launch to the own end of the next wait
    int64_t work_ns = 0;
    uint32_t work_seen = 0;
    int64_t backlog_ns = 0;
    uint32_t ahead = 0;  // launches before it that the device has not done when it comes
    uint32_t waits_per_1024 = 0;
    Estimate left;       // to do for other streams when the wait behind this launch ends
    bool plain = false;  // seen with nobody in its way
    // None where it varies so.
    int64_t sure_pause_ns() const { return at_random > 0 ? 0 : std::max<int64_t>(0, pause.low()); }
    int64_t surely_left_ns() const { return std::max<int64_t>(0, left.low()); }
    bool operator==(const Place&) const = default;
  };
  struct Launch {
    Spot spot;
    Instant at;
    int64_t pause_ns = -1;  // < 0: not known
    int64_t backlog_ns = 0;
    uint32_t ahead = 0;
    bool operator==(const Launch&) const = default;
  };
  void derive();
  void derive_places();
  int64_t find_best_slack_ns() const;
  int64_t work_until_wait_ns(uint32_t position) const;
  bool follows_wait(uint32_t position) const;  // the launch there
  // The pause before the launch there varies as waiting for requests does.
  bool comes_at_random(uint32_t position) const {
    return position < length() && places_[position].at_random > 0;
  }
  const Place& place(Spot spot) const { return places_[spot.position]; }

  std::vector<Place> places_;
  std::vector<int64_t> work_after_;  // of the launches from here on to the end
  std::vector<uint32_t> next_wait_;  // the first position from here on with a wait
  // A launch that finds the queue full comes when the device has made room, however late that is. From
  // there to the wait the device then idles as long as ever: so long at most, of the launches from here on.
  std::vector<int64_t> host_held_;
  uint32_t full_ = 0;  // so many launches in flight fill it
  uint32_t iteration_ = 0;
  std::vector<Launch> stretch_;  // launches since the last wait
  Instant host_at_ = kNever;         // its last launch, or the own end of its last wait
  bool waiting_is_over_ = true;      // nothing launched since the last wait
  uint32_t next_ = 0;
  uint32_t in_iteration_ = 0;
  uint32_t whole_ = 0;
  int64_t best_slack_ns_ = 0;
  uint32_t service_start_ = 0;
  bool begins_request_ = false;
  bool begins_surely_ = false;
  uint32_t begun_ = 0;  // iterations, as far as they are counted
  uint32_t most_ahead_ = 0;  // launches in flight
  bool has_waits_ = true;
};

}  // namespace lull::policies
