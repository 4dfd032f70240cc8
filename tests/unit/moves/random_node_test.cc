// A random node: programs that come and die, jobs that are suspended, resumed, migrated and pinned
// in any state, clients that obey slowly, refuse, or return by themselves, and coordinators that
// begin anew in the midst of it. Checked after every step: no GPU holds more than it has, what is
// promised fits, ranks leave all or none, no order goes to who is not there. In the end every job
// runs. Each seed twice, with the same outcome.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "coordinator/moves/moves.h"
#include "tests/seed.h"

namespace lull::moves {
namespace {

constexpr uint64_t kTotal = 1000;
constexpr uint64_t kContext = 10;

struct Plan {
  uint64_t seed = 0;
  bool by_itself = false;  // clients return by themselves: returns may find too little memory
  bool restarts = false;
};

class Node {
 public:
  explicit Node(const Plan& plan) : plan_(plan), random_(plan.seed) { begin(); }

  std::string run() {
    for (int n = 0; n < 600; ++n) {
      act();
      step();
    }
    finish();
    return log_;
  }

 private:
  struct Client {
    uint64_t job = 0;
    Report report;
    uint32_t order = 0;  // as the client sees it
    Target target = Target::kResident;
    std::vector<std::pair<DeviceId, DeviceId>> pairs;
    bool pending = false;
  };

  uint64_t pick(uint64_t low, uint64_t high) { return low + random_() % (high - low + 1); }
  bool chance(uint64_t in) { return pick(1, in) == 1; }

  // A coordinator that knows nothing yet.
  void begin() {
    moves_ = std::make_unique<Moves>(Settings{.reserve_bytes = 0, .context_bytes = kContext});
    DevicesKnown known;
    for (uint32_t n = 0; n < devices_; ++n) known.devices.push_back({DeviceId{n}, kTotal});
    inputs_.emplace_back(known);
    stopped_.clear();
    stands_at_.clear();
    for (auto& [id, client] : clients_) {
      client.order = client.report.order = 0;
      client.pending = false;
      client.report.result = Result::kDone;
      inputs_.emplace_back(ClientJoined{.client = ClientId{id},
                                        .job = JobId{client.job},
                                        .priority = {priority(client.job)},
                                        .movable = chance(2)});
      say(id);
    }
  }
  static uint8_t priority(uint64_t job) { return static_cast<uint8_t>(job * 7 % 10); }
  void say(uint32_t id) { inputs_.emplace_back(ClientReported{ClientId{id}, clients_[id].report}); }

  // What it has on the device in fact.
  static uint64_t physical(const Client& client, DeviceId device) {
    if (client.report.devices[0].device != device) return 0;
    if (client.report.residence == Residence::kGivenUp) return 0;
    const bool out = client.report.residence == Residence::kOut;
    return kContext + (out ? 0 : client.report.devices[0].used_bytes);
  }
  uint64_t taken(DeviceId device) const {
    uint64_t sum = 0;
    for (const auto& [id, client] : clients_) sum += physical(client, device);
    return sum;
  }

  void act() {
    if (clients_.size() < 10 && chance(8)) start_job();
    if (!clients_.empty() && chance(40)) die();
    if (!clients_.empty() && chance(3)) ask();
    if (plan_.restarts && chance(60)) {
      log_ += "restart\n";
      inputs_.clear();
      begin();
    }
    for (auto& [id, client] : clients_) {
      if (client.pending && chance(3)) obey(id, client);
      if (plan_.by_itself && !client.pending && chance(50)) return_alone(id, client);
    }
    for (const auto& [job, at] : std::map(stands_at_)) {
      if (at > now_.ns) continue;
      inputs_.emplace_back(JobStands{JobId{job}, chance(2)});
      stands_at_.erase(job);
    }
    now_ = now_ + Duration{static_cast<int64_t>(pick(1, 300'000'000))};
  }

  void start_job() {
    const uint64_t job = next_job_++;
    const uint64_t ranks = pick(1, 3);
    for (uint64_t n = 0; n < ranks; ++n) {
      const DeviceId device{static_cast<uint32_t>(pick(0, devices_ - 1))};
      const uint64_t bytes = pick(1, 500);
      // As one that asks before it allocates.
      const bool fits = moves_->free_bytes(device) >= bytes + kContext && inputs_.empty() &&
                        taken(device) + bytes + kContext <= kTotal;
      if (!fits) return;
      const uint32_t id = next_client_++;
      Client& client = clients_[id];
      client.job = job;
      client.report.can_swap = !chance(10);
      client.report.can_give_up = client.report.can_swap && !chance(5);
      client.report.can_migrate = client.report.can_give_up;
      client.report.devices = {{.device = device, .used_bytes = bytes, .swappable_bytes = bytes}};
      const bool movable = chance(2);
      inputs_.emplace_back(ClientJoined{.client = ClientId{id},
                                        .job = JobId{job},
                                        .priority = {priority(job)},
                                        .movable = movable});
      if (movable && chance(2)) step();  // it says what it can do later
      say(id);
      step();
    }
  }

  void die() {
    auto at = std::next(clients_.begin(), static_cast<long>(pick(0, clients_.size() - 1)));
    inputs_.emplace_back(ClientLeft{ClientId{at->first}});
    clients_.erase(at);
  }

  void ask() {
    const auto at = std::next(clients_.begin(), static_cast<long>(pick(0, clients_.size() - 1)));
    const JobId job{at->second.job};
    const At when = chance(2) ? At::kNow : At::kIteration;
    switch (pick(0, 6)) {
      case 0:
        inputs_.emplace_back(SuspendAsked{.job = job, .level = {}, .at = when});
        break;
      case 1:
        inputs_.emplace_back(SuspendAsked{.job = job, .level = Level::kOut, .at = when});
        break;
      case 2:
        inputs_.emplace_back(SuspendAsked{.job = job, .level = Level::kGivenUp, .at = when});
        break;
      case 3: {
        MigrateAsked migrate{.job = job, .to = {}, .at = when};
        for (uint64_t n = pick(1, 2); n > 0; --n) {
          migrate.to.push_back(DeviceId{static_cast<uint32_t>(pick(0, devices_ - 1))});
        }
        inputs_.emplace_back(migrate);
        break;
      }
      case 4:
        inputs_.emplace_back(PinAsked{job, chance(3)});
        break;
      default:
        inputs_.emplace_back(ResumeAsked{job});
        break;
    }
  }

  void end(uint32_t id, Client& client, Result result, Residence residence) {
    client.pending = false;
    client.report.order = client.order;
    client.report.result = result;
    client.report.residence = residence;
    log_ += "client " + std::to_string(id) + " is " + std::to_string(static_cast<int>(residence)) +
            "\n";
    say(id);
  }

  void obey(uint32_t id, Client& client) {
    const Residence now = client.report.residence;
    if (client.target != Target::kResident) {
      const Residence wanted =
          client.target == Target::kOut ? Residence::kOut : Residence::kGivenUp;
      if (!finishing_ && now == Residence::kResident && chance(6)) {
        const Result result = chance(2) ? Result::kBusy : Result::kRefused;
        return end(id, client, result, Residence::kResident);
      }
      if (wanted == Residence::kOut && now == Residence::kGivenUp)
        return end(id, client, Result::kDone, now);
      return end(id, client, Result::kDone, wanted);
    }
    Client there = client;
    Share& share = there.report.devices[0];
    if (now == Residence::kGivenUp) {
      for (const auto& [from, to] : client.pairs) {
        if (share.device == from) {
          share.device = to;
          break;
        }
      }
    }
    there.report.residence = Residence::kResident;
    uint64_t others = taken(share.device) - physical(client, share.device);
    if (others + physical(there, share.device) > kTotal) {
      if (!plan_.by_itself) FAIL("a return finds no memory, though it was reserved");
      return end(id, client, Result::kNoDeviceMemory, now);
    }
    client = there;
    end(id, client, Result::kDone, Residence::kResident);
  }

  // Its coordinator was silent for a second.
  void return_alone(uint32_t id, Client& client) {
    if (client.report.residence == Residence::kResident) return;
    Client there = client;
    there.report.residence = Residence::kResident;
    const DeviceId device = client.report.devices[0].device;
    if (taken(device) - physical(client, device) + physical(there, device) > kTotal) return;
    client.report.residence = Residence::kResident;
    say(id);
  }

  void step() {
    std::vector<Output> out;
    moves_->step(now_, inputs_, out);
    inputs_.clear();
    for (const Output& output : out) take(output);
    check();
  }

  void take(const Output& output) {
    if (const auto* stop = std::get_if<StopJob>(&output)) {
      log_ += "stop " + std::to_string(stop->job.value) + "\n";
      if (stop->close_by < now_ || stop->stand_by < stop->close_by) FAIL("a stop in the past");
      stopped_[stop->job.value] = true;
      stands_at_[stop->job.value] = now_.ns + static_cast<int64_t>(pick(0, 2'000'000'000));
    } else if (const auto* go = std::get_if<ContinueJob>(&output)) {
      log_ += "continue " + std::to_string(go->job.value) + "\n";
      if (!stopped_[go->job.value]) FAIL("a job goes on that was not stopped");
      stopped_[go->job.value] = false;
      stands_at_.erase(go->job.value);
    } else if (const auto* order = std::get_if<OrderClient>(&output)) {
      log_ += "order " + std::to_string(order->client.value) + " " +
              std::to_string(static_cast<int>(order->target)) + "\n";
      const auto found = clients_.find(order->client.value);
      if (found == clients_.end()) FAIL("an order for a client that has gone");
      Client& client = found->second;
      if (order->number != client.order + 2) FAIL("orders are not counted");
      if (!stopped_[client.job]) FAIL("an order for a client of a job that is not stopped");
      std::vector<DeviceId> from, to;
      for (const auto& [one, other] : order->pairs) from.push_back(one), to.push_back(other);
      std::ranges::sort(to);
      if (!std::ranges::is_sorted(from) || from != to) FAIL("pairs do not name every GPU once");
      if (!from.empty() && from.size() != devices_) FAIL("pairs do not name every GPU");
      client.order = order->number;
      client.target = order->target;
      client.pairs = order->pairs;
      client.pending = true;
    } else if (const auto* timer = std::get_if<SetTimer>(&output)) {
      if (timer->at <= now_) FAIL("a timer that has passed");
    }
  }

  void check() {
    for (uint32_t n = 0; n < devices_; ++n) {
      if (taken(DeviceId{n}) > kTotal) FAIL("a GPU holds more than it has");
    }
    std::map<uint64_t, std::vector<const Client*>> jobs;
    for (const auto& [id, client] : clients_) jobs[client.job].push_back(&client);
    if (jobs.size() != moves_->jobs().size()) FAIL("a job is lost, or lives without a client");
    for (const auto& [job, members] : jobs) {
      const auto status = moves_->status(JobId{job});
      if (!status || status->clients.size() != members.size()) FAIL("a client is lost");
      const bool runs = status->state == JobState::kRunning;
      if (runs == stopped_[job]) FAIL("a running job is stopped, or one that does not run is not");
      for (const Client* client : members) {
        const bool resident = client->report.residence == Residence::kResident;
        if (runs && !resident) FAIL("a job runs without one of its ranks");
        if (runs && client->pending) FAIL("a job runs with an order under way");
        const bool out = status->state == JobState::kSuspended && status->level != Level::kInPlace;
        if (out && resident && client->report.can_swap && !plan_.by_itself && !plan_.restarts) {
          FAIL("a suspended job has a rank that was left behind");
        }
      }
    }
  }

  // Everybody obeys now; one job after another runs to its end.
  void finish() {
    finishing_ = true;
    plan_.restarts = false;
    for (int n = 0; n < 20'000 && !clients_.empty(); ++n) {
      if (n % 50 == 0) {
        for (JobId job : moves_->jobs()) {
          inputs_.emplace_back(ResumeAsked{job});
          const JobStatus status = *moves_->status(job);
          if (status.state != JobState::kRunning) continue;
          for (ClientId id : status.clients) {
            inputs_.emplace_back(ClientLeft{id});
            clients_.erase(id.value);
          }
          break;
        }
      }
      for (auto& [id, client] : clients_) {
        if (client.pending) obey(id, client);
      }
      for (const auto& [job, at] : std::map(stands_at_)) {
        if (at > now_.ns) continue;
        inputs_.emplace_back(JobStands{JobId{job}});
        stands_at_.erase(job);
      }
      now_ = now_ + Duration{50'000'000};
      step();
    }
    for (JobId job : moves_->jobs()) {
      const JobStatus status = *moves_->status(job);
      FAIL("job " << job.value << " never ran again: state " << static_cast<int>(status.state)
                  << " " << status.waits_for << " " << status.reason);
    }
    for (uint32_t n = 0; n < devices_; ++n) CHECK(moves_->free_bytes(DeviceId{n}) == kTotal);
  }

  Plan plan_;
  std::mt19937_64 random_;
  const uint32_t devices_ = static_cast<uint32_t>(pick(1, 4));
  std::unique_ptr<Moves> moves_;
  Instant now_{1'000'000'000};
  std::map<uint32_t, Client> clients_;
  std::map<uint64_t, bool> stopped_;
  std::map<uint64_t, int64_t> stands_at_;
  std::vector<Input> inputs_;
  uint32_t next_client_ = 1;
  uint64_t next_job_ = 1;
  bool finishing_ = false;
  std::string log_;
};

void run_twice(const Plan& plan) {
  INFO("seed " << plan.seed);
  const std::string once = Node(plan).run();
  CHECK(once == Node(plan).run());
  CHECK(once.find("order") != std::string::npos);
}

constexpr uint64_t kSeeds = 60;

}  // namespace

TEST_CASE("a return that is let begin always finds its memory, whatever is asked meanwhile") {
  for (uint64_t n = 0; n < kSeeds; ++n) run_twice({.seed = tests::test_seed() * 1000 + n});
}

TEST_CASE("clients that return by themselves end where they are wanted") {
  for (uint64_t n = 0; n < kSeeds; ++n) {
    run_twice({.seed = tests::test_seed() * 2000 + n, .by_itself = true});
  }
}

TEST_CASE("a coordinator that begins anew in any state brings every job back") {
  for (uint64_t n = 0; n < kSeeds; ++n) {
    run_twice({.seed = tests::test_seed() * 3000 + n, .by_itself = true, .restarts = true});
  }
}

}  // namespace lull::moves
