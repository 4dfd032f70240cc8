// lulld as far as the shim sees it, played by a test: accepts, hands out regions, and lets the
// test read the rings and write the gates. One thread accepts; everything else is the test's own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/channel/daemon_view.h"
#include "coordinator/channel/messages.h"
#include "coordinator/channel/residence.h"
#include "coordinator/channel/ring.h"

namespace lull::test {

struct Client {
  int fd = -1;
  channel::lull_hello hello{};
  channel::Region region;
};

class Coordinator {
 public:
  explicit Coordinator(std::string socket_path, uint32_t timing_period = 0);
  ~Coordinator();

  uint32_t welcome_version = channel::kVersion;
  // UINT64_MAX: none.
  uint64_t allowance = UINT64_MAX;
  double slow_motion = 1;
  // As lulld does when it looks at a client, many times a second.
  std::atomic<bool> shows_life = true;
  channel::GateState birth_gate = channel::GateState::kOpen;
  // What the operator lets be done with programs that did not ask for it (lull_moves).
  uint32_t moves = 0;
  uint64_t host_allowance = UINT64_MAX;

  // The nth client that has attached; fails the test when it does not come.
  Client client(size_t index = 0);
  size_t clients();
  // Starts programs until one is attached: on a busy machine the answer to a program's hello may come
  // after the program has stopped waiting, and it runs unscheduled. `start` starts one, replacing the
  // one before, and returns once its cuInit has.
  Client attached(const std::function<void()>& start);
  // The client that attached last, once there is one that still waits for us.
  Client connected();
  // Closes listener and clients, as a killed daemon would.
  void die();

  const std::string& path() const { return path_; }

 private:
  void serve();
  std::string path_;
  uint32_t timing_period_;
  int listener_ = -1;
  int stop_[2] = {-1, -1};
  std::mutex mutex_;
  std::vector<Client> clients_;
  std::thread thread_;
};

// All records in the client's rings now, oldest first a thread.
std::vector<channel::lull_record> drain(const Client& client);
std::vector<channel::lull_record> drain(const Client& client, channel::lull_record_kind kind);
channel::ThreadTotals totals(const Client& client);
void set_gate(const Client& client, channel::GateState state, uint32_t epoch, uint64_t granted_ns);
void wake(const Client& client);
// Publishes the order, and wakes the client's service thread. Returns its number.
uint32_t order(const Client& client, channel::lull_target target, uint32_t drain_ms = 60'000,
               const std::vector<channel::lull_device_pair>& pairs = {});
// Waits until that order has ended.
channel::ResidenceReport ended(const Client& client, uint32_t order);
inline channel::ResidenceReport residence(const Client& client) {
  return channel::read_residence(client.region);
}
std::string kernel_name(const Client& client, uint32_t slot);

// Until `what` holds, at most two minutes.
bool eventually(const std::function<bool()>& what);

}  // namespace lull::test
