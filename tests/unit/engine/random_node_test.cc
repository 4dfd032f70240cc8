// A random node: programs that launch, wait, die and lie, a device that runs one unit at a time, and
// a shim that obeys the gate exactly as the real one does (channel/gate.h). The engine is checked
// after every step; the same seed must give the same outputs twice; and in the end every launch that
// was held has gone. The seed also chooses what predicts.
#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "coordinator/channel/gate.h"
#include "coordinator/channel/progress.h"
#include "coordinator/engine/engine.h"

using namespace lull;
using namespace lull::engine;
namespace channel = lull::channel;
namespace pol = lull::policies;

namespace {

constexpr int64_t kUs = 1000;
constexpr int64_t kBoundNs = 50 * kUs;
constexpr uint32_t kFirstLiar = 500;

struct Plan {
  uint32_t seed = 0;
  std::string policy;
  bool swaps = false;    // change the policy while running
  bool deaths = false;   // kill clients
  bool lies = false;     // hostile inputs, from clients of their own
  bool checks_bound = false;
  bool orders = false;   // jobs stop and go on by order
};

class Node {
 public:
  explicit Node(const Plan& plan)
      : plan_(plan),
        random_(plan.seed),
        poll_ns_(pick(1, 10) * kUs),
        latency_ns_(pick(0, 2) * 10 * kUs),
        engine_(options(plan, latency_ns_)) {
    const int clients = static_cast<int>(pick(2, 6));
    for (int i = 0; i < clients; ++i) start_client(pick(0, 5'000) * kUs);
  }

  // Runs until every program has ended; returns all outputs, as text.
  std::string run() {
    while (!over()) {
      const int64_t next = next_event();
      if (next == INT64_MAX) FAIL("nothing happens any more: " + waiting());
      if (++turns_ > 2'000'000) FAIL("no end: " + waiting());
      now_ = next;
      if (now_ > 120'000'000'000) {
        FAIL("a launch is never granted: " + waiting());
      }
      advance();
    }
    return log_;
  }

 private:
  using Waiting = std::tuple<uint32_t, uint32_t, uint32_t>;  // client, thread, ticket
  struct Unit {
    uint32_t client;
    uint32_t stream;
    uint64_t sequence;
    int64_t ns;
    int64_t predicted;
    uint64_t epoch;
    bool tracked;
    bool credit;
  };
  struct Thread {
    int64_t left = 0;       // launches to make
    int64_t ready = 0;      // when it makes the next
    bool held = false;
    uint32_t ticket = 0;
    uint32_t released = 0;
    uint64_t kernel = 0;
    bool waits_idle = false;  // synchronises: goes on when its stream is empty
  };
  struct Program {
    int64_t born = 0;
    bool attached = false;
    bool over = false;
    uint64_t gate = channel::kGateOpenAtBirth;
    uint32_t epoch = 0;
    uint64_t spent = 0;
    uint32_t marked_every = 0;
    std::map<uint64_t, int64_t> predicted;
    std::vector<Thread> threads;
    std::map<uint32_t, uint64_t> sequence, marked;
    std::vector<Unit> in_flight;
    uint32_t tickets = 0;
    int64_t dies = INT64_MAX;
    int64_t pause_us = 0;
    uint8_t level = 5;
    uint64_t job = 0;
  };

  static EngineOptions options(const Plan& plan, int64_t latency_ns) {
    EngineOptions options;
    options.control_latency = Duration{latency_ns};
    options.policy = plan.policy;
    if (const uint32_t how = plan.seed % (pol::kPlainPredictors + 2); how > 0) {
      options.predictor = static_cast<pol::Predictor>(how - 1);
    }
    return options;
  }
  int64_t pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  // Constant, so that prediction and truth agree once measured.
  static int64_t length(uint64_t kernel) { return static_cast<int64_t>(3 + kernel * kernel % 97) * kUs; }

  void start_client(int64_t at) {
    const uint32_t id = static_cast<uint32_t>(programs_.size()) + 1;
    Program program;
    program.born = at;
    program.level = static_cast<uint8_t>(pick(0, 9));
    program.job = pick(0, 3) == 0 ? 77 : id;
    program.pause_us = pick(0, 3) == 0 ? 0 : pick(1, 400);
    const int64_t threads = pick(1, 3);
    for (int64_t i = 0; i < threads; ++i) {
      Thread thread;
      thread.left = pick(20, 150);
      thread.ready = at + 1;
      thread.waits_idle = pick(0, 1) == 0;
      program.threads.push_back(thread);
    }
    if (plan_.deaths && pick(0, 2) == 0) program.dies = at + pick(100, 20'000) * kUs;
    programs_[id] = program;
  }

  bool over() const {
    return std::all_of(programs_.begin(), programs_.end(), [](const auto& p) { return p.second.over; });
  }
  std::string waiting() const {
    std::string text;
    for (const ClientStatus& client : engine_.status().clients) {
      for (const HeldStatus& held : client.held) {
        text += "client " + std::to_string(client.client.value) + " " + held.why + "; ";
      }
    }
    return text;
  }

  int64_t next_event() const {
    int64_t next = INT64_MAX;
    for (const auto& [id, p] : programs_) {
      if (p.over) continue;
      if (!p.attached) next = std::min(next, p.born);
      if (p.attached) next = std::min(next, p.dies);
      for (const Thread& t : p.threads) {
        if (p.attached && !t.held && t.left > 0) next = std::min(next, t.ready);
      }
    }
    if (!device_.empty()) next = std::min(next, device_ends_);
    if (!published_.empty()) next = std::min(next, published_.front().first);
    if (!inputs_.empty()) next = std::min(next, (now_ / poll_ns_ + 1) * poll_ns_);
    next = std::min(next, timer_.ns);
    for (const auto& [job, until] : stopped_) next = std::min(next, until);
    return std::max(next, now_);
  }

  void advance() {
    while (!published_.empty() && published_.front().first <= now_) {
      apply(published_.front().second);
      published_.pop_front();
    }
    while (!device_.empty() && device_ends_ <= now_) complete();
    for (auto& [id, p] : programs_) {
      if (!p.over) live(id, p);
    }
    const bool ends = std::ranges::any_of(stopped_, [&](const auto& s) { return s.second <= now_; });
    if ((!inputs_.empty() && now_ % poll_ns_ == 0) || timer_.ns <= now_ || ends) step();
  }

  void live(uint32_t id, Program& p) {
    if (!p.attached) {
      if (p.born > now_) return;
      p.attached = true;
      inputs_.emplace_back(ClientAttached{ClientId{id}, JobId{p.job}, Priority{p.level}, "task " + std::to_string(id)});
      inputs_.emplace_back(DeviceUsed{ClientId{id}, DeviceId{0}});
      for (uint64_t k = 0; k < 10; ++k) {
        inputs_.emplace_back(Timed{ClientId{id}, KernelId{k}, Duration{length(k)}, Duration{pick(0, 300) * kUs}});
      }
      for (Thread& t : p.threads) t.ready = now_ + 2 * poll_ns_ + latency_ns_;
      return;
    }
    if (p.dies <= now_) return end(id, p);
    bool busy = false;
    for (uint32_t slot = 0; slot < p.threads.size(); ++slot) {
      Thread& t = p.threads[slot];
      if (t.held) {
        if (t.released == t.ticket || may_go(p, t)) go(id, p, slot, t.ticket);
      } else if (t.left > 0 && t.ready <= now_) {
        t.kernel = static_cast<uint64_t>(pick(0, 9));
        if (may_go(p, t)) {
          go(id, p, slot, 0);
        } else {
          t.held = true;
          t.ticket = ++p.tickets;
          held_.insert({id, slot, t.ticket});
          inputs_.emplace_back(Held{ClientId{id}, DeviceId{0}, ThreadSlot{slot}, StreamSlot{slot},
                                 Ticket{t.ticket}, KernelId{t.kernel}, Instant{now_}});
        }
      }
      busy |= t.left > 0;
    }
    if (!busy && p.in_flight.empty()) end(id, p);
  }

  bool may_go(Program& p, const Thread& t) {
    credit_ = channel::gate_state(p.gate) == channel::GateState::kCredit;
    if (channel::gate_state(p.gate) == channel::GateState::kOpen) return true;
    return credit_ && channel::try_spend(p.gate, p.spent, static_cast<uint64_t>(p.predicted[t.kernel]));
  }

  // Where the bound is checked each: that takes every report.
  bool is_marked(Program& p, uint32_t slot) const {
    if (plan_.checks_bound && p.marked_every != 0) return true;
    if (!channel::takes_marker(p.marked_every, p.sequence[slot], p.marked[slot], false)) return false;
    p.marked[slot] = p.sequence[slot];
    return true;
  }

  void go(uint32_t id, Program& p, uint32_t slot, uint32_t ticket) {
    Thread& t = p.threads[slot];
    const bool by_credit = credit_ && !(t.held && t.released == t.ticket);
    t.held = false;
    t.left -= 1;
    Unit unit{id, slot, ++p.sequence[slot], length(t.kernel), p.predicted[t.kernel],
              channel::gate_epoch(p.gate), is_marked(p, slot) && (plan_.checks_bound || pick(0, 9) > 0), by_credit};
    inputs_.emplace_back(Launched{ClientId{id}, DeviceId{0}, StreamSlot{slot}, unit.sequence,
                               KernelId{t.kernel}, Instant{now_}, unit.tracked, Ticket{ticket},
                               ThreadSlot{slot}});
    t.ready = now_ + (t.waits_idle ? INT64_MAX / 4 : pick(1, 5) * kUs);
    if (pick(0, 30) == 0) {  // the driver refuses it
      inputs_.emplace_back(Cancelled{ClientId{id}, StreamSlot{slot}, unit.sequence});
      t.ready = now_ + kUs;
      return;
    }
    p.in_flight.push_back(unit);
    if (plan_.checks_bound && by_credit) {
      int64_t sum = 0;
      int64_t count = 0;
      for (const Unit& u : p.in_flight) {
        if (u.credit && u.epoch == unit.epoch) sum += u.predicted, count += 1;
      }
      if (sum > kBoundNs && count > 1) FAIL("too much in flight: " + std::to_string(sum) + " ns");
    }
    if (device_.empty()) device_ends_ = now_ + unit.ns;
    device_.push_back(unit);
  }

  void complete() {
    const Unit unit = device_.front();
    device_.pop_front();
    if (!device_.empty()) device_ends_ += device_.front().ns;
    Program& p = programs_[unit.client];
    if (p.over) return;
    std::erase_if(p.in_flight, [&](const Unit& u) { return u.stream == unit.stream && u.sequence == unit.sequence; });
    if (unit.tracked) inputs_.emplace_back(Progressed{ClientId{unit.client}, StreamSlot{unit.stream}, unit.sequence});
    Thread& t = p.threads[unit.stream];
    if (t.waits_idle) t.ready = now_ + p.pause_us * kUs + kUs;
  }

  void end(uint32_t id, Program& p) {
    p.over = true;
    inputs_.emplace_back(ClientDetached{ClientId{id}});
    std::erase_if(device_, [&](const Unit& u) { return u.client == id && &u != &device_.front(); });
    if (pick(0, 3) == 0 && programs_.size() < 12) start_client(now_ + pick(1, 100) * kUs);
  }

  void lie() {
    const ClientId client{kFirstLiar + static_cast<uint32_t>(pick(0, 3))};
    const DeviceId device{static_cast<uint32_t>(pick(0, 2))};
    const StreamSlot stream{static_cast<uint32_t>(pick(0, 70))};
    const KernelId kernel{random_() % 50};
    const auto sequence = static_cast<uint64_t>(pick(-3, 50));
    const ThreadSlot thread{static_cast<uint32_t>(pick(0, 80))};
    const Ticket ticket{static_cast<uint32_t>(pick(0, 5))};
    const Instant at{pick(-1, 1) * now_};
    switch (pick(0, 9)) {
      case 0: inputs_.emplace_back(ClientAttached{client, JobId{kFirstLiar}, Priority{9}, ""}); break;
      case 1: inputs_.emplace_back(ClientDetached{client}); break;
      case 2: inputs_.emplace_back(DeviceUsed{client, DeviceId{1}}); break;
      case 3: inputs_.emplace_back(Launched{client, device, stream, sequence, kernel, at, pick(0, 1) == 0, ticket, thread}); break;
      case 4: inputs_.emplace_back(Held{client, device, thread, stream, ticket, kernel, at}); break;
      case 5: inputs_.emplace_back(Cancelled{client, stream, sequence}); break;
      case 6: inputs_.emplace_back(Progressed{client, stream, sequence}); break;
      case 7: inputs_.emplace_back(Timed{client, kernel, Duration{pick(-5, 5) * kUs}, Duration{pick(-5, 5)}}); break;
      case 8: inputs_.emplace_back(PriorityChanged{client, Priority{static_cast<uint8_t>(pick(0, 255))}}); break;
      default: inputs_.emplace_back(TimerFired{}); break;
    }
  }

  // Some job, there or not, stops or goes on; each that stopped goes on once more, at its time.
  void order() {
    for (auto at = stopped_.begin(); at != stopped_.end();) {
      if (at->second > now_) {
        ++at;
        continue;
      }
      inputs_.emplace_back(JobContinued{JobId{at->first}});
      standing_.erase(at->first);
      at = stopped_.erase(at);
    }
    if (pick(0, 40) != 0) return;
    const uint64_t job = pick(0, 2) == 0 ? 77 : static_cast<uint64_t>(pick(1, 12));
    const Instant close_by{now_ + pick(0, 2) * pick(0, 2'000) * kUs};
    inputs_.emplace_back(JobStopped{JobId{job}, close_by, close_by + Duration{pick(0, 30'000) * kUs}});
    stopped_[job] = now_ + pick(0, 40'000) * kUs;
  }

  void step() {
    if (plan_.lies) {
      for (int64_t i = pick(0, 3); i > 0; --i) lie();
    }
    if (plan_.swaps && pick(0, 200) == 0) {
      static constexpr const char* kTexts[] = {"share", "exclusive", "time_slice quantum_us=300", "priority max_hold_ms=0", "fikit max_hold_ms=0", "fikit max_hold_ms=1", "nonsense"};
      inputs_.emplace_back(PolicyChanged{kTexts[pick(0, 6)]});
    }
    if (plan_.orders) order();
    for (const Input& input : inputs_) {
      if (const auto* attached = std::get_if<ClientAttached>(&input)) there_.insert(attached->client);
      if (const auto* detached = std::get_if<ClientDetached>(&input)) there_.erase(detached->client);
    }
    // A job ends with its last client: another one of that number has not been stopped.
    std::erase_if(standing_, [&](uint64_t job) {
      return std::ranges::none_of(there_, [&](ClientId client) {
        const auto program = programs_.find(client.value);
        return program != programs_.end() && program->second.job == job;
      });
    });
    std::vector<Output> outputs;
    engine_.step(Instant{now_}, inputs_, outputs);
    inputs_.clear();
    if (timer_.ns <= now_) timer_ = kNever;
    for (const Output& output : outputs) {
      check(output);
      if (const auto* timer = std::get_if<SetTimer>(&output)) {
        timer_ = timer->at;
        if (timer_.ns <= now_) FAIL("a timer that has passed");
      } else {
        published_.emplace_back(now_ + latency_ns_, output);
      }
      log_ += std::to_string(now_) + " " + std::visit([](const auto& o) { return text(o); }, output) + "\n";
    }
  }

  // No gate or grant for a client that has gone in the same step or before; no release of a launch
  // that is not waiting, nor twice.
  void check(const Output& output) {
    if (const auto* gate = std::get_if<SetGate>(&output)) {
      if (!there_.contains(gate->client)) FAIL("a gate for a client that has gone");
      if (gate->granted.ns < 0) FAIL("a negative grant");
      if (gate->gate != Gate::kClosed && stands(gate->client)) FAIL("a gate of a standing job opens");
    } else if (const auto* release = std::get_if<Release>(&output)) {
      if (!there_.contains(release->client)) FAIL("a release for a client that has gone");
      if (stands(release->client) && !is_behind(release->client)) FAIL("a standing job goes on");
      if (release->client.value < kFirstLiar) {
        const Waiting waiting{release->client.value, release->thread.value, release->ticket.value};
        if (!held_.contains(waiting)) FAIL("a release of what was never held");
        if (!releases_.insert(waiting).second) FAIL("a launch released twice");
      }
    } else if (const auto* stood = std::get_if<JobStands>(&output)) {
      if (!stopped_.contains(stood->job.value)) FAIL("a job stands that nobody stopped");
      standing_.insert(stood->job.value);
    } else if (const auto* notice = std::get_if<Notice>(&output)) {
      if (notice->text.find("broke a rule") != std::string::npos) FAIL(notice->text);
    }
  }

  bool stands(ClientId client) const {
    const auto program = programs_.find(client.value);
    return program != programs_.end() && standing_.contains(program->second.job);
  }

  // Another rank of its job has made more launches.
  bool is_behind(ClientId client) const {
    const EngineStatus status = engine_.status();
    const auto launches = [&](ClientId of) {
      const auto found = std::ranges::find(status.clients, of, &ClientStatus::client);
      return found == status.clients.end() ? 0 : found->launches;
    };
    const uint64_t job = programs_.at(client.value).job;
    return std::ranges::any_of(programs_, [&](const auto& one) {
      return one.second.job == job && launches(ClientId{one.first}) > launches(client);
    });
  }

  static std::string text(const SetGate& o) {
    return "gate " + std::to_string(o.client.value) + " " + std::to_string(static_cast<int>(o.gate)) + " " +
           std::to_string(o.granted.ns) + (o.new_epoch ? " new" : "");
  }
  static std::string text(const Release& o) {
    return "release " + std::to_string(o.client.value) + " " + std::to_string(o.ticket.value);
  }
  static std::string text(const SetProgress& o) {
    return "progress " + std::to_string(o.client.value) + " " + std::to_string(o.every);
  }
  static std::string text(const Predict& o) {
    return "predict " + std::to_string(o.client.value) + " " + std::to_string(o.length.ns);
  }
  static std::string text(const SetTimer& o) { return "timer " + std::to_string(o.at.ns); }
  static std::string text(const Notice& o) { return "notice " + o.text; }
  static std::string text(const JobStands& o) {
    return "stands " + std::to_string(o.job.value) + (o.drained ? "" : " late");
  }

  void apply(const Output& output) {
    if (const auto* set = std::get_if<SetGate>(&output)) {
      Program* p = program(set->client);
      if (p == nullptr) return;
      if (set->new_epoch) p->epoch += 1;
      p->gate = channel::pack_gate(static_cast<channel::GateState>(set->gate), p->epoch,
                                   static_cast<uint64_t>(set->granted.ns));
    } else if (const auto* release = std::get_if<Release>(&output)) {
      Program* p = program(release->client);
      if (p != nullptr && release->thread.value < p->threads.size()) {
        p->threads[release->thread.value].released = release->ticket.value;
      }
    } else if (const auto* progress = std::get_if<SetProgress>(&output)) {
      if (Program* p = program(progress->client)) p->marked_every = progress->every;
    } else if (const auto* predict = std::get_if<Predict>(&output)) {
      if (Program* p = program(predict->client)) p->predicted[predict->kernel.value] = predict->length.ns;
    }
  }
  Program* program(ClientId id) {
    auto found = programs_.find(id.value);
    return found == programs_.end() || found->second.over ? nullptr : &found->second;
  }

  const Plan plan_;
  std::mt19937_64 random_;
  const int64_t poll_ns_;     // between steps with inputs
  const int64_t latency_ns_;  // of what a step puts out
  Engine engine_;
  int64_t now_ = 0;
  int64_t turns_ = 0;
  bool credit_ = false;
  std::map<uint32_t, Program> programs_;
  std::deque<Unit> device_;
  int64_t device_ends_ = 0;
  std::vector<Input> inputs_;
  std::map<uint64_t, int64_t> stopped_;  // jobs, and until when
  std::set<uint64_t> standing_;
  std::set<ClientId> there_;    // attached, as the inputs say
  std::set<Waiting> held_;      // ever
  std::set<Waiting> releases_;  // ever
  std::deque<std::pair<int64_t, Output>> published_;
  Instant timer_ = kNever;
  std::string log_;
};

void run_twice(const Plan& plan) {
  INFO("seed " << plan.seed << " policy " << plan.policy);
  const std::string once = Node(plan).run();
  CHECK(once == Node(plan).run());
  CHECK_FALSE(once.empty());
}

constexpr uint32_t kSeeds = 16;

}  // namespace

TEST_CASE("Every launch of a random node is granted in the end, under each policy") {
  const std::string policy = GENERATE(as<std::string>{}, "share", "exclusive",
                                      "time_slice quantum_us=400", "priority max_hold_ms=0",
                                      "priority max_hold_ms=1", "fikit max_hold_ms=0",
                                      "fikit max_hold_ms=2");
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    Plan plan;
    plan.seed = seed;
    plan.policy = policy;
    run_twice(plan);
  }
}

TEST_CASE("Dying clients take nothing with them") {
  const std::string policy = GENERATE(as<std::string>{}, "exclusive", "time_slice quantum_us=400",
                                      "priority max_hold_ms=0", "fikit max_hold_ms=0");
  for (uint32_t seed = 100; seed < 100 + kSeeds; ++seed) {
    Plan plan;
    plan.seed = seed;
    plan.policy = policy;
    plan.deaths = true;
    run_twice(plan);
  }
}

TEST_CASE("Policies change under load and hostile clients lie, and every honest launch is granted") {
  for (uint32_t seed = 200; seed < 200 + 2 * kSeeds; ++seed) {
    Plan plan;
    plan.seed = seed;
    plan.policy = "priority max_hold_ms=5";
    plan.swaps = true;
    plan.deaths = true;
    plan.lies = true;
    run_twice(plan);
  }
}

TEST_CASE("What a client has in flight on credit stays within the bound, or is one unit") {
  for (uint32_t seed = 300; seed < 300 + 2 * kSeeds; ++seed) {
    Plan plan;
    plan.seed = seed;
    plan.policy = "priority max_hold_ms=0";
    plan.checks_bound = true;
    run_twice(plan);
  }
}

TEST_CASE("Jobs stop and go on by order under each policy, and every launch is granted in the end") {
  const std::string policy = GENERATE(as<std::string>{}, "share", "exclusive",
                                      "time_slice quantum_us=400", "priority max_hold_ms=0",
                                      "priority max_hold_ms=1", "fikit max_hold_ms=2", "guarded");
  for (uint32_t seed = 400; seed < 400 + kSeeds; ++seed) {
    Plan plan;
    plan.seed = seed;
    plan.policy = policy;
    plan.deaths = seed % 2 == 0;
    plan.orders = true;
    run_twice(plan);
  }
}
