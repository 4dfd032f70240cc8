#include "tools/play/workload.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

using namespace lull::play;

namespace {

std::string with(const std::string& kernels, const std::string& ops, const std::string& head = "") {
  return "{\"lull_workload\": 1, \"name\": \"w\", \"streams\": 2, " + head + "\"kernels\": [" +
         kernels + "], \"ops\": [" + ops + "]}";
}
const std::string kKernel = R"({"name": "k", "grid": [4], "block": [32], "duration_ns": 1000})";

std::string error_of(const std::string& text) {
  const auto workload = parse_workload(text, "w.json");
  REQUIRE_FALSE(workload.has_value());
  CHECK(workload.error().find('\n') == std::string::npos);
  return workload.error();
}

}  // namespace

TEST_CASE("a workload is read with its defaults and closed by a wait for everything") {
  const auto w = parse_workload(
      with(kKernel, R"({"launch": 0, "pause_ns": 7}, {"copy": "d2h", "bytes": 4, "stream": 1})",
           "\"call_ns\": 3000, \"pause_after_ns\": 50, "),
      "w.json");
  REQUIRE(w.has_value());
  CHECK(w->name == "w");
  CHECK(w->kind == "other");
  CHECK(w->streams == 2);
  CHECK(w->pause_after_ns == 50);
  REQUIRE(w->ops.size() == 3);
  CHECK(w->ops[0].duration_ns == 1000);
  CHECK(w->ops[0].pause_ns == 7);
  CHECK(w->ops[0].call_ns == 3000);
  CHECK(w->ops[1].kind == OpKind::CopyToHost);
  CHECK_FALSE(w->ops[1].pageable);
  CHECK(w->ops[1].stream == 1);
  CHECK(w->ops[2].kind == OpKind::DeviceSync);
  CHECK(w->ops[2].call_ns == 0);
  const auto sum = totals(*w);
  CHECK(sum.launches == 1);
  CHECK(sum.kernel_ns == 1000);
  CHECK(sum.copies == 1);
  CHECK(sum.syncs == 1);
  CHECK(sum.host_ns == 50 + 7 + 3000 + 3000);
}

TEST_CASE("repeats are written out, nested ones too") {
  const auto w = parse_workload(
      with(kKernel, R"({"repeat": 3, "ops": [{"launch": 0}, {"repeat": 2, "ops": [{"memset": 8}]}]},
                       {"sync": "device"})"),
      "w.json");
  REQUIRE(w.has_value());
  CHECK(totals(*w).launches == 3);
  CHECK(totals(*w).memsets == 6);
  CHECK(w->ops.size() == 10);
}

TEST_CASE("events count up to the highest index") {
  const auto w = parse_workload(with("", R"({"record": 4}, {"wait": 4, "stream": 1})"), "w.json");
  REQUIRE(w.has_value());
  CHECK(w->events == 5);
  CHECK(w->ops[1].kind == OpKind::EventWait);
}

TEST_CASE("what is wrong in a workload is said with its place and what would be right") {
  struct Row {
    std::string text, place, right;
  };
  const std::string ok_op = R"({"launch": 0})";
  const Row rows[] = {
      {"", "it is cut off", "whole workload"},
      {"{\"lull_workload\": 1, \"na", "it is cut off (line 1", "whole workload"},
      {"{\"lull_workload\": 1]", "it is not JSON", "whole workload"},
      {"[]", "/ is []", "object"},
      {"{}", "/lull_workload is missing", "whole number"},
      {R"({"lull_workload": 2, "name": "w", "ops": []})", "/lull_workload version 2",
       "reads version 1"},
      {R"({"lull_workload": 1, "ops": []})", "/name is missing", "text"},
      {R"({"lull_workload": 1, "name": "", "ops": []})", "/name is \"\"", "1 to 200"},
      {R"({"lull_workload": 1, "name": "w\n", "ops": []})", "/name is", "control"},
      {R"({"lull_workload": 1, "name": "w"})", "/ops is missing", "operations"},
      {R"({"lull_workload": 1, "name": "w", "ops": []})", "/ops is empty", "at least one"},
      {R"({"lull_workload": 1, "name": "w", "kernel": [], "ops": [{"memset": 1}]})",
       "/kernel is not a known key", "kernels"},
      {with(kKernel, ok_op, "\"kind\": \"game\", "), "/kind is \"game\"", "inference, training"},
      {with(kKernel, ok_op, "\"pause_after_ns\": -1, "), "/pause_after_ns is -1", "nanoseconds"},
      {R"({"lull_workload": 1, "name": "w", "streams": 0, "ops": [{"memset": 1}]})",
       "/streams is 0", "from 1 to 128"},
      {R"({"lull_workload": 1, "name": "w", "streams": 1000, "ops": [{"memset": 1}]})",
       "/streams is 1000", "from 1 to 128"},
      {with(R"({"name": "k", "grid": [0], "block": [32]})", ok_op), "/kernels/0/grid/0 is 0",
       "from 1"},
      {with(R"({"name": "k", "grid": [1, 65536], "block": [32]})", ok_op),
       "/kernels/0/grid/1 is 65536", "65535"},
      {with(R"({"name": "k", "grid": 4, "block": [32]})", ok_op), "/kernels/0/grid is 4",
       "[x, y, z]"},
      {with(R"({"name": "k", "grid": [1], "block": [32, 64]})", ok_op),
       "/kernels/0/block is [32,64]", "1024 threads"},
      {with(R"({"name": "k", "block": [32]})", ok_op), "/kernels/0/grid is missing", "[x, y, z]"},
      {with(R"({"name": "k", "grid": [1], "block": [1], "shared_bytes": 1000000})", ok_op),
       "/kernels/0/shared_bytes is 1000000", "232448"},
      {with(R"({"name": "k", "grid": [1], "block": [1], "duration_ns": 0})", ok_op),
       "/kernels/0/duration_ns is 0", "from 1"},
      {with(R"({"name": "k", "grid": [1], "block": [1]})", ok_op), "/ops/0/duration_ns is missing",
       "from 1"},
      {with(kKernel, R"({"launch": 1})"), "/ops/0/launch is 1", "from 0 to 0"},
      {with("", ok_op), "/ops/0/launch", "/kernels first"},
      {with(kKernel, R"({"launch": 0, "duration_ns": -5})"), "/ops/0/duration_ns is -5",
       "600000000000 (nanoseconds)"},
      {with(kKernel, R"({"launch": 0, "duration_ns": 1e30})"), "/ops/0/duration_ns is 1e+30",
       "nanoseconds"},
      {with(kKernel, R"({"launch": 0, "duration_ns": 1.5})"), "/ops/0/duration_ns is 1.5", "whole"},
      {with(kKernel, R"({"launch": 0, "pause_ns": 99999999999999})"),
       "/ops/0/pause_ns is 99999999999999", "nanoseconds"},
      {with(kKernel, R"({"launch": 0, "pause_us": 4})"), "/ops/0/pause_us is not a known key",
       "pause_ns"},
      {with(kKernel, R"({"launch": 0, "stream": 2})"), "/ops/0/stream is 2", "from 0 to 1"},
      {with(kKernel, R"({"launch": 0, "sync": "device"})"), "/ops/0 has both launch and sync",
       "exactly one"},
      {with(kKernel, R"({"pause_ns": 3})"), "/ops/0 says no operation", "exactly one"},
      {with(kKernel, "7"), "/ops/0 is 7", "object"},
      {with("", R"({"copy": "h2h", "bytes": 4})"), "/ops/0/copy is \"h2h\"", "h2d, d2h or d2d"},
      {with("", R"({"copy": "h2d"})"), "/ops/0/bytes is missing", "from 1"},
      {with("", R"({"copy": "h2d", "bytes": 0})"), "/ops/0/bytes is 0", "from 1"},
      {with("", R"({"copy": "d2d", "bytes": 4, "memory": "pinned"})"), "/ops/0/memory is",
       "h2d and d2h only"},
      {with("", R"({"sync": "event"})"), "/ops/0/sync is \"event\"", "stream or device"},
      {with("", R"({"sync": "stream", "call_ns": 4})"), "/ops/0/call_ns is not a known key",
       "sync"},
      {with("", R"({"record": 65536})"), "/ops/0/record is 65536", "65535"},
      {with("", R"({"repeat": 0, "ops": [{"memset": 1}]})"), "/ops/0/repeat is 0", "from 1"},
      {with("", R"({"repeat": 2, "ops": []})"), "/ops/0/ops is empty", "at least one"},
      {with("", R"({"repeat": 2})"), "/ops/0/ops is missing", "repeated"},
      {with("", R"({"repeat": 4000000, "ops": [{"memset": 1}, {"memset": 1}]})"),
       "/ops/0 makes the iteration too long", "4000000"},
      {with("", R"({"repeat": 3000, "ops": [{"repeat": 3000, "ops": [{"memset": 1}]}]})"),
       "/ops/0 makes the iteration too long", "4000000"},
  };
  for (const Row& row : rows) {
    INFO(row.text);
    const std::string error = error_of(row.text);
    INFO(error);
    CHECK(error.starts_with("cannot read w.json: "));
    CHECK(error.find(row.place) != std::string::npos);
    CHECK(error.find(row.right) != std::string::npos);
  }
}

TEST_CASE("a workload cut off at any byte is an error of one line") {
  const std::string text = with(kKernel, R"({"launch": 0, "stream": 1}, {"sync": "stream"})");
  REQUIRE(parse_workload(text, "w.json").has_value());
  for (size_t length = 0; length < text.size(); ++length) error_of(text.substr(0, length));
}

TEST_CASE("writing a workload and reading it again gives the same workload") {
  Workload w;
  w.name = "round \"trip\"";
  w.kind = "training";
  w.description = "a line";
  w.streams = 3;
  w.events = 2;
  w.pause_after_ns = 12;
  w.kernels = {{"void f<int>(char\\)", {1, 2, 3}, {4, 5, 6}, 99}, {"g", {7, 1, 1}, {1, 1, 1}, 0}};
  for (const OpKind kind :
       {OpKind::Launch, OpKind::CopyToDevice, OpKind::CopyToHost, OpKind::CopyOnDevice,
        OpKind::Memset, OpKind::StreamSync, OpKind::EventRecord, OpKind::EventWait}) {
    Op op;
    op.kind = kind;
    op.stream = 2;
    op.pause_ns = 5;
    if (!op.is_sync()) op.call_ns = 6;
    if (kind == OpKind::Launch) op.kernel = 1, op.duration_ns = 77;
    if (op.is_copy() || kind == OpKind::Memset) op.bytes = 1234, op.recorded_ns = 8;
    op.pageable = kind == OpKind::CopyToHost;
    if (kind == OpKind::EventRecord || kind == OpKind::EventWait) op.event = 1;
    w.ops.push_back(op);
  }
  close_iteration(w);
  const auto again = parse_workload(write_workload(w), "again.json");
  REQUIRE(again.has_value());
  CHECK(*again == w);
}

TEST_CASE("every shipped workload is read, is closed and survives a round trip") {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LULL_EXAMPLE_WORKLOADS)) {
    if (entry.path().extension() != ".json") continue;
    ++count;
    INFO(entry.path().string());
    const auto workload = load_workload(entry.path().string());
    REQUIRE(workload.has_value());
    CHECK(workload->name == entry.path().stem().string());
    CHECK(workload->kind != "other");
    CHECK(workload->ops.back().kind == OpKind::DeviceSync);
    CHECK(entry.file_size() < 60'000);
    const auto again = parse_workload(write_workload(*workload), "again.json");
    REQUIRE(again.has_value());
    CHECK(*again == *workload);
  }
  CHECK(count >= 4);
}

TEST_CASE("a workload is known by its key, wherever in the file that stands") {
  std::string kernels = kKernel;
  while (kernels.size() < 600'000) kernels += ", " + kKernel;
  const std::string path = "/tmp/lull-late-key-" + std::to_string(getpid()) + ".json";
  std::ofstream(path) << R"({"kernels": [)" << kernels << R"(], "lull_workload": 1, "name": "late", )"
                      << R"("ops": [{"launch": 0}], "streams": 1})";
  const auto workload = load_workload(path);
  std::filesystem::remove(path);
  INFO((workload ? "" : workload.error()));
  REQUIRE(workload.has_value());
  CHECK(workload->name == "late");
}

TEST_CASE("files that are no workload are refused by name and reason") {
  const auto missing = load_workload("/nonexistent/w.json");
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.error().starts_with("cannot read /nonexistent/w.json: no such file: "));
  const auto folder = load_workload("/");
  REQUIRE_FALSE(folder.has_value());
  CHECK(folder.error().find("not a regular file") != std::string::npos);
}
