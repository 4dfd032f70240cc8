#include "tools/lull/pair_display.h"

#include <catch2/catch.hpp>

namespace lull::command {

using nlohmann::json;

TEST_CASE("a pair that cannot share a device is told with its two figures") {
  const json low = {
      {"id", 4},
      {"task", "train"},
      {"cannot_share",
       {{{"with", 3}, {"device", 1}, {"longest_ns", 12'600'000}, {"slack_ns", 600'000}}}}};
  const json status = {{"clients", {{{"id", 3}, {"task", "serve"}}, low}}};
  CHECK(describe_unsharable(status, low) ==
        std::vector<std::string>{"cannot share device 1 with serve (3): its longest kernel takes "
                                 "12.6 ms, serve can wait 600 us"});
  CHECK(describe_unsharable(status, status["clients"][0]).empty());
}

TEST_CASE("of a pair that a daemon tells by halves what there is is told") {
  const json low = {{"cannot_share", {{{"with", 9}}}}};
  CHECK(describe_unsharable(json::object(), low) ==
        std::vector<std::string>{
            "cannot share device 0 with ? (9): its longest kernel takes 0 ns, ? can wait 0 ns"});
}

}  // namespace lull::command
