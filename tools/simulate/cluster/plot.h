// A run as one HTML page that needs nothing else: of each policy how many jobs run and wait over time,
// how busy the GPUs are, and who had which GPU (the first kMostRows of them). Pure.
#pragma once

#include <span>
#include <string>

#include "tools/simulate/cluster/report.h"

namespace lull::simulate::cluster {

std::string runs_html(std::span<const Run> runs);

}  // namespace lull::simulate::cluster
