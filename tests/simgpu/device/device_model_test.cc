// Each sharing model against timelines worked out by hand.
#include <catch2/catch.hpp>

#include "tests/simgpu/device/model_bench.h"

using namespace simgpu;
using simgpu::test::Bench;

namespace {
ModelParameters parameters(Sharing sharing, uint32_t devices = 1) {
  return {devices,
          sharing,
          /*sm_count=*/100,
          /*slice_ns=*/2000,
          /*switch_ns=*/25,
          /*memory_bytes=*/1000};
}
void is(const Completion& c, ModelNs started, ModelNs completed) {
  CHECK(c.started_ns == started);
  CHECK(c.completed_ns == completed);
}
}  // namespace

TEST_CASE("serial runs one kernel at a time in order of becoming ready") {
  Bench b(parameters(Sharing::kSerial));
  const StreamId high = b.stream_of_a_new_process();
  const StreamId low = b.stream_of_a_new_process();
  b.kernel(low, 0, 1000, 1);
  b.kernel(low, 0, 1000, 2);   // becomes first of its stream at 1000
  b.kernel(high, 10, 100, 3);  // ready at 10, before it
  b.kernel(high, 10, 50, 4);   // ready at 1100, after it
  auto done = b.run(10'000);
  is(done[1], 0, 1000);
  is(done[3], 1000, 1100);
  is(done[2], 1100, 2100);
  is(done[4], 2100, 2150);
  CHECK(b.model().device_busy_ns(0) == 2150);
  CHECK(b.model().busy_ns(high.context.slot) == 150);
  CHECK(b.model().busy_ns(low.context.slot) == 2000);
}

TEST_CASE("serial keeps streams of one process apart in time too") {
  Bench b(parameters(Sharing::kSerial));
  const StreamId first = b.stream_of_a_new_process();
  const StreamId second = *b.model().create_stream(first.context);
  b.kernel(first, 0, 10, 1, /*sms=*/1);
  b.kernel(second, 0, 10, 2, /*sms=*/1);
  auto done = b.run(100);
  is(done[1], 0, 10);
  is(done[2], 10, 20);
}

TEST_CASE("time slicing preempts at the end of a slice and charges each switch") {
  Bench b(parameters(Sharing::kTimeSlice));
  const StreamId one = b.stream_of_a_new_process();
  const StreamId two = b.stream_of_a_new_process();
  b.kernel(one, 0, 5000, 1);
  b.kernel(two, 500, 3000, 2);
  // one 0-2000 | switch | two 2025-4025 | switch | one 4050-6050 | switch | two 6075-7075, done |
  // switch | one 7100-8100, done.
  auto done = b.run(20'000);
  is(done[2], 2025, 7075);
  is(done[1], 0, 8100);
  CHECK(b.model().busy_ns(one.context.slot) == 5000);
  CHECK(b.model().busy_ns(two.context.slot) == 3000);
  CHECK(b.model().device_busy_ns(0) == 8000);
  CHECK(b.state->device[0].switched_ns == 100);
}

TEST_CASE("a context without work gives the device up at once, and waits for its next turn") {
  Bench b(parameters(Sharing::kTimeSlice));
  const StreamId chatty = b.stream_of_a_new_process();
  const StreamId greedy = b.stream_of_a_new_process();
  b.kernel(chatty, 0, 100, 1);
  b.kernel(greedy, 50, 10'000, 2);
  b.kernel(chatty, 130, 100, 3);  // the switch to greedy (100-125) is over
  // greedy has it from 125; contended since 130: its slice ends at 2125.
  auto done = b.run(20'000);
  is(done[1], 0, 100);
  is(done[3], 2150, 2250);
  is(done[2], 125, 10'275);  // 2000 until 2125, the other 8000 from 2275
}

TEST_CASE("slices renew while nobody waits, so a newcomer waits for the rest of the current one") {
  Bench b(parameters(Sharing::kTimeSlice));
  const StreamId greedy = b.stream_of_a_new_process();
  const StreamId late = b.stream_of_a_new_process();
  b.kernel(greedy, 0, 100'000, 1);
  b.kernel(late, 5000, 10, 2);  // the third slice is from 4000 to 6000
  is(b.run(10'000)[2], 6025, 6035);
}

TEST_CASE("inside a context kernels overlap as far as the SMs go, in order") {
  for (const Sharing sharing : {Sharing::kTimeSlice, Sharing::kMps}) {
    Bench b(parameters(sharing));
    const StreamId s1 = b.stream_of_a_new_process();
    const StreamId s2 = *b.model().create_stream(s1.context);
    const StreamId s3 = *b.model().create_stream(s1.context);
    b.kernel(s1, 0, 1000, 1, 60);
    b.kernel(s2, 0, 1000, 2, 80);  // gets 40 of its 80: half speed until 1000, then all
    b.kernel(s3, 0, 100, 3, 10);   // nothing is left for it until 1000
    auto done = b.run(10'000);
    is(done[1], 0, 1000);
    is(done[2], 0, 1500);
    is(done[3], 1000, 1100);
    CHECK(b.model().device_busy_ns(0) == 1500);
  }
}

TEST_CASE("mps runs kernels of different processes together without switches") {
  Bench b(parameters(Sharing::kMps));
  const StreamId one = b.stream_of_a_new_process();
  const StreamId two = b.stream_of_a_new_process();
  b.kernel(one, 0, 1000, 1, 50);
  b.kernel(two, 100, 1000, 2, 50);
  auto done = b.run(10'000);
  is(done[1], 0, 1000);
  is(done[2], 100, 1100);
  CHECK(b.model().busy_ns(one.context.slot) == 1000);
  CHECK(b.model().busy_ns(two.context.slot) == 1000);
  CHECK(b.model().device_busy_ns(0) == 1100);
}

TEST_CASE("copies run on an engine for each direction, beside kernels and across slices") {
  Bench b(parameters(Sharing::kTimeSlice));
  const StreamId one = b.stream_of_a_new_process();
  const StreamId two = b.stream_of_a_new_process();
  const StreamId one_b = *b.model().create_stream(one.context);
  b.kernel(one, 0, 5000, 1);
  b.put(two, 0, {.kind = OpKind::kCopyH2D, .token = 2}, 100);
  b.put(one_b, 0, {.kind = OpKind::kCopyH2D, .token = 3}, 100);
  b.put(one_b, 0, {.kind = OpKind::kCopyD2H, .token = 4}, 100);
  auto done = b.run(10'000);
  is(done[1], 0, 5000);
  is(done[2], 0, 100);
  is(done[3], 100, 200);
  is(done[4], 200, 300);
}

TEST_CASE("an event is recorded when what is before it is complete, a wait holds until then") {
  Bench b(parameters(Sharing::kMps));
  const StreamId s1 = b.stream_of_a_new_process();
  const StreamId s2 = *b.model().create_stream(s1.context);
  b.kernel(s1, 0, 1000, 0, 10);
  const OpPoint event = b.put(s1, 0, {.kind = OpKind::kEventRecord, .token = 1});
  b.kernel(s1, 0, 1000, 0, 10);
  b.put(s2, 0, {.kind = OpKind::kMarker, .wait_for = {event}, .wait_count = 1, .token = 2});
  b.kernel(s2, 0, 10, 3, 10);
  auto done = b.run(10'000);
  is(done[1], 1000, 1000);
  is(done[2], 1000, 1000);
  is(done[3], 1000, 1010);
}

TEST_CASE("a wait reaches across devices of one process") {
  Bench b(parameters(Sharing::kSerial, /*devices=*/2));
  const StreamId here = b.stream_of_a_new_process(0);
  DeviceModel m = b.model();
  const StreamId there = *m.create_stream(*m.create_context(0, 1));
  const OpPoint first = b.kernel(here, 0, 1000, 1);
  const OpPoint second = b.put(
      there, 0, {.kind = OpKind::kKernel, .wait_for = {first}, .wait_count = 1, .token = 2}, 500);
  b.put(here, 0, {.kind = OpKind::kKernel, .wait_for = {second}, .wait_count = 1, .token = 3}, 5);
  auto done = b.run(10'000);
  is(done[1], 0, 1000);
  is(done[2], 1000, 1500);
  is(done[3], 1500, 1505);
}

TEST_CASE("an external op blocks its stream until the process satisfies it") {
  Bench b(parameters(Sharing::kMps));
  const StreamId stream = b.stream_of_a_new_process();
  b.kernel(stream, 0, 100, 0);
  const OpPoint wait = b.put(stream, 0, {.kind = OpKind::kWaitValue, .token = 7});
  b.kernel(stream, 0, 100, 8);
  b.run(50);
  CHECK(b.reached.empty());
  CHECK(b.model().satisfy(wait) == Status::kStale);  // not reached
  b.run(5000);
  REQUIRE(b.reached.count(7) == 1);
  CHECK(b.reached[7].reached_ns == 100);
  CHECK(b.done.empty());
  REQUIRE(b.model().satisfy(wait) == Status::kOk);
  is(b.run(10'000)[8], 5000, 5100);
  CHECK(b.done.count(7) == 0);
}

TEST_CASE("the op table is bounded, and a blocked stream does not stop its neighbours") {
  Bench b(parameters(Sharing::kSerial));
  const StreamId stuck = b.stream_of_a_new_process();
  const StreamId other = *b.model().create_stream(stuck.context);
  const OpPoint wait = b.put(stuck, 0, {.kind = OpKind::kWaitValue});
  DeviceModel m = b.model();
  for (uint32_t i = 0; i < 5 * kMaxOps; ++i) {
    m.advance_to(10 * i);
    REQUIRE(m.submit(other, {.kind = OpKind::kKernel}, 5, 1));
  }
  for (uint32_t i = 0; i < kMaxOps - 2; ++i) {
    REQUIRE(m.submit(stuck, {.kind = OpKind::kMarker}, 0, 1));
  }
  CHECK(m.submit(stuck, {.kind = OpKind::kMarker}, 0, 1).error() == Status::kRingFull);
  m.advance_to(1'000'000);
  REQUIRE(m.satisfy(wait) == Status::kOk);
  CHECK(b.state->context[stuck.context.slot].op_count == 0);
}

TEST_CASE("completed ops with a token keep their place until they are collected") {
  Bench b(parameters(Sharing::kSerial));
  const StreamId stream = b.stream_of_a_new_process();
  for (uint32_t i = 0; i < kMaxOps; ++i)
    b.put(stream, 0, {.kind = OpKind::kMarker, .token = i + 1});
  CHECK(b.model().submit(stream, {}, 0, 1).error() == Status::kRingFull);
  CHECK(b.run(1).size() == kMaxOps);
  CHECK(b.model().submit(stream, {}, 0, 1));
}

TEST_CASE("a destroyed stream drains, its id is stale at once and never means its successor") {
  Bench b(parameters(Sharing::kSerial));
  const StreamId stream = b.stream_of_a_new_process();
  const OpPoint last = b.kernel(stream, 0, 100, 1);
  CHECK(b.model().destroy_stream(stream) == Status::kOk);
  CHECK(b.model().submit(stream, {}, 0, 1).error() == Status::kStale);
  is(b.run(1000)[1], 0, 100);
  CHECK(b.model().is_complete(last));
  const StreamId next = *b.model().create_stream(stream.context);
  CHECK(next.slot == stream.slot);
  CHECK_FALSE(next == stream);
  CHECK_FALSE(b.model().valid(stream));
}

TEST_CASE("a removed process leaves nothing but its record, and the others go on") {
  Bench b(parameters(Sharing::kTimeSlice));
  const StreamId dead = b.stream_of_a_new_process();
  const StreamId alive = b.stream_of_a_new_process();
  CHECK(b.model().allocate(dead.context, 600) == Status::kOk);
  CHECK(b.model().allocate(alive.context, 600) == Status::kOutOfMemory);
  b.kernel(dead, 0, 50'000, 1);
  b.put(dead, 0, {.kind = OpKind::kCopyH2D, .token = 2}, 50'000);
  b.kernel(alive, 0, 100, 3);
  DeviceModel m = b.model();
  m.advance_to(1000);
  m.remove_process(0);
  CHECK(m.allocate(alive.context, 1000) == Status::kOk);
  is(b.run(5000)[3], 1025, 1125);
  CHECK(b.done.size() == 1);
  CHECK(b.state->head.contexts == uint64_t{1} << alive.context.slot);
  CHECK(b.state->device[0].busy_ns == 1100);
  REQUIRE(b.state->head.finished_count == 1);
  CHECK(b.state->finished[0].pid == 1000);
  CHECK(b.state->finished[0].busy_ns == 1000);
  CHECK(b.state->finished[0].launches == 1);
  CHECK_FALSE(m.valid(dead));
}

TEST_CASE("memory is counted over all processes of a device") {
  Bench b(parameters(Sharing::kMps));
  const StreamId one = b.stream_of_a_new_process();
  const StreamId two = b.stream_of_a_new_process();
  CHECK(b.model().allocate(one.context, 400) == Status::kOk);
  CHECK(b.model().allocate(two.context, 600) == Status::kOk);
  CHECK(b.model().allocate(one.context, 1) == Status::kOutOfMemory);
  b.model().release(two.context, 100);
  CHECK(b.model().allocate(one.context, 100) == Status::kOk);
  CHECK(b.model().destroy_context(one.context) == Status::kOk);
  CHECK(b.state->device[0].memory_bytes == 500);
}

TEST_CASE(
    "memory of processes is counted where it is, shared memory once, and goes with the last") {
  Bench bench({2, Sharing::kTimeSlice, 4, 1000, 0, 1000});
  DeviceModel m = bench.model();
  const uint32_t one = *m.add_process(1, 1);
  const uint32_t two = *m.add_process(2, 1);
  const auto used = [&](uint32_t device) { return bench.state->device[device].memory_bytes; };
  CHECK(m.hold(one, 0, 600) == Status::kOk);
  CHECK(m.hold(two, 0, 401) == Status::kOutOfMemory);
  CHECK(m.hold(two, 1, 400) == Status::kOk);
  CHECK_FALSE(m.share(one, 0, 601));
  const uint64_t block = *m.share(one, 0, 500);
  CHECK(used(0) == 600);
  CHECK(m.join(two, block, 0, 500) == Status::kOk);
  CHECK(used(0) == 600);
  m.remove_process(one);
  CHECK(used(0) == 500);
  m.leave(two, block);
  CHECK(used(0) == 0);
  // It travelled on meanwhile: counted anew, where there is room.
  CHECK(m.join(two, block, 0, 500) == Status::kOk);
  CHECK(used(0) == 500);
  const uint32_t three = *m.add_process(3, 1);
  CHECK(m.join(three, block + 1, 0, 501) == Status::kOutOfMemory);
  m.remove_process(three);
  m.remove_process(two);
  CHECK(used(0) == 0);
  CHECK(used(1) == 0);
}

TEST_CASE("a process that was away comes back to other devices with its contexts, or not at all") {
  Bench bench({3, Sharing::kTimeSlice, 4, 1000, 0, 1000});
  const StreamId stream = bench.stream_of_a_new_process(0);
  const uint32_t process = bench.state->context[stream.context.slot].process;
  DeviceModel m = bench.model();
  CHECK(m.allocate(stream.context, 300) == Status::kOk);
  CHECK(m.hold(process, 2, 200) == Status::kOk);
  bench.kernel(stream, 0, 100, 1);
  bench.run(1000);
  m.leave_devices(process);
  const auto used = [&](uint32_t device) { return bench.state->device[device].memory_bytes; };
  CHECK(used(0) + used(1) + used(2) == 0);
  const uint32_t hog = *m.add_process(9, 1);
  CHECK(m.hold(hog, 1, 800) == Status::kOk);
  const std::array<uint8_t, kMaxDevices> rotated{1, 2, 0};
  CHECK(m.return_to_devices(process, rotated) == Status::kOutOfMemory);
  CHECK(used(0) + used(1) + used(2) == 800);
  m.drop(hog, 1, 800);
  CHECK(m.return_to_devices(process, rotated) == Status::kOk);
  CHECK(used(0) == 200);
  CHECK(used(1) == 300);
  CHECK(used(2) == 0);
  // What ran before stays with the device that ran it; what comes now runs on the other.
  bench.kernel(stream, 2000, 50, 2);
  CHECK(bench.run(3000).at(2).completed_ns == 2050);
  CHECK(m.busy_ns(stream.context.slot) == 50);
  CHECK(bench.state->process[process].busy_ns[0] == 100);
  CHECK(m.device_busy_ns(1) == 50);
  // Gone while away.
  m.leave_devices(process);
  m.remove_process(process);
  CHECK(used(0) + used(1) + used(2) == 0);
}

TEST_CASE("one request at a time is asked of a process, and its answers are kept for a while") {
  Bench bench({1, Sharing::kTimeSlice, 4, 1000, 0, 1000});
  DeviceModel m = bench.model();
  const uint32_t process = *m.add_process(1, 1);
  const uint64_t first = *m.ask(process, {.action = CheckpointAction::kLock});
  CHECK(m.is_asked(process));
  CHECK(m.ask(process, {}).error() == Status::kBusy);
  m.answer(process, ProcessState::kLocked, 0);
  CHECK_FALSE(m.is_asked(process));
  const uint64_t second = *m.ask(process, {.action = CheckpointAction::kUnlock});
  CHECK(second == first + 1);
  m.answer(process, ProcessState::kRunning, 7);
  const checkpoint_record& record = bench.state->checkpoint[process];
  CHECK(record.answer[first % kKeptAnswers] == 0);
  CHECK(record.answer[second % kKeptAnswers] == 7);
  m.remove_process(process);
  CHECK(bench.state->checkpoint[process].answered == 0);
}
