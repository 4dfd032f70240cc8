#include "coordinator/daemon/priority_rules.h"

#include <catch2/catch.hpp>

namespace lull::daemon {
namespace {

TEST_CASE("levels have names and numbers, and nothing else is a level") {
  CHECK(parse_priority("realtime")->level == 0);
  CHECK(parse_priority("high")->level == 2);
  CHECK(parse_priority("normal")->level == 5);
  CHECK(parse_priority("low")->level == 7);
  CHECK(parse_priority("idle")->level == 9);
  CHECK(parse_priority("3")->level == 3);
  for (const char* bad : {"", "10", "-1", "High", "urgent", " 3"}) CHECK_FALSE(parse_priority(bad));
  CHECK(priority_name({2}) == "high");
  CHECK(priority_name({3}) == "level 3");
  CHECK(allowed_levels({3}) == "normal, low, idle (3 to 9)");
}

TEST_CASE("the first rule that matches by user, group or anybody decides") {
  const PriorityRules rules({{.who = {.uid = 7}, .highest = {0}, .normal = {2}},
                             {.who = {.gid = 50}, .highest = {2}, .normal = {5}},
                             {.who = {.any = true}, .highest = {7}, .normal = {9}}});
  const Peer owner{.uid = 7, .gid = 1};
  const Peer member{.uid = 8, .gid = 1, .groups = {3, 50}};
  const Peer other{.uid = 9, .gid = 1};
  CHECK(rules.judge(owner, Priority{0}).granted.level == 0);
  CHECK(rules.judge(owner, std::nullopt).granted.level == 2);
  CHECK(rules.judge(member, Priority{0}).granted.level == 2);
  CHECK(rules.judge(member, Priority{0}).clamped);
  CHECK_FALSE(rules.judge(member, Priority{2}).clamped);
  CHECK(rules.judge(other, Priority{5}).granted.level == 7);
  CHECK(rules.judge(other, std::nullopt).granted.level == 9);
}

TEST_CASE("without a matching rule a peer runs at normal or below") {
  const PriorityRules none({});
  CHECK(none.judge(Peer{.uid = 9}, Priority{2}).granted.level == 5);
  CHECK(none.judge(Peer{.uid = 9}, Priority{8}).granted.level == 8);
  const PriorityRules built_in = PriorityRules::built_in(1000);
  CHECK(built_in.judge(Peer{.uid = 1000}, Priority{0}).granted.level == 0);
  CHECK(built_in.judge(Peer{.uid = 0}, Priority{0}).granted.level == 0);
  CHECK(built_in.judge(Peer{.uid = 1001}, Priority{2}).granted.level == 5);
}

}  // namespace
}  // namespace lull::daemon
