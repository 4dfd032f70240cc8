// The last launches of a program, and which repetitions they show.
//
// Used by IterationDetector only. `push` is O(1); `repetition` reads the history and costs time in
// proportion to its length, so the detector asks more and more rarely. Integers only.
//
// How a period is found. For each launch the history knows where its kernel, and the same three
// kernels in a row, came last. Frequent distances are candidates. A candidate P is scored over the
// last periods. A launch agrees if its kernel is found P launches back, exactly, or if that is not
// enough, within a slack of a sixteenth or an eighth of P (short periods must be exact). It
// contradicts if its kernel is known but not there. A kernel not seen before says nothing. Only
// agreement beyond chance counts, and the chance is the kernel's own frequency: so few kernels in
// random order score nothing. A repetition is established when that agreement, the share of
// agreeing launches and the evidence in bits are all high enough. Which loop within loops is the
// iteration: iteration_detector.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::policies {

class LaunchHistory {
 public:
  static constexpr uint32_t kMost = 32768;          // launches kept; the older half goes when full
  static constexpr uint32_t kLongestPeriod = 8192;
  static constexpr uint32_t kLayerLaunches = 96;    // a loop with fewer may be a layer
  static constexpr uint32_t kMostInner = 128;       // repeats of a loop inside an iteration, at most

  struct Repetition {
    uint32_t period = 0;
    uint32_t start = 0;        // index in the history of the launch that an iteration begins with
    uint32_t slack = 0;        // how far launches stray from their place
  };
  // `waited`: since the launch before, the host has waited for the device.
  void push(KernelId kernel, Instant at, bool waited);
  void clear();
  uint32_t size() const { return static_cast<uint32_t>(symbols_.size()); }
  KernelId kernel(uint32_t index) const { return kernels_[symbols_[index]]; }
  // When a launch was made; costs time in proportion to its age.
  Instant at(uint32_t index) const;

  // The iteration known so far. If there is one, only a loop around it is looked for.
  struct Inner {
    uint32_t period = 0;  // 0: none
    uint32_t slack = 0;
    bool settled = false; // it has been known for long
  };

  // The iteration that the history shows at its end.
  std::optional<Repetition> repetition(const Inner& inside) const;

 private:
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kFree = -2;
  struct Score {
    uint32_t agreement = 0;  // beyond chance, per mille
    uint32_t support = 0;    // launches that agree, per mille
    uint32_t bits = 0;
    uint32_t period = 0;     // the median distance of agreeing launches
    bool established() const;
    uint32_t slack = 0;
    bool by_context = false;  // three kernels in a row were compared, not one
  };
  struct Table {  // open addressing, a power of two
    struct Row {
      uint64_t key = 0;
      int32_t value = kFree;
    };
    std::vector<Row> rows;
    uint32_t used = 0;
    int32_t& operator[](uint64_t key);  // kNone for a new key
    void clear();                       // keeps its room
  };
  struct Valid {
    uint32_t period = 0;
    Score score;
  };

  void append(KernelId kernel, uint32_t gap_ns, bool waited);
  void drop_half();
  std::vector<uint32_t> candidates() const;
  void add_candidates(uint32_t from, std::vector<uint32_t>& periods) const;
  Score score(uint32_t period, uint32_t periods) const;
  Score score(uint32_t period, uint32_t periods, uint32_t slack, bool by_context,
              uint32_t stride) const;
  // Where the launch's kernel is found `period` back, or kNone. `often`: how often it came since.
  int32_t back(uint32_t index, uint32_t period, uint32_t slack, bool by_context,
               uint32_t& often) const;
  bool pauses(uint32_t period, uint32_t inner = 0) const;
  bool waits(uint32_t period) const;
  bool is_same(uint32_t period, uint32_t times) const;
  bool is_layer_like(uint32_t period) const;
  bool encloses(const Valid& inner, const Valid& outer) const;
  bool one_unit() const;
  uint32_t start_of(const Valid& found) const;

  Table ids_;                          // kernel -> symbol
  Table contexts_;                     // hash of three kernels in a row -> last index
  std::vector<KernelId> kernels_;      // by symbol
  std::vector<int32_t> last_;          // by symbol: last index
  std::vector<uint32_t> symbols_;
  std::vector<int32_t> previous_;      // where the same kernel was before
  std::vector<int32_t> previous_context_;
  std::vector<uint32_t> gaps_ns_;      // host time since the launch before
  std::vector<bool> waited_;           // the host waited for the device in that time
  Instant last_at_{INT64_MIN};
};

}  // namespace lull::policies
