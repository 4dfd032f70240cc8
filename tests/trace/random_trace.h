// Traces for tests: random but reproducible, of every kind of event; a place for files; reading a
// whole file at once. Test thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/trace/events.h"
#include "coordinator/trace/reader.h"
#include "coordinator/trace/writer.h"

namespace lull::trace {

class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

FileInfo some_info();
// Well-formed: everything is defined before it is named.
std::vector<Event> random_events(uint64_t seed, size_t count);
// Every field, as text, so that two events can be compared and shown.
std::string describe(const Event& event);
std::vector<std::string> describe(const std::vector<Event>& events);

void write_trace(const std::string& path, const std::vector<Event>& events, size_t flush_every = 0);

struct WholeTrace {
  std::string open_error;
  FileInfo info;
  std::vector<std::string> events;  // described
  std::string problem;
  bool was_cut = false;
};
WholeTrace read_trace(const std::string& path);

std::string read_bytes(const std::string& path);
void write_bytes(const std::string& path, const std::string& bytes);

}  // namespace lull::trace
