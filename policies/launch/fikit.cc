#include "policies/launch/fikit.h"

#include <algorithm>
#include <optional>

#include "policies/launch/client_table.h"

namespace lull::policies {
namespace {

class Fikit final : public LaunchPolicy {
 public:
  Fikit(Duration epsilon, Duration switch_cost) : epsilon_(epsilon), switch_cost_(switch_cost) {}

  void step(Instant now, std::span<const Event> events, std::vector<Decision>& out) override {
    bool changed = false;
    for (const Event& event : events) {
      Member* member = table_.apply(event);
      if (const auto* submitted = std::get_if<Submitted>(&event)) {
        if (member != nullptr && member->priority.level <= table_.top_active(now)) {
          begin_gap(*submitted, *member);
        }
      } else if (std::holds_alternative<Completed>(event)) {
        if (member != nullptr && gap_ && gap_->owner == member->client) move_gap(*member, now);
      } else if (std::holds_alternative<TimerDue>(event)) {
        wake_ = kNever;
      } else if (!std::holds_alternative<Waiting>(event) &&
                 !std::holds_alternative<Withdrawn>(event) &&
                 !std::holds_alternative<Synced>(event)) {
        changed = true;
      }
    }
    const int active = table_.top_active(now);
    if (gap_ && !owner_is_highest(active)) gap_.reset();
    if (changed || active != active_) {
      active_ = active;
      publish(out);
    }
    fill(now, out);
    if (wake_ == kNever && table_.has_several_levels()) {
      wake_ = table_.next_expiry(now);
      if (wake_ != kNever) out.push_back(WakeAt{wake_});
    }
  }

 private:
  struct Gap {
    ClientId owner;
    Instant begin;  // the high kernel's end
    Instant end;
    Instant free;   // when the device is through with the fillers so far
  };

  void begin_gap(const Submitted& launch, const Member& member) {
    const bool queued = gap_ && gap_->owner == launch.client && member.units > 1;
    const Instant start = queued ? std::max(launch.at, gap_->begin) : launch.at;
    const Instant begin = start + launch.predicted;
    // If the pause is not known, the gap is empty: it only says when the kernel ends.
    const Duration pause{std::max<int64_t>(0, launch.gap.ns)};
    gap_ = Gap{launch.client, begin, begin + pause, begin};
  }

  void move_gap(const Member& owner, Instant now) {
    const Instant begin = owner.units == 0 ? now : now + owner.in_flight;
    const Duration shift = begin - gap_->begin;
    gap_->begin = begin;
    gap_->end = gap_->end + shift;
    gap_->free = gap_->free + shift;
  }

  bool owner_is_highest(int active) {
    const Member* owner = table_.find(gap_->owner);
    return owner != nullptr && owner->priority.level <= active;
  }

  void publish(std::vector<Decision>& out) {
    for (Member& member : table_.members()) {
      if (member.priority.level <= active_) {
        ClientTable::open(member, out);
      } else {
        ClientTable::close(member, out);
      }
    }
  }

  void fill(Instant now, std::vector<Decision>& out) {
    if (!gap_) return;
    for (const Member& member : table_.members()) {
      if (member.priority.level <= active_ && member.client != gap_->owner && member.units > 0) {
        return;
      }
    }
    for (;;) {
      const Instant start = std::max(now, gap_->free);
      const Duration budget = gap_->end - start;
      if (budget <= epsilon_) return;
      auto [member, pending] = best_fit(budget);
      if (pending == nullptr) return;
      pending->released = true;
      out.push_back(ReleaseLaunch{member->client, pending->thread, pending->ticket});
      gap_->free = start + pending->predicted + switch_cost_;
    }
  }

  // BestPrioFit: the longest launch that fits, of the highest level that has one.
  std::pair<Member*, PendingLaunch*> best_fit(Duration budget) {
    Member* best_member = nullptr;
    PendingLaunch* best = nullptr;
    for (Member& member : table_.members()) {
      if (member.priority.level <= active_) continue;
      for (PendingLaunch& pending : member.pending) {
        if (pending.released || pending.predicted + switch_cost_ > budget) continue;
        const bool better =
            best == nullptr || member.priority < best_member->priority ||
            (member.priority == best_member->priority && pending.predicted > best->predicted);
        if (better) {
          best_member = &member;
          best = &pending;
        }
      }
    }
    return {best_member, best};
  }

  const Duration epsilon_;
  const Duration switch_cost_;
  ClientTable table_;
  std::optional<Gap> gap_;
  int active_ = kNoLevel;
  Instant wake_ = kNever;
};

}  // namespace

std::unique_ptr<LaunchPolicy> make_fikit(const SettingValues& values) {
  return std::make_unique<Fikit>(Duration{values["epsilon_us"] * 1000},
                                 Duration{values["switch_cost_us"] * 1000});
}

}  // namespace lull::policies
