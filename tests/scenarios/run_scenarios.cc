// Plays scenario files (README.md) through the engine and compares what it puts out with what the
// file says. With --rewrite the files are made to say what came out: read the diff.
//
//   run_scenarios [--rewrite] FILE...       exit: 0 as written, 1 not, 2 wrong usage
#include <algorithm>
#include <charconv>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>

#include "coordinator/engine/engine.h"

namespace lull::engine {
namespace {

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

std::string show(int64_t ns) {
  if (ns == kNever.ns) return "never";
  if (ns != 0 && ns % 1'000'000 == 0) return std::to_string(ns / 1'000'000) + "ms";
  if (ns % 1000 == 0) return std::to_string(ns / 1000) + "us";
  return std::to_string(ns) + "ns";
}

int64_t parse_time(const std::string& word) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const std::string unit(end, word.data() + word.size());
  if (error != std::errc{}) fail("'" + word + "': a time such as 20us, 5ms or 7ns is wanted");
  if (unit == "ns") return value;
  if (unit == "us") return value * 1000;
  if (unit == "ms") return value * 1'000'000;
  fail("'" + word + "': the unit is ns, us or ms");
}

uint64_t parse_number(const std::string& word) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) {
    fail("'" + word + "': a whole number is wanted");
  }
  return value;
}

// The words of a command, taken from the front; options by name from anywhere behind.
class Words {
 public:
  explicit Words(const std::string& line) {
    std::istringstream in(line);
    for (std::string word; in >> word;) words_.push_back(word);
  }
  bool empty() const { return words_.empty(); }
  std::string next(const char* what) {
    if (words_.empty()) fail(std::string(what) + " is missing");
    std::string word = words_.front();
    words_.erase(words_.begin());
    return word;
  }
  bool flag(const std::string& name) {
    auto at = std::find(words_.begin(), words_.end(), name);
    if (at == words_.end()) return false;
    words_.erase(at);
    return true;
  }
  std::string option(const std::string& name, const std::string& preset) {
    auto at = std::find(words_.begin(), words_.end(), name);
    if (at == words_.end()) return preset;
    if (at + 1 == words_.end()) fail(name + " needs a value");
    std::string value = *(at + 1);
    words_.erase(at, at + 2);
    return value;
  }
  std::string rest() {
    std::string all;
    for (const std::string& word : words_) all += (all.empty() ? "" : " ") + word;
    words_.clear();
    return all;
  }

 private:
  std::vector<std::string> words_;
};

class Player {
 public:
  // The whole file as it should read.
  std::string play(std::istream& file) {
    std::string line;
    int number = 0;
    while (std::getline(file, line)) {
      number += 1;
      if (line.starts_with("  =")) continue;
      try {
        take(line);
      } catch (const std::runtime_error& error) {
        fail("line " + std::to_string(number) + ": " + error.what());
      }
    }
    flush();
    return text_;
  }

 private:
  struct Held1 { uint32_t ticket; std::string kernel; uint32_t device; uint32_t stream; };

  void take(const std::string& line) {
    Words words(line);
    if (words.empty() || line.starts_with("#")) {
      flush();
      text_ += line + "\n";
      return;
    }
    const std::string first = words.next("a command");
    if (first == "policy") {
      options_.policy = words.rest();
      text_ += line + "\n";
      return;
    }
    if (first == "show") {
      if (words.rest() != "timers") fail("only timers can be shown");
      show_timers_ = true;
      text_ += line + "\n";
      return;
    }
    if (first == "at") {
      flush();
      const int64_t at = parse_time(words.next("a time"));
      if (at < now_) fail("time runs forward");
      fire_timers(at);
      now_ = at;
      stepping_ = true;
    } else if (first != "and") {
      fail("'" + first + "': a line begins with policy, show, at, and, or #");
    }
    text_ += line + "\n";
    command(words);
    if (!words.empty()) fail("'" + words.rest() + "' is not understood");
  }

  void command(Words& words) {
    const std::string what = words.next("a command");
    const auto device = DeviceId{static_cast<uint32_t>(parse_number(words.option("device", "0")))};
    const auto thread = ThreadSlot{static_cast<uint32_t>(parse_number(words.option("thread", "0")))};
    const auto stream = StreamSlot{static_cast<uint32_t>(parse_number(words.option("stream", "0")))};
    if (what == "step") return;
    if (what == "policy") return add(PolicyChanged{words.rest()});
    if (what == "status") {
      flush();
      return show_status();
    }
    const std::string name = words.next("a client or a job");
    if (what == "stop") {
      const std::string by = words.option("by", "");
      const std::string within = words.option("within", "1000ms");
      const int64_t close_by = by.empty() ? now_ : parse_time(by);
      return add(JobStopped{job_of(name), Instant{close_by}, Instant{close_by + parse_time(within)}});
    }
    if (what == "continue") return add(JobContinued{job_of(name)});
    if (what == "attach") {
      const auto priority = static_cast<uint8_t>(parse_number(words.option("priority", "5")));
      const std::string job = words.option("job", "");
      const std::string task = words.option("task", name);
      const ClientId id{static_cast<uint32_t>(ids_.size() + 1)};
      ids_[name] = id;
      names_[id] = name;
      if (!job.empty() && !jobs_.contains(job)) jobs_[job] = 1000 + jobs_.size();
      if (job.empty()) jobs_[name] = id.value;
      ClientAttached input{id, JobId{job.empty() ? id.value : jobs_[job]}, {priority}, task};
      input.counted = !words.flag("uncounted");
      add(input);
      if (!words.flag("bare")) add(DeviceUsed{id, device});
      return;
    }
    const ClientId client = id_of(name);
    if (what == "detach") return add(ClientDetached{client});
    if (what == "use") return add(DeviceUsed{client, device});
    if (what == "leave") return add(DeviceLeft{client, device});
    if (what == "priority") {
      return add(PriorityChanged{client, {static_cast<uint8_t>(parse_number(words.next("a level")))}});
    }
    if (what == "launch" || what == "go") {
      Launched input;
      input.client = client;
      input.device = device;
      input.thread = thread;
      input.stream = stream;
      std::string kernel;
      if (what == "go") {
        auto held = held_.find({client, thread});
        if (held == held_.end()) fail("nothing of this thread is held");
        kernel = held->second.kernel;
        input.ticket = Ticket{held->second.ticket};
        input.device = DeviceId{held->second.device};
        input.stream = StreamSlot{held->second.stream};
        held_.erase(held);
      } else {
        kernel = words.next("a kernel");
      }
      input.kernel = kernel_id(kernel);
      uint64_t& last = sequence_[{client, input.stream}];
      const std::string sequence = words.option("sequence", "");
      last = sequence.empty() ? last + 1 : parse_number(sequence);
      input.sequence = last;
      const std::string made = words.option("made", "");
      input.at = Instant{made.empty() ? now_ : parse_time(made)};
      input.tracked = !words.flag("untracked");
      input.memory_bytes = parse_number(words.option("memory", "0"));
      return add(input);
    }
    if (what == "held") {
      const std::string kernel = words.next("a kernel");
      const std::string again = words.option("ticket", "");
      const uint32_t ticket =
          again.empty() ? ++tickets_[client] : static_cast<uint32_t>(parse_number(again));
      held_[{client, thread}] = {ticket, kernel, device.value, stream.value};
      return add(Held{client, device, thread, stream, Ticket{ticket}, kernel_id(kernel), {now_}});
    }
    const std::string sequence = words.option("sequence", "");
    const uint64_t number =
        sequence.empty() ? sequence_[{client, stream}] : parse_number(sequence);
    if (what == "progress") {
      const Instant synced = words.flag("synced") ? Instant{now_} : kNever;
      return add(Progressed{client, stream, number, synced});
    }
    if (what == "cancel") return add(Cancelled{client, stream, number});
    if (what == "timed") {
      Timed input{client, kernel_id(words.next("a kernel")), {0}, {-1}};
      input.duration = Duration{parse_time(words.next("a duration"))};
      const std::string gap = words.option("gap", "");
      if (!gap.empty()) input.gap = Duration{parse_time(gap)};
      if (!sequence.empty()) input.sequence = number;
      input.stream = stream;
      return add(input);
    }
    fail("'" + what + "' is no command");
  }

  void add(Input input) { inputs_.emplace_back(std::move(input)); }

  void flush() {
    if (!stepping_) return;
    stepping_ = false;
    step(now_);
  }

  void step(int64_t at) {
    if (!engine_) engine_ = std::make_unique<Engine>(options_);
    std::vector<Output> outputs;
    engine_->step(Instant{at}, inputs_, outputs);
    inputs_.clear();
    if (timer_.ns <= at) timer_ = kNever;
    for (const Output& output : outputs) {
      if (const auto* timer = std::get_if<SetTimer>(&output)) {
        timer_ = timer->at;
        if (!show_timers_) continue;
      }
      text_ += "  = " + show(at) + " " + std::visit([this](const auto& o) { return say(o); }, output) +
               "\n";
    }
  }

  void fire_timers(int64_t before) {
    while (timer_.ns < before) {
      const int64_t at = timer_.ns;
      step(at);
      if (timer_.ns <= at) fail("a timer that does not advance");
    }
  }

  std::string say(const SetGate& o) {
    std::string text = "gate " + names_[o.client] + device_of(o.device);
    if (o.gate == Gate::kOpen) return text + " open";
    if (o.gate == Gate::kClosed) return text + " closed";
    // An odd grant: one launch of any length while nothing of it is spent (gate.h).
    return text + " credit " + show(o.granted.ns & ~int64_t{1}) +
           ((o.granted.ns & 1) != 0 ? " any length" : "") + (o.new_epoch ? " new epoch" : "");
  }
  std::string say(const Release& o) {
    return "release " + names_[o.client] + " thread " + std::to_string(o.thread.value) + " ticket " +
           std::to_string(o.ticket.value);
  }
  std::string say(const SetProgress& o) {
    return "progress " + names_[o.client] + device_of(o.device) +
           (o.every == 0   ? " none"
            : o.every == 1 ? " every launch"
                           : " one launch in " + std::to_string(o.every));
  }
  std::string say(const Predict& o) {
    return "predict " + names_[o.client] + " " + kernel_names_[o.kernel] + " " + show(o.length.ns);
  }
  std::string say(const SetTimer& o) { return "timer " + show(o.at.ns); }
  std::string say(const Notice& o) { return "notice " + o.text; }
  std::string say(const JobStands& o) {
    std::string name = std::to_string(o.job.value);
    for (const auto& [job, id] : jobs_) {
      if (id == o.job.value) name = job;
    }
    return "job " + name + " stands" + (o.drained ? "" : ", not drained");
  }

  static std::string device_of(DeviceId id) {
    return id.value == 0 ? "" : " device " + std::to_string(id.value);
  }

  void show_status() {
    if (!engine_) fail("nothing has happened yet");
    static constexpr const char* kGates[] = {"open", "credit", "closed"};
    const EngineStatus status = engine_->status();
    text_ += "  = status policy " + status.policy + ", dropped inputs " +
             std::to_string(status.dropped_inputs) + "\n";
    for (const ClientStatus& client : status.clients) {
      text_ += "  = status " + names_[client.client] + " priority " +
               std::to_string(client.priority.level) + ", launches " +
               std::to_string(client.launches) + "\n";
      for (const DeviceUsageStatus& usage : client.devices) {
        text_ += "  =   device " + std::to_string(usage.device.value) + ": " +
                 kGates[static_cast<int>(usage.gate)] + ", in flight " + show(usage.in_flight.ns) +
                 " in " + std::to_string(usage.outstanding) + ", device time " +
                 show(usage.device_time.ns) + "\n";
      }
      for (const HeldStatus& held : client.held) {
        text_ += "  =   held: thread " + std::to_string(held.thread.value) + " " +
                 kernel_names_[held.kernel] + " since " + show(held.since.ns) + " by";
        for (ClientId by : held.by) text_ += " " + names_[by];
        text_ += ": " + held.why + "\n";
      }
    }
  }

  JobId job_of(const std::string& name) const {
    const auto known = jobs_.find(name);
    return JobId{known == jobs_.end() ? 0 : known->second};
  }
  ClientId id_of(const std::string& name) {
    if (auto known = ids_.find(name); known != ids_.end()) return known->second;
    const ClientId stranger{static_cast<uint32_t>(900 + names_.size())};
    ids_[name] = stranger;
    names_[stranger] = name;
    return stranger;
  }
  KernelId kernel_id(const std::string& name) {
    auto [at, fresh] = kernels_.try_emplace(name, KernelId{kernels_.size() + 1});
    if (fresh) kernel_names_[at->second] = name;
    return at->second;
  }

  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  std::string text_;
  int64_t now_ = 0;
  bool stepping_ = false;
  bool show_timers_ = false;
  Instant timer_ = kNever;
  std::vector<Input> inputs_;
  std::map<std::string, ClientId> ids_;
  std::map<ClientId, std::string> names_;
  std::map<std::string, uint64_t> jobs_;
  std::map<std::string, KernelId> kernels_;
  std::map<KernelId, std::string> kernel_names_;
  std::map<std::pair<ClientId, StreamSlot>, uint64_t> sequence_;
  std::map<ClientId, uint32_t> tickets_;
  std::map<std::pair<ClientId, ThreadSlot>, Held1> held_;
};

std::string first_difference(const std::string& is, const std::string& should) {
  std::istringstream a(is);
  std::istringstream b(should);
  for (int line = 1;; ++line) {
    std::string x;
    std::string y;
    const bool more_x = static_cast<bool>(std::getline(a, x));
    const bool more_y = static_cast<bool>(std::getline(b, y));
    if (!more_x && !more_y) return "line ends differ";
    if (more_x != more_y || x != y) {
      return "line " + std::to_string(line) + "\n  file:   " + (more_x ? x : "(end)") +
             "\n  engine: " + (more_y ? y : "(end)");
    }
  }
}

int run(int argc, char** argv) {
  bool rewrite = false;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--rewrite") {
      rewrite = true;
    } else {
      paths.push_back(argv[i]);
    }
  }
  if (paths.empty()) {
    std::cerr << "usage: run_scenarios [--rewrite] FILE...\n";
    return 2;
  }
  int failed = 0;
  for (const std::string& path : paths) {
    std::ifstream file(path);
    if (!file) {
      std::cerr << path << ": cannot be read\n";
      return 2;
    }
    std::stringstream is;
    is << file.rdbuf();
    std::string should;
    try {
      std::istringstream once(is.str());
      should = Player().play(once);
      std::istringstream twice(is.str());
      if (Player().play(twice) != should) fail("two runs differ");
    } catch (const std::runtime_error& error) {
      std::cerr << path << ": " << error.what() << "\n";
      failed += 1;
      continue;
    }
    if (is.str() == should) continue;
    if (rewrite) {
      std::ofstream(path) << should;
      std::cout << path << ": rewritten\n";
    } else {
      std::cerr << path << ": " << first_difference(is.str(), should) << "\n";
      failed += 1;
    }
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lull::engine

int main(int argc, char** argv) { return lull::engine::run(argc, argv); }
