// What long units of lower work cost one client, by kernel, where their predicted length does not tell. Learnt from
// what is seen on the device, so that nothing need be known of the device or of how it is shared. Pure.
//
//   share   the part of a unit's length by which it holds up the client's own work. It is 1 where the
//           device runs one kernel at a time, or where the unit fills the device. It is small where kernels
//           run together and the unit is narrow, as collectives are. It is learnt from units that came while
//           the client had nothing on the device:
//
//             client                 |busy  ...  |
//             unit      |began ......|...........|ended|        share = lost / in the way
//
//             in the way = what the unit still had to run when the client came
//             lost       = time busy - own work that was done in it
//
//           The share is the second largest of the last few: one unit may have been blamed for other work. The
//           first is believed by half: that unit may have been in nobody's way because it waited for an
//           event itself. Nothing is learnt beside own work whose length is not known.
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
  // Shorter units cost their length.
  static constexpr Duration kLong{500'000};
  // How late the end of a unit is seen at most: the coordinator looks this often. Between two ends that evens out, but
  // a unit that begins with its launch seems to take longer.
  static constexpr Duration kSeenLate{5'000};

  struct Unit {
    ClientId client;
    StreamSlot stream;
    KernelId kernel;
    Duration predicted;
    bool operator==(const Unit&) const = default;
  };

  // ---- the client's own work ----
  // It had no work on the device, and has some from `at` on.
  void own_begins(Instant at) { counted_ = at, busy_ = begun_ = true; }
  // Own work is through that takes `work` by itself, if that is `known`. `more`: there is more own work on the device.
  void own_done(Duration work, bool known, bool more, Instant now);

  // ---- lower work ----
  // A unit has become the first of its stream on the device; only long units count. Such a unit is through.
  void began(const Unit& unit, Instant now);
  void ended(ClientId client, StreamSlot stream, Instant now);
  void left(ClientId client);

  // ---- a client that is quiet ----
  // The client has nothing on the device, and what ends meanwhile will teach nothing.
  bool may_rest() const;
  // Nothing was told for a while: units that were running may be through.
  void forget_running() { beside_.clear(); }

  // What a unit of this predicted length costs the client if the unit is in its way all the time.
  Duration cost(KernelId kernel, Duration predicted) const {
    return {predicted.ns * cost_x1024(kernel, predicted) / 1'024};
  }
  // The cost of each ns of it, times 1024.
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
    Duration busy;  // busy_for_ at `since`
    Instant ended = kNever;
    Duration busy_beside;  // how long the client was busy from `since` to `ended`
    Duration done;         // done_ at `since`
    uint64_t unknown = 0;  // unknown_ at `since`
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
  bool begun_ = false;    // the client became busy with a launch, and nothing of that is through
  Instant counted_{0};    // busy_for_ counts up to here, while busy
  Duration busy_for_;     // how long the client has had work on the device
  Duration done_;         // own work that is through, by how long it takes by itself
  uint64_t unknown_ = 0;  // ends of own work whose length is not known
};

}  // namespace lull::policies
