// The program's own events: recording one remembers what a later wait for it proves.
#include "shim/submit.h"

using namespace lull::shim;

namespace {

template <typename Call>
CUresult record_event(CUevent event, uintptr_t stream, Call call) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) return call();
  const bool attached = enter(thread) != nullptr;
  // Recorded in a capture, it proves nothing about the device.
  if (attached && !is_capturing(stream)) {
    event_recorded(thread, event, stream);
  } else if (attached) {
    event_forgotten(event);
  }
  return forward(thread, call);
}

template <typename Call>
CUresult synchronise_event(CUevent event, Call call) {
  return synchronise(
      [&](ThreadState&, SeenSequences& seen) { remember_event(event, seen); }, call);
}

}  // namespace

#define LULL_EVENT(suffix, variant)                                                               \
  LULL_ENTRY(cuEventRecord##suffix)(CUevent event, CUstream stream) {                             \
    return record_event(event, normalise(stream, variant),                                        \
                        [&] { return driver().cuEventRecord##suffix(event, stream); });           \
  }                                                                                               \
  LULL_ENTRY(cuEventRecordWithFlags##suffix)                                                      \
  (CUevent event, CUstream stream, unsigned int flags) {                                          \
    return record_event(event, normalise(stream, variant), [&] {                                  \
      return driver().cuEventRecordWithFlags##suffix(event, stream, flags);                       \
    });                                                                                           \
  }
LULL_EVENT(, DefaultStream::kLegacy)
LULL_EVENT(_ptsz, DefaultStream::kPerThread)
#undef LULL_EVENT

LULL_ENTRY(cuEventDestroy)(CUevent event) {
  if (thread_state.depth == 0) event_forgotten(event);
  return forward(thread_state, [&] { return driver().cuEventDestroy(event); });
}
LULL_ENTRY(cuEventDestroy_v2)(CUevent event) {
  if (thread_state.depth == 0) event_forgotten(event);
  return forward(thread_state, [&] { return driver().cuEventDestroy_v2(event); });
}
LULL_ENTRY(cuEventSynchronize)(CUevent event) {
  return synchronise_event(event, [&] { return driver().cuEventSynchronize(event); });
}
LULL_ENTRY(cuEventQuery)(CUevent event) {
  return synchronise_event(event, [&] { return driver().cuEventQuery(event); });
}
