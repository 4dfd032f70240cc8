// The GPUs of the node, by UUID: two programs may both say "device 0" and mean different ones. A
// device is here because the machine has it (machine_devices.h, the simulated device's file) or the
// operator lists it, and what is known of it comes from there: a program that names another runs
// unscheduled. Only where neither says anything is the word of a trusted program taken (root's, or
// of the daemon's own user). Loop thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/channel/daemon_view.h"
#include "policies/vocabulary.h"

namespace lull::daemon {

// Sixteen GPUs in seven instances each, and the GPUs themselves.
inline constexpr size_t kMaxNodeDevices = 128;

using DeviceUuid = std::array<uint8_t, 16>;

struct KnownDevice {
  DeviceUuid uuid{};
  bool instance = false;     // a part of a GPU (MIG), scheduled like one
  std::string name;          // empty: not known
  uint64_t total_bytes = 0;  // 0: not known
  bool operator==(const KnownDevice&) const = default;
};

struct DeviceRow {
  DeviceId id;
  KnownDevice known;
  std::vector<ClientId> users;  // ascending
};

class DeviceTable {
 public:
  // What the machine has, or the operator says: all of it. From the first device on, nobody's word
  // is taken for another. What is gone stays while it is used.
  void learn(std::span<const KnownDevice> devices);
  // Nothing: no such device is known. `trusted`: its word is taken where nothing has been learnt.
  std::optional<DeviceId> add_user(const channel::DeviceEntry& entry, ClientId client,
                                   bool trusted);
  void remove_user(ClientId client);
  void remove_user(ClientId client, DeviceId device);
  const DeviceRow* find(DeviceId id) const;
  const std::vector<DeviceRow>& rows() const { return rows_; }
  // Moves when a device that was unknown may be known.
  uint64_t generation() const { return generation_; }

 private:
  std::vector<DeviceRow>::iterator find(const DeviceUuid& uuid);

  std::vector<DeviceRow> rows_;
  bool learnt_ = false;
  uint32_t next_id_ = 0;
  uint64_t generation_ = 1;
};

// "GPU-8f6c...", "MIG-8f6c...": as NVIDIA's tools print it.
std::string uuid_text(const DeviceUuid& uuid, bool instance = false);
// Nothing for anything else, such as the name of an instance by its parent that old drivers give.
std::optional<KnownDevice> parse_uuid(std::string_view text);

}  // namespace lull::daemon
