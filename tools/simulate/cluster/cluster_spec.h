// A simulated cluster: nodes of GPUs of several kinds.
//
//   --nodes 13x4:h100,12x4:a100     13 nodes with 4 GPUs each, then 12 with 4 of another kind
//
// A node has two sockets, and two GPUs behind each PCIe switch. What a kind is stands in the table
// of cluster_spec.cc, with the source of each number.
#pragma once

#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policies/jobs/vocabulary.h"

namespace lull::simulate::cluster {

struct Kind {
  std::string_view name;
  double speed = 1;  // of jobs, against the first kind
  uint64_t memory_bytes = 0;
  double copy_gb_per_s = 0;  // pinned, each way, each GPU
};

// The kinds there are, from the fastest: GpuKind{i} is the i-th.
std::span<const Kind> kinds();
// By its name; negative: there is none.
int kind_named(std::string_view name);

struct ClusterSpec {
  std::vector<jobs::Gpu> gpus;  // ascending by device; nodes are consecutive
  std::string text;
  uint32_t nodes = 0;
  uint32_t largest_node = 0;
  // GPUs, each counted by its speed.
  double capacity() const;
};

inline constexpr uint32_t kMostGpus = 100'000;

// One line saying what would be right, where the text is not.
[[nodiscard]] std::expected<ClusterSpec, std::string> parse_cluster(std::string_view text);

}  // namespace lull::simulate::cluster
