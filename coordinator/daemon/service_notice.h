// What the service manager is told: one datagram to $NOTIFY_SOCKET (sd_notify(3)'s protocol), by
// hand, so that nothing of systemd is linked. Does nothing outside a service. Loop thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace lull::daemon {

// "READY=1", "STOPPING=1", "WATCHDOG=1", "STATUS=...".
void notify_service(std::string_view state);

// How often the service manager wants WATCHDOG=1, halved; 0: never.
uint64_t watchdog_interval_ns();

}  // namespace lull::daemon
