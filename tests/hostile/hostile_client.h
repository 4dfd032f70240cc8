// A client of lulld that keeps to no rule: it attaches as a shim does, and then writes what it
// likes into its own region, names what devices it likes, asks and does not read. Knows the socket
// and the channel only, so lulld may be another process or a Daemon turned by the test. Test thread
// only; nothing here waits but `attach`, for as long as its `Until` does.
#pragma once

#include <array>
#include <functional>
#include <string>

#include "coordinator/channel/client_view.h"
#include "coordinator/channel/messages.h"

namespace lull::tests {

// Makes lulld go on until the condition holds; false: it did not within its deadline.
using Until = std::function<bool(const std::function<bool()>&)>;

class HostileClient {
 public:
  explicit HostileClient(std::string socket) : socket_path_(std::move(socket)) {}
  ~HostileClient();
  HostileClient(const HostileClient&) = delete;
  HostileClient& operator=(const HostileClient&) = delete;

  // An honest hello, to be spoilt before `attach`.
  channel::lull_hello hello = polite_hello();
  static channel::lull_hello polite_hello();
  // Says hello and takes the region. False: no region came.
  bool attach(const Until& until);
  // Any packet in place of a hello, or after it.
  bool send(const void* packet, size_t bytes);
  void hang_up();
  const channel::lull_welcome& welcome() const { return welcome_; }
  channel::Region region() const { return region_; }
  channel::GateState gate(uint32_t device = 0) const;

  // ---- its own region ----
  // A device by UUID, with any facts. Returns its index, which may be beyond the table.
  uint32_t name_device(const std::array<uint8_t, 16>& uuid, uint64_t total_bytes,
                       const std::string& name = "GPU");
  uint32_t name_device(uint8_t uuid_byte, uint64_t total_bytes = 80ULL << 30);
  uint32_t name_kernel(uint64_t id, const std::string& name);
  static channel::lull_record record(uint32_t kind, uint32_t kernel = 0, uint64_t sequence = 0);
  // Into a ring, whatever it says. False: the ring is full.
  bool write(const channel::lull_record& record, uint32_t thread = 0);
  bool launch(uint64_t sequence, bool tracked = true, uint32_t stream = 0, uint32_t kernel = 0);
  bool time(uint64_t duration_ns, uint64_t sequence, uint32_t kernel = 0);
  void complete(uint64_t sequence, uint32_t stream = 0);
  // The thread slot says that a launch waits, without a record.
  void pretend_to_wait(uint32_t ticket, uint32_t thread = 0, uint32_t kernel = 0);
  void ring_doorbell();

 private:
  std::string socket_path_;
  int socket_ = -1;
  channel::lull_welcome welcome_{};
  channel::Region region_;
};

// A question to lulld on a connection of its own, whose answer is read when asked for.
class Question {
 public:
  Question(const std::string& socket, const std::string& request);
  ~Question();
  Question(Question&& other) noexcept;
  Question& operator=(Question&&) = delete;

  // Reads what has come. True: all of it has, or lulld has closed the connection.
  bool look();
  const std::string& answer() const { return answer_; }

 private:
  int socket_ = -1;
  std::string answer_;
};

}  // namespace lull::tests
