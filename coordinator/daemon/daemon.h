// The I/O shell around the engine: sockets, regions, clock and loop. One thread does everything; it
// decides nothing that the engine decides.
//
//   sockets, pidfds, signals --epoll--> Daemon::turn
//   rings, progress words ----poll----> inputs --> Engine::step --> outputs --> PublishQueue -->
//   gates
//
// A turn costs O(clients that do something). Who is looked at, and how often (look_schedule.h):
//   closely   a client on a device that several use, under a policy that holds launches: every
//             kCloseSpacingNs of model time while it launches or has tracked work in flight, more
//             slowly the longer a kernel runs; by spinning where that is shorter than a sleep and
//             there are more than two processors
//   lazily    every other client: every kLazySpacingNs while it launches (sooner when rings fill
//             up), so that totals and identities are known
//   not       a quiet client: its doorbell is armed. With all clients quiet the daemon sleeps.
#pragma once

#include <cstdint>
#include <deque>
#include <expected>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "coordinator/daemon/background.h"
#include "coordinator/daemon/client_quota.h"
#include "coordinator/daemon/client_rates.h"
#include "coordinator/daemon/config.h"
#include "coordinator/daemon/control.h"
#include "coordinator/daemon/elastic_jobs.h"
#include "coordinator/daemon/listener.h"
#include "coordinator/daemon/log.h"
#include "coordinator/daemon/machine_devices.h"
#include "coordinator/daemon/memory_ledger.h"
#include "coordinator/daemon/profile_store.h"
#include "coordinator/daemon/publish_queue.h"
#include "coordinator/daemon/request_queue.h"
#include "coordinator/daemon/status.h"
#include "coordinator/daemon/tool_connection.h"
#include "coordinator/daemon/trace_recorder.h"
#include "coordinator/jobs/job_scheduler.h"
#include "coordinator/moves/moves.h"
#include "coordinator/trace/decision_log.h"
#include "policies/jobs/turns.h"

namespace lull::channel {
struct lull_hello;
}

namespace lull::daemon {

inline constexpr size_t kMaxToolConnections = 256;
// Replies that a user's tools have not read yet: beyond it none of this user's requests is
// answered.
inline constexpr size_t kUnreadBytesOfUser = 1U << 20;

// A profile that was read, in parts that the engine is told one by one.
struct Recalled {
  ClientId client;
  Instant at;
  std::deque<std::string> parts;
};

struct DaemonSettings {
  std::string socket_path;
  Config config;
  std::string config_path;  // read again on reload; empty: none
  std::string trace;         // record into this file; overrides the configuration's
  std::string decision_log;  // as well
  std::string policy;       // overrides the configuration's, also on reload; empty: none
  std::optional<channel::lull_timing> timing;  // likewise
  MachineSources machine;                      // where the machine's devices are looked for
  // A program may name a device that is new, or one that there never was: the driver is asked so
  // often at most, whoever names what.
  uint64_t ask_driver_again_ns = 5'000'000'000;
  bool simulated = false;
  std::string sim_device;
  bool verbose = false;
  bool silent = false;          // log nothing (tests)
  bool handle_signals = false;  // the caller has blocked TERM, INT and HUP
};

class Daemon : private ControlTarget {
 public:
  static std::expected<std::unique_ptr<Daemon>, std::string> start(DaemonSettings settings);
  ~Daemon() override;

  // Until SIGTERM or SIGINT; then every gate is open and every socket closed.
  void run();
  // One turn of the loop, sleeping at most `most_ns` for something to do. False: asked to stop.
  bool turn(uint64_t most_ns);
  // Reads the configuration again; a bad one is logged and the old one stays.
  void reload();
  // Opens every gate and lets every client go. Done once, also by the destructor.
  void stop();

  const Clock& clock() const { return clock_; }
  const RequestFigures& requests() const { return figures_.requests; }
  size_t client_count() const { return sessions_.size(); }
  // Profiles are being read, or told to the engine.
  bool is_recalling() const;
  uint64_t turns() const { return figures_.turns; }
  uint64_t profiles_recalled() const { return figures_.profiles_recalled; }

 private:
  Daemon(DaemonSettings settings, Listener listener, Clock clock);

  // ---- epoll ----
  enum class Source : uint32_t {
    kListener,
    kSignal,
    kTool,
    kClient,
    kProcess,
    kDriver,
    kDisk,
    kRecall
  };
  bool watch(int fd, Source source, uint32_t id, uint32_t events);
  bool look_at_sockets(uint64_t most_ns);
  void take_connections();
  void take_signals();
  void take_tool_event(uint32_t id, uint32_t events);
  void make_room_for_tool();
  void take_client_event(uint32_t id, uint32_t events);

  // ---- clients ----
  void take_hello(ToolConnection& connection, const channel::lull_hello& hello);
  void refuse(ToolConnection& connection, uint32_t status, const std::string& message);
  void settle_places();
  JobId job_of(const Peer& peer, const std::string& name, ClientId client);
  void look_for_sim_device();

  // ---- requests of tools (daemon_requests.cc) ----
  bool may_ask(uid_t user) const;
  void answer_requests();
  void reply_to(uint32_t tool, std::string text);
  size_t unread_bytes(const uid_t* user) const;

  // ---- devices (daemon_devices.cc) ----
  bool asks_driver() const { return !settings_.simulated && settings_.config.devices.empty(); }
  void learn_devices(const std::vector<KnownDevice>& devices, uint64_t asked_ns);
  void ask_driver();
  void look_at_unknown_devices(Session& session);
  void tell_unknown_devices(Session& session, uint64_t named_before_ns);
  std::string why_unknown() const;
  void reset_engine();
  void drop(Session& session, const std::string& why);
  void bury();

  // ---- one turn ----
  void look_at_clients(uint64_t monotonic_ns);
  void look_at_client(Session& session, uint64_t monotonic_ns);
  void settle_activity(Session& session, bool eventful, uint64_t monotonic_ns);
  bool is_close(const Session& session) const;
  void ring(Session& session, LookSchedule::Doorbell doorbell);
  void wake(Session& session);
  void step_engine();
  void publish_due();
  void publish(const engine::Output& output);
  void keep_house(uint64_t monotonic_ns);
  uint64_t next_deadline_ns();
  uint64_t wait_ns(uint64_t most_ns);

  // ---- what is kept between runs (daemon_profiles.cc) ----
  void recall_profiles();
  void read_profile(Session& session);
  void recall_done(ClientId client);
  // True: something was told.
  bool tell_recalled();
  // True: there was something to keep.
  bool keep_profile(Session& session);
  void keep_all_profiles();
  void keep_some_profiles(uint64_t monotonic_ns);
  bool may_keep(uid_t user) const;
  void profiles(const ProfileOrder& order, const Peer& peer, Then then) override;

  // ---- trace and decision log (daemon_trace.cc) ----
  std::expected<void, std::string> start_recording(TraceOrder order);
  void begin_recording();
  void stop_recording();
  void record_end(Session& session);
  void keep_records(uint64_t monotonic_ns);
  // How the trace that is recorded now wants launches timed, and every client told so.
  std::optional<channel::lull_timing> recorded_timing() const;
  void publish_timing();
  std::expected<void, std::string> start_decision_log(const std::string& file);

  // ---- jobs that move (daemon_moves.cc) ----
  void tell_moves_of_devices();
  void look_at_residence(const Session& session);
  bool moves_due(uint64_t monotonic_ns) const;
  void step_moves(uint64_t monotonic_ns, bool whole = false);
  void tell_moves_of_clients(bool whole);
  void run_moves();
  void carry_out(const moves::Output& output);
  void share_host_memory();
  // What clients that take turns may hold now; whether one of them waits.
  bool give_allowances();
  void ask_turns();
  void set_paces();
  int32_t guarded_mean_per_mille() const;
  bool is_away(const Session& session) const;
  std::expected<JobId, std::string> find_job(const std::string& name, const Peer& peer) const;
  nlohmann::json job_json(JobId job) const;
  scheduling::JobNature nature_of(const SessionBirth& who) const;
  void allow_gpus(const scheduling::ResizeJob& order);
  nlohmann::json elastic_json(const ElasticJob& job) const;
  std::expected<nlohmann::json, std::string> elastic_job(const std::string& job,
                                                         const std::optional<ElasticJob>& range,
                                                         const Peer& peer) override;
  std::expected<nlohmann::json, std::string> resize_job(const JobOrder& order, const Peer& peer);
  std::expected<nlohmann::json, std::string> move_job(const JobOrder& order, const Peer& peer) override;

  // ---- the job policy (daemon_jobs.cc) ----
  void use_job_policy(const std::string& text);
  scheduling::NodeView node_view() const;
  void step_jobs(uint64_t monotonic_ns);
  void follow(std::span<const scheduling::JobOrder> orders);
  // A person's order that the moves have taken.
  void note_command(const JobOrder& order, JobId job, const std::vector<DeviceId>& to);
  nlohmann::json job_policy_json() const;
  std::string job_policy_text() override;
  std::expected<std::string, std::string> change_job_policy(const std::string& text,
                                                            const Peer& peer) override;

  // ---- ControlTarget ----
  nlohmann::json status(uint32_t from) override;
  std::expected<nlohmann::json, std::string> kernels(ClientId client, uint32_t from) override;
  std::string policy_text() override;
  std::expected<std::string, std::string> change_policy(const std::string& text,
                                                        const Peer& peer) override;
  std::expected<std::vector<ClientId>, std::string> change_priority(const std::string& task,
                                                                    Priority level,
                                                                    const Peer& peer) override;
  PriorityVerdict judge(const Peer& peer, Priority asked) const override;
  std::expected<nlohmann::json, std::string> trace(const std::optional<TraceOrder>& order, bool stop,
                                                   const Peer& peer) override;
  bool is_operator(const Peer& peer) const;
  std::expected<void, std::string> must_be_operator(const char* to_do, const Peer& peer) const;
  void adopt_policy(const std::string& text);

  DaemonSettings settings_;
  Log log_;
  Clock clock_;
  PriorityRules rules_;
  FileDescriptor epoll_;
  FileDescriptor signals_;
  FileDescriptor spare_;  // given up for a moment to turn a connection away when none is left
  Listener listener_;

  std::unique_ptr<engine::Engine> engine_;
  DeviceTable devices_;
  Background driver_;            // what may wait for the driver
  bool driver_wanted_ = false;   // a client names a device that it was not asked about
  uint64_t next_driver_ns_ = 0;  // and may be asked again
  MemoryLedger ledger_;
  PublishQueue queue_;
  Instant timer_ = kNever;
  std::vector<StampedInput> inputs_;
  std::vector<std::pair<Instant, size_t>> order_;  // by time, then arrival
  std::vector<engine::Input> ordered_;
  std::vector<engine::Output> outputs_;

  std::unique_ptr<moves::Moves> moves_;
  ElasticJobs elastic_;
  std::vector<moves::Input> moves_inputs_;
  std::vector<moves::Output> moves_outputs_;
  Instant moves_timer_ = kNever;
  jobs::Turns turns_;
  Instant turns_timer_ = kNever;
  std::unique_ptr<scheduling::JobScheduler> scheduler_;  // none: no job policy
  std::vector<jobs::Command> commands_;                  // since it was last asked
  uint64_t next_jobs_look_ns_ = UINT64_MAX;
  bool residence_changed_ = false;        // of some client: it is to be looked at
  uint64_t next_moves_look_ns_ = UINT64_MAX;  // while somebody is on the way: clients may say nothing
  std::map<uint32_t, moves::Report> reports_;  // as `moves_` was told, by client id
  std::map<uint32_t, uint64_t> launches_at_pace_;  // by client id, while somebody copies
  std::set<std::string> locks_made_;

  std::unique_ptr<TraceRecorder> recorder_;  // none: no trace
  bool recording_since_launches_ = false;    // clients may have launched before it was asked for
  nlohmann::json last_trace_;                // figures of the one that ended last
  std::optional<trace::DecisionLogWriter> decisions_;
  uint64_t next_decision_flush_ns_ = UINT64_MAX;

  std::map<uint32_t, ToolConnection> tools_;
  RequestQueue requests_;
  uint64_t next_request_ns_ = 0;
  Background disk_;  // what may wait for a disk
  SessionMap sessions_;
  ClientQuota quota_;         // of sessions_
  uint64_t descriptors_ = 0;  // that this process may have open
  std::vector<Session*> awake_;
  std::map<std::pair<uid_t, std::string>, JobId> jobs_;
  std::map<uint64_t, uint32_t> job_members_;
  uint32_t next_tool_ = 1;
  uint32_t hellos_this_turn_ = 0;
  uint32_t next_client_ = 1;
  uint64_t next_job_ = 1;
  bool any_gone_ = false;
  bool policy_holds_ = false;  // the policy closes gates: its clients' records are urgent
  bool stopping_ = false;
  bool stopped_ = false;

  uint64_t started_ns_ = 0;
  uint64_t last_sockets_ns_ = 0;
  uint64_t watchdog_interval_ns_ = 0;
  uint64_t next_watchdog_ns_ = 0;
  uint64_t next_sweep_ns_ = 0;
  unsigned processors_ = 1;
  DaemonFigures figures_;
  ClientRates rates_;
  ProfileStore store_;
  RequestQueue recalls_;  // clients whose profiles are to be read
  Background reader_;     // reads one at a time
  Recalled recalled_;     // the one that was read last, as far as it is not told yet
  uint64_t next_recall_ns_ = 0;
  RequestQueue keeps_;                  // clients whose profiles are to be kept in this round
  std::map<uid_t, size_t> keeping_;     // profiles that wait for the disk, by user
  uint64_t next_keep_ns_ = UINT64_MAX;  // CLOCK_MONOTONIC, of the next round
  uint64_t kept_ns_ = 0;                // began the last round
};

}  // namespace lull::daemon
