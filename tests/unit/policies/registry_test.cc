#include "policies/launch/registry.h"

#include <catch2/catch.hpp>

using namespace lull;
using namespace lull::policies;

TEST_CASE("A policy text is normalised to name every setting") {
  CHECK(check_policy("share").value() == "share");
  CHECK(check_policy("  priority ").value() == "priority in_flight_us=50 max_hold_ms=100");
  CHECK(check_policy("priority max_hold_ms=0\n").value() == "priority in_flight_us=50 max_hold_ms=0");
  CHECK(check_policy("time_slice quantum_us=500").value() == "time_slice quantum_us=500");
  CHECK(check_policy("fikit switch_cost_us=25 epsilon_us=0").value() ==
        "fikit epsilon_us=0 switch_cost_us=25 max_hold_ms=100");
}

TEST_CASE("Each policy finds its settings by their names") {
  for (const PolicyRow& row : policy_rows()) {
    CAPTURE(row.name);
    CHECK(row.make(parse_policy(row.name).value().values) != nullptr);
  }
  const auto values = parse_policy("priority in_flight_us=70").value().values;
  CHECK(values["in_flight_us"] == 70);
  CHECK(values.find("quantum_us") == std::nullopt);
}

TEST_CASE("A normalised text says the same again") {
  for (const PolicyRow& row : policy_rows()) {
    const std::string once = check_policy(row.name).value();
    CHECK(check_policy(once).value() == once);
  }
}

TEST_CASE("A text that is not understood is answered with what would be right") {
  CHECK(check_policy("").error() ==
        "unknown policy '': one of share, exclusive, time_slice, priority, fikit, guarded");
  CHECK(check_policy("Priority").error() ==
        "unknown policy 'Priority': one of share, exclusive, time_slice, priority, fikit, guarded");
  CHECK(check_policy("share x=1").error() == "policy share has no setting 'x': it has none");
  CHECK(check_policy("priority speed=1").error() ==
        "policy priority has no setting 'speed': it has in_flight_us=50, max_hold_ms=100");
  CHECK(check_policy("priority =").error() ==
        "policy priority has no setting '': it has in_flight_us=50, max_hold_ms=100");
  CHECK(check_policy("time_slice quantum_us=99").error() ==
        "policy setting 'quantum_us=99': quantum_us takes a whole number from 100 to 10000000");
  CHECK(check_policy("time_slice quantum_us=1e6").error() ==
        "policy setting 'quantum_us=1e6': quantum_us takes a whole number from 100 to 10000000");
  CHECK_FALSE(check_policy("time_slice quantum_us").has_value());
  CHECK_FALSE(check_policy("time_slice quantum_us=99999999999999999999").has_value());
  CHECK(check_policy("fikit epsilon_us=1 epsilon_us=2").error() ==
        "policy setting epsilon_us is given twice: give it once");
  const std::string odd = check_policy(std::string(500, '\x01')).error();
  CHECK(odd.find('\x01') == std::string::npos);
  CHECK(odd.size() < 200);
}

TEST_CASE("The watchdog's time comes with the policies that hold by prediction") {
  CHECK(parse_policy("priority")->max_hold.ns == 100'000'000);
  CHECK(parse_policy("fikit max_hold_ms=0")->max_hold.ns == 0);
  CHECK(parse_policy("exclusive")->max_hold.ns == 0);
  for (const PolicyRow& row : policy_rows()) {
    const bool has = parse_policy(row.name)->text.find(kMaxHoldKey) != std::string::npos;
    CHECK(has == (row.holding == Holding::kByPrediction));
    CHECK(row.make(parse_policy(row.name)->values) != nullptr);
  }
}

TEST_CASE("The published rule is told means, guarded what predicts best") {
  CHECK(parse_policy("fikit")->row->predictor == Predictor::kMean);
  CHECK(parse_policy("priority")->row->predictor == Predictor::kMean);
  CHECK(parse_policy("guarded")->row->predictor == Predictor::kBest);
}

TEST_CASE("A timer is about nobody, not about client 0") {
  for (const PolicyRow& row : policy_rows()) {
    const auto policy = row.make(parse_policy(row.name)->values);
    std::vector<Decision> decisions;
    const Event joined = Joined{ClientId{0}, JobId{1}, Priority{5}};
    const Event timer = TimerDue{};
    policy->step(Instant{1000}, {&joined, 1}, decisions);
    decisions.clear();
    policy->step(Instant{2000}, {&timer, 1}, decisions);
    CHECK(decisions.size() <= 1);
  }
}
