#include "policies/launch/client_table.h"

#include <catch2/catch.hpp>

using namespace lull;
using namespace lull::policies;

namespace {

Joined joins(uint32_t client, uint8_t level) {
  return {ClientId{client}, JobId{client}, Priority{level}, client};
}
Submitted launches(uint32_t client, int64_t us, int64_t at_us, uint32_t thread = 0) {
  return {ClientId{client},         ThreadSlot{thread}, KernelId{1},
          Duration{us * 1000}, Duration{-1},       Instant{at_us * 1000}};
}

}  // namespace

TEST_CASE("A client's work is what was launched, less what has completed") {
  ClientTable table;
  table.apply(joins(1, 5));
  table.apply(launches(1, 20, 0));
  Member* member = table.apply(launches(1, 30, 1));
  REQUIRE(member != nullptr);
  CHECK(member->units == 2);
  CHECK(member->in_flight.ns == 50'000);
  member = table.apply(Completed{ClientId{1}, 1, Duration{20'000}});
  CHECK(member->in_flight.ns == 30'000);
  member = table.apply(Completed{ClientId{1}, 7, Duration{1'000'000}});
  CHECK(member->units == 0);
  CHECK(member->in_flight.ns == 0);
}

TEST_CASE("A waiting head is gone with its launch, its withdrawal or its client") {
  ClientTable table;
  table.apply(joins(1, 5));
  auto waits = [](uint32_t thread, uint32_t ticket) {
    return Waiting{ClientId{1}, ThreadSlot{thread}, Ticket{ticket}, KernelId{1}, Duration{5}, Instant{}};
  };
  table.apply(waits(3, 1));
  Member* member = table.apply(waits(2, 2));
  REQUIRE(member->pending.size() == 2);
  CHECK(member->pending[0].thread == ThreadSlot{2});
  member = table.apply(waits(2, 3));
  CHECK(member->pending[0].ticket == Ticket{3});
  member = table.apply(launches(1, 5, 0, 2));
  CHECK(member->pending.size() == 1);
  member = table.apply(Withdrawn{ClientId{1}, ThreadSlot{3}});
  CHECK(member->pending.empty());
  CHECK(table.apply(Left{ClientId{1}}) == nullptr);
  CHECK(table.find(ClientId{1}) == nullptr);
  CHECK(table.apply(launches(1, 5, 0)) == nullptr);
}

TEST_CASE("A level is active while it has work and for a second after its last launch") {
  ClientTable table;
  table.apply(joins(1, 2));
  table.apply(joins(2, 7));
  CHECK(table.top_active(Instant{0}) == kNoLevel);
  CHECK(table.top_busy() == kNoLevel);
  table.apply(launches(2, 5, 10));
  CHECK(table.top_busy() == 7);
  table.apply(launches(1, 5, 20));
  CHECK(table.top_active(Instant{20'000}) == 2);
  table.apply(Completed{ClientId{1}, 1, Duration{5000}});
  CHECK(table.top_busy() == 7);
  CHECK(table.top_active(Instant{900'000'000}) == 2);
  CHECK(table.next_expiry(Instant{900'000'000}) == Instant{20'000} + kActiveFor);
  CHECK(table.top_active(Instant{1'000'020'000}) == 7);
  table.apply(Reprioritised{ClientId{2}, Priority{0}});
  CHECK(table.top_active(Instant{2'000'000'000}) == 0);
  CHECK(table.has_several_levels());
  table.apply(Left{ClientId{1}});
  CHECK_FALSE(table.has_several_levels());
}

TEST_CASE("Nothing is said twice") {
  ClientTable table;
  Member& member = *table.apply(joins(1, 2));
  std::vector<Decision> out;
  ClientTable::open(member, out);
  CHECK(out.empty());
  ClientTable::close(member, out);
  ClientTable::close(member, out);
  ClientTable::credit(member, Duration{5}, out);
  ClientTable::credit(member, Duration{5}, out);
  ClientTable::credit(member, Duration{6}, out);
  ClientTable::open(member, out);
  CHECK(out.size() == 4);
}
