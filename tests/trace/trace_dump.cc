// trace_dump FILE: every event as a line of JSON, then how the reading ended.
// trace_dump FILE SEED COUNT: whether the file is a prefix of random_events(SEED, COUNT); exit 1: not.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/trace/random_trace.h"

namespace {

using namespace lull::trace;
using nlohmann::json;

struct AsJson {
  json operator()(const DeviceInfo& e) const { return {{"kind", "device"}, {"device", e.device.value}, {"name", e.name}}; }
  json operator()(const ClientStarted& e) const {
    return {{"kind", "started"}, {"client", e.client.value}, {"pid", e.pid}, {"task", e.task}};
  }
  json operator()(const ClientEnded& e) const {
    return {{"kind", "ended"}, {"client", e.client.value}, {"launches", e.launches}, {"copies", e.copies},
            {"memsets", e.memsets}, {"dropped", e.dropped}};
  }
  json operator()(const KernelInfo& e) const {
    return {{"kind", "kernel"}, {"index", e.index}, {"unit", static_cast<int>(e.kind)}, {"name", e.name},
            {"grid", e.grid}, {"block", e.block}, {"shared_bytes", e.shared_bytes}, {"call_site", e.call_site}};
  }
  json operator()(const Launch& e) const {
    return {{"kind", "launch"}, {"client", e.client.value}, {"thread", e.thread.value}, {"stream", e.stream.value},
            {"kernel", e.kernel}, {"sequence", e.sequence}, {"at", e.at.ns}, {"held", e.held.ns}, {"held_by", e.held_by.value}};
  }
  json operator()(const Timing& e) const {
    return {{"kind", "timing"}, {"client", e.client.value}, {"stream", e.stream.value}, {"kernel", e.kernel},
            {"sequence", e.sequence}, {"start", e.start.ns}, {"duration", e.duration.ns}, {"gap", e.gap.ns}};
  }
  json operator()(const Waited& e) const {
    return {{"kind", "waited"}, {"client", e.client.value}, {"thread", e.thread.value}, {"from", e.from.ns}, {"until", e.until.ns}};
  }
  json operator()(const RangeInfo& e) const {
    return {{"kind", "range_info"}, {"index", e.index}, {"domain", e.domain}, {"name", e.name}};
  }
  json operator()(const Range& e) const {
    return {{"kind", "range"}, {"client", e.client.value}, {"thread", e.thread.value}, {"range", e.range},
            {"of", static_cast<int>(e.kind)}, {"depth", e.depth}, {"from", e.from.ns}, {"until", e.until.ns}};
  }
  json operator()(const Lost& e) const { return {{"kind", "lost"}, {"client", e.client.value}, {"records", e.records}}; }
  template <typename E>
  json operator()(const E&) const {
    return {{"kind", "other"}};
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    fmt::print(stderr, "usage: trace_dump FILE [SEED COUNT]\n");
    return 2;
  }
  auto reader = Reader::open(argv[1]);
  if (!reader) {
    fmt::print("{}\n", json{{"kind", "end"}, {"opened", false}, {"problem", reader.error()}}.dump());
    return argc == 4 ? 1 : 0;
  }
  std::vector<Event> expected;
  if (argc == 4) expected = random_events(std::strtoull(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10));
  size_t count = 0;
  while (const Event* event = reader->next()) {
    if (argc == 2) fmt::print("{}\n", std::visit(AsJson{}, *event).dump());
    if (argc == 4 && (count >= expected.size() || describe(*event) != describe(expected[count]))) {
      fmt::print("event {}: {}\n", count, describe(*event));
      return 1;
    }
    ++count;
  }
  fmt::print("{}\n", json{{"kind", "end"}, {"opened", true}, {"events", count}, {"problem", reader->problem()},
                          {"cut", reader->was_cut()}}.dump());
  return 0;
}
