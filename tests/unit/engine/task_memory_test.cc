#include "coordinator/engine/task_memory.h"

#include <catch2/catch.hpp>

using namespace lull;
using namespace lull::engine;

TEST_CASE("A task's profiles outlive its clients") {
  TaskMemory memory;
  TaskProfile& task = memory.acquire("resnet", ClientId{1});
  CHECK(task.unknown_kernel() == kUnknownKernel);
  task.add(task.kernel(KernelId{1})->profile, Duration{100}, Duration{-1});
  task.add(task.kernel(KernelId{2})->profile, Duration{300}, Duration{-1});
  CHECK(task.unknown_kernel().ns == 200);
  memory.release(task, ClientId{1});
  TaskProfile& again = memory.acquire("resnet", ClientId{2});
  CHECK(again.kernel(KernelId{1})->profile.mean().ns == 100);
  CHECK(again.users == std::vector<ClientId>{ClientId{2}});
}

TEST_CASE("The memory has a bound, and what is in use stays") {
  TaskMemory memory;
  TaskProfile& kept = memory.acquire("kept", ClientId{1});
  kept.add(kept.kernel(KernelId{1})->profile, Duration{7}, Duration{-1});
  for (uint32_t i = 0; i < 2 * kMaxTasks; ++i) {
    memory.release(memory.acquire("task " + std::to_string(i), ClientId{2}), ClientId{2});
  }
  CHECK(memory.acquire("kept", ClientId{3}).kernel(KernelId{1})->profile.mean().ns == 7);
  TaskProfile& latest = memory.acquire("task " + std::to_string(2 * kMaxTasks - 1), ClientId{4});
  CHECK(latest.size() == 0);
  for (uint64_t i = 0; i < kMaxKernelsPerTask; ++i) CHECK(latest.kernel(KernelId{i}) != nullptr);
  CHECK(latest.kernel(KernelId{kMaxKernelsPerTask}) == nullptr);
}
