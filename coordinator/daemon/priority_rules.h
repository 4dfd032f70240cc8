// Who may ask for which priority: the operator's rules by user and group, first match wins.
// Pure; the daemon asks it at each hello and each `priority` or `may` request.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::daemon {

// The process at the other end of a socket (SO_PEERCRED, SO_PEERGROUPS).
struct Peer {
  pid_t pid = 0;  // as this process's pid namespace has it; 0: it has none there
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
  bool in_group(gid_t group) const;
};

// Exactly one of uid, gid, any.
struct PeerMatch {
  std::optional<uid_t> uid;
  std::optional<gid_t> gid;
  bool any = false;
  bool matches(const Peer& peer) const;
};

struct PriorityRule {
  PeerMatch who;
  Priority highest;
  Priority normal;  // for who asks for none
};

struct PriorityVerdict {
  Priority granted;
  bool clamped = false;
  Priority highest;  // that this peer may ask for
};

class PriorityRules {
 public:
  // The rules that hold without a configuration: root and `own` may use every level, everybody
  // else normal and below.
  static PriorityRules built_in(uid_t own);
  explicit PriorityRules(std::vector<PriorityRule> rules) : rules_(std::move(rules)) {}

  // `asked` none: the rule's default level.
  PriorityVerdict judge(const Peer& peer, std::optional<Priority> asked) const;

 private:
  std::vector<PriorityRule> rules_;
};

// "high" or "2" -> 2; nothing for anything else.
std::optional<Priority> parse_priority(std::string_view text);
// "high", "level 3".
std::string priority_name(Priority priority);
// "high, normal, low, idle (2 to 9)": what somebody whose highest level is `highest` may use.
std::string allowed_levels(Priority highest);
inline constexpr std::string_view kLevelsExpected = "0 to 9 or realtime, high, normal, low, idle";

}  // namespace lull::daemon
