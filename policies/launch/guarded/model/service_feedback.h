// What others really cost one task's services, learnt from how long services take with them and
// without. Pure.
//
// The delays that IsolatedSchedule measures at waits are an estimate: too much where the task's own work
// could not have run anyway, too little where lower work slows it in ways that no wait shows. The
// service's whole time less what an undisturbed one takes is another estimate, right in the mean
// however the device is shared, but off by as much as services vary by themselves. Together:
//
//   cost = scale * delay, moved towards (time - undisturbed) the more, the less services vary
//   scale: all of (time - undisturbed) over all delays, lately; near 1 while that is uncertain
//
// Which services are kept undisturbed is drawn by lot: those that nobody happened to disturb are
// not like the others.
//
// Services that are not what is known of them are a new phase of the program, or a while in which
// its host is slow. What is known of a few kinds of services is put aside, and taken up again once
// they are as they were: a tenth of a second of a busy host (seen on an H100 machine) does not make
// what was learnt of a thousand services useless.
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <vector>

#include "policies/launch/guarded/model/service_pattern.h"
#include "policies/vocabulary.h"

namespace lull::policies {

class ServiceFeedback {
 public:
  void restart() { *this = ServiceFeedback(); }

  // A service that nobody was in the way of has taken so long; `kept`: because it was drawn. What
  // the pattern says of its place in a round is no variation.
  void undisturbed(Duration took, bool kept, const ServicePattern& pattern = {});
  // One that others were in the way of, where `delay` is what its waits say. `likely`: what they
  // cost it most likely. `mean`: what they do in the mean of many, how far they are off by themselves
  // included. Both may be less than nothing, so that errors cancel out.
  struct Cost {
    Duration likely, mean;
  };
  Cost cost(Duration took, Duration delay, const ServicePattern& pattern = {});

  // How long undisturbed ones take, and by how much longer than that the slow ones of late, of a
  // hundred the second slowest; known() after enough of them, varied() after enough for the second,
  // few where all take the same.
  bool known() const { return now_.alone.size() >= kEnough; }
  Duration mean() const { return {static_cast<int64_t>(now_.mean)}; }
  Duration error() const;  // of the mean, one sigma
  bool varied() const;
  Duration spread() const { return {varied() ? slow_ - static_cast<int64_t>(now_.mean) : 0}; }

  // What a delay of one costs, times 1024; rather more than less.
  int64_t scale_x1024() const { return now_.scale_x1024; }
  // Whether the service after the next shall be kept undisturbed; asked once a service. One in a
  // few while their mean is not known within `precision`, then few.
  bool draws_undisturbed(Duration precision);

  bool operator==(const ServiceFeedback&) const = default;

 private:
  static constexpr uint32_t kEnough = 3;
  static constexpr uint32_t kVaried = 8;
  // While the iteration is new, what belongs to it is not known well: so many do not count.
  static constexpr uint32_t kFirst = 4;
  struct Alone {  // an undisturbed service that counts
    uint64_t service = 0;
    int64_t took_ns = 0;
    bool operator==(const Alone&) const = default;
  };
  // What is known of services while they are of one kind.
  struct Known {
    std::deque<Alone> alone;  // the last ones
    double mean = 0;          // of them, ns
    double next = 0;          // the service at hand, by itself
    double counts_as = 0;     // the mean is as good as one of so many
    double variance = 0;
    double disturbed = 0;       // services lately
    double delays = 0;          // ... all their delays, ns
    double longer = 0;          // ... by how much they took longer
    uint32_t first = kFirst;    // undisturbed services that are not counted yet
    int64_t scale_x1024 = 1024;
    uint64_t services = 0;      // that nobody was in the way of

    double sigma() const;
    // So much off what is known is not like it any more.
    double most_off() const;
    bool operator==(const Known&) const = default;
  };
  // Mean and variance by what the pattern says now; samples from before its round are forgotten.
  void recount(const ServicePattern& pattern);
  bool strange(double off) const { return known() && std::abs(off) > now_.most_off(); }
  // What was known before of services that take so long by themselves; the end where nothing was.
  std::vector<Known>::iterator as_before(double by_itself);
  // Services of another kind have come: as they were before, or new.
  void change(std::vector<Known>::iterator before);
  // Whether enough services in a row were like the same one of before; `nearest`: the one at hand is.
  bool surely_as(std::vector<Known>::iterator nearest);
  // An undisturbed one has taken so long: how long the slow ones take.
  void slow(int64_t took_ns);

  Known now_;
  std::vector<Known> before_;
  uint32_t strange_ = 0;    // services in a row that are not what is known of them
  uint32_t strange_kept_ = 0;  // ... of them counted
  uint32_t as_before_ = 0;  // ... that are as they were before
  size_t kind_ = 0;         // ... as that one
  uint64_t services_ = 0;     // all, undisturbed or not
  std::deque<Alone> lately_;  // the last undisturbed ones of all kinds
  int64_t slow_ = 0;            // ... the slow ones of them
  uint32_t lot_ = 1;
};

}  // namespace lull::policies
