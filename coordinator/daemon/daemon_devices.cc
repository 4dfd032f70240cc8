// Which devices Daemon knows: whom it asks, when it asks again, and what it says of the others.
#include <fmt/format.h>

#include "coordinator/daemon/daemon.h"

namespace lull::daemon {

// All that there are, asked for then. Clients that named others before are told.
void Daemon::learn_devices(const std::vector<KnownDevice>& devices, uint64_t asked_ns) {
  devices_.learn(devices);
  tell_moves_of_devices();
  driver_wanted_ = false;
  for (const auto& [id, session] : sessions_) {
    if (session->gone || session->unknown_devices().empty()) continue;
    session->map_devices(clock_.now(), devices_, inputs_);
    wake(*session);
    tell_unknown_devices(*session, asked_ns);
    driver_wanted_ = driver_wanted_ || session->has_untold_devices();
  }
}

void Daemon::ask_driver() {
  driver_wanted_ = false;
  const uint64_t asked_ns = channel::monotonic_ns();
  driver_.post([this, asked_ns, sources = settings_.machine]() -> Background::Then {
    return [this, asked_ns, devices = machine_devices(sources)] {
      next_driver_ns_ = channel::monotonic_ns() + settings_.ask_driver_again_ns;
      if (asks_driver()) learn_devices(devices, asked_ns);
    };
  });
}

void Daemon::look_at_unknown_devices(Session& session) {
  if (asks_driver()) {
    driver_wanted_ = true;
  } else {
    tell_unknown_devices(session, UINT64_MAX);
  }
}

void Daemon::tell_unknown_devices(Session& session, uint64_t named_before_ns) {
  if (!session.tell_unknown_devices(named_before_ns)) return;
  log_.line(fmt::format("client {} (pid {}, task {}) runs unscheduled on {}: {}",
                        session.id().value, session.who().peer.pid, session.who().task,
                        uuid_text(session.unknown_devices()[0].uuid), why_unknown()));
}

std::string Daemon::why_unknown() const {
  if (settings_.simulated) return "no device of " + clock_.device_file();
  if (!settings_.config.devices.empty()) return "not among the devices of lulld's configuration";
  return "this machine's driver names no such device: name it in devices of lulld's configuration";
}

}  // namespace lull::daemon
