// What it costs a client that others have had the device.
#include "policies/launch/guarded/observe/switch_cost.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace lull;
using namespace lull::policies;

namespace {

constexpr int kEnough = 5;  // behind others

// A client's stretches on a device that takes so long to change hands, and for everything that no
// kernel's length shows.
class Client {
 public:
  explicit Client(int64_t switch_us = 0, int64_t launch_us = 8)
      : switch_us_(switch_us), launch_us_(launch_us) {}

  // By itself, as many as that.
  void serve(int count, int64_t work_us = 40) {
    for (int n = 0; n < count; ++n) {
      begin();
      end(work_us, 0);
    }
  }
  // Others have had the device until `ahead_us` after its launch: before that where it is negative.
  void serve_behind(int count, int64_t work_us = 40, int64_t ahead_us = -20) {
    for (int n = 0; n < count; ++n) {
      now_us_ += 100;
      cost.others_came();
      if (ahead_us <= 0) {
        now_us_ += 50;
        cost.others_ended(1, 0, at());
        now_us_ -= ahead_us;
        begin();
      } else {
        begin();
        now_us_ += ahead_us;
        cost.others_ended(1, 0, at());
      }
      end(work_us, switch_us_);
    }
  }
  void begin() {
    now_us_ += 100;
    can_run_us_ = now_us_ + copy_us;
    cost.own_begins(at(), Instant{can_run_us_ * 1000});
  }
  void end(int64_t work_us, int64_t more_us) {
    now_us_ = std::max(now_us_ + more_us, can_run_us_) + launch_us_ + work_us;
    cost.own_done(Duration{work_us * 1000}, Instant{(can_run_us_ + pauses_us) * 1000}, reported, at());
  }
  // Behind others that are through already; before its work begins it takes so long.
  void begin_behind_and_take(int64_t more_us) {
    cost.others_came();
    cost.others_ended(1, 0, at());
    begin();
    end(40, more_us);
  }
  // Work that is foretold to take so long, and takes longer by so much; negative: less long.
  void serve_longer(int64_t by_us, int64_t work_us, bool behind) {
    if (behind) {
      cost.others_came();
      cost.others_ended(1, 0, at());
    }
    begin();
    now_us_ += work_us + by_us;
    cost.own_done(Duration{work_us * 1000}, Instant{can_run_us_ * 1000}, reported, at());
  }
  Instant at() const { return Instant{now_us_ * 1000}; }
  int64_t cost_us() const { return cost.cost().ns / 1000; }

  SwitchCost cost;
  bool reported = true;
  int64_t pauses_us = 0;  // of its host, between the launches that are seen to be through together
  int64_t copy_us = 0;  // its work waits for a copy of its own, which takes so long

 private:
  const int64_t switch_us_, launch_us_;
  int64_t can_run_us_ = 0;
  int64_t now_us_ = 1'000;
};

}  // namespace

TEST_CASE("What a switch costs is known after five stretches behind others") {
  Client client(/*switch_us=*/130);
  client.serve_behind(kEnough - 1);
  CHECK_FALSE(client.cost.known());
  CHECK(client.cost_us() == 0);
  client.serve_behind(1);
  CHECK(client.cost.known());
  CHECK(client.cost_us() == 138);  // with what a launch takes, until that is known
  client.serve(1);
  CHECK(client.cost_us() == 130);
}

// Waiting for its host, or for its other streams: that says nothing of a launch.
TEST_CASE("Behind own work, the least that it took counts") {
  Client client(/*switch_us=*/130);
  client.serve(4);
  for (int n = 0; n < 8; ++n) {
    client.begin();
    client.end(/*work_us=*/40, /*more_us=*/200 + n);
  }
  client.serve_behind(kEnough);
  CHECK(client.cost_us() == 130);
}

// What is off alike behind own work and behind others' is no part of it.
TEST_CASE("A switch costs the same where the length of work is always told too long") {
  for (const int64_t launch_us : {-100, 8, 90}) {
    Client client(/*switch_us=*/130, launch_us);
    client.serve(kEnough, /*work_us=*/400);
    client.serve_behind(kEnough, /*work_us=*/400);
    CAPTURE(launch_us);
    CHECK(client.cost_us() == 130);
  }
}

// A third client has the device at times.
TEST_CASE("What comes late as often behind own work as behind that of others is no switch") {
  Client client;
  for (int n = 0; n < 12; ++n) {
    for (const bool behind_others : {false, true}) {
      if (behind_others) client.cost.others_came();
      if (behind_others) client.cost.others_ended(1, 0, client.at());
      client.begin();
      client.end(/*work_us=*/40, /*more_us=*/n % 3 == 0 ? 0 : 200);
    }
  }
  CHECK(client.cost.known());
  CHECK(client.cost_us() == 0);
}

TEST_CASE(
    "A switch costs the same whether others were through long before the launch or after it") {
  for (const int64_t ahead_us : {-5'000, -20, 0, 20, 5'000}) {
    INFO("others end " << ahead_us << " us after the launch");
    Client client(/*switch_us=*/130);
    client.serve(kEnough);
    client.serve_behind(kEnough, /*work_us=*/40, ahead_us);
    CHECK(client.cost_us() == 130);
  }
}

TEST_CASE("Lengths that are foretold wrong are no switch") {
  Client client;
  for (int n = 0; n < 15; ++n) {
    client.serve_longer(-180, 260, /*behind=*/false);  // another kernel
    if (n < 5) client.serve_longer(4, 150, /*behind=*/false);
    client.serve_longer(4, 140, /*behind=*/true);
  }
  CHECK(client.cost.known());
  CHECK(client.cost_us() == 0);
}

TEST_CASE("Lengths that are told too long, behind others less so, are no switch") {
  for (const int64_t too_long_us : {80, 300}) {
    Client client;
    for (int n = 0; n < 15; ++n) {
      client.serve_longer(-too_long_us - n, 600, /*behind=*/false);
      client.serve_longer(-too_long_us / 4 + n, 600, /*behind=*/true);
    }
    CHECK(client.cost.known());
    CHECK(client.cost_us() == 0);
  }
}

// Of kernels that vary by half, the fifteen behind others may well be those that were foretold better.
TEST_CASE("Lengths that vary are no switch, and hide none that takes longer than they vary") {
  for (const int64_t switch_us : {0, 130}) {
    Client client;
    for (int n = 0; n < 15; ++n) {
      client.serve_longer(-70 + 6 * n, 110, /*behind=*/false);
      client.serve_longer(-22 + n + switch_us, 110, /*behind=*/true);
    }
    CHECK(client.cost.known());
    if (switch_us == 0)
      CHECK(client.cost_us() == 0);
    else
      CHECK(client.cost_us() >= switch_us);
  }
}

TEST_CASE("One length that is foretold too long makes a switch no longer") {
  Client client(/*switch_us=*/130);
  client.serve_longer(-280, 40, /*behind=*/false);
  client.serve(14);
  client.serve_behind(15);
  CHECK(client.cost_us() == 150);  // 20 us: how precisely the least is told
}

TEST_CASE("One quick time behind others hides no switch") {
  Client client(/*switch_us=*/700);
  client.serve(15);
  client.serve_behind(14);
  CHECK(client.cost_us() == 700);
  client.begin_behind_and_take(10);
  CHECK(client.cost_us() == 700);
}

TEST_CASE("Times behind others that tell nothing keep no switch believed") {
  Client client(/*switch_us=*/700);
  client.serve(15);
  client.serve_behind(15);
  for (int half_seconds = 0; half_seconds < 130; ++half_seconds) {
    client.pauses_us = 0;
    client.serve(3'375);
    client.pauses_us = 200;
    client.serve_behind(1);
  }
  CHECK(client.cost_us() == 0);
}

TEST_CASE("Pauses of the host between launches are no switch") {
  Client client;
  client.pauses_us = 200;
  client.serve(15, /*work_us=*/400);
  client.serve_behind(15, /*work_us=*/40, /*ahead_us=*/20);
  CHECK_FALSE(client.cost.known());
  client.pauses_us = 20;
  client.serve_behind(15);
  CHECK(client.cost.known());
}

TEST_CASE("How long the client's own work takes is no switch") {
  Client client(/*switch_us=*/130);
  client.serve(kEnough, /*work_us=*/10);
  client.serve_behind(kEnough, /*work_us=*/900);
  CHECK(client.cost_us() == 130);
}

// A prediction of so much is off by more than a change of hands takes.
TEST_CASE("Work of more than a millisecond says nothing of a switch") {
  Client client(/*switch_us=*/130);
  client.serve_behind(3 * kEnough, /*work_us=*/1'100);
  CHECK_FALSE(client.cost.known());
  CHECK(client.cost_us() == 0);
}

TEST_CASE("A launch that takes its time takes it behind own work, too") {
  Client client(/*switch_us=*/0, /*launch_us=*/90);
  client.serve(kEnough);
  client.serve_behind(kEnough);
  CHECK(client.cost_us() == 0);
}

TEST_CASE(
    "A switch that costs less than can be seen costs nothing, one beyond all measure a "
    "millisecond") {
  const struct {
    int64_t really_us, told_us;
  } kCases[] = {{19, 0}, {20, 20}, {999, 999}, {60'000, 1'000}};
  for (const auto& one : kCases) {
    Client client(one.really_us);
    client.serve(kEnough);
    client.serve_behind(kEnough);
    INFO(one.really_us);
    CHECK(client.cost_us() == one.told_us);
  }
}

TEST_CASE("Own work that ends while what was before it is still there says nothing of a switch") {
  Client client;
  client.serve(kEnough);
  for (int n = 0; n < 3 * kEnough; ++n) {
    client.cost.others_came();
    client.begin();
    client.end(40, 700);
    CHECK(client.cost.behind());  // they may run next
  }
  client.cost.others_ended(1, 0, client.at());
  client.serve_behind(kEnough - 1);
  CHECK(client.cost_us() == 0);
}

TEST_CASE("Only the first own work waits for a switch") {
  Client client(/*switch_us=*/130);
  client.serve(kEnough);
  for (int n = 0; n < kEnough; ++n) {
    CHECK_FALSE(client.cost.behind());
    client.serve_behind(1);
    CHECK_FALSE(client.cost.behind());
    client.end(40, 5'000);  // launched behind that, and held up by whatever
    client.serve(1);
  }
  CHECK(client.cost_us() == 130);
}

TEST_CASE(
    "What was seen once or twice is not what a switch costs, and what is seen no more is "
    "forgotten") {
  Client client(/*switch_us=*/130);
  client.serve(15);
  client.serve_behind(15);
  Client faster = client;
  for (int n = 0; n < 7; ++n) {  // of fifteen
    client.begin_behind_and_take(9'000);
    CHECK(client.cost_us() == 130);
  }
  for (int n = 0; n < 8; ++n) {
    faster.begin_behind_and_take(0);
  }
  CHECK(faster.cost_us() == 0);
}

TEST_CASE("A switch that is not met any more is believed for 64 s") {
  Client client(/*switch_us=*/700);
  client.serve(15);
  client.serve_behind(15);
  constexpr int kSecond = 6'750;
  client.serve(63 * kSecond);
  CHECK(client.cost_us() == 700);
  client.serve(2 * kSecond);
  CHECK(client.cost_us() == 0);
  client.serve_behind(12);
  CHECK(client.cost_us() == 700);
}

TEST_CASE("Units that came behind own work tell nothing, but that what was before it is through") {
  Client client(/*switch_us=*/130);
  client.serve(kEnough);
  for (int n = 0; n < kEnough; ++n) {
    client.cost.others_came();
    client.cost.others_came();
    client.begin();
    client.cost.others_came();  // waits behind
    client.cost.others_ended(2, 1, client.at());
    client.end(40, 130);
    client.cost.others_ended(1, 0, client.at());
  }
  CHECK(client.cost_us() == 130);
}

// Own work that others come beside and leave again has waited for no switch, and is older than
// that.
TEST_CASE("Others that come and go while own work runs hide no switch") {
  Client client(/*switch_us=*/130);
  client.serve(15);
  client.serve_behind(15);
  for (int n = 0; n < 15; ++n) {
    client.begin();
    client.cost.others_came();
    client.end(300, 0);
    client.serve_behind(1);
    client.begin();
    client.cost.others_came();
    client.cost.others_ended(1, 0, client.at() + Duration{900'000});
    client.end(1'000, 0);
  }
  CHECK(client.cost_us() == 130);
}

TEST_CASE("Of work that is only reckoned to be through nothing is learnt") {
  Client client(/*switch_us=*/130);
  client.reported = false;
  client.serve_behind(3 * kEnough);
  client.serve(3 * kEnough);
  CHECK_FALSE(client.cost.known());
  client.reported = true;
  client.serve_behind(3 * kEnough);
  client.serve(kEnough);
  CHECK(client.cost_us() == 130);
}

TEST_CASE("A switch costs the same where an own copy is through before others' kernels are") {
  for (const bool also_alone : {false, true}) {
    CAPTURE(also_alone);
    Client client(/*switch_us=*/130);
    if (also_alone) client.copy_us = 300;
    client.serve(kEnough);
    client.copy_us = 300;
    client.serve_behind(kEnough, /*work_us=*/40, /*ahead_us=*/400);
    CHECK(client.cost_us() == 130);
  }
}

// Others' kernels and the change may be over when the copy is.
TEST_CASE("Where others' kernels are through before an own copy is, nothing is learnt of a switch") {
  Client client(/*switch_us=*/130);
  client.serve(15);
  client.serve_behind(15);
  Client hidden(/*switch_us=*/130);
  hidden.serve(15);
  for (Client* one : {&client, &hidden}) {
    one->copy_us = 300;
    for (const int64_t ahead_us : {-20, 20}) one->serve_behind(15, /*work_us=*/40, ahead_us);
  }
  CHECK(client.cost_us() == 130);
  CHECK_FALSE(hidden.cost.known());
}
