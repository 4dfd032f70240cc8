#include <catch2/catch.hpp>

#include "coordinator/daemon/config.h"

using namespace lull::daemon;
namespace channel = lull::channel;

namespace {
Config parsed(const char* text) {
  const auto config = parse_config(text, "t.json", [](const std::string&) {
    return std::expected<void, std::string>();
  });
  REQUIRE(config);
  return *config;
}
}  // namespace

TEST_CASE("a client without a wish is timed as the daemon is set, one with a wish as it wishes") {
  const Config sampled = parsed(R"({"timing_period": 32})");
  CHECK(timing_period_for(sampled, channel::kTimingUnset) == 32);
  CHECK(timing_period_for(sampled, channel::kTimingOff) == 0);
  CHECK(timing_period_for(sampled, channel::kTimingFull) == 1);
  const Config off = parsed(R"({"timing": "off"})");
  CHECK(timing_period_for(off, channel::kTimingUnset) == 0);
  CHECK(timing_period_for(off, channel::kTimingSampled) == 64);
  const Config full = parsed(R"({"timing": "full", "timing_period": 16})");
  CHECK(timing_period_for(full, channel::kTimingUnset) == 1);
  CHECK(timing_period_for(full, channel::kTimingSampled) == 16);
}

TEST_CASE("as periods, 0 is off and 1 is full; a word that is none is refused") {
  CHECK(timing_period_for(parsed(R"({"timing_period": 0})"), channel::kTimingUnset) == 0);
  CHECK(timing_period_for(parsed(R"({"timing_period": 1})"), channel::kTimingUnset) == 1);
  const auto bad = parse_config(R"({"timing": "often"})", "t.json", [](const std::string&) {
    return std::expected<void, std::string>();
  });
  REQUIRE_FALSE(bad);
  CHECK(bad.error().find("timing is \"often\": \"off\", \"sampled\" or \"full\" is expected") !=
        std::string::npos);
}

TEST_CASE("while a trace wants every launch timed all are, but those of a client that wishes none") {
  const Config sampled = parsed(R"({"timing": "sampled"})");
  CHECK(timing_period_for(sampled, channel::kTimingUnset, channel::kTimingFull) == 1);
  CHECK(timing_period_for(sampled, channel::kTimingSampled, channel::kTimingFull) == 1);
  CHECK(timing_period_for(sampled, channel::kTimingOff, channel::kTimingFull) == 0);
  CHECK(timing_period_for(sampled, channel::kTimingFull, channel::kTimingOff) == 0);
}
