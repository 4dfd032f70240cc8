// Real processes on one shared device: they fork, share, die at every step of an update. No check
// here depends on how fast anything is.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "tools/simgpu/device/inspect.h"
#include "tools/simgpu/device/shared_device.h"

using namespace simgpu;
using Catch::Matchers::Contains;

namespace {

struct TemporaryDevice {
  TemporaryDevice() {
    char folder_name[] = "/tmp/simgpu_test.XXXXXX";
    folder = mkdtemp(folder_name);
    path = folder + "/device";
  }
  ~TemporaryDevice() {
    unlink(path.c_str());
    rmdir(folder.c_str());
  }
  std::unique_ptr<Device> open(Sharing sharing = Sharing::kTimeSlice) {
    SimParameters parameters;
    parameters.sharing = sharing;
    parameters.devices = 2;
    auto device = Device::open(path, parameters);
    REQUIRE(device);
    return std::move(*device);
  }
  std::string folder, path;
};

Op kernel(uint64_t ns, uint64_t token = 0) {
  return {.kind = OpKind::kKernel, .duration_ns = ns, .token = token};
}

// Runs `body` in a child, which leaves with its result and never comes back into Catch.
template <typename F>
pid_t in_child(F&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}
int status_of(pid_t child) {
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}
bool left_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

// Every kind of update there is, by one process, with enough going on to be interesting.
int play_everything(const std::string& path) {
  auto device = Device::open(path, {});
  if (!device) return 10;
  Device& d = **device;
  for (int round = 0; round < 2; ++round) {
    auto context = d.create_context(0);
    if (!context) return 11;
    if (d.allocate(*context, 1 << 20) != Status::kOk) return 12;
    auto one = d.create_stream(*context);
    auto two = d.create_stream(*context);
    if (!one || !two) return 13;
    for (uint64_t i = 0; i < 3; ++i) {
      auto first = d.submit(*one, kernel(2000, 100 + i));
      if (!first) return 14;
      Op after = kernel(1000, 200 + i);
      after.wait_for[after.wait_count++] = {*one, *first};
      if (!d.submit(*two, after)) return 15;
      if (!d.submit(*two, {.kind = OpKind::kCopyH2D, .bytes = 4096})) return 16;
    }
    auto wait = d.submit(*one, {.kind = OpKind::kWaitValue, .token = 7});
    auto last = d.submit(*one, {.kind = OpKind::kEventRecord, .token = 8});
    if (!wait || !last) return 17;
    bool satisfied = false;
    uint64_t seen = 0;
    while (!satisfied || seen < 7 || !d.is_complete({*one, *last})) {
      Collected collected;
      d.collect(collected);
      seen += collected.completed.size();
      for (const ReachedWait& reached : collected.reached) {
        satisfied = d.satisfy(reached.at) == Status::kOk || satisfied;
      }
      if (!satisfied || seen < 7) d.wait_for_work(d.now_ns() + 1'000'000);
    }
    d.release(*context, 1 << 19);
    if (d.hold(1, 1 << 20) != Status::kOk) return 19;
    if (d.hold(0, 1 << 20) != Status::kOk) return 20;
    d.drop(1, 1 << 18);
    const auto block = d.share(0, 1 << 19);
    if (!block || d.join(*block, 0, 1 << 19) != Status::kOk) return 21;
    // Its own requester and its own restore thread.
    if (d.serve_requests() != Status::kOk) return 22;
    std::thread requester([&] { (void)d.ask(getpid(), {.action = CheckpointAction::kLock}); });
    while (!d.asked()) sched_yield();
    d.leave_devices();
    d.answer(ProcessState::kCheckpointed, 0);
    requester.join();
    std::array<uint8_t, kMaxDevices> swapped{1, 0};
    if (d.return_to_devices(swapped) != Status::kOk) return 23;
    d.leave(*block);
    d.destroy_stream(*two);
    if (d.destroy_context(*context) != Status::kOk) return 18;
  }
  return 0;
}

uint32_t live_contexts(const std::string& path) {
  auto device = SharedDevice::open_existing(path);
  REQUIRE(device);
  Session session(**device);
  return static_cast<uint32_t>(__builtin_popcountll(session.seen().state().head.contexts));
}

}  // namespace

TEST_CASE("a process killed in another pid namespace is removed, its number being anybody's here") {
  TemporaryDevice temporary;
  auto device = temporary.open();
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  // Its child is process 1 of a namespace of its own; its death ends this one, too.
  const pid_t outer = in_child([&] {
    if (unshare(CLONE_NEWPID) != 0) return 2;
    const pid_t inner = in_child([&] {
      auto mine = Device::open(temporary.path, {});
      if (!mine || !(*mine)->create_context(0)) return 1;
      if ((*mine)->serve_requests() != Status::kOk) return 1;
      const pid_t seen_inside = getpid();
      if (write(ready[1], &seen_inside, sizeof seen_inside) != sizeof seen_inside) return 1;
      for (;;) pause();
    });
    close(ready[1]);
    int status = 0;
    waitpid(inner, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 9;
  });
  close(ready[1]);
  pid_t inside = 0;
  if (read(ready[0], &inside, sizeof inside) != sizeof inside) {
    close(ready[0]);
    const int why = status_of(outer);
    REQUIRE((WIFEXITED(why) && WEXITSTATUS(why) == 2));
    WARN("skipped: no pid namespace may be made here");
    return;
  }
  close(ready[0]);
  CHECK(inside == 1);
  // Not for its number: process 1 of this namespace started at another time.
  for (int look = 0; look < 20; ++look, usleep(1000)) REQUIRE(live_contexts(temporary.path) == 1);
  std::ifstream children("/proc/" + std::to_string(outer) + "/task/" + std::to_string(outer) +
                         "/children");
  pid_t inner = 0;
  REQUIRE(children >> inner);
  REQUIRE(kill(inner, SIGKILL) == 0);
  CHECK(WIFEXITED(status_of(outer)));
  // Whoever comes by removes it, at once or 5 ms later.
  for (int look = 0; look < 120'000 && live_contexts(temporary.path) != 0; ++look) usleep(1000);
  CHECK(live_contexts(temporary.path) == 0);
}

TEST_CASE("work completes at exact model times, however late it is asked for") {
  TemporaryDevice temporary;
  auto device = temporary.open();
  const ContextId context = *device->create_context(0);
  const StreamId stream = *device->create_stream(context);
  const Op ops[] = {
      kernel(1'000'000, 1), {.kind = OpKind::kEventRecord, .token = 2}, kernel(500'000, 3)};
  const Seq last = *device->submit(stream, ops);
  CHECK(device->last_submitted(stream).seq == last);
  CHECK(device->wait_until({stream, last}));
  CHECK(device->is_idle(context));
  Collected out;
  device->collect(out);
  REQUIRE(out.completed.size() == 3);
  CHECK(out.completed[0].completed_ns - out.completed[0].started_ns == 1'000'000);
  CHECK(out.completed[1].completed_ns == out.completed[0].completed_ns);
  CHECK(out.completed[2].started_ns == out.completed[1].completed_ns);
  CHECK(out.completed[2].completed_ns - out.completed[2].started_ns == 500'000);
  CHECK(device->now_ns() >= out.completed[2].completed_ns);
}

TEST_CASE("whoever comes first creates the device, and its parameters hold for all") {
  TemporaryDevice temporary;
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(in_child([&] {
      SimParameters parameters;
      parameters.devices = static_cast<uint32_t>(1 + i);
      auto device = Device::open(temporary.path, parameters);
      return device && (*device)->create_context(0) ? static_cast<int>((*device)->device_count())
                                                    : 100;
    }));
  }
  int devices = 0;
  for (const pid_t child : children) {
    const int status = status_of(child);
    REQUIRE(WIFEXITED(status));
    if (devices == 0) devices = WEXITSTATUS(status);
    CHECK(WEXITSTATUS(status) == devices);
  }
  CHECK(devices <= 8);
  CHECK(create_device(temporary.path, {}).error().find("remove it") != std::string::npos);
  CHECK(create_device(temporary.path, {}, /*replace=*/true));
  CHECK(read_usage(temporary.path)->devices.size() == 1);
}

TEST_CASE("two processes share a device, and what a finished one used stays readable") {
  TemporaryDevice temporary;
  auto device = temporary.open(Sharing::kTimeSlice);
  const ContextId context = *device->create_context(0);
  const StreamId stream = *device->create_stream(context);
  const pid_t child = in_child([&] {
    auto mine = Device::open(temporary.path, {});
    if (!mine) return 1;
    auto theirs = (*mine)->create_context(0);
    if (!theirs) return 2;
    auto lane = (*mine)->create_stream(*theirs);
    if (!lane) return 3;
    Seq last = 0;
    for (int i = 0; i < 50; ++i) last = *(*mine)->submit(*lane, kernel(100'000));
    if (!(*mine)->wait_until({*lane, last})) return 4;
    return (*mine)->allocate(*theirs, 4096) == Status::kOk ? 0 : 5;
  });
  Seq last = 0;
  for (int i = 0; i < 50; ++i) last = *device->submit(stream, kernel(100'000));
  CHECK(device->wait_until({stream, last}));
  CHECK(left_well(status_of(child)));
  // The next one who looks after it has been reaped removes it.
  ProcessUsage mine, gone;
  while (gone.pid == 0) {
    const auto usage = read_usage(temporary.path);
    REQUIRE(usage);
    REQUIRE(usage->devices.size() == 2);
    CHECK(usage->devices[0].busy_ns == 10'000'000);
    CHECK(usage->devices[1].processes.empty());
    for (const ProcessUsage& process : usage->devices[0].processes) {
      if (process.pid == getpid()) mine = process;
      if (process.pid == child && !process.alive) gone = process;
    }
    sched_yield();
  }
  CHECK(mine.alive);
  CHECK(mine.busy_ns == 5'000'000);
  CHECK(mine.launches == 50);
  CHECK(gone.busy_ns == 5'000'000);
  CHECK(gone.launches == 50);
  CHECK(device->memory_info(0).free_bytes == device->memory_info(0).total_bytes);
  CHECK(live_contexts(temporary.path) == 1);
}

TEST_CASE("a process killed at any step of any update leaves the device whole to the others") {
  for (const Sharing sharing : {Sharing::kTimeSlice, Sharing::kMps, Sharing::kSerial}) {
    TemporaryDevice temporary;
    auto device = temporary.open(sharing);
    const ContextId context = *device->create_context(0);
    const StreamId stream = *device->create_stream(context);
    const uint64_t total = device->memory_info(0).total_bytes;
    REQUIRE(device->allocate(context, 1000) == Status::kOk);
    bool survived = false;
    uint64_t steps = 0;
    uint64_t launched = 0;
    // The steps are numbered as they are executed. In the first part every one is tried, then every
    // few: by then they are all the same places again.
    for (uint64_t kill_at = 1; !survived; kill_at += 1 + kill_at / 60) {
      CAPTURE(kill_at, static_cast<int>(sharing));
      const pid_t child = in_child([&] {
        setenv("SIMGPU_TEST_KILL_AT", std::to_string(kill_at).c_str(), 1);
        return play_everything(temporary.path);
      });
      const Seq first = *device->submit(stream, kernel(3000, 1));
      const int status = status_of(child);
      survived = left_well(status);
      REQUIRE((survived || was_killed(status)));
      const Seq second = *device->submit(stream, kernel(3000, 2));
      launched += 2;
      REQUIRE(device->wait_until({stream, second}));
      REQUIRE(device->is_complete({stream, first}));
      Collected out;
      device->collect(out);
      REQUIRE(out.completed.size() == 2);
      CHECK(out.completed[0].token == 1);
      CHECK(out.completed[1].token == 2);
      steps = kill_at;
      for (;;) {
        const auto usage = read_usage(temporary.path);
        REQUIRE(usage);
        uint32_t alive = 0;
        for (const ProcessUsage& process : usage->devices[0].processes) {
          alive += process.alive ? 1 : 0;
          if (process.pid == getpid()) {
            CHECK(process.busy_ns == 3000 * launched);
            CHECK(process.launches == launched);
          }
        }
        if (alive == 1 && live_contexts(temporary.path) == 1) break;
        sched_yield();
      }
      REQUIRE(device->memory_info(0).free_bytes == total - 1000);
      REQUIRE(device->memory_info(1).free_bytes == total);
    }
    CHECK(steps > 300);
    auto shared = SharedDevice::open_existing(temporary.path);
    CHECK((*shared)->control().recoveries > 20);
  }
}

TEST_CASE("a process killed at random moments never holds the others up") {
  TemporaryDevice temporary;
  auto device = temporary.open(Sharing::kSerial);
  const StreamId stream = *device->create_stream(*device->create_context(0));
  for (int round = 0; round < 30; ++round) {
    const pid_t child = in_child([&] {
      auto mine = Device::open(temporary.path, {});
      auto lane = (*mine)->create_stream(*(*mine)->create_context(0));
      // Long and unasked for: without its death nobody else would run for an hour.
      for (uint64_t i = 1;; ++i)
        (void)(*mine)->try_submit(*lane, kernel(i % 50 == 0 ? 3'600'000'000'000 : 100, 0));
      return 0;
    });
    const Seq first = *device->submit(stream, kernel(1000));
    CHECK(device->wait_until({stream, first},
                             device->now_ns() + 500'000u * static_cast<unsigned>(round)) <= true);
    kill(child, SIGKILL);
    CHECK(was_killed(status_of(child)));
    const Seq last = *device->submit(stream, kernel(1000));
    CHECK(device->wait_until({stream, last}));
  }
}

TEST_CASE("a fork child is not a client, and does not disturb its parent's work") {
  TemporaryDevice temporary;
  auto device = temporary.open();
  const ContextId context = *device->create_context(0);
  const StreamId stream = *device->create_stream(context);
  const pid_t child = in_child([&] {
    if (!device->forked()) return 1;
    if (device->submit(stream, kernel(1000)) != std::unexpected(Status::kForked)) return 2;
    if (device->create_context(0) != std::unexpected(Status::kForked)) return 3;
    if (device->destroy_context(context) != Status::kForked) return 4;
    Collected out;
    device->collect(out);
    device->wait_for_work();
    // Opened anew it is a client of its own.
    auto mine = Device::open(temporary.path, {});
    auto own = (*mine)->create_context(1);
    if (!own) return 5;
    if (own->slot == context.slot) return 6;
    return 0;
  });
  CHECK(left_well(status_of(child)));
  CHECK_FALSE(device->forked());
  CHECK(device->wait_until({stream, *device->submit(stream, kernel(1000))}));
}

TEST_CASE("the service thread is woken by what comes earlier than it sleeps for") {
  TemporaryDevice temporary;
  auto device = temporary.open(Sharing::kMps);
  const StreamId stream = *device->create_stream(*device->create_context(0));
  uint64_t served = 0;
  std::thread service([&] {
    while (served < 200) {
      Collected out;
      device->collect(out);
      for (const ReachedWait& reached : out.reached) {
        served += device->satisfy(reached.at) == Status::kOk ? 1 : 0;
      }
      served += out.completed.size();
      if (served < 200) device->wait_for_work();
    }
  });
  Seq last = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    (void)*device->submit(stream, kernel(1000, 1));
    last = *device->submit(stream, {.kind = OpKind::kHostFunction, .token = 2});
  }
  CHECK(device->wait_until({stream, last}));
  service.join();
  CHECK(served == 200);
}

TEST_CASE("a full op ring makes the submitter wait, not fail") {
  TemporaryDevice temporary;
  auto device = temporary.open(Sharing::kSerial);
  const StreamId stream = *device->create_stream(*device->create_context(0));
  Seq last = 0;
  for (uint32_t i = 0; i < 3 * kMaxOps; ++i) last = *device->submit(stream, kernel(2000));
  CHECK(last == 3 * kMaxOps);
  CHECK(device->wait_until({stream, last}));
  const std::vector<Op> many(3 * kMaxOps, kernel(500));
  CHECK(*device->submit(stream, many) == 6 * kMaxOps);
}

TEST_CASE("a file that is not a device is refused in one line") {
  TemporaryDevice temporary;
  std::ofstream(temporary.path) << "something else";
  const auto device = Device::open(temporary.path, {});
  REQUIRE_FALSE(device);
  CHECK_THAT(device.error(), Contains(temporary.path) && Contains("remove the file"));
  CHECK_FALSE(read_usage(temporary.path + ".absent"));
  const auto nowhere = Device::open("/nowhere/device", {});
  REQUIRE_FALSE(nowhere);
  CHECK_THAT(nowhere.error(), Contains("SIMGPU_DEVICE"));
}

TEST_CASE("the environment's parameters are checked whole") {
  const auto with = [](const char* name, const char* value) {
    setenv(name, value, 1);
    auto parameters = parameters_from_environment();
    unsetenv(name);
    return parameters;
  };
  CHECK(with("SIMGPU_SHARING", "mps")->sharing == Sharing::kMps);
  CHECK(with("SIMGPU_SLOW_MOTION", "4")->slow_motion == 4);
  CHECK(with("SIMGPU_DEVICES", "16")->devices == 16);
  CHECK_THAT(with("SIMGPU_SHARING", "both").error(), Contains("time_slice, mps or serial"));
  CHECK_THAT(with("SIMGPU_SLOW_MOTION", "0.5").error(), Contains("at least 1"));
  CHECK_THAT(with("SIMGPU_DEVICES", "17").error(), Contains("1 to 16"));
  CHECK_THAT(with("SIMGPU_CONTROL_LATENCY_NS", "soon").error(), Contains("whole number"));
  CHECK_THAT(with("SIMGPU_PROFILE", "/nowhere.json").error(), Contains("/nowhere.json"));
}
