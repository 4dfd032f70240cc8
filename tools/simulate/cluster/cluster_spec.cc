#include "tools/simulate/cluster/cluster_spec.h"

#include <fmt/format.h>

#include <charconv>

namespace lull::simulate::cluster {
namespace {

// h100: memory and copies measured (docs/hardware/2026-11-22-H100). a100, l4: memory by their
// names, copies by their PCIe generation (4.0 x16, half of the H100's 5.0; 4.0 x8 for l4), speeds
// assumed.
constexpr Kind kKinds[] = {
    {"h100", 1.0, 85'017'493'504, 55},
    {"a100", 0.5, 42'000'000'000, 25},
    {"l4", 0.2, 24'000'000'000, 12},
};

bool number(std::string_view text, uint32_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

std::span<const Kind> kinds() { return kKinds; }

int kind_named(std::string_view name) {
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    if (kKinds[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

double ClusterSpec::capacity() const {
  double sum = 0;
  for (const jobs::Gpu& gpu : gpus) sum += kKinds[gpu.kind.value].speed;
  return sum;
}

std::expected<ClusterSpec, std::string> parse_cluster(std::string_view text) {
  ClusterSpec spec;
  spec.text = text;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const size_t x = part.find('x');
    const size_t colon = part.find(':');
    uint32_t count = 0, gpus = 0;
    if (x == std::string_view::npos || colon == std::string_view::npos || colon < x ||
        !number(part.substr(0, x), count) || !number(part.substr(x + 1, colon - x - 1), gpus) ||
        count == 0 || gpus == 0 || gpus > 16) {
      return std::unexpected(
          fmt::format("'{}': give NODESxGPUS:KIND, as 13x4:h100, with 1 to 16 GPUs a node",
                      part.substr(0, 40)));
    }
    const int kind = kind_named(part.substr(colon + 1));
    if (kind < 0) {
      std::string names;
      for (const Kind& one : kKinds)
        names += fmt::format("{}{}", names.empty() ? "" : ", ", one.name);
      return std::unexpected(
          fmt::format("'{}': unknown kind of GPU: one of {}", part.substr(0, 40), names));
    }
    if (static_cast<uint64_t>(count) * gpus + spec.gpus.size() > kMostGpus) {
      return std::unexpected(fmt::format("more than {} GPUs: give fewer", kMostGpus));
    }
    for (uint32_t n = 0; n < count; ++n) {
      for (uint32_t g = 0; g < gpus; ++g) {
        spec.gpus.push_back({.device = DeviceId{static_cast<uint32_t>(spec.gpus.size())},
                             .node = jobs::NodeId{spec.nodes},
                             .socket = g * 2 / gpus,
                             .pcie_switch = g / 2,
                             .kind = jobs::GpuKind{static_cast<uint32_t>(kind)},
                             .memory_bytes = kKinds[kind].memory_bytes});
      }
      ++spec.nodes;
    }
    spec.largest_node = std::max(spec.largest_node, gpus);
  }
  if (spec.gpus.empty()) return std::unexpected("no nodes: give NODESxGPUS:KIND, as 13x4:h100");
  return spec;
}

}  // namespace lull::simulate::cluster
