#include "policies/launch/guarded/client_activity.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace lull::policies {
namespace {

void insert(std::vector<uint32_t>& sorted, uint32_t index) {
  sorted.insert(std::ranges::lower_bound(sorted, index), index);
}

}  // namespace

bool ClientActivity::changes_who_is_there(const Event& event) {
  return std::holds_alternative<Joined>(event) || std::holds_alternative<Left>(event) ||
         std::holds_alternative<Reprioritised>(event);
}

std::optional<uint32_t> ClientActivity::apply(const Event& event, Instant now) {
  const bool changes = changes_who_is_there(event);
  if (changes) rouse_all(now);
  const size_t before = table_.members().size();
  std::optional<uint32_t> leaving;
  if (const auto* left = std::get_if<Left>(&event)) {
    if (Member* member = table_.find(left->client)) {
      leaving = static_cast<uint32_t>(member - table_.members().data());
    }
  }
  const Member* member = table_.apply(event);
  if (leaving) members_.erase(members_.begin() + *leaving);
  const auto index =
      member == nullptr ? 0 : static_cast<uint32_t>(member - table_.members().data());
  if (table_.members().size() > before) members_.emplace(members_.begin() + index);
  if (changes) count_present();
  if (member == nullptr) return std::nullopt;
  rouse(index, now);
  members_[index].waited = true;
  return index;
}

void ClientActivity::count_present() {
  awake_.resize(members_.size());
  std::iota(awake_.begin(), awake_.end(), 0U);
  highest_ = Priority{kNoLevel};
  kernels_ = {};
  for (uint32_t index = 0; index < members_.size(); ++index) {
    highest_ = std::min(highest_, member(index).priority);
    kernels_[member(index).priority.level] += members_[index].kernels;
  }
}

void ClientActivity::rouse_all(Instant now) {
  groups_.clear();
  for (uint32_t index = 0; index < members_.size(); ++index) rouse(index, now);
}

void ClientActivity::rouse(uint32_t index, Instant now) {
  ClientState& one = members_[index];
  if (one.awake) return;
  one.awake = true;
  insert(awake_, index);
  const Priority priority = member(index).priority;
  resting_[priority.level] -= 1;
  for (RestingGroup& group : groups_) {
    const auto at = std::ranges::lower_bound(group.members, index);
    if (at == group.members.end() || *at != index) continue;
    group.members.erase(at);
    break;
  }
  std::erase_if(groups_, [](const RestingGroup& group) { return group.members.empty(); });
  if (!one.guard) return;
  if (std::erase(versed_, index) == 0) unversed_[priority.level] -= 1;
  one.guard->catch_up(lower_work_.since(priority, one.told), priority, lower_kernels(priority),
                      now);
}

bool ClientActivity::may_rest(uint32_t index, Instant now) const {
  const ClientState& one = members_[index];
  return one.kernels == 0 && !member(index).is_active(now) &&
         (!one.guard || one.guard->may_rest(now));
}

void ClientActivity::rest(uint32_t index, int64_t usual_ns) {
  ClientState& one = members_[index];
  one.awake = false;
  const Priority priority = member(index).priority;
  resting_[priority.level] += 1;
  if (one.guard) {
    one.told = lower_work_.mark(priority);
    if (one.guard->knows_costs()) {
      insert(versed_, index);
    } else {
      unversed_[priority.level] += 1;
    }
  }
  if (!has_higher(priority)) return;
  const auto beyond =
      static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(one.beyond_charge_ns)));
  auto group = std::ranges::find_if(groups_, [&](const RestingGroup& g) {
    return g.priority == priority && g.reaction_ns == one.reaction_ns && g.usual_ns == usual_ns &&
           g.beyond_charge_ns == beyond;
  });
  if (group == groups_.end()) {
    groups_.push_back({.priority = priority,
                       .reaction_ns = one.reaction_ns,
                       .usual_ns = usual_ns,
                       .beyond_charge_ns = beyond});
    group = groups_.end() - 1;
  }
  insert(group->members, index);
  group->told.reset();
}

bool ClientActivity::rests_above(Priority than) const {
  return std::any_of(resting_.begin(), resting_.begin() + than.level,
                     [](uint32_t n) { return n > 0; });
}

Duration ClientActivity::cost_resting(Priority than, KernelId kernel, Duration predicted) const {
  // Without experience a unit costs what it is long, which is the most.
  if (std::any_of(unversed_.begin(), unversed_.begin() + than.level,
                  [](uint32_t n) { return n > 0; })) {
    return predicted;
  }
  Duration most;
  for (const uint32_t index : versed_) {
    if (member(index).priority >= than) continue;
    most = std::max(most, members_[index].guard->cost(kernel, predicted));
  }
  return most;
}

uint32_t ClientActivity::kernels_of(ClientId client) {
  const Member* member = table_.find(client);
  return member == nullptr
             ? 0
             : members_[static_cast<size_t>(member - table_.members().data())].kernels;
}

uint32_t ClientActivity::lower_kernels(Priority than) const {
  return std::accumulate(kernels_.begin() + than.level + 1, kernels_.end(), 0U);
}

void ClientActivity::count_kernels(uint32_t index, uint32_t came, uint32_t ended) {
  ClientState& one = members_[index];
  uint32_t& all = kernels_[member(index).priority.level];
  all -= one.kernels;
  one.kernels += came;
  one.kernels -= std::min(ended, one.kernels);
  all += one.kernels;
}

}  // namespace lull::policies
