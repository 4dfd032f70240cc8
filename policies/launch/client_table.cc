#include "policies/launch/client_table.h"

#include <algorithm>

namespace lull::policies {
namespace {

size_t level_of(const Member& member) {
  return std::min<size_t>(member.priority.level, kLevels - 1);
}

auto pending_at(Member& member, ThreadSlot thread) {
  return std::lower_bound(
      member.pending.begin(), member.pending.end(), thread,
      [](const PendingLaunch& pending, ThreadSlot t) { return pending.thread < t; });
}

void erase_pending(Member& member, ThreadSlot thread) {
  auto pending = pending_at(member, thread);
  if (pending != member.pending.end() && pending->thread == thread) member.pending.erase(pending);
}

template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};

}  // namespace

Member* ClientTable::find(ClientId client) {
  auto at = std::lower_bound(members_.begin(), members_.end(), client,
                             [](const Member& m, ClientId id) { return m.client < id; });
  return at != members_.end() && at->client == client ? &*at : nullptr;
}

void ClientTable::count_levels() {
  levels_ = {};
  for (const Member& member : members_) {
    Level& level = levels_[level_of(member)];
    level.members += 1;
    level.busy += member.has_work() ? 1 : 0;
    level.last_launch = std::max(level.last_launch, member.last_launch);
  }
}

Member* ClientTable::apply(const Event& event) {
  auto change = [this](ClientId client, auto&& update) -> Member* {
    Member* member = find(client);
    if (member == nullptr) return nullptr;
    const bool had_work = member->has_work();
    update(*member);
    Level& level = levels_[level_of(*member)];
    if (had_work && !member->has_work()) level.busy -= 1;
    if (!had_work && member->has_work()) level.busy += 1;
    level.last_launch = std::max(level.last_launch, member->last_launch);
    return member;
  };
  return std::visit(
      Overloaded{
          [&](const Joined& e) -> Member* {
            if (Member* known = find(e.client)) return known;
            auto at = std::lower_bound(members_.begin(), members_.end(), e.client,
                                       [](const Member& m, ClientId id) { return m.client < id; });
            Member member;
            member.client = e.client;
            member.job = e.job;
            member.priority = e.priority;
            member.arrival = e.arrival;
            member.last_launch = e.last_launch;
            member.bound = e.bound;
            member.has_peers = e.has_peers;
            at = members_.insert(at, std::move(member));
            count_levels();
            return &*at;
          },
          [&](const Left& e) -> Member* {
            if (Member* member = find(e.client)) {
              members_.erase(members_.begin() + (member - members_.data()));
              count_levels();
            }
            return nullptr;
          },
          [&](const Reprioritised& e) -> Member* {
            Member* member = find(e.client);
            if (member != nullptr) {
              member->priority = e.priority;
              member->has_peers = e.has_peers;
              count_levels();
            }
            return member;
          },
          [&](const Submitted& e) {
            return change(e.client, [&](Member& member) {
              erase_pending(member, e.thread);
              member.units += 1;
              member.in_flight += e.predicted;
              member.last_launch = std::max(member.last_launch, e.at);
            });
          },
          [&](const Completed& e) {
            return change(e.client, [&](Member& member) {
              member.units -= std::min(member.units, e.units);
              member.in_flight -= std::min(member.in_flight, e.predicted);
              if (member.units == 0) member.in_flight = Duration{};
            });
          },
          [&](const Waiting& e) {
            return change(e.client, [&](Member& member) {
              auto at = pending_at(member, e.thread);
              const PendingLaunch pending{e.thread, e.ticket,   e.kernel, e.predicted,
                                          e.since,  e.expected, e.charged};
              if (at != member.pending.end() && at->thread == e.thread) {
                *at = pending;
              } else {
                member.pending.insert(at, pending);
              }
            });
          },
          [&](const Withdrawn& e) {
            return change(e.client, [&](Member& member) { erase_pending(member, e.thread); });
          },
          [&](const Synced& e) -> Member* { return find(e.client); },
          [](const TimerDue&) -> Member* { return nullptr; },
      },
      event);
}

int ClientTable::top_active(Instant now) const {
  for (int i = 0; i < kLevels; ++i) {
    const Level& level = levels_[static_cast<size_t>(i)];
    if (level.busy > 0 || (level.members > 0 && now - level.last_launch < kActiveFor)) return i;
  }
  return kNoLevel;
}

int ClientTable::top_busy() const {
  for (int i = 0; i < kLevels; ++i) {
    if (levels_[static_cast<size_t>(i)].busy > 0) return i;
  }
  return kNoLevel;
}

Instant ClientTable::next_expiry(Instant now) const {
  Instant next = kNever;
  for (const Level& level : levels_) {
    if (level.members == 0 || level.busy > 0 || now - level.last_launch >= kActiveFor) continue;
    next = std::min(next, level.last_launch + kActiveFor);
  }
  return next;
}

bool ClientTable::has_several_levels() const {
  int seen = 0;
  for (const Level& level : levels_) seen += level.members > 0 ? 1 : 0;
  return seen > 1;
}

void ClientTable::open(Member& member, std::vector<Decision>& out) {
  if (member.told == Member::Told::kOpen) return;
  member.told = Member::Told::kOpen;
  out.push_back(Open{member.client});
}

void ClientTable::close(Member& member, std::vector<Decision>& out) {
  if (member.told == Member::Told::kClosed) return;
  member.told = Member::Told::kClosed;
  out.push_back(Close{member.client});
}

void ClientTable::credit(Member& member, Duration bound, std::vector<Decision>& out,
                         bool any_length) {
  if (member.told == Member::Told::kCredit && member.told_bound == bound &&
      member.told_any_length == any_length) {
    return;
  }
  member.told = Member::Told::kCredit;
  member.told_bound = bound;
  member.told_any_length = any_length;
  out.push_back(Credit{member.client, bound, any_length});
}

}  // namespace lull::policies
