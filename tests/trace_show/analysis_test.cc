#include "tools/lull/trace/analysis.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "tests/lull/fits.h"
#include "tests/trace_show/events.h"
#include "tools/lull/trace/lanes.h"
#include "tools/lull/trace/report_json.h"
#include "tools/lull/trace/report_text.h"
#include "tools/lull/trace/timeline_text.h"
#include "tools/measure/text_table.h"

using namespace lull;
using namespace lull::trace;
using namespace lull::trace::testing;

namespace {

// Two tasks on one GPU, three kernels, one launch held.
Report small_report() {
  FileInfo info;
  info.source = "test";
  info.created_at = {1000};
  info.simulated = true;
  info.sharing = "serial";
  info.slow_motion = 2;
  Analysis analysis(info);
  analysis.feed(DeviceInfo{{0}, "GPU-1", "Made-up", 8ULL << 30});
  analysis.feed(PolicyChange{{1000}, "priority"});
  analysis.feed(started(1, "serve"));
  analysis.feed(started(2, "train"));
  analysis.feed(kernel(0, "_Z3addPfi"));
  analysis.feed(kernel(1, "void gemm<float>(float*, \"a,b\")"));
  analysis.feed(kernel(2, "copy h2d", UnitKind::kCopy));
  analysis.feed(launch(1, 0, 0, 1, 2000));
  analysis.feed(launch(1, 0, 0, 2, 3000));
  analysis.feed(launch(2, 1, 1, 1, 4000, 500, 1));
  analysis.feed(launch(2, 1, 2, 2, 9000, 250, 0));
  analysis.feed(timing(1, 0, 0, 1, 10'000, 1000, 500));
  analysis.feed(timing(1, 0, 0, 2, 11'500, 3000));
  analysis.feed(timing(2, 1, 1, 1, 14'000, 2000, 4000));
  analysis.feed(timing(2, 1, 2, 2, 20'000, 400, 0));
  analysis.feed(MemoryUse{{2}, {0}, {9500}, 3ULL << 30});
  analysis.feed(MemoryUse{{2}, {0}, {9600}, 1ULL << 30});
  analysis.feed(Synced{{2}, {1}, 2, {21'000}});
  analysis.feed(Lost{{1}, {21'500}, 7});
  analysis.feed(ClientEnded{{1}, {22'000}, 9, 0, 0, 7});
  Report report = analysis.finish();
  report.file = "small.lull";
  return report;
}

}  // namespace

TEST_CASE("a report says per kernel, task, stream and device what the events say") {
  const Report report = small_report();
  REQUIRE(report.kernels.size() == 3);
  CHECK(report.kernels[0].total.total_ns() == 4000);
  CHECK(report.kernels[0].total.count == 2);
  CHECK(report.kernels[0].gap.count() == 1);
  CHECK(report.kernels[1].held_ns == 500);
  REQUIRE(report.clients.size() == 2);
  CHECK(report.clients[0].exact_launches() == 9);
  CHECK(report.clients[0].dropped() == 7);
  CHECK(report.clients[1].copies == 1);
  CHECK(report.clients[1].launches == 1);
  CHECK(report.clients[1].held_ns == 750);
  CHECK(report.clients[1].peak_bytes == 3ULL << 30);
  REQUIRE(report.streams.size() == 2);
  CHECK(report.streams[1].syncs == 1);
  REQUIRE(report.held.size() == 2);
  CHECK(report.task_name(report.held[0].by) == "serve (1)");
  CHECK(report.task_name(report.held[1].by) == "nobody in particular");
  REQUIRE(report.devices.size() == 1);
  // 10..11, 11.5..16 (two that overlap), 20..20.4 us
  CHECK(report.devices[0].busy.busy_ns() == 1000 + 4500 + 400);
  CHECK(report.devices[0].span_ns() == 10'400);
  CHECK(report.devices[0].busy.idle().count() == 2);
}

TEST_CASE("launches without a measured length are estimated and marked") {
  Analysis analysis{FileInfo{}};
  analysis.feed(started(1, "t"));
  analysis.feed(kernel(0, "a"));
  analysis.feed(kernel(1, "b"));
  for (uint64_t i = 1; i <= 10; ++i) analysis.feed(launch(1, 0, 0, i, 100));
  analysis.feed(launch(1, 0, 1, 11, 100));
  analysis.feed(timing(1, 0, 0, 1, -1, 100));
  analysis.feed(timing(1, 0, 0, 2, -1, 300));
  const Report report = analysis.finish();
  const Total& sampled = report.kernels[0].total;
  CHECK(sampled.is_estimate());
  CHECK(sampled.measured_ns == 400);
  CHECK(sampled.total_ns() == 2000);
  const Total& never = report.kernels[1].total;
  CHECK_FALSE(never.is_known());
  CHECK(report.devices[0].without_start == 2);
  CHECK(report.devices[0].is_partial());
  CallSites sites;
  const auto json = report_json(report, SortBy::kTime, sites);
  CHECK(json["kernels"][0]["estimated"] == true);
  CHECK(json["kernels"][0]["measured_us"] == 0.4);
  CHECK(json["kernels"][0]["total_us"] == 2.0);
  CHECK(json["kernels"][1]["total_us"].is_null());
  CHECK(json["kernels"][1]["p50_us"].is_null());
  CHECK(report_text(report, {}, sites).find("~2 us ± ") != std::string::npos);
}

TEST_CASE("small copies do not make a full recording look sampled") {
  Analysis analysis{FileInfo{}};
  analysis.feed(started(1, "t"));
  analysis.feed(kernel(0, "a"));
  analysis.feed(kernel(1, "copy h2d", UnitKind::kCopy));
  for (uint64_t i = 1; i <= 3; ++i) {
    analysis.feed(launch(1, 0, 0, 2 * i, 100));
    analysis.feed(launch(1, 0, 1, 2 * i + 1, 100));
    analysis.feed(timing(1, 0, 0, 2 * i, 200, 50));
  }
  CallSites sites;
  const std::string text = report_text(analysis.finish(), {}, sites);
  CHECK(text.find("6 launches, all timed but small copies (3), which never are\n") !=
        std::string::npos);
  CHECK(text.find('~') == std::string::npos);
}

TEST_CASE("orders by count and by gap differ from that by time") {
  const Report report = small_report();
  CHECK(sorted_kernels(report, SortBy::kTime)[0]->kernel == 0);
  CHECK(sorted_kernels(report, SortBy::kCount)[0]->kernel == 0);
  CHECK(sorted_kernels(report, SortBy::kGap)[0]->kernel == 1);
}

TEST_CASE("what show prints is the text that is kept") {
  const std::string path = std::string(LULL_TRACE_SHOW_TESTS) + "/small_report.txt";
  CallSites sites;
  TextOptions options;
  options.width = 120;
  const std::string text = report_text(small_report(), options, sites);
  if (std::getenv("LULL_REWRITE") != nullptr) std::ofstream(path) << text;
  std::ifstream in(path);
  std::stringstream kept;
  kept << in.rdbuf();
  CHECK(text == kept.str());
}

TEST_CASE("what show prints fits the terminal, with every figure, and ends in a sentence") {
  CallSites sites;
  command::testing::check_fits(
      [&](size_t width) {
        TextOptions options;
        options.width = width;
        return report_text(small_report(), options, sites);
      },
      command::kAnyWidth);
  CHECK(verdict_text(small_report()) ==
        "Simulated: add(float*, int) takes 62.5 % of the device time, and device 0 was busy 56.7 % of the time; train (2) waited "
        "500 ns for serve (1).");
  CHECK(verdict_text(Report{}) == "Nothing was launched.");
}

TEST_CASE("CSV and JSON say the same, whatever the names are") {
  CallSites sites;
  const auto json = report_json(small_report(), SortBy::kTime, sites);
  CHECK(json["simulated"] == true);
  for (const char* table : {"kernels", "tasks", "streams", "devices", "held"}) {
    const auto csv = report_csv(json, table);
    REQUIRE(csv.has_value());
    // A reader of RFC 4180, to compare cell by cell.
    std::vector<std::vector<std::string>> rows(1, {""});
    bool quoted = false;
    for (size_t i = 0; i < csv->size(); ++i) {
      const char c = (*csv)[i];
      if (quoted) {
        if (c != '"') {
          rows.back().back() += c;
        } else if (i + 1 < csv->size() && (*csv)[i + 1] == '"') {
          rows.back().back() += '"';
          ++i;
        } else {
          quoted = false;
        }
      } else if (c == '"') {
        quoted = true;
      } else if (c == ',') {
        rows.back().emplace_back();
      } else if (c == '\n') {
        rows.push_back({""});
      } else {
        rows.back().back() += c;
      }
    }
    rows.pop_back();
    REQUIRE(rows.size() == json[table].size() + 1);
    for (size_t r = 0; r < json[table].size(); ++r) {
      REQUIRE(rows[r + 1].size() == rows[0].size());
      for (size_t i = 0; i < rows[0].size(); ++i) {
        const auto& value = json[table][r][rows[0][i]];
        INFO(table << " " << rows[0][i]);
        if (value.is_string()) CHECK(rows[r + 1][i] == value.get<std::string>());
        if (value.is_number()) CHECK(rows[r + 1][i] == value.dump());
        if (value.is_null()) CHECK(rows[r + 1][i].empty());
      }
    }
  }
  CHECK_FALSE(report_csv(json, "nonsense").has_value());
}

TEST_CASE("millions of launches leave no more behind than a few") {
  const auto kept = [](uint64_t launches) {
    Analysis analysis{FileInfo{}};
    analysis.feed(started(1, "t"));
    for (uint32_t k = 0; k < 64; ++k) analysis.feed(kernel(k, "kernel"));
    for (uint64_t i = 0; i < launches; ++i) {
      const auto k = static_cast<KernelIndex>((i * 2654435761U) % 64);
      const auto at = static_cast<int64_t>(i * 5000);
      analysis.feed(launch(1, 0, k, i + 1, at, i % 7 == 0 ? 100 : 0));
      analysis.feed(timing(1, 0, k, i + 1, at + 2000, 1000 + static_cast<int64_t>(k * 37), 900));
    }
    return analysis.kept_bytes();
  };
  const size_t few = kept(300'000), many = kept(3'000'000);
  CHECK(many < (16U << 20));
  CHECK(many <= few + few / 10);
}

TEST_CASE("the largest times that a file can hold do no harm") {
  constexpr int64_t kLatest = (int64_t{1} << 62) - 1;
  for (const int64_t origin : {INT64_MIN, int64_t{0}, INT64_MAX}) {
    FileInfo info;
    info.created_at = {origin};
    info.created_unix_ns = origin;
    Analysis analysis(info);
    Lanes lanes(4);
    for (uint64_t i = 1; i <= 20; ++i) {
      for (const Event& event : {Event(launch(1, 0, 0, i, kLatest, kLatest, 1)),
                                 Event(timing(1, 0, 0, i, kLatest, kLatest, kLatest)),
                                 Event(timing(1, 0, 0, i, 0, kLatest, 0)),
                                 Event(MemoryUse{{1}, {0}, {kLatest}, UINT64_MAX})}) {
        analysis.feed(event);
        lanes.feed(event, [](int64_t, int64_t) { return true; });
      }
    }
    lanes.finish();
    const Report report = analysis.finish();
    CallSites sites;
    CHECK_FALSE(report_text(report, {}, sites).empty());
    CHECK(report_json(report, SortBy::kGap, sites)["launches"] == 20);
    TimelineOptions options;
    options.until_ns = kLatest;
    CHECK_FALSE(timeline_text(lanes, report, options).empty());
  }
}

TEST_CASE("an event that names what was never defined does no harm") {
  Analysis analysis{FileInfo{}};
  analysis.feed(launch(9, 9, 12, 1, 100));
  analysis.feed(timing(9, 9, 12, 1, 100, 10));
  analysis.feed(Synced{{9}, {3}, 2, {21'000}});
  const Report report = analysis.finish();
  CallSites sites;
  CHECK(report_text(report, {}, sites).find("1 launches") != std::string::npos);
}

TEST_CASE("names in a trace cannot command a terminal") {
  FileInfo info;
  info.host = "h\x1b[2J";
  Analysis analysis(info);
  analysis.feed(DeviceInfo{{0}, "u\x1b", "n\x7f", 1});
  analysis.feed(PolicyChange{{1}, "p\n\x1b[31m"});
  analysis.feed(started(1, "task\x1b]0;title\a"));
  KernelInfo named = kernel(0, "k\x1b[1m");
  named.call_site = "/no/\x1b[3m+0x10;plain\x1b";
  analysis.feed(named);
  analysis.feed(launch(1, 0, 0, 1, 10));
  const Report report = analysis.finish();
  CallSites sites;
  for (const std::string& text :
       {report_text(report, TextOptions{}, sites), heading_line(report), report.task_name({1})}) {
    INFO(text);
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(text.find('\a') == std::string::npos);
  }
}

TEST_CASE("streams and pairs beyond the bound are added up in the last row, at no cost more") {
  Analysis analysis{FileInfo{}};
  analysis.feed(DeviceInfo{{0}, "u", "n", 1});
  analysis.feed(started(1, "t"));
  analysis.feed(kernel(0, "k"));
  const auto kMost = static_cast<uint32_t>(Analysis::kMaxStreams);
  constexpr uint32_t kBeyond = 200'000;  // by the square: minutes
  for (uint32_t i = 0; i < kMost + kBeyond; ++i) {
    Launch one{.client = {1}, .device = {0}, .stream = {std::min(i, kMost)}, .kernel = 0};
    one.sequence = i + 1, one.at = {i}, one.held = {5}, one.held_by = {i};
    analysis.feed(one);
    if (i > kMost) analysis.feed(Launch{.client = {1}, .device = {0}, .stream = {0}, .at = {i}});
  }
  const size_t kept = analysis.kept_bytes();
  CHECK(kept < (200UL << 20));
  const Report report = analysis.finish();
  CHECK(report.streams.size() == kMost);
  CHECK(report.held.size() == Analysis::kMaxHeldPairs);
  uint64_t held = 0;
  for (const HeldRow& row : report.held) held += row.held.count();
  CHECK(held == kMost + kBeyond);
  CHECK(report.streams.back().total.count == kBeyond + 1);
}
