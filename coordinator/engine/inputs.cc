#include <algorithm>

#include "coordinator/engine/core.h"

namespace lull::engine {
namespace {

auto pending_at(Client& client, ThreadSlot thread) {
  return std::lower_bound(
      client.pending.begin(), client.pending.end(), thread,
      [](const PendingLaunch& pending, ThreadSlot t) { return pending.thread < t; });
}

}  // namespace

Client* Engine::Core::find(ClientId id) {
  auto found = clients_.find(id);
  return found == clients_.end() ? nullptr : found->second.get();
}

const Client* Engine::Core::find(ClientId id) const {
  auto found = clients_.find(id);
  return found == clients_.end() ? nullptr : found->second.get();
}

Engine::Core::Device* Engine::Core::device(DeviceId id) {
  auto found = devices_.find(id);
  return found == devices_.end() ? nullptr : &found->second;
}

void Engine::Core::take(const ClientAttached& input) {
  if (clients_.contains(input.client) || clients_.size() >= options_.max_clients) {
    dropped_ += 1;
    if (clients_.size() >= options_.max_clients && !full_told_) {
      full_told_ = true;
      notice("no more than " + std::to_string(options_.max_clients) +
             " clients: further ones run unscheduled");
    }
    return;
  }
  auto client = std::make_unique<Client>();
  client->id = input.client;
  client->job = input.job;
  client->own = client->priority = Priority{std::min<uint8_t>(input.priority.level, 9)};
  client->bound = in_range(input.bound);
  client->task = input.task.substr(0, kMaxTaskKey);
  // Without a key a client learns for itself; no key contains a newline before a number.
  client->profile = &tasks_.acquire(
      client->task.empty() ? "\n" + std::to_string(input.client.value) : client->task,
      input.client);
  client->counted = input.counted;
  client->attached = client->last_floor = now_;
  Job& job = jobs_[input.job];
  client->ranks = &job;
  job.members.insert(std::lower_bound(job.members.begin(), job.members.end(), input.client),
                     input.client);
  clients_.emplace(input.client, std::move(client));
  set_job_priority(job);
}

void Engine::Core::take(const ClientDetached& input) {
  Client* client = find(input.client);
  if (client == nullptr) {
    dropped_ += 1;
    return;
  }
  for (const auto& usage : client->usages) {
    Device* on = device(usage->device);
    std::erase(on->members, client->id);
    std::erase(on->busy, client->id);
    std::erase(on->lately, client->id);
    tell(*on, *client, policies::Left{client->id});
    mark_all(*on);
  }
  if (client->wake != kNever) wakes_.erase({client->wake, client->id});
  tasks_.release(*client->profile, client->id);
  std::vector<DeviceId> left;
  for (const auto& usage : client->usages) left.push_back(usage->device);
  const JobId job_id = client->job;
  const ClientId id = client->id;
  if (client->dirty) std::erase(dirty_, client);
  clients_.erase(id);
  Job& job = jobs_[job_id];
  std::erase(job.members, id);
  if (job.members.empty()) {
    jobs_.erase(job_id);
  } else {
    set_job_priority(job);
    for (ClientId member : job.members) mark(*find(member));
  }
  for (DeviceId device_id : left) {
    Device* on = device(device_id);
    if (on->members.empty()) {
      devices_.erase(device_id);
    } else {
      watch_device(device_id, *on);
      recount_stuck(*on);
    }
  }
}

void Engine::Core::take(const DeviceUsed& input) {
  Client* client = find(input.client);
  if (client == nullptr || client->usage(input.device) != nullptr ||
      client->usages.size() >= kMaxUsages ||
      (!devices_.contains(input.device) && devices_.size() >= kMaxDevices)) {
    dropped_ += 1;
    return;
  }
  if (client->usages.empty() && !input.model.empty() && !client->task.empty()) {
    client->model = input.model.substr(0, kMaxTaskKey);
    tasks_.release(*client->profile, client->id);
    client->profile = &tasks_.acquire(client->task + "\n" + client->model, client->id);
  }
  auto usage = std::make_unique<DeviceUsage>();
  usage->device = input.device;
  usage->last_launch = policies::kLongAgo;
  usage->last_progress = usage->settled_until = usage->last_due = usage->opened_at = now_;
  client->usages.insert(std::lower_bound(client->usages.begin(), client->usages.end(), input.device,
                                         [](const auto& s, DeviceId id) { return s->device < id; }),
                        std::move(usage));
  Job& job = *client->ranks;
  if (job.arrival == 0) job.arrival = ++arrivals_;
  Device& on = devices_[input.device];
  if (!on.policy) on.policy = choice_.row->make(choice_.values);
  on.members.insert(std::lower_bound(on.members.begin(), on.members.end(), client->id),
                    client->id);
  touch(on, client->id, *client->usage(input.device));
  tell(on, *client,
       policies::Joined{.client = client->id,
                        .job = client->job,
                        .priority = client->priority,
                        .arrival = job.arrival,
                        .bound = client->bound,
                        .has_peers = client->has_peers});
  watch_device(input.device, on);
  mark(*client);
}

void Engine::Core::take(const TaskRecalled& input) {
  Client* client = find(input.client);
  const auto record = client == nullptr ? std::unexpected(std::string())
                                        : read_task_record(input.record);
  if (!record) {
    dropped_ += 1;
    return;
  }
  for (const TaskRecord::Kernel& kernel : record->kernels) {
    client->profile->recall(kernel.id, kernel.saved);
  }
  client->learned.times().recall(record->undisturbed, record->undisturbed_count);
}

void Engine::Core::take(const PriorityChanged& input) {
  Client* client = find(input.client);
  if (client == nullptr) {
    dropped_ += 1;
    return;
  }
  client->own = Priority{std::min<uint8_t>(input.priority.level, 9)};
  set_job_priority(*client->ranks);
}

// All ranks of a job count as its most important one.
void Engine::Core::set_job_priority(Job& job) {
  Priority highest{9};
  for (ClientId member : job.members) highest = std::min(highest, find(member)->own);
  for (ClientId member : job.members) {
    Client& client = *find(member);
    const bool has_peers = job.members.size() > 1;
    if (client.priority == highest && client.has_peers == has_peers) continue;
    client.priority = highest;
    client.has_peers = has_peers;
    for (const auto& usage : client.usages) {
      Device& on = *device(usage->device);
      tell(on, client, policies::Reprioritised{client.id, highest, has_peers});
      watch_device(usage->device, on);
      recount_stuck(on);
      mark_all(on);
    }
  }
}

// The clients on the device have changed: decides whether it must report completions.
void Engine::Core::watch_device(DeviceId id, Device& on) {
  bool several_levels = false;
  bool several_jobs = false;
  const auto before = std::pair(on.progress, on.highest_level);
  on.lowest_level = 0;
  on.highest_level = kNobodyStuck;
  const Client* first = nullptr;
  for (ClientId member : on.members) {
    const Client& client = *find(member);
    if (client.ranks->stands()) continue;
    if (first == nullptr) first = &client;
    several_levels |= client.priority != first->priority;
    several_jobs |= client.job != first->job;
    on.lowest_level = std::max<int>(on.lowest_level, client.priority.level);
    on.highest_level = std::min<int>(on.highest_level, client.priority.level);
  }
  const policies::ProgressNeed need = choice_.row->progress;
  on.progress = (need == policies::ProgressNeed::kBetweenLevels && several_levels) ||
                (need == policies::ProgressNeed::kBetweenJobs && several_jobs);
  const bool others_now = before != std::pair(on.progress, on.highest_level);
  for (ClientId member : on.members) {
    Client& client = *find(member);
    DeviceUsage& usage = *client.usage(id);
    set_progress(client, usage, wanted_progress(on, usage));
    if (others_now) mark(client);
  }
}

void Engine::Core::set_progress(const Client& client, DeviceUsage& usage, uint32_t every) {
  if (usage.marked_every == every) return;
  if (usage.marked_every == 0) usage.marked_from = usage.launches;
  usage.marked_every = every;
  put(SetProgress{client.id, usage.device, every});
}

uint32_t Engine::Core::wanted_progress(const Device& on, const DeviceUsage& usage) const {
  if (!on.progress) return 0;
  if (usage.wanted == Gate::kClosed || usage.usual_launch.ns <= 0) return 1;
  if (on.policy && on.policy->counts_device_time()) return 1;
  Duration apart{kMarkersPart * options_.marker.ns};
  if (usage.wanted == Gate::kCredit)
    apart = std::min(apart, Duration{usage.bound.ns / kMarkedOfCredit});
  const uint32_t now = usage.marked_every;
  const bool first = now == 0 || usage.launches - usage.marked_from < kMarkedAtFirst;
  const uint32_t most = first ? kUnmarkedAtFirst : kMostUnmarked;
  const auto far_enough = [&](uint32_t every) {
    return every == most || every * usage.usual_launch.ns >= apart.ns;
  };
  const bool too_far = now > 1 && now * usage.usual_launch.ns >= 3 * apart.ns;
  if (now > 0 && far_enough(now) && !too_far) return now;
  uint32_t every = 1;
  while (!far_enough(every)) every *= 2;
  return every;
}

void Engine::Core::take(const PolicyChanged& input) {
  auto choice = policies::parse_policy(input.policy, options_.policies);
  if (!choice) {
    dropped_ += 1;
    notice("policy stays " + choice_.text + ": " + choice.error());
    return;
  }
  const std::string before = choice_.text;
  use_policy(*choice);
  notice("policy " + choice_.text + " in place of " + before);
}

KernelUse& Engine::Core::use_kernel(Client& client, KernelId kernel) {
  auto found = client.kernels.find(kernel);
  if (found != client.kernels.end()) return found->second;
  // Bounds the kernels that a hostile program makes up. It forgets only what the client was told.
  if (client.kernels.size() >= kMaxKernelsPerTask) client.kernels.clear();
  KernelUse& use = client.kernels[kernel];
  use.known = client.profile->kernel(kernel);
  use.published = use.is_measured() ? use.known->profile.mean() : client.profile->unknown_kernel(kernel);
  put(Predict{client.id, kernel, use.published});
  return use;
}

policies::Known Engine::Core::known(const Client& client, const policies::KernelProfile& kernel,
                                    const LearnedLaunches::Place& place,
                                    policies::Predictor finest) {
  policies::Known known{.kernel = &kernel};
  if (finest < policies::Predictor::kPair) return known;
  known.pair = client.profile->pair(place.before, place.kernel, kernel);
  if (finest < policies::Predictor::kPosition) return known;
  known.position = client.learned.position(place, kernel);
  return known;
}

Prediction Engine::Core::predict(const Client& client, const KernelUse& use,
                                 const LearnedLaunches::Place& place) const {
  const policies::Predictor how = predictor();
  const bool measured = use.is_measured();
  if (how == policies::Predictor::kMean) {
    return {use.published, use.published, measured ? use.known->profile.mean_gap() : Duration{-1}};
  }
  if (!measured) {
    return {client.profile->unknown_at_most(place.kernel), client.profile->unknown_kernel(place.kernel)};
  }
  const policies::PredictorChoice& choice = use.known->choice;
  const bool best = how == policies::Predictor::kBest;
  const policies::Predictor length = best ? choice.length() : how;
  const policies::Predictor gap = best ? choice.gap() : how;
  const policies::Known what = known(client, use.known->profile, place, std::max(length, gap));
  return {predicted_length(length, what), expected_length(length, what), predicted_gap(gap, what)};
}

void Engine::Core::take(const Launched& input) {
  Client* client = find(input.client);
  DeviceUsage* usage = client == nullptr ? nullptr : client->usage(input.device);
  if (usage == nullptr) {
    dropped_ += 1;
    return;
  }
  retire_due(*client);
  if (usage->units >= kMaxUnits) {
    dropped_ += 1;
    return;
  }
  const bool tracked = input.tracked && input.stream.value < kMaxStreams;
  const size_t slot = slot_of(input.stream);
  const KernelUse& use = use_kernel(*client, input.kernel);
  Unit unit;
  const Duration charged = input.charged.ns >= 0 ? input.charged : use.published;
  unit.sequence = input.sequence;
  unit.at = std::clamp(input.at, std::max(usage->last_launch, client->attached), now_);
  unit.tracked = tracked;
  unit.every = usage->marked_every;
  unit.device = input.device;
  unit.kernel = input.kernel;

  auto pending = pending_at(*client, input.thread);
  bool released = false;
  if (pending != client->pending.end() && pending->thread == input.thread) {
    released = pending->released && pending->ticket == input.ticket;
    const bool same_device = pending->device == input.device;
    if (!same_device) {
      drop_pending(*client, static_cast<size_t>(pending - client->pending.begin()),
                   /*tell_policy=*/true);
    } else {
      client->pending.erase(pending);
    }
  }
  if (!released) usage->credit.launched(charged, unit.at, options_.control_latency);

  Device& on = *device(input.device);
  const auto learned =
      client->learned.launched(input, unit.at, co_running(on, *client, *usage, slot, unit.at));
  if (learned.completed) {
    const Instant began{unit.at.ns - learned.took.ns};
    if (began >= client->ranks->continued_at) {
      client->learned.iteration(learned.took, had_co_running(*client, began));
    }
  }
  const Prediction said = predict(*client, use, client->learned.latest());
  unit.predicted = said.predicted;
  unit.expected = said.expected;
  unit.blocks = use.lets_by ? Duration{} : said.expected;
  // A copy has an engine of its own.
  const Duration at_most = use.is_measured() ? said.expected : client->profile->unmeasured_at_most(input.kernel);
  unit.lengthens = input.copy ? Duration{} : at_most;
  if (is_seen(use)) {
    unit.ahead = Duration{};
    for (ClientId member : on.busy) unit.ahead += find(member)->usage(input.device)->in_flight;
    unit.others_done = on.done - usage->done;
  }
  client->launches += 1;
  usage->last_launch = unit.at;
  if (usage->units == 0) usage->last_progress = std::max(usage->last_progress, unit.at);
  usage->launches += 1;
  on.launches += 1;
  set_units(on, *client, *usage, usage->units + 1);
  const Duration off = unit.expected - usage->usual_launch;
  usage->usual_launch += Duration{off.ns / (usage->usual_launch.ns == 0 ? 1 : kUsualOf)};
  set_progress(*client, *usage, wanted_progress(on, *usage));
  usage->in_flight += unit.predicted;
  const policies::IterationDetector& detector = client->learned.detector();
  const policies::IterationPlace place{.in_step = learned.in_step,
                                       .started = learned.started,
                                       .position = learned.position,
                                       .length = detector.template_length(),
                                       .generation = detector.generation()};
  if (client->ranks->stop == Stop::kAsked && learned.in_step && detector.completed() > 0 &&
      learned.position == detector.lowest_memory_position()) {
    client->ranks->at_lowest = true;
  }
  tell(
      on, *client,
      policies::Submitted{client->id, input.thread, input.kernel, said.predicted, said.gap, unit.at,
                          said.expected, place, slot_id(slot), input.copy, use.published,
                          tracked ? options_.marker : Duration{}});
  mark(*client);

  if (client->streams.size() <= slot) client->streams.resize(slot + 1);
  Stream& stream = client->streams[slot];
  if (tracked && input.sequence <= stream.completed) {  // its completion was read before its record
    done(*client, *usage, slot_id(slot), unit, unit.at, now_, /*reported=*/true);
    return;
  }
  const Instant from = unit.at + Duration{-usage->kept_off.ns};
  usage->last_due = std::max(usage->last_due, from) + unit.expected;
  unit.due = usage->last_due;
  if (!stream.units.empty()) {
    Unit& last = stream.units.back();
    unit.sequence = std::max(unit.sequence, last.sequence);
    if (stream.units.size() >= kMaxUnitsPerStream && last.device == unit.device) {
      last.sequence = unit.sequence;
      last.predicted += unit.predicted;
      last.expected += unit.expected;
      last.blocks += unit.blocks;
      last.lengthens = std::max(last.lengthens, unit.lengthens);
      last.count += 1;
      last.tracked = unit.tracked;
      last.due = unit.due;
      return;
    }
  }
  stream.units.push(unit);
  client->busy_streams |= uint64_t{1} << slot;
}

void Engine::Core::take(const LaunchesMissed& input) {
  Client* client = find(input.client);
  if (client == nullptr) {
    dropped_ += 1;
    return;
  }
  client->launches += std::min(input.count, UINT64_MAX - client->launches);
  mark(*client);
}

void Engine::Core::take(const Held& input) {
  Client* client = find(input.client);
  DeviceUsage* usage = client == nullptr ? nullptr : client->usage(input.device);
  if (usage == nullptr || input.ticket.value == 0) {
    dropped_ += 1;
    return;
  }
  auto at = pending_at(*client, input.thread);
  if (at != client->pending.end() && at->thread == input.thread) {
    if (at->ticket == input.ticket) return;  // said again
    const size_t index = static_cast<size_t>(at - client->pending.begin());
    drop_pending(*client, index, /*tell_policy=*/true);
    at = client->pending.begin() + static_cast<ptrdiff_t>(index);
  } else if (client->pending.size() >= kMaxPending) {
    dropped_ += 1;
    return;
  }
  PendingLaunch pending;
  pending.thread = input.thread;
  pending.ticket = input.ticket;
  pending.device = input.device;
  pending.stream = input.stream;
  pending.kernel = input.kernel;
  const KernelUse& use = use_kernel(*client, input.kernel);
  pending.said = predict(*client, use, client->learned.next(input.kernel));
  pending.charged = use.published;
  pending.since = std::clamp(input.at, policies::kLongAgo, now_);
  if (is_given_up(*client, pending, *usage)) return;
  client->pending.insert(at, pending);
  Device& on = *device(input.device);
  if (!client->ranks->is_stopped()) tell(on, *client, waiting(*client, pending));
  mark(*client);
}

policies::Waiting Engine::Core::waiting(const Client& client, const PendingLaunch& pending) {
  return {
      client.id,     pending.thread,        pending.ticket, pending.kernel, pending.said.predicted,
      pending.since, pending.said.expected, pending.charged};
}

void Engine::Core::drop_pending(Client& client, size_t index, bool tell_policy) {
  const PendingLaunch& pending = client.pending[index];
  if (tell_policy) {
    tell(*device(pending.device), client, policies::Withdrawn{client.id, pending.thread});
  }
  client.pending.erase(client.pending.begin() + static_cast<ptrdiff_t>(index));
  mark(client);
}

}  // namespace lull::engine
