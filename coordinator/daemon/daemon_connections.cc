// Daemon's sockets: who connects, what it says first, and how it leaves.
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>

#include "coordinator/channel/messages.h"
#include "coordinator/channel/welcome.h"
#include "coordinator/daemon/daemon.h"
#include "coordinator/daemon/peer_process.h"

namespace lull::daemon {
namespace {

using channel::lull_hello;
using channel::lull_welcome;

constexpr int kAcceptsATurn = 64;
constexpr int kDoorbellsATurn = 16;
// A region takes half a millisecond to make: who attaches in a loop delays a turn by few of them.
constexpr uint32_t kHellosATurn = 4;
static_assert(kDescriptorsKept > kMaxToolConnections);

template <size_t N>
std::string text_of(const char (&field)[N]) {
  return printable(std::string_view(field, strnlen(field, N)));
}

lull_welcome make_welcome(uint32_t status, const std::string& text) {
  lull_welcome welcome{};
  welcome.magic = channel::kMagic;
  welcome.version = channel::kVersion;
  welcome.status = status;
  const size_t length = std::min(text.size(), sizeof welcome.message - 1);
  memcpy(welcome.message, text.data(), length);
  return welcome;
}

}  // namespace

void Daemon::take_connections() {
  for (int n = 0; n < kAcceptsATurn; ++n) {
    FileDescriptor socket = listener_.accept();
    if (!socket) {
      if (errno != EMFILE && errno != ENFILE) return;
      // No descriptor left: turn this one away, or the listener stays readable for ever.
      spare_.reset();
      listener_.accept().reset();
      spare_ = FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      log_.line("a connection was turned away: no descriptor left: raise the limit of open files");
      continue;
    }
    auto peer = peer_of(socket.get());
    if (!peer) continue;
    if (tools_.size() >= kMaxToolConnections) make_room_for_tool();
    const uint32_t id = next_tool_++;
    if (!watch(socket.get(), Source::kTool, id, EPOLLIN)) continue;
    tools_.emplace(id,
                   ToolConnection(std::move(socket), std::move(*peer), channel::monotonic_ns()));
  }
}

void Daemon::take_tool_event(uint32_t id, uint32_t events) {
  const auto found = tools_.find(id);
  if (found == tools_.end()) return;
  ToolConnection& tool = found->second;
  if (tool.state() != ToolConnection::State::kSilent) {
    const bool gone = (events & (EPOLLHUP | EPOLLERR)) != 0;
    const bool replying = tool.state() == ToolConnection::State::kReplying;
    if (gone || (replying && !tool.send_more())) tools_.erase(found);
    return;
  }
  lull_hello hello{};
  const ssize_t got =
      ::recv(tool.socket(), &hello, sizeof hello, MSG_DONTWAIT | MSG_TRUNC | MSG_PEEK);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    tools_.erase(found);
    return;
  }
  const auto length = static_cast<size_t>(got);
  if (reinterpret_cast<const char*>(&hello)[0] == '{') {
    // It stays in the socket until its turn has come (RequestQueue).
    tool.set_state(ToolConnection::State::kAsking);
    watch(tool.socket(), Source::kTool, id, 0);
    requests_.push(tool.peer().uid, id);
    return;
  }
  if (hellos_this_turn_ >= kHellosATurn) return;  // it stays in the socket, which stays readable
  ++hellos_this_turn_;
  ::recv(tool.socket(), &hello, sizeof hello, MSG_DONTWAIT);
  if (hello.magic == channel::kMagic && length >= 2 * sizeof(uint32_t)) {
    if (hello.version != channel::kVersion || length != sizeof hello) {
      refuse(tool, channel::kWelcomeVersion,
             fmt::format("this lulld speaks channel version {}, the program's liblull.so version "
                         "{}: install the same lull for both",
                         channel::kVersion, hello.version));
    } else {
      take_hello(tool, hello);
    }
  }
  tools_.erase(found);
}

// The oldest connection of the user who has most goes: nobody pushes another's out. Among users who
// have as many the oldest of all, and so not that of whoever has the lowest number.
void Daemon::make_room_for_tool() {
  std::map<uid_t, std::pair<size_t, uint32_t>> users;  // how many, and the oldest
  for (const auto& [id, tool] : tools_) {
    users.try_emplace(tool.peer().uid, size_t{0}, id).first->second.first += 1;
  }
  const auto most = std::ranges::max_element(users, {}, [](const auto& user) {
    return std::pair(user.second.first, UINT32_MAX - user.second.second);
  });
  tools_.erase(most->second.second);
}

void Daemon::refuse(ToolConnection& connection, uint32_t status, const std::string& message) {
  channel::send_welcome(connection.socket(), make_welcome(status, message), -1);
  const Peer& peer = connection.peer();
  const std::string line = fmt::format("refused pid {} of uid {}: {}", peer.pid, peer.uid, message);
  // A program that is refused asks again each second: once is enough.
  if (figures_.refusals.add(peer.uid, message)) {
    log_.line(line);
  } else {
    log_.detail(line);
  }
}

// A client whose descriptors are not there would be turned away without a word, whose user it is
// of: places are no more than the descriptors suffice for.
void Daemon::settle_places() {
  Config& config = settings_.config;
  const Places places = places_for({config.max_clients, clients_per_user(config)}, descriptors_);
  if (places.all == config.max_clients) return;
  log_.line(fmt::format("no more than {} clients at once, not {}: {} files may be open: raise that "
                        "limit (LimitNOFILE of the service)",
                        places.all, config.max_clients, descriptors_));
  config.max_clients = places.all;
  config.max_clients_per_user = places.of_user;
}

JobId Daemon::job_of(const Peer& peer, const std::string& name, ClientId client) {
  // The upper half is for clients without a job name.
  if (name.empty()) return JobId{(uint64_t{1} << 63) | client.value};
  // An elastic job goes on while none of its processes is there.
  const JobId known = elastic_.job_id(peer.uid, name);
  const bool is_known = known != JobId{};
  const auto [entry, fresh] =
      jobs_.try_emplace({peer.uid, name}, is_known ? known : JobId{next_job_});
  if (fresh && !is_known) {
    ++next_job_;
    elastic_.remember(peer.uid, name, entry->second);
  }
  ++job_members_[entry->second.value];
  return entry->second;
}

void Daemon::look_for_sim_device() {
  const auto found = clock_.look_for_device();
  if (!found) {
    log_.line(found.error());
  } else if (*found) {
    learn_devices(sim_devices(clock_), UINT64_MAX);
    // Another device, another origin of time: nothing learnt holds.
    if (sessions_.empty()) reset_engine();
  }
}

void Daemon::take_hello(ToolConnection& connection, const lull_hello& hello) {
  if (clock_.is_simulated() && (!clock_.ready() || sessions_.empty())) look_for_sim_device();
  const Places places{settings_.config.max_clients, clients_per_user(settings_.config)};
  if (const auto full = quota_.objection(connection.peer().uid, places)) {
    return refuse(connection, channel::kWelcomeFull, *full);
  }
  if (hello.priority < channel::kPriorityUnset ||
      hello.priority >= static_cast<int32_t>(channel::kPriorityLevels)) {
    return refuse(
        connection, channel::kWelcomeRefused,
        fmt::format("priority {} is no level: {} is expected", hello.priority, kLevelsExpected));
  }
  if (hello.timing > channel::kTimingFull) {
    return refuse(connection, channel::kWelcomeRefused,
                  fmt::format("timing {} is no wish: off, sampled or full are", hello.timing));
  }
  auto region = ClientRegion::create();
  if (!region) {
    return refuse(connection, channel::kWelcomeRefused,
                  fmt::format("lulld has no memory for another client: {}", region.error()));
  }
  std::optional<Priority> asked;
  if (hello.priority >= 0) asked = Priority{static_cast<uint8_t>(hello.priority)};
  const Peer& peer = connection.peer();
  const PriorityVerdict verdict = rules_.judge(peer, asked);

  const ClientId id{next_client_++};
  SessionBirth birth{.id = id,
                     .peer = peer,
                     .task = text_of(hello.name),
                     .job_name = text_of(hello.job),
                     .program = text_of(hello.program),
                     .priority = verdict.granted,
                     .bound = in_range({hello.slowdown_mean, hello.slowdown_p99}),
                     .memory_limit_bytes = hello.memory_limit,
                     .timing_wish = hello.timing,
                     .moves = moves_for(settings_.config, peer, hello.moves),
                     .counted = hello.uncounted == 0};
  if (birth.task.empty()) birth.task = birth.program;
  if (birth.task.empty()) birth.task = fmt::format("pid {}", peer.pid);
  birth.job = job_of(peer, birth.job_name, id);
  channel::write_birth(region->view(), id.value,
                       timing_period_for(settings_.config, hello.timing, recorded_timing()),
                       verdict.granted.level,
                       (birth.moves & channel::kMovesOversubscribe) != 0
                           ? 0
                           : ledger_.birth_allowance(birth.job, hello.memory_limit));
  channel::publish_slow_motion(region->view(), clock_.slow_motion());
  // Before the welcome: the first copies of a program that is traced come right behind it.
  if (recorder_) channel::publish_record_mode(region->view(), channel::kRecordEverything);

  lull_welcome welcome = make_welcome(channel::kWelcomeOk, "");
  if (verdict.clamped) {
    welcome = make_welcome(
        channel::kWelcomeClamped,
        fmt::format("priority {} is not allowed for uid {}: running at {}: allowed are {}",
                    priority_name(*asked), peer.uid, priority_name(verdict.granted),
                    allowed_levels(verdict.highest)));
  }
  welcome.client_id = id.value;
  welcome.region_bytes = channel::kRegionBytes;
  welcome.priority = verdict.granted.level;
  welcome.moves = birth.moves;
  const bool welcomed = channel::send_welcome(connection.socket(), welcome, region->fd());

  FileDescriptor pidfd = peer_pidfd(connection.socket(), peer);
  birth.namespace_pid = pid_in_its_namespace(peer, pidfd);
  auto session = std::make_unique<Session>(std::move(birth), connection.take_socket(),
                                           std::move(pidfd), std::move(*region));
  Session& client = *session;
  sessions_.emplace(id.value, std::move(session));
  quota_.attached(client.who().peer.uid);
  ledger_.join(client);
  awake_.push_back(&client);
  const uint64_t attached_ns = channel::monotonic_ns();
  client.looks.attached(attached_ns);
  if (recorder_) {
    client.set_record_mode(channel::kRecordEverything);
    if (recorder_->has_begun()) recorder_->client_started(client, {}, clock_.now());
    begin_recording();
  }
  // The engine remembers by task: one user's program does not spoil what is known of another's.
  inputs_.emplace_back(
      clock_.now(),
      engine::ClientAttached{.client = id,
                             .job = client.who().job,
                             .priority = verdict.granted,
                             .task = task_key(client.who()),
                             .bound = client.who().bound,
                             .counted = client.who().counted});
  rates_.begin(id, clock_.now());
  if (scheduler_) next_jobs_look_ns_ = std::min(next_jobs_look_ns_, attached_ns);
  moves_inputs_.emplace_back(moves::ClientJoined{.client = id,
                                                 .job = client.who().job,
                                                 .priority = verdict.granted,
                                                 .takes_turns = client.takes_turns(),
                                                 .movable = client.can_move()});
  if (store_.is_on() && next_keep_ns_ == UINT64_MAX) next_keep_ns_ = attached_ns;
  log_.detail(fmt::format("client {} attached: pid {}, uid {}, task {}, priority {}", id.value,
                          peer.pid, peer.uid, client.who().task, priority_name(verdict.granted)));
  const bool watched =
      watch(client.socket(), Source::kClient, id.value, EPOLLIN) &&
      (client.pidfd() < 0 || watch(client.pidfd(), Source::kProcess, id.value, EPOLLIN));
  if (!welcomed || !watched) drop(client, "it left before it was welcomed");
}

void Daemon::take_client_event(uint32_t id, uint32_t events) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second->gone) return;
  Session& session = *found->second;
  for (int n = 0; n < kDoorbellsATurn; ++n) {
    char byte[64];
    const ssize_t got = ::recv(session.socket(), byte, sizeof byte, MSG_DONTWAIT);
    if (got > 0) {
      wake(session);
      continue;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
    return drop(session, "it has closed its socket");
  }
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) drop(session, "it has closed its socket");
}

void Daemon::drop(Session& session, const std::string& why) {
  if (session.gone) return;
  session.gone = true;
  any_gone_ = true;
  ++figures_.clients_left;
  log_.detail(fmt::format("client {} gone (pid {}, task {}): {}", session.id().value,
                          session.who().peer.pid, session.who().task, why));
  if (recorder_) record_end(session);
  if (may_keep(session.who().peer.uid)) keep_profile(session);
  rates_.forget(session.id());
  session.open_all();
  devices_.remove_user(session.id());
  ledger_.leave(session, devices_);
  inputs_.emplace_back(clock_.now(), engine::ClientDetached{session.id()});
  moves_inputs_.emplace_back(moves::ClientLeft{session.id()});
  reports_.erase(session.id().value);
  const SessionBirth& who = session.who();
  if (who.job_name.empty()) return;
  const auto members = job_members_.find(who.job.value);
  if (members == job_members_.end() || --members->second > 0) return;
  job_members_.erase(members);
  jobs_.erase({who.peer.uid, who.job_name});
}

}  // namespace lull::daemon
