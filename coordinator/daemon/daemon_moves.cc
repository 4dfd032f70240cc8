// Daemon's part for jobs that move: reports of clients and requests of tools into Moves, orders
// out.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "coordinator/daemon/daemon.h"
#include "coordinator/daemon/job_status.h"
#include "coordinator/daemon/return_locks.h"
#include "coordinator/moves/host_memory.h"
#include "coordinator/moves/pace.h"
#include "policies/launch/registry.h"

namespace lull::daemon {
namespace {

// While somebody is on the way, or waits for memory that may come free without a word.
constexpr uint64_t kMovesLookNs = 100'000'000;

std::string shown_name(const SessionBirth& who) {
  return who.job_name.empty() ? who.task : who.job_name;
}

const char* verb(JobOrder::What what) {
  switch (what) {
    case JobOrder::What::kShow:
      return "show";
    case JobOrder::What::kSuspend:
      return "suspend";
    case JobOrder::What::kResume:
      return "resume";
    case JobOrder::What::kMigrate:
      return "migrate";
    case JobOrder::What::kPin:
      return "pin";
    case JobOrder::What::kResize:
      return "resize";
  }
  return "?";
}

}  // namespace

// ---- in -----------------------------------------------------------------------------------------

void Daemon::tell_moves_of_devices() {
  moves::DevicesKnown known;
  for (const DeviceRow& row : devices_.rows()) {
    known.devices.push_back({row.id, row.known.total_bytes, /*whole=*/!row.known.instance});
    const std::string path = return_lock_path(settings_.socket_path, row.known.uuid);
    if (!locks_made_.insert(path).second) continue;
    if (const auto made = make_return_lock(path); !made) log_.line(made.error());
  }
  std::ranges::sort(known.devices, {}, &moves::NodeDevice::device);
  moves_inputs_.emplace_back(std::move(known));
  moves_inputs_.emplace_back(moves::Settings{.reserve_bytes = settings_.config.memory_reserve_bytes,
                                             .context_bytes = settings_.config.context_bytes});
}

void Daemon::look_at_residence(const Session& session) {
  if (session.can_move() && session.has_residence_news()) residence_changed_ = true;
}

bool Daemon::is_away(const Session& session) const { return moves_->is_away(session.who().job); }

bool Daemon::moves_due(uint64_t monotonic_ns) const {
  return residence_changed_ || !moves_inputs_.empty() || monotonic_ns >= next_moves_look_ns_ ||
         (clock_.ready() && std::min(moves_timer_, turns_timer_) <= clock_.now());
}

// `whole`: what every client holds counts now, not only what those say that can be moved.
void Daemon::step_moves(uint64_t monotonic_ns, bool whole) {
  residence_changed_ = false;
  const bool turns = std::ranges::any_of(
      sessions_, [](const auto& s) { return !s.second->gone && s.second->takes_turns(); });
  whole = whole || turns || next_moves_look_ns_ != UINT64_MAX;
  const Instant now = clock_.now();
  if (moves_timer_ <= now) moves_timer_ = kNever;
  tell_moves_of_clients(whole);
  run_moves();
  bool waits = false;
  if (turns) {
    waits = give_allowances();
    tell_moves_of_clients(whole);
    run_moves();
    ask_turns();
  }
  const bool on_the_way =
      std::ranges::any_of(moves_->jobs(), [this](JobId job) { return moves_->is_away(job); });
  next_moves_look_ns_ = on_the_way || waits ? monotonic_ns + kMovesLookNs : UINT64_MAX;
  share_host_memory();
  set_paces();
}

void Daemon::tell_moves_of_clients(bool whole) {
  const Instant now = clock_.now();
  for (const auto& [id, session] : sessions_) {
    if (session->gone || (!whole && !session->can_move())) continue;
    session->map_devices(now, devices_, inputs_);
    if (session->can_move()) session->remap_devices(now, devices_, inputs_);
    moves::Report report = session->report(devices_);
    const auto [known, fresh] = reports_.try_emplace(id);
    if (!fresh && known->second == report) continue;
    known->second = report;
    moves_inputs_.emplace_back(moves::ClientReported{session->id(), std::move(report)});
  }
}

void Daemon::run_moves() {
  moves_outputs_.clear();
  moves_->step(clock_.now(), moves_inputs_, moves_outputs_);
  moves_inputs_.clear();
  for (const moves::Output& output : moves_outputs_) carry_out(output);
}

// ---- turns --------------------------------------------------------------------------------------

// By priority, then by age. What somebody has been given and does not use is taken back while
// others wait.
bool Daemon::give_allowances() {
  struct Need {
    Priority priority;
    Session* session;
    uint32_t index;
    uint64_t wanted;
  };
  std::vector<Need> needs;
  for (const auto& [id, session] : sessions_) {
    if (session->gone || !session->takes_turns() || is_away(*session)) continue;
    const auto job = moves_->status(session->who().job);
    for (uint32_t index = 0; job && index < session->device_count(); ++index) {
      const uint64_t wanted = channel::memory_wanted(session->region(), index);
      if (!session->device(index) || wanted <= channel::memory_allowance(session->region(), index))
        continue;
      needs.push_back({job->priority, session.get(), index, wanted});
    }
  }
  if (needs.empty()) return false;
  for (const auto& [id, session] : sessions_) {
    if (session->gone || !session->takes_turns()) continue;
    for (uint32_t index = 0; index < session->device_count(); ++index) {
      const uint64_t used = channel::memory_used(session->region(), index);
      const uint64_t wanted = channel::memory_wanted(session->region(), index);
      const uint64_t kept = std::max(used, wanted);
      if (channel::memory_allowance(session->region(), index) <= kept) continue;
      session->set_allowance(index, kept);
      // It may have allocated between the reading and the store.
      session->set_allowance(index, std::max(kept, channel::memory_used(session->region(), index)));
    }
  }
  tell_moves_of_clients(/*whole=*/true);
  run_moves();
  std::ranges::stable_sort(
      needs, {}, [](const Need& need) { return std::tuple(need.priority, need.session->id()); });
  std::map<DeviceId, uint64_t> given;
  bool waits = false;
  for (const Need& need : needs) {
    const DeviceId device = *need.session->device(need.index);
    const uint64_t has = std::max(channel::memory_used(need.session->region(), need.index),
                                  channel::memory_allowance(need.session->region(), need.index));
    if (need.wanted <= has) continue;
    const uint64_t free = moves_->free_bytes(device);
    const uint64_t room = free - std::min(free, given[device]);
    const uint64_t most = ledger_.most_for(*need.session, device, devices_);
    if (need.wanted - has > room || need.wanted > most) {
      waits = true;
      continue;
    }
    const uint64_t step =
        need.wanted > UINT64_MAX - kAllowanceStepBytes
            ? need.wanted
            : (need.wanted + kAllowanceStepBytes - 1) / kAllowanceStepBytes * kAllowanceStepBytes;
    const uint64_t gives = step - has <= room && step <= most ? step : need.wanted;
    need.session->set_allowance(need.index, gives);
    given[device] += gives - has;
  }
  return waits;
}

// The policy's decisions are requests like a person's: what there is an objection to is dropped.
void Daemon::ask_turns() {
  std::vector<jobs::TurnDecision> decisions;
  turns_.set_quantum(Duration{int64_t{settings_.config.quantum_s} * 1'000'000'000});
  turns_timer_ = turns_.step(clock_.now(), moves_->facts(), decisions);
  for (const jobs::TurnDecision& decision : decisions) {
    if (const auto* suspend = std::get_if<jobs::EndTurn>(&decision)) {
      moves_inputs_.emplace_back(moves::SuspendAsked{
          .job = suspend->job, .level = suspend->level, .at = suspend->at, .by_policy = true});
    } else {
      moves_inputs_.emplace_back(
          moves::ResumeAsked{std::get<jobs::BeginTurn>(decision).job, /*by_policy=*/true});
    }
  }
  if (!decisions.empty()) run_moves();
}

// ---- out ----------------------------------------------------------------------------------------

void Daemon::carry_out(const moves::Output& output) {
  const Instant now = clock_.now();
  if (const auto* stop = std::get_if<moves::StopJob>(&output)) {
    inputs_.emplace_back(now, engine::JobStopped{stop->job, stop->close_by, stop->stand_by});
    for (const auto& [id, session] : sessions_) {
      if (!session->gone && session->who().job == stop->job) wake(*session);
    }
  } else if (const auto* go_on = std::get_if<moves::ContinueJob>(&output)) {
    inputs_.emplace_back(now, engine::JobContinued{go_on->job});
  } else if (const auto* order = std::get_if<moves::OrderClient>(&output)) {
    const auto found = sessions_.find(order->client.value);
    if (found == sessions_.end() || found->second->gone) return;
    channel::lull_order words{};
    words.target = static_cast<uint32_t>(order->target);
    words.drain_ms = static_cast<uint32_t>(moves::kDrainsWithin.ns / 1'000'000);
    for (const auto& [from, to] : order->pairs) {
      const DeviceRow* left = devices_.find(from);
      const DeviceRow* right = devices_.find(to);
      if (left == nullptr || right == nullptr || words.pair_count >= channel::kMaxDevices) continue;
      channel::lull_device_pair& pair = words.pair[words.pair_count++];
      std::ranges::copy(left->known.uuid, pair.from);
      std::ranges::copy(right->known.uuid, pair.to);
    }
    const uint32_t number = found->second->order(words);
    if (number != order->number) {
      log_.line(fmt::format("client {}: order {} went out as {}: report this", order->client.value,
                            order->number, number));
    }
    wake(*found->second);
  } else if (const auto* timer = std::get_if<moves::SetTimer>(&output)) {
    moves_timer_ = timer->at;
  } else if (const auto* notice = std::get_if<moves::Notice>(&output)) {
    log_.line(notice->text);
  }
}

void Daemon::share_host_memory() {
  std::vector<Session*> movable;
  std::vector<moves::HostWish> wishes;
  for (const auto& [id, session] : sessions_) {
    if (session->gone || !session->can_move()) continue;
    // No more than its devices hold: what it wants beyond that means nothing.
    uint64_t most = 0;
    std::set<DeviceId> seen;
    for (uint32_t index = 0; index < session->device_count(); ++index) {
      const auto device = session->device(index);
      const DeviceRow* row =
          device && seen.insert(*device).second ? devices_.find(*device) : nullptr;
      if (row != nullptr)
        most += row->known.total_bytes == 0 ? UINT64_C(1) << 42 : row->known.total_bytes;
    }
    movable.push_back(session.get());
    wishes.push_back({.has_bytes = std::min(session->host_bytes(), most),
                      .wants_bytes = std::min(session->host_wanted_bytes(), most)});
  }
  if (movable.empty()) return;
  const auto given = moves::share_host_memory(host_memory_for(settings_.config), wishes);
  for (size_t i = 0; i < movable.size(); ++i) movable[i]->set_host_allowance(given[i]);
}

// Only while somebody copies: beside tasks with a bound that have done something since the last
// look, on any GPU, since all share the host's memory and links.
void Daemon::set_paces() {
  std::vector<Session*> copying;
  for (const auto& [id, session] : sessions_) {
    if (!session->gone && session->can_move() && moves_->copies(session->id())) {
      copying.push_back(session.get());
    }
  }
  if (copying.empty()) {
    launches_at_pace_.clear();
    return;
  }
  const auto choice = policies::parse_policy(engine_->policy());
  const bool keeps_bounds = choice && choice->row->name == "guarded";
  const Instant now = clock_.now();
  const engine::EngineStatus status = engine_->status();
  std::map<uint32_t, uint64_t> launches;
  struct Task {
    Priority priority;
    moves::Important important;
  };
  std::vector<Task> active;
  for (const engine::ClientStatus& client : status.clients) {
    launches[client.client.value] = client.launches;
    const auto session = sessions_.find(client.client.value);
    if (session == sessions_.end() || client.stopped) continue;
    const SlowdownBound bound = session->second->who().bound;
    if (!bound.is_set() && !keeps_bounds) continue;
    const auto before = launches_at_pace_.find(client.client.value);
    const bool works =
        std::ranges::any_of(client.devices, [now](const auto& d) { return d.works_until > now; });
    if (!works && before != launches_at_pace_.end() && before->second == client.launches) continue;
    if (client.launches == 0) continue;
    const int32_t mean = bound.is_set() ? bound.mean_per_mille : guarded_mean_per_mille();
    active.push_back({client.priority, {mean, client.iteration.undisturbed}});
  }
  launches_at_pace_ = std::move(launches);
  for (Session* session : copying) {
    const auto job = moves_->status(session->who().job);
    std::vector<moves::Important> above;
    for (const Task& task : active) {
      if (job && task.priority < job->priority) above.push_back(task.important);
    }
    const moves::Pace pace = moves::pace_beside(above, session->copy_bytes_per_s());
    session->set_pace(pace.bytes_per_s, pace.chunk_bytes);
  }
}

// The bound of tasks that state none, as the policy is set.
int32_t Daemon::guarded_mean_per_mille() const {
  const auto choice = policies::parse_policy(engine_->policy());
  if (!choice) return 0;
  return static_cast<int32_t>(choice->values.find("mean_per_mille").value_or(0));
}

// ---- requests -----------------------------------------------------------------------------------

std::expected<JobId, std::string> Daemon::find_job(const std::string& name,
                                                   const Peer& peer) const {
  std::vector<const Session*> named;
  const auto collect = [&](auto&& is_named) {
    if (!named.empty()) return;
    for (const auto& [id, session] : sessions_) {
      if (!session->gone && is_named(*session)) named.push_back(session.get());
    }
  };
  // Numbers first: a task may call itself by another's process id.
  collect([&](const Session& s) { return s.who().is_process(name); });
  collect([&](const Session& s) { return fmt::format("{}", s.id().value) == name; });
  collect([&](const Session& s) { return !s.who().job_name.empty() && s.who().job_name == name; });
  collect([&](const Session& s) { return s.who().task == name; });
  if (named.empty()) {
    return std::unexpected(fmt::format(
        "no job, task or process is called \"{}\": see `lull status` for names, pids and ids",
        printable(name)));
  }
  // One's own before others' of the same name.
  const auto is_own = [&](const Session* s) { return s->who().peer.uid == peer.uid; };
  if (std::ranges::any_of(named, is_own))
    std::erase_if(named, [&](const Session* s) { return !is_own(s); });
  std::set<uint64_t> jobs;
  for (const Session* session : named) jobs.insert(session->who().job.value);
  if (jobs.size() > 1) {
    return std::unexpected(
        fmt::format("{} jobs are called \"{}\": name one by a pid or a client id of it",
                    jobs.size(), printable(name)));
  }
  return named.front()->who().job;
}

nlohmann::json Daemon::job_json(JobId job) const {
  const auto status = moves_->status(job);
  if (!status) return nullptr;
  const auto first = sessions_.find(status->clients.front().value);
  nlohmann::json shown =
      make_job(*status, first == sessions_.end() ? "?" : shown_name(first->second->who()));
  shown["decision"] = scheduler_ ? scheduler_->last_decision(job) : "";
  if (const std::string why = scheduler_ ? scheduler_->why_not_running(job) : "";
      !why.empty() && shown["decision"] == "") {
    shown["waits_for"] = "the job policy: it " + why;
  }
  if (first != sessions_.end()) {
    const SessionBirth& who = first->second->who();
    if (const auto elastic = elastic_.find(who.peer.uid, who.job_name))
      shown["elastic"] = elastic_json(*elastic);
  }
  return shown;
}

std::expected<nlohmann::json, std::string> Daemon::move_job(const JobOrder& order,
                                                            const Peer& peer) {
  const auto cannot = [&](const std::string& why) {
    return std::unexpected(
        fmt::format("cannot {} {}: {}", verb(order.what), printable(order.job), why));
  };
  if (order.what == JobOrder::What::kResize) return resize_job(order, peer);
  const auto job = find_job(order.job, peer);
  if (!job) return cannot(job.error());
  step_engine();
  step_moves(channel::monotonic_ns(), /*whole=*/true);
  const auto owner = std::ranges::find_if(
      sessions_, [&](const auto& s) { return !s.second->gone && s.second->who().job == *job; });
  if (owner == sessions_.end()) return cannot("it has just ended");
  const uid_t uid = owner->second->who().peer.uid;
  if (order.what != JobOrder::What::kShow && uid != peer.uid && !is_operator(peer)) {
    return cannot(fmt::format("it belongs to uid {}: ask that user or an operator", uid));
  }
  std::optional<moves::Input> request;
  std::vector<DeviceId> to;
  if (const auto status = moves_->status(*job); order.what == JobOrder::What::kResume && scheduler_ &&
                                                status && status->suspends && status->by_policy) {
    const std::string why = scheduler_->why_not_running(*job);
    if (!why.empty()) {
      return cannot(fmt::format("the job policy holds it ({}): `lull policy --jobs none` ends that", why));
    }
  }
  switch (order.what) {
    case JobOrder::What::kShow:
      break;
    case JobOrder::What::kSuspend:
      request = moves::SuspendAsked{.job = *job, .level = order.level, .at = order.at};
      break;
    case JobOrder::What::kResume:
      request = moves::ResumeAsked{.job = *job};
      break;
    case JobOrder::What::kMigrate: {
      moves::MigrateAsked migrate{.job = *job, .to = {}, .at = order.at};
      for (const std::string& text : order.to) {
        const auto row = std::ranges::find_if(devices_.rows(), [&](const DeviceRow& r) {
          return text == fmt::format("{}", r.id.value) ||
                 text == uuid_text(r.known.uuid, r.known.instance);
        });
        if (row == devices_.rows().end()) {
          return cannot(fmt::format(
              "no GPU is called \"{}\": see `lull status` for indices and UUIDs", printable(text)));
        }
        migrate.to.push_back(row->id);
      }
      to = migrate.to;
      request = std::move(migrate);
      break;
    }
    case JobOrder::What::kPin:
      request = moves::PinAsked{.job = *job, .pinned = order.pinned};
      break;
    case JobOrder::What::kResize:
      break;  // resize_job
  }
  if (request) {
    if (const auto why = moves_->objection(*request)) return cannot(*why);
    moves_inputs_.push_back(std::move(*request));
    step_moves(channel::monotonic_ns(), /*whole=*/true);
    note_command(order, *job, to);
    log_.line(fmt::format("{} {} (asked by uid {}, pid {})", verb(order.what), printable(order.job),
                          peer.uid, peer.pid));
  }
  return job_json(*job);
}

}  // namespace lull::daemon
