#include "coordinator/daemon/config.h"

#include <catch2/catch.hpp>

#include "policies/launch/registry.h"
#include "tests/daemon/fake_client.h"

namespace lull::daemon {
namespace {

std::expected<void, std::string> check(const std::string& text) {
  const auto good = policies::check_policy(text);
  if (!good) return std::unexpected(good.error());
  return {};
}

TEST_CASE("an empty object is the default configuration") {
  const auto config = parse_config("{}", "lulld.json", check);
  REQUIRE(config);
  CHECK(config->policy == "guarded");
  CHECK(config->max_clients == 1024);
  CHECK(clients_per_user(*config) == 512);
  CHECK(config->timing_period == 64);
  CHECK_FALSE(config->priorities);
  CHECK(config->moves.empty());
  CHECK(config->quantum_s == 60);
  // Half of the machine's.
  CHECK(host_memory_for(*config) > 0);
  CHECK_FALSE(config->host_memory_bytes);
}

TEST_CASE("a whole configuration is read") {
  const auto config = parse_config(R"({
    // comments are allowed
    "socket": {"mode": "0660", "group": 0},
    "policy": "fikit epsilon_us=5",
    "priorities": [{"uid": 1000, "highest": "high", "default": "low"},
                   {"gid": 27, "highest": 0},
                   {"any": true, "highest": "low"}],
    "operators": [{"gid": 27}],
    "max_clients": 12, "max_clients_per_user": 7, "timing_period": 0, "memory_reserve_bytes": 1073741824,
    "moves": [{"gid": 27, "suspendable": true, "migratable": false}, {"any": true, "oversubscribe": true}],
    "host_memory": "64G", "context_bytes": 1000, "quantum_s": 5})",
                                   "lulld.json", check);
  REQUIRE(config);
  CHECK(config->socket_mode == 0660);
  CHECK(config->socket_group == 0);
  REQUIRE(config->priorities->size() == 3);
  CHECK(config->priorities->at(0).highest.level == 2);
  CHECK(config->priorities->at(0).normal.level == 7);
  CHECK(config->priorities->at(1).normal.level == 5);
  CHECK(config->priorities->at(2).normal.level == 7);
  CHECK(config->operators.size() == 1);
  CHECK(config->max_clients == 12);
  CHECK(clients_per_user(*config) == 7);
  CHECK(config->memory_reserve_bytes == 1U << 30);
  REQUIRE(config->moves.size() == 2);
  CHECK(config->moves[0].suspendable == true);
  CHECK(config->moves[0].migratable == false);
  CHECK_FALSE(config->moves[0].oversubscribe);
  CHECK(config->moves[1].oversubscribe == true);
  CHECK(host_memory_for(*config) == 64ULL << 30);
  CHECK(config->context_bytes == 1000);
  CHECK(config->quantum_s == 5);
}

TEST_CASE("the shipped configuration is good") {
  const auto config = load_config(std::string(LULL_SOURCE_DIR) + "/tools/setup/lulld.json", check);
  if (!config) FAIL(config.error());
  CHECK(config->socket_mode == 0666);
}

TEST_CASE("each mistake is named with file, key and what would be right") {
  const std::pair<std::string, std::string> cases[] = {
      {"", "cannot read lulld.json: line 1 is not JSON"},
      {"{\n\"policy\": \n}", "line 3 is not JSON"},
      {"[]", "cannot use lulld.json: the file is array: an object {...} is expected"},
      {R"({"polcy":"share"})", "polcy is not a known key: known are socket, policy, priorities"},
      {R"({"socket":"x"})", "socket is string: an object {...} is expected"},
      {R"({"socket":{"mod":"0600"}})", "socket.mod is not a known key: known are mode, group"},
      {R"({"socket":{"mode":600}})", "socket.mode is 600: permissions as a string of octal digits"},
      {R"({"socket":{"mode":"0888"}})", "socket.mode is \"0888\": permissions"},
      {R"({"socket":{"mode":"7777"}})", "socket.mode is \"7777\": permissions"},
      {R"({"socket":{"group":"no-such-group-here"}})", "socket.group is \"no-such-group-here\""},
      {R"({"policy":"fikt"})",
       "policy unknown policy 'fikt': one of share, exclusive, time_slice, priority, fikit, "
       "guarded"},
      {R"({"policy":7})", "policy is 7: a policy's name and options, as text, is expected"},
      {R"({"devices":["GPU-1"]})", "devices[0] is string: an object {...} is expected"},
      {R"({"devices":[{"name":"x"}]})",
       "devices[0].uuid is missing: a device's UUID as nvidia-smi"},
      {R"({"devices":[{"uuid":"GPU-1"}]})", "devices[0].uuid is \"GPU-1\": a device's UUID"},
      {R"({"devices":[{"uuid":"GPU-01020304-0506-0708-090a-0b0c0d0e0f10","memory_bytes":-1}]})",
       "devices[0].memory_bytes is -1: a whole number"},
      {R"({"priorities":{}})", "priorities is object: a list [...] is expected"},
      {R"({"priorities":[{"highest":2}]})",
       "priorities[0] names 0 of uid, gid, any: exactly one is expected"},
      {R"({"priorities":[{"uid":1,"gid":1,"highest":2}]})",
       "priorities[0] names 2 of uid, gid, any"},
      {R"({"priorities":[{"any":false,"highest":2}]})", "priorities[0].any is false: true is"},
      {R"({"priorities":[{"uid":-1,"highest":2}]})", "priorities[0].uid is -1: a whole number"},
      {R"({"priorities":[{"uid":1}]})", "priorities[0].highest is missing: 0 to 9 or realtime"},
      {R"({"priorities":[{"uid":1,"highest":"top"}]})",
       "priorities[0].highest is \"top\": 0 to 9 or realtime, high, normal, low, idle is expected"},
      {R"({"priorities":[{"uid":1,"highest":10}]})", "priorities[0].highest is 10: 0 to 9"},
      {R"({"priorities":[{"uid":1,"highest":5,"default":2}]})",
       "priorities[0].default is 2, above this rule's highest, 5: 5 to 9 is expected"},
      {R"({"priorities":[{"uid":1,"highest":5,"lowest":9}]})",
       "priorities[0].lowest is not a known key: known are uid, gid, any, highest, default"},
      {R"({"operators":[{"user":"me"}]})", "operators[0].user is not a known key"},
      {R"({"max_clients":0})", "max_clients is 0: a whole number from 1 to 16384 is expected"},
      {R"({"max_clients":1.5})", "max_clients is 1.5: a whole number"},
      {R"({"max_clients_per_user":0})", "max_clients_per_user is 0: a whole number from 1 to 1024"},
      {R"({"max_clients_per_user":9,"max_clients":8})",
       "max_clients_per_user is 9: a whole number from 1 to 8 is expected"},
      {R"({"timing_period":"often"})", "timing_period is \"often\": a whole number"},
      {R"({"memory_reserve_bytes":-5})", "memory_reserve_bytes is -5: a whole number"},
      {R"({"moves":{}})", "moves is object: a list [...] is expected"},
      {R"({"moves":[{"suspendable":true}]})", "moves[0] names 0 of uid, gid, any"},
      {R"({"moves":[{"any":true}]})", "moves[0] says nothing: suspendable, migratable or oversubscribe"},
      {R"({"moves":[{"any":true,"suspendable":1}]})", "moves[0].suspendable is 1: true or false"},
      {R"({"moves":[{"any":true,"swap":true}]})", "moves[0].swap is not a known key"},
      {R"({"moves":[{"any":true,"suspendable":false,"migratable":true}]})",
       "moves[0].migratable is true where suspendable is false"},
      {R"({"host_memory":"much"})", "host_memory is \"much\": a number of bytes, or text such as"},
      {R"({"host_memory":"64X"})", "host_memory is \"64X\""},
      {R"({"host_memory":"99999999999999999999G"})", "host_memory is"},
      {R"({"host_memory":-1})", "host_memory is -1"},
      {R"({"context_bytes":-1})", "context_bytes is -1: a whole number"},
      {R"({"quantum_s":0})", "quantum_s is 0: a whole number from 1 to 86400"},
  };
  for (const auto& [text, part] : cases) {
    const auto config = parse_config(text, "lulld.json", check);
    INFO(text);
    REQUIRE_FALSE(config);
    INFO(config.error());
    CHECK(config.error().find(part) != std::string::npos);
    CHECK(config.error().find("lulld.json") != std::string::npos);
    CHECK(config.error().find('\n') == std::string::npos);
  }
}

TEST_CASE("a configuration that cannot be read is named with the reason") {
  const auto config = load_config("/nonexistent/lulld.json", check);
  REQUIRE_FALSE(config);
  CHECK(config.error() ==
        "cannot read /nonexistent/lulld.json: No such file or directory: name a readable JSON file "
        "with --config");
}

}  // namespace
}  // namespace lull::daemon
