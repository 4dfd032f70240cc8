#include "policies/launch/guarded/budget/floor_account.h"

#include <catch2/catch.hpp>

using namespace lull;
using namespace lull::policies;

namespace {

constexpr ClientId kHigh{1}, kLow{2};

// A serial device as the account is told of it; times in us.
struct Told {
  explicit Told(int64_t per_mille = 50) : account(per_mille) {
    for (const ClientId client : {kHigh, kLow}) account.take(Joined{client, JobId{client.value}, {}});
    account.settle({});
  }
  void launch(ClientId client, int64_t at, int64_t expected, bool copy = false) {
    Submitted launch{.client = client, .predicted = {expected * 1000}, .at = Instant{at * 1000}};
    launch.copy = copy;
    account.take(launch);
  }
  void done(ClientId client) { account.take(Completed{.client = client, .units = 1}); }
  int64_t due(int64_t now) {
    account.settle(Instant{now * 1000});
    return account.due(kLow).ns;
  }
  FloorAccount account;
};

}  // namespace

TEST_CASE("a client is due its floor of the time that passes, and a sixteenth more") {
  Told told;
  CHECK(told.due(1'000) == 53'000);
  CHECK(told.due(2'000) == 106'000);
  CHECK(Told(0).due(1'000) == 0);
}

TEST_CASE("it is charged what its work took, however long that was expected to take") {
  Told told;
  told.due(1'000);
  told.launch(kHigh, 1'000, 100);
  told.launch(kLow, 1'000, 60);
  CHECK(told.due(1'000) == 53'000 - 60'000);  // in flight
  told.done(kHigh);
  told.due(1'100);
  told.done(kLow);
  CHECK(told.due(1'120) == 1'120 * 53 - 20'000);
}

TEST_CASE("of what is seen complete at once each is charged its own, the earlier launched first") {
  Told told;
  told.launch(kHigh, 0, 100);
  told.launch(kLow, 0, 60);
  told.done(kLow);  // told in the order of clients, or any
  told.done(kHigh);
  CHECK(told.due(110) == 110 * 53 - 10'000);
  // Where nothing is left for it, still a part.
  told.launch(kHigh, 110, 100);
  told.launch(kLow, 110, 80);
  told.done(kHigh);
  told.done(kLow);
  CHECK(told.due(200) == 200 * 53 - 10'000 - 10'000);
}

TEST_CASE("neither a surplus nor what was not taken is carried far") {
  Told told;
  for (int64_t n = 0; n < 100; ++n) {
    told.launch(kLow, n * 1'000, 1'000);
    told.done(kLow);
    told.due((n + 1) * 1'000);
  }
  CHECK(told.due(100'000) == -10'000'000);
  CHECK(told.due(300'000) > 0);
  CHECK(told.due(100'000'000) == 10'000'000);
  told.launch(kLow, 100'000'000, 50'000);  // a long unit is carried whole
  told.done(kLow);
  CHECK(told.due(100'050'000) == 10'000'000 + 50'000 * 53 - 50'000'000);
}

TEST_CASE("copies are charged as expected, and who has left is forgotten") {
  Told told;
  told.due(1'000);
  told.launch(kLow, 1'000, 30, /*copy=*/true);
  told.done(kLow);
  CHECK(told.due(1'000) == 23'000);
  told.launch(kLow, 1'000, 30);
  told.done(kLow);
  told.account.take(Left{kLow});
  CHECK(told.due(2'000) == 0);
}
