// Launch sequences written from how programs launch, by someone who had not seen the detector's own
// test programs: what the iteration detector was not tuned on.
//
// Used by iteration_detector_held_out_test.cc. Each sequence comes from a seed and is the same in
// every run. It knows where iterations end and which periods are right there; it judges nothing.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::held_out {

struct Launch {
  KernelId kernel;
  Instant at;
};
struct Range {
  uint32_t least = 0;
  uint32_t most = 0;
};
struct IterationEnd {
  size_t launches = 0;       // made by then
  std::vector<Range> right;  // periods that are right here; more where loops compete
  uint32_t phase = 0;        // programs that change what they do: counted anew
};
struct Sequence {
  std::vector<Launch> launches;
  std::vector<IterationEnd> ends;
};

struct Program {
  std::string_view name;
  Sequence (*make)(uint64_t seed);
};
std::span<const Program> programs();
std::span<const Program> noises();  // without ends
// What is known to be beyond the detector, at some seed at least: for figures only.
std::span<const Program> programs_beyond();
std::span<const Program> noises_beyond();

}  // namespace lull::held_out
