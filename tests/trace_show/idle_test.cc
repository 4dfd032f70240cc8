#include "tools/lull/trace/idle.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "tests/seed.h"
#include "tests/trace_show/events.h"
#include "tools/lull/trace/analysis.h"

using namespace lull;
using namespace lull::trace;
using namespace lull::trace::testing;

namespace {

std::string text_of(const std::vector<IdlePart>& parts) {
  std::string out;
  for (const IdlePart& part : parts) {
    out += std::string(out.empty() ? "" : ", ") + idle_cause_name(part.cause);
    if (part.by.value != 0) out += "(" + std::to_string(part.by.value) + ")";
    out += " " + std::to_string(part.from_ns) + ".." + std::to_string(part.until_ns);
    if (part.others_ns > 0) out += " beside " + std::to_string(part.others_ns);
  }
  return out;
}

IdleGap gap(int64_t from_ns, int64_t until_ns, int64_t called_ns, int64_t went_ns,
            uint32_t held_by = 0) {
  return {from_ns, until_ns, true, called_ns, went_ns, {held_by}};
}

}  // namespace

TEST_CASE("a gap is cut by the launch that ended it") {
  CHECK(text_of(cut_gap(gap(100, 200, 150, 150), {}, {})) == "host 100..150, start 150..200");
  CHECK(text_of(cut_gap(gap(100, 200, 150, 180, 7), {}, {})) ==
        "host 100..150, held(7) 150..180, start 180..200");
  CHECK(text_of(cut_gap(gap(100, 200, 50, 60), {}, {})) == "start 100..200");
  CHECK(text_of(cut_gap(gap(100, 200, 50, 140), {}, {})) == "held 100..140, start 140..200");
  CHECK(text_of(cut_gap(gap(100, 200, 900, 950), {}, {})) == "host 100..200");
  CHECK(text_of(cut_gap({100, 200, false, 0, 0, {}}, {}, {})) == "unknown 100..200");
  CHECK(cut_gap(gap(100, 100, 50, 60), {}, {}).empty());
}

TEST_CASE("host time inside a synchronising call is a wait, as far as the gap reaches") {
  CHECK(text_of(cut_gap(gap(100, 200, 150, 150), {{20, 110}, {130, 140}, {160, 170}}, {})) ==
        "wait 100..110, host 110..130, wait 130..140, host 140..150, start 150..200");
}

TEST_CASE("what others ran counts behind the gate, and beside every part") {
  CHECK(text_of(cut_gap(gap(100, 200, 120, 150, 7), {}, {{90, 130, {7}}, {160, 190, {8}}})) ==
        "host 100..120 beside 20, held(7) 120..150 beside 10, start 150..160, "
        "others(8) 160..190 beside 30, start 190..200");
  // Two that run at once count once, for the first.
  CHECK(text_of(cut_gap(gap(0, 100, 0, 0), {}, {{10, 60, {7}}, {20, 80, {8}}})) ==
        "start 0..10, others(7) 10..60 beside 50, others(8) 60..80 beside 20, start 80..100");
}

TEST_CASE("the parts of a task's idle time add up to it, whatever comes in whatever order") {
  const uint64_t seed = tests::test_seed();
  INFO("seed " << seed);
  for (int turn = 0; turn < 20; ++turn) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(turn));
    const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
    Analysis analysis{FileInfo{}};
    std::map<uint32_t, int64_t> told;
    std::map<uint32_t, int64_t> until;
    bool in_order = true;
    analysis.tell_idle([&](DeviceId, ClientId client, const IdlePart& part) {
      in_order = in_order && part.from_ns < part.until_ns && part.from_ns >= until[client.value];
      until[client.value] = part.until_ns;
      told[client.value] += part.until_ns - part.from_ns;
    });
    std::map<uint32_t, std::vector<std::pair<int64_t, int64_t>>> ran;
    for (uint32_t client = 1; client <= 3; ++client) analysis.feed(started(client, "t"));
    analysis.feed(kernel(0, "k"));
    std::map<uint32_t, int64_t> host, device;
    std::map<uint64_t, uint64_t> sequence;
    for (int n = 0; n < 3000; ++n) {
      const auto client = static_cast<uint32_t>(1 + below(3));
      const auto stream = static_cast<uint32_t>(below(2));
      const uint64_t number = ++sequence[client * 2 + stream];
      host[client] += below(3000);
      if (below(5) == 0) {
        analysis.feed(Waited{{client}, {0}, {host[client]}, {host[client] + below(900)}});
      }
      const int64_t held_ns = below(4) == 0 ? below(5000) : 0;
      const bool has_record = below(50) != 0;
      if (has_record) {
        analysis.feed(launch(client, stream, 0, number, host[client], held_ns,
                             static_cast<uint32_t>(below(4))));
      }
      host[client] += held_ns;
      int64_t& busy = device[client * 2 + stream];
      busy = std::max(busy, host[client] + 500);
      const int64_t length_ns = 1 + below(4000);
      analysis.feed(timing(client, stream, 0, number, busy, length_ns));
      ran[client].emplace_back(busy, busy + length_ns);
      busy += length_ns;
    }
    const Report report = analysis.finish();
    CHECK(in_order);
    for (auto& [client, spans] : ran) {
      std::sort(spans.begin(), spans.end());
      int64_t idle_ns = 0, end_ns = spans.front().second;
      for (const auto& [from, to] : spans) {
        if (from > end_ns) idle_ns += from - end_ns;
        end_ns = std::max(end_ns, to);
      }
      int64_t rows_ns = 0;
      for (const IdleRow& row : report.idle) {
        if (row.client.value == client) rows_ns += row.lengths.total_ns();
        CHECK(row.others_ns <= row.lengths.total_ns());
      }
      CHECK(rows_ns == idle_ns);
      CHECK(told[client] == idle_ns);
    }
  }
}

TEST_CASE("a held task's idle time says for whom, and whether the device stood still") {
  Analysis analysis{FileInfo{}};
  analysis.feed(started(1, "serve"));
  analysis.feed(started(2, "train"));
  analysis.feed(kernel(0, "k"));
  analysis.feed(launch(2, 0, 0, 1, 0));
  analysis.feed(launch(2, 0, 0, 2, 0, 5000, 1));
  analysis.feed(launch(1, 0, 0, 1, 0));
  analysis.feed(timing(2, 0, 0, 1, 100, 1000));
  analysis.feed(timing(1, 0, 0, 1, 1100, 3000));
  analysis.feed(timing(2, 0, 0, 2, 5200, 1000));
  const Report report = analysis.finish();
  REQUIRE(report.idle.size() == 2);
  CHECK(report.idle[0].cause == IdleCause::kHeld);
  CHECK(report.idle[0].by.value == 1);
  CHECK(report.idle[0].client.value == 2);
  CHECK(report.idle[0].lengths.total_ns() == 3900);
  CHECK(report.idle[0].others_ns == 3000);
  CHECK(report.idle[1].cause == IdleCause::kStart);
  CHECK(report.idle[1].lengths.total_ns() == 200);
}

TEST_CASE("the starts of iterations are kept, thinned out evenly when there are too many") {
  for (const uint64_t iterations : {100UL, 20'000UL}) {
    Analysis analysis{FileInfo{}};
    analysis.feed(started(1, "t"));
    for (uint32_t k = 0; k < 24; ++k) analysis.feed(kernel(k, "k"));
    uint64_t sequence = 0;
    for (uint64_t i = 0; i < iterations; ++i) {  // 24 launches, and the host pauses
      for (uint32_t k = 0; k < 24; ++k) {
        analysis.feed(launch(1, 0, k, ++sequence, static_cast<int64_t>(i * 100'000 + k * 1000)));
      }
    }
    const Report report = analysis.finish();
    REQUIRE(report.iterations.size() == 1);
    const IterationRow& row = report.iterations[0];
    CHECK(row.starts_ns.size() < Iterations::kMaxStarts);
    CHECK(row.starts_ns.size() * row.starts_every + 50 > iterations);
    for (size_t i = 1; i < row.starts_ns.size(); ++i) {
      REQUIRE(row.starts_ns[i] - row.starts_ns[i - 1] ==
              static_cast<int64_t>(100'000 * row.starts_every));
    }
  }
}
