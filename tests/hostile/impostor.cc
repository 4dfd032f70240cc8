#include "tests/hostile/impostor.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <stdexcept>

#include "coordinator/channel/daemon_view.h"
#include "coordinator/channel/sealed_memory.h"
#include "coordinator/channel/welcome.h"

namespace lull::test {
namespace {

constexpr size_t kPageBytes = 4096;

int make_memory(Memory kind) {
  const char* failed = nullptr;
  const auto bytes = static_cast<off_t>(channel::kRegionBytes);
  if (kind == Memory::kSealed) {
    return channel::make_sealed_memory("impostor", channel::kRegionBytes, failed);
  }
  if (kind == Memory::kShort) {
    return channel::make_sealed_memory("impostor", channel::kRegionBytes - kPageBytes, failed);
  }
  int fd = -1;
  if (kind == Memory::kFile) {
    fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  } else {
    fd = memfd_create("impostor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  }
  if (fd < 0 || ftruncate(fd, bytes) != 0) return fd;
  if (kind == Memory::kSparse) {
    fcntl(fd, F_ADD_SEALS, channel::kRegionSeals);
  } else {
    (void)!fallocate(fd, 0, 0, bytes);
  }
  return fd;
}

}  // namespace

Impostor::Impostor(std::string path, Memory memory) : path_(std::move(path)), memory_(memory) {
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) throw std::runtime_error("path too long");
  strcpy(address.sun_path, path_.c_str());
  unlink(path_.c_str());
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      chmod(path_.c_str(), 0777) != 0 || listen(listener_, 8) != 0) {
    throw std::runtime_error(path_ + ": " + strerror(errno));
  }
}

Impostor::~Impostor() {
  hang_up();
  close(listener_);
  unlink(path_.c_str());
}

Victim Impostor::take() {
  Victim victim;
  victim.socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  channel::lull_hello hello{};
  if (recv(victim.socket, &hello, sizeof hello, 0) != sizeof hello) {
    close(victim.socket);
    return {};
  }
  ucred peer{};
  socklen_t bytes = sizeof peer;
  getsockopt(victim.socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
  victim.uid = peer.uid;
  victim.task = hello.name[0] != '\0' ? hello.name : hello.program;
  victim.memory = make_memory(memory_);
  void* base =
      mmap(nullptr, channel::kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, victim.memory, 0);
  channel::lull_welcome welcome{};
  welcome.magic = channel::kMagic;
  welcome.version = channel::kVersion;
  welcome.region_bytes = channel::kRegionBytes;
  if (base != MAP_FAILED && memory_ != Memory::kShort) {
    victim.region.base = static_cast<char*>(base);
    channel::write_birth(victim.region, 1, 0, 5, UINT64_MAX);
  }
  channel::send_welcome(victim.socket, welcome, victim.memory);
  victims_.push_back(victim);
  return victim;
}

void Impostor::wake(const Victim& victim) const {
  syscall(SYS_futex, &victim.region.control()->wake_sequence, FUTEX_WAKE, INT_MAX, nullptr, nullptr,
          0);
}

void Impostor::set_gates(bool open) {
  ++epoch_;
  for (const Victim& victim : victims_) {
    if (victim.region.base == nullptr) continue;
    for (uint32_t device = 0; device < channel::kMaxDevices; ++device) {
      channel::publish_gate(
          *victim.region.control(), device,
          channel::pack_gate(open ? channel::GateState::kOpen : channel::GateState::kClosed, epoch_,
                             0));
    }
    wake(victim);
  }
}

void Impostor::show_life() {
  for (const Victim& victim : victims_) {
    if (victim.region.base != nullptr) channel::show_life(victim.region);
  }
}

void Impostor::allow_bytes(uint64_t bytes) {
  for (const Victim& victim : victims_) {
    if (victim.region.base == nullptr) continue;
    for (uint32_t device = 0; device < channel::kMaxDevices; ++device) {
      channel::publish_allowance(victim.region, device, bytes);
    }
    wake(victim);
  }
}

void Impostor::shrink() {
  for (Victim& victim : victims_) {
    if (victim.region.base != nullptr) munmap(victim.region.base, channel::kRegionBytes);
    victim.region.base = nullptr;
    (void)!ftruncate(victim.memory, 0);
  }
}

void Impostor::hang_up() {
  for (const Victim& victim : victims_) {
    if (victim.region.base != nullptr) munmap(victim.region.base, channel::kRegionBytes);
    close(victim.memory);
    close(victim.socket);
  }
  victims_.clear();
}

std::vector<std::string> Impostor::names() const {
  std::vector<std::string> found;
  for (const Victim& victim : victims_) {
    if (victim.region.base == nullptr) continue;
    for (uint32_t slot = 0; slot < channel::kernel_count(victim.region); ++slot) {
      found.push_back(channel::kernel_name(victim.region, slot, 200));
    }
  }
  return found;
}

}  // namespace lull::test
