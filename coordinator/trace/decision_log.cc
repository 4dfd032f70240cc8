#include "coordinator/trace/decision_log.h"

#include <fmt/format.h>

#include <utility>

#include "coordinator/trace/block_sink.h"
#include "coordinator/trace/byte_stream.h"

namespace lull::trace {
namespace {

using namespace engine;

enum RecordKind : uint8_t { kBegun = 1, kStep = 2 };

// Every field of what goes in and out, once, for both directions.
template <typename Codec>
void fields(Codec& c, ClientAttached& e) {
  c.id(e.client), c.id(e.job), c.priority(e.priority), c.text(e.task), c.bound(e.bound),
      c.number(e.counted);
}
template <typename Codec>
void fields(Codec& c, ClientDetached& e) {
  c.id(e.client);
}
template <typename Codec>
void fields(Codec& c, DeviceUsed& e) {
  c.id(e.client), c.id(e.device), c.text(e.model);
}
template <typename Codec>
void fields(Codec& c, PriorityChanged& e) {
  c.id(e.client), c.priority(e.priority);
}
template <typename Codec>
void fields(Codec& c, PolicyChanged& e) {
  c.text(e.policy);
}
template <typename Codec>
void fields(Codec& c, Launched& e) {
  c.id(e.client), c.id(e.device), c.id(e.stream), c.number(e.sequence), c.id(e.kernel),
      c.time(e.at), c.number(e.tracked), c.id(e.ticket), c.id(e.thread),
      c.length(e.charged), c.number(e.memory_bytes), c.number(e.copy);
}
template <typename Codec>
void fields(Codec& c, LaunchesMissed& e) {
  c.id(e.client), c.number(e.count);
}
template <typename Codec>
void fields(Codec& c, Held& e) {
  c.id(e.client), c.id(e.device), c.id(e.thread), c.id(e.stream), c.id(e.ticket), c.id(e.kernel),
      c.time(e.at);
}
template <typename Codec>
void fields(Codec& c, engine::Cancelled& e) {
  c.id(e.client), c.id(e.stream), c.number(e.sequence);
}
template <typename Codec>
void fields(Codec& c, Progressed& e) {
  c.id(e.client), c.id(e.stream), c.number(e.sequence), c.time(e.synced);
}
template <typename Codec>
void fields(Codec& c, Timed& e) {
  c.id(e.client), c.id(e.kernel), c.length(e.duration), c.length(e.gap), c.time(e.launched),
      c.id(e.stream), c.number(e.sequence);
}
template <typename Codec>
void fields(Codec&, TimerFired&) {}
template <typename Codec>
void fields(Codec& c, TaskRecalled& e) {
  c.id(e.client), c.text(e.record);
}
template <typename Codec>
void fields(Codec& c, JobStopped& e) {
  c.id(e.job), c.time(e.close_by), c.time(e.stand_by);
}
template <typename Codec>
void fields(Codec& c, JobContinued& e) {
  c.id(e.job);
}
template <typename Codec>
void fields(Codec& c, DeviceLeft& e) {
  c.id(e.client), c.id(e.device);
}

template <typename Codec>
void fields(Codec& c, SetGate& e) {
  c.id(e.client), c.id(e.device), c.gate(e.gate), c.length(e.granted), c.number(e.new_epoch);
}
template <typename Codec>
void fields(Codec& c, Release& e) {
  c.id(e.client), c.id(e.thread), c.id(e.ticket);
}
template <typename Codec>
void fields(Codec& c, SetProgress& e) {
  c.id(e.client), c.id(e.device), c.number(e.every);
}
template <typename Codec>
void fields(Codec& c, Predict& e) {
  c.id(e.client), c.id(e.kernel), c.length(e.length);
}
template <typename Codec>
void fields(Codec& c, SetTimer& e) {
  c.time(e.at);
}
template <typename Codec>
void fields(Codec& c, Notice& e) {
  c.text(e.text);
}
template <typename Codec>
void fields(Codec& c, JobStands& e) {
  c.id(e.job), c.number(e.drained);
}
template <typename Codec>
void fields(Codec& c, EngineBegun& e) {
  c.text(e.policy), c.number(e.max_clients), c.length(e.control_latency), c.length(e.marker);
}
template <typename Codec>
void fields(Codec& c, DecisionLogInfo& e) {
  c.text(e.lull_version), c.text(e.host), c.number(e.created_unix_ns);
}

// Instants as distances from the step's.
struct StepSink : FieldSink {
  Instant now{0};
  void priority(Priority& value) { to.byte(value.level); }
  void bound(SlowdownBound& value) {
    to.integer(value.mean_per_mille), to.integer(value.p99_per_mille);
  }
  void time(Instant& value) {
    to.distance(static_cast<uint64_t>(now.ns), static_cast<uint64_t>(value.ns));
  }
  void length(Duration& value) { to.integer(value.ns); }
  void gate(Gate& value) { to.byte(static_cast<uint8_t>(value)); }
};

struct StepSource : FieldSource {
  Instant now{0};
  void priority(Priority& value) { value.level = from.byte(); }
  void bound(SlowdownBound& value) {
    for (int32_t* part : {&value.mean_per_mille, &value.p99_per_mille}) {
      const int64_t raw = from.integer();
      *part = static_cast<int32_t>(raw);
      fits = fits && *part == raw;
    }
  }
  void time(Instant& value) {
    value.ns = static_cast<int64_t>(from.from(static_cast<uint64_t>(now.ns)));
  }
  void length(Duration& value) { value.ns = from.integer(); }
  void gate(Gate& value) { choice(value, from.byte(), Gate::kClosed); }
};

template <typename Variant>
void put_all(ByteSink& out, Instant now, std::span<const Variant> all) {
  out.number(all.size());
  StepSink sink{{out}, now};
  for (const Variant& one : all) {
    out.byte(static_cast<uint8_t>(one.index()));
    Variant copy = one;
    std::visit([&](auto& fields_of) { fields(sink, fields_of); }, copy);
  }
}

// The alternative with this number, or false.
template <typename Variant, size_t N = 0>
bool make(size_t index, StepSource& source, std::vector<Variant>& all) {
  if constexpr (N < std::variant_size_v<Variant>) {
    if (index != N) return make<Variant, N + 1>(index, source, all);
    std::variant_alternative_t<N, Variant> value{};
    fields(source, value);
    if (!source.good()) return false;
    all.emplace_back(std::in_place_index<N>, std::move(value));
    return true;
  } else {
    return false;
  }
}
template <typename Variant>
bool get_all(ByteSource& in, Instant now, std::vector<Variant>& all) {
  const uint64_t count = in.number();
  StepSource source{{in}, now};
  for (uint64_t n = 0; n < count; ++n) {
    if (in.bad() || !make(in.byte(), source, all)) return false;
  }
  return !in.bad();
}

}  // namespace

std::vector<uint8_t> outputs_as_bytes(std::span<const Output> outputs) {
  ByteSink out;
  put_all(out, Instant{0}, outputs);
  return out.take();
}
std::vector<uint8_t> inputs_as_bytes(std::span<const Input> inputs) {
  ByteSink out;
  put_all(out, Instant{0}, inputs);
  return out.take();
}

// ---- writing ----------------------------------------------------------------------------------

struct DecisionLogWriter::State {
  std::unique_ptr<BlockSink> sink;
  ByteSink block;
  Instant last{0};
  uint64_t steps = 0;
  std::string failure;  // of ours: the disk fell behind, a step is too large

  bool stopped() const { return !failure.empty() || sink->has_failed(); }
  void end_block() {
    if (block.size() != 0) sink->push(BlockType::kEvents, block.take());
    block = {};
    last = {0};
  }
};

std::expected<DecisionLogWriter, std::string> DecisionLogWriter::create(
    const std::string& path, const DecisionLogInfo& info) {
  auto sink = BlockSink::create(path, FileKind::kDecisionLog);
  if (!sink) return std::unexpected(sink.error());
  auto state = std::make_unique<State>();
  state->sink = std::move(*sink);
  ByteSink head;
  StepSink fields_of{{head}};
  DecisionLogInfo copy = info;
  fields(fields_of, copy);
  state->sink->push(BlockType::kHead, head.take());
  state->sink->wait_for_all();
  if (state->sink->has_failed()) return std::unexpected(state->sink->failure());
  return DecisionLogWriter(std::move(state));
}

DecisionLogWriter::DecisionLogWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
DecisionLogWriter::DecisionLogWriter(DecisionLogWriter&&) noexcept = default;
DecisionLogWriter& DecisionLogWriter::operator=(DecisionLogWriter&& other) noexcept {
  if (this != &other) {
    if (state_) flush();
    state_ = std::move(other.state_);
  }
  return *this;
}
DecisionLogWriter::~DecisionLogWriter() {
  if (state_) flush();
}

void DecisionLogWriter::begun(const EngineOptions& options) {
  if (state_->stopped()) return;
  state_->block.byte(kBegun);
  StepSink sink{{state_->block}};
  EngineBegun record{options.policy, options.max_clients, options.control_latency, options.marker};
  fields(sink, record);
}

void DecisionLogWriter::step(Instant now, std::span<const Input> inputs,
                             std::span<const Output> outputs) {
  State& state = *state_;
  if (state.stopped()) return;
  if (!state.sink->has_room()) {
    state.failure = fmt::format("cannot write {}: the disk is slower than the daemon: the log ends "
                                "here", state.sink->path());
    return;
  }
  ByteSink record;
  record.byte(kStep);
  record.distance(static_cast<uint64_t>(state.last.ns), static_cast<uint64_t>(now.ns));
  put_all(record, now, inputs);
  put_all(record, now, outputs);
  if (record.size() > kMaxBlockRawBytes - kBlockRawBytes) {
    state.failure = fmt::format("cannot write {}: a step of {} bytes: the log ends here",
                                state.sink->path(), record.size());
    return;
  }
  state.last = now;
  state.block.append(record);
  ++state.steps;
  if (state.block.size() >= kBlockRawBytes) state.end_block();
}

void DecisionLogWriter::flush() { state_->end_block(); }

std::expected<void, std::string> DecisionLogWriter::finish() {
  flush();
  state_->sink->wait_for_all();
  if (state_->stopped()) return std::unexpected(failure());
  return {};
}

bool DecisionLogWriter::has_unflushed() const { return state_->block.size() != 0; }
uint64_t DecisionLogWriter::steps() const { return state_->steps; }
uint64_t DecisionLogWriter::bytes() const { return state_->sink->bytes(); }
std::string DecisionLogWriter::failure() const {
  return state_->failure.empty() ? state_->sink->failure() : state_->failure;
}

// ---- reading ----------------------------------------------------------------------------------

struct DecisionLogReader::State {
  explicit State(BlockFileReader file_) : file(std::move(file_)) {}
  BlockFileReader file;
  DecisionLogInfo info;
  ByteSource block;
  Instant last{0};
  bool ended = false;
  Decision decision;

  const Decision* blame(const char* what) {
    file.blame(what);
    ended = true;
    return nullptr;
  }
};

std::expected<DecisionLogReader, std::string> DecisionLogReader::open(const std::string& path) {
  auto file = BlockFileReader::open(path, FileKind::kDecisionLog);
  if (!file) return std::unexpected(file.error());
  auto state = std::make_unique<State>(std::move(*file));
  if (state->file.next() != BlockFileReader::Result::kBlock) {
    return std::unexpected(
        state->file.problem().empty()
            ? fmt::format("cannot read {}: byte {}: it ends before its first block: record again",
                          path, kFileHeadBytes)
            : "cannot read " + state->file.problem());
  }
  ByteSource in(state->file.raw());
  StepSource source{{in}};
  fields(source, state->info);
  if (state->file.type() != BlockType::kHead || !source.good()) {
    return std::unexpected(
        fmt::format("cannot read {}: byte {}: the first block is no head of a decision log: it was "
                    "not written by lulld", path, kFileHeadBytes));
  }
  return DecisionLogReader(std::move(state));
}

DecisionLogReader::DecisionLogReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
DecisionLogReader::DecisionLogReader(DecisionLogReader&&) noexcept = default;
DecisionLogReader& DecisionLogReader::operator=(DecisionLogReader&&) noexcept = default;
DecisionLogReader::~DecisionLogReader() = default;

const DecisionLogInfo& DecisionLogReader::info() const { return state_->info; }
const std::string& DecisionLogReader::problem() const { return state_->file.problem(); }
bool DecisionLogReader::was_cut() const { return state_->file.was_cut(); }

const Decision* DecisionLogReader::next() {
  State& state = *state_;
  if (state.ended) return nullptr;
  while (state.block.at_end()) {
    if (state.file.next() != BlockFileReader::Result::kBlock) {
      state.ended = true;
      return nullptr;
    }
    if (state.file.type() != BlockType::kEvents) return state.blame("a second head");
    state.block = ByteSource(state.file.raw());
    state.last = {0};
  }
  ByteSource& in = state.block;
  const uint8_t kind = in.byte();
  if (kind == kBegun) {
    EngineBegun begun;
    StepSource source{{in}};
    fields(source, begun);
    if (!source.good()) return state.blame("the options of an engine cannot be decoded");
    state.decision = std::move(begun);
    return &state.decision;
  }
  if (kind != kStep) return state.blame("a record of an unknown kind");
  EngineStep step;
  step.now = state.last =
      Instant{static_cast<int64_t>(in.from(static_cast<uint64_t>(state.last.ns)))};
  if (!get_all(in, step.now, step.inputs) || !get_all(in, step.now, step.outputs)) {
    return state.blame("a step cannot be decoded");
  }
  state.decision = std::move(step);
  return &state.decision;
}

Replay replay(DecisionLogReader& log) {
  Replay result;
  std::unique_ptr<Engine> engine;
  std::vector<Output> outputs;
  while (const Decision* decision = log.next()) {
    if (const auto* begun = std::get_if<EngineBegun>(decision)) {
      EngineOptions options;
      options.policy = begun->policy;
      options.max_clients = begun->max_clients;
      options.control_latency = begun->control_latency;
      options.marker = begun->marker;
      engine = std::make_unique<Engine>(options);
      ++result.engines;
      result.policies.push_back(begun->policy);
      continue;
    }
    const auto& step = std::get<EngineStep>(*decision);
    if (engine == nullptr) engine = std::make_unique<Engine>();
    outputs.clear();
    engine->step(step.now, step.inputs, outputs);
    ++result.steps;
    result.inputs += step.inputs.size();
    result.outputs += outputs.size();
    if (result.different_step == 0 &&
        outputs_as_bytes(outputs) != outputs_as_bytes(step.outputs)) {
      result.different_step = result.steps;
      result.different_at = step.now;
      result.logged = step.outputs;
      result.replayed = outputs;
    }
    for (const Input& input : step.inputs) {
      const auto* changed = std::get_if<PolicyChanged>(&input);
      if (changed != nullptr) result.policies.push_back(changed->policy);
    }
  }
  return result;
}

}  // namespace lull::trace
