#include "tools/simulate/cluster/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>

#include "policies/jobs/decision_check.h"
#include "tools/simulate/cluster/speed_model.h"
#include "tools/simulate/random.h"

namespace lull::simulate::cluster {
namespace {

constexpr double kNs = 1e9;
constexpr size_t kMostSamples = 2000;
constexpr size_t kMostSpans = 60'000;

int64_t ns(double s) { return static_cast<int64_t>(std::llround(s * kNs)); }
double seconds(int64_t t) { return static_cast<double>(t) / kNs; }

template <typename... F>
struct Overload : F... {
  using F::operator()...;
};

enum class What : uint8_t {
  kArrival,
  kMilestone,
  kMoveEnd,
  kNodeFails,
  kNodeBack,
  kGpuFails,
  kGpuBack,
  kReport,
  kSample
};

struct Due {
  int64_t at_ns = 0;
  uint64_t order = 0;  // ties break by when they were put here
  What what = What::kArrival;
  size_t who = 0;      // job or node
  uint64_t epoch = 0;  // of a job: void if it has another one by then
  bool operator>(const Due& other) const {
    return at_ns != other.at_ns ? at_ns > other.at_ns : order > other.order;
  }
};

enum class Where : uint8_t { kAway, kQueued, kEntering, kRunning, kOut, kGone };

struct Live {
  Where where = Where::kAway;
  std::vector<uint32_t> gpus;  // where it runs or is to run
  double progress = 0;         // iterations
  double rate = 0;             // a second
  int64_t since_ns = 0;        // until when progress is counted
  double reported = 0;         // progress at the last report, or at the last change
  uint64_t milestone_epoch = 0, move_epoch = 0;
  int64_t move_begun_ns = 0;
  int64_t out_at_ns = 0;  // its memory is on the host from then on
  int64_t move_end_ns = 0;
  uint32_t host_node = 0;
  bool has_memory = false;  // something to bring back
  bool told_memory = false;
  bool preferred = false;  // by the owner of a search
  uint32_t rung = 0;  // of a search: the next tenth
};

struct LiveGpu {
  std::vector<size_t> jobs;  // that run there, or enter
  int64_t free_at_ns = 0;    // the memory of those who left is out
  uint32_t failures = 0;     // that it is part of now
  double busy = 0;           // at present
  int64_t busy_since_ns = 0;
  Span lane;
  bool lane_open = false;
};

class Simulation {
 public:
  explicit Simulation(const Plan& plan)
      : plan_(plan),
        model_(plan.seed, plan.jobs),
        random_(plan.seed ^ 0x5eed5eed5eedULL),
        policy_(plan.policy.row->make(plan.policy.values)),
        check_(plan.policy.row->preemptive),
        live_(plan.jobs.size()),
        gpus_(plan.cluster.gpus.size()),
        host_bytes_(plan.cluster.nodes, 0.0),
        link_free_ns_(plan.cluster.nodes, 0),
        node_gpus_(plan.cluster.nodes) {
    result_.jobs.resize(plan.jobs.size());
    for (uint32_t i = 0; i < gpus_.size(); ++i) {
      node_gpus_[plan.cluster.gpus[i].node.value].push_back(i);
    }
  }

  Result run() {
    for (const jobs::Gpu& gpu : plan_.cluster.gpus) events_.push_back(jobs::DeviceAppeared{gpu});
    for (size_t i = 0; i < live_.size(); ++i) put(ns(plan_.jobs[i].arrival_s), What::kArrival, i);
    if (!live_.empty()) put(ns(plan_.report_s), What::kReport, 0);
    if (plan_.node_mtbf_s > 0) {
      for (uint32_t n = 0; n < plan_.cluster.nodes; ++n) {
        put(ns(random_.exponential(plan_.node_mtbf_s)), What::kNodeFails, n);
      }
    }
    if (plan_.gpu_mtbf_s > 0) {
      for (uint32_t g = 0; g < gpus_.size(); ++g) {
        put(ns(random_.exponential(plan_.gpu_mtbf_s)), What::kGpuFails, g);
      }
    }
    sample_gap_ns_ = ns(60);
    if (plan_.keep_lanes) put(0, What::kSample, 0);
    left_ = live_.size();
    const int64_t stop_ns = plan_.stop_s > 0 ? ns(plan_.stop_s) : INT64_MAX;
    const int64_t measure_ns = ns(plan_.measure_from_s);
    bool measuring = plan_.measure_from_s <= 0;
    step();  // the devices appear
    while (left_ > 0 && result_.broken.empty() && !ended_) {
      const int64_t next = std::min(queue_.empty() ? INT64_MAX : queue_.top().at_ns, timer_ns_);
      if (next == INT64_MAX) {
        result_.broken = fmt::format("{} jobs wait for ever: nothing is left to happen", left_);
        break;
      }
      if (!measuring && next >= measure_ns) {
        now_ = measure_ns;
        for (size_t i = 0; i < live_.size(); ++i) {
          advance(i);
          result_.jobs[i].measured_iterations = -live_[i].progress;
        }
        measuring = true;
      }
      if (next >= stop_ns) {
        now_ = stop_ns;
        break;
      }
      now_ = next;
      while (!queue_.empty() && queue_.top().at_ns == now_) {
        const Due due = queue_.top();
        queue_.pop();
        handle(due);
      }
      if (timer_ns_ <= now_) {
        timer_ns_ = INT64_MAX;
        events_.push_back(jobs::TimerDue{});
      }
      if (!events_.empty()) step();
    }
    finish();
    return std::move(result_);
  }

 private:
  const JobSpec& spec(size_t job) const { return plan_.jobs[job]; }
  const Kind& kind_of(uint32_t gpu) const { return kinds()[plan_.cluster.gpus[gpu].kind.value]; }
  uint32_t node_of(uint32_t gpu) const { return plan_.cluster.gpus[gpu].node.value; }

  void put(int64_t at_ns, What what, size_t who, uint64_t epoch = 0) {
    queue_.push({at_ns, order_++, what, who, epoch});
  }

  // ---- what happens --------------------------------------------------------------------------
  void handle(const Due& due) {
    switch (due.what) {
      case What::kArrival:
        return arrive(due.who);
      case What::kMilestone:
        if (live_[due.who].milestone_epoch == due.epoch) milestone(due.who);
        return;
      case What::kMoveEnd:
        if (live_[due.who].move_epoch == due.epoch) entered(due.who);
        return;
      case What::kNodeFails:
        fail(node_gpus_[due.who], static_cast<int64_t>(due.who));
        return put(now_ + ns(plan_.node_repair_s), What::kNodeBack, due.who);
      case What::kNodeBack:
        for (const uint32_t gpu : node_gpus_[due.who]) back(gpu);
        return put(now_ + ns(random_.exponential(plan_.node_mtbf_s)), What::kNodeFails, due.who);
      case What::kGpuFails:
        fail({static_cast<uint32_t>(due.who)}, -1);
        return put(now_ + ns(plan_.node_repair_s), What::kGpuBack, due.who);
      case What::kGpuBack:
        back(static_cast<uint32_t>(due.who));
        return put(now_ + ns(random_.exponential(plan_.gpu_mtbf_s)), What::kGpuFails, due.who);
      case What::kReport:
        report();
        put(now_ + ns(plan_.report_s), What::kReport, 0);
        return;
      case What::kSample:
        return sample();
    }
  }

  void arrive(size_t job) {
    const JobSpec& one = spec(job);
    live_[job].where = Where::kQueued;
    there_.insert(std::lower_bound(there_.begin(), there_.end(), job), job);
    ++arrived_;
    ++waiting_;
    jobs::JobRequest request;
    request.job = JobId{job};
    request.priority = one.priority;
    request.gpus = one.gpus;
    request.most_gpus = one.most_gpus;
    request.memory_bytes = one.memory_bytes;
    request.kinds = one.kinds;
    request.multi_job = one.multi_job;
    events_.push_back(jobs::JobArrived{request});
  }

  // Counts what a job has done since it was last asked.
  void advance(size_t job) {
    Live& live = live_[job];
    if (live.where == Where::kRunning && live.rate > 0) {
      const double before = live.progress;
      live.progress += live.rate * seconds(now_ - live.since_ns);
      JobResult& result = result_.jobs[job];
      if (result.first_100_s < 0 && live.progress >= 100) {
        const double at_s = seconds(live.since_ns) + (100 - before) / live.rate;
        result.first_100_s = at_s - spec(job).arrival_s;
      }
      result.ran_s += seconds(now_ - live.since_ns);
    }
    live.since_ns = now_;
  }

  double next_milestone(size_t job) const {
    const JobSpec& one = spec(job);
    const auto all = static_cast<double>(one.iterations);
    double next = one.fails_at > 0 ? all * one.fails_at : all;
    if (plan_.stop_bad && one.quality >= 0) next = std::min(next, all * (live_[job].rung + 1) / 10);
    return next;
  }

  void set_rate(size_t job, double rate) {
    Live& live = live_[job];
    advance(job);
    if (rate == live.rate) return;
    live.rate = rate;
    live.reported = live.progress;
    const uint64_t epoch = ++live.milestone_epoch;
    if (rate <= 0) return;
    const double left = std::max(0.0, next_milestone(job) - live.progress);
    put(now_ + static_cast<int64_t>(std::ceil(left / rate * kNs)), What::kMilestone, job, epoch);
  }

  void milestone(size_t job) {
    Live& live = live_[job];
    const JobSpec& one = spec(job);
    const auto all = static_cast<double>(one.iterations);
    advance(job);
    live.progress = next_milestone(job);
    if (one.fails_at > 0 && live.progress >= all * one.fails_at) {
      return end(job, Outcome::kFailed, jobs::JobFailed{JobId{job}});
    }
    if (plan_.stop_bad && one.quality >= 0) {
      const uint32_t rung = ++live.rung;
      const double score = search_score(plan_, job, rung);
      if (score >= kSearchAim) {
        result_.aim_s = seconds(now_);
        ended_ = true;
        return;
      }
      std::vector<double>& seen = rungs_[rung];
      seen.push_back(score);
      if (plan_.prefer_best) prefer(job, search_prefers(score, rung));
      if (search_stops(seen, score)) {
        return end(job, Outcome::kStopped, jobs::JobFinished{JobId{job}});
      }
      if (rung < 10) {
        const uint64_t epoch = ++live.milestone_epoch;
        const double left = std::max(0.0, next_milestone(job) - live.progress);
        put(now_ + static_cast<int64_t>(std::ceil(left / live.rate * kNs)), What::kMilestone, job,
            epoch);
        return;
      }
    }
    end(job, Outcome::kFinished, jobs::JobFinished{JobId{job}});
  }

  void prefer(size_t job, bool promising) {
    if (promising == live_[job].preferred) return;
    live_[job].preferred = promising;
    events_.push_back(jobs::Command{.job = JobId{job},
                                    .order = jobs::Command::Order::kPrioritise,
                                    .priority = promising ? kPreferredPriority : kSearchPriority});
  }

  void end(size_t job, Outcome outcome, jobs::Event event) {
    JobResult& result = result_.jobs[job];
    result.outcome = outcome;
    result.end_s = seconds(now_) - spec(job).arrival_s;
    leave_gpus(job);
    live_[job].where = Where::kGone;
    there_.erase(std::lower_bound(there_.begin(), there_.end(), job));
    --left_;
    events_.push_back(std::move(event));
  }

  void report() {
    for (const size_t job : there_) {
      Live& live = live_[job];
      if (live.where != Where::kRunning) continue;
      advance(job);
      const double whole = std::floor(live.progress) - std::ceil(live.reported);
      if (whole >= 1 && live.rate > 0) {
        const double off = 1 + plan_.noise * (2 * random_.unit() - 1);
        events_.push_back(jobs::IterationsFinished{JobId{job}, static_cast<uint64_t>(whole),
                                                   Duration{ns(off / live.rate)}});
        live.reported = live.progress;
        if (!live.told_memory) {
          live.told_memory = true;
          events_.push_back(jobs::MemoryInUse{JobId{job}, spec(job).memory_bytes});
        }
      }
      const uint32_t first = live.gpus.front();
      if (gpus_[first].jobs.front() == job) {
        const double seen = gpus_[first].busy * (1 + plan_.noise * (2 * random_.unit() - 1));
        events_.push_back(jobs::DeviceLoad{
            plan_.cluster.gpus[first].device,
            static_cast<uint32_t>(std::clamp(std::lround(seen * 1000), 1L, 1000L))});
      }
    }
  }

  // A GPU is back when each failure that it was part of is over.
  void back(uint32_t gpu) {
    if (--gpus_[gpu].failures > 0) return;
    gpus_[gpu].free_at_ns = now_;
    events_.push_back(jobs::DeviceAppeared{plan_.cluster.gpus[gpu]});
  }

  // `node`: its host memory is lost, too; negative: none is.
  void fail(const std::vector<uint32_t>& gpus, int64_t node) {
    for (const uint32_t gpu : gpus) {
      if (gpus_[gpu].failures++ > 0) continue;
      events_.push_back(jobs::DeviceVanished{plan_.cluster.gpus[gpu].device});
    }
    for (const size_t job : there_) {
      Live& live = live_[job];
      if (live.where == Where::kQueued) continue;
      bool hit = live.where == Where::kOut && live.host_node == node;
      if (live.where != Where::kOut) {
        hit = std::ranges::any_of(
            live.gpus, [&](uint32_t gpu) { return std::ranges::find(gpus, gpu) != gpus.end(); });
      }
      if (!hit) continue;
      if (live.where != Where::kOut) ++waiting_;
      leave_gpus(job);
      leave_host(job);
      // It begins again from where it saved itself.
      const double lost = random_.unit() * spec(job).checkpoint_s / spec(job).iteration_s;
      live.progress = std::max(0.0, std::floor(live.progress - lost));
      live.reported = live.progress;
      live.where = Where::kQueued;
      live.has_memory = false;
      ++result_.jobs[job].losses;
      events_.push_back(jobs::JobLost{JobId{job}});
    }
  }

  // ---- GPUs ----------------------------------------------------------------------------------
  void count_busy(uint32_t gpu) {
    LiveGpu& one = gpus_[gpu];
    const double passed = seconds(now_ - one.busy_since_ns);
    result_.busy_gpu_s += one.busy * passed;
    if (!one.jobs.empty()) result_.occupied_gpu_s += passed;
    one.busy_since_ns = now_;
  }

  void lane(uint32_t gpu) {
    if (!plan_.keep_lanes) return;
    LiveGpu& one = gpus_[gpu];
    if (one.lane_open) {
      one.lane.end_s = seconds(now_);
      if (one.lane.end_s > one.lane.begin_s && result_.lanes.size() < kMostSpans) {
        result_.lanes.push_back(one.lane);
      }
    }
    one.lane_open = !one.jobs.empty();
    if (one.lane_open) {
      one.lane = {plan_.cluster.gpus[gpu].device, seconds(now_), 0,
                  static_cast<uint32_t>(one.jobs.size()), one.jobs.front()};
    }
  }

  // Who runs on a job's GPUs, in the order in which they came.
  const std::vector<size_t>& beside(size_t job) const {
    return gpus_[live_[job].gpus.front()].jobs;
  }

  // The rates of all who run on these GPUs, and of those who share a switch with them.
  void rates_around(const std::vector<uint32_t>& gpus) {
    touched_.clear();
    for (const uint32_t gpu : gpus) {
      const jobs::Gpu& at = plan_.cluster.gpus[gpu];
      for (const uint32_t other : node_gpus_[at.node.value]) {
        const jobs::Gpu& there = plan_.cluster.gpus[other];
        if (there.socket != at.socket || there.pcie_switch != at.pcie_switch) continue;
        for (const size_t job : gpus_[other].jobs) touched_.push_back(job);
      }
    }
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const size_t job : touched_) set_rate(job, rate_of(job));
    for (const uint32_t gpu : gpus) busy_of(gpu);
  }

  void busy_of(uint32_t gpu) {
    count_busy(gpu);
    std::vector<size_t> running;
    for (const size_t job : gpus_[gpu].jobs) {
      if (live_[job].where == Where::kRunning) running.push_back(job);
    }
    gpus_[gpu].busy = running.empty() ? 0 : model_.busy(running);
  }

  double rate_of(size_t job) {
    const Live& live = live_[job];
    if (live.where != Where::kRunning) return 0;
    std::vector<const jobs::Gpu*> gpus;
    for (const uint32_t gpu : live.gpus) gpus.push_back(&plan_.cluster.gpus[gpu]);
    size_t others = 0;
    if (spec(job).bus) {
      std::vector<size_t> seen;
      for (const uint32_t gpu : live.gpus) {
        const jobs::Gpu& at = plan_.cluster.gpus[gpu];
        for (const uint32_t other : node_gpus_[at.node.value]) {
          const jobs::Gpu& there = plan_.cluster.gpus[other];
          if (there.socket != at.socket || there.pcie_switch != at.pcie_switch) continue;
          for (const size_t one : gpus_[other].jobs) {
            if (one == job || !spec(one).bus || live_[one].where != Where::kRunning) continue;
            if (live_[one].gpus == live.gpus) continue;  // its own pack
            if (std::find(seen.begin(), seen.end(), one) == seen.end()) seen.push_back(one);
          }
        }
      }
      others = seen.size();
    }
    std::vector<size_t> pack;
    size_t mine = 0;
    for (const size_t one : beside(job)) {
      if (live_[one].where != Where::kRunning) continue;
      if (one == job) mine = pack.size();
      pack.push_back(one);
    }
    return model_.alone(job, gpus, others) / model_.slowed(pack, mine);
  }

  void leave_gpus(size_t job) {
    Live& live = live_[job];
    advance(job);
    if (live.where != Where::kRunning && live.where != Where::kEntering) return;
    const bool entering = live.where == Where::kEntering;
    live.where = Where::kOut;
    live.rate = 0;
    ++live.milestone_epoch;
    ++live.move_epoch;
    if (!entering) --running_;
    for (const uint32_t gpu : live.gpus) {
      count_busy(gpu);
      std::erase(gpus_[gpu].jobs, job);
      lane(gpu);
    }
    rates_around(live.gpus);
  }

  void leave_host(size_t job) {
    Live& live = live_[job];
    if (!live.has_memory) return;
    host_bytes_[live.host_node] -= bytes_of(job);
  }

  double bytes_of(size_t job) const {
    return static_cast<double>(spec(job).memory_bytes) * spec(job).gpus;
  }
  double copy_s(size_t job, uint32_t gpu) const {
    if (plan_.costs.free_copies) return 0;
    return static_cast<double>(spec(job).memory_bytes) / (kind_of(gpu).copy_gb_per_s * 1e9);
  }

  // ---- decisions -----------------------------------------------------------------------------
  // Out of its GPUs: they are free for others once the copy is done.
  void suspend(size_t job) {
    Live& live = live_[job];
    const bool entering = live.where == Where::kEntering;
    // A move that is under way ends first.
    const int64_t from = entering ? std::max(now_, live.move_end_ns) : now_;
    const std::vector<uint32_t> gpus = live.gpus;
    leave_gpus(job);
    ++waiting_;
    const double took = copy_s(job, gpus.front());
    live.out_at_ns = from + ns(took);
    live.host_node = node_of(gpus.front());
    live.has_memory = true;
    live.move_end_ns = live.out_at_ns;
    host_bytes_[live.host_node] += bytes_of(job);
    result_.most_host_bytes = std::max(result_.most_host_bytes, host_bytes_[live.host_node]);
    result_.moved_bytes += bytes_of(job);
    for (const uint32_t gpu : gpus) {
      gpus_[gpu].free_at_ns = std::max(gpus_[gpu].free_at_ns, live.out_at_ns);
    }
    result_.moving_gpu_s += took * static_cast<double>(gpus.size());
  }

  // Onto GPUs, queued or suspended. `extra_s`: what it does before it runs.
  void enter(size_t job, std::vector<uint32_t> gpus, double extra_s = 0) {
    Live& live = live_[job];
    --waiting_;
    int64_t from = std::max(now_, live.out_at_ns);
    for (const uint32_t gpu : gpus) from = std::max(from, gpus_[gpu].free_at_ns);
    double took = plan_.costs.context_s + extra_s;
    const uint32_t node = node_of(gpus.front());
    if (live.has_memory) {
      leave_host(job);
      took += copy_s(job, gpus.front());
      result_.moved_bytes += bytes_of(job);
      if (live.host_node != node) {
        from = std::max({from, link_free_ns_[node], link_free_ns_[live.host_node]});
        const int64_t over = ns(bytes_of(job) / (plan_.costs.network_gb_per_s * 1e9));
        from += over;
        link_free_ns_[node] = link_free_ns_[live.host_node] = from;
        result_.moved_bytes += bytes_of(job);
      }
    }
    live.has_memory = false;
    live.gpus = std::move(gpus);
    live.where = Where::kEntering;
    live.move_begun_ns = now_;
    live.move_end_ns = from + ns(took);
    result_.moving_gpu_s +=
        seconds(live.move_end_ns - now_) * static_cast<double>(live.gpus.size());
    for (const uint32_t gpu : live.gpus) {
      count_busy(gpu);
      gpus_[gpu].jobs.push_back(job);
      lane(gpu);
    }
    put(live.move_end_ns, What::kMoveEnd, job, ++live.move_epoch);
  }

  void entered(size_t job) {
    Live& live = live_[job];
    advance(job);
    live.where = Where::kRunning;
    live.since_ns = now_;
    live.reported = live.progress;
    ++running_;
    JobResult& result = result_.jobs[job];
    if (result.first_run_s < 0) result.first_run_s = seconds(now_) - spec(job).arrival_s;
    events_.push_back(jobs::MoveDone{JobId{job}, Duration{now_ - live.move_begun_ns}});
    rates_around(live.gpus);
  }

  static std::vector<uint32_t> places(const jobs::GpuSet& gpus) {
    std::vector<uint32_t> out;
    for (const DeviceId device : gpus) out.push_back(device.value);
    return out;
  }

  void resize(size_t job, const jobs::GpuSet& gpus) {
    leave_gpus(job);
    live_[job].out_at_ns = now_;
    live_[job].has_memory = false;  // the workers start anew
    ++waiting_;
    enter(job, places(gpus), plan_.costs.resize_s);
    ++result_.jobs[job].resizes;
  }

  void carry_out(const jobs::Decision& decision) {
    ++result_.decisions;
    std::visit(
        Overload{
            [&](const jobs::Place& d) { enter(d.job.value, places(d.gpus)); },
            [&](const jobs::Resume& d) {
              const auto job = static_cast<size_t>(d.job.value);
              ++result_.jobs[job].resumes;
              if (places(d.gpus) != live_[job].gpus) ++result_.jobs[job].migrations;
              enter(job, places(d.gpus));
            },
            [&](const jobs::Suspend& d) {
              ++result_.jobs[d.job.value].suspends;
              suspend(d.job.value);
            },
            [&](const jobs::Unpack& d) {
              ++result_.jobs[d.job.value].suspends;
              suspend(d.job.value);
            },
            [&](const jobs::Migrate& d) {
              ++result_.jobs[d.job.value].migrations;
              suspend(d.job.value);
              enter(d.job.value, places(d.gpus));
            },
            [&](const jobs::Pack& d) {
              const auto job = static_cast<size_t>(d.job.value);
              ++result_.jobs[job].packs;
              if (live_[job].where == Where::kRunning || live_[job].where == Where::kEntering) {
                suspend(job);
              }
              enter(job, places(d.gpus));
            },
            [&](const jobs::Grow& d) { resize(d.job.value, d.gpus); },
            [&](const jobs::Shrink& d) { resize(d.job.value, d.gpus); },
            [&](const jobs::SetTimer& d) { timer_ns_ = d.at == kNever ? INT64_MAX : d.at.ns; },
        },
        decision.what);
  }

  void step() {
    decisions_.clear();
    policy_->step(Instant{now_}, events_, decisions_);
    ++result_.steps;
    if (plan_.keep_log) {
      for (const jobs::Decision& decision : decisions_) {
        if (std::holds_alternative<jobs::SetTimer>(decision.what)) continue;
        result_.log.push_back(fmt::format("{:.3f} {}", seconds(now_), text_of(decision)));
      }
    }
    result_.events += events_.size();
    if (auto broken = check_.step(events_, decisions_)) {
      result_.broken = fmt::format("at {:.3f} s: {}", seconds(now_), *broken);
      return;
    }
    events_.clear();
    for (const jobs::Decision& decision : decisions_) {
      carry_out(decision);
    }
    const size_t there = arrived_ - (live_.size() - left_);
    if (check_.running() + check_.waiting() != there) {
      result_.broken = fmt::format("at {:.3f} s: {} jobs are there and {} are known", seconds(now_),
                                   there, check_.running() + check_.waiting());
    }
  }

  void sample() {
    double busy = 0;
    for (const LiveGpu& gpu : gpus_) busy += gpu.busy;
    result_.samples.push_back({seconds(now_), static_cast<uint32_t>(running_),
                               static_cast<uint32_t>(waiting_),
                               busy / static_cast<double>(gpus_.size())});
    if (result_.samples.size() >= kMostSamples) {  // every second one, from here on too
      std::vector<Sample> half;
      for (size_t i = 0; i < result_.samples.size(); i += 2) half.push_back(result_.samples[i]);
      result_.samples = std::move(half);
      sample_gap_ns_ *= 2;
    }
    put(now_ + sample_gap_ns_, What::kSample, 0);
  }

  void finish() {
    for (size_t job = 0; job < live_.size(); ++job) {
      advance(job);
      if (plan_.measure_from_s > 0) result_.jobs[job].measured_iterations += live_[job].progress;
    }
    for (uint32_t gpu = 0; gpu < gpus_.size(); ++gpu) {
      count_busy(gpu);
      lane(gpu);
    }
    result_.makespan_s = seconds(now_);
  }

  const Plan& plan_;
  SpeedModel model_;
  Random random_;
  std::unique_ptr<jobs::JobPolicy> policy_;
  jobs::DecisionCheck check_;
  std::vector<Live> live_;
  std::vector<size_t> there_;  // jobs that have arrived and not gone, ascending
  std::vector<LiveGpu> gpus_;
  std::vector<double> host_bytes_;     // by node
  std::vector<int64_t> link_free_ns_;  // by node: its network link is free from then on
  std::vector<std::vector<uint32_t>> node_gpus_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> queue_;
  std::vector<jobs::Event> events_;
  std::vector<jobs::Decision> decisions_;
  std::map<uint32_t, std::vector<double>> rungs_;
  std::vector<size_t> touched_;
  uint64_t order_ = 0;
  int64_t now_ = 0;
  int64_t timer_ns_ = INT64_MAX;
  int64_t sample_gap_ns_ = 0;
  size_t arrived_ = 0, left_ = 0;
  size_t running_ = 0, waiting_ = 0;
  bool ended_ = false;
  Result result_;
};

}  // namespace

std::string why_never(const ClusterSpec& cluster, const JobSpec& job) {
  for (size_t kind = 0; kind < kinds().size(); ++kind) {
    if ((job.kinds >> kind & 1) == 0 || job.memory_bytes > kinds()[kind].memory_bytes) continue;
    std::map<uint32_t, uint32_t> by_node;
    for (const jobs::Gpu& gpu : cluster.gpus) by_node[gpu.node.value] += gpu.kind.value == kind;
    uint32_t most = 0, all = 0;
    for (const auto& [node, gpus] : by_node) {
      most = std::max(most, gpus);
      all += gpus;
    }
    if (job.gpus <= most || (job.gpus > cluster.largest_node && job.gpus <= all)) return "";
  }
  return fmt::format("no GPUs of one kind are enough for it: {} GPUs with {:.1f} GB each", job.gpus,
                     static_cast<double>(job.memory_bytes) / 1e9);
}

double search_curve(double quality, double share) {
  return quality * (1 - std::exp(-4 * share)) / (1 - std::exp(-4.0));
}

double search_score(const Plan& plan, size_t job, uint32_t tenth) {
  return search_curve(plan.jobs[job].quality, tenth / 10.0) +
         0.02 * (2 * Random(plan.seed ^ (job * 64 + tenth)).unit() - 1);
}

bool search_stops(std::vector<double> seen, double score) {
  if (seen.size() <= kSearchPeers) return false;
  const auto middle = seen.begin() + static_cast<ptrdiff_t>(seen.size() / 2);
  std::nth_element(seen.begin(), middle, seen.end());
  return score < *middle;
}

bool search_prefers(double score, uint32_t tenth) {
  return score / search_curve(1, tenth / 10.0) >= kSearchAim;
}

Result simulate(const Plan& plan) { return Simulation(plan).run(); }

}  // namespace lull::simulate::cluster
