// A PyTorch profiler recording (tools/play/kineto.h) as the events of a trace. Used by
// `lull trace import`; one thread. Pure.
//
// Each device operation becomes a Launch and a Timing. The launch is at its host call's start, on
// that call's thread; where the file does not have the call, at the operation's own start and on
// thread 0, which has no other work. Gaps are until the same thread's next operation began on the
// device, 0 where it had begun already. Waits of the host become Waited events, and Synced events
// at their return.
// What the program marked itself becomes ranges. One client stands for the program; streams keep their numbers.
#pragma once

#include <functional>
#include <string>

#include "coordinator/trace/events.h"
#include "tools/play/kineto.h"

namespace lull::trace {

inline constexpr ClientId kKinetoClient{1};

FileInfo kineto_file_info(const play::KinetoTrace& trace, const std::string& file_name,
                          const std::string& lull_version);

// In order of time. `task`: what to call the client.
void kineto_events(const play::KinetoTrace& trace, const std::string& task,
                   const std::function<void(const Event&)>& use);

}  // namespace lull::trace
