#include <array>

#include "tests/unit/policies/held_out_host.h"

namespace lull::held_out {
namespace {

constexpr size_t kNoiseLaunches = 12'000;

template <typename Next>
Sequence noise(uint64_t seed, Next next) {
  Host host(seed);
  for (size_t i = 0; i < kNoiseLaunches; ++i) {
    host.launch("noise", next(host, i));
    if (host.chance(0.01)) host.pause_us(500);
  }
  return host.done();
}
Sequence random_of_five(uint64_t seed) {
  return noise(seed, [](Host& host, size_t) { return host.below(5); });
}
Sequence random_of_three_hundred(uint64_t seed) {
  return noise(seed, [](Host& host, size_t) { return host.below(300); });
}
Sequence few_and_rare(uint64_t seed) {  // few kernels often, many rarely
  return noise(seed, [](Host& host, size_t) {
    return static_cast<uint64_t>(1.0 / (1e-3 + static_cast<double>(host.below(100'000)) / 1e5));
  });
}
Sequence neighbours(uint64_t seed) {  // a random walk over kernels
  uint64_t where = 500;
  return noise(seed, [&](Host& host, size_t) { return where += host.chance(0.5) ? 1 : ~0ULL; });
}
Sequence chain(uint64_t seed) {  // each kernel has four that may follow it
  uint64_t where = 0;
  return noise(
      seed, [&](Host& host, size_t) { return where = (where * 7 + 1 + host.below(4) * 11) % 41; });
}
Sequence bursts(uint64_t seed) {  // one kernel a few times, then another
  uint64_t which = 0;
  uint64_t left = 0;
  return noise(seed, [&](Host& host, size_t) {
    if (left == 0) {
      which = host.below(9);
      left = host.between(1, 7);
    }
    left -= 1;
    return which;
  });
}
Sequence notebook(uint64_t seed) {  // someone tries things: small pieces of work in random order
  Host host(seed);
  std::array<std::vector<uint64_t>, 24> cells;
  for (auto& cell : cells) {
    const uint64_t length = host.between(2, 14);
    for (uint64_t i = 0; i < length; ++i) cell.push_back(host.below(60));
  }
  for (int i = 0; i < 2500; ++i) {
    for (const uint64_t op : cells[host.below(cells.size())]) host.launch("cell", op);
    host.pause_us(50 + host.below(4'000));
  }
  return host.done();
}
Sequence never_again(uint64_t seed) {
  return noise(seed, [](Host&, size_t i) { return uint64_t{1'000'000} + i; });
}
Sequence bit_counts(uint64_t seed) {  // Thue-Morse: as regular as the aperiodic gets, never thrice
  return noise(seed,
               [](Host&, size_t i) { return static_cast<uint64_t>(__builtin_popcountll(i) & 1); });
}
Sequence chaos(uint64_t seed) {  // the logistic map, cut into eight
  double x = 0.1 + static_cast<double>(seed % 89) / 113.0;
  return noise(seed, [&](Host&, size_t) {
    x = 3.99 * x * (1.0 - x);
    return static_cast<uint64_t>(x * 8.0);
  });
}

constexpr std::array kNoisesBeyond{
    Program{"random walk", neighbours},
};
constexpr std::array kNoises{
    Program{"one of five", random_of_five},
    Program{"one of three hundred", random_of_three_hundred},
    Program{"few often, many rarely", few_and_rare},
    Program{"chain with four ways on", chain},
    Program{"bursts", bursts},
    Program{"notebook", notebook},
    Program{"never again", never_again},
    Program{"Thue-Morse", bit_counts},
    Program{"chaos", chaos},
};

}  // namespace

std::span<const Program> noises() { return kNoises; }
std::span<const Program> noises_beyond() { return kNoisesBeyond; }

}  // namespace lull::held_out
