// The GPUs of the node as clients have shown them, by UUID: two programs may both say "device 0"
// and mean different ones. A row is given up when the table is full and no client uses it. Loop
// thread; holds no device state beyond what a client said about it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/channel/daemon_view.h"
#include "policies/vocabulary.h"

namespace lull::daemon {

inline constexpr size_t kMaxNodeDevices = 64;

struct DeviceRow {
  DeviceId id;
  std::array<uint8_t, 16> uuid{};
  std::string name;
  uint64_t total_bytes = 0;
  std::vector<ClientId> users;  // ascending
};

class DeviceTable {
 public:
  // Nothing when the table is full of devices in use.
  std::optional<DeviceId> add_user(const channel::DeviceEntry& entry, ClientId client);
  void remove_user(ClientId client);
  const DeviceRow* find(DeviceId id) const;
  const std::vector<DeviceRow>& rows() const { return rows_; }

 private:
  std::vector<DeviceRow> rows_;
  uint32_t next_id_ = 0;
};

// "GPU-8f6c...": as NVIDIA's tools print it.
std::string uuid_text(const std::array<uint8_t, 16>& uuid);

}  // namespace lull::daemon
