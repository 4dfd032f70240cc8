#include "policies/launch/priority.h"

#include <algorithm>

#include "policies/launch/client_table.h"

namespace lull::policies {
namespace {

class PriorityPolicy final : public LaunchPolicy {
 public:
  explicit PriorityPolicy(Duration in_flight) : in_flight_(in_flight) {}

  void step(Instant now, std::span<const Event> events, std::vector<Decision>& out) override {
    bool changed = false;
    for (const Event& event : events) {
      if (const auto* submitted = std::get_if<Submitted>(&event)) {
        changed |= wakes_up(submitted->client, now);
      } else if (const auto* waiting = std::get_if<Waiting>(&event)) {
        changed |= wakes_up(waiting->client, now);
      } else if (!std::holds_alternative<Completed>(event) &&
                 !std::holds_alternative<Synced>(event)) {
        changed = true;
      }
      if (std::holds_alternative<TimerDue>(event)) wake_ = kNever;
      table_.apply(event);
    }
    const int active = table_.top_active(now);
    const int busy = table_.top_busy();
    if (changed || active != active_ || busy != busy_) {
      active_ = active;
      busy_ = busy;
      publish(now, out);
    }
    set_timer(now, out);
  }

 private:
  // Whether the client is not active yet, and is about to be.
  bool wakes_up(ClientId client, Instant now) {
    const Member* member = table_.find(client);
    return member != nullptr && !member->is_active(now);
  }

  void publish(Instant now, std::vector<Decision>& out) {
    int64_t sharers = 0;
    for (const Member& member : table_.members()) {
      if (member.priority.level > active_ && member.is_active(now)) sharers += 1;
    }
    const Duration part{std::max<int64_t>(1, in_flight_.ns / std::max<int64_t>(1, sharers))};
    for (Member& member : table_.members()) {
      if (member.priority.level <= active_) {
        ClientTable::open(member, out);
      } else if (member.priority.level > busy_) {
        ClientTable::close(member, out);
      } else {
        ClientTable::credit(member, part, out);
      }
    }
  }

  // Looks again only when time alone can change something. A launch in between makes the look too
  // early, which is harmless.
  void set_timer(Instant now, std::vector<Decision>& out) {
    if (wake_ != kNever || !table_.has_several_levels()) return;
    wake_ = table_.next_expiry(now);
    if (wake_ != kNever) out.push_back(WakeAt{wake_});
  }

  const Duration in_flight_;
  ClientTable table_;
  int active_ = kNoLevel;
  int busy_ = kNoLevel;
  Instant wake_ = kNever;
};

}  // namespace

std::unique_ptr<LaunchPolicy> make_priority(const SettingValues& values) {
  return std::make_unique<PriorityPolicy>(Duration{values["in_flight_us"] * 1000});
}

}  // namespace lull::policies
