#include "coordinator/daemon/publish_queue.h"

#include <catch2/catch.hpp>

namespace lull::daemon {
namespace {

std::vector<int64_t> published_by(PublishQueue& queue, int64_t now_ns) {
  std::vector<int64_t> gates;
  queue.pop_due(Instant{now_ns}, [&](const engine::Output& output) {
    gates.push_back(std::get<engine::SetGate>(output).granted.ns);
  });
  return gates;
}
engine::SetGate gate(int64_t mark) { return {{1}, {1}, engine::Gate::kCredit, {mark}, false}; }

TEST_CASE("nothing leaves before its time, and all leave in the order in which they came") {
  PublishQueue queue;
  CHECK(queue.next() == kNever);
  queue.push(Instant{100}, gate(1));
  queue.push(Instant{50}, gate(2));  // caused earlier, decided later: must not pass the first
  queue.push(Instant{120}, gate(3));
  CHECK(queue.next() == Instant{100});
  CHECK(published_by(queue, 99).empty());
  CHECK(published_by(queue, 100) == std::vector<int64_t>{1, 2});
  CHECK(published_by(queue, 119).empty());
  CHECK(published_by(queue, 500) == std::vector<int64_t>{3});
  CHECK(queue.next() == kNever);
}

}  // namespace
}  // namespace lull::daemon
