#include "tools/measure/values.h"

#include <catch2/catch.hpp>

using namespace lull::command;

TEST_CASE("a size is a number with its unit, of 1024") {
  CHECK(parse_bytes("20G") == uint64_t{20} << 30);
  CHECK(parse_bytes("512M") == uint64_t{512} << 20);
  CHECK(parse_bytes("1.5g") == uint64_t{3} << 29);
  CHECK(parse_bytes("64KiB") == uint64_t{65536});
  CHECK(parse_bytes("2TB") == uint64_t{2} << 40);
  CHECK(parse_bytes("1000000B") == uint64_t{1000000});
}

TEST_CASE("a size that is none says what would be right") {
  for (const char* text : {"", "G", "20", "1000000", "20 ", "20X", "20GG", "-1G", "0", "1e9", "nan", "inf", "9999999T",
                           "20 G", "G20", "0x10"}) {
    INFO(text);
    const auto bytes = parse_bytes(text);
    REQUIRE_FALSE(bytes);
    CHECK(bytes.error().find("20G") != std::string::npos);
  }
}

TEST_CASE("a priority is a level or its name") {
  CHECK(parse_priority("realtime") == 0);
  CHECK(parse_priority("high") == 2);
  CHECK(parse_priority("normal") == 5);
  CHECK(parse_priority("low") == 7);
  CHECK(parse_priority("idle") == 9);
  for (int level = 0; level <= 9; ++level) {
    CHECK(parse_priority(std::to_string(level)) == level);
    CHECK(parse_priority(priority_name(level)) == level);
  }
  for (const char* text : {"", "10", "-1", "urgent", "High", "2 "}) {
    INFO(text);
    const auto level = parse_priority(text);
    REQUIRE_FALSE(level);
    CHECK(level.error().find("realtime") != std::string::npos);
  }
}

TEST_CASE("a slowdown is percent in the mean, and at p99 five thirds of it unless it is given too") {
  using lull::SlowdownBound;
  CHECK(parse_slowdown("3%") == SlowdownBound{30, 50});
  CHECK(parse_slowdown("3%,5%") == SlowdownBound{30, 50});
  CHECK(parse_slowdown("0%") == SlowdownBound{0, 0});
  CHECK(parse_slowdown("0.5%") == SlowdownBound{5, 9});
  CHECK(parse_slowdown("0%,2.5%") == SlowdownBound{0, 25});
  CHECK(parse_slowdown("1000%") == SlowdownBound{10'000, 10'000});
  CHECK(parse_slowdown("10%,10%") == SlowdownBound{100, 100});
  for (const char* text : {"0%", "3%", "0.5%", "12.3%,1000%"}) {
    CHECK(parse_slowdown(show_slowdown(*parse_slowdown(text))) == parse_slowdown(text));
  }
  CHECK(show_slowdown({30, 50}) == "3%,5%");
  CHECK(show_slowdown({5, 9}) == "0.5%,0.9%");
  CHECK(describe_slowdown({5, 9}) == "0.5 % in the mean and 0.9 % at p99");
}

TEST_CASE("a slowdown that is none says what would be right") {
  const auto says = [](const char* text, const char* why) {
    INFO(text);
    const auto bound = parse_slowdown(text);
    REQUIRE_FALSE(bound);
    CHECK(bound.error() == "'" + std::string(text) + "' " + why +
                               ": give percent, 0% to 1000%, in the mean or in the mean and at p99, "
                               "as in 3% or 3%,5%");
  };
  for (const char* text : {"", "%", "fast", "-3%", "-0%", "nan%", "3%,", "3%,5%,7%", "3%5%", "3% ",
                           "+3%", ",5%"}) {
    says(text, "is no slowdown");
  }
  for (const char* text : {"3", "300x", "1.03", "3 %", "3%,5", "1e2%"}) says(text, "is not in percent");
  for (const char* text : {"1000.1%", "3%,1001%", "99999999999999999999%", "inf%"}) {
    says(text, "is too large");
  }
  for (const char* text : {"0.25%", "3%,5.01%"}) says(text, "is finer than a tenth of a percent");
  says("5%,3%", "allows less at p99 than in the mean");
}

TEST_CASE("sharing models are known by name and number") {
  for (uint32_t n = 0; n < 3; ++n) CHECK(parse_sharing(sharing_name(n)) == n);
  CHECK_FALSE(parse_sharing("exclusive"));
  CHECK(sharing_name(17) == "unknown");
}

TEST_CASE("sizes and times are shown in the unit that fits") {
  CHECK(show_bytes(17) == "17 B");
  CHECK(show_bytes(uint64_t{20} << 30) == "20.0 GiB");
  CHECK(show_ns(900) == "900 ns");
  CHECK(show_ns(1'234'000) == "1.23 ms");
}

TEST_CASE("a share is percent with one decimal") {
  CHECK(show_share(0.3121) == "31.2 %");
  CHECK(show_share(0) == "0.0 %");
  CHECK(show_share(-1) == "-");
  CHECK(show_share(0.0 / 0.0) == "-");
}
