// What is asked of Moves, and the objections to it.
#include "coordinator/moves/core.h"

namespace lull::moves {

std::string show(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
  size_t unit = 0;
  uint64_t tenths = bytes > UINT64_MAX / 10 ? UINT64_MAX : bytes * 10;
  while (tenths >= 10240 && unit + 1 < std::size(kUnits)) {
    tenths /= 1024;
    unit += 1;
  }
  const std::string whole = std::to_string(tenths / 10);
  return whole + (unit == 0 ? "" : "." + std::to_string(tenths % 10)) + " " + kUnits[unit];
}
std::string name(DeviceId device) { return "GPU " + std::to_string(device.value); }
std::string name(ClientId client) { return "client " + std::to_string(client.value); }

Job* Moves::Core::find(JobId id) {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second;
}
const Job* Moves::Core::find(JobId id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second;
}

Priority Moves::Core::priority_of(const Job& job) const {
  Priority highest{9};
  for (ClientId id : job.members) highest = std::min(highest, member(id).priority);
  return highest;
}

// ---- clients ------------------------------------------------------------------------------------

void Moves::Core::take(const ClientJoined& input) {
  if (members_.contains(input.client)) {
    dropped_ += 1;
    return;
  }
  members_[input.client] = {.id = input.client,
                            .job = input.job,
                            .priority = input.priority,
                            .takes_turns = input.takes_turns,
                            .movable = input.movable,
                            .joined = now_,
                            .report = {},
                            .heard = now_};
  const auto [at, fresh] = jobs_.try_emplace(input.job);
  Job& job = at->second;
  if (fresh) {
    job.id = input.job;
    job.since = now_;
  }
  members_[input.client].late = job.state != JobState::kRunning;
  job.members.insert(std::ranges::lower_bound(job.members, input.client), input.client);
}

void Moves::Core::take(const ClientLeft& input) {
  const auto found = members_.find(input.client);
  if (found == members_.end()) {
    dropped_ += 1;
    return;
  }
  Job& job = *find(found->second.job);
  members_.erase(found);
  std::erase(job.members, input.client);
  if (job.members.empty()) jobs_.erase(job.id);
}

void Moves::Core::take(const ClientReported& input) {
  const auto found = members_.find(input.client);
  if (found == members_.end()) {
    dropped_ += 1;
    return;
  }
  Member& member = found->second;
  if (member.report == input.report) return;
  const bool same_devices = std::ranges::equal(member.report.devices, input.report.devices, {},
                                               &Share::device, &Share::device);
  if (!same_devices && !find(member.job)->migrates.empty()) member.moved = true;
  if (input.report.has_returned && !member.report.has_returned && member.order == 0) {
    forgotten(*find(member.job), member.id, "has returned by itself");
  }
  if (input.report.residence != member.report.residence) member.stays = now_;
  member.report = input.report;
  member.heard = now_;
}

void Moves::Core::forgotten(Job& job, ClientId client, const std::string& then) {
  job.reason = name(client) + " was suspended by an earlier lulld, and " + then +
               ": suspend it again if it is not to run";
  put(Notice{job.reason});
}

void Moves::Core::take(const PriorityChanged& input) {
  const auto found = members_.find(input.client);
  if (found == members_.end()) {
    dropped_ += 1;
    return;
  }
  found->second.priority = input.priority;
}

void Moves::Core::take(const DevicesKnown& input) { devices_ = input.devices; }

void Moves::Core::take(const JobStands& input) {
  Job* job = find(input.job);
  if (job == nullptr || !job->stopped) {
    dropped_ += 1;
    return;
  }
  job->stands = true;
}

// ---- requests -----------------------------------------------------------------------------------

std::optional<std::string> Moves::Core::objection(const Input& request) const {
  return std::visit([this](const auto& input) { return objects(input); }, request);
}

namespace {

constexpr const char* kNoSuchJob = "no such job: see `lull status`";

}  // namespace

bool Moves::Core::is_untold(const Member& member) const {
  return member.movable && !member.report.can_swap && now_ < member.joined + kTellsWithin;
}

bool Moves::Core::has_untold(const Job& job) const {
  return std::ranges::any_of(job.members, [this](ClientId id) { return is_untold(member(id)); });
}

std::optional<std::string> Moves::Core::immovable(const Job& job, Level level) const {
  if (level == Level::kInPlace) return std::nullopt;
  bool any = false;
  for (ClientId id : job.members) {
    const Member& one = member(id);
    const bool able = level == Level::kOut ? one.report.can_swap : one.report.can_give_up;
    any = any || able || is_untold(one);
    if (able || is_untold(one) || one.late || !one.uses_memory()) continue;
    if (one.movable && !one.report.can_swap)
      return name(id) + " has not said that it can be moved: is its process stopped?";
    return name(id) +
           (level == Level::kOut ? " has no memory that can be swapped out"
                                 : " cannot give up its GPU") +
           (one.report.reason.empty() ? "" : " (" + one.report.reason + ")") +
           (one.report.can_swap ? ": suspend it with --level out"
                                : ": start it with `lull run --suspendable`, or suspend it with "
                                  "--level in_place");
  }
  if (!any)
    return "it holds no device memory that could be moved: suspend it with --level in_place";
  return std::nullopt;
}

std::optional<std::string> Moves::Core::not_migratable(const Job& job) const {
  for (ClientId id : job.members) {
    const Member& one = member(id);
    if (one.report.can_migrate || is_untold(one)) continue;
    return name(id) + " cannot change its GPU" +
           (one.report.reason.empty() ? "" : " (" + one.report.reason + ")") +
           ": start it with `lull run --migratable`, outside MPS";
  }
  return std::nullopt;
}

std::optional<std::string> Moves::Core::objects(const SuspendAsked& input) const {
  const Job* job = find(input.job);
  if (job == nullptr) return kNoSuchJob;
  if (job->state == JobState::kLost) return "a process of it is lost: end it";
  if (job->pinned) return "it is pinned: `lull pin JOB --off` lets it be moved";
  if (input.by_policy && job->suspends && !job->by_policy) return "a person has suspended it";
  if (!input.level) return std::nullopt;
  if (job->state == JobState::kSuspended && *input.level < job->level) {
    return "it has left its GPU further than that already: resume it first";
  }
  return immovable(*job, *input.level);
}

void Moves::Core::take(const SuspendAsked& input) {
  Job& job = *find(input.job);
  Level level = input.level.value_or(immovable(job, Level::kOut) ? Level::kInPlace : Level::kOut);
  const bool is_out = job.state != JobState::kRunning && job.state != JobState::kStopping;
  if (is_out) level = std::max(level, job.level);
  job.reason.clear();
  if (!input.level && level == Level::kInPlace) job.reason = *immovable(job, Level::kOut);
  job.suspends = true;
  job.by_policy = input.by_policy;
  job.level = level;
  job.any_level = !input.level;
  job.at = input.at;
  job.migrates.clear();
  if (job.state == JobState::kStopping) stop(job, input.at);
}

std::optional<std::string> Moves::Core::objects(const ResumeAsked& input) const {
  const Job* job = find(input.job);
  if (job == nullptr) return kNoSuchJob;
  if (job->state == JobState::kLost) return "a process of it is lost: end it";
  if (!job->suspends) {
    if (job->state == JobState::kRunning) return "it is running";
    if (!job->migrates.empty()) return "it is on its way to another GPU, and runs there";
    if (input.by_policy) return "it is returning already";
  }
  if (input.by_policy && !job->by_policy) return "a person has suspended it";
  return std::nullopt;
}

void Moves::Core::take(const ResumeAsked& input) {
  Job& job = *find(input.job);
  job.suspends = false;
  job.by_policy = false;
  job.reason.clear();
  job.not_before = now_;
  job.pause = {};
}

std::map<DeviceId, DeviceId> Moves::Core::destinations(const Job& job,
                                                       const std::vector<DeviceId>& to) const {
  std::set<DeviceId> from;
  for (ClientId id : job.members) {
    for (const Share& share : member(id).report.devices) from.insert(share.device);
  }
  std::map<DeviceId, DeviceId> way;
  if (from.size() != to.size()) return way;
  size_t index = 0;
  for (DeviceId device : from) way[device] = to[index++];
  return way;
}

std::optional<std::string> Moves::Core::objects(const MigrateAsked& input) const {
  const Job* job = find(input.job);
  if (job == nullptr) return kNoSuchJob;
  if (job->state == JobState::kLost) return "a process of it is lost: end it";
  if (job->pinned) return "it is pinned: `lull pin JOB --off` lets it be moved";
  if (input.by_policy && job->suspends && !job->by_policy) return "a person has suspended it";
  if (job->state != JobState::kRunning && job->state != JobState::kSuspended) {
    return "it is on its way: wait until it is running or suspended";
  }
  if (auto why = not_migratable(*job)) return why;
  if (devices_.size() > kMaxPairs) {
    return "this node has more than " + std::to_string(kMaxPairs) + " GPUs: too many for an order";
  }
  for (DeviceId device : input.to) {
    const auto known = std::ranges::find(devices_, device, &NodeDevice::device);
    if (known == devices_.end()) return "there is no " + name(device) + ": see `lull status`";
    if (!known->whole)
      return name(device) + " is a part of a GPU: programs move to whole ones only";
  }
  const std::map<DeviceId, DeviceId> way = destinations(*job, input.to);
  if (way.empty()) {
    std::set<DeviceId> from;
    for (ClientId id : job->members) {
      for (const Share& share : member(id).report.devices) from.insert(share.device);
    }
    return "it uses " + std::to_string(from.size()) + " GPUs: name as many, not " +
           std::to_string(input.to.size());
  }
  if (std::ranges::all_of(way, [](const auto& one) { return one.first == one.second; })) {
    return "it is there already";
  }
  for (ClientId id : job->members) {
    std::set<DeviceId> own;
    for (const Share& share : member(id).report.devices) {
      if (!own.insert(way.at(share.device)).second) {
        return name(id) + " uses several GPUs: name different ones for them";
      }
    }
  }
  Job moved = *job;
  moved.migrates = way;
  for (const auto& [device, bytes] : growth(moved, held_by(moved, Where::kThere))) {
    const uint64_t free = free_bytes(device);
    if (bytes > free) {
      return name(device) + " has " + show(free) + " free, it needs " + show(bytes) +
             ": suspend or end a job there first";
    }
  }
  return std::nullopt;
}

void Moves::Core::take(const MigrateAsked& input) {
  Job& job = *find(input.job);
  job.migrates = destinations(job, input.to);
  job.was_suspended = job.suspends;
  job.was_by_policy = job.by_policy;
  job.suspends = false;
  job.by_policy = false;
  job.level = Level::kGivenUp;
  job.any_level = false;
  job.at = input.at;
  job.reason.clear();
  raise(job.claim, held_by(job, Where::kThere));
  job.not_before = now_;
  job.pause = {};
}

std::optional<std::string> Moves::Core::objects(const PinAsked& input) const {
  return find(input.job) == nullptr ? std::optional<std::string>(kNoSuchJob) : std::nullopt;
}

void Moves::Core::take(const PinAsked& input) { find(input.job)->pinned = input.pinned; }

}  // namespace lull::moves
