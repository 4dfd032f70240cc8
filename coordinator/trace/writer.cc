#include "coordinator/trace/writer.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include "coordinator/trace/block_sink.h"
#include "coordinator/trace/event_codec.h"

namespace lull::trace {
namespace {

// Even definitions are not kept waiting beyond this many times the queue's length.
constexpr size_t kDefinitionsBeyond = 4;

struct ClientOf {
  ClientId operator()(const DeviceInfo&) const { return {}; }
  ClientId operator()(const PolicyChange&) const { return {}; }
  ClientId operator()(const KernelInfo&) const { return {}; }
  ClientId operator()(const RangeInfo&) const { return {}; }
  template <typename E>
  ClientId operator()(const E& event) const {
    return event.client;
  }
};
struct TimeOf {
  Instant operator()(const DeviceInfo&) const { return {}; }
  Instant operator()(const KernelInfo&) const { return {}; }
  Instant operator()(const RangeInfo&) const { return {}; }
  Instant operator()(const Range& event) const { return event.until; }
  Instant operator()(const Timing& event) const { return event.start; }
  Instant operator()(const Waited& event) const { return event.until; }
  template <typename E>
  Instant operator()(const E& event) const {
    return event.at;
  }
};

// Whatever names something, or says how it ended: a few, and the rest makes no sense without them.
bool is_kept_when_behind(const Event& event) {
  return !std::holds_alternative<Launch>(event) && !std::holds_alternative<Timing>(event) &&
         !std::holds_alternative<Synced>(event) && !std::holds_alternative<MemoryUse>(event) &&
         !std::holds_alternative<Waited>(event) && !std::holds_alternative<Range>(event);
}

}  // namespace

struct Writer::State {
  std::unique_ptr<BlockSink> sink;
  WhenBehind when_behind = WhenBehind::kDrop;
  BlockEncoder encoder;
  KernelIndex kernels = 0;
  RangeIndex ranges = 0;
  std::unordered_set<uint32_t> clients, devices;
  // The last pair found known: launches of one program need no look-up.
  ClientId known_client{UINT32_MAX};
  DeviceId known_device{UINT32_MAX};
  uint64_t dropped = 0;
  uint64_t in_block = 0;  // events added to it
  std::map<ClientId, uint64_t> lost;  // not said yet
  Instant latest{0};

  bool knows(ClientId client) {
    if (client == known_client) return true;
    if (!clients.contains(client.value)) return false;
    known_client = client;
    return true;
  }
  bool knows(DeviceId device) {
    if (device == known_device) return true;
    if (!devices.contains(device.value)) return false;
    known_device = device;
    return true;
  }
  bool fits(const Event& event) {
    if (!is_sane(event)) return false;
    if (const auto* e = std::get_if<Launch>(&event)) {
      return e->kernel < kernels && knows(e->device) && knows(e->client);
    }
    if (const auto* e = std::get_if<Timing>(&event)) {
      return e->kernel < kernels && knows(e->device) && knows(e->client);
    }
    if (const auto* e = std::get_if<MemoryUse>(&event)) {
      return knows(e->device) && knows(e->client);
    }
    if (const auto* e = std::get_if<KernelInfo>(&event)) return e->index == kernels;
    if (const auto* e = std::get_if<RangeInfo>(&event)) return e->index == ranges;
    if (const auto* e = std::get_if<Range>(&event)) return e->range < ranges && knows(e->client);
    const ClientId client = std::visit(ClientOf{}, event);
    return std::holds_alternative<DeviceInfo>(event) ||
           std::holds_alternative<PolicyChange>(event) ||
           std::holds_alternative<ClientStarted>(event) || knows(client);
  }
  void drop(const Event& event) {
    ++dropped;
    const ClientId client = std::visit(ClientOf{}, event);
    if (clients.contains(client.value)) ++lost[client];
  }
  void encode(const Event& event) {
    if (const auto* client = std::get_if<ClientStarted>(&event))
      clients.insert(client->client.value);
    if (const auto* device = std::get_if<DeviceInfo>(&event)) devices.insert(device->device.value);
    if (std::holds_alternative<KernelInfo>(event)) ++kernels;
    if (std::holds_alternative<RangeInfo>(event)) ++ranges;
    encoder.add(event);
    if (encoder.size() >= kBlockRawBytes) end_block();
  }
  void say_what_was_lost() {
    for (const auto& [client, records] : std::exchange(lost, {})) {
      encode(Lost{client, latest, records});
    }
  }
  void end_block() {
    if (encoder.empty()) return;
    if (when_behind == WhenBehind::kWait) sink->wait_for_room();
    sink->push(BlockType::kEvents, encoder.take(), std::exchange(in_block, 0));
  }
};

std::expected<Writer, std::string> Writer::create(const std::string& path, const FileInfo& info,
                                                  WhenBehind when_behind) {
  auto sink = BlockSink::create(path, FileKind::kTrace);
  if (!sink) return std::unexpected(sink.error());
  auto state = std::make_unique<State>();
  state->sink = std::move(*sink);
  state->when_behind = when_behind;
  // A trace without its head is none: known to be on disk before anything else is taken.
  state->sink->push(BlockType::kHead, encode_info(info));
  state->sink->wait_for_all();
  if (state->sink->has_failed()) return std::unexpected(state->sink->failure());
  return Writer(std::move(state));
}

Writer::Writer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&& other) noexcept {
  if (this != &other) {
    if (state_) flush();
    state_ = std::move(other.state_);
  }
  return *this;
}
Writer::~Writer() {
  if (state_) flush();
}

void Writer::add(const Event& event) {
  State& state = *state_;
  if (state.sink->has_failed() || !state.fits(event)) return state.drop(event);
  if (state.when_behind == WhenBehind::kDrop && !state.sink->has_room() &&
      (!is_kept_when_behind(event) ||
       state.sink->waiting_bytes() > kDefinitionsBeyond * kQueueBytes)) {
    return state.drop(event);
  }
  state.latest = std::max(state.latest, std::visit(TimeOf{}, event));
  if (!state.lost.empty()) [[unlikely]]
    state.say_what_was_lost();
  ++state.in_block;
  state.encode(event);
}

void Writer::flush() {
  State& state = *state_;
  if (!state.lost.empty() && state.sink->has_room() && !state.sink->has_failed()) {
    state.say_what_was_lost();
  }
  state.end_block();
}

std::expected<void, std::string> Writer::finish() {
  flush();
  state_->sink->wait_for_all();
  if (state_->sink->has_failed()) return std::unexpected(state_->sink->failure());
  return {};
}

uint64_t Writer::dropped() const { return state_->dropped + state_->sink->lost_records(); }
bool Writer::is_written() const { return state_->sink->is_idle(); }
uint64_t Writer::bytes() const { return state_->sink->bytes(); }
std::string Writer::failure() const { return state_->sink->failure(); }

}  // namespace lull::trace
