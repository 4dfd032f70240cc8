#include "tools/lull/trace/html_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tools/lull/trace/kernel_display.h"
#include "tools/lull/trace/kernel_kind.h"
#include "tools/lull/trace/packed_lanes.h"
#include "tools/lull/trace/report_json.h"
#include "tools/lull/trace/report_text.h"

// report_viewer.html, by report_viewer.S.
extern "C" const char lull_report_viewer_begin[];
extern "C" const char lull_report_viewer_end[];

namespace lull::trace {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPlace = "\"@LULL_TRACE_DATA@\"";
constexpr std::string_view kSpansPlace = "@LULL_TRACE_SPANS@";
constexpr std::string_view kTitlePlace = "@LULL_TRACE_TITLE@";

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

// "run.lull, 1.2 ms to 73.1 ms": tabs and bookmarks of several recordings differ.
std::string title_of(const Report& report, int64_t first_ns, int64_t last_ns) {
  std::string title = report.file.substr(report.file.find_last_of('/') + 1);
  if (report.launches == 0) return title;
  const int64_t origin_ns = report.info.created_at.ns;
  const auto since = [&](int64_t ns) { return time_text(static_cast<double>(ns - origin_ns)); };
  return fmt::format("{}, {} to {}", title, since(first_ns), since(last_ns));
}

// The longest gaps first in a histogram that has no more than a few bars an octave.
Json gap_histogram(const Report& report) {
  std::map<std::pair<int64_t, int64_t>, uint64_t> bars;
  for (const KernelRow& row : report.kernels) {
    row.gap.for_each([&](int64_t low, int64_t high, uint32_t samples) {
      // Four bars an octave, from 1 us down to one bar for all that is shorter than 100 ns.
      int64_t from = 0, until = 100;
      while (low >= until) {
        from = until;
        until = until + std::max<int64_t>(1, until / 5);
      }
      (void)high;
      bars[{from, until}] += samples;
    });
  }
  Json list = Json::array();
  for (const auto& [edges, samples] : bars) {
    list.push_back({edges.first, edges.second, samples});
  }
  return list;
}

}  // namespace

std::string json_for_script(const std::string& json) {
  std::string out;
  out.reserve(json.size() + json.size() / 64);
  for (const char c : json) {
    if (c == '<')
      out += "\\u003c";
    else if (c == '>')
      out += "\\u003e";
    else if (c == '&')
      out += "\\u0026";
    else
      out += c;
  }
  return out;
}

void HtmlExport::feed(const Event& event) {
  lanes_.feed(event, [](int64_t, int64_t) { return true; });
  if (const auto* use = std::get_if<MemoryUse>(&event)) {
    MemoryLine& line = memory_[{use->client.value, use->device.value}];
    auto& samples = line.samples;
    if (!samples.empty() && use->at.ns - samples.back().at_ns < line.stretch_ns) {
      samples.back().bytes = std::max(samples.back().bytes, use->used_bytes);
      return;
    }
    samples.push_back({use->at.ns, use->used_bytes});
    if (samples.size() < kMaxMemorySamples) return;
    line.stretch_ns = std::max<int64_t>({1, add_ns(line.stretch_ns, line.stretch_ns),
                                         (samples.back().at_ns - samples.front().at_ns) /
                                             static_cast<int64_t>(kMaxMemorySamples / 4)});
    size_t kept = 0;
    for (size_t i = 0; i < samples.size(); ++i) {
      if (kept > 0 && samples[i].at_ns - samples[kept - 1].at_ns < line.stretch_ns) {
        samples[kept - 1].bytes = std::max(samples[kept - 1].bytes, samples[i].bytes);
      } else {
        samples[kept++] = samples[i];
      }
    }
    samples.resize(kept);
  }
}

std::string HtmlExport::finish(const Report& report, CallSites& sites) {
  lanes_.finish();
  Json data;
  data["report"] = report_json(report, SortBy::kTime, sites);
  // Drawn times count from here, so that they are small numbers.
  const int64_t origin_ns = report.info.created_at.ns;
  ByteSink packed;
  Json& lanes = data["lanes"] = Json::array();
  for (const auto& [key, spans] : lanes_.all()) {
    Json lane;
    static constexpr const char* kKinds[] = {"stream", "calls", "gate", "idle",
                                              "range"};
    lane["kind"] = kKinds[static_cast<int>(key.kind)];
    lane["device"] = key.device.value;
    lane["client"] = key.client.value;
    lane["task"] = report.task_name(key.client);
    lane["stream"] = key.stream.value;
    lane["thread"] = key.thread.value;
    lane["count"] = spans.size();
    pack_spans(spans, origin_ns, packed);
    lanes.push_back(std::move(lane));
  }
  Json& memory = data["memory"] = Json::array();
  for (const auto& [key, line] : memory_) {
    Json one;
    one["client"] = key.first;
    one["device"] = key.second;
    one["task"] = report.task_name({key.first});
    Json& samples = one["samples"] = Json::array();
    for (const Sample& sample : line.samples) {
      samples.push_back(sample.at_ns - origin_ns);
      samples.push_back(sample.bytes);
    }
    memory.push_back(std::move(one));
  }
  data["spans"] = lanes_.spans();
  data["stretch_ns"] = lanes_.stretch_ns();
  data["first_ns"] = lanes_.first_ns() - origin_ns;
  data["last_ns"] = lanes_.last_ns() - origin_ns;
  Json& kernels = data["kernels"] = Json::array();
  std::vector<std::string> names;
  for (const KernelInfo& info : report.kernel_infos) names.push_back(display_name(info.name));
  const auto short_names = shorten_names(names, 60);
  for (size_t i = 0; i < names.size(); ++i) {
    const KernelInfo& info = report.kernel_infos[i];
    kernels.push_back({names[i], short_names[i], shape_text(info), kind_name(info.kind),
                       work_kind(info.kind, names[i])});
  }
  Json& ranges = data["ranges"] = Json::array();
  for (const RangeInfo& info : report.range_infos) ranges.push_back(report.range_name(info.index));
  data["idle_causes"] = kIdleCauses;
  data["gaps"] = gap_histogram(report);

  std::string page(lull_report_viewer_begin, lull_report_viewer_end);
  const auto replace = [&](std::string_view place, const std::string& by) {
    const size_t at = page.find(place);
    if (at != std::string::npos) page.replace(at, place.size(), by);
  };
  replace(kTitlePlace, escape_html(title_of(report, lanes_.first_ns(), lanes_.last_ns())));
  replace(kSpansPlace, packed_text(packed.bytes()));
  replace(kPlace, json_for_script(data.dump(-1, ' ', false, Json::error_handler_t::replace)));
  return page;
}

}  // namespace lull::trace
