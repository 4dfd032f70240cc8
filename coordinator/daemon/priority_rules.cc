#include "coordinator/daemon/priority_rules.h"

#include <fmt/format.h>

#include <algorithm>

namespace lull::daemon {
namespace {

struct NamedLevel {
  std::string_view name;
  uint8_t level;
};
constexpr NamedLevel kNamedLevels[] = {
    {"realtime", 0}, {"high", 2}, {"normal", 5}, {"low", 7}, {"idle", 9}};

}  // namespace

bool Peer::in_group(gid_t group) const {
  return gid == group || std::find(groups.begin(), groups.end(), group) != groups.end();
}

bool PeerMatch::matches(const Peer& peer) const {
  return any || (uid && *uid == peer.uid) || (gid && peer.in_group(*gid));
}

PriorityRules PriorityRules::built_in(uid_t own) {
  std::vector<PriorityRule> rules;
  rules.push_back({.who = {.uid = 0}, .highest = {0}, .normal = {5}});
  rules.push_back({.who = {.uid = own}, .highest = {0}, .normal = {5}});
  rules.push_back({.who = {.any = true}, .highest = {5}, .normal = {5}});
  return PriorityRules(std::move(rules));
}

PriorityVerdict PriorityRules::judge(const Peer& peer, std::optional<Priority> asked) const {
  PriorityRule rule{.who = {.any = true}, .highest = {5}, .normal = {5}};
  for (const PriorityRule& candidate : rules_) {
    if (!candidate.who.matches(peer)) continue;
    rule = candidate;
    break;
  }
  PriorityVerdict verdict{.granted = asked.value_or(rule.normal), .highest = rule.highest};
  if (verdict.granted < rule.highest) {
    verdict.granted = rule.highest;
    verdict.clamped = true;
  }
  return verdict;
}

std::optional<Priority> parse_priority(std::string_view text) {
  for (const NamedLevel& named : kNamedLevels) {
    if (named.name == text) return Priority{named.level};
  }
  if (text.size() == 1 && text[0] >= '0' && text[0] <= '9') {
    return Priority{static_cast<uint8_t>(text[0] - '0')};
  }
  return std::nullopt;
}

std::string priority_name(Priority priority) {
  for (const NamedLevel& named : kNamedLevels) {
    if (named.level == priority.level) return std::string(named.name);
  }
  return fmt::format("level {}", priority.level);
}

std::string allowed_levels(Priority highest) {
  std::string names;
  for (const NamedLevel& named : kNamedLevels) {
    if (named.level < highest.level) continue;
    if (!names.empty()) names += ", ";
    names += named.name;
  }
  return fmt::format("{} ({} to 9)", names, highest.level);
}

}  // namespace lull::daemon
