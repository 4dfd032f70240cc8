// The inside of Engine: see engine.h for what it promises. Included by the engine's sources only.
//
//   inputs (inputs.cc)      update clients, streams, heads; leave events for the policies
//   completions.cc          what is in flight, until it is complete
//   decisions (engine.cc)   ask the policies that have events or a timer due, check their answers
//   orders (orders.cc)      jobs that stop and go on by order, clients that move to another device
//   gates (gates.cc)        job rule, inversion rule, watchdog, credit; what changed goes out
//   status.cc               the same state for people
#pragma once

#include <map>
#include <set>
#include <utility>

#include "coordinator/engine/client_state.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/task_memory.h"

namespace lull::engine {

inline constexpr size_t kMaxDevices = 128;
inline constexpr size_t kNoticesKept = 20;
// A thread that may go and of which no launch was heard has gone without a record (full ring) or
// has died. Longer than the shim's 50 ms look at its gate.
inline constexpr Duration kGrantedHeadExpires{60'000'000};
// A head that should fit the credit but stays: what we believe was spent has drifted (lost
// records, launches that crossed with a new epoch). A new epoch puts both counts to nought.
inline constexpr Duration kStaleCredit{1'000'000};
// A launch held so long after a grant has seen that grant.
inline constexpr Duration kGrantNoticed{100'000};
// What a client says of its own work holds others no longer than such work could, and a small
// multiple of what was seen of it:
// - what each of its streams does until the next report is over by kStuckFactor times its prediction,
//   and kStuckAtLeast, or lower gates open (inversion rule). Lengths differ by less from run to run; two
//   processes on a device that takes turns double them.
inline constexpr int64_t kStuckFactor = 4;
inline constexpr Duration kStuckAtLeast{20'000'000};
// - it may have waited for a peer, or for a collective of its own that no report tells of. So each time that it goes
//   on, its time is doubled, up to so many times. If it does not go on by itself in the longest time either, it
//   waits for lower work, and has the shortest time from then on.
inline constexpr uint8_t kMostPatience = 3;
// - what others have in flight extends that by twice its length, up to twice this, and what they
//   have had complete meanwhile by so long as that took, up to this: a thousand kernels of a
//   millisecond, about as many as a driver queues on a stream.
inline constexpr Duration kAheadAtMost{1'000'000'000};
// - a measurement is no longer than the time since its launch was heard of, and this: launches are
//   heard of late, and some are no longer remembered.
inline constexpr Duration kHeardLate{100'000'000};
// - untracked work is over so long after its client's last sign of work, or kStuckFactor times the
//   unit's length.
inline constexpr Duration kUnreported{1'000'000'000};
// Untracked work goes on at one part in so many of its pace at least, whatever others have: where
// kernels run together, and where they have less than was predicted.
inline constexpr int64_t kLeastPace = 16;
// A prediction is published again when the mean has moved by more than one in so many.
inline constexpr int64_t kPredictionStep = 20;
// Own work on another stream that lengthens a measurement by less than one in so many says nothing against it.
inline constexpr int64_t kLittle = 8;
// A launch that had passed its gate when that closed is heard of within this: clients that nobody waits
// for are looked at every 2 ms.
inline constexpr Duration kClosedNoticed{5'000'000};
// Ranks that launch alike are no more launches apart than this: what a driver queues for one whose peer is
// late. A rank of a stopped job that is further behind and does not wait at its gate is not waited for once
// it has launched nothing for kStillComing: processes of one job need not launch alike.
inline constexpr uint64_t kRanksApart = 1024;
inline constexpr Duration kStillComing{100'000'000};
// Between two markers of a client lie launches of 0.84 ms at most: kMarkersPart times what a marker takes (2.1 us of the
// device on an H200), and never more than kMostUnmarked. Markers take 0.3 % of a client that has the device all the time.
// Under a credit they are at most one part in kMarkedOfCredit of its bound apart, for that is a promise to others.
// Behind the last marker a launch is done when it is expected to be.
inline constexpr int64_t kMarkersPart = 400;
inline constexpr int64_t kMarkedOfCredit = 8;
inline constexpr uint32_t kMostUnmarked = 32;  // a power of two
// Of its first kMarkedAtFirst launches beside others no more than kUnmarkedAtFirst, so that what those cost is learnt soon.
inline constexpr uint32_t kUnmarkedAtFirst = 4, kMarkedAtFirst = 1'024;
// A kernel lets others by if a later launch of theirs is reported while the kernel is not due for so long; it does not
// if a launch of theirs is overdue for so long when the kernel is complete. Completions are seen a few us late, and
// predictions are off.
inline constexpr Duration kOutOfOrder{50'000};
inline constexpr int64_t kUsualOf = 64;  // launches
// A client with an open gate that another may precede has about this in flight at most: that one waits for
// what is. Programs launch ahead to keep the device busy while their host does something else. With 20 ms a
// recorded training lost 8 %, with 50 and 100 a made one 5.3 and 1.03 % (docs/simulation/trials.md, run-ahead).
// The gate is open below half of it, a credit above:
//
//     open --more than kRunAhead / 2 in flight--> credit of kRunAhead --less than kRunAhead / 4--> open
inline constexpr Duration kRunAhead{200'000'000};
inline constexpr Duration kRunAheadStep{kRunAhead.ns / 16};  // the credit is topped up by so much
// Of kernels that take as long in the mean, completions say how long they took.
inline constexpr Duration kSeenByCompletion{500'000};

class Engine::Core {
 public:
  explicit Core(EngineOptions options);
  void step(Instant now, std::span<const Input> inputs, std::vector<Output>& out);
  EngineStatus status(ClientId from, size_t most_clients) const;
  const std::string& policy() const { return choice_.text; }
  std::optional<TaskRecord> record(ClientId client) const;
  std::optional<ClientId> waits_for(ClientId client, DeviceId device) const;

 private:
  static constexpr int kNobodyStuck = 1000;
  struct Device {
    std::unique_ptr<policies::LaunchPolicy> policy;
    std::vector<policies::Event> events;
    Instant policy_timer = kNever;
    std::vector<ClientId> members;  // ascending
    uint32_t launches = 0;          // of all, gone ones too
    std::vector<ClientId> busy;     // the members with units in flight, ascending
    std::vector<ClientId> lately;   // the members by when they last launched or had a unit complete
    uint32_t done = 0;              // of all, gone ones too; may wrap
    Instant done_at{0};             // the last of them
    Instant reported_until{0};      // the last whose completion was reported
    bool progress = false;          // completions are reported
    int lowest_level = 0;           // of the members
    int highest_level = 0;
    int stuck_level = kNobodyStuck; // the highest level with a stuck seat
  };

  // inputs.cc
  void take(const ClientAttached& input);
  void take(const ClientDetached& input);
  void take(const DeviceUsed& input);
  void take(const PriorityChanged& input);
  void take(const PolicyChanged& input);
  void take(const Launched& input);
  void take(const LaunchesMissed& input);
  void take(const Held& input);
  void take(const TimerFired&) {}
  void take(const TaskRecalled& input);

  // orders.cc
  void take(const JobStopped& input);
  void take(const JobContinued& input);
  void take(const DeviceLeft& input);
  void follow_orders();
  bool may_close(const Job& job) const;
  void close(Job& job);
  enum class Standing { kNot, kYes, kLate };
  Standing standing(const Job& job) const;
  void stand(JobId id, Job& job, bool drained);
  std::optional<uint64_t> furthest(const Job& job) const;
  bool is_behind(const Client& client, uint64_t to) const;
  Instant hangs_at(const Job& job) const;
  void catch_up(Job& job);
  Instant order_due(const Client& client) const;
  // For the device's policy, unless that does not know the client now.
  void tell(Device& on, const Client& client, policies::Event event) {
    if (!client.ranks->stands()) on.events.push_back(std::move(event));
  }

  Client* find(ClientId id);
  const Client* find(ClientId id) const;
  Device* device(DeviceId id);
  const Device& device_of(const Seat& seat) const { return devices_.find(seat.device)->second; }
  KernelUse& use_kernel(Client& client, KernelId kernel);
  policies::Predictor predictor() const { return options_.predictor.value_or(choice_.row->predictor); }
  // What none but predictors finer than `finest` ask for is left out.
  static policies::Known known(const Client& client, const policies::KernelProfile& kernel,
                               const LearnedLaunches::Place& place, policies::Predictor finest);
  Prediction predict(const Client& client, const KernelUse& use,
                     const LearnedLaunches::Place& place) const;
  // One launch in how many the device reports of a client, from its next launch on: the least power of two with
  // which they are far enough apart, kept while they are no more than three times as far.
  uint32_t wanted_progress(const Device& on, const Seat& seat) const;
  void set_progress(const Client& client, Seat& seat, uint32_t every);
  static policies::Waiting waiting(const Client& client, const Head& head);
  void drop_head(Client& client, size_t index, bool tell_policy);
  void set_job_priority(Job& job);
  void watch_device(DeviceId id, Device& device);

  // completions.cc
  void take(const Progressed& input);
  void take(const Cancelled& input);
  // The seat has `units` in flight from here on, and something of it has just happened.
  void set_units(Device& on, const Client& client, Seat& seat, uint32_t units);
  void touch(Device& on, ClientId client, Seat& seat);
  // `reported`: the client or the device says so; else it is over because it is due.
  void done(Client& client, Seat& seat, StreamSlot stream, const Unit& units, Instant first_launch,
            Instant at, bool reported);
  // When untracked work of the seat counts as done: once it is expected to be, and not before what others
  // had launched before it and the device reports, where that does not let it by.
  Instant due(const Client& client, const Seat& seat, const Unit& unit) const;
  bool is_behind_others(const Client& client, const Seat& seat, const Unit& unit) const;
  bool was_due(const Client& client) const;
  // A launch of the client, made at `launched`, is reported. Kernels of others that were launched before it and are
  // still running let others by.
  void see_passed(const Client& client, DeviceId device, Instant launched);
  // A kernel of the client is complete. It does not let others by if work of theirs is overdue.
  void see_blocked(Client& client, const Device& on, const Seat& seat, KernelId kernel);
  bool is_overdue(const Client& client, DeviceId device) const;
  Instant works_until(const Client& client, const Seat& seat) const;
  // Reckons that anew for what is left of the stream, of which nothing will be reported: the device has
  // reported what lay before it.
  void reckon_tail(Seat& seat, UnitQueue& units) const;
  // What a client has had of the device, others' untracked work has not.
  void keep_others_off(Device& on, const Seat& one, Instant since, Instant at, Duration had);
  void complete(Client& client, size_t slot, uint64_t sequence);
  void retire_due(Client& client);

  // measurements.cc
  void take(const Timed& input);
  // Whether a launch of the client can have taken that long by now.
  bool is_possible(const Client& client, const Timed& timed) const;
  // How long a launch took, `company`: while others may have had work on the device.
  void measured(Client& client, TaskKernel& kernel, const Timed& timed, bool company);
  // Whether completions are looked at for how long units of the kernel take; a unit is complete.
  bool is_seen(const KernelUse& use) const;
  void saw(Client& client, StreamSlot stream, const Unit& unit);
  // Whether another client had work on one of this client's devices since then, or has now.
  bool had_company(const Client& client, Instant since) const;
  static LearnedLaunches::Company company(const Device& on, const Client& client, const Seat& seat, size_t slot,
                                          Instant since);
  Duration own_beside(const Client& client, const LearnedLaunches::Place& place) const;

  // engine.cc
  void use_policy(const policies::PolicyChoice& choice);
  void replay(DeviceId id, Device& device);
  void introduce(DeviceId id, Device& device, Client& client);
  void ask_policies();
  // Carries the decision out; or says which rule it breaks.
  std::string carry_out(DeviceId id, Device& device, const policies::Decision& decision);
  void eject(DeviceId id, const std::string& broken_rule);
  template <typename T>
  void put(T output) {
    out_->emplace_back(std::in_place_type<T>, std::move(output));
  }
  void notice(std::string text);
  void mark(Client& client);
  void mark_all(const Device& device);
  void set_timer();

  // gates.cc
  void expire_heads(Client& client);
  static bool is_given_up(const Client& client, const Head& head, const Seat& seat);
  void release(Client& client, Head& head, bool tell_policy);
  // What is to be published: the policy's decision, or what a later rule makes of it.
  struct Target {
    Gate gate = Gate::kOpen;
    Duration bound;          // credit, as all below: on what is in flight
    bool any_length = true;  // as policies::Credit has it
    Duration step;           // topped up when there is so much to give
  };
  Target target(const Client& client, const Seat& seat) const;
  // It has so much in flight that somebody who goes before it would wait for long, if he came now.
  bool runs_ahead(const Client& client, const Seat& seat, const Device& on) const;
  void apply_job_rules();
  void apply_job_rule(Job& job);
  Instant stuck_at(const Client& client, const Seat& seat) const;
  void look_for_inversion(Client& client);
  void recount_stuck(Device& device);
  void watchdog(Client& client);
  Instant watchdog_due(const Client& client, const Head& head) const;
  void publish(Client& client);
  void publish_credit(Client& client, Seat& seat, const Target& target);
  static Instant stale_at(const Head& head, const Seat& seat);
  Instant next_wake(const Client& client) const;
  void set_wake(Client& client);
  // status.cc: whether `other` is a reason for `client` to be held on this device.
  void cannot_share(const Client& client, std::vector<UnsharableStatus>& out) const;
  bool in_the_way(const Client& other, const Client& client, DeviceId device) const;
  bool holds_by_prediction() const {
    return choice_.row->holding == policies::Holding::kByPrediction;
  }

  EngineOptions options_;
  policies::PolicyChoice choice_;
  Instant now_{0};
  std::vector<Output>* out_ = nullptr;  // of the step in progress

  std::map<ClientId, std::unique_ptr<Client>> clients_;
  std::map<DeviceId, Device> devices_;
  std::map<JobId, Job> jobs_;
  TaskMemory tasks_;
  uint64_t arrivals_ = 0;

  std::vector<Client*> dirty_;                     // to be looked at in this step
  std::set<std::pair<Instant, ClientId>> wakes_;   // Client::wake, where it is not kNever
  std::vector<policies::Decision> decisions_;      // scratch
  Instant timer_ = kNever;                         // as last put out
  std::string bad_first_policy_;                   // to be told in the first step
  std::vector<std::string> notices_;
  uint64_t steps_ = 0;
  uint64_t inputs_ = 0;
  uint64_t dropped_ = 0;
  bool full_told_ = false;
};

}  // namespace lull::engine
