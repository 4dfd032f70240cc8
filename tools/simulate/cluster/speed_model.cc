#include "tools/simulate/cluster/speed_model.h"

#include <algorithm>
#include <cmath>

#include "tools/simulate/random.h"

namespace lull::simulate::cluster {
namespace {

constexpr double kScaling = 0.9;
constexpr double kBesideOnSwitch = 0.81;
constexpr double kLeastOnSwitch = 0.6;
constexpr double kKindSpread = 0.2;
constexpr double kOthers = 0.05;
constexpr double kLeastEfficiency = 0.73, kMostEfficiency = 0.93;

}  // namespace

double SpeedModel::drawn(uint64_t a, uint64_t b, uint64_t what) const {
  Random random(seed_ ^ (a * 0x100000001b3ULL + b) * 0xd1342543de82ef95ULL ^ what << 56);
  return random.unit();
}

double SpeedModel::alone(size_t job, std::span<const jobs::Gpu* const> gpus, size_t beside) const {
  const JobSpec& spec = jobs_[job];
  const uint32_t kind = gpus.front()->kind.value;
  double speed = kinds()[kind].speed / spec.iteration_s;
  if (kind > 0) speed *= 1 + kKindSpread * (2 * drawn(job, kind, 1) - 1);
  const double more = static_cast<double>(gpus.size()) / spec.gpus;
  if (more > 1) speed *= std::pow(more, kScaling);
  for (const jobs::Gpu* gpu : gpus) {
    if (gpu->node == gpus.front()->node && gpu->socket == gpus.front()->socket) continue;
    speed *= spec.locality;
    break;
  }
  if (spec.bus && beside > 0) {
    speed *= std::max(kLeastOnSwitch, std::pow(kBesideOnSwitch, static_cast<double>(beside)));
  }
  return speed;
}

double SpeedModel::slowed(std::span<const size_t> pack, size_t i) const {
  if (pack.size() < 2) return 1;
  double all = 0, efficiency = 0;
  for (const size_t job : pack) all += jobs_[job].busy;
  size_t pairs = 0;
  for (size_t a = 0; a < pack.size(); ++a) {
    for (size_t b = a + 1; b < pack.size(); ++b) {
      const auto [low, high] = std::minmax(pack[a], pack[b]);
      efficiency += kLeastEfficiency + (kMostEfficiency - kLeastEfficiency) * drawn(low, high, 2);
      ++pairs;
    }
  }
  efficiency /= static_cast<double>(pairs);
  return std::max(1 + kOthers * (all - jobs_[pack[i]].busy), all / efficiency);
}

double SpeedModel::busy(std::span<const size_t> pack) const {
  double sum = 0;
  for (size_t i = 0; i < pack.size(); ++i) sum += jobs_[pack[i]].busy / slowed(pack, i);
  return std::min(1.0, sum);
}

}  // namespace lull::simulate::cluster
