#include "tools/simulate/cluster/generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/simulate/random.h"

namespace lull::simulate::cluster {
namespace {

// Marks: [Gandiva] read in Xiao et al., OSDI'18; [Gavel] the generator of Narayanan et al.,
// OSDI'20, which samples the Philly trace (Jeon et al., ATC'19); [estimate] ours, without a source.

double between(Random& random, double low, double high) {
  return low + (high - low) * random.unit();
}
double log_between(Random& random, double low, double high) {
  return low * std::pow(high / low, random.unit());
}

// [Gavel] 70 % of the jobs have 1 GPU, 10 % 2, 15 % 4, 5 % 8.
uint32_t draw_gpus(Random& random) {
  const double at = random.unit();
  return at < 0.7 ? 1 : at < 0.8 ? 2 : at < 0.95 ? 4 : 8;
}

// [Gavel] minutes: 10^x, x uniform in 1.5 to 3 for 80 % of the jobs, in 3 to 4 for the others.
double draw_length_s(Random& random) {
  return random.unit() < 0.8 ? 60 * std::pow(10, between(random, 1.5, 3))
                             : 60 * std::pow(10, between(random, 3, 4));
}

// What a job is like, whatever it is for.
void draw_nature(Random& random, JobSpec& job) {
  job.iteration_s = log_between(random, 0.05, 6);  // [Gandiva] all take 6 s or less
  job.busy = between(random, 0.087, 0.989);        // [Gandiva] table 1: 8.7 to 98.9 %
  job.memory_bytes = static_cast<uint64_t>(log_between(random, 2e9, 40e9));  // [estimate]
  // [Gandiva] VGG16 has 60 % of its speed on GPUs of two sockets, ResNet-50 all of it. [estimate]
  // half of the jobs are like the one, half like the other.
  job.locality = random.unit() < 0.5 ? 0.6 : 1;
  job.bus = random.unit() <
            0.5;  // [Gandiva] two language models on a switch, not ResNet-50; [estimate] half
}

}  // namespace

JobSpecs make_cluster_jobs(uint64_t seed, uint32_t count, const ClusterSpec& cluster,
                           double least_load, double most_load) {
  Random random(seed * 0xd1342543de82ef95ULL + 0x632be59bd9b4e019ULL);
  const double load = between(random, least_load, most_load);
  uint64_t kinds_there = 0;
  for (const jobs::Gpu& gpu : cluster.gpus) kinds_there |= uint64_t{1} << gpu.kind.value;
  JobSpecs jobs(count);
  double work_gpu_s = 0;
  std::vector<double> gaps(count);
  for (uint32_t i = 0; i < count; ++i) {
    JobSpec& job = jobs[i];
    job.name = "j" + std::to_string(i);
    job.gpus = draw_gpus(random);
    const double length_s = draw_length_s(random);
    draw_nature(random, job);
    job.iterations = std::max<uint64_t>(100, static_cast<uint64_t>(length_s / job.iteration_s));
    // [estimate] one job in ten is important, one in ten is not.
    const double importance = random.unit();
    job.priority.level = importance < 0.1 ? 2 : importance < 0.9 ? 5 : 7;
    // [estimate] one job in ten is elastic, up to twice its GPUs.
    const bool elastic = random.unit() < 0.1;
    if (elastic) job.most_gpus = std::min(2 * job.gpus, cluster.largest_node);
    // [estimate] one job in ten wants one kind of GPU only; which, by chance.
    const double choosy = random.unit();
    const uint64_t which = random.next();
    if (choosy < 0.1) {
      uint64_t kind = which % kinds().size();
      while ((kinds_there >> kind & 1) == 0) kind = (kind + 1) % kinds().size();
      job.kinds = uint64_t{1} << kind;
    }
    // [estimate] 15 % of the jobs fail, anywhere on their way.
    const double fails = random.unit();
    const double where = random.unit();
    if (fails < 0.15) job.fails_at = where;
    work_gpu_s += job.gpus * job.alone_s() * (job.fails_at > 0 ? job.fails_at : 1);
    // Heavy-tailed gaps: Pareto with exponent 1.5 (finite mean, no variance). [estimate]
    gaps[i] = std::pow(random.unit(), -1 / 1.5);
  }
  // Stretched so that the jobs arrive over the time in which the cluster could do 1 / load of them.
  const double span_s = work_gpu_s / (cluster.capacity() * load);
  const double sum = std::accumulate(gaps.begin(), gaps.end(), 0.0);
  double at_s = 0;
  for (uint32_t i = 0; i < count; ++i) {
    jobs[i].arrival_s = at_s;
    at_s += gaps[i] / sum * span_s;
  }
  return jobs;
}

JobSpec make_nature(uint64_t seed, uint64_t index) {
  Random random((seed + index * 0x9e3779b97f4a7c15ULL) * 0xd1342543de82ef95ULL + 0x632be59bd9b4e019ULL);
  JobSpec job;
  draw_nature(random, job);
  return job;
}

JobSpecs make_six_jobs(uint64_t seed) {
  Random random(seed * 0xd1342543de82ef95ULL + 0x632be59bd9b4e019ULL);
  JobSpecs jobs(6);
  for (size_t i = 0; i < jobs.size(); ++i) {
    JobSpec& job = jobs[i];
    job.name = "six" + std::to_string(i);
    draw_nature(random, job);
    job.iterations = static_cast<uint64_t>(40 * 3600 / job.iteration_s);
    job.priority.level = 5;
  }
  return jobs;
}

JobSpecs make_search_jobs(uint64_t seed, uint32_t count, uint32_t good, bool small) {
  Random random(seed * 0xd1342543de82ef95ULL + 0x632be59bd9b4e019ULL);
  JobSpecs jobs(count);
  // [estimate] all configurations of a search do as many iterations, of about the same length.
  const double iteration_s = log_between(random, 0.05, 6);
  const double length_s = log_between(random, 1800, 6 * 3600);
  // [Gandiva] table 1: the least busy are VAE, 8.7 %, and SuperResolution, 14.1 %.
  const double busy = small ? between(random, 0.087, 0.141) : between(random, 0.087, 0.989);
  const double memory = log_between(random, 2e9, small ? 8e9 : 40e9);  // [estimate]
  for (uint32_t i = 0; i < count; ++i) {
    JobSpec& job = jobs[i];
    job.name = "s" + std::to_string(i);
    job.priority = kSearchPriority;
    job.multi_job = jobs::MultiJobId{1};
    job.iteration_s = iteration_s * between(random, 0.8, 1.25);
    job.iterations = static_cast<uint64_t>(length_s / iteration_s);
    job.busy = std::min(0.989, busy * between(random, 0.8, 1.25));
    job.memory_bytes = static_cast<uint64_t>(memory * between(random, 0.8, 1.25));
    job.quality = between(random, 0.1, 0.8);
  }
  // The good ones are anywhere in the order of submission.
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  for (uint32_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.up_to(i - 1)]);
  for (uint32_t i = 0; i < good && i < count; ++i) jobs[order[i]].quality = between(random, 0.9, 1);
  return jobs;
}

}  // namespace lull::simulate::cluster
