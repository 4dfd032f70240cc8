#include "tests/hostile/hostile_client.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <stdexcept>

#include "coordinator/channel/ticks.h"

namespace lull::tests {
namespace {

int connect_to(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    ::close(fd);
    throw std::runtime_error("connect " + path + ": " + strerror(errno));
  }
  return fd;
}

}  // namespace

HostileClient::~HostileClient() {
  if (region_.base != nullptr) ::munmap(region_.base, channel::kRegionBytes);
  hang_up();
}

void HostileClient::hang_up() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

channel::lull_hello HostileClient::polite_hello() {
  channel::lull_hello hello{};
  hello.magic = channel::kMagic;
  hello.version = channel::kVersion;
  hello.priority = channel::kPriorityUnset;
  hello.slowdown_mean = hello.slowdown_p99 = channel::kSlowdownUnset;
  strncpy(hello.name, "hostile", sizeof hello.name - 1);
  strncpy(hello.program, "hostile", sizeof hello.program - 1);
  return hello;
}

bool HostileClient::send(const void* packet, size_t bytes) {
  if (socket_ < 0) socket_ = connect_to(socket_path_);
  return ::send(socket_, packet, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes);
}

bool HostileClient::attach(const Until& until) {
  if (!send(&hello, sizeof hello)) return false;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{.iov_base = &welcome_, .iov_len = sizeof welcome_};
  int memory = -1;
  until([&] {
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(socket_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const cmsghdr* header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
    if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
      memcpy(&memory, CMSG_DATA(header), sizeof memory);
    }
    return got >= 0 || errno != EAGAIN;
  });
  if (memory < 0) return false;
  void* base =
      ::mmap(nullptr, channel::kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  ::close(memory);
  if (base == MAP_FAILED) return false;
  region_.base = static_cast<char*>(base);
  return true;
}

channel::GateState HostileClient::gate(uint32_t device) const {
  return channel::gate_state(channel::load_gate(*region_.control(), device));
}

uint32_t HostileClient::name_device(const std::array<uint8_t, 16>& uuid, uint64_t total_bytes,
                                    const std::string& name) {
  const uint32_t index = region_.client()->device_count;
  if (index >= channel::kMaxDevices) return index;
  channel::lull_device device{};
  memcpy(device.uuid, uuid.data(), uuid.size());
  device.total_bytes = total_bytes;
  strncpy(device.name, name.c_str(), sizeof device.name - 1);
  channel::publish_device(region_, index, device);
  ring_doorbell();
  return index;
}

uint32_t HostileClient::name_device(uint8_t uuid_byte, uint64_t total_bytes) {
  std::array<uint8_t, 16> uuid;
  uuid.fill(uuid_byte);
  return name_device(uuid, total_bytes);
}

uint32_t HostileClient::name_kernel(uint64_t id, const std::string& name) {
  channel::lull_client& client = *region_.client();
  const uint32_t slot = client.kernel_count;
  uint32_t name_bytes = client.name_bytes;
  channel::lull_kernel kernel{};
  kernel.kernel_id = id;
  // Beyond the name area all kernels share its last name.
  if (name_bytes + name.size() + 1 <= channel::kNameBytes) {
    memcpy(region_.names() + name_bytes, name.c_str(), name.size() + 1);
    kernel.name_offset = name_bytes;
    name_bytes += static_cast<uint32_t>(name.size()) + 1;
  }
  channel::publish_kernel(region_, slot, kernel, name_bytes);
  return slot;
}

channel::lull_record HostileClient::record(uint32_t kind, uint32_t kernel, uint64_t sequence) {
  channel::lull_record record{};
  record.kind = kind;
  record.kernel = kernel;
  record.sequence = sequence;
  record.tsc = channel::ticks();
  return record;
}

bool HostileClient::write(const channel::lull_record& record, uint32_t thread) {
  channel::lull_thread& slot = *region_.thread(thread);
  channel::occupy_thread(slot, 1000 + thread);
  const bool room = channel::push_record(slot, region_.ring(thread), record);
  ring_doorbell();
  return room;
}

bool HostileClient::launch(uint64_t sequence, bool tracked, uint32_t stream, uint32_t kernel) {
  channel::lull_record launched = record(channel::kRecordLaunch, kernel, sequence);
  launched.stream = stream;
  if (tracked) launched.flags = channel::kFlagMarker;
  return write(launched);
}

bool HostileClient::time(uint64_t duration_ns, uint64_t sequence, uint32_t kernel) {
  channel::lull_record timed = record(channel::kRecordTiming, kernel, sequence);
  timed.value0 = duration_ns;
  timed.value1 = channel::kGapUnknown;
  return write(timed);
}

void HostileClient::complete(uint64_t sequence, uint32_t stream) {
  channel::raise_completed(region_, stream, sequence);
}

void HostileClient::pretend_to_wait(uint32_t ticket, uint32_t thread, uint32_t kernel) {
  channel::lull_thread& slot = *region_.thread(thread);
  channel::occupy_thread(slot, 1000 + thread);
  channel::publish_held(slot, ticket, kernel, /*device=*/0, /*stream=*/0, channel::ticks());
  ring_doorbell();
}

void HostileClient::ring_doorbell() {
  channel::fence_before_doorbell();
  if (!channel::take_doorbell(*region_.control())) return;
  const char byte = '!';
  ::send(socket_, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

Question::Question(const std::string& socket, const std::string& request)
    : socket_(connect_to(socket)) {
  ::send(socket_, request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

Question::Question(Question&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), answer_(std::move(other.answer_)) {}

Question::~Question() {
  if (socket_ >= 0) ::close(socket_);
}

bool Question::look() {
  char packet[channel::kReplyChunkBytes];
  for (;;) {
    const ssize_t got = ::recv(socket_, packet, sizeof packet, MSG_DONTWAIT);
    if (got < 0) return errno != EAGAIN && errno != EINTR;
    if (got == 0) return true;
    answer_.append(packet, static_cast<size_t>(got));
  }
}

}  // namespace lull::tests
