// NVTX under the shim: a program whose NVTX loads liblull.so as its tool, and what the coordinator
// reads of its ranges.
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "tests/shim/coordinator.h"
#include "tests/shim/probe_process.h"

namespace lull::test {
namespace {

struct MarkedStage {
  std::string directory = private_directory();
  Coordinator coordinator{directory + "/s"};
  ProbeProcess probe;
  Client client;

  explicit MarkedStage(Environment environment = {{"NVTX_INJECTION64_PATH", LULL_SHIM_PATH}})
      : probe(with_socket(environment)) {
    client = coordinator.attached([&, again = false]() mutable {
      if (std::exchange(again, true)) {
        std::destroy_at(&probe);
        std::construct_at(&probe, with_socket(environment));
      }
      REQUIRE(probe.ask("init") == "0");
    });
    drain(client);
  }
  Environment with_socket(Environment environment) const {
    environment["LULL_SOCKET"] = directory + "/s";
    return environment;
  }
  void trace(bool on) {
    client.region.control()->wants_launch_records =
        on ? channel::kRecordEverything : channel::kRecordTimed;
  }
  std::string nvtx(const std::string& what) { return probe.ask("nvtx " + what); }
  std::vector<channel::lull_record> ranges() { return drain(client, channel::kRecordRange); }
  std::string text(uint32_t offset) { return channel::name_at(client.region, offset, 256); }
};

TEST_CASE("ranges of a program's NVTX are told while a trace is written, nested and by name") {
  MarkedStage stage;
  stage.trace(true);
  REQUIRE(stage.nvtx("load") == "0");
  CHECK(stage.nvtx("push") == "0");
  CHECK(stage.nvtx("pushwide") == "1");
  CHECK(stage.nvtx("pop") == "1");
  CHECK(stage.nvtx("pop") == "0");
  auto records = stage.ranges();
  REQUIRE(records.size() == 2);
  CHECK(stage.text(records[0].kernel) == "inn\u00e9r");
  CHECK(stage.text(records[1].kernel) == "outer");
  CHECK(records[0].stream == channel::kRangeNested);
  CHECK(records[0].sequence == 1);
  CHECK(records[1].sequence == 0);
  CHECK(records[0].device == 0);
  CHECK(records[1].value0 > records[0].value0);
  CHECK(records[0].tsc - records[0].value0 > records[1].tsc - records[1].value0);
  CHECK(records[0].tsc < records[1].tsc);
  // The same name again: the same place.
  stage.nvtx("push");
  stage.nvtx("pop");
  CHECK(stage.ranges().at(0).kernel == records[1].kernel);
}

TEST_CASE("domains have names and a nesting of their own") {
  MarkedStage stage;
  stage.trace(true);
  REQUIRE(stage.nvtx("load") == "0");
  CHECK(stage.nvtx("domain") == "1");
  CHECK(stage.nvtx("push") == "0");
  CHECK(stage.nvtx("pushdomain") == "0");
  CHECK(stage.nvtx("pop") == "0");  // of none: the outer one
  CHECK(stage.nvtx("popdomain") == "0");
  const auto records = stage.ranges();
  REQUIRE(records.size() == 2);
  CHECK(stage.text(records[0].kernel) == "outer");
  CHECK(stage.text(records[1].kernel) == "batch");
  CHECK(stage.text(records[1].device) == "data");
  CHECK(records[0].device == 0);
}

TEST_CASE("a range that one thread starts another may end, and marks have no length") {
  MarkedStage stage;
  stage.trace(true);
  REQUIRE(stage.nvtx("load") == "0");
  CHECK(stage.nvtx("start") == "1");
  CHECK(stage.nvtx("mark") == "0");
  CHECK(stage.nvtx("endelsewhere") == "0");
  CHECK(stage.nvtx("endelsewhere") == "0");  // ended already
  const auto records = stage.ranges();
  REQUIRE(records.size() == 2);
  std::map<uint32_t, channel::lull_record> by_kind;
  for (const auto& record : records) by_kind[record.stream] = record;
  CHECK(stage.text(by_kind.at(channel::kRangeFree).kernel) == "long");
  CHECK(by_kind[channel::kRangeFree].value0 > 0);
  CHECK(stage.text(by_kind.at(channel::kRangeMark).kernel) == "here");
  CHECK(by_kind[channel::kRangeMark].value0 == 0);
}

TEST_CASE("nothing is recorded while no trace is written, and a range open at its start is left out") {
  MarkedStage stage;
  REQUIRE(stage.nvtx("load") == "0");
  CHECK(stage.nvtx("push") == "0");
  CHECK(stage.nvtx("start") == "1");
  CHECK(stage.nvtx("mark") == "0");
  stage.trace(true);
  CHECK(stage.nvtx("push") == "1");
  CHECK(stage.nvtx("pop") == "1");
  CHECK(stage.nvtx("pop") == "0");
  CHECK(stage.nvtx("endelsewhere") == "0");
  const auto records = stage.ranges();
  REQUIRE(records.size() == 1);
  CHECK(records[0].sequence == 1);
}

TEST_CASE("names without end become one by their digits, and the program goes on") {
  MarkedStage stage;
  stage.trace(true);
  REQUIRE(stage.nvtx("load") == "0");
  std::set<uint32_t> places;
  std::string last;
  for (int n = 0; n < 3000; ++n) {
    stage.nvtx("pushnumber " + std::to_string(n));
    stage.nvtx("pop");
    for (const auto& record : stage.ranges()) {
      places.insert(record.kernel);
      last = stage.text(record.kernel);
    }
  }
  CHECK(last == "step #");
  CHECK(places.size() > 1000);
  CHECK(places.size() < 2100);
  CHECK(stage.probe.ask("launch k 1 1 1") == "0");
}

TEST_CASE("deeper than what is kept the levels still count, and what is wrong does no harm") {
  MarkedStage stage;
  stage.trace(true);
  REQUIRE(stage.nvtx("load") == "0");
  CHECK(stage.nvtx("nothing") == "3210");
  for (int n = 0; n < 40; ++n) CHECK(stage.nvtx("push") == std::to_string(n));
  for (int n = 39; n >= 0; --n) CHECK(stage.nvtx("pop") == std::to_string(n));
  CHECK(stage.nvtx("pop") == "-1");
}

TEST_CASE("without a coordinator and when switched off NVTX calls are nothing") {
  ProbeProcess alone(Environment{{"NVTX_INJECTION64_PATH", LULL_SHIM_PATH}});
  CHECK(alone.ask("nvtx load") == "0");
  CHECK(alone.ask("nvtx push") == "0");
  CHECK(alone.ask("nvtx pop") == "0");
  ProbeProcess off(Environment{{"NVTX_INJECTION64_PATH", LULL_SHIM_PATH}, {"LULL_DISABLE", "1"}});
  CHECK(off.ask("nvtx load") == "4");
  CHECK(off.ask("nvtx push") == "-2");
  ProbeProcess bare(Environment{});
  CHECK(bare.ask("nvtx load") == "1");
  CHECK(bare.ask("nvtx push") == "-2");
}

}  // namespace
}  // namespace lull::test
