// What long units of lower work cost one client, by kernel, where their predicted length does not
// tell. Learnt from what is seen of the device, so that nothing need be known of it or of how it is
// shared. Pure.
//
//   share   of a unit's length by which the client's own work is held up: all of it where the
//   device
//           runs one kernel at a time, or the unit takes all of it; little where kernels run
//           together and the unit is narrow, as collectives are. From units that came while the
//           client had nothing on the device:
//
//             client                 |busy  ...  |
//             unit      |began ......|...........|ended|        share = lost / in the way
//
//             in the way = what the unit still had to run when the client came
//             lost       = time busy - own work that was done in it
//
//           Of the last few the second largest: one may have been blamed for others. The first is
//           believed by half: it may have been in nobody's way because it waited itself, for an
//           event. Nothing is learnt beside own work whose length is not known.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::policies {

class KernelCosts {
 public:
  // Shorter units cost what they are long.
  static constexpr Duration kLong{500'000};
  // By so much the end of a unit is seen late at most, as often as the coordinator looks. Between
  // two ends that evens out; what begins with its launch seems to take longer.
  static constexpr Duration kSeenLate{5'000};

  struct Unit {
    ClientId client;
    StreamSlot stream;
    KernelId kernel;
    Duration predicted;
    bool operator==(const Unit&) const = default;
  };

  // ---- the client's own work ----
  // It has work on the device from here on, and had none.
  void own_begins(Instant at) { counted_ = at, busy_ = begun_ = true; }
  // Work of it is through that takes so long by itself, if that is `known`; whether there is more.
  void own_done(Duration work, bool known, bool more, Instant now);

  // ---- lower work ----
  // A long unit is the first of its stream on the device; that of a stream is through.
  void began(const Unit& unit, Instant now);
  void ended(ClientId client, StreamSlot stream, Instant now);
  void left(ClientId client);

  // ---- a client that is quiet ----
  // The client has nothing on the device, and what ends meanwhile will teach nothing.
  bool may_rest() const;
  // It was told of nothing for a while: what was running may be through.
  void forget_running() { beside_.clear(); }

  // What a unit of this predicted length costs the client if it is in the way all the time.
  Duration cost(KernelId kernel, Duration predicted) const {
    return {predicted.ns * cost_x1024(kernel, predicted) / 1'024};
  }
  // ... times 1024, of each ns.
  int64_t cost_x1024(KernelId kernel, Duration predicted) const;

  bool operator==(const KernelCosts&) const = default;

 private:
  static constexpr size_t kSamples = 4;
  struct Seen {
    KernelId kernel;
    std::array<int64_t, kSamples> shares_x1024{};  // the last ones
    size_t next = 0;
    int64_t share_x1024 = 1024;
    bool operator==(const Seen&) const = default;
  };
  struct Beside {
    Unit unit;
    Instant since;
    Duration busy;  // until then
    Instant ended = kNever;
    Duration busy_beside;  // from then to the end
    Duration done;         // until then
    uint64_t unknown = 0;  // until then
    bool operator==(const Beside&) const = default;
  };
  Seen* seen(KernelId kernel);
  void learn(const Beside& beside);
  void learn_ended();
  Duration busy_until(Instant now) const {
    return busy_ ? busy_for_ + (now - counted_) : busy_for_;
  }

  std::vector<Seen> seen_;  // by kernel
  std::vector<Beside> beside_;
  bool busy_ = false;
  bool begun_ = false;    // ... with a launch, and nothing of it is through
  Instant counted_{0};    // up to here:
  Duration busy_for_;     // it has had work on the device
  Duration done_;         // ... of which so much is through
  uint64_t unknown_ = 0;  // ends of own work whose length is not known
};

}  // namespace lull::policies
