// Each transition of a job (moves.h draws them), by hand: reports and requests in, orders out.
#include "coordinator/moves/moves.h"

#include <catch2/catch.hpp>

namespace lull::moves {
namespace {

constexpr uint64_t kGiB = 1ULL << 30;
constexpr uint64_t kContext = kGiB / 2;

// Moves, and what it put out since the last look.
class Node {
 public:
  explicit Node(std::vector<uint64_t> totals = {80 * kGiB, 80 * kGiB}, uint64_t reserve = 0)
      : moves_(Settings{.reserve_bytes = reserve, .context_bytes = kContext}) {
    DevicesKnown known;
    for (uint32_t n = 0; n < totals.size(); ++n) known.devices.push_back({DeviceId{n}, totals[n]});
    give(known);
  }

  void give(Input input) {
    std::vector<Output> out;
    moves_.step(now, std::span(&input, 1), out);
    for (Output& output : out) {
      if (const auto* order = std::get_if<OrderClient>(&output))
        orders[order->client.value] = *order;
      if (const auto* stop = std::get_if<StopJob>(&output)) {
        stopped.push_back(stop->job.value);
        stand_by = stop->stand_by;
      }
      if (const auto* go = std::get_if<ContinueJob>(&output)) continued.push_back(go->job.value);
      if (const auto* timer = std::get_if<SetTimer>(&output)) timer_at = timer->at;
      if (const auto* notice = std::get_if<Notice>(&output)) notices.push_back(notice->text);
    }
  }
  void step() { give(JobStands{JobId{999}}); }
  // An input that a request is: no objection is expected.
  void ask(Input input) {
    INFO(moves_.objection(input).value_or(""));
    REQUIRE_FALSE(moves_.objection(input));
    give(std::move(input));
  }
  std::string objection(const Input& input) const { return moves_.objection(input).value_or(""); }

  void join(uint32_t client, uint64_t job, uint64_t bytes, uint32_t device = 0,
            uint8_t priority = 5) {
    give(ClientJoined{ClientId{client}, JobId{job}, Priority{priority}});
    Report& report = reports[client];
    report.can_swap = report.can_give_up = report.can_migrate = true;
    report.devices = {{.device = DeviceId{device}, .used_bytes = bytes, .swappable_bytes = bytes}};
    say(client);
  }
  void say(uint32_t client) { give(ClientReported{ClientId{client}, reports[client]}); }
  void say(uint32_t client, Residence residence) {
    reports[client].residence = residence;
    say(client);
  }
  // The client has carried its last order out.
  void done(uint32_t client) {
    const OrderClient& order = orders.at(client);
    Report& report = reports[client];
    constexpr Residence kEnds[] = {Residence::kResident, Residence::kOut, Residence::kGivenUp};
    report.residence = kEnds[static_cast<size_t>(order.target)];
    for (Share& share : report.devices) {
      for (const auto& [from, to] : order.pairs) {
        if (share.device != from) continue;
        share.device = to;
        break;
      }
    }
    finish(client, Result::kDone);
  }
  void finish(uint32_t client, Result result, const std::string& reason = "") {
    Report& report = reports[client];
    report.order = orders.at(client).number;
    report.result = result;
    report.reason = reason;
    say(client);
  }
  JobStatus status(uint64_t job) const { return *moves_.status(JobId{job}); }
  JobState state(uint64_t job) const { return status(job).state; }
  void suspend(uint64_t job, std::optional<Level> level = {}) {
    ask(SuspendAsked{.job = JobId{job}, .level = level});
  }
  // All the way out.
  void suspended(uint64_t job, std::vector<uint32_t> clients, std::optional<Level> level = {}) {
    suspend(job, level);
    give(JobStands{JobId{job}});
    for (uint32_t client : clients) done(client);
    REQUIRE(state(job) == JobState::kSuspended);
  }

  Moves moves_;
  Instant now{1'000'000'000};
  std::map<uint32_t, Report> reports;
  std::map<uint32_t, OrderClient> orders;  // the last to each
  std::vector<uint64_t> stopped, continued;
  std::vector<std::string> notices;
  Instant stand_by{0};  // of the last stop
  Instant timer_at = kNever;
};

}  // namespace

TEST_CASE("a job is stopped, goes out rank by rank, and comes back when it is resumed") {
  Node node;
  node.join(1, 7, 10 * kGiB, 0);
  node.join(2, 7, 20 * kGiB, 1);
  CHECK(node.moves_.free_bytes(DeviceId{0}) == 70 * kGiB - kContext);
  node.suspend(7);
  CHECK(node.state(7) == JobState::kStopping);
  CHECK(node.stopped == std::vector<uint64_t>{7});
  CHECK(node.orders.empty());
  node.give(JobStands{JobId{7}});
  CHECK(node.state(7) == JobState::kLeaving);
  REQUIRE(node.orders.size() == 2);
  CHECK(node.orders[1].target == Target::kOut);
  CHECK(node.orders[1].number == 2);
  node.done(1);
  CHECK(node.state(7) == JobState::kLeaving);
  // What it held stays its own until all are out.
  CHECK(node.moves_.free_bytes(DeviceId{0}) == 70 * kGiB - kContext);
  node.done(2);
  CHECK(node.state(7) == JobState::kSuspended);
  CHECK(node.moves_.free_bytes(DeviceId{0}) == 80 * kGiB - kContext);
  CHECK(node.continued.empty());
  node.ask(ResumeAsked{JobId{7}});
  CHECK(node.state(7) == JobState::kReturning);
  CHECK(node.moves_.free_bytes(DeviceId{1}) == 60 * kGiB - kContext);
  node.done(2);
  CHECK(node.state(7) == JobState::kReturning);
  node.done(1);
  CHECK(node.state(7) == JobState::kRunning);
  CHECK(node.continued == std::vector<uint64_t>{7});
  CHECK(node.orders[1].number == 4);
  CHECK(node.orders[1].pairs.empty());
}

TEST_CASE("the rate of a move counts from its first copy, not from the order") {
  Node node;
  node.join(1, 7, 10 * kGiB);
  node.reports[1].moving_bytes = node.reports[1].moved_bytes = 3 * kGiB;  // of an earlier move
  node.say(1);
  node.suspend(7);
  node.give(JobStands{JobId{7}});
  node.say(1, Residence::kDraining);
  node.now = node.now + Duration{5'000'000'000};
  node.step();
  CHECK(node.status(7).moving_bytes == 0);
  CHECK(node.status(7).bytes_per_s == 0);
  node.reports[1].moving_bytes = 10 * kGiB;
  node.reports[1].moved_bytes = 0;
  node.say(1, Residence::kLeaving);
  node.now = node.now + Duration{500'000'000};
  node.reports[1].moved_bytes = 2 * kGiB;
  node.say(1);
  CHECK(node.status(7).moving_bytes == 10 * kGiB);
  CHECK(node.status(7).moved_bytes == 2 * kGiB);
  CHECK(node.status(7).bytes_per_s == 4 * kGiB);
}

TEST_CASE("an order to one that has just come waits for what it can do") {
  Node node;
  node.give(ClientJoined{.client = ClientId{1}, .job = JobId{7}, .priority = {5}, .movable = true});
  Report& report = node.reports[1];
  report.devices = {{.device = DeviceId{0}, .used_bytes = kGiB}};
  node.say(1);
  SECTION("it can be swapped") {
    node.suspend(7, Level::kOut);
    node.give(JobStands{JobId{7}});
    CHECK(node.state(7) == JobState::kStopping);
    CHECK(node.orders.empty());
    report.can_swap = true;
    report.devices[0].swappable_bytes = kGiB;
    node.say(1);
    CHECK(node.state(7) == JobState::kLeaving);
    node.done(1);
    CHECK(node.state(7) == JobState::kSuspended);
  }
  SECTION("it cannot give up its GPU: it runs, and the reason is said") {
    node.suspend(7, Level::kGivenUp);
    node.give(JobStands{JobId{7}});
    report.can_swap = true;
    report.reason = "a client of MPS";
    node.say(1);
    CHECK(node.state(7) == JobState::kRunning);
    CHECK(node.continued == std::vector<uint64_t>{7});
    CHECK(node.status(7).reason ==
          "client 1 cannot give up its GPU (a client of MPS): suspend it with --level out");
  }
  SECTION("it never says so") {
    node.suspend(7);
    node.give(JobStands{JobId{7}});
    REQUIRE(node.timer_at == node.now + kTellsWithin);
    node.now = node.timer_at;
    node.step();
    CHECK(node.state(7) == JobState::kSuspended);
    CHECK(node.status(7).level == Level::kInPlace);
    CHECK(node.status(7).reason ==
          "client 1 has not said that it can be moved: is its process stopped?");
    node.ask(ResumeAsked{JobId{7}});
    CHECK(node.state(7) == JobState::kRunning);
    CHECK(node.objection(SuspendAsked{.job = JobId{7}, .level = Level::kOut}) ==
          "client 1 has not said that it can be moved: is its process stopped?");
  }
  SECTION("it migrates") {
    node.ask(MigrateAsked{.job = JobId{7}, .to = {DeviceId{1}}});
    node.give(JobStands{JobId{7}});
    CHECK(node.state(7) == JobState::kStopping);
    report.can_swap = report.can_give_up = true;
    node.say(1);
    CHECK(node.state(7) == JobState::kRunning);
    CHECK(node.status(7).reason ==
          "client 1 cannot change its GPU: start it with `lull run --migratable`, outside MPS");
    CHECK(node.moves_.free_bytes(DeviceId{1}) == 80 * kGiB);
  }
}

TEST_CASE("one that is out and is refused to go further stays out") {
  Node node;
  node.join(1, 7, 10 * kGiB, 0);
  node.join(2, 7, 20 * kGiB, 1);
  node.suspended(7, {1, 2}, Level::kOut);
  SECTION("given up") {
    node.suspend(7, Level::kGivenUp);
    REQUIRE(node.state(7) == JobState::kLeaving);
    node.reports[1].residence = Residence::kOut;
    node.finish(1, Result::kRefused, "managed memory");
    // The other one is on its way: where it ends, it stays.
    CHECK(node.state(7) == JobState::kLeaving);
    node.done(2);
    CHECK(node.state(7) == JobState::kSuspended);
    CHECK(node.status(7).level == Level::kOut);
    CHECK(node.status(7).reason == "client 1: managed memory");
    CHECK(node.continued.empty());
    CHECK(node.moves_.free_bytes(DeviceId{0}) == 80 * kGiB - kContext);
    node.ask(ResumeAsked{JobId{7}});
    node.done(1);
    node.done(2);
    CHECK(node.state(7) == JobState::kRunning);
  }
  SECTION("migrated") {
    node.ask(MigrateAsked{.job = JobId{7}, .to = {DeviceId{1}, DeviceId{0}}});
    REQUIRE(node.state(7) == JobState::kLeaving);
    node.finish(1, Result::kRefused, "managed memory");
    node.finish(2, Result::kRefused, "managed memory");
    CHECK(node.state(7) == JobState::kSuspended);
    CHECK(node.status(7).suspends);
    CHECK_FALSE(node.status(7).migrates);
    CHECK(node.status(7).reason == "client 1: managed memory");
    CHECK(node.moves_.free_bytes(DeviceId{1}) == 80 * kGiB - kContext);
  }
}

TEST_CASE("ranks have as long to come to one launch as an iteration is waited for") {
  Node node;
  node.join(1, 7, kGiB);
  node.ask(SuspendAsked{.job = JobId{7}, .level = Level::kInPlace, .at = At::kNow});
  CHECK(node.stand_by == node.now + kStandsWithin);
  node.join(2, 8, kGiB);
  node.join(3, 8, kGiB);
  node.ask(SuspendAsked{.job = JobId{8}, .level = Level::kInPlace, .at = At::kNow});
  CHECK(node.stand_by == node.now + kIterationPatience);
}

TEST_CASE("in place a job only stops") {
  Node node;
  node.join(1, 7, 10 * kGiB);
  node.suspended(7, {}, Level::kInPlace);
  CHECK(node.orders.empty());
  CHECK(node.moves_.free_bytes(DeviceId{0}) == 70 * kGiB - kContext);
  node.ask(ResumeAsked{JobId{7}});
  CHECK(node.state(7) == JobState::kRunning);
  // Where its memory cannot be swapped, that is what it falls back to, and says why.
  node.reports[1].can_swap = false;
  node.reports[1].reason = "managed memory";
  node.say(1);
  CHECK(
      node.objection(SuspendAsked{.job = JobId{7}, .level = Level::kOut}).find("managed memory") !=
      std::string::npos);
  node.suspended(7, {});
  CHECK(node.status(7).level == Level::kInPlace);
  CHECK(node.status(7).reason.find("managed memory") != std::string::npos);
}

TEST_CASE("when one rank refuses, the others return and the job goes on, with the reason") {
  const Result result = GENERATE(Result::kBusy, Result::kNoHostMemory, Result::kRefused);
  Node node;
  node.join(1, 7, 10 * kGiB);
  node.join(2, 7, 20 * kGiB);
  node.suspend(7);
  node.give(JobStands{JobId{7}, /*drained=*/false});
  node.done(1);
  node.finish(2, result, "this is why");
  CHECK(node.state(7) == JobState::kReturning);
  CHECK(node.orders[1].target == Target::kResident);
  CHECK(node.orders[2].target == Target::kResident);
  // Its place is still there: nobody else got it meanwhile.
  CHECK(node.moves_.free_bytes(DeviceId{0}) == 50 * kGiB - 2 * kContext);
  node.done(1);
  node.done(2);
  CHECK(node.state(7) == JobState::kRunning);
  CHECK(node.status(7).reason == "client 2: this is why");
  CHECK_FALSE(node.status(7).suspends);
}

TEST_CASE("a rank that dies, in any state, is as if it had never been") {
  const int when = GENERATE(0, 1, 2, 3, 4);
  const bool last = GENERATE(false, true);
  Node node;
  node.join(1, 7, 10 * kGiB);
  node.join(2, 7, 20 * kGiB);
  const auto die = [&](int now) {
    if (now != when) return;
    node.give(ClientLeft{ClientId{2}});
    if (last) node.give(ClientLeft{ClientId{1}});
  };
  node.suspend(7);
  die(0);
  if (!last || when > 0) node.give(JobStands{JobId{7}});
  die(1);
  if (when > 1 || !last) node.done(1);
  die(2);
  if (when > 2) {
    node.done(2);
    REQUIRE(node.state(7) == JobState::kSuspended);
  }
  die(3);
  if (last && when <= 3) {
    CHECK_FALSE(node.moves_.status(JobId{7}));
    CHECK(node.moves_.free_bytes(DeviceId{0}) == 80 * kGiB);
    return;
  }
  REQUIRE(node.state(7) == JobState::kSuspended);
  node.ask(ResumeAsked{JobId{7}});
  die(4);
  if (last) {
    CHECK_FALSE(node.moves_.status(JobId{7}));
    return;
  }
  node.done(1);
  CHECK(node.state(7) == JobState::kRunning);
  CHECK(node.moves_.free_bytes(DeviceId{0}) == 70 * kGiB - kContext);
}

TEST_CASE("a resume waits for memory, says for what, and gets it by priority, then age") {
  Node node({32 * kGiB});
  node.join(1, 1, 20 * kGiB, 0, /*priority=*/5);
  node.suspended(1, {1}, Level::kGivenUp);
  node.join(2, 2, 20 * kGiB, 0, /*priority=*/5);
  node.suspended(2, {2}, Level::kGivenUp);
  node.join(3, 3, 20 * kGiB, 0, /*priority=*/2);
  node.suspended(3, {3}, Level::kGivenUp);
  node.join(4, 4, 30 * kGiB);
  for (uint64_t job : {2, 1, 3}) {
    node.now = node.now + Duration{1};
    node.ask(ResumeAsked{JobId{job}});
    CHECK(node.state(job) == JobState::kWaiting);
  }
  CHECK(node.status(3).waits_for ==
        "GPU 0 has 1.5 GiB free, it needs 20.5 GiB: suspend or end a job there");
  node.give(ClientLeft{ClientId{4}});
  CHECK(node.state(3) == JobState::kReturning);
  CHECK(node.state(2) == JobState::kWaiting);
  node.done(3);
  node.give(ClientLeft{ClientId{3}});
  CHECK(node.state(2) == JobState::kReturning);
  CHECK(node.state(1) == JobState::kWaiting);
  // Whoever waits may be told to stay suspended.
  node.suspend(1);
  CHECK(node.state(1) == JobState::kSuspended);
  CHECK(node.status(1).waits_for.empty());
}

TEST_CASE("who waits keeps the memory from those behind it, but not for more than there is") {
  Node node({32 * kGiB}, /*reserve=*/kGiB);
  node.join(1, 1, 30 * kGiB);
  node.suspended(1, {1});
  node.join(2, 2, 4 * kGiB);
  node.suspended(2, {2});
  node.join(3, 3, 12 * kGiB);
  node.ask(ResumeAsked{JobId{1}});
  node.now = node.now + Duration{1};
  node.ask(ResumeAsked{JobId{2}});
  CHECK(node.state(2) == JobState::kWaiting);
  CHECK(node.status(2).waits_for == "GPU 0: another job waits for it, and comes first");
  // It has grown to more than the GPU has: nobody waits for it.
  node.reports[1].devices[0].used_bytes = node.reports[1].devices[0].swappable_bytes = 31 * kGiB;
  node.say(1);
  CHECK(node.status(1).waits_for.find("in all") != std::string::npos);
  CHECK(node.state(2) == JobState::kReturning);
}

TEST_CASE("a return that finds too little memory goes out again, and tries later") {
  Node node;
  node.join(1, 7, 10 * kGiB);
  node.join(2, 7, 10 * kGiB);
  node.suspended(7, {1, 2});
  node.ask(ResumeAsked{JobId{7}});
  node.done(1);
  node.reports[2].residence = Residence::kOut;
  node.finish(2, Result::kNoDeviceMemory, "another program has it");
  CHECK(node.state(7) == JobState::kLeaving);
  CHECK(node.orders[1].target == Target::kOut);
  node.done(1);
  node.done(2);
  CHECK(node.state(7) == JobState::kWaiting);
  CHECK(node.status(7).reason == "client 2: another program has it");
  CHECK(node.timer_at == node.now + kRetryAfter);
  node.now = node.timer_at;
  node.step();
  CHECK(node.state(7) == JobState::kReturning);
  node.done(1);
  node.done(2);
  CHECK(node.state(7) == JobState::kRunning);
}

TEST_CASE("what is asked later replaces what was asked before") {
  Node node;
  node.join(1, 7, 10 * kGiB);
  node.suspend(7);
  node.ask(ResumeAsked{JobId{7}});
  CHECK(node.state(7) == JobState::kRunning);
  CHECK(node.continued.size() == 1);
  node.suspend(7);
  node.give(JobStands{JobId{7}});
  node.ask(ResumeAsked{JobId{7}});
  CHECK(node.state(7) == JobState::kReturning);
  CHECK(node.orders[1].target == Target::kResident);
  node.suspend(7, Level::kGivenUp);
  CHECK(node.state(7) == JobState::kLeaving);
  CHECK(node.orders[1].target == Target::kGivenUp);
  node.done(1);
  CHECK(node.state(7) == JobState::kSuspended);
  CHECK(node.moves_.free_bytes(DeviceId{0}) == 80 * kGiB);
  CHECK(node.objection(SuspendAsked{.job = JobId{7}, .level = Level::kOut}) != "");
}

TEST_CASE("a suspended job goes further out") {
  Node node;
  node.join(1, 7, 10 * kGiB);
  node.suspended(7, {}, Level::kInPlace);
  node.suspend(7, Level::kOut);
  CHECK(node.state(7) == JobState::kLeaving);
  node.done(1);
  CHECK(node.state(7) == JobState::kSuspended);
  node.suspend(7, Level::kGivenUp);
  CHECK(node.orders[1].target == Target::kGivenUp);
  node.done(1);
  CHECK(node.status(7).level == Level::kGivenUp);
  CHECK(node.stopped.size() == 1);
}

TEST_CASE("a client that is found moved out, by a fresh coordinator, is brought back") {
  const Residence found =
      GENERATE(Residence::kDraining, Residence::kLeaving, Residence::kOut, Residence::kGivingUp,
               Residence::kGivenUp, Residence::kRestoring, Residence::kReturning);
  Node node;
  node.give(ClientJoined{ClientId{1}, JobId{7}, Priority{5}});
  node.reports[1].can_swap = true;
  node.reports[1].devices = {{.device = DeviceId{0}, .used_bytes = kGiB, .swappable_bytes = kGiB}};
  node.say(1, found);
  CHECK(node.stopped == std::vector<uint64_t>{7});
  CHECK(node.state(7) == JobState::kReturning);
  CHECK(node.orders[1].target == Target::kResident);
  CHECK(node.notices == std::vector<std::string>{"client 1 was suspended by an earlier lulld, and "
                                                 "returns: suspend it again if it is not to run"});
  CHECK(node.status(7).reason == node.notices[0]);
  const bool alone = GENERATE(false, true);
  if (alone) {  // it had begun by itself, and is there before it sees the order
    node.say(1, Residence::kResident);
    CHECK(node.state(7) == JobState::kReturning);
  }
  node.done(1);
  CHECK(node.state(7) == JobState::kRunning);
  CHECK(node.continued == std::vector<uint64_t>{7});
}

TEST_CASE("a client that had returned before the fresh coordinator came is told of, once") {
  Node node;
  node.join(1, 7, kGiB);
  node.join(2, 8, kGiB);
  node.reports[1].has_returned = true;
  node.say(1);
  node.reports[1].devices[0].used_bytes = 2 * kGiB;
  node.say(1);
  CHECK(node.state(7) == JobState::kRunning);
  CHECK(node.notices ==
        std::vector<std::string>{"client 1 was suspended by an earlier lulld, and has returned by "
                                 "itself: suspend it again if it is not to run"});
  CHECK(node.status(7).reason == node.notices[0]);
  CHECK(node.status(8).reason.empty());
}

TEST_CASE("a client that returned by itself while it was to be out is sent out again") {
  Node node;
  node.join(1, 7, 10 * kGiB);
  node.suspended(7, {1});
  node.say(1, Residence::kReturning);
  CHECK(node.state(7) == JobState::kSuspended);
  node.say(1, Residence::kResident);
  CHECK(node.state(7) == JobState::kLeaving);
  CHECK(node.orders[1].number == 4);
  node.done(1);
  CHECK(node.state(7) == JobState::kSuspended);
  CHECK(node.status(7).reason.find("by itself") != std::string::npos);
}

TEST_CASE("a migration reserves its place first, and returns with every GPU paired once") {
  Node node({80 * kGiB, 80 * kGiB, 80 * kGiB});
  node.join(1, 7, 10 * kGiB, 0);
  node.join(2, 8, 70 * kGiB, 1);
  CHECK(node.objection(MigrateAsked{.job = JobId{7}, .to = {DeviceId{1}}}) ==
        "GPU 1 has 9.5 GiB free, it needs 10.5 GiB: suspend or end a job there first");
  CHECK(node.objection(MigrateAsked{.job = JobId{7}, .to = {DeviceId{9}}}) ==
        "there is no GPU 9: see `lull status`");
  CHECK(node.objection(MigrateAsked{.job = JobId{7}, .to = {DeviceId{0}}}) ==
        "it is there already");
  CHECK(node.objection(MigrateAsked{.job = JobId{7}, .to = {DeviceId{1}, DeviceId{2}}}) ==
        "it uses 1 GPUs: name as many, not 2");
  node.ask(MigrateAsked{.job = JobId{7}, .to = {DeviceId{2}}});
  CHECK(node.moves_.free_bytes(DeviceId{2}) == 70 * kGiB - kContext);
  node.give(JobStands{JobId{7}});
  CHECK(node.orders[1].target == Target::kGivenUp);
  node.done(1);
  CHECK(node.state(7) == JobState::kReturning);
  CHECK(node.moves_.free_bytes(DeviceId{0}) == 80 * kGiB);
  using Pairs = std::vector<std::pair<DeviceId, DeviceId>>;
  CHECK(node.orders[1].pairs ==
        Pairs{{DeviceId{0}, DeviceId{2}}, {DeviceId{1}, DeviceId{1}}, {DeviceId{2}, DeviceId{0}}});
  node.done(1);
  CHECK(node.state(7) == JobState::kRunning);
  CHECK(node.moves_.free_bytes(DeviceId{2}) == 70 * kGiB - kContext);
  CHECK(node.moves_.free_bytes(DeviceId{0}) == 80 * kGiB);
  CHECK_FALSE(node.status(7).migrates);
  // A refusal on the way leaves it where it was.
  node.ask(MigrateAsked{.job = JobId{7}, .to = {DeviceId{0}}});
  node.give(JobStands{JobId{7}});
  node.finish(1, Result::kRefused, "managed memory");
  CHECK(node.orders[1].target == Target::kResident);
  CHECK(node.orders[1].pairs.empty());
  node.done(1);
  CHECK(node.state(7) == JobState::kRunning);
  CHECK(node.status(7).reason == "client 1: managed memory");
  CHECK(node.moves_.free_bytes(DeviceId{0}) == 80 * kGiB);
}

TEST_CASE("ranks change places") {
  Node node;
  node.join(1, 7, 60 * kGiB, 0);
  node.join(2, 7, 10 * kGiB, 1);
  node.ask(MigrateAsked{.job = JobId{7}, .to = {DeviceId{1}, DeviceId{0}}});
  node.give(JobStands{JobId{7}});
  node.done(1);
  node.done(2);
  node.done(1);
  node.done(2);
  CHECK(node.state(7) == JobState::kRunning);
  CHECK(node.moves_.free_bytes(DeviceId{0}) == 70 * kGiB - kContext);
  CHECK(node.moves_.free_bytes(DeviceId{1}) == 20 * kGiB - kContext);
}

TEST_CASE("nobody moves a pinned job, nor a policy what a person has suspended") {
  Node node;
  node.join(1, 7, 10 * kGiB);
  node.ask(PinAsked{JobId{7}, true});
  CHECK(node.objection(SuspendAsked{.job = JobId{7}}).find("pinned") != std::string::npos);
  CHECK(node.objection(MigrateAsked{.job = JobId{7}, .to = {DeviceId{1}}}).find("pinned") !=
        std::string::npos);
  CHECK_FALSE(node.moves_.facts().jobs[0].movable);
  node.ask(PinAsked{JobId{7}, false});
  node.suspended(7, {1});
  CHECK(node.objection(ResumeAsked{JobId{7}, /*by_policy=*/true}) != "");
  node.ask(ResumeAsked{JobId{7}});
  node.done(1);
  node.ask(SuspendAsked{.job = JobId{7}, .level = {}, .by_policy = true});
  CHECK(node.objection(ResumeAsked{JobId{7}, /*by_policy=*/true}) == "");
}

TEST_CASE("a process whose context is lost takes nobody with it") {
  Node node;
  node.join(1, 7, 10 * kGiB);
  node.join(2, 7, 10 * kGiB);
  node.suspended(7, {1, 2}, Level::kGivenUp);
  node.ask(ResumeAsked{JobId{7}});
  node.say(2, Residence::kLost);
  node.done(1);
  CHECK(node.state(7) == JobState::kLost);
  CHECK(node.continued == std::vector<uint64_t>{7});
  CHECK(node.objection(SuspendAsked{.job = JobId{7}}) == "a process of it is lost: end it");
  node.give(ClientLeft{ClientId{2}});
  CHECK(node.state(7) == JobState::kRunning);
}

TEST_CASE(
    "a process that is lost in any phase gives back what was reserved, and the others go on") {
  const bool migrates = GENERATE(false, true);
  enum Phase { kRunning, kStopping, kLeaving, kHalfOut, kOut, kWaiting, kReturning, kHalfBack };
  const int when = GENERATE(range<int>(kRunning, kHalfBack + 1));
  CAPTURE(migrates, when);
  Node node;
  node.join(1, 7, 10 * kGiB);
  node.join(2, 7, 20 * kGiB);
  node.join(9, 9, 10 * kGiB, 1);  // somebody else's
  const auto lose = [&](int now) {
    if (now == when) node.say(2, Residence::kLost);
  };
  const auto done = [&](uint32_t client) {
    if (!node.orders.contains(client) || node.reports[client].residence == Residence::kLost) return;
    if (node.orders[client].number > node.reports[client].order) node.done(client);
  };
  lose(kRunning);
  if (when == kRunning) {
    CHECK(node.state(7) == JobState::kLost);
    CHECK(node.continued.empty());
  } else {
    if (migrates) {
      node.ask(MigrateAsked{.job = JobId{7}, .to = {DeviceId{1}}});
      CHECK(node.moves_.free_bytes(DeviceId{1}) == 40 * kGiB - 3 * kContext);
    } else {
      node.suspend(7, Level::kGivenUp);
    }
    lose(kStopping);
    node.give(JobStands{JobId{7}});
    lose(kLeaving);
    done(1);
    lose(kHalfOut);
    done(2);
    lose(kOut);
    if (!migrates && node.state(7) == JobState::kSuspended) {
      if (when == kWaiting) {  // somebody has taken the place meanwhile
        node.join(3, 3, 70 * kGiB);
        node.ask(ResumeAsked{JobId{7}});
        REQUIRE(node.state(7) == JobState::kWaiting);
        lose(kWaiting);
        node.give(ClientLeft{ClientId{3}});
      } else {
        node.ask(ResumeAsked{JobId{7}});
      }
    }
    lose(kReturning);
    done(1);
    lose(kHalfBack);
    done(2);
    for (int n = 0; n < 3; ++n) done(1);
    if (migrates && when == kWaiting) {  // it never waits
      CHECK(node.state(7) == JobState::kRunning);
      return;
    }
    CHECK(node.state(7) == JobState::kLost);
    REQUIRE_FALSE(node.continued.empty());
    CHECK(node.continued.back() == 7);
  }
  CHECK(node.reports[1].residence == Residence::kResident);
  // The lost process holds nothing; client 1 is on the one GPU or the other.
  const bool moved = node.reports[1].devices[0].device == DeviceId{1};
  CHECK(node.moves_.free_bytes(DeviceId{0}) == (moved ? 80 * kGiB : 70 * kGiB - kContext));
  CHECK(node.moves_.free_bytes(DeviceId{1}) ==
        (moved ? 60 * kGiB - 2 * kContext : 70 * kGiB - kContext));
  CHECK(node.state(9) == JobState::kRunning);
  node.give(ClientLeft{ClientId{2}});
  CHECK(node.state(7) == JobState::kRunning);
}

TEST_CASE("a process that carries nothing out does not keep the others") {
  Node node;
  node.join(1, 7, 10 * kGiB);
  node.join(2, 7, 10 * kGiB);
  node.suspend(7);
  node.give(JobStands{JobId{7}});
  node.done(1);
  CHECK(node.timer_at == node.now + kDrainsWithin + kSilentAtMost);
  node.now = node.timer_at;
  node.step();
  CHECK(node.state(7) == JobState::kReturning);
  CHECK(node.status(7).reason.find("carries no order out") != std::string::npos);
  // Client 2 has never left: it is where it is to be.
  node.done(1);
  CHECK(node.state(7) == JobState::kRunning);
  CHECK(node.moves_.free_bytes(DeviceId{0}) == 60 * kGiB - 2 * kContext);
  // Asked again, nobody waits as long again, unless it has been heard of meanwhile.
  node.suspend(7);
  node.give(JobStands{JobId{7}});
  CHECK(node.state(7) == JobState::kReturning);
  node.done(1);
  CHECK(node.state(7) == JobState::kRunning);
  node.done(2);
  node.suspended(7, {1, 2});
}

TEST_CASE("a process that is stopped on its way is waited for, and status says so") {
  Node node;
  node.join(1, 7, 10 * kGiB);
  node.join(2, 7, 10 * kGiB);
  node.suspend(7);
  node.give(JobStands{JobId{7}});
  node.done(1);
  node.say(2, Residence::kLeaving);
  CHECK(node.status(7).waits_for.empty());
  node.now = node.now + kWaitedForAfter;
  node.step();
  CHECK(node.status(7).waits_for == "client 2: nothing heard of it for 2 s");
  node.now = node.timer_at;
  node.step();
  node.done(1);
  CHECK(node.state(7) == JobState::kReturning);
  node.done(2);
  CHECK(node.state(7) == JobState::kRunning);
  CHECK(node.status(7).waits_for.empty());
}

TEST_CASE("a process that holds no memory and answers nothing keeps nobody from leaving") {
  Node node;
  node.join(1, 7, 10 * kGiB);
  node.join(2, 7, 0);
  node.suspend(7);
  node.give(JobStands{JobId{7}});
  node.done(1);
  CHECK(node.state(7) == JobState::kLeaving);
  CHECK(node.timer_at == node.now + kAnswersWithin);
  node.now = node.timer_at;
  node.step();
  CHECK(node.state(7) == JobState::kSuspended);
  CHECK(node.status(7).reason ==
        "client 2 answers no order, and is left as it is: it holds no memory");
  SECTION("nor from returning") {
    node.ask(ResumeAsked{JobId{7}});
    node.done(1);
    CHECK(node.state(7) == JobState::kRunning);
  }
  SECTION("it cannot give up the GPU: the job stays out") {
    node.suspend(7, Level::kGivenUp);
    node.done(1);
    CHECK(node.state(7) == JobState::kSuspended);
    CHECK(node.status(7).reason == "client 2 carries no order out: is its process stopped?");
    CHECK(node.continued.empty());
  }
  SECTION("it wakes up, and goes out") {
    node.done(2);
    CHECK(node.state(7) == JobState::kSuspended);
    node.ask(ResumeAsked{JobId{7}});
    node.done(1);
    CHECK(node.state(7) == JobState::kReturning);
    node.done(2);
    CHECK(node.state(7) == JobState::kRunning);
  }
}

TEST_CASE("an engine that says nothing does not keep a job from leaving") {
  Node node;
  node.join(1, 7, 10 * kGiB);
  node.suspend(7);
  node.now = node.timer_at;
  node.step();
  CHECK(node.state(7) == JobState::kLeaving);
}

TEST_CASE("to resume what returns is no mistake, and what migrates runs anyway") {
  Node node;
  node.join(1, 7, 10 * kGiB);
  CHECK(node.objection(ResumeAsked{JobId{7}}) == "it is running");
  node.suspended(7, {1});
  node.ask(ResumeAsked{JobId{7}});
  REQUIRE(node.state(7) == JobState::kReturning);
  node.ask(ResumeAsked{JobId{7}});
  CHECK(node.orders[1].number == 4);
  CHECK(node.objection(ResumeAsked{JobId{7}, /*by_policy=*/true}) == "it is returning already");
  node.done(1);
  CHECK(node.state(7) == JobState::kRunning);
  node.ask(MigrateAsked{.job = JobId{7}, .to = {DeviceId{1}}});
  CHECK(node.objection(ResumeAsked{JobId{7}}) == "it is on its way to another GPU, and runs there");
}

TEST_CASE("what names nobody is dropped") {
  Node node;
  for (const Input& input : {Input(SuspendAsked{.job = JobId{1}}), Input(ResumeAsked{JobId{1}}),
                             Input(MigrateAsked{.job = JobId{1}, .to = {}}),
                             Input(PinAsked{JobId{1}}), Input(ClientReported{ClientId{1}, {}}),
                             Input(ClientLeft{ClientId{1}}), Input(JobStands{JobId{1}})}) {
    const uint64_t before = node.moves_.dropped();
    node.give(input);
    CHECK(node.moves_.dropped() == before + 1);
  }
}

}  // namespace lull::moves
