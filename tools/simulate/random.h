// The simulator's only source of chance: splitmix64, from a seed. Pure; one owner at a time.
#pragma once

#include <cmath>
#include <cstdint>

namespace lull::simulate {

class Random {
 public:
  explicit Random(uint64_t seed = 1) : state_(seed * 0x9e3779b97f4a7c15ULL + 0x1234567) {}
  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
    return mixed ^ (mixed >> 31);
  }
  // 0 .. most, each as likely.
  uint64_t up_to(uint64_t most) { return most == 0 ? 0 : next() % (most + 1); }
  // Open interval (0, 1).
  double unit() { return (static_cast<double>(next() >> 11) + 0.5) / 9007199254740992.0; }
  double exponential(double mean) { return -mean * std::log(unit()); }

 private:
  uint64_t state_;
};

}  // namespace lull::simulate
