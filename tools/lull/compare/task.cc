#include "tools/lull/compare/task.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/measure/values.h"

namespace lull::command {
namespace {

using nlohmann::json;

// After SIGTERM, a command has this long to end by itself, a player to drain what it has launched.
constexpr std::chrono::milliseconds kEndGrace{300};

ChildStart under_lull(const TaskPlan& plan, const Lab& lab, int serial,
                      const std::vector<std::string>& program) {
  ChildStart start;
  start.words = {lab.bin + "/lull", "run",        "--name",
                 plan.task,         "--priority", plan.role,
                 "--socket",        lab.socket,   "--require-coordinator"};
  if (plan.bound.is_set()) {
    start.words.insert(start.words.end(), {"--max-slowdown", show_slowdown(plan.bound)});
  }
  start.unset_prefixes = {"LULL_", "SIMGPU_"};
  if (!lab.sim_device.empty()) {
    start.words.push_back("--sim");
    start.set["SIMGPU_DEVICE"] = lab.sim_device;
  }
  start.words.push_back("--");
  start.words.insert(start.words.end(), program.begin(), program.end());
  start.output_file = lab.scratch->file(fmt::format("{}-{}.out", plan.role, serial));
  return start;
}

// Complete lines of a file that another process appends to.
class LineFollower {
 public:
  explicit LineFollower(std::string path) : path_(std::move(path)) {}
  ~LineFollower() {
    if (fd_ >= 0) close(fd_);
  }
  std::vector<std::string> next() {
    if (fd_ < 0) fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    std::vector<std::string> lines;
    if (fd_ < 0) return lines;
    char piece[65536];
    ssize_t got;
    while ((got = read(fd_, piece, sizeof piece)) > 0)
      rest_.append(piece, static_cast<size_t>(got));
    size_t from = 0;
    for (size_t end; (end = rest_.find('\n', from)) != std::string::npos; from = end + 1) {
      lines.push_back(rest_.substr(from, end - from));
    }
    rest_.erase(0, from);
    return lines;
  }

 private:
  std::string path_, rest_;
  int fd_ = -1;
};

double number(const json& event, const char* name) {
  const auto found = event.find(name);
  return found != event.end() && found->is_number() ? found->get<double>() : 0;
}

// lull-play, which tells its progress in a report file.
class PlayedTask : public Task {
 public:
  PlayedTask(const TaskPlan& plan, const Lab& lab, int serial)
      : plan_(plan),
        start_file_(lab.scratch->file(fmt::format("{}-{}.start", plan.role, serial))),
        report_file_(lab.scratch->file(fmt::format("{}-{}.report", plan.role, serial))),
        report_(report_file_) {}

  std::expected<void, std::string> launch(const Lab& lab, int serial) {
    std::vector<std::string> program = {lab.bin + "/lull-play",
                                        plan_.workload,
                                        "--until-signal",
                                        "--report",
                                        report_file_,
                                        "--start-file",
                                        start_file_,
                                        "--seed",
                                        fmt::format("{}", plan_.seed)};
    if (plan_.greedy) program.push_back("--greedy");
    auto child = ChildProcess::start(under_lull(plan_, lab, serial, program));
    if (!child) return std::unexpected(child.error());
    child_ = std::move(*child);
    return {};
  }

  std::expected<void, std::string> poll() override {
    const bool gone = child_->ended().has_value();
    for (const std::string& line : report_.next()) {
      const json event = json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!event.is_object()) continue;
      const std::string kind = event.value("event", "");
      if (kind == "ready") {
        ready_ = true;
        device_name = event.value("device", "");
      } else if (kind == "iteration") {
        const Iteration one{number(event, "start_ns"), number(event, "end_ns")};
        if (record.work.empty()) record.work.add(one.start_ns, 0);
        record.iterations.push_back(one);
        work_ += number(event, "kernel_ns");
        record.work.add(one.end_ns, work_);
        record.late_p99_ns = std::max(record.late_p99_ns, number(event, "late_p99_ns"));
      } else if (kind == "done") {
        // The quantile over all calls. Until it comes, that of the worst iteration is used.
        record.late_p99_ns = number(event, "late_p99_ns");
        if (record.work.empty()) record.work.add(number(event, "start_ns"), 0);
        record.work.add(number(event, "end_ns"), work_ + number(event, "partial_kernel_ns"));
        done_ = true;
      }
    }
    if (gone && !done_) {
      return std::unexpected(
          fmt::format("{} task '{}': {}", plan_.role, plan_.workload, child_->how_it_ended()));
    }
    return {};
  }
  bool ready() const override { return ready_; }
  void begin() override { std::ofstream(start_file_) << "go\n"; }
  void ask_to_finish() override { kill(child_->pid(), SIGTERM); }
  bool finished() const override { return done_; }
  void end() override { child_->end(kEndGrace); }
  bool owns(pid_t pid) override { return pid == child_->pid(); }
  bool seen_working() const override { return !record.iterations.empty(); }
  bool counts_launches() const override { return false; }

 private:
  TaskPlan plan_;
  std::string start_file_, report_file_;
  LineFollower report_;
  std::unique_ptr<ChildProcess> child_;
  double work_ = 0;
  bool ready_ = false, done_ = false;
};

// A command, started again and again: each run is one iteration.
class CommandTask : public Task {
 public:
  CommandTask(const TaskPlan& plan, const Lab& lab, int serial)
      : plan_(plan), lab_(lab), serial_(serial) {}

  std::expected<void, std::string> poll() override {
    if (child_) {
      const auto status = child_->ended();
      if (!status) return {};
      if (finishing_) {
        finished_ = true;
        return {};
      }
      if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0) {
        return std::unexpected(
            fmt::format("{} task '{}': {}", plan_.role, plan_.workload, child_->how_it_ended()));
      }
      record.iterations.push_back({started_ns_, static_cast<double>(lab_.clock.now_ns())});
      child_.reset();
    }
    if (!begun_ || finishing_) {
      finished_ = finishing_;
      return {};
    }
    const std::string command = plan_.workload.substr(std::string_view(kCommandPrefix).size());
    auto child = ChildProcess::start(under_lull(plan_, lab_, serial_, {"/bin/sh", "-c", command}));
    if (!child) return std::unexpected(child.error());
    child_ = std::move(*child);
    started_ns_ = static_cast<double>(lab_.clock.now_ns());
    pids_.insert(child_->pid());
    return {};
  }
  bool ready() const override { return true; }
  void begin() override { begun_ = true; }
  void ask_to_finish() override {
    finishing_ = true;
    if (child_) kill(-child_->pid(), SIGTERM);
  }
  bool finished() const override { return finished_ || (finishing_ && !child_); }
  void end() override {
    finishing_ = true;
    if (child_) child_->end(kEndGrace);
  }
  // Its own processes, and those they have started (same process group).
  bool owns(pid_t pid) override {
    if (pids_.contains(pid)) return true;
    if (!child_ || getpgid(pid) != child_->pid()) return false;
    pids_.insert(pid);
    return true;
  }
  bool seen_working() const override {
    return !record.iterations.empty() || record.work.last_value() > 0;
  }
  bool counts_launches() const override { return true; }

 private:
  TaskPlan plan_;
  Lab lab_;
  int serial_;
  std::unique_ptr<ChildProcess> child_;
  std::set<pid_t> pids_;
  double started_ns_ = 0;
  bool begun_ = false, finishing_ = false, finished_ = false;
};

}  // namespace

std::expected<std::unique_ptr<Task>, std::string> Task::start(const TaskPlan& plan, const Lab& lab,
                                                              int serial) {
  if (plan.is_command()) return std::make_unique<CommandTask>(plan, lab, serial);
  auto played = std::make_unique<PlayedTask>(plan, lab, serial);
  if (auto launched = played->launch(lab, serial); !launched)
    return std::unexpected(launched.error());
  return played;
}

}  // namespace lull::command
