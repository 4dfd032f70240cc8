#include "tests/shim/coordinator.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <climits>
#include <cstring>

#include "coordinator/channel/model_clock.h"
#include "coordinator/channel/sealed_memory.h"
#include "coordinator/channel/welcome.h"

namespace lull::test {

Coordinator::Coordinator(std::string socket_path, uint32_t timing_period)
    : path_(std::move(socket_path)), timing_period_(timing_period) {
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strcpy(address.sun_path, path_.c_str());
  unlink(path_.c_str());
  REQUIRE(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(listen(listener_, 8) == 0);
  REQUIRE(pipe2(stop_, O_CLOEXEC) == 0);
  thread_ = std::thread([this] { serve(); });
}

Coordinator::~Coordinator() { die(); }

void Coordinator::die() {
  if (!thread_.joinable()) return;
  (void)!write(stop_[1], "x", 1);
  thread_.join();
  close(stop_[0]);
  close(stop_[1]);
  close(listener_);
  unlink(path_.c_str());
  for (Client& client : clients_) close(client.fd);
}

void Coordinator::serve() {
  for (;;) {
    pollfd wait[2] = {{listener_, POLLIN, 0}, {stop_[0], POLLIN, 0}};
    const int ready = poll(wait, 2, 50);
    if ((wait[1].revents & POLLIN) != 0) return;
    if (shows_life) {
      for (const Client& client : clients_) channel::show_life(client.region);
    }
    if (ready <= 0) continue;
    Client client;
    client.fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client.fd < 0) continue;
    if (recv(client.fd, &client.hello, sizeof client.hello, 0) != sizeof client.hello) {
      close(client.fd);
      continue;
    }
    const char* failed = nullptr;
    const int memory = channel::make_sealed_memory("lull-test", channel::kRegionBytes, failed);
    client.region.base = static_cast<char*>(
        mmap(nullptr, channel::kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0));
    channel::write_birth(client.region, 1, timing_period_, 5, allowance);
    channel::publish_slow_motion(client.region, slow_motion);
    channel::publish_host_allowance(client.region, host_allowance);
    if (birth_gate != channel::GateState::kOpen) {
      channel::publish_gate(*client.region.control(), 0, channel::pack_gate(birth_gate, 1, 0));
    }
    channel::lull_welcome welcome{};
    welcome.magic = channel::kMagic;
    welcome.version = welcome_version;
    welcome.status =
        welcome_version == channel::kVersion ? channel::kWelcomeOk : channel::kWelcomeVersion;
    welcome.region_bytes = channel::kRegionBytes;
    welcome.moves = moves;
    {
      const std::lock_guard guard(mutex_);
      clients_.push_back(client);
    }
    channel::send_welcome(client.fd, welcome, memory);
    close(memory);
  }
}

Client Coordinator::client(size_t index) {
  REQUIRE(eventually([&] { return clients() > index; }));
  const std::lock_guard guard(mutex_);
  return clients_[index];
}

namespace {

// One that has stopped waiting for the welcome has closed its end.
bool has_left(const Client& client) {
  pollfd peer{client.fd, POLLRDHUP, 0};
  return poll(&peer, 1, 0) != 0;
}

}  // namespace

Client Coordinator::attached(const std::function<void()>& start) {
  for (;;) {
    const size_t before = clients();
    start();
    const Client latest = client(before);
    if (!has_left(latest)) return latest;
  }
}

Client Coordinator::connected() {
  Client latest;
  REQUIRE(eventually([&] {
    const std::lock_guard guard(mutex_);
    if (clients_.empty()) return false;
    latest = clients_.back();
    return !has_left(latest);
  }));
  return latest;
}

size_t Coordinator::clients() {
  const std::lock_guard guard(mutex_);
  return clients_.size();
}

std::vector<channel::lull_record> drain(const Client& client) {
  std::vector<channel::lull_record> records;
  for (uint32_t slot = 0; slot < channel::kMaxThreads; ++slot) {
    channel::drain_records(*client.region.thread(slot), client.region.ring(slot), 1000,
                           [&](const channel::lull_record& record) { records.push_back(record); });
  }
  return records;
}

std::vector<channel::lull_record> drain(const Client& client, channel::lull_record_kind kind) {
  std::vector<channel::lull_record> kept;
  for (const auto& record : drain(client)) {
    if (record.kind == kind) kept.push_back(record);
  }
  return kept;
}

channel::ThreadTotals totals(const Client& client) {
  channel::ThreadTotals sum;
  for (uint32_t slot = 0; slot < channel::kMaxThreads; ++slot) {
    sum += channel::read_totals(*client.region.thread(slot));
  }
  return sum;
}

void wake(const Client& client) {
  syscall(SYS_futex, &client.region.control()->wake_sequence, FUTEX_WAKE, INT_MAX, nullptr,
          nullptr, 0);
}

uint32_t order(const Client& client, channel::lull_target target, uint32_t drain_ms,
               const std::vector<channel::lull_device_pair>& pairs) {
  channel::lull_order order{};
  order.target = target;
  order.drain_ms = drain_ms;
  order.pair_count = static_cast<uint32_t>(pairs.size());
  REQUIRE(pairs.size() <= channel::kMaxDevices);
  std::copy(pairs.begin(), pairs.end(), order.pair);
  const uint32_t number = channel::publish_order(client.region, order);
  syscall(SYS_futex, &client.region.control()->order.number, FUTEX_WAKE, INT_MAX, nullptr, nullptr,
          0);
  return number;
}

channel::ResidenceReport ended(const Client& client, uint32_t order) {
  REQUIRE(eventually([&] { return residence(client).order == order; }));
  return residence(client);
}

void set_gate(const Client& client, channel::GateState state, uint32_t epoch,
              uint64_t granted_ns) {
  channel::publish_gate(*client.region.control(), 0, channel::pack_gate(state, epoch, granted_ns));
  wake(client);
}

std::string kernel_name(const Client& client, uint32_t slot) {
  return channel::kernel_name(client.region, slot, 200);
}

bool eventually(const std::function<bool()>& what) {
  const uint64_t deadline = channel::monotonic_ns() + 120'000'000'000ULL;
  while (!what()) {
    if (channel::monotonic_ns() > deadline) return false;
    sched_yield();
  }
  return true;
}

}  // namespace lull::test
