#include "shim/time_base.h"

#include "coordinator/channel/layout.h"
#include "shim/kernel_timer.h"

namespace lull::shim {

namespace {

constexpr uint32_t kBases = 64;
// Of host time, which a simulated device's never runs ahead of.
constexpr uint64_t kRenewNs = 2'000'000'000;
constexpr uint64_t kNumbers = uint64_t{1} << (64 - channel::kStartBits);

enum class BaseState : uint32_t { kFree, kRecording, kCurrent, kOld };

struct Base {
  BaseState state;
  uint32_t users;
  uint64_t number;
  uint64_t host_ns;
  CUcontext context;
  CUevent event;
};

Base bases[kBases];
uint64_t last_number;

void free_if_unused(Base& base) {
  if (base.state != BaseState::kOld || base.users != 0) return;
  driver().cuEventDestroy_v2(base.event);
  base = Base{};
}

}  // namespace

BaseForSample base_for(CUcontext context, uint64_t host_ns) {
  uint32_t current = kNoBase;
  uint32_t free = kNoBase;
  bool renewing = false;
  for (uint32_t n = 0; n < kBases; ++n) {
    const Base& base = bases[n];
    if (base.state == BaseState::kFree && free == kNoBase) free = n;
    if (base.state == BaseState::kFree || base.context != context) continue;
    if (base.state == BaseState::kCurrent) current = n;
    // One whose thread was cancelled on the way is not waited for.
    if (base.state == BaseState::kRecording && host_ns - base.host_ns < kRenewNs) renewing = true;
  }
  const bool due = current == kNoBase || host_ns - bases[current].host_ns >= kRenewNs;
  if (due && !renewing && free != kNoBase) {
    CUevent event = nullptr;
    if (driver().cuEventCreate(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS) {
      last_number = last_number % (kNumbers - 1) + 1;  // never 0
      bases[free] = {BaseState::kRecording, 1, last_number, host_ns, context, event};
      return {free, event};
    }
  }
  if (current == kNoBase) return {};
  ++bases[current].users;
  return {current, nullptr};
}

void base_recorded(uint32_t index, bool recorded) {
  if (index == kNoBase) return;
  Base& base = bases[index];
  if (base.state != BaseState::kRecording) return;
  if (recorded) {
    for (Base& other : bases) {
      if (other.state != BaseState::kCurrent || other.context != base.context) continue;
      other.state = BaseState::kOld;
      free_if_unused(other);
    }
  }
  base.state = recorded ? BaseState::kCurrent : BaseState::kOld;
}

void leave_base(uint32_t index) {
  if (index == kNoBase || bases[index].users == 0) return;
  --bases[index].users;
  free_if_unused(bases[index]);
}

uint64_t device_start(uint32_t index, CUevent begin, uint64_t shift_ns) {
  if (index == kNoBase) return 0;
  const Base& base = bases[index];
  if (base.state != BaseState::kCurrent && base.state != BaseState::kOld) return 0;
  float ms = 0;
  if (driver().cuEventElapsedTime(&ms, base.event, begin) != CUDA_SUCCESS || !(ms >= 0)) return 0;
  const uint64_t ns = static_cast<uint64_t>(static_cast<double>(ms) * 1e6 + 0.5) + shift_ns;
  if (ns >> channel::kStartBits != 0) return 0;
  return base.number << channel::kStartBits | ns;
}

void bases_context_gone(CUcontext context, ContextEnd end) {
  for (Base& base : bases) {
    if (base.state == BaseState::kFree || base.context != context) continue;
    // Of a launch that is going on.
    if (end == ContextEnd::kMay && base.users != 0) continue;
    // One that is being recorded is in the hands of its thread.
    if (end != ContextEnd::kDid && base.state != BaseState::kRecording) {
      driver().cuEventDestroy_v2(base.event);
    }
    base = Base{};
  }
}

void forget_bases() {
  for (Base& base : bases) base = Base{};
}

}  // namespace lull::shim
