// A coordinator that means no good: takes programs as clients as lulld does, and then does to them
// what it is told. Tests play it as any user, to see that a shim does not let it, or is not harmed.
// One thread; `step` waits for sockets, everything else returns at once.
#pragma once

#include <poll.h>

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/channel/layout.h"
#include "coordinator/channel/messages.h"

namespace lull::test {

// What a client is handed.
enum class Memory {
  kSealed,    // as lulld makes it
  kUnsealed,  // may be shrunk under the client
  kSparse,    // sealed, its pages not allocated
  kShort,     // sealed, a page too small
  kFile,      // a file of /dev/shm or /tmp: what any user can make
};

struct Victim {
  int socket = -1;
  int memory = -1;
  uint32_t uid = 0;
  std::string task;
  channel::Region region;  // base null: could not be mapped here
};

class Impostor {
 public:
  // Listens at `path`; throws std::runtime_error with the reason.
  Impostor(std::string path, Memory memory);
  ~Impostor();
  Impostor(const Impostor&) = delete;

  int listener() const { return listener_; }
  // The client that has connected, once it has said hello and was handed its region; task "" when
  // it left without a word.
  Victim take();

  const std::vector<Victim>& victims() const { return victims_; }
  // To all victims:
  void set_gates(bool open);
  void show_life();
  void allow_bytes(uint64_t bytes);
  void shrink();
  void hang_up();
  // Names of all the kernels they have launched.
  std::vector<std::string> names() const;

 private:
  void wake(const Victim& victim) const;
  std::string path_;
  Memory memory_;
  int listener_ = -1;
  uint32_t epoch_ = 1;
  std::vector<Victim> victims_;
};

}  // namespace lull::test
