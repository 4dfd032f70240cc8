// How an iteration goes when nobody is in its way.
#include "policies/launch/guarded/model/iteration_model.h"

#include <catch2/catch.hpp>

using namespace lull;
using namespace lull::policies;

// 700 launches at once, then 100 of a slow host: the device is through with the first ones long before.
TEST_CASE("Launches need not be done early where the driver's queue has held as many") {
  constexpr uint32_t kLaunches = 800, kAtOnce = 700;
  constexpr Duration kWork{10'000};
  IterationModel model;
  model.restart(kLaunches);
  Instant now{0};
  for (int iteration = 0; iteration < 4; ++iteration) {
    model.begin();
    for (uint32_t n = 0; n < kLaunches; ++n) {
      now = now + Duration{n < kAtOnce ? 1'000 : 100'000};
      model.launched(n, now, Duration{}, /*ahead=*/n < kAtOnce ? n : 0);
      model.worked(model.spot(n), kWork, /*seen=*/true);
    }
    now = now + Duration{1'000'000};
    model.waited(now, Duration{}, /*plain=*/true);
  }
  model.begin();
  CHECK(model.work(model.spot(150)) == Duration{650 * kWork.ns});
}
