#include "policies/launch/exclusive.h"

#include "policies/launch/client_table.h"

namespace lull::policies {
namespace {

class Exclusive final : public LaunchPolicy {
 public:
  void step(Instant, std::span<const Event> events, std::vector<Decision>& out) override {
    bool changed = false;
    for (const Event& event : events) {
      table_.apply(event);
      changed |= std::holds_alternative<Joined>(event) || std::holds_alternative<Left>(event);
    }
    if (!changed) return;
    const Member* first = nullptr;
    for (const Member& member : table_.members()) {
      if (first == nullptr || member.arrival < first->arrival) first = &member;
    }
    for (Member& member : table_.members()) {
      if (member.job == first->job) {
        ClientTable::open(member, out);
      } else {
        ClientTable::close(member, out);
      }
    }
  }

 private:
  ClientTable table_;
};

}  // namespace

std::unique_ptr<LaunchPolicy> make_exclusive(const SettingValues&) {
  return std::make_unique<Exclusive>();
}

}  // namespace lull::policies
