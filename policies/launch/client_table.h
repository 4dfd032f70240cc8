// What a launch policy knows of the clients of its device, kept from the events it is told.
//
// A policy owns one and applies every event to it, then decides on the result. `open`, `close` and
// `credit` append a decision only if the client has not been told the same already.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "policies/launch/launch_policy.h"

namespace lull::policies {

inline constexpr int kLevels = 10;
inline constexpr int kNoLevel = kLevels;  // below every client
// A client counts as active for this long after its last launch. Pauses of a program at work are
// shorter; one that has paused for longer loses little if its first launch finds the device busy.
inline constexpr Duration kActiveFor{1'000'000'000};

struct PendingLaunch {
  ThreadSlot thread;
  Ticket ticket;
  KernelId kernel;
  Duration predicted;
  Instant since;
  Duration expected;
  Duration charged;
  bool released = false;  // by this policy; the launch is on its way
};

struct Member {
  ClientId client;
  JobId job;
  Priority priority;
  uint64_t arrival = 0;
  Instant last_launch = kLongAgo;
  SlowdownBound bound;
  bool has_peers = false;
  uint32_t units = 0;  // launched and not known complete
  Duration in_flight;  // their predicted length
  std::vector<PendingLaunch> pending;  // by thread

  enum class Told : uint8_t { kOpen, kCredit, kClosed };
  Told told = Told::kOpen;
  Duration told_bound;
  bool told_any_length = true;

  bool has_work() const { return units > 0 || !pending.empty(); }
  bool is_active(Instant now) const { return has_work() || now - last_launch < kActiveFor; }
};

class ClientTable {
 public:
  // Returns the member the event is about; nullptr for TimerDue, for one that has left and for an
  // unknown one. Valid until the next call.
  Member* apply(const Event& event);

  Member* find(ClientId client);
  std::vector<Member>& members() { return members_; }  // by client id
  const std::vector<Member>& members() const { return members_; }

  // The most important level with an active client, or with work; kNoLevel: none.
  int top_active(Instant now) const;
  int top_busy() const;
  // When the next level may cease to be active; kNever: time alone changes none.
  Instant next_expiry(Instant now) const;
  bool has_several_levels() const;

  static void open(Member& member, std::vector<Decision>& out);
  static void close(Member& member, std::vector<Decision>& out);
  static void credit(Member& member, Duration bound, std::vector<Decision>& out,
                     bool any_length = true);

 private:
  struct Level {
    uint32_t members = 0;
    uint32_t busy = 0;
    Instant last_launch = kLongAgo;
  };
  void count_levels();

  std::vector<Member> members_;
  std::array<Level, kLevels> levels_{};
};

}  // namespace lull::policies
