// What a launch costs on disk, on the five real recordings, where they are at hand:
// LULL_SHARED_TRACES, or beside the checkout.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <unordered_map>

#include "tests/trace/random_trace.h"
#include "tools/play/kineto.h"

namespace lull::trace {
namespace {

std::filesystem::path folder_of_traces() {
  const char* named = std::getenv("LULL_SHARED_TRACES");
  return named != nullptr ? std::filesystem::path(named)
                          : std::filesystem::path(LULL_TRACES_BESIDE);
}

// What a recording of this program would have held: each launch when it was called, each timing
// when the unit had ended.
std::vector<Event> events_of(const play::KinetoTrace& trace, uint64_t& launches) {
  std::unordered_map<uint64_t, const play::TracedCall*> call_of;
  for (const play::TracedCall& call : trace.calls) call_of[call.correlation] = &call;
  struct Unit {
    const play::TracedDeviceOp* op;
    const play::TracedCall* call;
    Launch launch;
    Timing timing;
  };
  std::vector<Unit> units;
  for (const play::TracedDeviceOp& op : trace.device) {
    const auto found = call_of.find(op.correlation);
    units.push_back({&op, found == call_of.end() ? nullptr : found->second, {}, {}});
  }
  const auto called = [](const Unit& unit) {
    return unit.call != nullptr ? unit.call->start_ns : unit.op->start_ns;
  };
  std::stable_sort(units.begin(), units.end(),
                   [&](const Unit& a, const Unit& b) { return called(a) < called(b); });
  std::vector<Event> events{ClientStarted{.client = {1}, .task = "trace"},
                            DeviceInfo{.device = {0}, .name = "GPU"}};
  std::map<std::string, KernelIndex> kernels;
  std::map<int64_t, uint32_t> streams, threads;
  std::map<uint32_t, uint64_t> sequences;
  std::map<uint32_t, Unit*> last_of_thread;
  for (Unit& unit : units) {
    const auto& op = *unit.op;
    KernelInfo info{.name = trace.names[op.name],
                    .grid = {op.grid.x, op.grid.y, op.grid.z},
                    .block = {op.block.x, op.block.y, op.block.z},
                    .shared_bytes = op.shared_bytes};
    info.kind = op.work == play::DeviceWork::Kernel ? UnitKind::kKernel
                : op.work == play::DeviceWork::Copy ? UnitKind::kCopy
                                                    : UnitKind::kMemset;
    info.id = {std::hash<std::string>{}(describe(info)) | 1};
    info.image_hash = 0x1234567;
    const auto [kernel, fresh] =
        kernels.try_emplace(describe(info), static_cast<KernelIndex>(kernels.size()));
    if (fresh) {
      info.index = kernel->second;
      events.push_back(info);
    }
    const auto place = [](auto& map, int64_t key) {
      return map.try_emplace(key, static_cast<uint32_t>(map.size())).first->second;
    };
    const uint32_t thread = place(threads, unit.call != nullptr ? unit.call->thread : 0);
    const uint32_t stream = place(streams, op.stream);
    unit.launch = {.client = {1},
                   .thread = {thread},
                   .stream = {stream},
                   .kernel = kernel->second,
                   .sequence = ++sequences[stream],
                   .at = {called(unit)},
                   .bytes = op.bytes};
    unit.timing = {.client = {1},
                   .stream = {stream},
                   .sequence = unit.launch.sequence,
                   .kernel = kernel->second,
                   .start = {op.start_ns},
                   .duration = {op.end_ns - op.start_ns}};
    Unit*& last = last_of_thread[thread];
    if (last != nullptr && op.start_ns >= last->op->end_ns) {
      last->timing.gap = {op.start_ns - last->op->end_ns};
    }
    last = &unit;
  }
  std::multimap<int64_t, Event> by_time;
  for (const Unit& unit : units) {
    by_time.emplace(called(unit), unit.launch);
    by_time.emplace(unit.op->end_ns, unit.timing);
  }
  for (auto& [at, event] : by_time) events.push_back(std::move(event));
  launches = units.size();
  return events;
}

TEST_CASE("a launch with its timing costs at most 16 bytes on the real recordings") {
  if (!std::filesystem::exists(folder_of_traces())) {
    WARN("skipped: no traces in " << folder_of_traces().string());
    return;
  }
  uint64_t all_bytes = 0, all_launches = 0;
  std::string table;
  for (const char* name :
       {"h100-bert-small-inference", "h100-vit-image-detection-inference",
        "h100-qwen1.5-0.5b-inference", "h100-timesformer", "a100-training-4-streams"}) {
    const auto trace = play::read_kineto_file((folder_of_traces() / name).string() + ".json.gz");
    REQUIRE(trace.has_value());
    uint64_t launches = 0;
    const auto events = events_of(*trace, launches);
    TempFolder folder;
    write_trace(folder.file("a"), events);
    const auto bytes = std::filesystem::file_size(folder.file("a"));
    table += fmt::format("{:36} {:6} launches {:7} bytes {:6.2f} a launch\n", name, launches, bytes,
                         static_cast<double>(bytes) / static_cast<double>(launches));
    all_bytes += bytes;
    all_launches += launches;
    const WholeTrace got = read_trace(folder.file("a"));
    CHECK(got.problem.empty());
    CHECK(got.events == describe(events));
  }
  INFO(table);
  if (std::getenv("LULL_SHOW_FIGURES") != nullptr) WARN(table);
  CHECK(static_cast<double>(all_bytes) / static_cast<double>(all_launches) <= 16);
}

}  // namespace
}  // namespace lull::trace
