#include "tools/lull/status_view.h"

#include <catch2/catch.hpp>

#include "tests/lull/fits.h"
#include "tools/lull/findings.h"
#include "tools/measure/text_table.h"

using namespace lull::command;
using nlohmann::json;

namespace {

const json kStatus = json::parse(R"({
  "version":"1","pid":17,"uptime_s":12,"policy":"guarded","simulated":true,"sharing":"mps","slow_motion":4,"control_latency_us":10,
  "devices":[{"index":0,"uuid":"GPU-0123456789ab","name":"Big GPU","total_bytes":85899345920}],
  "clients":[
   {"id":1,"task":"serve","pid":4711,"namespace_pid":1,"priority":2,"launches":123456,"dropped":0,"held_ns":0,
    "max_slowdown":{"mean":0.03,"p99":0.05},
    "devices":[{"uuid":"GPU-0123456789ab","gate":"open","memory_bytes":1073741824,"in_flight_ns":1000,"device_time_ns":5000000}]},
   {"id":2,"task":"a rather long name of a training task","pid":4712,"priority":7,"launches":99,"dropped":7,"held_ns":1500000,
    "held":[{"thread":3,"kernel":"_Z3addPfi","for_us":812,"by":[1],"why":"no room in the pause"}],
    "devices":[{"uuid":"GPU-0123456789ab","gate":"closed","memory_bytes":2147483648,"memory_allowance_bytes":4294967296,
                "in_flight_ns":0,"device_time_ns":77000000}]},
   {"id":3,"task":"waiting","pid":4713,"priority":5,"devices":[]},
   {"id":4,"task":"stranger","pid":4714,"priority":5,"devices":[],"unscheduled":[{"uuid":"GPU-x","why":"no device of this node"}]}],
  "refused":{"attempts":9,"users":[{"uid":1000,"attempts":8,"why":"may not"}]},
  "notices":["the policy was changed"]})");

}  // namespace

TEST_CASE("the status is what the daemon says") {
  CHECK(status_text(kStatus, kAnyWidth) ==
        "lulld 1 (pid 17), up 12 s of real time, policy: guarded\n"
        "simulated GPU: sharing mps, slow motion 4, control latency 10 us; times below are "
        "model time: 4 s of real time are 1 s of it\n"
        "\n"
        "device 0  GPU-0123456789ab  Big GPU  80.0 GiB\n"
        "  ID  TASK                                    PID  PRIORITY  GATE    MEMORY              "
        "IN FLIGHT  DEVICE TIME"
        "  LAUNCHES  DROPPED    HELD\n"
        "   1  serve                                  4711  high      open    1.0 GiB              "
        "    1 us         5 ms"
        "    123456        0    0 ns\n"
        "      process 1 in its own pid namespace\n"
        "      may lose 3 % in the mean, 5 % at p99 to less important ones\n"
        "   2  a rather long name of a training task  4712  low       closed  2.0 GiB of 4.0 GiB   "
        "    0 ns        77 ms"
        "        99        7  1.5 ms\n"
        "      held: thread 3 before add(float*, int) for 812 us, by serve (1): no room in the "
        "pause\n"
        "\n"
        "attached, no device used yet:\n"
        "  ID  TASK      PID  PRIORITY\n"
        "   3  waiting  4713  normal\n"
        "\n"
        "running unscheduled, on devices that lulld does not know:\n"
        "  ID  TASK       PID  WHY\n"
        "   4  stranger  4714  GPU-x: no device of this node\n"
        "\n"
        "refused, running unscheduled (a program asks again each second):\n"
        "  uid 1000, 8 times: may not\n"
        "  other users, 1 times\n"
        "\n"
        "notice: the policy was changed\n"
        "\n"
        "2 programs on 1 GPU, a rather long name of a training task is held by serve (1); 1 "
        "attached, no device used "
        "yet; 1 unscheduled on devices that lulld does not know; some are refused and run "
        "unscheduled; records of 1 "
        "program were lost; 1 notice to read.\n");
}

TEST_CASE("of a simulated GPU that no program has made yet nothing is said but that") {
  const json status = {{"simulated", true}, {"sharing", ""}, {"slow_motion", 1}};
  const std::string text = status_text(status, kAnyWidth);
  CHECK(text.find("\nsimulated GPU: the first program makes it\nno device is known yet\n") !=
        std::string::npos);
  CHECK(text.find("slow motion") == std::string::npos);
}

TEST_CASE("it fits the terminal, with every figure") {
  testing::check_fits([](size_t width) { return status_text(kStatus, width); }, kAnyWidth);
}

TEST_CASE("the sentence at its end says whether anybody is held") {
  CHECK(status_verdict(json::object()) == "Nobody uses a GPU now.");
  json status = kStatus;
  status["clients"] = json::array({kStatus["clients"][0]});
  status["notices"] = json::array();
  status.erase("refused");
  CHECK(status_verdict(status) == "1 program on 1 GPU, nobody is held.");
}

TEST_CASE("nonsense of a daemon is survived") {
  for (const json& nonsense :
       {json(), json::array(), json{{"devices", 3}},
        json{{"devices", {1, "x", nullptr}}, {"clients", {nullptr, 3}}},
        json{{"devices", {json::object()}}, {"clients", {{{"devices", {1}}}}}},
        json{{"notices", {1}}, {"jobs", {2}}}}) {
    CHECK(status_text(nonsense, 80).ends_with(".\n"));
  }
}

TEST_CASE("what doctor finds fits the terminal and ends in whether lull works here") {
  const Findings findings = {
      {Verdict::kOk, "driver", "CUDA 12.8 at /usr/lib/libcuda.so.1", ""},
      {Verdict::kWarn, "file descriptors", "at most 256 of them",
       "raise the limit: ulimit -n 1024, or LimitNOFILE= of the service"},
      {Verdict::kFail, "coordinator", "nobody answers at /run/lull/lulld.sock",
       "start it: systemctl start lulld"}};
  testing::check_fits([&](size_t width) { return findings_text(findings, width); }, kAnyWidth);
  CHECK(findings_text(findings, 60) ==
        "ok    driver            CUDA 12.8 at /usr/lib/libcuda.so.1\n"
        "warn  file descriptors  at most 256 of them: raise the\n"
        "                        limit: ulimit -n 1024, or\n"
        "                        LimitNOFILE= of the service\n"
        "fail  coordinator       nobody answers at\n"
        "                        /run/lull/lulld.sock: start it:\n"
        "                        systemctl start lulld\n"
        "\n"
        "lull would not work here as it should: 1 of 3 checks failed,\n"
        "first of all coordinator; 1 warning to read.\n");
  CHECK(findings_text({findings[0]}, kAnyWidth)
            .ends_with("\nlull works here: none of 1 checks failed.\n"));
}
