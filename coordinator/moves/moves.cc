// The state machine of a job (moves.h draws it).
#include "coordinator/moves/moves.h"

#include "coordinator/moves/core.h"

namespace lull::moves {

Moves::Moves(Settings settings) : core_(std::make_unique<Core>(settings)) {}
Moves::~Moves() = default;
void Moves::step(Instant now, std::span<const Input> inputs, std::vector<Output>& out) {
  core_->step(now, inputs, out);
}
std::optional<std::string> Moves::objection(const Input& request) const {
  return core_->objection(request);
}
std::vector<JobId> Moves::jobs() const {
  std::vector<JobId> list;
  for (const auto& [id, job] : core_->jobs()) list.push_back(id);
  return list;
}
std::optional<JobStatus> Moves::status(JobId job) const { return core_->status(job); }
std::optional<JobId> Moves::job_of(ClientId client) const { return core_->job_of(client); }
bool Moves::is_away(JobId job) const { return core_->is_away(job); }
bool Moves::waits_for_memory() const { return core_->waits_for_memory(); }
bool Moves::copies(ClientId client) const { return core_->copies(client); }
uint64_t Moves::free_bytes(DeviceId device) const { return core_->free_bytes(device); }
NodeFacts Moves::facts() const { return core_->facts(); }
uint64_t Moves::dropped() const { return core_->dropped(); }

namespace {

// States that follow each other at once; none is come to twice.
constexpr int kStepsAtOnce = 16;

const char* word(Result result) {
  switch (result) {
    case Result::kDone:
      return "it is not where it said to be";
    case Result::kBusy:
      return "its submitted work did not complete: try again, or with --at now";
    case Result::kNoHostMemory:
      return "too little host memory: raise host_memory in lulld's configuration, or free some";
    case Result::kRefused:
      return "the driver refused";
    case Result::kNoDeviceMemory:
      return "the GPU has too little memory free";
    case Result::kReplaced:
      return "another order came between";
  }
  return "?";
}

}  // namespace

void Moves::Core::step(Instant now, std::span<const Input> inputs, std::vector<Output>& out) {
  out_ = &out;
  now_ = std::max(now, now_);
  for (const Input& input : inputs) {
    if (objection(input)) {
      dropped_ += 1;
      continue;
    }
    std::visit([this](const auto& one) { take(one); }, input);
  }
  for (auto& [id, job] : jobs_) advance(job);
  serve_returns();
  set_timer();
  out_ = nullptr;
}

void Moves::Core::advance(Job& job) {
  for (int n = 0; n < kStepsAtOnce && advance_once(job); ++n) {
  }
}

// True: the job is in another state than before.
bool Moves::Core::advance_once(Job& job) {
  switch (job.state) {
    case JobState::kRunning:
    case JobState::kLost:
      return run(job);
    case JobState::kStopping:
      return from_stopping(job);
    case JobState::kLeaving:
      return from_leaving(job);
    case JobState::kSuspended:
      return from_suspended(job);
    case JobState::kWaiting:
      return from_waiting(job);
    case JobState::kReturning:
      return from_returning(job);
  }
  return false;
}

bool Moves::Core::go(Job& job, JobState state) {
  job.state = state;
  job.since = now_;
  return true;
}

// ---- stopping and going on ----------------------------------------------------------------------

void Moves::Core::stop(Job& job, At at) {
  const Instant close_by = at == At::kIteration ? now_ + kIterationPatience : now_;
  if (!job.stopped) job.stands = false;
  job.stopped = true;
  const Instant stand_by = close_by + (job.members.size() > 1 ? kRanksStandWithin : kStandsWithin);
  job.stands_anyway = stand_by + kStandsAnyway;
  put(StopJob{job.id, close_by, stand_by});
}

void Moves::Core::go_on(Job& job) {
  if (job.stopped) put(ContinueJob{job.id});
  job.stopped = job.stands = job.retreats = false;
  job.stands_anyway = kNever;
  job.claim.clear();
  job.migrates.clear();
  job.waits_for.clear();
  bool lost = false;
  for (ClientId id : job.members) {
    Member& one = member(id);
    one.moved = one.late = false;
    lost = lost || one.is_lost();
  }
  if (lost) job.reason = "the driver could not bring a process back: end it";
  go(job, lost ? JobState::kLost : JobState::kRunning);
}

// ---- orders -------------------------------------------------------------------------------------

Target Moves::Core::target_of(const Job& job) const {
  return job.level == Level::kGivenUp ? Target::kGivenUp : Target::kOut;
}

bool Moves::Core::must_move(const Job& job, const Member& member) const {
  if (member.late || member.is_lost() || job.level == Level::kInPlace) return false;
  return job.level == Level::kGivenUp ? member.report.can_give_up : member.report.can_swap;
}

void Moves::Core::order(Job& job, Member& member, Target target) {
  if (!is_silent(member)) member.heard = now_;  // who is silent stays so until it is heard
  member.order += 2;
  member.target = target;
  OrderClient output{.client = member.id, .number = member.order, .target = target, .pairs = {}};
  if (target == Target::kResident) output.pairs = pairs_for(job, member);
  put(std::move(output));
}

void Moves::Core::order_out(Job& job) {
  raise(job.claim, held_by(job, Where::kNow));
  for (ClientId id : job.members) {
    Member& one = member(id);
    if (must_move(job, one) && !one.has_done(target_of(job))) order(job, one, target_of(job));
  }
}

void Moves::Core::order_back(Job& job) {
  for (ClientId id : job.members) {
    Member& one = member(id);
    if (one.is_lost() || (one.target == Target::kResident && one.is_resident())) continue;
    order(job, one, Target::kResident);
  }
}

// Own GPUs go where the job goes; every other one stays, or takes the place of one that has come.
std::vector<std::pair<DeviceId, DeviceId>> Moves::Core::pairs_for(const Job& job,
                                                                  const Member& member) const {
  if (job.migrates.empty() || member.moved) return {};
  std::map<DeviceId, DeviceId> way;
  std::set<DeviceId> taken;
  for (const Share& share : member.report.devices) {
    const auto to = job.migrates.find(share.device);
    if (to == job.migrates.end()) continue;
    way[share.device] = to->second;
    taken.insert(to->second);
  }
  std::vector<DeviceId> left;
  for (const NodeDevice& device : devices_) {
    if (!device.whole || way.contains(device.device)) continue;
    if (taken.insert(device.device).second) {
      way[device.device] = device.device;
    } else {
      left.push_back(device.device);
    }
  }
  size_t next = 0;
  for (const NodeDevice& device : devices_) {
    if (!device.whole || taken.contains(device.device) || next >= left.size()) continue;
    way[left[next++]] = device.device;
  }
  return {way.begin(), way.end()};
}

Instant Moves::Core::silent_at(const Member& member) const {
  const bool at_once = member.is_resident() && member.holds_nothing();
  return member.heard + (at_once ? kAnswersWithin : kDrainsWithin + kSilentAtMost);
}

bool Moves::Core::is_silent(const Member& member) const {
  return !member.has_ended() && now_ >= silent_at(member);
}

// It answers no order, and there is nothing to swap out.
bool Moves::Core::may_stay(const Member& member) const {
  return member.target == Target::kOut && member.is_resident() && member.holds_nothing() &&
         is_silent(member);
}

std::string Moves::Core::trouble(const Job&, const Member& member) const {
  if (is_silent(member)) return name(member.id) + " carries no order out: is its process stopped?";
  if (member.is_lost()) return name(member.id) + " is lost: end it";
  if (!member.has_ended() || member.has_done(member.target)) return "";
  return name(member.id) + ": " +
         (member.report.reason.empty() ? word(member.report.result) : member.report.reason);
}

// ---- the states ---------------------------------------------------------------------------------

bool Moves::Core::run(Job& job) {
  const auto is_away = [this](ClientId id) {
    return !member(id).is_resident() && !member(id).is_lost();
  };
  if (std::ranges::any_of(job.members, is_away)) {
    // Its coordinator was gone: whoever asked for it to be out is not known any more.
    job.level = Level::kOut;
    for (ClientId id : job.members) {
      if (member(id).report.residence == Residence::kGivenUp) job.level = Level::kGivenUp;
    }
    job.suspends = false;
    job.migrates.clear();
    forgotten(job, *std::ranges::find_if(job.members, is_away), "returns");
    job.reached = job.level;
    stop(job, At::kNow);
    return go(job, JobState::kWaiting);
  }
  if (job.state == JobState::kLost) {
    const bool lost =
        std::ranges::any_of(job.members, [this](ClientId id) { return member(id).is_lost(); });
    return lost ? false : go(job, JobState::kRunning);
  }
  if (std::ranges::any_of(job.members, [this](ClientId id) { return member(id).is_lost(); })) {
    job.reason = "the driver could not bring a process back: end it";
    return go(job, JobState::kLost);
  }
  if (!job.suspends && job.migrates.empty()) return false;
  stop(job, job.at);
  return go(job, JobState::kStopping);
}

bool Moves::Core::from_stopping(Job& job) {
  if (!job.suspends && job.migrates.empty()) {
    go_on(job);
    return true;
  }
  if (!job.stands && now_ < job.stands_anyway) return false;
  if (job.level != Level::kInPlace && has_untold(job)) return false;
  const std::optional<std::string> cannot =
      job.migrates.empty() ? immovable(job, job.level) : not_migratable(job);
  if (cannot && !job.any_level) return give_way(job, *cannot);
  if (cannot) {
    job.level = Level::kInPlace;
    job.reason = *cannot;
  }
  job.reached = Level::kInPlace;
  if (job.level == Level::kInPlace) {
    return go(job, JobState::kSuspended);
  }
  order_out(job);
  return go(job, JobState::kLeaving);
}

// It cannot be moved as was asked. A job that was out before and still is stays there; another one
// runs.
bool Moves::Core::give_way(Job& job, std::string reason) {
  const bool is_out = std::ranges::all_of(job.members, [&](ClientId id) {
    const Member& one = member(id);
    return !must_move(job, one) || one.is_out() || (one.is_resident() && one.holds_nothing());
  });
  const bool stays = job.suspends || job.was_suspended;
  if (job.state == JobState::kStopping) {
    job.suspends = false;
    job.migrates.clear();
    job.reason = std::move(reason);
    go_on(job);
    return true;
  }
  if (job.reached == Level::kInPlace || !is_out || !stays) return come_back(job, std::move(reason));
  job.by_policy = job.suspends ? job.by_policy : job.was_by_policy;
  job.suspends = true;
  job.migrates.clear();
  job.claim.clear();
  job.level = job.reached;
  job.reason = std::move(reason);
  return go(job, JobState::kSuspended);
}

// Mostly at once: a job has a claim to what it held. Not where a rank was out before, or on its way
// elsewhere.
bool Moves::Core::come_back(Job& job, std::string reason) {
  job.suspends = false;
  job.by_policy = false;
  job.migrates.clear();
  if (!reason.empty()) job.reason = std::move(reason);
  const Bytes claim = held_by(job, Where::kHere);
  const Bytes more = growth(job, claim);
  for (const auto& [device, bytes] : more) {
    if (bytes > free_bytes(device)) return go(job, JobState::kWaiting);
  }
  job.claim = claim;
  order_back(job);
  return go(job, JobState::kReturning);
}

bool Moves::Core::from_leaving(Job& job) {
  bool all_done = true;
  bool all_ended = true;
  std::string why;
  for (ClientId id : job.members) {
    Member& one = member(id);
    if (!must_move(job, one) && one.target == Target::kResident) {
      if (one.is_lost() && !job.retreats) return come_back(job, trouble(job, one));
      continue;
    }
    if (job.retreats) {
      all_done = all_done && (one.has_ended() || is_silent(one));
      continue;
    }
    if (may_stay(one)) {
      job.reason = name(one.id) + " answers no order, and is left as it is: it holds no memory";
      continue;
    }
    if (why.empty()) why = trouble(job, one);
    all_ended = all_ended && (one.has_ended() || is_silent(one));
    all_done = all_done && one.has_done(target_of(job));
  }
  // Ranks that were out before and go further are waited for: where they end, they stay.
  if (!why.empty()) {
    return job.reached != Level::kInPlace && !all_ended ? false : give_way(job, std::move(why));
  }
  if (!job.retreats) {
    if (!job.suspends && job.migrates.empty()) return come_back(job, "");
    for (ClientId id : job.members) {  // further out than was asked before
      Member& one = member(id);
      if (!must_move(job, one) || one.target == target_of(job)) continue;
      order(job, one, target_of(job));
      all_done = false;
    }
  }
  if (!all_done) return false;
  job.retreats = false;
  job.reached = job.level;
  job.claim = job.migrates.empty() ? Bytes{} : held_by(job, Where::kThere);
  return go(job, JobState::kSuspended);
}

bool Moves::Core::from_suspended(Job& job) {
  if (!job.suspends && (job.migrates.empty() || job.reached == Level::kGivenUp)) {
    return go(job, JobState::kWaiting);
  }
  bool further = job.level > job.reached;
  for (ClientId id : job.members) {
    const Member& one = member(id);
    const bool returned = must_move(job, one) && one.target != Target::kResident &&
                          one.has_ended() && one.is_resident();
    if (returned) job.reason = name(id) + " had returned by itself: its coordinator was silent";
    further = further || returned;
  }
  if (!further) return false;
  order_out(job);
  return go(job, JobState::kLeaving);
}

bool Moves::Core::from_waiting(Job& job) {
  if (job.suspends) {
    job.claim.clear();
    job.waits_for.clear();
    return go(job, JobState::kSuspended);
  }
  const bool away = std::ranges::any_of(job.members, [this](ClientId id) {
    return !member(id).is_resident() && !member(id).is_lost();
  });
  if (away || !job.migrates.empty()) return false;  // serve_returns lets it begin
  go_on(job);
  return true;
}

bool Moves::Core::from_returning(Job& job) {
  if (job.suspends) {
    job.reached = Level::kInPlace;
    order_out(job);
    return go(job, JobState::kLeaving);
  }
  bool all_done = true;
  std::string why;
  for (ClientId id : job.members) {
    Member& one = member(id);
    if (one.is_lost()) continue;
    if (one.has_ended() && one.has_done(Target::kResident)) {
      one.moved = true;
      continue;
    }
    if (is_silent(one)) {
      job.reason = trouble(job, one);
      // It has never left. Should it wake up, it finds the order to be where it is.
      all_done = all_done && one.is_resident();
      continue;
    }
    all_done = false;
    if (one.has_ended()) {
      why = trouble(job, one);
    }
  }
  if (all_done) {
    job.pause = {};
    go_on(job);
    return true;
  }
  if (why.empty()) return false;
  job.reason = std::move(why);
  job.pause = job.pause.ns == 0 ? kRetryAfter : std::min(job.pause + job.pause, kRetryAtMost);
  job.not_before = now_ + job.pause;
  job.retreats = true;
  if (job.level == Level::kInPlace) job.level = Level::kOut;
  order_out(job);
  return go(job, JobState::kLeaving);
}

void Moves::Core::set_timer() {
  Instant next = kNever;
  const auto at = [&](Instant when) {
    if (when > now_) next = std::min(next, when);
  };
  for (const auto& [id, job] : jobs_) {
    if (job.state == JobState::kStopping) {
      at(job.stands_anyway);
      for (ClientId member_id : job.members) {
        if (is_untold(member(member_id))) at(member(member_id).joined + kTellsWithin);
      }
    }
    if (job.state == JobState::kWaiting) at(job.not_before);
    if (job.state != JobState::kLeaving && job.state != JobState::kReturning) continue;
    for (ClientId member_id : job.members) {
      const Member& one = member(member_id);
      if (!one.has_ended()) at(silent_at(one));
    }
  }
  if (next == timer_ && timer_ > now_) return;
  timer_ = next;
  put(SetTimer{next});
}

}  // namespace lull::moves
