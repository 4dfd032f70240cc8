// What is in flight: launches until the device says that they are complete, or, where it does not, until they are
// expected to be.
#include <algorithm>
#include <utility>

#include "coordinator/engine/core.h"

namespace lull::engine {

void Engine::Core::set_units(Device& on, const Client& client, DeviceUsage& usage, uint32_t units) {
  if ((usage.units > 0) != (units > 0)) {
    const auto at = std::ranges::lower_bound(on.busy, client.id);
    if (units > 0) {
      on.busy.insert(at, client.id);
    } else {
      on.busy.erase(at);
    }
  }
  usage.units = units;
  touch(on, client.id, usage);
}

void Engine::Core::touch(Device& on, ClientId client, DeviceUsage& usage) {
  usage.touched = now_;
  if (!on.lately.empty() && on.lately.back() == client) return;
  const auto before = std::find(on.lately.rbegin(), on.lately.rend(), client);
  if (before != on.lately.rend()) on.lately.erase(std::next(before).base());
  on.lately.push_back(client);
}

// Units of the client on the device are done at `at`. Device time is the union of busy intervals:
// no more than has passed since the last settlement, or since the first of these launches if that
// was later.
void Engine::Core::done(Client& client, DeviceUsage& usage, StreamSlot stream, const Unit& units,
                        Instant first_launch, Instant at, bool reported) {
  const Instant busy_from = std::max(usage.settled_until, first_launch);
  const Duration elapsed = std::max(Duration{}, at - busy_from);
  usage.device_time += std::min(units.expected, elapsed);
  usage.settled_until = std::max(usage.settled_until, at);
  Device& on = *device(usage.device);
  if (units.tracked) {
    const Instant from = std::max(on.reported_until, first_launch);
    const Duration took = std::max(Duration{}, at - from);
    on.reported_until = std::max(on.reported_until, at);
    if (units.count == 1) see_blocked(client, on, usage, units.kernel);
    keep_others_off(on, usage, from, at,
                    std::min(units.blocks, Duration{took.ns - took.ns / kLeastPace}));
  }
  if (stream.value < client.streams.size()) client.streams[stream.value].done(units, at);
  const uint32_t count = std::min(usage.units, units.count);
  set_units(on, client, usage, usage.units - count);
  usage.done += count;
  on.done += count;
  on.done_at = std::max(on.done_at, at);
  usage.in_flight -= std::min(usage.in_flight, units.predicted);
  if (usage.units == 0) {
    usage.in_flight = Duration{};
    usage.last_due = std::min(usage.last_due, at + Duration{-usage.kept_off.ns});
  }
  tell(on, client, policies::Completed{client.id, units.count, units.predicted, stream, reported});
  if (reported) {
    usage.last_progress = std::max(usage.last_progress, at);
    const bool was_stuck = std::exchange(usage.stuck, false);
    if (was_stuck) {
      usage.patience += usage.waits_for_lower ? 0 : 1;
      recount_stuck(on);
    }
  }
  mark(client);
}

void Engine::Core::keep_others_off(Device& on, const DeviceUsage& one, Instant since, Instant at,
                                   Duration had) {
  if (on.busy.size() < 2) return;
  for (ClientId member : on.busy) {
    Client& client = *find(member);
    DeviceUsage& other = *client.usage(one.device);
    if (&other == &one) continue;
    if (was_due(client)) mark(client);  // it may have waited for this
    // Work that was launched meanwhile was kept off from its launch on.
    const bool there = other.units > 0 && other.last_due + other.kept_off > since;
    if (there) other.kept_off += std::clamp(at - std::max(since, other.last_progress), Duration{}, had);
  }
}

// Whether some of its unreported work would be done by now if no others' work had lain before it.
bool Engine::Core::was_due(const Client& client) const {
  return client.any_busy([&](const UnitQueue& units) {
    const Unit& front = units.front();
    return !front.tracked && front.due + client.usage(front.device)->kept_off <= now_ &&
           !units.awaits_report();
  });
}

bool Engine::Core::is_behind_others(const Client& client, const DeviceUsage& usage,
                                    const Unit& unit) const {
  for (ClientId member : device_of(usage).busy) {
    const Client& other = *find(member);
    if (&other == &client) continue;
    const bool behind = other.any_busy([&](const UnitQueue& units) {
      const Unit& first = units.front();
      return first.device == usage.device && first.at < unit.at && first.blocks.ns > 0 &&
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
    const Instant not_due = now_ + kOutOfOrder + Duration{-other.usage(device)->kept_off.ns};
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

void Engine::Core::see_blocked(Client& client, const Device& on, const DeviceUsage& usage,
                               KernelId kernel) {
  const auto use = client.kernels.find(kernel);
  if (use == client.kernels.end() || !use->second.lets_by) return;
  use->second.lets_by = std::ranges::none_of(on.busy, [&](ClientId member) {
    return member != client.id && is_overdue(*find(member), usage.device);
  });
}

bool Engine::Core::is_overdue(const Client& client, DeviceId device) const {
  return client.any_busy([&](const UnitQueue& units) {
    const auto unit = std::ranges::find_if(units, [](const Unit& one) { return one.tracked; });
    if (unit == units.end() || unit->device != device) return false;
    const Instant due = unit->due + client.usage(device)->kept_off;
    return due + std::max(kOutOfOrder, due - unit->at) < now_;
  });
}

Instant Engine::Core::due(const Client& client, const DeviceUsage& usage, const Unit& unit) const {
  const Duration patience{std::max(kUnreported.ns, unit.expected.ns / unit.count * kStuckFactor)};
  const Instant longest = std::max(usage.last_launch, usage.last_progress) + patience;
  const Instant at = unit.due + usage.kept_off;
  if (at >= longest || (at <= now_ && is_behind_others(client, usage, unit))) return longest;
  return at;
}

Instant Engine::Core::works_until(const Client& client, const DeviceUsage& usage) const {
  Instant until;
  if (usage.units == 0) return until;
  for (uint64_t busy = client.busy_streams; busy != 0; busy &= busy - 1) {
    const UnitQueue& units = client.streams[static_cast<size_t>(__builtin_ctzll(busy))].units;
    const bool awaits_report = units.awaits_report();
    for (const Unit& unit : units) {
      if (unit.device != usage.device) continue;
      if (unit.tracked || awaits_report) return kNever;
      until = std::max(until, due(client, usage, unit));
    }
  }
  return until;
}

// Work that is not reported counts as done when it is expected to be, in the order of its stream.
// Launches close before a tracked one are reported with it.
void Engine::Core::retire_due(Client& client) {
  for (uint64_t busy = client.busy_streams; busy != 0; busy &= busy - 1) {
    const size_t slot = static_cast<size_t>(__builtin_ctzll(busy));
    UnitQueue& units = client.streams[slot].units;
    while (!units.empty() && !units.awaits_report()) {
      const Unit unit = units.front();
      DeviceUsage& usage = *client.usage(unit.device);
      const Instant at = due(client, usage, unit);
      if (at > now_) break;
      units.pop();
      done(client, usage, slot_id(slot), unit, unit.at, at, /*reported=*/false);
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
  for (const auto& usage : client->usages) {
    tell(*device(usage->device), *client,
         policies::Synced{client->id, std::min(input.synced, now_), slot_id(slot)});
    mark(*client);
  }
}

void Engine::Core::reckon_tail(DeviceUsage& usage, UnitQueue& units) const {
  if (units.empty() || units.size() >= units.front().every || units.awaits_report()) return;
  Instant end = now_ + Duration{-usage.kept_off.ns};
  for (Unit& unit : units) unit.due = end = end + unit.expected;
  usage.last_due = end;
}

// Everything of the stream up to `sequence` is complete.
void Engine::Core::complete(Client& client, size_t slot, uint64_t sequence) {
  Stream& stream = client.streams[slot];
  if (sequence <= stream.completed) return;
  stream.completed = sequence;
  // Units of one device are settled together: they were seen complete at the same moment.
  while (!stream.units.empty() && stream.units.front().sequence <= sequence) {
    Unit all = stream.units.front();
    DeviceUsage& usage = *client.usage(all.device);
    const LearnedLaunches::CoRunning others =
        co_running(*device(all.device), client, usage, slot, all.at);
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
      all.lengthens = std::max(all.lengthens, next.lengthens);
      all.blocks += next.blocks;
      stream.units.pop();
    }
    if (all.count == 1) saw(client, slot_id(slot), all);
    if (all.tracked) see_passed(client, all.device, last);
    done(client, usage, slot_id(slot), all, all.at, now_, /*reported=*/true);
    reckon_tail(usage, stream.units);
  }
}

void Engine::Core::take(const Cancelled& input) {
  Client* client = find(input.client);
  Unit* unit = nullptr;
  const size_t slot = slot_of(input.stream);
  if (client != nullptr && slot < client->streams.size()) {
    unit = client->streams[slot].units.find(input.sequence);
  }
  if (unit == nullptr) {
    dropped_ += 1;
    return;
  }
  DeviceUsage& usage = *client->usage(unit->device);
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
  done(*client, usage, slot_id(slot), one, now_, usage.settled_until, /*reported=*/true);
}

}  // namespace lull::engine
