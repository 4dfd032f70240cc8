#include <algorithm>

#include "coordinator/engine/core.h"

namespace lull::engine {
namespace {

// Streams beyond the last that is told apart count as that one.
StreamSlot slot_id(size_t slot) { return {static_cast<uint32_t>(slot)}; }

}  // namespace

namespace {

auto head_at(Client& client, ThreadSlot thread) {
  return std::lower_bound(client.heads.begin(), client.heads.end(), thread,
                          [](const Head& head, ThreadSlot t) { return head.thread < t; });
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
  for (const auto& seat : client->seats) {
    Device* on = device(seat->device);
    std::erase(on->members, client->id);
    std::erase(on->busy, client->id);
    std::erase(on->lately, client->id);
    tell(*on, *client, policies::Left{client->id});
    mark_all(*on);
  }
  if (client->wake != kNever) wakes_.erase({client->wake, client->id});
  tasks_.release(*client->profile, client->id);
  std::vector<DeviceId> left;
  for (const auto& seat : client->seats) left.push_back(seat->device);
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
  if (client == nullptr || client->seat(input.device) != nullptr ||
      client->seats.size() >= kMaxSeats ||
      (!devices_.contains(input.device) && devices_.size() >= kMaxDevices)) {
    dropped_ += 1;
    return;
  }
  if (client->seats.empty() && !input.model.empty() && !client->task.empty()) {
    client->model = input.model.substr(0, kMaxTaskKey);
    tasks_.release(*client->profile, client->id);
    client->profile = &tasks_.acquire(client->task + "\n" + client->model, client->id);
  }
  auto seat = std::make_unique<Seat>();
  seat->device = input.device;
  seat->last_launch = policies::kLongAgo;
  seat->last_progress = seat->settled_until = seat->last_due = seat->opened_at = now_;
  client->seats.insert(
      std::lower_bound(client->seats.begin(), client->seats.end(), input.device,
                       [](const auto& s, DeviceId id) { return s->device < id; }),
      std::move(seat));
  Job& job = *client->ranks;
  if (job.arrival == 0) job.arrival = ++arrivals_;
  Device& on = devices_[input.device];
  if (!on.policy) on.policy = choice_.row->make(choice_.values);
  on.members.insert(std::lower_bound(on.members.begin(), on.members.end(), client->id),
                    client->id);
  touch(on, client->id, *client->seat(input.device));
  tell(on, *client,
       policies::Joined{.client = client->id,
                        .job = client->job,
                        .priority = client->priority,
                        .arrival = job.arrival,
                        .bound = client->bound});
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
    if (client.priority == highest) continue;
    client.priority = highest;
    for (const auto& seat : client.seats) {
      Device& on = *device(seat->device);
      tell(on, client, policies::Reprioritised{client.id, highest});
      watch_device(seat->device, on);
      recount_stuck(on);
      mark_all(on);
    }
  }
}

// Who is on the device has changed: whether it must report completions.
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
    Seat& seat = *client.seat(id);
    set_progress(client, seat, wanted_progress(on, seat));
    if (others_now) mark(client);
  }
}

void Engine::Core::set_progress(const Client& client, Seat& seat, uint32_t every) {
  if (seat.marked_every == every) return;
  seat.marked_every = every;
  put(SetProgress{client.id, seat.device, every});
}

uint32_t Engine::Core::wanted_progress(const Device& on, const Seat& seat) const {
  if (!on.progress) return 0;
  if (seat.wanted == Gate::kClosed || seat.usual_launch.ns <= 0) return 1;
  if (on.policy && on.policy->counts_device_time()) return 1;
  Duration apart{kMarkersPart * options_.marker.ns};
  if (seat.wanted == Gate::kCredit) apart = std::min(apart, Duration{seat.bound.ns / kMarkedOfCredit});
  const auto far_enough = [&](uint32_t every) {
    return every == kMostUnmarked || every * seat.usual_launch.ns >= apart.ns;
  };
  const uint32_t now = seat.marked_every;
  const bool too_far = now > 1 && now * seat.usual_launch.ns >= 3 * apart.ns;
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
  // A bound on a hostile program's inventions: it only forgets what it was told.
  if (client.kernels.size() >= kMaxKernelsPerTask) client.kernels.clear();
  KernelUse& use = client.kernels[kernel];
  use.known = client.profile->kernel(kernel);
  const bool known = use.known != nullptr && use.known->profile.count() > 0;
  use.published = known ? use.known->profile.mean() : client.profile->unknown_kernel(kernel);
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
  const bool measured = use.known != nullptr && use.known->profile.count() > 0;
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
  Seat* seat = client == nullptr ? nullptr : client->seat(input.device);
  if (seat == nullptr) {
    dropped_ += 1;
    return;
  }
  retire_due(*client);
  if (seat->units >= kMaxUnits) {
    dropped_ += 1;
    return;
  }
  const bool tracked = input.tracked && input.stream.value < kMaxStreams;
  const size_t slot = std::min<size_t>(input.stream.value, kMaxStreams - 1);
  const KernelUse& use = use_kernel(*client, input.kernel);
  Unit unit;
  const Duration charged = input.charged.ns >= 0 ? input.charged : use.published;
  unit.sequence = input.sequence;
  unit.at = std::clamp(input.at, std::max(seat->last_launch, client->attached), now_);
  unit.tracked = tracked;
  unit.every = seat->marked_every;
  unit.device = input.device;
  unit.kernel = input.kernel;

  auto head = head_at(*client, input.thread);
  bool released = false;
  if (head != client->heads.end() && head->thread == input.thread) {
    released = head->released && head->ticket == input.ticket;
    const bool same_device = head->device == input.device;
    if (!same_device) {
      drop_head(*client, static_cast<size_t>(head - client->heads.begin()), /*tell_policy=*/true);
    } else {
      client->heads.erase(head);
    }
  }
  if (!released) seat->credit.launched(charged, unit.at, options_.control_latency);

  Device& on = *device(input.device);
  const auto learned = client->learned.launched(input, unit.at, company(on, *seat));
  if (learned.completed) {
    const Instant began{unit.at.ns - learned.took.ns};
    if (began >= client->ranks->continued_at) {
      client->learned.iteration(learned.took, had_company(*client, began));
    }
  }
  const Prediction said = predict(*client, use, client->learned.latest());
  unit.predicted = said.predicted;
  unit.expected = said.expected;
  unit.blocks = use.lets_by ? Duration{} : said.expected;
  if (is_seen(use)) {
    unit.ahead = Duration{};
    for (ClientId member : on.busy) unit.ahead += find(member)->seat(input.device)->in_flight;
    unit.others_done = on.done - seat->done;
  }
  client->launches += 1;
  seat->last_launch = unit.at;
  if (seat->units == 0) seat->last_progress = std::max(seat->last_progress, unit.at);
  seat->launches += 1;
  on.launches += 1;
  set_units(on, *client, *seat, seat->units + 1);
  const Duration off = unit.expected - seat->usual_launch;
  seat->usual_launch += Duration{off.ns / (seat->usual_launch.ns == 0 ? 1 : kUsualOf)};
  set_progress(*client, *seat, wanted_progress(on, *seat));
  seat->in_flight += unit.predicted;
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
    done(*client, *seat, slot_id(slot), unit, unit.at, now_, /*reported=*/true);
    return;
  }
  const Instant from = unit.at + Duration{-seat->kept_off.ns};
  seat->last_due = std::max(seat->last_due, from) + unit.expected;
  unit.due = seat->last_due;
  if (!stream.units.empty()) {
    Unit& last = stream.units.back();
    unit.sequence = std::max(unit.sequence, last.sequence);
    if (stream.units.size() >= kMaxUnitsPerStream && last.device == unit.device) {
      last.sequence = unit.sequence;
      last.predicted += unit.predicted;
      last.expected += unit.expected;
      last.blocks += unit.blocks;
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
  Seat* seat = client == nullptr ? nullptr : client->seat(input.device);
  if (seat == nullptr || input.ticket.value == 0) {
    dropped_ += 1;
    return;
  }
  auto at = head_at(*client, input.thread);
  if (at != client->heads.end() && at->thread == input.thread) {
    if (at->ticket == input.ticket) return;  // said again
    const size_t index = static_cast<size_t>(at - client->heads.begin());
    drop_head(*client, index, /*tell_policy=*/true);
    at = client->heads.begin() + static_cast<ptrdiff_t>(index);
  } else if (client->heads.size() >= kMaxHeads) {
    dropped_ += 1;
    return;
  }
  Head head;
  head.thread = input.thread;
  head.ticket = input.ticket;
  head.device = input.device;
  head.stream = input.stream;
  head.kernel = input.kernel;
  const KernelUse& use = use_kernel(*client, input.kernel);
  head.said = predict(*client, use, client->learned.next(input.kernel));
  head.charged = use.published;
  head.since = std::clamp(input.at, policies::kLongAgo, now_);
  if (is_given_up(*client, head, *seat)) return;
  client->heads.insert(at, head);
  Device& on = *device(input.device);
  if (!client->ranks->is_stopped()) tell(on, *client, waiting(*client, head));
  mark(*client);
}

policies::Waiting Engine::Core::waiting(const Client& client, const Head& head) {
  return {client.id, head.thread, head.ticket, head.kernel, head.said.predicted, head.since,
          head.said.expected, head.charged};
}

void Engine::Core::drop_head(Client& client, size_t index, bool tell_policy) {
  const Head& head = client.heads[index];
  if (tell_policy) {
    tell(*device(head.device), client, policies::Withdrawn{client.id, head.thread});
  }
  client.heads.erase(client.heads.begin() + static_cast<ptrdiff_t>(index));
  mark(client);
}

void Engine::Core::set_units(Device& on, const Client& client, Seat& seat, uint32_t units) {
  if ((seat.units > 0) != (units > 0)) {
    const auto at = std::ranges::lower_bound(on.busy, client.id);
    if (units > 0) {
      on.busy.insert(at, client.id);
    } else {
      on.busy.erase(at);
    }
  }
  seat.units = units;
  touch(on, client.id, seat);
}

void Engine::Core::touch(Device& on, ClientId client, Seat& seat) {
  seat.touched = now_;
  if (!on.lately.empty() && on.lately.back() == client) return;
  const auto before = std::find(on.lately.rbegin(), on.lately.rend(), client);
  if (before != on.lately.rend()) on.lately.erase(std::next(before).base());
  on.lately.push_back(client);
}

// Units of the seat are through at `at`. Device time is settled by the union of busy intervals: no
// more than has passed since the last settlement or the first of these launches.
void Engine::Core::done(Client& client, Seat& seat, StreamSlot stream, const Unit& units,
                        Instant first_launch, Instant at, bool reported) {
  const Instant busy_from = std::max(seat.settled_until, first_launch);
  const Duration elapsed = std::max(Duration{}, at - busy_from);
  seat.device_time += std::min(units.expected, elapsed);
  seat.settled_until = std::max(seat.settled_until, at);
  Device& on = *device(seat.device);
  if (units.tracked) {
    const Instant from = std::max(on.reported_until, first_launch);
    const Duration took = std::max(Duration{}, at - from);
    on.reported_until = std::max(on.reported_until, at);
    if (units.count == 1) see_blocked(client, on, seat, units.kernel);
    keep_others_off(on, seat, from, at, std::min(units.blocks, Duration{took.ns - took.ns / kLeastPace}));
  }
  const uint32_t count = std::min(seat.units, units.count);
  set_units(on, client, seat, seat.units - count);
  seat.done += count;
  on.done += count;
  on.done_at = std::max(on.done_at, at);
  seat.in_flight -= std::min(seat.in_flight, units.predicted);
  if (seat.units == 0) {
    seat.in_flight = Duration{};
    seat.last_due = std::min(seat.last_due, at + Duration{-seat.kept_off.ns});
  }
  tell(on, client, policies::Completed{client.id, units.count, units.predicted, stream, reported});
  if (reported) {
    seat.last_progress = std::max(seat.last_progress, at);
    const bool was_stuck = std::exchange(seat.stuck, false);
    if (was_stuck) recount_stuck(on);
  }
  mark(client);
}

void Engine::Core::keep_others_off(Device& on, const Seat& one, Instant since, Instant at,
                                   Duration had) {
  if (on.busy.size() < 2) return;
  for (ClientId member : on.busy) {
    Client& client = *find(member);
    Seat& other = *client.seat(one.device);
    if (&other == &one) continue;
    if (was_due(client)) mark(client);  // it has waited for this
    // What was launched meanwhile was kept off from then on.
    const bool there = other.units > 0 && other.last_due + other.kept_off > since;
    if (there) other.kept_off += std::clamp(at - std::max(since, other.last_progress), Duration{}, had);
  }
}

// Some of its work that nobody reports would be done by now, but for what lay before it.
bool Engine::Core::was_due(const Client& client) const {
  return client.any_busy([&](const UnitQueue& units) {
    const Unit& front = units.front();
    return !front.tracked && front.due + client.seat(front.device)->kept_off <= now_ &&
           !units.awaits_report();
  });
}

bool Engine::Core::is_behind_others(const Client& client, const Seat& seat, const Unit& unit) const {
  for (ClientId member : device_of(seat).busy) {
    const Client& other = *find(member);
    if (&other == &client) continue;
    const bool behind = other.any_busy([&](const UnitQueue& units) {
      const Unit& first = units.front();
      return first.device == seat.device && first.at < unit.at && first.blocks.ns > 0 &&
             units.awaits_report();
    });
    if (behind) return true;
  }
  return false;
}

void Engine::Core::see_passed(const Client& client, DeviceId device, Instant launched) {
  for (ClientId member : this->device(device)->busy) {
    Client& other = *find(member);
    if (&other == &client) continue;
    const Instant not_due = now_ + kOutOfOrder + Duration{-other.seat(device)->kept_off.ns};
    for (uint64_t busy = other.busy_streams; busy != 0; busy &= busy - 1) {
      UnitQueue& units = other.streams[static_cast<size_t>(__builtin_ctzll(busy))].units;
      Unit& first = units.front();
      const bool before = first.device == device && first.at < launched;
      if (!before || !first.tracked || first.blocks.ns == 0 || first.due <= not_due) continue;
      first.blocks = Duration{};
      const auto use = other.kernels.find(first.kernel);
      if (use != other.kernels.end()) use->second.lets_by = true;
    }
  }
}

void Engine::Core::see_blocked(Client& client, const Device& on, const Seat& seat, KernelId kernel) {
  const auto use = client.kernels.find(kernel);
  if (use == client.kernels.end() || !use->second.lets_by) return;
  use->second.lets_by = std::ranges::none_of(on.busy, [&](ClientId member) {
    return member != client.id && is_overdue(*find(member), seat.device);
  });
}

bool Engine::Core::is_overdue(const Client& client, DeviceId device) const {
  return client.any_busy([&](const UnitQueue& units) {
    const auto unit = std::ranges::find_if(units, [](const Unit& one) { return one.tracked; });
    if (unit == units.end() || unit->device != device) return false;
    const Instant due = unit->due + client.seat(device)->kept_off;
    return due + std::max(kOutOfOrder, due - unit->at) < now_;
  });
}

Instant Engine::Core::due(const Client& client, const Seat& seat, const Unit& unit) const {
  const Duration patience{std::max(kUnreported.ns, unit.expected.ns / unit.count * kStuckFactor)};
  const Instant longest = std::max(seat.last_launch, seat.last_progress) + patience;
  const Instant at = unit.due + seat.kept_off;
  if (at >= longest || (at <= now_ && is_behind_others(client, seat, unit))) return longest;
  return at;
}

Instant Engine::Core::works_until(const Client& client, const Seat& seat) const {
  Instant until;
  if (seat.units == 0) return until;
  for (uint64_t busy = client.busy_streams; busy != 0; busy &= busy - 1) {
    const UnitQueue& units = client.streams[static_cast<size_t>(__builtin_ctzll(busy))].units;
    const bool awaits_report = units.awaits_report();
    for (const Unit& unit : units) {
      if (unit.device != seat.device) continue;
      if (unit.tracked || awaits_report) return kNever;
      until = std::max(until, due(client, seat, unit));
    }
  }
  return until;
}

// Work that nobody reports counts as done when it is predicted to be, in the order of its stream. What
// was launched where one in several is tracked is reported with the next tracked one.
void Engine::Core::retire_due(Client& client) {
  for (uint64_t busy = client.busy_streams; busy != 0; busy &= busy - 1) {
    const size_t slot = static_cast<size_t>(__builtin_ctzll(busy));
    UnitQueue& units = client.streams[slot].units;
    while (!units.empty() && !units.awaits_report()) {
      const Unit unit = units.front();
      Seat& seat = *client.seat(unit.device);
      const Instant at = due(client, seat, unit);
      if (at > now_) break;
      units.pop();
      done(client, seat, slot_id(slot), unit, unit.at, at, /*reported=*/false);
    }
    if (units.empty()) client.busy_streams &= ~(uint64_t{1} << slot);
  }
}

void Engine::Core::take(const Progressed& input) {
  Client* client = find(input.client);
  if (client == nullptr || input.stream.value >= kMaxStreams) {
    dropped_ += 1;
    return;
  }
  const size_t slot = input.stream.value;
  if (client->streams.size() <= slot) client->streams.resize(slot + 1);
  Stream& stream = client->streams[slot];
  complete(*client, slot, input.sequence);
  if (stream.units.empty()) client->busy_streams &= ~(uint64_t{1} << slot);
  if (input.synced == kNever) return;
  client->learned.waited();
  for (const auto& seat : client->seats) {
    tell(*device(seat->device), *client,
         policies::Synced{client->id, std::min(input.synced, now_), slot_id(slot)});
    mark(*client);
  }
}

void Engine::Core::reckon_tail(Seat& seat, UnitQueue& units) const {
  if (units.empty() || units.size() >= units.front().every || units.awaits_report()) return;
  Instant end = now_ + Duration{-seat.kept_off.ns};
  for (Unit& unit : units) unit.due = end = end + unit.expected;
  seat.last_due = end;
}

// Everything of the stream up to `sequence` is complete.
void Engine::Core::complete(Client& client, size_t slot, uint64_t sequence) {
  Stream& stream = client.streams[slot];
  if (sequence <= stream.completed) return;
  stream.completed = sequence;
  // Together, where they are of one device: they were seen complete at one moment.
  while (!stream.units.empty() && stream.units.front().sequence <= sequence) {
    Unit all = stream.units.front();
    Seat& seat = *client.seat(all.device);
    const uint32_t others = company(*device(all.device), seat).launches;
    client.learned.completed(slot_id(slot), all.sequence, others);
    Instant last = all.at;
    stream.units.pop();
    while (!stream.units.empty() && stream.units.front().sequence <= sequence &&
           stream.units.front().device == all.device) {
      const Unit& next = stream.units.front();
      client.learned.completed(slot_id(slot), next.sequence, others);
      last = next.at;
      all.count += next.count;
      all.tracked |= next.tracked;
      all.predicted += next.predicted;
      all.expected += next.expected;
      all.blocks += next.blocks;
      stream.units.pop();
    }
    if (all.count == 1) saw(client, slot_id(slot), all);
    if (all.tracked) see_passed(client, all.device, last);
    done(client, seat, slot_id(slot), all, all.at, now_, /*reported=*/true);
    reckon_tail(seat, stream.units);
  }
}

void Engine::Core::take(const Cancelled& input) {
  Client* client = find(input.client);
  Unit* unit = nullptr;
  const size_t slot = std::min<size_t>(input.stream.value, kMaxStreams - 1);
  if (client != nullptr && slot < client->streams.size()) {
    unit = client->streams[slot].units.find(input.sequence);
  }
  if (unit == nullptr) {
    dropped_ += 1;
    return;
  }
  Seat& seat = *client->seat(unit->device);
  Unit one = *unit;
  one.count = 1;
  one.predicted = Duration{unit->predicted.ns / unit->count};
  one.expected = Duration{unit->expected.ns / unit->count};
  if (unit->count > 1) {
    unit->count -= 1;
    unit->predicted -= one.predicted;
    unit->expected -= one.expected;
    unit->blocks -= std::min(unit->blocks, one.expected);
  } else {
    UnitQueue& units = client->streams[slot].units;
    units.erase(unit);
    if (units.empty()) client->busy_streams &= ~(uint64_t{1} << slot);
  }
  // Nothing has run: settled over an empty interval.
  done(*client, seat, slot_id(slot), one, now_, seat.settled_until, /*reported=*/true);
}

}  // namespace lull::engine
