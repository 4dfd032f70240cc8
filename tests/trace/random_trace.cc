#include "tests/trace/random_trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>

namespace lull::trace {
namespace {

struct Describe {
  std::string operator()(const DeviceInfo& e) const {
    return fmt::format("device {} {} {} {}", e.device.value, e.uuid, e.name, e.total_bytes);
  }
  std::string operator()(const ClientStarted& e) const {
    return fmt::format("started {} {} {} {} {} {} {}", e.client.value, e.at.ns, e.pid,
                       e.priority.level, e.task, e.job, e.program);
  }
  std::string operator()(const ClientEnded& e) const {
    return fmt::format("ended {} {} {} {} {} {}", e.client.value, e.at.ns, e.launches, e.copies,
                       e.memsets, e.dropped);
  }
  std::string operator()(const PriorityChange& e) const {
    return fmt::format("priority {} {} {}", e.client.value, e.at.ns, e.priority.level);
  }
  std::string operator()(const PolicyChange& e) const {
    return fmt::format("policy {} {}", e.at.ns, e.policy);
  }
  std::string operator()(const KernelInfo& e) const {
    return fmt::format("kernel {} {} {} {} {} {} {} {} {} {}", e.index, e.id.value, e.image_hash,
                       static_cast<int>(e.kind), e.name, e.grid, e.block, e.shared_bytes,
                       e.graph_kernels, e.call_site);
  }
  std::string operator()(const Launch& e) const {
    return fmt::format("launch {} {} {} {} {} {} {} {} {} {}", e.client.value, e.device.value,
                       e.thread.value, e.stream.value, e.kernel, e.sequence, e.at.ns, e.held.ns,
                       e.held_by.value, e.bytes);
  }
  std::string operator()(const Timing& e) const {
    return fmt::format("timing {} {} {} {} {} {} {} {}", e.client.value, e.device.value,
                       e.stream.value, e.sequence, e.kernel, e.start.ns, e.duration.ns, e.gap.ns);
  }
  std::string operator()(const Synced& e) const {
    return fmt::format("synced {} {} {} {}", e.client.value, e.stream.value, e.sequence, e.at.ns);
  }
  std::string operator()(const MemoryUse& e) const {
    return fmt::format("memory {} {} {} {}", e.client.value, e.device.value, e.at.ns, e.used_bytes);
  }
  std::string operator()(const Lost& e) const {
    return fmt::format("lost {} {} {}", e.client.value, e.at.ns, e.records);
  }
  std::string operator()(const RangeInfo& e) const {
    return fmt::format("range info {} {} {}", e.index, e.domain, e.name);
  }
  std::string operator()(const Range& e) const {
    return fmt::format("range {} {} {} {} {} {} {}", e.client.value, e.thread.value, e.range,
                       static_cast<int>(e.kind), e.depth, e.from.ns, e.until.ns);
  }
  std::string operator()(const Waited& e) const {
    return fmt::format("waited {} {} {} {}", e.client.value, e.thread.value, e.from.ns, e.until.ns);
  }
  std::string operator()(const Cancelled& e) const {
    return fmt::format("cancelled {} {} {} {}", e.client.value, e.stream.value, e.sequence,
                       e.at.ns);
  }
};

}  // namespace

TempFolder::TempFolder() {
  char name[] = "/tmp/lull-trace-test-XXXXXX";
  if (::mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = name;
}
TempFolder::~TempFolder() { std::filesystem::remove_all(path_); }

FileInfo some_info() {
  FileInfo info;
  info.created_unix_ns = 1'700'000'000'123'456'789;
  info.created_at = {42};
  info.lull_version = "0.1.0";
  info.host = "host";
  info.source = "test";
  info.command = "python train.py";
  info.simulated = true;
  info.slow_motion = 2.5;
  info.sharing = "mps";
  return info;
}

std::vector<Event> random_events(uint64_t seed, size_t count) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return random() % n; };
  const auto wide = [&] { return random() >> (random() % 64); };
  const auto time = [&] { return Instant{static_cast<int64_t>(wide() >> 2)}; };
  const auto length = [&] { return Duration{static_cast<int64_t>(wide() >> 2)}; };
  const auto text = [&] { return std::string(below(60), static_cast<char>('a' + below(26))); };
  uint32_t kernels = 0, clients = 0, devices = 0, ranges = 0;
  std::vector<Event> events;
  const auto client = [&] { return ClientId{static_cast<uint32_t>(1 + below(clients))}; };
  const auto device = [&] { return DeviceId{static_cast<uint32_t>(below(devices))}; };
  Instant now{0};
  std::vector<uint64_t> sequences(64);
  while (events.size() < count) {
    now = now + Duration{static_cast<int64_t>(below(5000))};
    const uint64_t dice = below(100);
    if (clients == 0 || dice == 0) {
      events.push_back(ClientStarted{.client = {++clients},
                                     .at = now,
                                     .pid = static_cast<int32_t>(random()),
                                     .priority = {static_cast<uint8_t>(below(10))},
                                     .task = text(),
                                     .job = text(),
                                     .program = text()});
    } else if (devices == 0 || dice == 1) {
      events.push_back(DeviceInfo{{devices++}, text(), text(), wide()});
    } else if (kernels == 0 || dice < 6) {
      const auto three = [&] {
        return std::array{static_cast<uint32_t>(wide()), static_cast<uint32_t>(wide()), 1U};
      };
      events.push_back(KernelInfo{.index = kernels++,
                                  .id = {random()},
                                  .image_hash = random(),
                                  .kind = static_cast<UnitKind>(below(4)),
                                  .name = text(),
                                  .grid = three(),
                                  .block = three(),
                                  .shared_bytes = static_cast<uint32_t>(wide()),
                                  .graph_kernels = static_cast<uint32_t>(below(9)),
                                  .call_site = text()});
    } else if (dice < 50) {
      Launch launch{.client = client(),
                    .device = device(),
                    .thread = {static_cast<uint32_t>(below(3))},
                    .stream = {static_cast<uint32_t>(below(4))},
                    .kernel = static_cast<uint32_t>(below(kernels)),
                    .sequence = below(20) == 0 ? wide() : ++sequences[below(4)],
                    .at = below(20) == 0 ? time() : now};
      if (below(8) == 0) launch.held = length();
      if (below(8) == 0) launch.held_by = client();
      if (below(8) == 0) launch.bytes = wide();
      events.push_back(launch);
    } else if (dice < 90) {
      Timing timing{
          .client = client(),
          .device = device(),
          .stream = {static_cast<uint32_t>(below(4))},
          .sequence = below(20) == 0 ? wide() : sequences[below(4)],
          .kernel = static_cast<uint32_t>(below(kernels)),
          .start = below(3) == 0 ? Instant{-1} : now,
          .duration = below(20) == 0 ? length() : Duration{static_cast<int64_t>(below(90'000))}};
      if (below(3) != 0)
        timing.gap = below(20) == 0 ? length() : Duration{static_cast<int64_t>(below(2000))};
      events.push_back(timing);
    } else if (dice < 92) {
      events.push_back(Synced{client(), {static_cast<uint32_t>(below(4))}, wide(), now});
    } else if (dice < 93 && (ranges == 0 || below(3) == 0)) {
      events.push_back(RangeInfo{ranges++, text(), text()});
    } else if (dice < 93 && below(2) == 0) {
      events.push_back(Range{.client = client(),
                             .thread = {static_cast<uint32_t>(below(4))},
                             .range = static_cast<RangeIndex>(below(ranges)),
                             .kind = static_cast<RangeKind>(below(3)),
                             .depth = static_cast<uint32_t>(below(9)),
                             .from = now,
                             .until = now + Duration{static_cast<int64_t>(below(90'000))}});
    } else if (dice < 93) {
      events.push_back(Waited{client(), {static_cast<uint32_t>(below(4))}, now, now + Duration{static_cast<int64_t>(below(90'000))}});
    } else if (dice < 94) {
      events.push_back(MemoryUse{client(), device(), now, wide()});
    } else if (dice < 95) {
      events.push_back(Lost{client(), now, wide()});
    } else if (dice < 96) {
      events.push_back(PriorityChange{client(), now, {static_cast<uint8_t>(below(10))}});
    } else if (dice < 97) {
      events.push_back(PolicyChange{now, text()});
    } else if (dice < 98) {
      events.push_back(Cancelled{client(), {static_cast<uint32_t>(below(4))}, wide(), now});
    } else {
      events.push_back(ClientEnded{client(), now, wide(), wide(), wide(), wide()});
    }
  }
  return events;
}

std::string describe(const Event& event) { return std::visit(Describe{}, event); }
std::vector<std::string> describe(const std::vector<Event>& events) {
  std::vector<std::string> all;
  for (const Event& event : events) all.push_back(describe(event));
  return all;
}

void write_trace(const std::string& path, const std::vector<Event>& events, size_t flush_every) {
  auto writer = Writer::create(path, some_info(), Writer::WhenBehind::kWait);
  if (!writer) throw std::runtime_error(writer.error());
  for (size_t n = 0; n < events.size(); ++n) {
    writer->add(events[n]);
    if (flush_every != 0 && n % flush_every == flush_every - 1) writer->flush();
  }
  if (const auto done = writer->finish(); !done) throw std::runtime_error(done.error());
}

WholeTrace read_trace(const std::string& path) {
  WholeTrace whole;
  auto reader = Reader::open(path);
  if (!reader) {
    whole.open_error = reader.error();
    return whole;
  }
  whole.info = reader->info();
  while (const Event* event = reader->next()) whole.events.push_back(describe(*event));
  whole.problem = reader->problem();
  whole.was_cut = reader->was_cut();
  return whole;
}

std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}
void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace lull::trace
