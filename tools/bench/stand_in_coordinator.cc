#include "tools/bench/stand_in_coordinator.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

#include "coordinator/channel/daemon_view.h"
#include "coordinator/channel/gate.h"
#include "coordinator/channel/messages.h"
#include "coordinator/channel/model_clock.h"
#include "coordinator/channel/ring.h"
#include "coordinator/channel/sealed_memory.h"
#include "coordinator/channel/welcome.h"
#include "tools/bench/launcher.h"

namespace lull::bench {

using namespace lull::channel;

namespace {
constexpr uint64_t kLookSpacingNs = 2'000;
constexpr uint32_t kSampledPeriod = 64;  // lulld's own default
}

StandInCoordinator::StandInCoordinator(std::string socket_path) : path_(std::move(socket_path)) {
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) throw std::runtime_error("socket path too long");
  strcpy(address.sun_path, path_.c_str());
  if (listener_ < 0 || bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener_, 8) != 0) {
    throw std::runtime_error("cannot listen on " + path_ + ": " + strerror(errno));
  }
  thread_ = std::thread([this] { serve(); });
}

StandInCoordinator::~StandInCoordinator() {
  stop_ = true;
  thread_.join();
  if (connection_ >= 0) close(connection_);
  close(listener_);
  unlink(path_.c_str());
}

void StandInCoordinator::set_mode(Mode mode) {
  mode_ = mode;
  char* base = base_.load();
  if (base == nullptr) return;
  const Region region{base};
  publish_record_mode(region, mode == Mode::kOpenNoRecords ? kRecordNothing
                              : mode == Mode::kOpen        ? kRecordUntimed
                                                           : kRecordTimed);
  publish_timing_period(region, mode == Mode::kOpenSampled ? kSampledPeriod : 0);
  publish_marked_every(region, 0, mode == Mode::kOpenMarkers ? 1 : 0);
  lull_control& control = *region.control();
  const auto epoch = gate_epoch(load_gate(control, 0)) + 1;
  publish_gate(control, 0,
               mode == Mode::kCredit ? pack_gate(GateState::kCredit, epoch, kGateNsMax & ~kGateLongBit)
                                     : pack_gate(GateState::kOpen, epoch, 0));
}

uint64_t StandInCoordinator::dropped() const {
  uint64_t sum = 0;
  if (char* base = base_.load()) {
    for (uint32_t slot = 0; slot < kMaxThreads; ++slot) {
      sum += read_totals(*Region{base}.thread(slot)).dropped;
    }
  }
  return sum;
}

bool StandInCoordinator::attach(int connection) {
  lull_hello hello;
  if (recv(connection, &hello, sizeof hello, 0) != sizeof hello) return false;
  const char* failed = nullptr;
  const int memory = make_sealed_memory("lull-bench", kRegionBytes, failed);
  if (memory < 0) return false;
  void* mapped = mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory, 0);
  if (mapped == MAP_FAILED) return false;
  const Region region{static_cast<char*>(mapped)};
  write_birth(region, /*client_id=*/1, /*timing_period=*/0, /*priority=*/5, UINT64_MAX);
  base_ = region.base;
  set_mode(mode_);

  lull_welcome welcome{};
  welcome.magic = kMagic;
  welcome.version = kVersion;
  welcome.status = kWelcomeOk;
  welcome.client_id = 1;
  welcome.region_bytes = kRegionBytes;
  const bool sent = send_welcome(connection, welcome, memory);
  close(memory);
  return sent;
}

void StandInCoordinator::serve() {
  stay_on(kLastProcessor);
  while (!stop_) {
    if (connection_ < 0) {
      pollfd waiting{listener_, POLLIN, 0};
      if (poll(&waiting, 1, 50) != 1) continue;
      connection_ = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection_ >= 0 && !attach(connection_)) {
        close(connection_);
        connection_ = -1;
      }
      continue;
    }
    const Region region{base_.load()};
    uint64_t drained = 0;
    for (uint32_t slot = 0; slot < kMaxThreads; ++slot) {
      drain_records(*region.thread(slot), region.ring(slot), kRingRecords,
                    [&](const lull_record&) { ++drained; });
    }
    records_ += drained;
    // Between two looks as long as a ring can take at full speed: a real coordinator looks less
    // often, and one that never looks away would be measured instead of the client.
    for (const uint64_t until = monotonic_ns() + kLookSpacingNs; monotonic_ns() < until;) {
    }
    if (drained == 0) {
      char byte;
      if (recv(connection_, &byte, 1, MSG_DONTWAIT) == 0) {
        close(connection_);
        connection_ = -1;
      }
    }
  }
}

}  // namespace lull::bench
