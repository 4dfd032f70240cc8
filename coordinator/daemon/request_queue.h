// Whose request is answered next. Users take turns, whatever each of them asks: one user's thousand
// requests wait behind each other and delay another's by one. A user whose replies lie unread, or
// whose last request is still being worked on, waits until that has changed. Pure; loop thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>

namespace lull::daemon {

class RequestQueue {
 public:
  using MayAsk = std::function<bool(uid_t)>;

  void push(uid_t user, uint32_t request) { waiting_[user].push_back(request); }
  bool empty() const { return waiting_.empty(); }

  // The oldest request of the next user, in a circle, of those that may ask now.
  std::optional<uint32_t> pop(const MayAsk& may_ask) {
    const auto found = next(may_ask);
    if (found == waiting_.end()) return std::nullopt;
    const uint32_t request = found->second.front();
    last_ = found->first;
    found->second.pop_front();
    if (found->second.empty()) waiting_.erase(found);
    return request;
  }
  bool can_pop(const MayAsk& may_ask) { return next(may_ask) != waiting_.end(); }

 private:
  using Users = std::map<uid_t, std::deque<uint32_t>>;

  Users::iterator next(const MayAsk& may_ask) {
    auto at = waiting_.upper_bound(last_);
    for (size_t n = 0; n < waiting_.size(); ++n, ++at) {
      if (at == waiting_.end()) at = waiting_.begin();
      if (may_ask(at->first)) return at;
    }
    return waiting_.end();
  }

  Users waiting_;
  uid_t last_ = 0;  // whose request was answered last
};

}  // namespace lull::daemon
