#include "policies/launch/guarded/observe/device_queue.h"

#include <algorithm>

namespace lull::policies {

void DeviceQueue::submitted(const Submitted& launch, Duration cost) {
  if (computing_ == 0) moved_at_ = launch.at;
  if (!launch.copy) computing_ += 1;
  if (cost != launch.predicted) priced_ += 1;
  units_.push_back({launch.client, launch.stream, launch.kernel, launch.predicted, launch.expected, cost, launch.copy,
                    launch.at});
}

void DeviceQueue::forget(const Unit& unit) {
  computing_ -= unit.copy ? 0 : 1;
  priced_ -= unit.cost != unit.predicted ? 1 : 0;
}

DeviceQueue::Through DeviceQueue::completed(const Completed& done, Instant now) {
  Through through;
  uint32_t left = done.units;
  for (auto unit = units_.begin(); unit != units_.end() && left > 0;) {
    if (unit->client != done.client || unit->stream != done.stream) {
      ++unit;
      continue;
    }
    if (!unit->copy) {
      through.kernels += 1;
      through.expected += unit->expected;
      through.launched = unit->at;
    }
    forget(*unit);
    unit = units_.erase(unit);
    left -= 1;
  }
  if (through.kernels > 0) moved_at_ = now;
  return through;
}

void DeviceQueue::left(ClientId client) {
  std::erase_if(units_, [&](const Unit& unit) {
    if (unit.client == client) forget(unit);
    return unit.client == client;
  });
}

const DeviceQueue::Unit* DeviceQueue::first(ClientId client, StreamSlot stream) const {
  const auto at = std::ranges::find_if(units_, [&](const Unit& unit) {
    return unit.client == client && unit.stream == stream;
  });
  return at == units_.end() ? nullptr : &*at;
}

const DeviceQueue::Unit* DeviceQueue::running() const {
  const auto at = std::ranges::find_if(units_, [](const Unit& unit) { return !unit.copy; });
  return at == units_.end() ? nullptr : &*at;
}

Duration DeviceQueue::progress(Instant now) const {
  const Unit* unit = running();
  return unit == nullptr ? Duration{} : std::clamp(now - moved_at_, Duration{}, unit->cost);
}

Duration DeviceQueue::spared(ClientId client) const {
  Duration sum;
  if (priced_ == 0) return sum;
  for (const Unit& unit : units_) {
    if (unit.client == client) sum += unit.predicted - unit.cost;
  }
  return sum;
}

}  // namespace lull::policies
