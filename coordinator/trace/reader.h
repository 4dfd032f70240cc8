// Reads a trace file, event by event, in one pass and bounded memory: 100 million launches need no
// more than one block at a time and the table of kernels. Any thread, one at a time.
//
// A file that was cut (kill -9, full disk) is read up to its last whole block; a corrupt or lying
// block ends the reading with an error that names file and offset. What was read before stands.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <string>

#include "coordinator/trace/events.h"

namespace lull::trace {

class Reader {
 public:
  // Reads the head. The error is one line: "cannot read FILE: why: what to do".
  static std::expected<Reader, std::string> open(const std::string& path);
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;
  ~Reader();

  const FileInfo& info() const;

  // The next event; null at the end of what can be read. The event stands until the next call.
  // Indices in it have been checked: a Launch names a kernel, client and device that came before.
  const Event* next();

  // After `next` gave null: empty when the file ended with a whole block, else one line with file
  // and offset: "FILE: cut in the middle of a block at byte 81920: the recorder was killed or the
  // disk was full: everything before it was read".
  const std::string& problem() const;
  // Whether `problem` is a cut file (expected after a crash) and not a corrupt one.
  bool was_cut() const;

 private:
  struct State;
  explicit Reader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lull::trace
