// The events that device start times are measured from. CUDA gives times between two events only,
// as a float of milliseconds, which is finer than half a microsecond up to about four seconds: a
// context's base is renewed about every two.
//
//   free --base_for: a new one--> recording --base_recorded--> current --a newer one--> old --> free
//                                     \--could not be recorded--> free       (no sample left)
//
// Called by kernel_timer under its lock, inside its capture-safe section; `record` there happens
// without the lock, like that of samples. Bounded; a context that finds no place has no start times.
#pragma once

#include <stdint.h>

#include "shim/driver.h"

namespace lull::shim {

inline constexpr uint32_t kNoBase = UINT32_MAX;

struct BaseForSample {
  uint32_t index = kNoBase;  // counted as in use by the sample
  CUevent record = nullptr;  // not null: it begins here; record it, then call base_recorded
};
BaseForSample base_for(CUcontext context, uint64_t host_ns);
void base_recorded(uint32_t index, bool recorded);
// The sample is done with it.
void leave_base(uint32_t index);

// lull_record.device_start for a unit that started `shift_ns` after `begin`, which has happened.
uint64_t device_start(uint32_t index, CUevent begin, uint64_t shift_ns);

enum class ContextEnd;                       // kernel_timer.h
void bases_context_gone(CUcontext context, ContextEnd end);  // after its samples have left
void forget_bases();                         // fork child

}  // namespace lull::shim
