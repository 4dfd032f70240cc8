// One attached client: its socket and pidfd, its region, and what the daemon knows of it. Turns the
// client's records into engine inputs and the engine's outputs into gate words. Loop thread only.
// It decides nothing and knows no other client.
//
// Everything read from the region is checked; what does not hold is counted as a lie, and a client
// with kMaxLies of them is `hopeless`: the daemon drops it and its gates open. How closely it is looked at:
// look_schedule.h.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coordinator/channel/daemon_view.h"
#include "coordinator/channel/messages.h"
#include "coordinator/daemon/client_region.h"
#include "coordinator/daemon/clock.h"
#include "coordinator/daemon/device_table.h"
#include "coordinator/daemon/look_schedule.h"
#include "coordinator/daemon/priority_rules.h"
#include "coordinator/daemon/session_observer.h"
#include "coordinator/engine/events.h"
#include "coordinator/engine/task_record.h"
#include "coordinator/moves/events.h"

namespace lull::daemon {

inline constexpr uint64_t kMaxLies = 64;

struct StampedInput {
  template <typename Event>
  StampedInput(Instant at_, Event event)
      : at(at_), input(std::in_place_type<Event>, std::move(event)) {}
  Instant at;
  engine::Input input;
};

// What is known of a client at its hello.
struct SessionBirth {
  ClientId id;
  JobId job;
  Peer peer;
  pid_t namespace_pid = 0;  // as the process itself sees its pid; 0: not known
  std::string task;
  std::string job_name;  // empty: a job of its own
  std::string program;
  Priority priority;
  SlowdownBound bound = {};
  uint64_t memory_limit_bytes = 0;  // 0: none
  uint32_t timing_wish = channel::kTimingUnset;
  uint32_t moves = 0;  // channel::lull_moves granted
  bool counted = true;  // it has launched nothing before

  // Named by its pid. A process that this one does not see (peer_process.h) has none to be named
  // by.
  bool is_process(std::string_view name) const {
    return peer.pid > 0 && name == std::to_string(peer.pid);
  }
};

// What is learnt is remembered under this: one user's task does not spoil another's.
std::string task_key(const SessionBirth& who);

// What the client's profile is looked for by: the model of its first device, known at this time.
struct Recall {
  std::string gpu;
  Instant at;
  bool done = false;  // the engine knows what there is
};

class Session {
 public:
  Session(SessionBirth birth, FileDescriptor socket, FileDescriptor pidfd, ClientRegion region);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const SessionBirth& who() const { return who_; }
  ClientId id() const { return who_.id; }
  int socket() const { return socket_.get(); }
  int pidfd() const { return pidfd_.get(); }
  channel::Region region() const { return region_; }

  // ---- in: what the client and the device wrote ----
  // Appends inputs, unordered between threads; true when there was any record. `thorough` looks at
  // every thread slot, otherwise at those seen in use and the next one.
  bool drain(const Clock& clock, Instant now, DeviceTable& devices, bool thorough,
             std::vector<StampedInput>& inputs);
  // Appends what the device has completed since; true when there was anything.
  bool poll_progress(Instant now, std::vector<StampedInput>& inputs);
  bool has_tracked_work() const { return streams_in_flight_.any(); }
  // A held launch is known, or vanished and is being watched.
  bool has_held() const { return held_threads_ != 0; }
  bool has_records() const;
  // The fullest ring at the last drain, in records.
  uint32_t ring_high_water() const { return ring_high_water_; }
  bool is_detached() const { return channel::client_detached(region_); }
  uint64_t lies() const { return lies_; }
  bool is_hopeless() const { return lies_ >= kMaxLies; }

  // ---- out ----
  void set_gate(const engine::SetGate& gate);
  void release(const engine::Release& release);
  void set_progress(const engine::SetProgress& progress);
  void predict(const engine::Predict& prediction);
  void set_priority(Priority priority);
  // Opens every gate: the daemon lets go of this client.
  void open_all();
  void set_allowance(uint32_t index, uint64_t bytes);
  void set_record_mode(channel::lull_record_mode mode);
  void set_timing_period(uint32_t period);

  // ---- where its device memory is (session_residence.cc) ----
  bool can_move() const { return who_.moves != 0; }
  bool takes_turns() const { return (who_.moves & channel::kMovesOversubscribe) != 0; }
  // What it says of itself, brought into range: words that mean nothing count as lies, bytes as no more
  // than the device has.
  moves::Report report(const DeviceTable& devices);
  // The client has said that there is something to look at, since the last `report`.
  bool has_residence_news() const { return residence_news_; }
  // Takes over that the client's GPUs are others now. Nothing where one of them is not known, or is being
  // written: the next look sees it.
  void remap_devices(Instant now, DeviceTable& devices, std::vector<StampedInput>& inputs);
  // Publishes it and wakes the client's service thread. Its number.
  uint32_t order(const channel::lull_order& order);
  void set_pace(uint64_t bytes_per_s, uint32_t chunk_bytes);
  // Host memory: what it has, what it wants in all, what it may take.
  uint64_t host_bytes() const;
  uint64_t copy_bytes_per_s() const;  // that its last copies had, as it says; 0: not known
  uint64_t host_wanted_bytes() const;
  uint64_t host_allowance_bytes() const { return host_allowance_bytes_; }
  void set_host_allowance(uint64_t bytes);

  // ---- for the ledger and for status ----
  uint32_t device_count() const { return device_count_; }
  // Nothing until the client's entry was complete.
  std::optional<DeviceId> device(uint32_t index) const { return devices_[index].id; }
  // Takes over devices that the client has named since, and those that have become known. What
  // stays unknown runs unscheduled.
  void map_devices(Instant now, DeviceTable& devices, std::vector<StampedInput>& inputs);
  // Devices that the client names and the coordinator does not know. Told: the client knows that.
  struct UnknownDevice {
    DeviceUuid uuid{};
    bool told = false;
  };
  std::vector<UnknownDevice> unknown_devices() const;
  bool has_untold_devices() const { return untold_devices_ != 0; }
  // Tells the client of those that it named before then (CLOCK_MONOTONIC). True: of any.
  bool tell_unknown_devices(uint64_t named_before_ns);
  channel::GateState gate_state(uint32_t index) const;
  channel::ThreadTotals totals() const;
  // Of `totals`, cheaper: records that found a full ring, of the threads seen.
  uint64_t dropped() const;
  size_t kernel_count() const { return kernel_ids_.size(); }
  // As the driver names it; "?" for one that was never shown.
  std::string kernel_name(KernelId kernel) const;
  uint32_t thread_tid(ThreadSlot thread) const;
  // By kernel slot: its name as shown by the client, and the launch records seen.
  std::string slot_name(uint32_t slot) const;
  // Units since the last call whose records found their rings full.
  uint64_t newly_unrecorded();
  uint64_t slot_launches(uint32_t slot) const { return slot_launches_[slot]; }
  // Takes over kernel slots that no record has named yet.
  void map_kernels();

  // ---- the loop's own notes ----
  LookSchedule looks;
  std::optional<Recall> recall;  // its profile is, or has been, looked for
  uint64_t kept_launches = 0;  // launches at the time its profile was last given to the disk
  bool gone = false;  // to be erased at the end of the turn
  SessionObserver* observer = nullptr;  // while a trace is recorded

 private:
  struct Device {
    std::optional<DeviceId> id;
    DeviceUuid uuid{};
    uint64_t looked = 0;    // the table's generation when it was looked for
    uint64_t named_ns = 0;  // found to be unknown then, CLOCK_MONOTONIC
    uint32_t epoch = 0;
    uint64_t gate_word = channel::kGateOpenAtBirth;
  };
  struct Thread {
    uint32_t held_ticket = 0;  // the engine has been told of
    channel::HeldLaunch held;
    Instant vanished{-1};  // since when the thread no longer shows it
    Instant told{0};       // the engine was last told of it
  };
  struct Stream {
    uint64_t launched = 0;   // last sequence number recorded
    uint64_t tracked = 0;    // last one with a marker
    uint64_t completed = 0;  // last one reported to the engine
  };
  struct Kernel {
    std::vector<uint32_t> slots;
    uint32_t predicted_ns = 0;
  };

  std::optional<KernelId> kernel_of(uint32_t slot);
  bool is_copy(uint32_t slot) const;
  void take(const channel::lull_record& record, ThreadSlot thread, const Clock& clock, Instant now,
            std::vector<StampedInput>& inputs);
  // `at`: as the engine is told. `traced`: as an observer is.
  void take_launch(const channel::lull_record& record, ThreadSlot thread, Instant at,
                   Instant traced, std::vector<StampedInput>& inputs);
  void take_held(const channel::HeldLaunch& held, ThreadSlot thread, Instant at, Instant traced,
                 std::vector<StampedInput>& inputs);
  Instant traced_at(uint64_t ticks, const Clock& clock, Instant at) const;
  void look_at_held(ThreadSlot thread, const Clock& clock, Instant now,
                    std::vector<StampedInput>& inputs);
  void forget_held(ThreadSlot thread);
  void complete(StreamSlot stream, uint64_t sequence, Instant at,
                std::vector<StampedInput>& inputs, bool synced = false);
  void lie(uint64_t weight = 1) { lies_ += weight; }
  void wake_threads() const;

  SessionBirth who_;
  FileDescriptor socket_;
  FileDescriptor pidfd_;
  ClientRegion memory_;
  channel::Region region_;

  uint32_t device_count_ = 0;
  uint32_t unknown_devices_ = 0;  // a bit an index
  uint32_t untold_devices_ = 0;   // those of them that the client was not told of
  std::array<Device, channel::kMaxDevices> devices_{};
  uint32_t threads_seen_ = 0;  // slots [0, n) have been in use
  uint32_t held_threads_ = 0;
  uint32_t ring_high_water_ = 0;
  std::array<Thread, channel::kMaxThreads> threads_{};
  std::array<Stream, channel::kMaxStreams> streams_{};
  // The last stamp of each ring: stamps of one thread never go back, though some of its records carry
  // a time and some do not.
  std::array<Instant, channel::kMaxThreads> last_at_{};
  Instant looked_at_{0};  // the last thorough look: what has come since is younger
  channel::lull_record_mode record_mode_ = channel::kRecordUntimed;
  std::bitset<channel::kMaxStreams> streams_in_flight_;
  std::vector<KernelId> kernel_ids_;  // by slot
  std::vector<uint64_t> slot_launches_;
  uint64_t unrecorded_ = 0;
  std::unordered_map<uint64_t, Kernel> kernels_;
  uint64_t lies_ = 0;
  bool residence_news_ = true;
  uint64_t host_allowance_bytes_ = 0;
  uint64_t pace_bytes_per_s_ = 0;
  uint32_t chunk_bytes_ = 0;
};

}  // namespace lull::daemon
