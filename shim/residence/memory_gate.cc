// Stands in for the gate and the service thread until they are there.
#include "shim/residence/memory_gate.h"

#include "shim/residence/service.h"

namespace lull::shim {

std::atomic<bool> can_move;

void begin_use(ThreadState&) {}
void end_use(ThreadState&) {}

[[gnu::weak]] void want_service() {}
[[gnu::weak]] void tell_service() {}

}  // namespace lull::shim
