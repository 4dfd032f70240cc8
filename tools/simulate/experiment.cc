#include "tools/simulate/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "policies/launch/registry.h"
#include "tools/measure/values.h"

namespace lull::simulate {
namespace {

using command::PhaseRecord;
using command::TaskRecord;

// Each runs alone before they meet: at least so many iterations and so long, as in `compare`.
constexpr uint64_t kLearnIterations = 3;
constexpr Duration kLearnTime{200'000'000};
constexpr uint64_t kAloneWarmup = 12;
constexpr uint64_t kAloneLow = 3;
constexpr Duration kHeadStart{5'000'000};
constexpr uint64_t kFewIterations = 5;
// A bound that a schedule comes so close to is exact, or at least close.
constexpr double kNearly = 0.99, kClose = 0.8;

double ns(Instant at) { return static_cast<double>(at.ns); }

ProgramPlan plan_of(const TaskSpec& spec, uint64_t seed) {
  ProgramPlan plan;
  plan.script = &spec.script;
  plan.task = spec.task;
  plan.priority = spec.priority;
  plan.bound = spec.bound;
  plan.device = spec.device;
  plan.greedy = spec.greedy;
  plan.seed = seed;
  return plan;
}

// What a program has done, as known at some instants.
class Watcher {
 public:
  // Where kernels run to their end, what is done of a running one is known.
  Watcher(const Program& program, simgpu::Sharing sharing)
      : program_(program), whole_(sharing == simgpu::Sharing::kSerial) {}
  void sample(const Node& node) {
    record_.work.add(ns(node.now()), whole_ ? program_.executed_kernel_ns(node.now())
                                            : program_.completed_kernel_ns());
    record_.device_time.add(ns(node.now()), node.device_time_ns(program_));
  }
  TaskRecord record() const {
    TaskRecord record = record_;
    for (const Service& service : program_.services()) {
      record.iterations.push_back({ns(service.began), ns(service.ended)});
    }
    return record;
  }
  const Program& program() const { return program_; }

 private:
  const Program& program_;
  bool whole_;
  TaskRecord record_;
};

// What the high task states itself, else as the policy's own settings say, else as guarded's
// presets do.
Allowance allowance_of(const std::string& policy, SlowdownBound stated) {
  Allowance allowance;
  const auto read = [&](const std::string& text) {
    const auto choice = policies::parse_policy(text, simulated_policies());
    if (!choice) return;
    const auto mean = choice->values.find("mean_per_mille"), p99 = choice->values.find("p99_per_mille");
    if (mean) allowance.mean = static_cast<double>(*mean) / 1000;
    if (p99) allowance.tail = static_cast<double>(*p99) / 1000;
  };
  read("guarded");
  read(policy);
  if (stated.is_set()) {
    allowance.mean = stated.mean_per_mille / 1000.0;
    allowance.tail = stated.p99_per_mille / 1000.0;
  }
  return allowance;
}

struct Phase {
  std::vector<PhaseRecord> by_low;  // one a low; alone: one
  std::vector<Service> services;
  std::vector<double> low_work;
};

class Experiment {
 public:
  explicit Experiment(const ExperimentPlan& plan) : plan_(plan) {}

  std::expected<ExperimentResult, std::string> run() {
    ExperimentResult result;
    heading(result.heading);
    prepare_oracle(result.heading);
    if (auto done = alone(result); !done) return std::unexpected(done.error());
    std::vector<std::optional<policies::Predictor>> predictors(plan_.predictors.begin(),
                                                               plan_.predictors.end());
    if (predictors.empty()) predictors.emplace_back();
    for (const std::string& policy : plan_.policies) {
      for (const auto& predictor : predictors) {
        auto one = together(policy, predictor, result);
        if (!one) return std::unexpected(one.error());
        result.rows.insert(result.rows.end(), one->rows.begin(), one->rows.end());
        result.policies.push_back(std::move(*one));
      }
    }
    return result;
  }

 private:
  // Tasks are alone at first, under `share`; `together` sets the policy when they meet.
  NodeOptions options(std::optional<policies::Predictor> predictor = {}) const {
    NodeOptions node = plan_.node;
    node.coordinator.policy = "share";
    node.coordinator.predictor = predictor;
    return node;
  }

  void heading(command::Heading& heading) const {
    heading.device = plan_.node.profile.name;
    heading.simulated = true;
    heading.bound = plan_.high.bound;
    heading.sharing = command::sharing_name(static_cast<uint32_t>(plan_.node.sharing));
    heading.control_latency_us =
        static_cast<double>(plan_.node.coordinator.control_latency.ns) / 1e3;
  }

  std::string rest(const std::string& what) const {
    return what + ": the programs came to rest without it: this is an error of the simulator";
  }

  // Runs `program` until it has done its iterations, sampling at the end of each.
  bool watch(Node& node, Program& program, uint64_t iterations, std::vector<Watcher*> watchers,
             Duration longest, TaskRecord& busy_holder) {
    const Instant until = node.now() + longest;
    size_t seen = program.services().size();
    const auto sample = [&] {
      for (Watcher* watcher : watchers) watcher->sample(node);
      busy_holder.device_time.add(ns(node.now()), node.device_busy_ns(program.plan().device));
    };
    sample();
    while (program.services().size() < iterations) {
      const bool going = node.run([&] { return program.services().size() > seen; }, until);
      if (program.services().size() > seen) {
        seen = program.services().size();
        sample();
      }
      if (!going) return !node.at_rest();
    }
    return true;
  }

  std::expected<void, std::string> alone(ExperimentResult& result) {
    for (size_t who = 0; who <= plan_.lows.size(); ++who) {
      const bool is_high = who == 0;
      const TaskSpec& spec = is_high ? plan_.high : plan_.lows[who - 1];
      double interval = 0;
      for (const bool poisson : {false, true}) {
        if (poisson && (!is_high || plan_.load <= 0)) continue;
        Node node(options());
        ProgramPlan plan = plan_of(spec, plan_.seed);
        if (poisson) plan.arrival_interval_ns = interval;
        Program& program = node.start(plan);
        Watcher watcher(program, plan_.node.sharing);
        const uint64_t count =
            is_high ? std::min<uint64_t>(plan_.iterations + kAloneWarmup, kCountForP99 + kAloneWarmup)
                    : kAloneLow + 1;
        TaskRecord busy;
        if (!watch(node, program, count, {&watcher}, plan_.longest, busy)) {
          return std::unexpected(rest(spec.task + " alone"));
        }
        PhaseRecord record;
        (is_high ? record.high : record.low) = watcher.record();
        record.device_busy = busy.device_time;
        if (is_high) {
          const size_t served = program.services().size();
          if (served == 0) {
            return std::unexpected(fmt::format("{} finished nothing alone in {:g} s: measure longer",
                                               spec.task, ns(Instant{plan_.longest.ns}) / 1e9));
          }
          const auto warmup = static_cast<long>(std::min<size_t>(kAloneWarmup, served / 2));
          high_side_ = {spec.task, 0, 1};
          alone_high_ = record;
          auto& iterations = alone_high_.high->iterations;
          iterations.erase(iterations.begin(), iterations.begin() + warmup);
          alone_services_.assign(program.services().begin() + warmup, program.services().end());
          interval = command::spread(lengths(alone_services_, false)).mean / std::max(plan_.load, 1e-9);
          interval_ = poisson ? interval_ : (plan_.load > 0 ? interval : 0);
        } else {
          alone_low_.push_back(record);
        }
        result.kernel_events += node.kernel_events();
      }
    }
    auto rows = command::make_rows("alone", alone_high_, high_side_, high_side_, alone_high_,
                                   alone_high_);
    response_of(rows.front(), alone_services_);
    result.rows.push_back(rows.front());
    for (size_t i = 0; i < plan_.lows.size(); ++i) {
      for (auto& row : command::make_rows("alone", alone_low_[i], high_side_, low_side(i),
                                          alone_high_, alone_low_[i])) {
        result.rows.push_back(std::move(row));
      }
    }
    return {};
  }

  command::Side low_side(size_t i) const { return {plan_.lows[i].task, 1, 1}; }

  static std::vector<double> lengths(const std::vector<Service>& services, bool response) {
    std::vector<double> all;
    for (const Service& s : services) {
      all.push_back(static_cast<double>((s.ended - (response ? s.arrived : s.began)).ns));
    }
    return all;
  }

  void response_of(command::Row& row, const std::vector<Service>& services) const {
    if (plan_.load <= 0) return;
    const command::Spread response = command::spread(lengths(services, true));
    row.response_ms_mean = response.mean / 1e6;
    row.response_p50_ms = response.p50 / 1e6;
    row.response_p99_ms = response.p99 / 1e6;
  }

  // Every task alone for a little while, so that its kernels are known.
  bool learn(Node& node) {
    for (size_t who = 0; who <= plan_.lows.size(); ++who) {
      ProgramPlan plan = plan_of(who == 0 ? plan_.high : plan_.lows[who - 1], plan_.seed + 77);
      Program& program = node.start(plan);
      const Instant until = node.now() + kLearnTime;
      const auto enough = [&] {
        return program.services().size() >= kLearnIterations && node.now() >= until;
      };
      if (!node.run(enough)) return false;
      node.stop(program);
    }
    return true;
  }

  std::expected<PolicyResult, std::string> together(const std::string& policy,
                                                    std::optional<policies::Predictor> predictor,
                                                    ExperimentResult& result) {
    Node node(options(predictor));
    if (!learn(node)) return std::unexpected(rest("learning"));
    const uint64_t learnt_events = node.kernel_events();
    node.coordinator().set_policy(policy, node.now());
    if (plan_.watch) node.coordinator().watch(plan_.watch);
    std::vector<Watcher> watchers;
    watchers.reserve(plan_.lows.size() + 1);
    std::vector<Watcher*> all;
    std::vector<KernelSpan> kernels;
    const auto keep = [&](size_t task) -> std::function<void(Instant, Instant)> {
      if (plan_.timeline.ns <= 0) return {};
      return [&kernels, task](Instant began, Instant ended) {
        kernels.push_back({task, began, ended});
      };
    };
    for (size_t i = 0; i < plan_.lows.size(); ++i) {
      ProgramPlan low = plan_of(plan_.lows[i], plan_.seed + 1 + i);
      low.ran = keep(i + 1);
      watchers.emplace_back(node.start(low), plan_.node.sharing);
    }
    const Instant meet = node.now() + kHeadStart;
    node.run([] { return false; }, meet);
    ProgramPlan plan = plan_of(plan_.high, plan_.seed);
    plan.arrival_interval_ns = interval_;
    plan.ran = keep(0);
    if (plan_.drift_after != UINT64_MAX) {
      plan.drift_from = plan_.warmup + plan_.drift_after;
      plan.drift = plan_.drift;
    }
    Program& high = node.start(plan);
    watchers.emplace_back(high, plan_.node.sharing);
    for (Watcher& watcher : watchers) all.push_back(&watcher);
    TaskRecord busy;
    // Requests that are rare may need longer to warm up than is measured.
    if (!watch(node, high, plan_.warmup, all, Duration{2 * plan_.longest.ns}, busy)) {
      return std::unexpected(rest("both under " + policy));
    }
    const Progress low_then = watchers.front().program().progress(node.now());
    const size_t warmup = high.services().size();
    if (!watch(node, high, warmup + plan_.iterations, all, plan_.longest, busy)) {
      return std::unexpected(rest("both under " + policy));
    }
    PolicyResult one;
    one.policy = policy;
    if (predictor) one.policy += fmt::format(" ({})", policies::name_of(*predictor));
    one.steps = node.coordinator().steps();
    one.notices = node.coordinator().notices();
    TaskRecord high_record = watchers.back().record();
    const auto measured = static_cast<long>(warmup);
    high_record.iterations.erase(high_record.iterations.begin(),
                                 high_record.iterations.begin() + measured);
    command::Side high_side = high_side_;
    high_side.iterations_min = std::min<uint64_t>(kFewIterations, plan_.iterations);
    one.services.assign(high.services().begin() + measured, high.services().end());
    if (!one.services.empty()) {
      const Instant from = one.services.front().began, until = from + plan_.timeline;
      std::erase_if(kernels, [&](const KernelSpan& span) {
        return span.ended <= from || span.began >= until;
      });
      one.kernels = std::move(kernels);
    }
    const command::Window window = command::measured_window(high_record, high_side.warmup);
    for (size_t i = 0; i < plan_.lows.size(); ++i) {
      PhaseRecord record;
      record.high = high_record;
      record.low = watchers[i].record();
      record.device_busy = busy.device_time;
      auto rows = command::make_rows(one.policy, record, high_side, low_side(i), alone_high_,
                                     alone_low_[i]);
      if (i == 0) {
        response_of(rows.front(), one.services);
        one.rows.push_back(rows.front());
      }
      one.rows.push_back(rows.back());
      one.low_work.push_back(command::work_rate(*record.low, window, *record.low));
    }
    figures(one);
    oracles(one, low_then, window, result);
    result.kernel_events += node.kernel_events() - learnt_events;
    return one;
  }

  // What the oracle plays: one low task beside the high one, on a serial device, in a closed loop.
  bool can_play() const {
    return plan_.node.sharing == simgpu::Sharing::kSerial && plan_.lows.size() == 1 &&
           plan_.load <= 0 && plan_.drift_after == UINT64_MAX &&
           plan_.lows[0].device == plan_.high.device;
  }

  void prepare_oracle(command::Heading& heading) {
    if (!plan_.oracle) return;
    heading.oracle = "bound";
    if (!can_play()) return;
    oracle_.emplace(plan_.high.script, plan_.high.greedy, plan_.lows[0].script,
                    plan_.lows[0].greedy);
    heading.oracle = oracle_->exact() && plan_.node.jitter.ns == 0 ? "exact" : "estimate";
  }

  static void say_how_sharp(std::string& oracle, const OracleRate& rate) {
    if (oracle == "exact" && rate.reached < kNearly * rate.most) oracle = "close";
    if (oracle == "close" && rate.reached < kClose * rate.most) oracle = "bound";
  }

  // Elsewhere: what the low task does alone, and no more than the high one leaves of the device.
  double bound(size_t low, const PolicyResult& one, const command::Window& window,
               double mean) const {
    const auto& record = *alone_low_[low].low;
    const double alone = command::work_rate(record, command::measured_window(record, 1), record);
    if (plan_.lows[low].device != plan_.high.device || plan_.drift_after != UINT64_MAX ||
        plan_.node.sharing == simgpu::Sharing::kMps) {
      return alone;
    }
    const auto count = static_cast<double>(one.services.size());
    const double pauses = (count - 1) * static_cast<double>(plan_.high.script.pause_after_ns);
    const double most = plan_.load > 0 ? window.length_ns()
                                       : count * one.high.alone.mean * (1 + mean) + pauses;
    const double left = 1 - count * static_cast<double>(plan_.high.script.kernel_ns) / most;
    return std::min(alone, std::max(0.0, left));
  }

  void oracles(PolicyResult& one, const Progress& low_then, const command::Window& window,
               ExperimentResult& result) {
    const Allowance allowance = allowance_of(one.policy, plan_.high.bound);
    const uint64_t count = one.services.size();
    if (count == 0 || !plan_.oracle) return;
    for (size_t i = 0; i < plan_.lows.size(); ++i) {
      double most = 0, most0 = 0;
      if (oracle_) {
        const LowState start = oracle_->seen(low_then);
        const OracleRate rate = oracle_->rate(start, plan_.warmup > 0, count, allowance);
        const OracleRate rate0 = oracle_->rate(start, plan_.warmup > 0, count, {0, 0});
        most = rate.most;
        most0 = rate0.most;
        one.oracle_reached = rate.reached;
        say_how_sharp(result.heading.oracle, rate);
        say_how_sharp(result.heading.oracle, rate0);
      } else {
        most = bound(i, one, window, allowance.mean);
        most0 = bound(i, one, window, 0);
      }
      command::Row& row = one.rows[i + 1];
      if (most > 0) row.oracle_share = one.low_work[i] / most;
      if (most0 > 0) row.oracle0_share = one.low_work[i] / most0;
      if (one.oracle_reached > 0) row.oracle_found_share = one.low_work[i] / one.oracle_reached;
      if (i > 0) continue;
      one.oracle_work = most;
      one.oracle0_work = most0;
      if (most > 0) one.oracle_share = row.oracle_share;
      if (most0 > 0) one.oracle0_share = row.oracle0_share;
    }
  }

  void figures(PolicyResult& one) const {
    HighFigures& high = one.high;
    high.count = one.services.size();
    high.alone = command::spread(lengths(alone_services_, false));
    high.service = command::spread(lengths(one.services, false));
    high.response = command::spread(lengths(one.services, true));
    high.response_alone = command::spread(lengths(alone_services_, true));
    high.slowdown_mean = high.service.mean / high.alone.mean;
    high.slowdown_p99 = high.service.p99 / high.alone.p99;
    high.p99_counts = high.count >= kCountForP99;
    if (!one.rows.empty()) one.rows.front().slowdown_mean = high.slowdown_mean;
  }

  const ExperimentPlan& plan_;
  command::Side high_side_;  // records are kept without their warm-up
  PhaseRecord alone_high_;
  std::vector<PhaseRecord> alone_low_;
  std::vector<Service> alone_services_;
  double interval_ = 0;
  std::optional<Oracle> oracle_;
};

}  // namespace

std::expected<ExperimentResult, std::string> run_experiment(const ExperimentPlan& plan) {
  return Experiment(plan).run();
}

}  // namespace lull::simulate
