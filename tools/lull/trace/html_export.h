// A trace as one HTML file that needs nothing else: the report's JSON (the same as `show --json`),
// the lanes to draw (packed_lanes.h), and the viewer (report_viewer.html), which draws the lanes in
// levels of detail: groups of units as far as they are narrower than a pixel, else each unit. Used by
// `lull trace export --format html`; one thread. Pure.
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
  // Two or three a launch. More are merged with their neighbours (lanes.h), and the page says so.
  static constexpr size_t kMaxSpans = 3'000'000;
  static constexpr size_t kMaxMemorySamples = 4096;  // of one client and device

  void feed(const Event& event);
  void feed_idle(DeviceId device, ClientId client, const IdlePart& part) {
    lanes_.feed_idle(device, client, part);
  }
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
