// Session's part for clients whose device memory can be moved: reports in, orders out.
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "coordinator/channel/residence.h"
#include "coordinator/daemon/log.h"
#include "coordinator/daemon/session.h"

namespace lull::daemon {
namespace {

static_assert(static_cast<int>(moves::Residence::kLost) == channel::kLost);
static_assert(static_cast<int>(moves::Result::kReplaced) == channel::kMoveReplaced);
static_assert(static_cast<int>(moves::Target::kGivenUp) == channel::kTargetGivenUp);

// What a client's memory on one device can come to at most, where nobody says how much that has.
constexpr uint64_t kLargestDeviceBytes = 1ULL << 42;

}  // namespace

moves::Report Session::report(const DeviceTable& devices) {
  residence_news_ = false;
  const channel::ResidenceReport said = channel::read_residence(region_);
  moves::Report report;
  if (said.state > channel::kLost || said.result > channel::kMoveReplaced) {
    lie();
  } else {
    report.residence = static_cast<moves::Residence>(said.state);
    report.result = static_cast<moves::Result>(said.result);
  }
  report.order = said.order;
  report.can_swap =
      (who_.moves & channel::kMovesSwap) != 0 && (said.abilities & channel::kCanSwap) != 0;
  report.can_give_up = report.can_swap && (said.abilities & channel::kCanGiveUp) != 0;
  report.can_migrate = report.can_give_up && (who_.moves & channel::kMovesMigrate) != 0 &&
                       (said.abilities & channel::kCanMigrate) != 0;
  report.has_returned = (said.abilities & channel::kHasReturned) != 0;
  report.reason = printable(said.reason);
  uint64_t most_of_all = 0;
  for (uint32_t index = 0; index < device_count_; ++index) {
    if (!devices_[index].id) continue;
    const DeviceId id = *devices_[index].id;
    const DeviceRow* row = devices.find(id);
    const uint64_t total = row == nullptr ? 0 : row->known.total_bytes;
    const uint64_t most = total == 0 ? kLargestDeviceBytes : total;
    const auto at = std::ranges::lower_bound(report.devices, id, {}, &moves::Share::device);
    const bool known = at != report.devices.end() && at->device == id;
    moves::Share& share = known ? *at : *report.devices.insert(at, moves::Share{.device = id});
    if (!known) most_of_all += most;
    const auto add = [most](uint64_t& sum, uint64_t more) {
      sum = std::min(most, sum + std::min(most, more));
    };
    add(share.used_bytes, channel::memory_used(region_, index));
    const uint64_t allowance = channel::memory_allowance(region_, index);
    if (takes_turns() && allowance != UINT64_MAX) add(share.allowance_bytes, allowance);
    add(share.wanted_bytes, channel::memory_wanted(region_, index));
    add(share.swappable_bytes, said.swappable_bytes[index]);
    share.swappable_bytes = std::min(share.swappable_bytes, most);
    add(share.fixed_bytes, said.fixed_bytes[index]);
    share.fixed_bytes = std::min(share.fixed_bytes, most - share.swappable_bytes);
  }
  report.moving_bytes = std::min(said.moving_bytes, most_of_all);
  report.moved_bytes = std::min(said.moved_bytes, report.moving_bytes);
  return report;
}

void Session::remap_devices(Instant now, DeviceTable& devices, std::vector<StampedInput>& inputs) {
  struct Change {
    uint32_t index;
    DeviceId id;
    std::string model;
  };
  std::vector<Change> changes;
  for (uint32_t index = 0; index < device_count_; ++index) {
    if (!devices_[index].id) continue;
    const auto entry = channel::read_device(region_, index);
    const DeviceRow* row = devices.find(*devices_[index].id);
    if (!entry || row == nullptr || row->known.uuid == entry->uuid) continue;
    const auto id = devices.add_user(*entry, who_.id, /*trusted=*/false);
    if (!id) continue;
    const std::string& model = devices.find(*id)->known.name;
    changes.push_back({index, *id, model.empty() ? entry->name : model});
  }
  if (changes.empty()) return;
  const std::array<Device, channel::kMaxDevices> before = devices_;
  const auto find = [](const auto& list, DeviceId id) {
    return std::ranges::find_if(list, [&](const Device& device) { return device.id == id; });
  };
  for (const Change& change : changes) devices_[change.index].id = change.id;
  for (const Change& change : changes) {
    Device& device = devices_[change.index];
    if (const auto was = find(before, change.id); was != before.end()) {
      device.gate_word = was->gate_word;
      device.epoch = was->epoch;
    } else {
      // As the engine takes it to be; it closes where it has to.
      device.gate_word = channel::pack_gate(channel::GateState::kOpen, ++device.epoch, 0);
      inputs.emplace_back(now, engine::DeviceUsed{who_.id, change.id, change.model});
    }
    channel::publish_gate(*region_.control(), change.index, device.gate_word);
  }
  std::vector<DeviceId> left;
  for (const Device& device : before) {
    if (!device.id || find(devices_, *device.id) != devices_.end()) continue;
    if (std::ranges::find(left, *device.id) == left.end()) left.push_back(*device.id);
  }
  for (const DeviceId id : left) {
    devices.remove_user(who_.id, id);
    inputs.emplace_back(now, engine::DeviceLeft{who_.id, id});
  }
  wake_threads();
}

uint32_t Session::order(const channel::lull_order& order) {
  const uint32_t number = channel::publish_order(region_, order);
  // Not a private futex: the waiter is another process.
  ::syscall(SYS_futex, &region_.control()->order.number, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  return number;
}

void Session::set_pace(uint64_t bytes_per_s, uint32_t chunk_bytes) {
  if (bytes_per_s == pace_bytes_per_s_ && chunk_bytes == chunk_bytes_) return;
  pace_bytes_per_s_ = bytes_per_s;
  chunk_bytes_ = chunk_bytes;
  channel::publish_pace(region_, bytes_per_s, chunk_bytes);
}

uint64_t Session::copy_bytes_per_s() const {
  return channel::read_residence(region_).copy_bytes_per_s;
}
uint64_t Session::host_bytes() const { return channel::read_residence(region_).host_bytes; }
uint64_t Session::host_wanted_bytes() const {
  return channel::read_residence(region_).host_wanted_bytes;
}

void Session::set_host_allowance(uint64_t bytes) {
  if (bytes == host_allowance_bytes_) return;
  host_allowance_bytes_ = bytes;
  channel::publish_host_allowance(region_, bytes);
  // It may wait for more.
  ::syscall(SYS_futex, &region_.control()->order.number, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace lull::daemon
