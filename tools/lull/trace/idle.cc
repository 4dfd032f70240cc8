#include "tools/lull/trace/idle.h"

#include <algorithm>
#include <tuple>

namespace lull::trace {
namespace {

uint64_t key_of(ClientId client, uint32_t slot) { return uint64_t{client.value} << 32 | slot; }

// Calls `use(from, until, what)` for each part of [from, until): the spans' own, in order, with the
// span, and what lies between them with null. Where spans overlap the first one counts.
template <typename Span, typename Use>
void sweep(int64_t from_ns, int64_t until_ns, const std::vector<Span>& spans, Use&& use) {
  int64_t at_ns = from_ns;
  for (const Span& span : spans) {
    if (span.from_ns >= until_ns) break;
    const int64_t begin_ns = std::max(at_ns, span.from_ns);
    const int64_t end_ns = std::min(until_ns, span.until_ns);
    if (end_ns <= begin_ns) continue;
    if (begin_ns > at_ns) use(at_ns, begin_ns, static_cast<const Span*>(nullptr));
    use(begin_ns, end_ns, &span);
    at_ns = end_ns;
  }
  if (at_ns < until_ns) use(at_ns, until_ns, static_cast<const Span*>(nullptr));
}

int64_t covered_ns(int64_t from_ns, int64_t until_ns, const std::vector<OwnedSpan>& spans) {
  int64_t sum_ns = 0;
  sweep(from_ns, until_ns, spans, [&](int64_t from, int64_t until, const OwnedSpan* span) {
    if (span != nullptr) sum_ns += until - from;
  });
  return sum_ns;
}

}  // namespace

std::vector<IdlePart> cut_gap(const IdleGap& gap, const std::vector<TimeSpan>& waits,
                              const std::vector<OwnedSpan>& others) {
  std::vector<IdlePart> parts;
  const auto add = [&](IdleCause cause, ClientId by, int64_t from_ns, int64_t until_ns) {
    if (until_ns <= from_ns) return;
    if (!parts.empty() && parts.back().cause == cause && parts.back().by == by) {
      parts.back().until_ns = until_ns;
    } else {
      parts.push_back({cause, by, from_ns, until_ns, 0});
    }
  };
  if (gap.launch_known) {
    const int64_t called_ns = std::clamp(gap.called_ns, gap.from_ns, gap.until_ns);
    const int64_t went_ns = std::clamp(gap.went_ns, called_ns, gap.until_ns);
    sweep(gap.from_ns, called_ns, waits, [&](int64_t from, int64_t until, const TimeSpan* wait) {
      add(wait != nullptr ? IdleCause::kWait : IdleCause::kHost, {}, from, until);
    });
    add(IdleCause::kHeld, gap.held_by, called_ns, went_ns);
    sweep(went_ns, gap.until_ns, others, [&](int64_t from, int64_t until, const OwnedSpan* span) {
      if (span != nullptr) {
        add(IdleCause::kOthers, span->client, from, until);
      } else {
        add(IdleCause::kStart, {}, from, until);
      }
    });
  } else {
    add(IdleCause::kUnknown, {}, gap.from_ns, gap.until_ns);
  }
  for (IdlePart& part : parts) part.others_ns = covered_ns(part.from_ns, part.until_ns, others);
  return parts;
}

void Idle::feed(const Launch& launch) {
  const uint64_t key = key_of(launch.client, launch.stream.value);
  const auto found = launches_.find(key);
  if (found == launches_.end() && launches_.size() >= kMaxStreams) return;
  auto& notes = found != launches_.end() ? found->second : launches_[key];
  const LaunchNote note{launch.sequence, launch.at.ns, std::max<int64_t>(0, launch.held.ns),
                        launch.held_by, launch.thread};
  if (notes.empty() || notes.back().sequence < note.sequence) {
    notes.push_back(note);
  } else {  // threads that share a stream are drained in turns
    notes.insert(std::upper_bound(notes.begin(), notes.end(), note,
                                  [](const LaunchNote& a, const LaunchNote& b) {
                                    return a.sequence < b.sequence;
                                  }),
                 note);
  }
  if (notes.size() > kMaxLaunches) notes.pop_front();
}

void Idle::feed(const Waited& waited) {
  const uint64_t key = key_of(waited.client, waited.thread.value);
  const auto found = waits_.find(key);
  if (found == waits_.end() && waits_.size() >= kMaxStreams) return;
  auto& waits = found != waits_.end() ? found->second : waits_[key];
  // A thread waits for one thing at a time.
  const int64_t from_ns =
      waits.empty() ? waited.from.ns : std::max(waited.from.ns, waits.back().until_ns);
  if (waited.until.ns <= from_ns) return;
  waits.push_back({from_ns, waited.until.ns});
  if (waits.size() > kMaxWaits) waits.pop_front();
}

void Idle::feed(const Timing& timing) {
  if (timing.start.ns < 0) return;
  Unit unit{.start_ns = timing.start.ns,
            .end_ns = timing.start.ns + timing.duration.ns,
            .client = timing.client,
            .thread = {}};
  if (const auto found = launches_.find(key_of(timing.client, timing.stream.value));
      found != launches_.end()) {
    auto& notes = found->second;
    const auto note = std::lower_bound(
        notes.begin(), notes.end(), timing.sequence,
        [](const LaunchNote& one, uint64_t sequence) { return one.sequence < sequence; });
    if (note != notes.end() && note->sequence == timing.sequence) {
      unit.launch_known = true;
      unit.thread = note->thread;
      unit.called_ns = note->called_ns;
      unit.went_ns = note->called_ns + note->held_ns;
      unit.held_by = note->held_by;
      // Those before it have been timed, or will not be.
      if (note == notes.begin()) notes.pop_front();
    }
  }
  Device& device = devices_[timing.device.value];
  device.waiting.push_back(unit);
  if (device.waiting.size() >= kWindow) retire(timing.device, device, kWindow / 2);
}

void Idle::retire(DeviceId id, Device& device, size_t how_many) {
  std::stable_sort(device.waiting.begin(), device.waiting.end(),
                   [](const Unit& a, const Unit& b) { return a.start_ns < b.start_ns; });
  for (size_t i = 0; i < how_many; ++i) {
    const Unit& unit = device.waiting[i];
    const auto [until, first] = device.busy_until.try_emplace(unit.client.value, unit.end_ns);
    if (!first) {
      if (unit.start_ns > until->second) ended(id, device, unit, until->second);
      until->second = std::max(until->second, unit.end_ns);
    }
    const int64_t reach_ns =
        device.ran.empty() ? unit.end_ns : std::max(device.ran.back().reach_ns, unit.end_ns);
    device.ran.push_back({{unit.start_ns, unit.end_ns, unit.client}, reach_ns});
  }
  device.waiting.erase(device.waiting.begin(),
                       device.waiting.begin() + static_cast<std::ptrdiff_t>(how_many));
  int64_t needed_ns = INT64_MAX;
  for (const auto& [client, until_ns] : device.busy_until) {
    needed_ns = std::min(needed_ns, until_ns);
  }
  while (!device.ran.empty() &&
         (device.ran.size() > kMaxOthers || device.ran.front().reach_ns <= needed_ns)) {
    device.ran.pop_front();
  }
}

void Idle::ended(DeviceId id, Device& device, const Unit& unit, int64_t from_ns) {
  const IdleGap gap{from_ns,        unit.start_ns, unit.launch_known,
                    unit.called_ns, unit.went_ns,  unit.held_by};
  std::vector<OwnedSpan> others;
  const auto first = std::partition_point(device.ran.begin(), device.ran.end(),
                                          [&](const Ran& ran) { return ran.reach_ns <= from_ns; });
  for (auto ran = first; ran != device.ran.end(); ++ran) {
    if (ran->span.client != unit.client && ran->span.until_ns > from_ns) {
      others.push_back(ran->span);
    }
  }
  std::vector<TimeSpan> waits;
  if (const auto found = waits_.find(key_of(unit.client, unit.thread.value));
      found != waits_.end()) {
    auto wait = std::partition_point(
        found->second.begin(), found->second.end(),
        [&](const TimeSpan& one) { return one.until_ns <= from_ns; });
    for (; wait != found->second.end() && wait->from_ns < unit.start_ns; ++wait) {
      waits.push_back(*wait);
    }
  }
  for (const IdlePart& part : cut_gap(gap, waits, others)) {
    if (sink_) sink_(id, unit.client, part);
    std::tuple key{id.value, unit.client.value, part.cause, part.by.value};
    auto found = rows_.find(key);
    if (found == rows_.end()) {
      if (rows_.size() >= kMaxRows) {
        found = std::prev(rows_.end());
      } else {
        found = rows_.emplace(key, IdleRow{id, unit.client, part.cause, part.by, 0, {}}).first;
      }
    }
    found->second.others_ns += part.others_ns;
    found->second.lengths.add(part.until_ns - part.from_ns);
  }
}

std::vector<IdleRow> Idle::finish() {
  for (auto& [id, device] : devices_) retire({id}, device, device.waiting.size());
  std::vector<IdleRow> rows;
  for (auto& [key, row] : rows_) rows.push_back(std::move(row));
  rows_.clear();
  std::stable_sort(rows.begin(), rows.end(), [](const IdleRow& a, const IdleRow& b) {
    return a.lengths.total_ns() > b.lengths.total_ns();
  });
  return rows;
}

size_t Idle::kept_bytes() const {
  size_t bytes = sizeof *this;
  for (const auto& [key, notes] : launches_) bytes += 64 + notes.size() * sizeof(LaunchNote);
  for (const auto& [key, waits] : waits_) bytes += 64 + waits.size() * sizeof(TimeSpan);
  for (const auto& [id, device] : devices_) {
    bytes += device.waiting.capacity() * sizeof(Unit) + device.ran.size() * sizeof(Ran) +
             device.busy_until.size() * 64;
  }
  for (const auto& [key, row] : rows_) bytes += sizeof key + sizeof row + row.lengths.kept_bytes();
  return bytes;
}

}  // namespace lull::trace
