// Whether one more program of a user may attach. A user has a limit of its own, root and the
// daemon's own user too: whoever fills it, programs of others still find a place. Pure; loop
// thread.
#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace lull::daemon {

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

  // Why this user may have no more clients, of `most` of all users together and `most_of_user` of
  // each; nothing: it may.
  std::optional<std::string> objection(uid_t user, uint32_t most, uint32_t most_of_user) const {
    if (total_ >= most) {
      return fmt::format("lulld serves {} clients already: raise max_clients in its configuration",
                         total_);
    }
    if (clients_of(user) >= most_of_user) {
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
