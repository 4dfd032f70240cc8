// How many requests may yet exceed the p99 bound: of any thousand one in a hundred may. Some do by
// themselves, where the host is busy for a while: of those that others were in the way of as many are
// taken for that as of the rest, up to what is kept back else. Pure.
//
// Little more than one is ever saved, so that hardly more are over in any thousand than ten, wherever
// it is begun to count, as long as the iteration stays the same. Requests that exceed the bound and are
// no exceptions tell how well others are foretold: as long as one is remembered, one more is kept back,
// for a thousand requests, and two where two are, for a thousand before that. Each takes a part of how
// much of the bound to aim at away, which others give back while such are no more than a thousand
// requests bear.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lull::policies {

class ErrorBudget {
 public:
  static constexpr int64_t kSurely_x1000 = 1'000;

  // A service that nobody was in the way of; whether it took longer than p99 allows all the same.
  void alone(bool over) { by_itself_x1e6_ += ((over ? 1'000'000 : 0) - by_itself_x1e6_) / kRemembered; }
  // A request has ended; whether it took longer than p99 allows, and nobody was in its way. `seen`:
  // its whole time says so; its waits alone miss some that did.
  void ended(bool over, bool undisturbed, bool seen = true) {
    const int64_t kept_back = kByItself_x1000 + (unmeant_for_ + kUnmeantFor - 1) / kUnmeantFor +
                              (seen ? 0 : kMissed_x1000);
    unmeant_for_ -= unmeant_for_ > 0 ? 1 : 0;
    const int64_t by_itself = undisturbed ? 0 : std::min(kept_back, by_itself_x1e6_ / 1'000);
    const int64_t earned = kMayBe_x1000 - kept_back + by_itself - (over ? 1'000 : 0);
    left_x1000_ = std::clamp(left_x1000_ + earned, -kOwed_x1000, kMost_x1000);
    full_for_ = left_x1000_ < kMost_x1000 ? 0 : full_for_ + 1;
  }
  // ... and nothing was let go that should make it do so.
  void aim_after(bool over, bool remembers = true) {
    if (over && remembers)
      unmeant_for_ = std::min(unmeant_for_ + kUnmeantFor, kUnmeantMost * kUnmeantFor);
    const int64_t more = broken() ? 0 : kAimMore_x1000;
    aim_x1000_ = std::clamp<int64_t>(aim_x1000_ + (over ? -aim_x1000_ / kAimLess : more), 0, kAim_x1000);
  }

  // One more may, that does with such a chance; `uncounted`: beside one that has not ended yet.
  bool affords(int64_t chance_x1000 = kSurely_x1000, bool uncounted = false) const {
    return left_x1000_ >= chance_x1000 + (uncounted ? 1'000 : 0);
  }
  // More have than may; by far.
  bool owes() const { return left_x1000_ < 0; }
  bool broken() const { return left_x1000_ < kBroken_x1000; }
  // Fewer have than may, for long.
  bool has_plenty() const { return full_for_ >= kPlentyFor; }
  // Of what p99 allows, in millionths.
  int64_t aim_x1000() const { return aim_x1000_; }

  bool operator==(const ErrorBudget&) const = default;

 private:
  // Per request. Ten in a thousand are over at most: what is left, and what is kept back of those.
  static constexpr int64_t kFirst_x1000 = 1'000;
  static constexpr int64_t kMayBe_x1000 = 10;
  static constexpr int64_t kByItself_x1000 = 1;
  static constexpr int64_t kMissed_x1000 = 1;
  static constexpr int64_t kRemembered = 512;  // services
  static constexpr int64_t kUnmeantMost = 2, kUnmeantFor = 1'000;  // requests
  static constexpr int64_t kMost_x1000 = 1'100;
  static constexpr int64_t kOwed_x1000 = 8'000;
  static constexpr int64_t kBroken_x1000 = -1'500;
  static constexpr uint32_t kPlentyFor = 50;  // requests
  static constexpr int64_t kAim_x1000 = 875'000;
  static constexpr int64_t kAimLess = 4;
  // So that no more than five in a thousand are over unmeant: a quarter of the aim, five times in
  // 1,000.
  static constexpr int64_t kAimMore_x1000 = kAim_x1000 / kAimLess * 5 / 1'000;

  int64_t left_x1000_ = kFirst_x1000;
  uint32_t full_for_ = 0;     // so many requests ended with all saved that may be
  int64_t unmeant_for_ = 0;   // for so many yet one that was over and no exception is remembered
  int64_t by_itself_x1e6_ = 0;  // services that take longer by themselves, of a million
  int64_t aim_x1000_ = kAim_x1000;
};

}  // namespace lull::policies
