// A program under lull, without the program: connects, says hello, and writes into its region what
// a shim would. Also a temporary directory, a daemon turned by hand, and a tool's request. Test
// thread only; nothing here waits without a deadline.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "coordinator/channel/layout.h"
#include "coordinator/channel/messages.h"
#include "coordinator/channel/model_clock.h"
#include "coordinator/daemon/daemon.h"

namespace lull::daemon {

// Liveness bound of everything that waits for the daemon.
inline constexpr uint64_t kPatienceNs = 300'000'000'000;

inline constexpr uint64_t kDeviceBytes = 80ULL << 30;

class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  std::string path(const std::string& name) const { return dir_ + "/" + name; }

 private:
  std::string dir_;
};

void write_file(const std::string& path, const std::string& text);
// A simulated device's file, as far as the daemon reads it.
void write_sim_device(const std::string& path, double slow_motion, uint64_t control_latency_ns);

// Two devices, with UUIDs all 7 and all 8. Nothing else configured: no socket mode, the built-in
// rules, the default policy.
DaemonSettings quiet_settings(const TempDir& dir);
std::unique_ptr<Daemon> start_daemon(DaemonSettings settings);
// Turns the loop until `done`; false when that takes longer than kPatienceNs.
bool turn_until(Daemon& daemon, const std::function<bool()>& done);
// Turns until every ring is drained, every doorbell armed and nothing is left to do.
bool settle(Daemon& daemon, const std::vector<const class FakeClient*>& clients);

// What is known of a task of this user on those devices: of kernels 1 to `kernels`, all called
// `name`.
engine::TaskRecord known_task(const std::string& task, uint64_t kernels, const std::string& name,
                              const policies::KernelProfile& profile);
// A kernel of this user's task is known from an earlier run: it takes ten seconds.
void know_long_kernel(DaemonSettings& settings, const TempDir& dir, const std::string& task,
                      uint64_t kernel);

// The whole answer, page by page; or one page.
nlohmann::json ask(Daemon& daemon, const std::string& socket, const std::string& request);
nlohmann::json ask_for_page(Daemon& daemon, const std::string& socket, const std::string& request);
nlohmann::json ask(Daemon& daemon, const std::string& socket, const nlohmann::json& request);

class FakeClient {
 public:
  // Connects and sends `hello`; the welcome is read by `join`.
  FakeClient(const std::string& socket, const channel::lull_hello& hello);
  FakeClient(const std::string& socket, const void* packet, size_t bytes);
  ~FakeClient();
  FakeClient(const FakeClient&) = delete;

  static channel::lull_hello hello(const std::string& name, int priority = channel::kPriorityUnset);
  // Turns the daemon until it has answered, and maps the region. False: no region came.
  bool join(Daemon& daemon);
  // Nothing when the daemon has closed the connection.
  bool is_connected();
  void hang_up();
  // A doorbell byte has to be sent by the shim now: takes the word down and sends it.
  bool ring_if_asked();

  const channel::lull_welcome& welcome() const { return welcome_; }
  channel::Region region() const { return region_; }
  int memory_fd() const { return memory_fd_; }

  uint32_t add_device(uint8_t uuid_byte, uint64_t total_bytes = kDeviceBytes);
  uint32_t add_kernel(uint64_t id, const std::string& name);
  channel::lull_record record(uint32_t kind, uint32_t kernel = 0, uint64_t sequence = 0) const;
  void push(const channel::lull_record& record, uint32_t thread = 0);
  void launch(uint32_t kernel, uint64_t sequence, bool tracked = true, uint32_t thread = 0);
  void hold(uint32_t kernel, uint32_t ticket, uint32_t thread = 0);
  // The held launch goes: the slot is cleared and the launch recorded.
  void let_go(uint32_t kernel, uint64_t sequence, uint32_t ticket, uint32_t thread = 0);
  void complete(uint64_t sequence, uint32_t stream = 0);

  // ---- a client whose memory can be moved ----
  // As a shim of `lull run` with these wishes (channel::lull_moves) says hello.
  static channel::lull_hello movable(const std::string& name, uint32_t moves, int priority = 5);
  void say_can(uint32_t abilities);
  void hold_memory(uint32_t device, uint64_t swappable, uint64_t fixed = 0);
  channel::lull_order order() const;
  // It is there now: state, result, and a record that says to look.
  void say_state(uint32_t state);
  void end_order(uint32_t result = channel::kMoveDone, const std::string& reason = "");
  // Goes to where the order in force wants it, GPUs by its pairs, and ends it.
  void obey();

  uint64_t gate(uint32_t device = 0) const;
  channel::GateState state(uint32_t device = 0) const;
  bool doorbell_armed() const;

 private:
  int socket_ = -1;
  int memory_fd_ = -1;
  channel::lull_welcome welcome_{};
  channel::Region region_;
};

}  // namespace lull::daemon
