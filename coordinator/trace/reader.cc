#include "coordinator/trace/reader.h"

#include <fmt/format.h>

#include <unordered_set>

#include "coordinator/trace/block_file.h"
#include "coordinator/trace/event_codec.h"

namespace lull::trace {
namespace {

// Beyond these a file lies: no node sees so many.
constexpr size_t kMaxClients = 1UL << 22;
constexpr size_t kMaxDevices = 1UL << 16;
constexpr KernelIndex kMaxKernels = 1U << 26;
constexpr RangeIndex kMaxRanges = 1U << 24;

}  // namespace

struct Reader::State {
  explicit State(BlockFileReader file_) : file(std::move(file_)) {}

  BlockFileReader file;
  FileInfo info;
  BlockDecoder decoder;
  bool in_block = false;
  bool ended = false;
  Event event;
  KernelIndex kernels = 0;
  RangeIndex ranges = 0;
  std::unordered_set<uint32_t> clients, devices;
  ClientId known_client{};
  DeviceId known_device{};
  bool any_known = false;

  const Event* end() {
    ended = true;
    return nullptr;
  }
  const Event* blame(const std::string& what) {
    file.blame(what);
    return end();
  }
  bool knows(ClientId client) { return clients.contains(client.value); }
  bool knows(ClientId client, DeviceId device) {
    if (any_known && client == known_client && device == known_device) return true;
    if (!knows(client) || !devices.contains(device.value)) return false;
    known_client = client;
    known_device = device;
    return any_known = true;
  }

  // Takes over what an event defines. What is wrong with it, empty: nothing.
  std::string check(const DeviceInfo& e) {
    devices.insert(e.device.value);
    return devices.size() > kMaxDevices ? "too many devices" : "";
  }
  std::string check(const ClientStarted& e) {
    clients.insert(e.client.value);
    return clients.size() > kMaxClients ? "too many clients" : "";
  }
  std::string check(const KernelInfo&) { return ++kernels > kMaxKernels ? "too many kernels" : ""; }
  std::string check(const PolicyChange&) { return ""; }
  std::string check(const Launch& e) {
    if (e.kernel >= kernels) return unknown("a launch", "kernel", e.kernel);
    if (knows(e.client, e.device)) return "";
    return knows(e.client) ? unknown("a launch", "device", e.device.value)
                           : unknown("a launch", "client", e.client.value);
  }
  std::string check(const Timing& e) {
    if (e.kernel >= kernels) return unknown("a timing", "kernel", e.kernel);
    if (knows(e.client, e.device)) return "";
    return knows(e.client) ? unknown("a timing", "device", e.device.value)
                           : unknown("a timing", "client", e.client.value);
  }
  std::string check(const MemoryUse& e) {
    return knows(e.client, e.device) ? "" : "a use of memory names an unknown client or device";
  }
  std::string check(const RangeInfo& e) {
    if (e.index != ranges) return "a range is defined out of order";
    return ++ranges > kMaxRanges ? "too many ranges" : "";
  }
  std::string check(const Range& e) {
    if (e.range >= ranges) return unknown("a range", "name", e.range);
    return knows(e.client) ? "" : unknown("a range", "client", e.client.value);
  }
  template <typename E>
  std::string check(const E& e) {
    return knows(e.client) ? "" : unknown("an event", "client", e.client.value);
  }
  static std::string unknown(const char* who, const char* what, uint32_t index) {
    return fmt::format("{} names {} {}, which was not defined before", who, what, index);
  }
};

std::expected<Reader, std::string> Reader::open(const std::string& path) {
  auto file = BlockFileReader::open(path, FileKind::kTrace);
  if (!file) return std::unexpected(file.error());
  auto state = std::make_unique<State>(std::move(*file));
  const auto first = state->file.next();
  if (first == BlockFileReader::Result::kEnd || state->file.was_cut()) {
    return std::unexpected(fmt::format(
        "cannot read {}: byte {}: it ends before its first block: the recorder was killed at once: "
        "record again",
        path, kFileHeadBytes));
  }
  if (first == BlockFileReader::Result::kProblem) {
    return std::unexpected("cannot read " + state->file.problem());
  }
  if (state->file.type() != BlockType::kHead || !decode_info(state->file.raw(), state->info)) {
    return std::unexpected(
        fmt::format("cannot read {}: byte {}: the first block is no head of a trace: it was not "
                    "written by lull",
                    path, kFileHeadBytes));
  }
  state->info.format_version = kFormatVersion;
  return Reader(std::move(state));
}

Reader::Reader(std::unique_ptr<State> state) : state_(std::move(state)) {}
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;
Reader::~Reader() = default;

const FileInfo& Reader::info() const { return state_->info; }
const std::string& Reader::problem() const { return state_->file.problem(); }
bool Reader::was_cut() const { return state_->file.was_cut(); }

const Event* Reader::next() {
  State& state = *state_;
  while (!state.ended) {
    if (!state.in_block) {
      if (state.file.next() != BlockFileReader::Result::kBlock) return state.end();
      if (state.file.type() != BlockType::kEvents) return state.blame("a second head");
      if (!state.decoder.begin(state.file.raw())) return state.blame("its columns do not fit");
      state.in_block = true;
    }
    switch (state.decoder.next(state.event, state.kernels)) {
      case BlockDecoder::Result::kEnd:
        state.in_block = false;
        continue;
      case BlockDecoder::Result::kBad:
        return state.blame("an event cannot be decoded");
      case BlockDecoder::Result::kEvent:
        break;
    }
    if (!is_sane(state.event)) return state.blame("an event has a time or a level that cannot be");
    const std::string wrong =
        std::visit([&](const auto& event) { return state.check(event); }, state.event);
    if (!wrong.empty()) return state.blame(wrong);
    return &state.event;
  }
  return nullptr;
}

}  // namespace lull::trace
