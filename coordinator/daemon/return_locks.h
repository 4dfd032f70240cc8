// One file a GPU beside the daemon's socket: clients whose coordinator has gone take it (flock)
// while they bring their memory back, one at a time on a GPU (coordinator/channel/residence.h). The
// daemon makes them and never takes them; they stay when it ends. Loop thread.
//
// Readable by all: a client opens it for reading only, which flock allows. The listener refuses a
// directory that others may write, so nobody else puts one there; a symbolic link is not followed
// all the same.
#pragma once

#include <expected>
#include <string>

#include "coordinator/daemon/device_table.h"

namespace lull::daemon {

// "…/return-GPU-01234567-….lock"
std::string return_lock_path(const std::string& socket_path, const DeviceUuid& uuid);

// Makes it where it is not there. An error is one line.
std::expected<void, std::string> make_return_lock(const std::string& path);

}  // namespace lull::daemon
