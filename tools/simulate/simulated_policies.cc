#include "tools/simulate/simulated_policies.h"

#include <algorithm>
#include <vector>

#include "policies/launch/guarded/guarded.h"
#include "policies/launch/guarded/request_guard.h"

namespace lull::simulate {

std::span<const policies::PolicyRow> simulated_policies() {
  static const std::vector<policies::PolicyRow> rows = [] {
    const auto daemons = policies::policy_rows();
    std::vector<policies::PolicyRow> all(daemons.begin(), daemons.end());
    policies::PolicyRow without =
        *std::ranges::find(daemons, "guarded", &policies::PolicyRow::name);
    without.name = "guarded_without";
    *std::ranges::find(without.settings, "", &policies::Setting::key) = {policies::kPartsKey, 0, 0, policies::kAllParts};
    all.push_back(without);
    return all;
  }();
  return rows;
}

}  // namespace lull::simulate
