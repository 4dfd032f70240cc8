#include "coordinator/daemon/device_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace lull::daemon {

std::optional<DeviceId> DeviceTable::add_user(const channel::DeviceEntry& entry, ClientId client) {
  auto row = std::find_if(rows_.begin(), rows_.end(),
                          [&](const DeviceRow& r) { return r.uuid == entry.uuid; });
  if (row == rows_.end()) {
    if (rows_.size() >= kMaxNodeDevices) {
      const auto unused = std::find_if(rows_.begin(), rows_.end(),
                                       [](const DeviceRow& r) { return r.users.empty(); });
      if (unused == rows_.end()) return std::nullopt;
      rows_.erase(unused);
    }
    row = rows_.insert(rows_.end(), DeviceRow{.id = {next_id_++},
                                              .uuid = entry.uuid,
                                              .name = entry.name,
                                              .total_bytes = entry.total_bytes});
  }
  const auto at = std::lower_bound(row->users.begin(), row->users.end(), client);
  if (at == row->users.end() || *at != client) row->users.insert(at, client);
  return row->id;
}

void DeviceTable::remove_user(ClientId client) {
  for (DeviceRow& row : rows_) std::erase(row.users, client);
}

const DeviceRow* DeviceTable::find(DeviceId id) const {
  for (const DeviceRow& row : rows_) {
    if (row.id == id) return &row;
  }
  return nullptr;
}

std::string uuid_text(const std::array<uint8_t, 16>& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

}  // namespace lull::daemon
