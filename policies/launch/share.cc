#include "policies/launch/share.h"

namespace lull::policies {
namespace {

class Share final : public LaunchPolicy {
 public:
  // Gates are open when a client joins, and when a policy takes over.
  void step(Instant, std::span<const Event>, std::vector<Decision>&) override {}
};

}  // namespace

std::unique_ptr<LaunchPolicy> make_share(const SettingValues&) { return std::make_unique<Share>(); }

}  // namespace lull::policies
