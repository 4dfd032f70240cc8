// The engine's steps as a file, for replay: what it was made with, then each `step(now, inputs)` and
// what came out. The same container as a trace (block_file.h), of another kind.
//
// The daemon writes one (`lulld --decision-log`), on its loop thread, and never waits for the disk:
// where the disk falls behind the log ends there, since a step left out would make the rest
// worthless. Replaying: a fresh engine for every EngineBegun, the same steps, the same outputs; any
// difference is a bug in the engine's purity, or another version of it.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/trace/block_file.h"

namespace lull::trace {

struct DecisionLogInfo {
  std::string lull_version;
  std::string host;
  int64_t created_unix_ns = 0;
};

// A fresh engine: the state begins here.
struct EngineBegun {
  std::string policy;
  uint32_t max_clients = 0;
  Duration control_latency;
  Duration marker;
};
struct EngineStep {
  Instant now;
  std::vector<engine::Input> inputs;
  std::vector<engine::Output> outputs;
};
using Decision = std::variant<EngineBegun, EngineStep>;

// The bytes that stand for these outputs in a log; equal exactly when the outputs are.
std::vector<uint8_t> outputs_as_bytes(std::span<const engine::Output> outputs);
std::vector<uint8_t> inputs_as_bytes(std::span<const engine::Input> inputs);

class DecisionLogWriter {
 public:
  static std::expected<DecisionLogWriter, std::string> create(const std::string& path,
                                                              const DecisionLogInfo& info);
  DecisionLogWriter(DecisionLogWriter&&) noexcept;
  DecisionLogWriter& operator=(DecisionLogWriter&&) noexcept;
  ~DecisionLogWriter();  // writes what is left

  void begun(const engine::EngineOptions& options);
  void step(Instant now, std::span<const engine::Input> inputs,
            std::span<const engine::Output> outputs);
  void flush();
  std::expected<void, std::string> finish();

  bool has_unflushed() const;
  uint64_t steps() const;
  uint64_t bytes() const;
  std::string failure() const;

 private:
  struct State;
  explicit DecisionLogWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class DecisionLogReader {
 public:
  static std::expected<DecisionLogReader, std::string> open(const std::string& path);
  DecisionLogReader(DecisionLogReader&&) noexcept;
  DecisionLogReader& operator=(DecisionLogReader&&) noexcept;
  ~DecisionLogReader();

  const DecisionLogInfo& info() const;
  // The next; null at the end. It stands until the next call.
  const Decision* next();
  // As Reader's.
  const std::string& problem() const;
  bool was_cut() const;

 private:
  struct State;
  explicit DecisionLogReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct Replay {
  uint64_t engines = 0, steps = 0, inputs = 0, outputs = 0;
  uint64_t different_step = 0;  // from 1: the first whose outputs were not those of the log; 0: none
  Instant different_at{0};      // when that step was ...
  std::vector<engine::Output> logged, replayed;  // ... and its outputs
  std::vector<std::string> policies;  // in the order in which they came into force, as they are named
};
// Plays the log through fresh engines of this program.
Replay replay(DecisionLogReader& log);

}  // namespace lull::trace
