// Plays scenario files of the job policies (README.md) and compares the decisions with what the
// file says. With --rewrite the files are made to say what came out: read the diff.
//
//   run_job_scenarios [--rewrite] FILE...       exit: 0 as written, 1 not, 2 wrong usage
#include <algorithm>
#include <charconv>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "policies/jobs/decision_check.h"
#include "policies/jobs/registry.h"

namespace lull::jobs {
namespace {

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

int64_t parse_number(const std::string& word) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) {
    fail("'" + word + "': a whole number is wanted");
  }
  return value;
}

// "90s", "250ms"
int64_t parse_time(const std::string& word) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const std::string unit(end, word.data() + word.size());
  if (error == std::errc{} && unit == "s") return value * 1'000'000'000;
  if (error == std::errc{} && unit == "ms") return value * 1'000'000;
  fail("'" + word + "': a time such as 60s or 250ms is wanted");
}

std::string show_time(int64_t ns) {
  return ns % 1'000'000'000 == 0 ? std::to_string(ns / 1'000'000'000) + "s"
                                 : std::to_string(ns / 1'000'000) + "ms";
}

class Words {
 public:
  explicit Words(const std::string& line) {
    std::istringstream in(line);
    for (std::string word; in >> word;) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos) {
        words_.push_back(word);
      } else {
        options_[word.substr(0, equals)] = word.substr(equals + 1);
      }
    }
  }
  std::string next(const char* what) {
    if (at_ == words_.size()) fail(std::string(what) + " is missing");
    return words_[at_++];
  }
  bool more() const { return at_ < words_.size(); }
  std::string option(const std::string& name, const std::string& otherwise) {
    const auto found = options_.find(name);
    if (found == options_.end()) return otherwise;
    std::string value = found->second;
    options_.erase(found);
    return value;
  }
  void end() const {
    if (at_ < words_.size()) fail("'" + words_[at_] + "' is too much");
    if (!options_.empty()) fail("'" + options_.begin()->first + "' is no option here");
  }

 private:
  std::vector<std::string> words_;
  size_t at_ = 0;
  std::map<std::string, std::string> options_;
};

class Player {
 public:
  // Plays one command; what was decided, line by line.
  std::vector<std::string> play(const std::string& line) {
    said_.clear();
    Words words(line.starts_with("policy ") ? "policy" : line);
    std::string word = words.next("a command");
    if (word == "policy") {
      const auto choice = parse_job_policy(line.substr(7));
      if (!choice) fail(choice.error());
      policy_ = choice->row->make(choice->values);
      check_ = std::make_unique<DecisionCheck>(choice->row->preemptive);
      return said_;
    }
    if (policy_ == nullptr) fail("the first command is policy");
    if (word.back() == 's') {  // a time
      const int64_t at = parse_time(word);
      if (at < now_) fail("time goes back");
      run_timers(at);
      now_ = at;
      word = words.next("a command");
    }
    command(word, words);
    words.end();
    return said_;
  }

 private:
  static MultiJobId multi_job(Words& words) {
    return {static_cast<uint64_t>(parse_number(words.option("search", "0")))};
  }

  void command(const std::string& word, Words& words) {
    const auto job = [&] {
      return JobId{static_cast<uint64_t>(parse_number(words.next("a job")))};
    };
    const auto device = [&] {
      return DeviceId{static_cast<uint32_t>(parse_number(words.next("a GPU")))};
    };
    if (word == "node") {  // node GPUS memory=80 kind=0
      const int64_t count = parse_number(words.next("the number of GPUs"));
      const auto gb = parse_number(words.option("memory", "80"));
      const auto kind = parse_number(words.option("kind", "0"));
      for (int64_t i = 0; i < count; ++i) {
        known_.push_back(Gpu{.device = DeviceId{static_cast<uint32_t>(known_.size())},
                             .node = NodeId{nodes_},
                             .socket = static_cast<uint32_t>(i * 2 / count),
                             .pcie_switch = static_cast<uint32_t>(i / 2),
                             .kind = GpuKind{static_cast<uint32_t>(kind)},
                             .memory_bytes = static_cast<uint64_t>(gb) << 30});
        events_.push_back(DeviceAppeared{known_.back()});
      }
      ++nodes_;
    } else if (word == "arrive") {
      JobRequest request;
      request.job = job();
      request.gpus = static_cast<uint32_t>(parse_number(words.option("gpus", "1")));
      request.most_gpus = static_cast<uint32_t>(parse_number(words.option("most", "0")));
      request.priority.level = static_cast<uint8_t>(parse_number(words.option("priority", "5")));
      request.memory_bytes = static_cast<uint64_t>(parse_number(words.option("memory", "0"))) << 30;
      const auto kind = parse_number(words.option("kind", "-1"));
      if (kind >= 0) request.kinds = uint64_t{1} << kind;
      request.multi_job = multi_job(words);
      request.suspendable = words.option("suspendable", "yes") == "yes";
      request.migratable = words.option("migratable", "yes") == "yes";
      events_.push_back(JobArrived{request});
    } else if (word == "finished") {
      events_.push_back(JobFinished{job()});
    } else if (word == "failed") {
      events_.push_back(JobFailed{job()});
    } else if (word == "lost") {
      events_.push_back(JobLost{job()});
    } else if (word == "vanished") {
      events_.push_back(DeviceVanished{device()});
    } else if (word == "appeared") {  // it is back
      events_.push_back(DeviceAppeared{known_.at(device().value)});
    } else if (word == "iterations") {  // iterations JOB COUNT EACH
      const JobId id = job();
      const auto count = static_cast<uint64_t>(parse_number(words.next("a count")));
      events_.push_back(IterationsFinished{id, count, Duration{parse_time(words.next("a time"))}});
    } else if (word == "load") {  // load GPU PER_MILLE
      const DeviceId id = device();
      events_.push_back(DeviceLoad{id, static_cast<uint32_t>(parse_number(words.next("a load")))});
    } else if (word == "memory") {  // memory JOB GB
      const JobId id = job();
      events_.push_back(
          MemoryInUse{id, static_cast<uint64_t>(parse_number(words.next("GB"))) << 30});
    } else if (word == "moved") {  // moved JOB TOOK
      const JobId id = job();
      events_.push_back(MoveDone{id, Duration{parse_time(words.next("a time"))}});
    } else if (word == "stands") {  // stands JOB running|suspended GPU...
      JobStands event;
      event.job = job();
      event.running = words.next("running or suspended") == "running";
      event.movable = words.option("movable", "yes") == "yes";
      while (words.more()) event.gpus.push_back(device());
      events_.push_back(event);
    } else if (word == "operator") {  // operator ORDER JOB [GPU...]
      static const std::map<std::string, Command::Order> kOrders = {
          {"suspend", Command::Order::kSuspend},
          {"resume", Command::Order::kResume},
          {"pin", Command::Order::kPin},
          {"unpin", Command::Order::kUnpin},
          {"migrate", Command::Order::kMigrate},
          {"resize", Command::Order::kResize},
          {"prioritise", Command::Order::kPrioritise}};
      const auto order = kOrders.find(words.next("an order"));
      if (order == kOrders.end()) fail("no such order");
      Command command;
      command.job = job();
      command.order = order->second;
      if (command.order == Command::Order::kResize) {
        command.gpus = static_cast<uint32_t>(parse_number(words.next("GPUs")));
      }
      if (command.order == Command::Order::kPrioritise) {
        command.priority.level = static_cast<uint8_t>(parse_number(words.next("a level")));
      }
      while (words.more()) command.to.push_back(device());
      events_.push_back(command);
    } else if (word == "wait") {
      return;  // the timers were run
    } else {
      fail("no such command: " + word);
    }
    if (words.option("and", "") == "more") return;  // one step with the next command
    step();
  }

  void run_timers(int64_t until) {
    while (timer_ <= until) {
      now_ = std::max(now_, timer_);
      timer_ = kNever.ns;
      events_.push_back(TimerDue{});
      step();
    }
  }

  void step() {
    std::vector<Decision> decisions;
    policy_->step(Instant{now_}, events_, decisions);
    if (const auto broken = check_->step(events_, decisions)) said_.push_back("BROKEN " + *broken);
    events_.clear();
    for (const Decision& decision : decisions) {
      if (const auto* timer = std::get_if<SetTimer>(&decision.what)) {
        if (timer->at.ns <= now_) fail("a timer that is not ahead");
        timer_ = timer->at.ns;
      } else {
        said_.push_back(show_time(now_) + " " + text_of(decision));
      }
    }
  }

  std::unique_ptr<JobPolicy> policy_;
  std::unique_ptr<DecisionCheck> check_;
  std::vector<Event> events_;
  std::vector<std::string> said_;
  int64_t now_ = 0;
  int64_t timer_ = kNever.ns;
  std::vector<Gpu> known_;  // by device
  uint32_t nodes_ = 0;
};

int play_file(const std::string& path, bool rewrite) {
  std::ifstream in(path);
  if (!in) {
    std::cerr << path << ": cannot be read\n";
    return 2;
  }
  std::string written, got;
  Player player;
  int number = 0;
  try {
    for (std::string line; std::getline(in, line);) {
      ++number;
      written += line + "\n";
      if (line.starts_with("> ")) continue;
      got += line + "\n";
      if (line.empty() || line.front() == '#') continue;
      for (const std::string& said : player.play(line)) got += "> " + said + "\n";
    }
  } catch (const std::exception& error) {
    std::cerr << path << ":" << number << ": " << error.what() << "\n";
    return 2;
  }
  if (got == written) return 0;
  if (rewrite) {
    std::ofstream(path) << got;
    return 0;
  }
  std::cerr << path << ": other decisions than written; it would be\n" << got;
  return 1;
}

}  // namespace
}  // namespace lull::jobs

int main(int argc, char** argv) {
  const bool rewrite = argc > 1 && std::string(argv[1]) == "--rewrite";
  if (argc < (rewrite ? 3 : 2)) {
    std::cerr << "usage: run_job_scenarios [--rewrite] FILE...\n";
    return 2;
  }
  int worst = 0;
  for (int i = rewrite ? 2 : 1; i < argc; ++i) {
    worst = std::max(worst, lull::jobs::play_file(argv[i], rewrite));
  }
  return worst;
}
