// What a script asks of a device: its works and host waits, what each of them follows, and the
// order in which a serial device runs them when the task is alone. From that it makes the two forms
// in which the oracle plays a task: the high task as segments with latest starts, the low task as
// one chain. Called by Oracle. Pure; times are in ns.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tools/simulate/script.h"

namespace lull::simulate {

inline constexpr int64_t kEver = std::numeric_limits<int64_t>::max() / 4;
inline constexpr uint32_t kNone = UINT32_MAX;

struct Work {
  uint32_t stretch = 0;  // the host's stretch, between two waits, that launches it
  int64_t offset = 0;    // of its launch in the stretch
  int64_t call = 0;      // how long the launch takes the host
  int64_t length = 0;
  bool kernel = false, compute = false;
  std::vector<uint32_t> after;
};

struct Wait {
  int64_t arrive = 0;  // when the host arrives, in the stretch that the wait ends
  std::vector<uint32_t> on;
  bool all = false;  // it waits for all that was launched
};

struct Item {
  bool wait = false;
  uint32_t index = 0;
};

struct Flow {
  std::vector<Work> works;
  std::vector<Wait> waits;  // wait i ends stretch i; the last one ends the iteration
  std::vector<std::pair<uint32_t, int64_t>> calls;  // stretch and offset of each call
  // When the task is alone: the order on the device, and when each work and wait ends.
  std::vector<Item> order;
  std::vector<int64_t> work_end, wait_end;
};

Flow flow_of(const Script& script, bool greedy);

// The high task, cut where its host waits for all that it has launched.
struct Segment {
  std::vector<Item> items;
  int64_t start = 0;  // when it starts if the task is alone, from the iteration's start
  int64_t alone = 0;  // how long it takes then, from its start to the host's return
  uint32_t first_stretch = 0;
};

struct High {
  Flow flow;
  std::vector<Segment> segments;
  std::vector<int64_t> latest;  // the latest start of each work, from its segment's start
  int64_t alone = 0, pause = 0;
  int64_t work = 0;  // on the compute engine
  bool exact = true;
};

High high_of(const Script& script, bool greedy);

// The low task: its works on the compute engine in the order of their launches, round and round.
struct Link {
  int64_t length = 0;
  bool kernel = false;
  int64_t offset = -kEver;  // of its launch, from its host's base; -kEver: launched long before
  int64_t call = 0;         // length of the launch call: held that long, it makes its host no later
  int64_t lag = 0;          // after the end of the link before it: copies
  bool waited = false;      // its end lets the host go on, and gives a new base
  int64_t wait_lag = 0, arrive = -kEver;
  int64_t horizon = 0;  // the latest offset that still matters until the next base
};

struct Chain {
  std::vector<Link> links;
  std::vector<int64_t> calls;  // offset of each call from its base
  int64_t begin = 0;           // offset of the iteration's begin
  bool works = false;          // has a kernel
  int64_t longest = 0;
  bool in_order = true;
};

Chain chain_of(const Script& script, bool greedy);

}  // namespace lull::simulate
