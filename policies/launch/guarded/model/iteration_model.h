// How an iteration of one task goes undisturbed: when the host makes each launch, how much work that is for the device,
// and where the host waits. So it says the slack: how late the device may be before the host notices.
//
// Kept by the task's IsolatedSchedule and fed with every stretch (the launches up to a wait of the host). It learns
// from the stretches that others did not delay, so it goes on learning while lower work runs. A position is a
// launch's place in the detected iteration. Pure.
//
//   slack = the wait's own end - now - device work until there
//   own end: when the wait ends with nobody in the way. It is reckoned from the last launch on: the mean time
//   from there in earlier iterations, less kDeviations times the mean deviation. So a host of varying pace has
//   less slack, and one that pauses at random has none. Two times in a row that are alike, and unlike those
//   before, begin a new phase: then only they count.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::policies {

class IterationModel {
 public:
  // The iteration is another one: forgets everything. `begins_request`: it begins where a request does.
  void restart(uint32_t length, bool begins_request = false);

  // ---- the iteration in progress ----
  // A launch's position, and the number of its iteration.
  struct LaunchIndex {
    uint32_t position = 0;
    uint32_t iteration = 0;
    bool operator==(const LaunchIndex&) const = default;
    bool follows(const LaunchIndex& other) const {
      return iteration != other.iteration ? iteration == other.iteration + 1
                                          : position > other.position;
    }
  };
  // The next launch is the first of an iteration. `surely`: it is surely the first of a request, too. Returns whether
  // service_start() has changed.
  bool begin(bool surely = false);
  // `backlog`: earlier own work that the device would still have to do with nobody else there. `ahead`: earlier
  // launches that the device has not done.
  void launched(uint32_t position, Instant at, Duration backlog, size_t ahead);
  LaunchIndex index(uint32_t position) const { return {position, iteration_}; }
  // The part of the pause before the next launch that can be relied on: none where the pause varies as waiting for
  // requests does.
  Duration sure_pause() const;
  // When the next launch may come at the earliest. Where a wait is next, the launch comes after it.
  Instant next_launch() const;
  // The mean pause before the next launch, where that may come at any time; 0 elsewhere.
  Duration random_pause() const;
  // Requests arrive at random: the pause before the first launch cannot be relied on.
  bool begins_at_random() const {
    return comes_at_random(service_start_);
  }
  // How much longer than usual the host has paused before a launch at `position` that comes now; negative: shorter.
  Duration longer_pause(uint32_t position, Instant now) const;
  // How long the launch at `index` took the device. `seen`: that was measured, not only predicted.
  void worked(LaunchIndex index, Duration took, bool seen);
  // The most by which a wait that ended at `at` may be later than its own end. Unbounded where the own end varies by
  // more than `precision`.
  Duration lateness(Instant at, Duration precision) const;
  // A wait has ended at `at`, of which others cost `delay`. `plain`: nobody was in its way. Before the first plain wait
  // all is a guess, which is then forgotten. `left`: own work of other streams that is not done yet, and need not be;
  // < 0: not known.
  void waited(Instant at, Duration delay, bool plain, Duration left = {});

  // ---- what is known ----
  uint32_t length() const { return static_cast<uint32_t>(places_.size()); }
  bool known() const { return whole_ >= kEnough; }
  // The host waits in most iterations. Else the detected iteration is only a part of what the host waits for, say one
  // of ten equal launches, and says nothing of slack.
  bool has_waits() const { return has_waits_; }
  // The own end of the next wait, as far as can be said at `now`. With nothing on the device (`idle`) and a wait at
  // hand, the host is about to return: then it is the own end of the wait after that, as only that can be delayed.
  Instant due(Instant now, bool idle = false) const;
  // How long the launch at `position` takes the device, where that was seen; < 0 else.
  Duration seen_work(uint32_t position) const;
  // Own work from the launch at `from`, which was made already or is the next, to the next wait, less what that wait
  // surely leaves to do.
  Duration work(LaunchIndex from, bool idle = false) const;
  // Own work that the host has not launched yet, up to its next wait. `service`: up to the request's end; between
  // requests, all of the next one.
  Duration to_launch(bool service) const {
    if (length() == 0 || (!service && wait_is_next())) return {};
    const uint32_t next = next_position();
    if (!service) return {work_after_[next] - work_after_[next_wait_[next] + 1]};
    if (next == service_start_ && !waiting_is_over_) return {};
    const int64_t wraps = next < service_start_ ? 0 : work_after_[0];
    return {work_after_[next] - work_after_[service_start_] + wraps};
  }
  // Own work of the launch at `index` alone, as `work` counts it.
  Duration work_at(LaunchIndex index) const {
    if (index.position >= length()) return {};
    return {work_after_[index.position] - work_after_[index.position + 1]};
  }
  // The launch that comes next; after the last one, the first.
  uint32_t next_position() const { return next_ >= length() ? 0 : next_; }
  LaunchIndex next_index() const {
    return next_ < length() ? index(next_) : LaunchIndex{0, iteration_ + 1};
  }
  // The position at which a request begins. The user waits for most of a request: so it ends with the wait after the
  // longest stretch, and the next begins with the launch behind that. 0 where the period says where requests begin.
  uint32_t service_start() const { return service_start_; }
  // The host waits next, or waits already: it makes no launch before that wait ends.
  bool wait_is_next() const;
  // Every launch of the request has been made.
  bool service_launched() const { return next_position() == service_start_; }
  // The largest slack of any moment of an iteration: at a launch, or in the pause before a stretch.
  Duration best_slack() const { return {best_slack_ns_}; }

  static constexpr uint32_t kEnough = 2;  // iterations seen from start to end
  static constexpr int64_t kDeviations = 2;
  // A pause counts as random, as waiting for requests is, until eight pauses in a row did not vary so. Of exponential
  // pauses 2 in 100 come where the last few happened to be alike, and 1 in 1,000 where the last eight were.
  static constexpr uint32_t kAlike = 8;

  bool operator==(const IterationModel&) const = default;

 private:
  struct Estimate {
    int64_t mean_ns = 0;
    int64_t deviation_ns = 0;
    uint32_t count = 0;
    std::optional<int64_t> odd_ns;  // the last sample, if unlike those before it: the next one tells what it is
    void add(int64_t sample_ns);
    // The same where phases of the program differ: two samples in a row that are alike, and unlike those before, begin
    // anew.
    void add_in_phase(int64_t sample_ns);
    int64_t low() const { return mean_ns - kDeviations * deviation_ns; }
    bool operator==(const Estimate&) const = default;
  };
  struct Place {
    Estimate pause;      // of the host, between what it did before and this launch
    uint32_t at_random = kAlike;  // how many more steady pauses until the pause no longer counts as random
    int64_t usual_pause_ns = 0;  // about the median of the pause
    Estimate until_end;  // from this launch to the own end of the next wait
    int64_t work_ns = 0;
    uint32_t work_seen = 0;
    int64_t backlog_ns = 0;
    uint32_t ahead = 0;  // earlier launches that the device has not done when this one comes
    uint32_t waits_per_1024 = 0;
    Estimate left;       // own work of other streams to do when the wait behind this launch ends
    bool plain = false;  // seen with nobody in its way
    // None where the pause varies as waiting for requests does.
    int64_t sure_pause_ns() const { return at_random > 0 ? 0 : std::max<int64_t>(0, pause.low()); }
    int64_t surely_left_ns() const { return std::max<int64_t>(0, left.low()); }
    bool operator==(const Place&) const = default;
  };
  struct Launch {
    LaunchIndex index;
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
  bool follows_wait(uint32_t position) const;  // the launch at `position` does
  // The pause before the launch at `position` varies as waiting for requests does.
  bool comes_at_random(uint32_t position) const {
    return position < length() && places_[position].at_random > 0;
  }
  const Place& place(LaunchIndex index) const { return places_[index.position]; }

  std::vector<Place> places_;
  std::vector<int64_t> work_after_;  // by position: own work of the launches from there to the iteration's end
  std::vector<uint32_t> next_wait_;  // by position: the first position from there on that has a wait behind it
  // A launch that finds the queue full comes when the device has made room, however late that is. From that launch to
  // the wait the device then idles as long as ever. By position: the longest such time of the launches from there on.
  std::vector<int64_t> host_held_;
  uint32_t full_ = 0;  // how many launches in flight fill the queue
  uint32_t iteration_ = 0;
  std::vector<Launch> stretch_;  // launches since the last wait
  Instant host_at_ = kNever;         // the host's last launch, or the end of its last wait
  bool waiting_is_over_ = true;      // nothing launched since the last wait
  uint32_t next_ = 0;
  uint32_t in_iteration_ = 0;
  uint32_t whole_ = 0;
  int64_t best_slack_ns_ = 0;
  uint32_t service_start_ = 0;
  bool begins_request_ = false;
  bool begins_surely_ = false;
  uint32_t begun_ = 0;  // iterations, counted up to kJudged
  uint32_t most_ahead_ = 0;  // the most launches seen in flight
  bool has_waits_ = true;
};

}  // namespace lull::policies
