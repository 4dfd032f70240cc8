// The inside of Engine: see engine.h for what it promises. Included by the engine's sources only.
//
//   inputs (inputs.cc)      update clients, streams, held launches; leave events for the policies
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
// A thread that may go, and of which no launch is reported for this long, has gone without a record
// (full ring) or has died. Longer than 50 ms: after that a thread looks at its gate again.
inline constexpr Duration kGrantExpires{60'000'000};
// A launch that fits the credit should not wait longer than this. If it does, the engine's count of what was
// spent has drifted (lost records, launches that crossed a new epoch). A new epoch sets both counts to 0.
inline constexpr Duration kStaleCredit{1'000'000};
// A launch that begins to wait this long after a grant has seen that grant.
inline constexpr Duration kGrantNoticed{100'000};
// What a client says of its own work holds others no longer than such work could, and no longer than a
// small multiple of what was seen of the work:
// - If the work of each of its streams until the next report takes longer than kStuckFactor times its
//   prediction, and kStuckAtLeast, lower gates open (inversion rule). From run to run lengths differ by less
//   than this factor; where two processes take turns on the device, lengths double.
inline constexpr int64_t kStuckFactor = 4;
inline constexpr Duration kStuckAtLeast{20'000'000};
// - Stuck work may have waited for a peer, or for a collective of its own that no report tells of. So each time that
//   it goes on, the time is doubled, at most this many times. If the work does not go on within the longest time
//   either, it waits for lower work: from then on the client has the shortest time.
inline constexpr uint8_t kMostPatience = 3;
// - Others' work extends the time. What they have in flight adds twice its length, at most twice this. What
//   they have completed meanwhile adds as long as it took, at most this: a thousand kernels of a millisecond,
//   about as many as a driver queues on a stream.
inline constexpr Duration kAheadAtMost{1'000'000'000};
// - A measurement counts if it exceeds the time since its launch by at most this: launches are reported late. For
//   a launch that is no longer remembered that time counts as 0.
inline constexpr Duration kHeardLate{100'000'000};
// - Untracked work counts as done this long after its client's last launch or report, or kStuckFactor times the
//   unit's length after it if that is more.
inline constexpr Duration kUnreported{1'000'000'000};
// While others have the device, untracked work is taken to go on at one part in this many of its pace at
// least: kernels may run together, and others' may be shorter than predicted.
inline constexpr int64_t kLeastPace = 16;
// A prediction is published again when the mean has moved by more than one part in this many.
inline constexpr int64_t kPredictionStep = 20;
// A measurement still counts if own work on another stream lengthened it by at most one part in this many.
inline constexpr int64_t kLittle = 8;
// A launch that passed its gate before the gate closed is reported within this time: more than
// twice what lies between two looks of the daemon at a client for which nobody waits
// (kLazySpacingNs, daemon/look_schedule.cc).
inline constexpr Duration kClosedNoticed{5'000'000};
// Ranks that run the same launches are at most this many launches apart: as many as a driver queues for a
// rank whose peer is late. But processes of one job need not run the same launches. So a stopped job does not
// wait for a rank that is further behind, is not held at its gate and has launched nothing for kStillComing.
inline constexpr uint64_t kRanksApart = 1024;
inline constexpr Duration kStillComing{100'000'000};
// The launches that share a marker take kMarkersPart times as long as a marker (2.1 us of the device on an H200: 0.84 ms),
// rounded up to a power of two launches, kMostUnmarked at most. So markers take 0.3 % of a client that has the device all
// the time. Under a credit the time is a kMarkedOfCredit-th of its bound if that is less: the bound is a promise to others.
// A launch behind the last marker counts as done when it is expected to be.
inline constexpr int64_t kMarkersPart = 400;
inline constexpr int64_t kMarkedOfCredit = 8;
inline constexpr uint32_t kMostUnmarked = 32;  // a power of two
// Of its first kMarkedAtFirst launches beside others at most kUnmarkedAtFirst share a marker: their costs are learnt soon.
inline constexpr uint32_t kUnmarkedAtFirst = 4, kMarkedAtFirst = 1'024;
// Others run beside a kernel if a later launch of theirs is reported this long before the kernel is due. They do not if
// a launch of theirs is overdue by this much when the kernel completes. Completions are seen a few us late, and
// predictions are not exact.
inline constexpr Duration kOutOfOrder{50'000};
inline constexpr int64_t kUsualOf = 64;  // launches
// About the most work that a client may have in flight if another may go before it: the other has to wait for
// that work. Programs launch ahead to keep the device busy while their host does something else. With 20 ms a
// recorded training lost 8 %; with 50 and 100 ms a generated one lost 5.3 and 1.03 %
// (docs/simulation/trials.md, run-ahead). The gate changes at half and at a quarter of it:
//
//     open --more than kRunAhead / 2 in flight--> credit of kRunAhead --less than kRunAhead / 4--> open
inline constexpr Duration kRunAhead{200'000'000};
inline constexpr Duration kRunAheadStep{kRunAhead.ns / 16};  // the credit is topped up in such steps
// A completion tells how long a kernel took if the kernel's mean is at least this.
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
    uint32_t launches = 0;          // of all clients, also those that have left
    std::vector<ClientId> busy;     // the members with units in flight, ascending
    std::vector<ClientId> lately;   // the members, ascending by when they last launched or completed
    uint32_t done = 0;              // units of all clients, also those that have left; may wrap
    Instant done_at{0};             // when the last of these was done
    Instant reported_until{0};      // when the last reported one was done
    bool progress = false;          // completions are reported
    int lowest_level = 0;           // of the members
    int highest_level = 0;
    int stuck_level = kNobodyStuck; // the highest level with a stuck client
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
  // Tells the device's policy, unless the policy does not know the client now.
  void tell(Device& on, const Client& client, policies::Event event) {
    if (!client.ranks->stands()) on.events.push_back(std::move(event));
  }

  Client* find(ClientId id);
  const Client* find(ClientId id) const;
  Device* device(DeviceId id);
  const Device& device_of(const DeviceUsage& usage) const {
    return devices_.find(usage.device)->second;
  }
  KernelUse& use_kernel(Client& client, KernelId kernel);
  policies::Predictor predictor() const { return options_.predictor.value_or(choice_.row->predictor); }
  // Leaves out what only predictors finer than `finest` use.
  static policies::Known known(const Client& client, const policies::KernelProfile& kernel,
                               const LearnedLaunches::Place& place, policies::Predictor finest);
  Prediction predict(const Client& client, const KernelUse& use,
                     const LearnedLaunches::Place& place) const;
  // From the client's next launch on the device reports one launch in this many: the least power of two that puts
  // reports far enough apart. The number stays while they are less than three times as far apart.
  uint32_t wanted_progress(const Device& on, const DeviceUsage& usage) const;
  void set_progress(const Client& client, DeviceUsage& usage, uint32_t every);
  static policies::Waiting waiting(const Client& client, const PendingLaunch& pending);
  void drop_pending(Client& client, size_t index, bool tell_policy);
  void set_job_priority(Job& job);
  void watch_device(DeviceId id, Device& device);

  // completions.cc
  void take(const Progressed& input);
  void take(const Cancelled& input);
  // Sets how many units the client has in flight on the device, and notes that it has just
  // launched or completed something.
  void set_units(Device& on, const Client& client, DeviceUsage& usage, uint32_t units);
  void touch(Device& on, ClientId client, DeviceUsage& usage);
  // `reported`: the client or the device says so. Otherwise the work counts as done because it is due.
  void done(Client& client, DeviceUsage& usage, StreamSlot stream, const Unit& units,
            Instant first_launch, Instant at, bool reported);
  // When untracked work of the client on the device counts as done: when it is expected to be, but
  // not before earlier work of others that the device will report, unless others run beside that
  // work.
  Instant due(const Client& client, const DeviceUsage& usage, const Unit& unit) const;
  bool is_behind_others(const Client& client, const DeviceUsage& usage, const Unit& unit) const;
  bool was_due(const Client& client) const;
  // A launch of the client, made at `launched`, is reported. Kernels that other clients launched before it, and
  // that are not due yet, let others run beside them.
  void see_passed(const Client& client, DeviceId device, Instant launched);
  // A kernel of the client is complete. Others did not run beside it if work of theirs is overdue.
  void see_blocked(Client& client, const Device& on, const DeviceUsage& usage, KernelId kernel);
  bool is_overdue(const Client& client, DeviceId device) const;
  Instant works_until(const Client& client, const DeviceUsage& usage) const;
  // Computes anew when the rest of a stream is due, if none of it will be reported: the device has just
  // reported what lay before.
  void reckon_tail(DeviceUsage& usage, UnitQueue& units) const;
  // One client has had the device for `had` between `since` and `at`: others' untracked work is due later.
  void keep_others_off(Device& on, const DeviceUsage& one, Instant since, Instant at, Duration had);
  void complete(Client& client, size_t slot, uint64_t sequence);
  void retire_due(Client& client);

  // measurements.cc
  void take(const Timed& input);
  // Whether a launch of the client can have taken that long by now.
  bool is_possible(const Client& client, const Timed& timed) const;
  // Learns how long a launch took. `co_running`: others may have had work on the device meanwhile.
  void measured(Client& client, TaskKernel& kernel, const Timed& timed, bool co_running);
  // Whether the kernel's lengths are also learnt from completions.
  bool is_seen(const KernelUse& use) const;
  // Learns from the completion of a unit.
  void saw(Client& client, StreamSlot stream, const Unit& unit);
  // Whether another client has work on one of this client's devices, or had since `since`.
  bool had_co_running(const Client& client, Instant since) const;
  static LearnedLaunches::CoRunning co_running(const Device& on, const Client& client,
                                               const DeviceUsage& usage, size_t slot,
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
  void expire_grants(Client& client);
  static bool is_given_up(const Client& client, const PendingLaunch& pending,
                          const DeviceUsage& usage);
  void release(Client& client, PendingLaunch& pending, bool tell_policy);
  // What is to be published: the policy's decision, or what a later rule makes of it.
  struct Target {
    Gate gate = Gate::kOpen;
    Duration bound;          // on what is in flight; this and the rest for a credit only
    bool any_length = true;  // as in policies::Credit
    Duration step;           // topped up when there is at least this much to give
  };
  Target target(const Client& client, const DeviceUsage& usage) const;
  // Another client may go before this one, and would have to wait for more in flight than kRunAhead allows.
  bool runs_ahead(const Client& client, const DeviceUsage& usage, const Device& on) const;
  void apply_job_rules();
  void apply_job_rule(Job& job);
  Instant stuck_at(const Client& client, const DeviceUsage& usage) const;
  void look_for_inversion(Client& client);
  void recount_stuck(Device& device);
  void watchdog(Client& client);
  Instant watchdog_due(const Client& client, const PendingLaunch& pending) const;
  void publish(Client& client);
  void publish_credit(Client& client, DeviceUsage& usage, const Target& target);
  static Instant stale_at(const PendingLaunch& pending, const DeviceUsage& usage);
  Instant next_wake(const Client& client) const;
  void set_wake(Client& client);
  // status.cc
  void cannot_share(const Client& client, std::vector<UnsharableStatus>& out) const;
  // Whether `other` is a reason for `client` to be held on this device.
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
