// The inside of Moves: see moves.h for what it promises. Included by its sources only.
//
//   requests.cc   what is asked, and the objections to it
//   moves.cc      the state machine of a job
//   memory.cc     claims, and who returns next
//   status.cc     the same for people and for policies
#pragma once

#include <algorithm>
#include <map>
#include <set>

#include "coordinator/moves/moves.h"

namespace lull::moves {

using Bytes = std::map<DeviceId, uint64_t>;

struct Member {
  ClientId id;
  JobId job;
  Priority priority;
  bool takes_turns = false;
  bool movable = false;
  Instant joined{0};
  Report report;
  uint32_t order = 0;                 // the last one given; 0: none yet
  Target target = Target::kResident;  // of it
  Instant heard{0};                   // the report last changed, or the order was given
  Instant stays{0};                   // its residence last changed
  bool moved = false;                 // of a migration under way: it is on its new GPUs already
  bool late =
      false;  // it came while its job was not running: its gates are closed, its memory stays

  bool is_resident() const { return report.residence == Residence::kResident; }
  bool is_lost() const { return report.residence == Residence::kLost; }
  bool is_out() const {
    return report.residence == Residence::kOut || report.residence == Residence::kGivenUp;
  }
  // The last order has ended, one way or the other.
  bool has_ended() const { return report.order >= order; }
  bool has_done(Target wanted) const {
    if (target != wanted || !has_ended() || report.result != Result::kDone) return false;
    switch (wanted) {
      case Target::kResident:
        return is_resident();
      case Target::kOut:
        return is_out();
      case Target::kGivenUp:
        return report.residence == Residence::kGivenUp;
    }
    return false;
  }
  bool is_copying() const {
    return report.residence == Residence::kLeaving || report.residence == Residence::kReturning;
  }
  // Its context apart.
  bool holds_nothing() const {
    return std::ranges::none_of(report.devices, [](const Share& s) {
      return s.used_bytes != 0 || s.swappable_bytes != 0 || s.fixed_bytes != 0;
    });
  }
  bool uses_memory() const {
    return std::ranges::any_of(report.devices, [](const Share& s) { return s.used_bytes != 0; });
  }
};

struct Job {
  JobId id;
  std::vector<ClientId> members;  // ascending
  JobState state = JobState::kRunning;
  bool suspends = false;          // what is asked
  Level level = Level::kInPlace;  // asked
  // While it is suspended, and on its way further out.
  Level reached = Level::kInPlace;
  bool any_level = false;  // asked: as far out as it can go
  bool retreats = false;   // it leaves because it found too little memory when it returned
  At at = At::kIteration;
  std::map<DeviceId, DeviceId> migrates;  // from, to; empty: it returns to where it was
  bool by_policy = false;
  // A migration is asked of a job that is suspended: what it goes back to if it cannot be had.
  bool was_suspended = false;
  bool was_by_policy = false;
  bool pinned = false;
  bool stopped = false;  // the engine holds its gates closed, or is about to
  bool stands = false;   // and has said that they are
  std::string reason;
  Bytes claim;
  Instant since{0};  // in this state
  Instant stands_anyway = kNever;
  Instant not_before{0};  // a return that found too little memory is tried again then
  Duration pause;         // the last such wait
  bool never = false;     // waiting: it needs more than there is
  std::string waits_for;
};

class Moves::Core {
 public:
  explicit Core(Settings settings) : settings_(settings) {}
  void step(Instant now, std::span<const Input> inputs, std::vector<Output>& out);
  std::optional<std::string> objection(const Input& request) const;
  const std::map<JobId, Job>& jobs() const { return jobs_; }
  std::optional<JobStatus> status(JobId job) const;
  std::optional<JobId> job_of(ClientId client) const;
  bool is_away(JobId job) const;
  bool waits_for_memory() const;
  bool copies(ClientId client) const;
  uint64_t free_bytes(DeviceId device) const;
  NodeFacts facts() const;
  uint64_t dropped() const { return dropped_; }

 private:
  // requests.cc
  void take(const ClientJoined& input);
  void take(const ClientLeft& input);
  void take(const ClientReported& input);
  void take(const PriorityChanged& input);
  void take(const DevicesKnown& input);
  void take(const Settings& input) { settings_ = input; }
  void take(const JobStands& input);
  void take(const SuspendAsked& input);
  void take(const ResumeAsked& input);
  void take(const MigrateAsked& input);
  void take(const PinAsked& input);
  std::optional<std::string> objects(const SuspendAsked& input) const;
  std::optional<std::string> objects(const ResumeAsked& input) const;
  std::optional<std::string> objects(const MigrateAsked& input) const;
  std::optional<std::string> objects(const PinAsked& input) const;
  template <typename Other>
  std::optional<std::string> objects(const Other&) const {
    return std::nullopt;
  }
  // Nobody knows any more who had suspended it.
  void forgotten(Job& job, ClientId client, const std::string& then);
  // It has just come, and may yet say that it can be moved.
  bool is_untold(const Member& member) const;
  bool has_untold(const Job& job) const;
  // Of its members: who keeps the job from being moved so, and why.
  std::optional<std::string> immovable(const Job& job, Level level) const;
  std::optional<std::string> not_migratable(const Job& job) const;
  std::map<DeviceId, DeviceId> destinations(const Job& job, const std::vector<DeviceId>& to) const;

  // moves.cc
  void advance(Job& job);
  bool advance_once(Job& job);
  bool go(Job& job, JobState state);
  void stop(Job& job, At at);
  void go_on(Job& job);
  void order(Job& job, Member& member, Target target);
  void order_out(Job& job);
  void order_back(Job& job);
  Target target_of(const Job& job) const;
  bool must_move(const Job& job, const Member& member) const;
  Instant silent_at(const Member& member) const;
  bool is_silent(const Member& member) const;
  bool may_stay(const Member& member) const;
  // Why a rank did not do as it was ordered; empty: none is known not to.
  std::string trouble(const Job& job, const Member& member) const;
  bool run(Job& job);
  bool from_stopping(Job& job);
  bool from_leaving(Job& job);
  bool from_suspended(Job& job);
  bool from_waiting(Job& job);
  bool from_returning(Job& job);
  bool come_back(Job& job, std::string reason);
  bool give_way(Job& job, std::string reason);
  std::vector<std::pair<DeviceId, DeviceId>> pairs_for(const Job& job, const Member& member) const;
  template <typename T>
  void put(T output) {
    out_->emplace_back(std::in_place_type<T>, std::move(output));
  }
  void set_timer();

  // memory.cc
  Bytes held_of(const Member& member, bool whole) const;
  // By all its members: as they are; once all are resident where they were; or where they return
  // to.
  enum class Where { kNow, kHere, kThere };
  Bytes held_by(const Job& job, Where where) const;
  static void raise(Bytes& claim, const Bytes& to);
  uint64_t usable_bytes(DeviceId device) const;  // what jobs may hold
  void serve_returns();
  // What a claim to these bytes adds to what the job has, by device.
  Bytes growth(const Job& job, const Bytes& claim) const;

  Job* find(JobId id);
  const Job* find(JobId id) const;
  Member& member(ClientId id) { return members_.find(id)->second; }
  const Member& member(ClientId id) const { return members_.find(id)->second; }
  Priority priority_of(const Job& job) const;

  Settings settings_;
  Instant now_{0};
  std::vector<Output>* out_ = nullptr;  // of the step in progress
  std::map<ClientId, Member> members_;
  std::map<JobId, Job> jobs_;
  std::vector<NodeDevice> devices_;
  Instant timer_ = kNever;
  uint64_t dropped_ = 0;
};

// "3.0 GiB"
std::string show(uint64_t bytes);
std::string name(DeviceId device);
std::string name(ClientId client);

}  // namespace lull::moves
