#include "coordinator/engine/task_memory.h"

#include <catch2/catch.hpp>

using namespace lull;
using namespace lull::engine;

TEST_CASE("A task's profiles outlive its clients") {
  TaskMemory memory;
  TaskProfile& task = memory.acquire("resnet", ClientId{1});
  CHECK(task.unknown_kernel(KernelId{9}) == kUnknownKernel);
  task.add(KernelId{1}, *task.kernel(KernelId{1}), Duration{100}, Duration{-1});
  task.add(KernelId{2}, *task.kernel(KernelId{2}), Duration{300}, Duration{-1});
  CHECK(task.unknown_kernel(KernelId{9}).ns == 200);
  memory.release(task, ClientId{1});
  TaskProfile& again = memory.acquire("resnet", ClientId{2});
  CHECK(again.kernel(KernelId{1})->profile.mean().ns == 100);
  CHECK(again.users == std::vector<ClientId>{ClientId{2}});
}

TEST_CASE("A kernel that was never measured is expected to be as others of its kind") {
  TaskMemory memory;
  TaskProfile& task = memory.acquire("training", ClientId{1});
  const auto shape = [](uint32_t kind, uint32_t n) { return KernelId{uint64_t{kind} << 32 | n}; };
  const auto measured = [&](KernelId id, int64_t us) {
    task.add(id, *task.kernel(id), Duration{us * 1000}, Duration{-1});
  };
  measured(shape(1, 1), 10);
  measured(shape(2, 1), 5700);
  measured(shape(2, 2), 6300);
  CHECK(task.unknown_kernel(shape(1, 2)) == Duration{10'000});
  CHECK(task.unknown_kernel(shape(2, 3)) == Duration{6'000'000});
  CHECK(task.unknown_at_most(shape(2, 3)).ns >= 6'300'000);
  CHECK(task.unknown_at_most(shape(2, 3)).ns <= 6'800'000);
  // Of no kind, or of one that was never met: the mean over all.
  CHECK(task.unknown_kernel(KernelId{9}).ns / 1000 == (10 + 5700 + 6300) / 3);
  CHECK(task.unknown_kernel(shape(3, 1)) == task.unknown_kernel(KernelId{9}));
  // The last few that were met say it.
  for (uint32_t n = 0; n < KernelKind::kRemembered; ++n) measured(shape(2, 10 + n), 100);
  CHECK(task.unknown_kernel(shape(2, 3)) == Duration{100'000});
  // What an earlier run has left counts, too.
  TaskProfile& again = memory.acquire("later", ClientId{2});
  for (const auto& kernel : task.saved()) again.recall(kernel.id, kernel.saved);
  CHECK(again.unknown_kernel(shape(1, 2)) == Duration{10'000});
}

TEST_CASE("What is known from earlier comes in the place of what few launches have said since") {
  TaskMemory memory;
  const auto measured = [](TaskProfile& task, uint64_t id, int times, int64_t us) {
    for (int n = 0; n < times; ++n) {
      task.add(KernelId{id}, *task.kernel(KernelId{id}), Duration{us * 1000}, Duration{-1});
    }
  };
  TaskProfile& before = memory.acquire("before", ClientId{1});
  measured(before, 1, 100, 10);
  measured(before, 2, 5, 10);
  TaskProfile& now = memory.acquire("now", ClientId{2});
  measured(now, 1, 3, 90);
  measured(now, 2, 7, 90);
  for (const auto& kernel : before.saved()) now.recall(kernel.id, kernel.saved);
  CHECK(now.kernel(KernelId{1})->profile.count() == 100);
  CHECK(now.kernel(KernelId{1})->profile.mean() == Duration{10'000});
  CHECK(now.kernel(KernelId{2})->profile.count() == 7);
  CHECK(now.unknown_kernel(KernelId{3}) == Duration{50'000});  // the mean over both
}

TEST_CASE("The memory has a bound, and what is in use stays") {
  TaskMemory memory;
  TaskProfile& kept = memory.acquire("kept", ClientId{1});
  kept.add(KernelId{1}, *kept.kernel(KernelId{1}), Duration{7}, Duration{-1});
  for (uint32_t i = 0; i < 2 * kMaxTasks; ++i) {
    memory.release(memory.acquire("task " + std::to_string(i), ClientId{2}), ClientId{2});
  }
  CHECK(memory.acquire("kept", ClientId{3}).kernel(KernelId{1})->profile.mean().ns == 7);
  TaskProfile& latest = memory.acquire("task " + std::to_string(2 * kMaxTasks - 1), ClientId{4});
  CHECK(latest.size() == 0);
  for (uint64_t i = 0; i < kMaxKernelsPerTask; ++i) CHECK(latest.kernel(KernelId{i}) != nullptr);
  CHECK(latest.kernel(KernelId{kMaxKernelsPerTask}) == nullptr);
}
