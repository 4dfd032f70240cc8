// The iteration detector on the real recordings, where they are at hand (traces_test.cc).
//
// What the iterations are is known from the recordings' own annotations: the training trace has six
// spans named ProfilerStep#1009 .. #1014, of 1,575 device operations each, from zero_grad to the
// optimizer. The others are one pass each, played here in a loop.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "policies/prediction/iteration_detector.h"
#include "tools/play/kineto.h"

using namespace lull;
using namespace lull::play;

namespace {

std::filesystem::path folder() {
  const char* named = std::getenv("LULL_SHARED_TRACES");
  return named != nullptr ? std::filesystem::path(named)
                          : std::filesystem::path(LULL_TRACES_BESIDE);
}

struct Played {
  std::vector<KernelId> kernels;
  std::vector<int64_t> at_ns;
  int64_t length_ns = 0;
};

Played launches_of(const Workload& workload) {
  Played played;
  int64_t now = 0;
  for (const Op& op : workload.ops) {
    now += static_cast<int64_t>(op.pause_ns);
    const bool launch = op.kind == OpKind::Launch;
    if (launch || op.is_copy() || op.kind == OpKind::Memset) {
      const uint64_t kind = static_cast<uint64_t>(op.kind) << 60;
      played.kernels.push_back(KernelId{kind | (launch ? op.kernel : op.bytes)});
      played.at_ns.push_back(now);
    }
    now += static_cast<int64_t>(op.call_ns);
  }
  played.length_ns = now;
  return played;
}

}  // namespace

TEST_CASE("the training recording's iteration is its ProfilerStep, the others' their pass") {
  if (!std::filesystem::exists(folder())) {
    WARN("skipped: no traces in " << folder().string());
    return;
  }
  struct {
    const char* file;
    int loops;
    uint32_t period;
    uint64_t first_lock_by;  // iterations
  } const cases[] = {
      {"a100-training-4-streams", 1, 1575, 5},
      {"a100-training-4-streams", 8, 1575, 5},
      {"h100-qwen1.5-0.5b-inference", 40, 1198, 5},
      {"h100-timesformer", 40, 534, 5},
      {"h100-vit-image-detection-inference", 40, 156, 5},
      // Shorter than what may be a layer, and the host's pauses inside are as long as those between.
      {"h100-bert-small-inference", 200, 61, 160},
  };
  for (const auto& one : cases) {
    const auto trace = read_kineto_file((folder() / one.file).string() + ".json.gz");
    REQUIRE(trace.has_value());
    const auto import = import_kineto(*trace, one.file);
    REQUIRE(import.has_value());
    const Played played = launches_of(import->workload);
    REQUIRE(played.kernels.size() % one.period == 0);
    policies::IterationDetector detector;
    uint64_t count = 0, windows = 0, right = 0, first = 0;
    bool good = true;
    for (int loop = 0; loop < one.loops; ++loop) {
      for (size_t i = 0; i < played.kernels.size(); ++i, ++count) {
        if (count % one.period == 0) good = detector.locked();
        detector.launch(played.kernels[i],
                        Instant{loop * (played.length_ns + 100'000) + played.at_ns[i]}, 0);
        if (detector.locked() && first == 0) first = count / one.period + 1;
        good &= detector.period() == one.period;
        if (count % one.period + 1 == one.period && first != 0 && first <= count / one.period) {
          windows += 1;
          right += good ? 1 : 0;
        }
      }
    }
    INFO(one.file << " x " << one.loops << ": first lock in iteration " << first << ", right in "
                  << right << " of " << windows << ", period " << detector.period());
    CHECK(first > 0);
    CHECK(first <= one.first_lock_by);
    CHECK(right * 100 >= windows * 95);
  }
}
