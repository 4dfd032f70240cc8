// What others really cost one task's services, learnt from how long services take with them and
// without. Pure.
//
// The delays that TaskGuard measures at waits are an estimate: too much where the task's own work
// could not have run anyway, too little where lower work slows it in ways that no wait shows. The
// service's whole time less what an undisturbed one takes is another estimate, right in the mean
// however the device is shared, but off by as much as services vary by themselves. Together:
//
//   cost = scale * delay, moved towards (time - undisturbed) the more, the less services vary
//   scale: all of (time - undisturbed) over all delays, lately; near 1 while that is uncertain
//
// Which services are kept undisturbed is drawn by lot: those that nobody happened to disturb are
// not like the others.
#pragma once

#include <cstdint>
#include <deque>

#include "policies/launch/service_pattern.h"
#include "policies/vocabulary.h"

namespace lull::policies {

class ServiceFeedback {
 public:
  void restart() { *this = ServiceFeedback(); }

  // A service that nobody was in the way of has taken so long; `kept`: because it was drawn. What
  // the pattern says of its place in a round is no variation.
  void undisturbed(Duration took, bool kept, const ServicePattern& pattern = {});
  // One that others were in the way of: what they cost it, where `delay` is what its waits say. May
  // be less than nothing, so that errors cancel out.
  Duration cost(Duration took, Duration delay, const ServicePattern& pattern = {});

  // How long undisturbed ones take, and by how much longer than that the slowest of late; known()
  // after enough of them, varied() after enough for the second, few where all take the same.
  bool known() const { return alone_.size() >= kEnough; }
  Duration mean() const { return {static_cast<int64_t>(mean_)}; }
  Duration error() const;  // of the mean, one sigma
  bool varied() const;
  Duration spread() const { return {varied() ? static_cast<int64_t>(slowest_ - mean_) : 0}; }

  // What a delay of one costs, times 1024; rather more than less.
  int64_t scale_x1024() const { return scale_x1024_; }
  // Whether the service after the next shall be kept undisturbed; asked once a service. One in a
  // few while their mean is not known within `precision`, then few.
  bool draws_undisturbed(Duration precision);

 private:
  static constexpr uint32_t kEnough = 3;
  static constexpr uint32_t kVaried = 8;
  // While the iteration is new, what belongs to it is not known well: so many do not count.
  static constexpr uint32_t kFirst = 4;
  struct Alone {  // an undisturbed service that counts
    uint64_t service = 0;
    int64_t took_ns = 0;
  };
  // Mean and variance by what the pattern says now; samples from before its round are forgotten.
  void recount(const ServicePattern& pattern);
  double sigma() const;
  bool strange(double off) const;

  std::deque<Alone> alone_;  // the last ones
  double mean_ = 0;          // of them, ns
  double next_ = 0;          // the service at hand, by itself
  double counts_as_ = 0;     // the mean is as good as one of so many
  double variance_ = 0;
  double slowest_ = 0;    // lately, ns
  double disturbed_ = 0;  // services lately
  double delays_ = 0;     // ... all their delays, ns
  double longer_ = 0;     // ... by how much they took longer
  uint32_t first_ = kFirst;  // undisturbed services that are not counted yet
  uint32_t strange_ = 0;  // services in a row that are not what is known of them
  uint32_t lot_ = 1;
  int64_t scale_x1024_ = 1024;
};

}  // namespace lull::policies
