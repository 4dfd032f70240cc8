#include "tests/daemon/fake_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "coordinator/channel/residence.h"
#include "coordinator/channel/ring.h"
#include "coordinator/channel/ticks.h"

namespace lull::daemon {
namespace {

int connect_to(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    throw std::runtime_error("connect " + path + ": " + strerror(errno));
  }
  return fd;
}

constexpr uint64_t kTurnNs = 1'000'000;
constexpr const char* kDeviceName = "simulated GPU";

}  // namespace

TempDir::TempDir() {
  char name[] = "/tmp/lull-daemon-test-XXXXXX";
  if (::mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp");
  dir_ = name;
}
TempDir::~TempDir() { std::filesystem::remove_all(dir_); }

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}

void write_sim_device(const std::string& path, double slow_motion, uint64_t control_latency_ns) {
  channel::sim_device_prefix prefix{};
  memcpy(prefix.magic, channel::kSimMagic, sizeof prefix.magic);
  prefix.version = channel::kSimVersion;
  prefix.ready = 1;
  prefix.origin_ns = channel::monotonic_ns();
  prefix.slow_motion = slow_motion;
  prefix.control_latency_ns = control_latency_ns;
  prefix.device_count = 1;
  prefix.memory_bytes = kDeviceBytes;
  memset(prefix.uuid, 7, sizeof prefix.uuid);
  strncpy(prefix.name, "simulated GPU", sizeof prefix.name - 1);
  write_file(path, std::string(reinterpret_cast<const char*>(&prefix), sizeof prefix));
}

DaemonSettings quiet_settings(const TempDir& dir) {
  DaemonSettings settings;
  settings.socket_path = dir.path("lulld.sock");
  settings.silent = true;
  for (const uint8_t byte : {7, 8}) {
    KnownDevice device{.name = kDeviceName, .total_bytes = kDeviceBytes};
    device.uuid.fill(byte);
    settings.config.devices.push_back(device);
  }
  return settings;
}

engine::TaskRecord known_task(const std::string& task, uint64_t kernels, const std::string& name,
                              const policies::KernelProfile& profile) {
  engine::TaskRecord record{.task = std::to_string(::getuid()) + "/" + task, .gpu = kDeviceName};
  for (uint64_t n = 1; n <= kernels; ++n) {
    record.kernels.push_back({KernelId{n}, name, profile.saved()});
  }
  return record;
}

void know_long_kernel(DaemonSettings& settings, const TempDir& dir, const std::string& task,
                      uint64_t kernel) {
  policies::KernelProfile profile;
  for (int n = 0; n < 9; ++n) profile.add_duration(Duration{10'000'000'000}, /*disturbed=*/false);
  engine::TaskRecord record = known_task(task, 1, "long", profile);
  record.kernels[0].id = KernelId{kernel};
  settings.config.profiles = dir.path("profiles");
  if (!ProfileStore(*settings.config.profiles).save(record)) throw std::runtime_error("profile");
}

std::unique_ptr<Daemon> start_daemon(DaemonSettings settings) {
  auto daemon = Daemon::start(std::move(settings));
  if (!daemon) throw std::runtime_error(daemon.error());
  return std::move(*daemon);
}

bool turn_until(Daemon& daemon, const std::function<bool()>& done) {
  const uint64_t deadline = channel::monotonic_ns() + kPatienceNs;
  while (!done()) {
    if (channel::monotonic_ns() > deadline) return false;
    daemon.turn(kTurnNs);
  }
  return true;
}

bool settle(Daemon& daemon, const std::vector<const FakeClient*>& clients) {
  return turn_until(daemon, [&] {
    if (daemon.is_recalling()) return false;
    for (const FakeClient* client : clients) {
      if (!client->doorbell_armed()) return false;
    }
    return true;
  });
}

nlohmann::json ask(Daemon& daemon, const std::string& socket, const std::string& request) {
  nlohmann::json whole = ask_for_page(daemon, socket, request);
  while (whole.contains("next")) {
    nlohmann::json more = nlohmann::json::parse(request);
    more["from"] = whole["next"];
    whole.erase("next");
    const nlohmann::json page = ask_for_page(daemon, socket, more.dump());
    for (const auto& [key, value] : page.items()) {
      if (key == "next") whole[key] = value;
      if (!value.is_array()) continue;
      for (const nlohmann::json& row : value) whole[key].push_back(row);
    }
  }
  return whole;
}

nlohmann::json ask_for_page(Daemon& daemon, const std::string& socket, const std::string& request) {
  const int fd = connect_to(socket);
  ::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
  std::string reply;
  const bool ended = turn_until(daemon, [&] {
    char packet[channel::kReplyChunkBytes];
    for (;;) {
      const ssize_t got = ::recv(fd, packet, sizeof packet, MSG_DONTWAIT);
      if (got > 0) {
        reply.append(packet, static_cast<size_t>(got));
        continue;
      }
      return got == 0;
    }
  });
  ::close(fd);
  if (!ended) throw std::runtime_error("no end of reply");
  return nlohmann::json::parse(reply);
}

nlohmann::json ask(Daemon& daemon, const std::string& socket, const nlohmann::json& request) {
  return ask(daemon, socket, request.dump());
}

FakeClient::FakeClient(const std::string& socket, const channel::lull_hello& hello)
    : FakeClient(socket, &hello, sizeof hello) {}

FakeClient::FakeClient(const std::string& socket, const void* packet, size_t bytes)
    : socket_(connect_to(socket)) {
  if (bytes != 0) ::send(socket_, packet, bytes, MSG_NOSIGNAL);
}

FakeClient::~FakeClient() {
  if (region_.base != nullptr) ::munmap(region_.base, channel::kRegionBytes);
  if (memory_fd_ >= 0) ::close(memory_fd_);
  hang_up();
}

void FakeClient::hang_up() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

channel::lull_hello FakeClient::hello(const std::string& name, int priority) {
  channel::lull_hello hello{};
  hello.magic = channel::kMagic;
  hello.version = channel::kVersion;
  hello.priority = priority;
  hello.slowdown_mean = hello.slowdown_p99 = channel::kSlowdownUnset;
  strncpy(hello.name, name.c_str(), sizeof hello.name - 1);
  strncpy(hello.program, "program", sizeof hello.program - 1);
  return hello;
}

bool FakeClient::join(Daemon& daemon) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{.iov_base = &welcome_, .iov_len = sizeof welcome_};
  ssize_t got = -1;
  turn_until(daemon, [&] {
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    got = ::recvmsg(socket_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got > 0) {
      const cmsghdr* header = CMSG_FIRSTHDR(&message);
      if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
        memcpy(&memory_fd_, CMSG_DATA(header), sizeof memory_fd_);
      }
    }
    return got >= 0;
  });
  if (got != static_cast<ssize_t>(sizeof welcome_) || memory_fd_ < 0) return false;
  void* base =
      ::mmap(nullptr, channel::kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd_, 0);
  if (base == MAP_FAILED) return false;
  region_.base = static_cast<char*>(base);
  return true;
}

bool FakeClient::is_connected() {
  char byte;
  const ssize_t got = ::recv(socket_, &byte, 1, MSG_DONTWAIT);
  return got < 0 && errno == EAGAIN;
}

bool FakeClient::ring_if_asked() {
  uint32_t armed = 1;
  if (!channel::atomic32(region_.control()->daemon_sleeping)
           .compare_exchange_strong(armed, 0, std::memory_order_seq_cst)) {
    return false;
  }
  return ::send(socket_, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

uint32_t FakeClient::add_device(uint8_t uuid_byte, uint64_t total_bytes) {
  channel::lull_client& client = *region_.client();
  const uint32_t index = client.device_count;
  channel::lull_device& device = client.device[index];
  memset(device.uuid, uuid_byte, sizeof device.uuid);
  device.total_bytes = total_bytes;
  strncpy(device.name, "simulated GPU", sizeof device.name - 1);
  channel::atomic32(device.ready).store(1, std::memory_order_release);
  channel::atomic32(client.device_count).store(index + 1, std::memory_order_release);
  return index;
}

uint32_t FakeClient::add_kernel(uint64_t id, const std::string& name) {
  channel::lull_client& client = *region_.client();
  const uint32_t slot = client.kernel_count;
  channel::lull_kernel& kernel = *region_.kernel(slot);
  kernel.kernel_id = id;
  kernel.name_offset = client.name_bytes;
  memcpy(region_.names() + client.name_bytes, name.c_str(), name.size() + 1);
  client.name_bytes += static_cast<uint32_t>(name.size()) + 1;
  channel::atomic32(client.kernel_count).store(slot + 1, std::memory_order_release);
  return slot;
}

channel::lull_record FakeClient::record(uint32_t kind, uint32_t kernel, uint64_t sequence) const {
  channel::lull_record record{};
  record.kind = kind;
  record.kernel = kernel;
  record.sequence = sequence;
  record.tsc = channel::ticks();
  return record;
}

void FakeClient::push(const channel::lull_record& record, uint32_t thread) {
  channel::lull_thread& slot = *region_.thread(thread);
  channel::atomic32(slot.tid).store(1000 + thread, std::memory_order_relaxed);
  channel::push_record(slot, region_.ring(thread), record);
  ring_if_asked();
}

void FakeClient::launch(uint32_t kernel, uint64_t sequence, bool tracked, uint32_t thread) {
  channel::lull_record launched = record(channel::kRecordLaunch, kernel, sequence);
  if (tracked) launched.flags = channel::kFlagMarker;
  channel::atomic64(region_.thread(thread)->launches).fetch_add(1, std::memory_order_relaxed);
  push(launched, thread);
}

void FakeClient::hold(uint32_t kernel, uint32_t ticket, uint32_t thread) {
  channel::lull_thread& slot = *region_.thread(thread);
  slot.held_kernel = kernel;
  slot.held_device = 0;
  slot.held_stream = 0;
  slot.held_since_tsc = channel::ticks();
  channel::atomic32(slot.held_ticket).store(ticket, std::memory_order_release);
  channel::lull_record held = record(channel::kRecordHeld, kernel);
  held.ticket = ticket;
  push(held, thread);
}

void FakeClient::let_go(uint32_t kernel, uint64_t sequence, uint32_t ticket, uint32_t thread) {
  channel::atomic32(region_.thread(thread)->held_ticket).store(0, std::memory_order_release);
  channel::lull_record launched = record(channel::kRecordLaunch, kernel, sequence);
  launched.flags = channel::kFlagMarker;
  launched.ticket = ticket;
  push(launched, thread);
}

void FakeClient::complete(uint64_t sequence, uint32_t stream) {
  channel::atomic64(region_.progress()->completed[stream])
      .store(sequence, std::memory_order_release);
}

channel::lull_hello FakeClient::movable(const std::string& name, uint32_t moves, int priority) {
  channel::lull_hello wishes = hello(name, priority);
  wishes.moves = moves;
  return wishes;
}

void FakeClient::say_can(uint32_t abilities) {
  channel::publish_abilities(*region_.client(), abilities);
  push(record(channel::kRecordResidence));
}

void FakeClient::hold_memory(uint32_t device, uint64_t swappable, uint64_t fixed) {
  channel::atomic64(region_.client()->device[device].used_bytes)
      .store(swappable + fixed, std::memory_order_relaxed);
  channel::publish_swappable(*region_.client(), device, swappable, fixed);
  push(record(channel::kRecordResidence));
}

channel::lull_order FakeClient::order() const {
  channel::lull_order copy{};
  channel::read_order(*region_.control(), copy);
  return copy;
}

void FakeClient::say_state(uint32_t state) {
  channel::publish_state(*region_.client(), static_cast<channel::lull_residence_state>(state));
  push(record(channel::kRecordResidence));
}

void FakeClient::end_order(uint32_t result, const std::string& reason) {
  channel::publish_result(*region_.client(), order().number,
                          static_cast<channel::lull_move_result>(result), reason.c_str(), 1000);
  push(record(channel::kRecordResidence));
}

void FakeClient::obey() {
  const channel::lull_order wanted = order();
  channel::lull_client& client = *region_.client();
  for (uint32_t index = 0; index < client.device_count; ++index) {
    for (uint32_t pair = 0; pair < wanted.pair_count; ++pair) {
      if (memcmp(client.device[index].uuid, wanted.pair[pair].from, 16) != 0) continue;
      memcpy(client.device[index].uuid, wanted.pair[pair].to, 16);
      break;
    }
  }
  constexpr uint32_t kEnds[] = {channel::kResident, channel::kOut, channel::kGivenUp};
  channel::publish_state(client,
                         static_cast<channel::lull_residence_state>(kEnds[wanted.target % 3]));
  end_order();
}

uint64_t FakeClient::gate(uint32_t device) const {
  return channel::load_gate(*region_.control(), device);
}
channel::GateState FakeClient::state(uint32_t device) const {
  return channel::gate_state(gate(device));
}
bool FakeClient::doorbell_armed() const {
  return channel::atomic32(region_.control()->daemon_sleeping).load(std::memory_order_acquire) == 1;
}

}  // namespace lull::daemon
