// The seed of a randomised test: the same in every run, so that a run says something about the
// change under test; LULL_TEST_SEED=N takes another, LULL_TEST_SEED=random one that no run has had.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string_view>

namespace lull::tests {

inline uint64_t test_seed() {
  const char* asked = std::getenv("LULL_TEST_SEED");
  if (asked == nullptr) return 1;
  return std::string_view(asked) == "random" ? std::random_device{}() : std::strtoull(asked, nullptr, 0);
}

}  // namespace lull::tests
