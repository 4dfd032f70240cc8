// A trace file as the reading commands use it: opened, gone through once, analysed. One thread.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <utility>

#include "coordinator/trace/reader.h"
#include "tools/lull/trace/analysis.h"

namespace lull::trace {

// Goes through the whole file; use(const Event&) sees each event. The result is why reading ended
// early, or empty. The error: the file cannot be read at all.
template <typename Use>
std::expected<std::string, std::string> for_each_event(const std::string& path, Use&& use) {
  auto reader = Reader::open(path);
  if (!reader) return std::unexpected(reader.error());
  while (const Event* event = reader->next()) use(*event);
  return reader->problem();
}

// The whole file's report; `also` sees each event too, and `idle` each part of idle time.
template <typename Also>
std::expected<Report, std::string> analyse(const std::string& path, Also&& also,
                                           Idle::Sink idle = nullptr) {
  auto reader = Reader::open(path);
  if (!reader) return std::unexpected(reader.error());
  Analysis analysis(reader->info());
  if (idle) analysis.tell_idle(std::move(idle));
  while (const Event* event = reader->next()) {
    analysis.feed(*event);
    also(*event);
  }
  Report report = analysis.finish(reader->problem());
  report.file = path.substr(path.find_last_of('/') + 1);
  return report;
}
std::expected<Report, std::string> analyse(const std::string& path);

// "1.5ms", "20us", "3s", "7" (us): ns. The error is half a line.
std::expected<int64_t, std::string> parse_time(const std::string& text);

// Writes a whole file by way of a neighbour that is renamed. Errors are half a line.
std::expected<void, std::string> write_file(const std::string& path, const std::string& text);

}  // namespace lull::trace
