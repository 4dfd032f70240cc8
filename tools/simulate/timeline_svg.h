// A picture of an experiment: of each policy what ran on the device when, the important program's
// requests above it. An SVG that needs nothing else, for light and dark; the same result gives the
// same bytes. Called by `lull simulate --picture`. Pure.
#pragma once

#include <string>

#include "tools/simulate/experiment.h"

namespace lull::simulate {

// `result` of a plan with a timeline, on a serial device.
std::string timeline_svg(const ExperimentPlan& plan, const ExperimentResult& result);

}  // namespace lull::simulate
