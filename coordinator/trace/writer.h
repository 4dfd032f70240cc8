// Writes a trace file: append-only, in compressed blocks, each with its own length and checksum, so
// that whatever happens to the writer the file is good up to its last whole block. Called by the
// daemon's loop and by importers; not thread-safe. Compression and disk run on a thread of the
// writer's own; when that falls behind by more than kQueueBytes, events are dropped and counted
// (a Lost event), the caller never waits.
#pragma once

#include <expected>
#include <memory>
#include <string>

#include "coordinator/trace/events.h"

namespace lull::trace {

class Writer {
 public:
  enum class WhenBehind { kDrop, kWait };  // the daemon drops, an importer waits
  // Creates the file; an existing one is an error unless it is empty. One line on error.
  static std::expected<Writer, std::string> create(const std::string& path, const FileInfo& info,
                                                   WhenBehind when_behind);
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  ~Writer();  // finishes

  // KernelInfo::index must be the number of KernelInfo events written before, RangeInfo::index that of
  // RangeInfo events; clients, devices, kernels and ranges must have been named before. What breaks this, or has a time that cannot be, is dropped
  // and counted, so that the file stays right.
  void add(const Event& event);
  // Makes what was added readable: ends the block and hands it to the disk.
  void flush();
  // Flushes and waits for the disk. The error (disk full, ...) is one line; what was written before
  // it stays readable.
  std::expected<void, std::string> finish();

  // Of events dropped because the disk was slow or failed, or because they made no sense.
  uint64_t dropped() const;
  uint64_t bytes() const;  // in the file so far
  // What was flushed is in the file, or never will be: `finish` would not wait.
  bool is_written() const;
  // The first failure of the disk, one line; empty: none.
  std::string failure() const;

 private:
  struct State;
  explicit Writer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lull::trace
