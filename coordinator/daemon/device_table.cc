#include "coordinator/daemon/device_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace lull::daemon {
namespace {

bool has_dash_before(size_t byte) { return byte == 4 || byte == 6 || byte == 8 || byte == 10; }

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::vector<DeviceRow>::iterator DeviceTable::find(const DeviceUuid& uuid) {
  return std::find_if(rows_.begin(), rows_.end(),
                      [&](const DeviceRow& row) { return row.known.uuid == uuid; });
}

void DeviceTable::learn(std::span<const KnownDevice> devices) {
  ++generation_;
  learnt_ = learnt_ || !devices.empty();
  if (!learnt_) return;
  std::erase_if(rows_, [&](const DeviceRow& row) {
    return row.users.empty() && std::ranges::none_of(devices, [&](const KnownDevice& device) {
             return device.uuid == row.known.uuid;
           });
  });
  for (const KnownDevice& device : devices) {
    if (const auto row = find(device.uuid); row != rows_.end()) {
      row->known = device;
    } else if (rows_.size() < kMaxNodeDevices) {
      rows_.push_back({.id = {next_id_++}, .known = device, .users = {}});
    }
  }
}

std::optional<DeviceId> DeviceTable::add_user(const channel::DeviceEntry& entry, ClientId client,
                                              bool trusted) {
  auto row = find(entry.uuid);
  if (row == rows_.end()) {
    if (learnt_ || !trusted) return std::nullopt;
    if (rows_.size() >= kMaxNodeDevices) {
      std::erase_if(rows_, [](const DeviceRow& r) { return r.users.empty(); });
    }
    if (rows_.size() >= kMaxNodeDevices) return std::nullopt;
    const KnownDevice said{
        .uuid = entry.uuid, .name = entry.name, .total_bytes = entry.total_bytes};
    row = rows_.insert(rows_.end(), {.id = {next_id_++}, .known = said, .users = {}});
  }
  const auto at = std::lower_bound(row->users.begin(), row->users.end(), client);
  if (at == row->users.end() || *at != client) row->users.insert(at, client);
  return row->id;
}

void DeviceTable::remove_user(ClientId client) {
  for (DeviceRow& row : rows_) std::erase(row.users, client);
}

void DeviceTable::remove_user(ClientId client, DeviceId device) {
  for (DeviceRow& row : rows_) {
    if (row.id == device) std::erase(row.users, client);
  }
}

const DeviceRow* DeviceTable::find(DeviceId id) const {
  for (const DeviceRow& row : rows_) {
    if (row.id == id) return &row;
  }
  return nullptr;
}

std::string uuid_text(const DeviceUuid& uuid, bool instance) {
  std::string text = instance ? "MIG-" : "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (has_dash_before(i)) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

std::optional<KnownDevice> parse_uuid(std::string_view text) {
  KnownDevice device;
  device.instance = text.starts_with("MIG-");
  if (!device.instance && !text.starts_with("GPU-")) return std::nullopt;
  text.remove_prefix(4);
  if (text.size() != 36) return std::nullopt;
  for (size_t i = 0, at = 0; i < device.uuid.size(); ++i, at += 2) {
    if (has_dash_before(i) && text[at++] != '-') return std::nullopt;
    const int high = digit(text[at]);
    const int low = digit(text[at + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    device.uuid[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return device;
}

}  // namespace lull::daemon
