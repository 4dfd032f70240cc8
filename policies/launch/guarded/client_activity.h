// The clients of a device as guarded needs them: in each step it looks at those that are awake, one
// by one, and at those that rest together, so that a step costs as many looks as clients launch,
// however many there are. Pure; owned by Guarded.
//
//              nothing on the device, no launch for a second,
//              and nothing that time alone changes (TaskGuard::may_rest)
//        awake ---------------------------------------------------------> resting
//              <--------------------------------------------------------
//              an event of its own; any client comes, goes, or changes its priority
//
// A guard that rests is told nothing; `LowerWork` remembers for it. Lower clients that rest are
// told the same credit where nothing tells them apart: RestingGroup.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "policies/launch/client_table.h"
#include "policies/launch/guarded/observe/lower_work.h"
#include "policies/launch/guarded/task_guard.h"

namespace lull::policies {

inline constexpr int64_t kReactionPreset = 15'000;

struct ClientState {
  std::unique_ptr<TaskGuard> guard;  // of one with lower clients
  Instant released_at = kNever;      // the head let go last, until it has launched
  int64_t reaction_ns = kReactionPreset;
  int64_t unit_ns = 0;   // usual length of its launches
  // By so much a launch lately exceeded what its credit is charged, at most: its gate reckons with
  // the kernel's mean, wherever in the iteration it comes, and the room with what most take there.
  int64_t beyond_charge_ns = 0;
  uint32_t kernels = 0;  // on the device, copies apart
  bool awake = true;
  bool waited = false;   // events of its own since its guard was settled
  LowerWork::Mark told;  // while it rests: its guard knows what was until then
};

// Resting lower clients that differ in nothing that their credit depends on.
struct RestingGroup {
  Priority priority;
  int64_t reaction_ns = 0;
  int64_t usual_ns = 0;           // credit that keeps the device busy
  int64_t beyond_charge_ns = 0;   // rounded up to a power of two, so that groups are few
  std::vector<uint32_t> members;  // ascending
  std::optional<int64_t> told;    // the credit that all of them have been told
  int64_t credit = 0;             // of now
  bool same = true;               // as at the begin of the step
};

class ClientActivity {
 public:
  // Applies the event: as ClientTable does. Who it is about is awake, everybody where it changes
  // who is there.
  std::optional<uint32_t> apply(const Event& event, Instant now);
  static bool changes_who_is_there(const Event& event);
  // Whoever can rest goes to rest; `usual_of` says how much credit one of them keeps busy with.
  template <typename UsualOf>
  void settle_down(Instant now, UsualOf usual_of);

  ClientTable& table() { return table_; }
  const ClientTable& table() const { return table_; }
  size_t size() const { return members_.size(); }
  Member& member(uint32_t index) { return table_.members()[index]; }
  const Member& member(uint32_t index) const { return table_.members()[index]; }
  ClientState& own(uint32_t index) { return members_[index]; }
  const ClientState& own(uint32_t index) const { return members_[index]; }
  const std::vector<uint32_t>& awake() const { return awake_; }  // ascending
  std::vector<RestingGroup>& resting() { return groups_; }
  LowerWork& lower_work() { return lower_work_; }

  bool has_higher(Priority than) const { return highest_ < than; }
  // Somebody more important rests.
  bool rests_above(Priority than) const;
  // What a long unit costs those resting above `than` at most; nothing where none does.
  Duration cost_resting(Priority than, KernelId kernel, Duration predicted) const;
  uint32_t kernels_of(ClientId client);
  // Kernels on the device below this client.
  uint32_t lower_kernels(Priority than) const;
  // Of this client so many have come to the device, and so many are through.
  void count_kernels(uint32_t index, uint32_t came, uint32_t ended);

 private:
  void count_present();
  void rouse(uint32_t index, Instant now);
  void rouse_all(Instant now);
  void rest(uint32_t index, int64_t usual_ns);
  bool may_rest(uint32_t index, Instant now) const;

  ClientTable table_;
  std::vector<ClientState> members_;  // as the table's
  std::vector<uint32_t> awake_;
  std::vector<RestingGroup> groups_;
  std::array<uint32_t, kLevels> resting_{};   // by level
  std::array<uint32_t, kLevels> unversed_{};  // ... whose guard has learnt no unit's cost
  std::array<uint32_t, kLevels> kernels_{};   // on the device, by level
  std::vector<uint32_t> versed_;              // the others that rest and have a guard
  LowerWork lower_work_;
  Priority highest_{kNoLevel};
};

template <typename UsualOf>
void ClientActivity::settle_down(Instant now, UsualOf usual_of) {
  std::erase_if(awake_, [&](uint32_t index) {
    if (!may_rest(index, now)) return false;
    rest(index, usual_of(members_[index]));
    return true;
  });
}

}  // namespace lull::policies
