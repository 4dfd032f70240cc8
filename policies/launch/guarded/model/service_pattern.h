// Services that take different times by turns, as training steps do of which every fourth also
// updates the weights: by how much the one at hand takes longer than the others of its round, by
// itself. Without it, TaskGuard would take the difference for noise, or for others' doing. Pure.
//
// A round is as long as the shortest distance, up to kLongest, at which services are far more alike
// than at the distances below it; or as is known from elsewhere: what others cost them hides that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "policies/vocabulary.h"

namespace lull::policies {

class ServicePattern {
 public:
  static constexpr size_t kLongest = 12;

  // A service has taken so long, less what others cost it. `known`: so many are a round; 0: that is to
  // be found, as where they are more than kLongest.
  void add(Duration by_itself, size_t known = 0);
  // Which service follows which is not known here: everything is forgotten.
  void restart();

  // The service that comes next. All are counted.
  uint64_t next() const { return count_; }
  // By how much that takes longer than the mean; 0 where there is no round.
  Duration offset() const { return offset_of(count_); }
  Duration offset_of(uint64_t service) const {
    return {round_ == 0 ? 0 : usual_[service % round_] - mean_ns_};
  }
  // By how much the longest one of a round does.
  Duration longest_offset() const { return {longest_ns_ - mean_ns_}; }
  size_t round() const { return round_; }  // services; 0: none
  // The first service of which this is known.
  uint64_t since() const { return since_; }

  bool operator==(const ServicePattern&) const = default;

 private:
  size_t found(size_t known) const;
  bool alike(size_t distance, int64_t times) const;

  uint64_t count_ = 0;
  uint64_t since_ = 0;
  std::array<int64_t, kLongest> last_{};     // by count
  std::array<int64_t, kLongest> differs_{};  // by distance - 1: mean of late
  size_t round_ = 0;
  std::array<int64_t, kLongest> usual_{};  // by place in the round
  int64_t mean_ns_ = 0;                    // of these
  int64_t longest_ns_ = 0;
};

}  // namespace lull::policies
