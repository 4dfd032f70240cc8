#include "coordinator/daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>

#include <algorithm>
#include <thread>

#include "coordinator/daemon/processor_time.h"
#include "coordinator/daemon/service_notice.h"
#include "policies/launch/registry.h"

namespace lull::daemon {
namespace {

// Shorter than a sleep takes; only where a processor can be spared.
constexpr uint64_t kSpinBelowNs = 50'000;
constexpr unsigned kSpinProcessors = 3;
constexpr uint64_t kSocketsEveryNs = 20'000;
constexpr uint64_t kSweepEveryNs = 1'000'000'000;
constexpr uint64_t kFirstPacketWithinNs = 10'000'000'000;
constexpr int kEventsATurn = 64;
constexpr int kFirstAnswerMs = 1000;
// After parts of a profile were told, the loop does for so many times as long what else there is:
// they take a fifth of its processor time at most.
constexpr uint64_t kRecallPause = 4;

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The soft limit is often 1024. How many there may be.
uint64_t raise_descriptor_limit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlimit raised{.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
  return ::setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

int wait_for_events(int epoll, epoll_event* events, uint64_t wait_ns) {
  timespec wait{.tv_sec = static_cast<time_t>(wait_ns / 1'000'000'000),
                .tv_nsec = static_cast<long>(wait_ns % 1'000'000'000)};
  const long got = ::syscall(SYS_epoll_pwait2, epoll, events, kEventsATurn,
                             wait_ns == UINT64_MAX ? nullptr : &wait, nullptr, 8);
  if (got >= 0 || errno != ENOSYS) return static_cast<int>(got);
  const uint64_t wait_ms = wait_ns == UINT64_MAX ? 0 : (wait_ns + 999'999) / 1'000'000;
  return ::epoll_wait(
      epoll, events, kEventsATurn,
      wait_ns == UINT64_MAX ? -1 : static_cast<int>(std::min<uint64_t>(wait_ms, 3'600'000)));
}

// Clients and devices must be known before anything of theirs; everything else goes by time.
bool is_structural(const engine::Input& input) {
  return std::holds_alternative<engine::ClientAttached>(input) ||
         std::holds_alternative<engine::DeviceUsed>(input) ||
         std::holds_alternative<engine::TaskRecalled>(input);
}
Instant order_of(const StampedInput& stamped) {
  return is_structural(stamped.input) ? Instant{-1} : stamped.at;
}

}  // namespace

// ---- life -------------------------------------------------------------------------------------

std::expected<std::unique_ptr<Daemon>, std::string> Daemon::start(DaemonSettings settings) {
  const std::string policy = settings.policy.empty() ? settings.config.policy : settings.policy;
  if (const auto good = policies::check_policy(policy); !good) {
    return std::unexpected(fmt::format("cannot use policy \"{}\": {}", policy, good.error()));
  }
  const uint64_t descriptors = raise_descriptor_limit();
  // Sleeps of microseconds, not of the default slack of 50.
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  Clock clock = settings.simulated ? Clock::simulated(settings.sim_device) : Clock::real();
  if (const auto found = clock.look_for_device(); !found) return std::unexpected(found.error());
  const mode_t mode = settings.config.socket_mode.value_or(::geteuid() == 0 ? 0666 : 0600);
  auto listener = Listener::open(settings.socket_path, mode, settings.config.socket_group);
  if (!listener) return std::unexpected(listener.error());

  std::unique_ptr<Daemon> daemon(
      new Daemon(std::move(settings), std::move(*listener), std::move(clock)));
  daemon->descriptors_ = descriptors;
  daemon->settle_places();
  const DaemonSettings& told = daemon->settings_;
  const std::string& decision_log =
      told.decision_log.empty() ? told.config.decision_log : told.decision_log;
  if (!decision_log.empty()) {
    const auto begun = daemon->start_decision_log(decision_log);
    if (!begun) return std::unexpected(begun.error());
  }
  daemon->reset_engine();
  daemon->adopt_policy(policy);
  daemon->use_job_policy(daemon->settings_.config.job_policy);
  const std::string& trace = told.trace.empty() ? told.config.trace : told.trace;
  if (!trace.empty()) {
    const auto begun = daemon->start_recording({.file = trace});
    if (!begun) return std::unexpected(begun.error());
  }
  if (told.simulated) {
    if (daemon->clock_.ready()) daemon->learn_devices(sim_devices(daemon->clock_), UINT64_MAX);
  } else if (!told.config.devices.empty()) {
    daemon->learn_devices(told.config.devices, UINT64_MAX);
  } else {
    // So that the first client finds them known; a driver that takes longer is not waited for.
    daemon->ask_driver();
    daemon->driver_.wait(kFirstAnswerMs);
    daemon->driver_.finish();
  }
  daemon->epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
  daemon->spare_ = FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (daemon->settings_.handle_signals) {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&signals, signal);
    daemon->signals_ = FileDescriptor(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  if (!daemon->epoll_ || !daemon->watch(daemon->listener_.fd(), Source::kListener, 0, EPOLLIN) ||
      !daemon->watch(daemon->driver_.fd(), Source::kDriver, 0, EPOLLIN) ||
      !daemon->watch(daemon->disk_.fd(), Source::kDisk, 0, EPOLLIN) ||
      !daemon->watch(daemon->reader_.fd(), Source::kRecall, 0, EPOLLIN) ||
      (daemon->signals_ && !daemon->watch(daemon->signals_.get(), Source::kSignal, 0, EPOLLIN))) {
    return std::unexpected(
        fmt::format("cannot start: epoll: {}: raise the limit of open files", strerror(errno)));
  }
  return daemon;
}

Daemon::Daemon(DaemonSettings settings, Listener listener, Clock clock)
    : settings_(std::move(settings)),
      log_(settings_.verbose, settings_.silent),
      clock_(std::move(clock)),
      rules_(settings_.config.priorities ? PriorityRules(*settings_.config.priorities)
                                         : PriorityRules::built_in(::geteuid())),
      listener_(std::move(listener)),
      ledger_(settings_.config.memory_reserve_bytes),
      started_ns_(channel::monotonic_ns()),
      watchdog_interval_ns_(settings_.handle_signals ? watchdog_interval_ns() : 0),
      processors_(std::max(1U, std::thread::hardware_concurrency())) {
  next_watchdog_ns_ = watchdog_interval_ns_ == 0 ? UINT64_MAX : started_ns_;
  const bool by_default = !settings_.config.profiles && !settings_.simulated && !settings_.silent;
  store_ = ProfileStore(by_default ? default_profile_directory()
                                   : settings_.config.profiles.value_or(""));
}

Daemon::~Daemon() { stop(); }

void Daemon::run() {
  log_.line(fmt::format(
      "listening on {}, policy {}{}", listener_.path(), policy_text(),
      clock_.is_simulated() ? fmt::format(", simulated device {}", clock_.device_file()) : ""));
  notify_service("READY=1");
  while (turn(UINT64_MAX)) {
  }
  notify_service("STOPPING=1");
  log_.line(fmt::format("stopping: opening the gates of {} clients", sessions_.size()));
  stop();
}

void Daemon::stop() {
  if (stopped_) return;
  stopped_ = true;
  keep_all_profiles();
  if (recorder_ && !recorder_->is_closing()) stop_recording();
  recorder_.reset();
  decisions_.reset();
  for (const auto& [id, session] : sessions_) session->open_all();
  awake_.clear();
  sessions_.clear();
  tools_.clear();
}

bool Daemon::turn(uint64_t most_ns) {
  hellos_this_turn_ = 0;
  look_at_sockets(wait_ns(most_ns));
  const uint64_t monotonic_ns = channel::monotonic_ns();
  clock_.refine(monotonic_ns);
  look_at_clients(monotonic_ns);
  step_engine();
  if (moves_due(monotonic_ns)) step_moves(monotonic_ns);
  if (monotonic_ns >= next_jobs_look_ns_) step_jobs(monotonic_ns);
  publish_due();
  answer_requests();
  keep_house(monotonic_ns);
  bury();
  ++figures_.turns;
  return !stopping_;
}

// ---- waiting ----------------------------------------------------------------------------------

uint64_t Daemon::next_deadline_ns() {
  uint64_t deadline = next_watchdog_ns_;
  if (!tools_.empty()) deadline = std::min(deadline, next_sweep_ns_);
  if (requests_.can_pop([this](uid_t user) { return may_ask(user); })) {
    deadline = std::min(deadline, next_request_ns_);
  }
  if (disk_.waiting() == 0 && !keeps_.empty()) deadline = 0;
  if (!recalled_.parts.empty()) deadline = std::min(deadline, next_recall_ns_);
  for (const Session* session : awake_) deadline = std::min(deadline, session->looks.next_look_ns());
  if (recorder_) deadline = std::min(deadline, recorder_->next_flush_ns());
  deadline =
      std::min({deadline, next_decision_flush_ns_, next_moves_look_ns_, next_jobs_look_ns_});
  if (driver_wanted_ && driver_.waiting() == 0) deadline = std::min(deadline, next_driver_ns_);
  if (clock_.ready()) {
    deadline =
        std::min({deadline, clock_.monotonic_at(timer_), clock_.monotonic_at(queue_.next()),
                  clock_.monotonic_at(std::min(moves_timer_, turns_timer_))});
  } else if (queue_.next() != kNever) {
    deadline = 0;
  }
  return deadline;
}

// How long to sleep in epoll; spins away what is too short for a sleep.
uint64_t Daemon::wait_ns(uint64_t most_ns) {
  if (!inputs_.empty() || !moves_inputs_.empty() || residence_changed_ || any_gone_) return 0;
  const uint64_t now = channel::monotonic_ns();
  const uint64_t deadline = next_deadline_ns();
  if (deadline == UINT64_MAX) return most_ns;
  if (deadline <= now) return 0;
  const uint64_t wait = std::min(deadline - now, most_ns);
  if (wait >= kSpinBelowNs || processors_ < kSpinProcessors) return wait;
  while (channel::monotonic_ns() < now + wait) pause_processor();
  return 0;
}

bool Daemon::watch(int fd, Source source, uint32_t id, uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = (static_cast<uint64_t>(source) << 32) | id}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return true;
  return errno == EEXIST && ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0;
}

bool Daemon::look_at_sockets(uint64_t wait_ns) {
  // While it spins, a look at the sockets each 20 us is enough, and a turn stays cheap.
  if (wait_ns == 0 && !awake_.empty() && processors_ >= kSpinProcessors &&
      channel::monotonic_ns() - last_sockets_ns_ < kSocketsEveryNs) {
    return false;
  }
  epoll_event events[kEventsATurn];
  const int count = wait_for_events(epoll_.get(), events, wait_ns);
  last_sockets_ns_ = channel::monotonic_ns();
  for (int i = 0; i < count; ++i) {
    const auto source = static_cast<Source>(events[i].data.u64 >> 32);
    const auto id = static_cast<uint32_t>(events[i].data.u64);
    switch (source) {
      case Source::kListener:
        take_connections();
        break;
      case Source::kSignal:
        take_signals();
        break;
      case Source::kTool:
        take_tool_event(id, events[i].events);
        break;
      case Source::kDriver:
        driver_.finish();
        break;
      case Source::kDisk:
        disk_.finish();
        break;
      case Source::kRecall:
        reader_.finish();
        break;
      case Source::kClient:
        take_client_event(id, events[i].events);
        break;
      case Source::kProcess: {
        const auto session = sessions_.find(id);
        if (session != sessions_.end()) drop(*session->second, "its process has ended");
        break;
      }
    }
  }
  return count > 0;
}

void Daemon::take_signals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGHUP) {
      reload();
    } else {
      stopping_ = true;
    }
  }
}

// ---- clients' records -------------------------------------------------------------------------

bool Daemon::is_close(const Session& session) const {
  if (!policy_holds_) return false;
  for (uint32_t index = 0; index < session.device_count(); ++index) {
    const auto id = session.device(index);
    const DeviceRow* row = id ? devices_.find(*id) : nullptr;
    if (row != nullptr && row->users.size() > 1) return true;
  }
  return false;
}

void Daemon::look_at_clients(uint64_t monotonic_ns) {
  // By index: a look may wake others.
  for (size_t i = 0; i < awake_.size(); ++i) {
    Session& session = *awake_[i];
    if (!session.gone && session.looks.is_due(monotonic_ns)) {
      look_at_client(session, monotonic_ns);
    }
  }
  std::erase_if(awake_, [](const Session* s) {
    return s->looks.activity() == LookSchedule::Activity::kAsleep;
  });
}

void Daemon::look_at_client(Session& session, uint64_t monotonic_ns) {
  channel::show_life(session.region());
  if (!clock_.ready()) look_for_sim_device();
  if (recorder_ && !recorder_->has_begun()) [[unlikely]] begin_recording();
  const Instant now = clock_.now();
  // The device may have come after the look above, and its first launches with it: they stay in
  // the rings until the trace has begun.
  if (recorder_ && !recorder_->has_begun() && !recorder_->is_closing()) [[unlikely]] {
    return settle_activity(session, session.has_records(), monotonic_ns);
  }
  const bool thorough = session.looks.is_thorough(monotonic_ns);
  const uint64_t lies_before = session.lies();
  bool eventful = session.drain(clock_, now, devices_, thorough, inputs_);
  eventful = session.poll_progress(now, inputs_) || eventful;
  if (const uint64_t missed = session.newly_unrecorded(); missed != 0) [[unlikely]] {
    inputs_.emplace_back(now, engine::LaunchesMissed{session.id(), missed});
  }
  figures_.records_lied += session.lies() - lies_before;
  if (session.has_untold_devices()) [[unlikely]]
    look_at_unknown_devices(session);
  if (recorder_) [[unlikely]] recorder_->drained(session, now);
  ledger_.look(session, devices_);
  look_at_residence(session);
  if (session.is_hopeless()) return drop(session, "its records make no sense");
  if (session.is_detached()) return drop(session, "it has let go");
  settle_activity(session, eventful, monotonic_ns);
}

void Daemon::settle_activity(Session& session, bool eventful, uint64_t monotonic_ns) {
  const bool close = is_close(session);
  session.set_record_mode(recorder_ ? channel::kRecordEverything
                          : close   ? channel::kRecordTimed
                                    : channel::kRecordUntimed);
  const LookSchedule::Seen seen{.eventful = eventful,
                                .close = close,
                                .tracked = session.has_tracked_work(),
                                .held = session.has_held(),
                                .traced = recorder_ != nullptr,
                                .away = is_away(session),
                                .ring_high_water = session.ring_high_water()};
  const auto least_ns = static_cast<int64_t>(kCloseSpacingNs * clock_.slow_motion());
  ring(session, session.looks.looked(seen, least_ns, monotonic_ns));
}

void Daemon::ring(Session& session, LookSchedule::Doorbell doorbell) {
  if (doorbell == LookSchedule::Doorbell::kDisarm) channel::disarm_doorbell(session.region());
  if (doorbell != LookSchedule::Doorbell::kArm) return;
  channel::arm_doorbell(session.region());
  if (session.has_records()) session.looks.look_at_once();
}

void Daemon::wake(Session& session) {
  if (session.looks.activity() == LookSchedule::Activity::kAsleep &&
      std::find(awake_.begin(), awake_.end(), &session) == awake_.end()) {
    awake_.push_back(&session);
  }
  ring(session, session.looks.woken(channel::monotonic_ns()));
}

// ---- the engine -------------------------------------------------------------------------------

void Daemon::reset_engine() {
  engine::EngineOptions options;
  options.policy = engine_
                       ? engine_->policy()
                       : (settings_.policy.empty() ? settings_.config.policy : settings_.policy);
  options.max_clients = settings_.config.max_clients;
  if (clock_.is_simulated()) {
    options.control_latency = clock_.control_latency();
    options.marker = {};  // it takes no time there
  }
  engine_ = std::make_unique<engine::Engine>(options);
  if (decisions_) decisions_->begun(options);
  queue_.clear();
  timer_ = kNever;
  // Only while there is no client: time may begin anew.
  moves_ = std::make_unique<moves::Moves>();
  moves_inputs_.clear();
  moves_timer_ = turns_timer_ = kNever;
  reports_.clear();
  tell_moves_of_devices();
  const std::string job_policy = job_policy_text();
  scheduler_.reset();
  use_job_policy(job_policy);
}

void Daemon::step_engine() {
  const Instant now = clock_.now();
  const bool timer_due = clock_.ready() && timer_ <= now;
  const uint64_t used_before_ns = recalled_.parts.empty() ? 0 : processor_ns();
  if (store_.is_on()) recall_profiles();
  const bool recalled = tell_recalled();
  if (inputs_.empty() && !timer_due) return;
  Instant cause = timer_due ? timer_ : Instant{0};
  order_.clear();
  for (size_t i = 0; i < inputs_.size(); ++i) order_.push_back({order_of(inputs_[i]), i});
  std::sort(order_.begin(), order_.end());
  ordered_.clear();
  bool device_joined = false;
  for (const auto& [at, index] : order_) {
    StampedInput& stamped = inputs_[index];
    cause = std::max(cause, stamped.at);
    device_joined = device_joined || std::holds_alternative<engine::DeviceUsed>(stamped.input);
    ordered_.push_back(std::move(stamped.input));
  }
  inputs_.clear();
  if (timer_due) timer_ = kNever;
  outputs_.clear();
  engine_->step(now, ordered_, outputs_);
  if (decisions_) [[unlikely]] decisions_->step(now, ordered_, outputs_);
  if (recorder_) [[unlikely]] recorder_->stepped();
  if (recalled) [[unlikely]] {
    next_recall_ns_ = channel::monotonic_ns() + kRecallPause * (processor_ns() - used_before_ns);
  }
  const Instant earliest = clock_.is_simulated() ? cause + clock_.control_latency() : Instant{0};
  for (engine::Output& output : outputs_) {
    if (const auto* timer = std::get_if<engine::SetTimer>(&output)) {
      timer_ = timer->at;
    } else if (const auto* notice = std::get_if<engine::Notice>(&output)) {
      log_.line(notice->text);
    } else if (const auto* stands = std::get_if<engine::JobStands>(&output)) {
      moves_inputs_.emplace_back(moves::JobStands{stands->job, stands->drained});
    } else {
      queue_.push(earliest, std::move(output));
    }
  }
  // A device with a second user is looked at closely from now on.
  if (device_joined) {
    for (const auto& [id, session] : sessions_) {
      if (!session->gone && session->has_tracked_work()) wake(*session);
    }
    for (Session* session : awake_) session->looks.look_at_once();
  }
}

void Daemon::publish_due() {
  queue_.pop_due(clock_.now(), [this](const engine::Output& output) { publish(output); });
}

void Daemon::publish(const engine::Output& output) {
  const auto find = [this](ClientId id) -> Session* {
    const auto found = sessions_.find(id.value);
    return found == sessions_.end() || found->second->gone ? nullptr : found->second.get();
  };
  if (const auto* gate = std::get_if<engine::SetGate>(&output)) {
    Session* session = find(gate->client);
    if (session == nullptr) return;
    session->set_gate(*gate);
    if (gate->gate != engine::Gate::kClosed && session->has_held()) wake(*session);
  } else if (const auto* release = std::get_if<engine::Release>(&output)) {
    Session* session = find(release->client);
    if (session == nullptr) return;
    session->release(*release);
    wake(*session);
  } else if (const auto* progress = std::get_if<engine::SetProgress>(&output)) {
    if (Session* session = find(progress->client)) session->set_progress(*progress);
  } else if (const auto* prediction = std::get_if<engine::Predict>(&output)) {
    if (Session* session = find(prediction->client)) session->predict(*prediction);
  }
}

// ---- housekeeping -----------------------------------------------------------------------------

void Daemon::keep_house(uint64_t monotonic_ns) {
  if (monotonic_ns >= next_watchdog_ns_) {
    notify_service("WATCHDOG=1");
    next_watchdog_ns_ = monotonic_ns + watchdog_interval_ns_;
  }
  if (driver_wanted_ && driver_.waiting() == 0 && monotonic_ns >= next_driver_ns_) ask_driver();
  if (recorder_ || decisions_) [[unlikely]] keep_records(monotonic_ns);
  keep_some_profiles(monotonic_ns);
  if (tools_.empty() || monotonic_ns < next_sweep_ns_) return;
  next_sweep_ns_ = monotonic_ns + kSweepEveryNs;
  std::erase_if(tools_, [&](const auto& entry) {
    return monotonic_ns - std::min(monotonic_ns, entry.second.since_ns()) > kFirstPacketWithinNs;
  });
}

void Daemon::bury() {
  if (!any_gone_) return;
  any_gone_ = false;
  std::erase_if(awake_, [](const Session* session) { return session->gone; });
  std::erase_if(sessions_, [this](const auto& entry) {
    if (!entry.second->gone) return false;
    quota_.left(entry.second->who().peer.uid);
    return true;
  });
}

}  // namespace lull::daemon
