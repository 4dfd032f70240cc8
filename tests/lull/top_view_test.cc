#include "tools/lull/top_view.h"

#include <catch2/catch.hpp>

using namespace lull::command;
using nlohmann::json;

namespace {

const json kStatus = json::parse(R"({
  "version":"1","uptime_s":12,"policy":"priority","simulated":true,"sharing":"mps","slow_motion":4,
  "devices":[{"index":0,"uuid":"GPU-a","name":"Big GPU","total_bytes":85899345920}],
  "clients":[
   {"id":1,"task":"serve","priority":2,"busy_share":0.31,"launches_per_s":12345.6,"held_share":0,
    "devices":[{"uuid":"GPU-a","gate":"open","memory_bytes":1073741824}],
    "iteration":{"locked":true,"in_step":true,"period_launches":156,"median_ns":7664000,"slowdown":1.02}},
   {"id":2,"task":"a rather long name of a training task","priority":7,"busy_share":0.6,"launches_per_s":900,
    "held_share":0.25,"devices":[{"uuid":"GPU-a","gate":"closed","memory_bytes":2147483648}],
    "iteration":{"locked":false}},
   {"id":3,"task":"waiting","priority":5,"devices":[]}]})");

std::string text_of(size_t width) {
  std::string text;
  for (const TopLine& line : top_lines(kStatus, width)) {
    CHECK(line.text.size() <= std::max(width, kNarrowest));
    text += line.text + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("The picture is what the daemon says") {
  CHECK(text_of(130) ==
        "lulld 1, up 12 s, policy priority\n"
        "simulated GPU: sharing mps, slow motion 4\n"
        "\n"
        "device 0  Big GPU  busy 91.0 %  memory 3.0 GiB of 80.0 GiB\n"
        "  ID  TASK                                   PRIO  GATE      BUSY  LAUNCH/S    HELD   MEMORY  ITERATION  "
        "LAUNCHES  SLOWDOWN\n"
        "   1  serve                                  high  open    31.0 %     12.3k   0.0 %  1.0 GiB    7.66 ms  "
        "     156     1.02x\n"
        "   2  a rather long name of a training task  low   closed  60.0 %       900  25.0 %  2.0 GiB          -  "
        "       -         -\n"
        "\n"
        "2 programs on 1 GPU, nobody is held; 1 attached, no device used yet.\n");
}

TEST_CASE("The slowdown of a task with a bound of its own stands beside it") {
  json status = kStatus;
  status["clients"][0]["max_slowdown"] = {{"mean", 0.03}, {"p99", 0.05}};
  status["clients"][1]["max_slowdown"] = {{"mean", 0.005}, {"p99", 0.009}};
  const auto lines = top_lines(status, 140);
  CHECK(lines[5].text.ends_with("  1.02x of 1.03x"));
  CHECK(lines[6].text.ends_with("  - of 1.00x"));
  status["clients"][0]["max_slowdown"] = nullptr;
  CHECK(top_lines(status, 140)[5].text.ends_with("  1.02x"));
}

TEST_CASE("Narrow terminals lose columns, not the end of lines") {
  for (size_t width = 1; width <= 140; ++width) {
    const std::string text = text_of(width);
    INFO(width << "\n" << text);
    CHECK(text.find("serve") != std::string::npos);
    CHECK(text.find("TASK") != std::string::npos);
    if (width >= 40) CHECK(text.find("SLOWDOWN") != std::string::npos);
    CHECK((text.find("1.02x") != std::string::npos) ==
          (text.find("SLOWDOWN") != std::string::npos));
  }
}

TEST_CASE("The last line says in a sentence how it is, at any width") {
  for (const size_t width : {60, 80, 200}) CHECK(top_lines(kStatus, width).back().text.ends_with("."));
}

TEST_CASE("Names are shown as plain text, and nonsense is survived") {
  json status = kStatus;
  status["clients"][0]["task"] = "evil\x1b[2J\n\xc3\xa9";
  for (const TopLine& line : top_lines(status, 100)) {
    for (const char c : line.text) CHECK((c >= ' ' && c <= '~'));
  }
  for (const json& nonsense :
       {json(), json::array(), json{{"devices", 3}}, json{{"devices", {1, "x", nullptr}}},
        json{{"devices", {json::object()}}, {"clients", {{{"devices", {1}}}}}}}) {
    CHECK(!top_lines(nonsense, 80).empty());
  }
}
