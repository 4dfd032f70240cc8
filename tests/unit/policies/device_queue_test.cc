// What a policy knows to be on the device.
#include "policies/launch/guarded/observe/device_queue.h"

#include <catch2/catch.hpp>

using namespace lull;
using namespace lull::policies;

namespace {

Instant us(int64_t us) { return Instant{us * 1000}; }
Duration long_us(int64_t us) { return Duration{us * 1000}; }

Submitted unit(uint32_t client, uint32_t stream, int64_t length_us, int64_t at_us,
               bool copy = false) {
  return {.client = ClientId{client},
          .kernel = KernelId{length_us > 0 ? static_cast<uint64_t>(length_us) : 1},
          .predicted = long_us(length_us),
          .at = us(at_us),
          .stream = StreamSlot{stream},
          .copy = copy};
}
Completed done(uint32_t client, uint32_t stream, uint32_t units = 1) {
  return {.client = ClientId{client}, .units = units, .stream = StreamSlot{stream}};
}
void submit(DeviceQueue& queue, const Submitted& launch) { queue.submitted(launch, launch.predicted); }

}  // namespace

TEST_CASE("The first unit of each stream is the one that runs or is about to") {
  DeviceQueue queue;
  CHECK(queue.first(ClientId{1}, StreamSlot{0}) == nullptr);
  submit(queue, unit(1, 0, 10, 0));
  submit(queue, unit(1, 1, 20, 0));
  submit(queue, unit(1, 0, 30, 0));
  submit(queue, unit(2, 0, 40, 0));
  CHECK(queue.first(ClientId{1}, StreamSlot{0})->predicted == long_us(10));
  CHECK(queue.first(ClientId{1}, StreamSlot{1})->predicted == long_us(20));
  CHECK(queue.first(ClientId{2}, StreamSlot{0})->predicted == long_us(40));
  CHECK(queue.completed(done(1, 0), us(10)).kernels == 1);
  CHECK(queue.first(ClientId{1}, StreamSlot{0})->predicted == long_us(30));
  queue.left(ClientId{1});
  CHECK(queue.first(ClientId{1}, StreamSlot{0}) == nullptr);
  CHECK(queue.first(ClientId{2}, StreamSlot{0}) != nullptr);
}

TEST_CASE("Of what is through it is known what was launched last, copies apart") {
  DeviceQueue queue;
  submit(queue, unit(1, 0, 10, 3));
  submit(queue, unit(1, 0, 10, 5));
  submit(queue, unit(1, 1, 10, 6));
  submit(queue, unit(1, 0, 0, 7, /*copy=*/true));
  submit(queue, unit(1, 0, 10, 9));
  CHECK(queue.completed(done(1, 0, 3), us(20)).launched == us(5));
  CHECK(queue.completed(done(1, 0), us(30)).launched == us(9));
  CHECK(queue.completed(done(1, 0), us(30)).launched == us(0));
}

TEST_CASE("The unit that is running is the oldest that is no copy") {
  DeviceQueue queue;
  CHECK(queue.running() == nullptr);
  submit(queue, unit(1, 0, 10, 0, /*copy=*/true));
  CHECK(queue.running() == nullptr);
  submit(queue, unit(2, 0, 20, 0));
  submit(queue, unit(1, 1, 30, 0));
  CHECK(queue.running()->client == ClientId{2});
  queue.completed(done(2, 0), us(20));
  CHECK(queue.running()->client == ClientId{1});
}

TEST_CASE("How far the unit that is running has come: since the last completion or its launch, no further than it costs") {
  DeviceQueue queue;
  CHECK(queue.progress(us(5)) == Duration{});
  submit(queue, unit(1, 0, 10, 100));
  submit(queue, unit(2, 0, 50, 104));
  CHECK(queue.progress(us(104)) == long_us(4));
  CHECK(queue.progress(us(130)) == long_us(10));
  queue.completed(done(1, 0), us(110));
  CHECK(queue.moved_at() == us(110));
  CHECK(queue.progress(us(130)) == long_us(20));
  queue.completed(done(2, 0), us(160));
  queue.submitted(unit(2, 0, 50, 200), long_us(10));
  CHECK(queue.progress(us(230)) == long_us(10));
}

TEST_CASE("Copies have engines of their own: they are no progress, and nothing of the device's") {
  DeviceQueue queue;
  submit(queue, unit(1, 0, 100, 0, /*copy=*/true));
  CHECK(queue.progress(us(50)) == Duration{});
  submit(queue, unit(1, 1, 10, 60));
  CHECK(queue.progress(us(65)) == long_us(5));
  CHECK(queue.completed(done(1, 0), us(66)).kernels == 0);
  CHECK(queue.moved_at() == us(60));
}

TEST_CASE("What is through is expected to have taken the mean of its kernels, not the most") {
  DeviceQueue queue;
  for (const int64_t mean_us : {40, 50, 60}) {
    Submitted launch = unit(1, 0, 100, 0, /*copy=*/mean_us == 50);
    launch.expected = long_us(mean_us);
    submit(queue, launch);
    launch.client = ClientId{2};
    submit(queue, launch);
  }
  const DeviceQueue::Through two = queue.completed(done(1, 0, /*units=*/2), us(200));
  CHECK(two.kernels == 1);
  CHECK(two.expected == long_us(40));
  CHECK(queue.completed(done(1, 0), us(300)).expected == long_us(60));
}

TEST_CASE("What costs less than it is long is spared, as long as it is there") {
  DeviceQueue queue;
  queue.submitted(unit(1, 0, 1'000, 0), long_us(200));
  queue.submitted(unit(1, 1, 1'000, 0), long_us(1'000));
  queue.submitted(unit(2, 0, 1'000, 0), long_us(900));
  CHECK(queue.spared(ClientId{1}) == long_us(800));
  CHECK(queue.spared(ClientId{2}) == long_us(100));
  queue.completed(done(1, 0), us(10));
  CHECK(queue.spared(ClientId{1}) == Duration{});
  queue.left(ClientId{2});
  CHECK(queue.spared(ClientId{2}) == Duration{});
}
