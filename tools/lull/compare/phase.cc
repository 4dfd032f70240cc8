#include "tools/lull/compare/phase.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "tools/lull/daemon_link.h"
#include "tools/simgpu/device/inspect.h"

namespace lull::command {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTurn{5};
constexpr std::chrono::milliseconds kSimSampleEvery{25};
constexpr std::chrono::milliseconds kDaemonSampleEvery{100};
constexpr std::chrono::milliseconds kProgressEvery{250};
constexpr double kLowHeadStart_s = 0.5;  // at most, while the low task finishes no iteration

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

// Follows how much device time (and how many launches) each side has had.
class Sampler {
 public:
  Sampler(const Lab& lab, std::vector<Task*> tasks, Curve& device_busy)
      : lab_(lab), tasks_(std::move(tasks)), device_busy_(device_busy) {}

  void add(Task* task) { tasks_.push_back(task); }

  void sample(bool at_once = false) {
    const auto every = lab_.sim_device.empty() ? kDaemonSampleEvery : kSimSampleEvery;
    if (!at_once && Clock::now() - last_ < every) return;
    last_ = Clock::now();
    if (lab_.sim_device.empty()) {
      from_daemon();
    } else {
      from_simulation();
    }
  }

 private:
  struct Had {
    double device_ns = 0, launches = 0;
  };

  void from_simulation() {
    const auto usage = simgpu::read_usage(lab_.sim_device);
    if (!usage) return;
    std::map<pid_t, Had> now;
    double busy = 0;
    for (const auto& device : usage->devices) {
      busy += static_cast<double>(device.busy_ns);
      for (const auto& process : device.processes) {
        Had& had = now[process.pid];
        had.device_ns += static_cast<double>(process.busy_ns);
        had.launches += static_cast<double>(process.launches);
      }
    }
    take(static_cast<double>(usage->model_now_ns), busy, now);
  }
  void from_daemon() {
    const auto status = ask_daemon(lab_.socket, {{"op", "status"}});
    if (!status) return;
    std::map<pid_t, Had> now;
    try {
      for (const auto& client : status->at("clients")) {
        Had& had = now[client.at("pid").get<pid_t>()];
        for (const auto& device : client.at("devices")) {
          had.device_ns += device.at("device_time_ns").get<double>();
        }
        had.launches += client.at("launches").get<double>();
      }
    } catch (const nlohmann::json::exception&) {
      return;
    }
    // On hardware nothing tells how long the device as a whole was busy: the sum of the clients'
    // times is used instead.
    double busy = 0;
    for (const auto& [pid, had] : now) busy += had.device_ns;
    for (const auto& [pid, had] : seen_) {
      if (!now.contains(pid)) busy += had.device_ns;
    }
    take(static_cast<double>(lab_.clock.now_ns()), busy, now);
  }
  void take(double at_ns, double busy, const std::map<pid_t, Had>& now) {
    for (const auto& [pid, had] : now) {
      Had& before = seen_[pid];
      before.device_ns = std::max(before.device_ns, had.device_ns);
      before.launches = std::max(before.launches, had.launches);
    }
    device_busy_.add(at_ns, busy);
    for (Task* task : tasks_) {
      Had sum;
      for (const auto& [pid, had] : seen_) {
        if (!task->owns(pid)) continue;
        sum.device_ns += had.device_ns;
        sum.launches += had.launches;
      }
      task->record.device_time.add(at_ns, sum.device_ns);
      if (task->counts_launches()) task->record.work.add(at_ns, sum.launches);
    }
  }

  const Lab& lab_;
  std::vector<Task*> tasks_;
  Curve& device_busy_;
  std::map<pid_t, Had> seen_;
  Clock::time_point last_{};
};

}  // namespace

std::expected<PhaseRecord, std::string> run_phase(
    const PhasePlan& plan, const Lab& lab, int serial,
    const std::function<void(const std::string&)>& progress, std::string& device_name) {
  PhaseRecord record;
  std::unique_ptr<Task> high, low;
  Sampler sampler(lab, {}, record.device_busy);

  // One turn of the loop: reads what is new, sleeps a little. Error: stop everything.
  const auto turn = [&]() -> std::expected<void, std::string> {
    if (StopSignals::seen()) return std::unexpected("");
    for (Task* task : {high.get(), low.get()}) {
      if (task == nullptr) continue;
      if (auto read = task->poll(); !read) return read;
    }
    sampler.sample();
    std::this_thread::sleep_for(kTurn);
    return {};
  };
  const auto bring_up = [&](const TaskPlan& task,
                            std::unique_ptr<Task>& slot) -> std::expected<void, std::string> {
    auto started = Task::start(task, lab, serial);
    if (!started) return std::unexpected(started.error());
    slot = std::move(*started);
    sampler.add(slot.get());
    const auto since = Clock::now();
    while (!slot->ready()) {
      if (auto turned = turn(); !turned) return turned;
      if (seconds_since(since) > kReadyWait_s) {
        return std::unexpected(
            fmt::format("{} task '{}' is not ready after {} s: is the machine too "
                        "slow for it?",
                        task.role, task.workload, kReadyWait_s));
      }
    }
    sampler.sample(/*at_once=*/true);
    slot->begin();
    return {};
  };

  // The low task starts first: it shall be at work when the high one comes.
  if (plan.low) {
    if (auto up = bring_up(*plan.low, low); !up) return std::unexpected(up.error());
    const auto since = Clock::now();
    while (plan.high && !low->seen_working() && seconds_since(since) < kLowHeadStart_s) {
      if (auto turned = turn(); !turned) return std::unexpected(turned.error());
    }
  }
  if (plan.high) {
    if (auto up = bring_up(*plan.high, high); !up) return std::unexpected(up.error());
  }

  Task& measured = high ? *high : *low;
  size_t warmup = high ? plan.high_warmup : plan.low_warmup;
  const bool command = high ? plan.high->is_command() : plan.low->is_command();
  // A low task alone is a baseline: a few of its long iterations are enough.
  const double wanted = plan.goal.iterations ? static_cast<double>(*plan.goal.iterations)
                        : command            ? kCommandIterations
                        : high               ? kDefaultIterations
                                             : 3;
  const uint64_t few = command || !high ? 2 : kFewIterations;
  size_t settling = 0;  // iterations before the warm-up proper
  if (high && low && !plan.low->is_command()) {
    const auto begun = Clock::now();
    const size_t before = low->record.iterations.size();
    while (low->record.iterations.size() == before && seconds_since(begun) < kSettleWait_s) {
      if (auto turned = turn(); !turned) return std::unexpected(turned.error());
      progress("settling");
    }
    settling = high->record.iterations.size();
    warmup += settling;
  }
  const auto since = Clock::now();
  auto last_news = since, last_progress = since;
  size_t known = 0;
  for (;;) {
    if (auto turned = turn(); !turned) return std::unexpected(turned.error());
    const size_t all = measured.record.iterations.size();
    const size_t done = all > warmup ? all - warmup : 0;
    if (all != known) last_news = Clock::now();
    known = all;
    if (Clock::now() - last_progress > kProgressEvery) {
      last_progress = Clock::now();
      progress(plan.goal.seconds || !plan.goal.iterations
                   ? fmt::format("{} iterations", done)
                   : fmt::format("{} of {} iterations", done, *plan.goal.iterations));
    }
    const double real_s = seconds_since(since);
    if (seconds_since(last_news) > kStallWait_s) {
      record.stopped_because =
          fmt::format("no iteration finished in {} s of real time", kStallWait_s);
      break;
    }
    if (plan.goal.iterations) {
      if (done >= *plan.goal.iterations) break;
    } else if (plan.goal.seconds) {
      if (measured_window(measured.record, warmup).length_ns() >= *plan.goal.seconds * 1e9) break;
    } else {
      if (static_cast<double>(done) >= wanted && real_s >= kPhaseShortest_s) break;
      if (done >= few && real_s >= kPhaseEnough_s) break;
      if (done >= 1 && real_s >= kPhaseLongest_s) break;
    }
  }
  sampler.sample(/*at_once=*/true);

  // The tasks report at their end how late they were, and how far the unfinished iteration was. The
  // high task ends first, so that the low task's last moments are not measured.
  for (Task* task : {high.get(), low.get()}) {
    if (task == nullptr) continue;
    task->ask_to_finish();
    const auto asked = Clock::now();
    while (!task->finished() && seconds_since(asked) < kFinishWait_s) {
      if (auto turned = turn(); !turned) return std::unexpected(turned.error());
    }
    sampler.sample(/*at_once=*/true);
    task->end();
    if (!task->device_name.empty()) device_name = task->device_name;
  }
  // An exact number was asked for: later iterations do not count.
  if (plan.goal.iterations && measured.record.iterations.size() > warmup + *plan.goal.iterations) {
    measured.record.iterations.resize(warmup + *plan.goal.iterations);
  }
  if (high) {
    auto& iterations = high->record.iterations;
    iterations.erase(iterations.begin(), iterations.begin() + static_cast<long>(settling));
    record.high = std::move(high->record);
  }
  if (low) record.low = std::move(low->record);
  return record;
}

}  // namespace lull::command
