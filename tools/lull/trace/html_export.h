// A trace as one HTML file that needs nothing else: the report's JSON (the same as `show --json`),
// the lanes to draw, and the viewer (report_viewer.html). Used by `lull trace export --format
// html`; one thread. Pure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/lull/trace/call_site.h"
#include "tools/lull/trace/lanes.h"
#include "tools/lull/trace/report.h"

namespace lull::trace {

// Collects what is drawn, in bounded memory.
class HtmlExport {
 public:
  static constexpr size_t kMaxSpans = 200'000;
  static constexpr size_t kMaxMemorySamples = 4096;  // of one client and device

  void feed(const Event& event);
  std::string finish(const Report& report, CallSites& sites);

 private:
  struct Sample {
    int64_t at_ns = 0;
    uint64_t bytes = 0;
  };
  struct MemoryLine {
    std::vector<Sample> samples;
    int64_t stretch_ns = 0;  // samples closer than this became one, the highest
  };

  Lanes lanes_{kMaxSpans};
  std::map<std::pair<uint32_t, uint32_t>, MemoryLine> memory_;  // client, device
};

// For a <script> element: no "</" and no "<!--" inside, whatever the names say.
std::string json_for_script(const std::string& json);

}  // namespace lull::trace
