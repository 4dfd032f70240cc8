// Whether one more program of a user may attach. A user has a limit of its own, root and the
// daemon's own user too: whoever fills it, programs of others still find a place. Pure; loop
// thread.
#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace lull::daemon {

// Clients at once, of all users together and of each.
struct Places {
  uint32_t all = 0;
  uint32_t of_user = 0;
};

// A socket and a pidfd.
inline constexpr uint64_t kDescriptorsAClient = 2;
// Beside clients': connections of tools (kMaxToolConnections), and what lulld itself opens.
inline constexpr uint64_t kDescriptorsKept = 256 + 64;

// What is left of these places where a process may have so many descriptors open: both in
// proportion, one at least.
inline Places places_for(Places wanted, uint64_t descriptors) {
  const uint64_t free = descriptors - std::min(descriptors, kDescriptorsKept);
  const uint64_t fit = std::max<uint64_t>(1, free / kDescriptorsAClient);
  if (fit >= wanted.all) return wanted;
  const uint64_t of_user = std::max<uint64_t>(1, fit * wanted.of_user / wanted.all);
  return {static_cast<uint32_t>(fit), static_cast<uint32_t>(of_user)};
}

class ClientQuota {
 public:
  void attached(uid_t user) {
    ++clients_[user];
    ++total_;
  }
  // Of a user that `attached` was said of, once for each time.
  void left(uid_t user) {
    const auto entry = clients_.find(user);
    if (--entry->second == 0) clients_.erase(entry);
    --total_;
  }
  uint32_t clients_of(uid_t user) const {
    const auto entry = clients_.find(user);
    return entry == clients_.end() ? 0 : entry->second;
  }

  // Why this user may have no more clients; nothing: it may.
  std::optional<std::string> objection(uid_t user, Places places) const {
    if (total_ >= places.all) {
      return fmt::format("lulld serves {} clients already: raise max_clients in its configuration",
                         total_);
    }
    if (clients_of(user) >= places.of_user) {
      return fmt::format(
          "lulld serves {} clients of uid {} already: end some, or raise max_clients_per_user in "
          "its configuration",
          clients_of(user), user);
    }
    return std::nullopt;
  }

 private:
  std::map<uid_t, uint32_t> clients_;
  uint32_t total_ = 0;
};

}  // namespace lull::daemon
