#include "shim/residence/ipc_memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "coordinator/channel/file_status.h"
#include "shim/captures.h"
#include "shim/residence/allocations.h"
#include "shim/residence/mapped_memory.h"
#include "shim/residence/memory_gate.h"
#include "shim/residence/program_handles.h"
#include "shim/residence/quiet_thread.h"
#include "shim/residence/service.h"

namespace lull::shim {

namespace {

constexpr char kMagic[8] = {'l', 'u', 'l', 'l', 'i', 'p', 'c', '1'};
constexpr int kHighDescriptor = 900;
constexpr int kBacklog = 64;
constexpr time_t kAnswerSeconds = 5;

// What the program carries from process to process.
struct Handle {
  char magic[8];
  uint64_t process;  // of the socket's name; never 0
  uint64_t memory;   // token of its backing
  uint64_t bytes;    // of the backing
  uint64_t offset;   // of the allocation in it
  uint64_t id;       // of the allocation: another one at the same address has another handle
  uint64_t unused[2];
};
static_assert(sizeof(Handle) == sizeof(CUipcMemHandle));

// What was opened here.
struct Opened {
  RecordHead head;
  Handle handle;
  CUcontext context;
  CUdeviceptr base;
  CUmemGenericAllocationHandle memory;
  uint32_t references;
};

Lock ipc_lock;  // before arena_lock
Records<Opened> all_opened;
uint64_t process_name;  // 0: nothing was exported
int listener = -1;
dev_t listener_device;
ino_t listener_inode;

uint64_t random_number() {
  uint64_t number = 0;
  const int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t got = read(fd, &number, sizeof number);
  close(fd);
  return got == sizeof number ? number : 0;
}

socklen_t name_socket(uint64_t process, sockaddr_un& address) {
  address = sockaddr_un{};
  address.sun_family = AF_UNIX;
  const int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "lull-ipc-%016llx",
                              static_cast<unsigned long long>(process));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

bool is_own_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

void bound_waits(int fd) {
  const timeval bound{kAnswerSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound);
}

// ---- the exporter ------------------------------------------------------------------------------

// The driver's handle of memory that was exported and is still there.
CUmemGenericAllocationHandle exported_handle(uint64_t token) {
  Locked locked(arena_lock);
  const Backing* backing = backing_with_token(token);
  return backing != nullptr && backing->shared ? backing->handle : 0;
}

void share_address(CUdeviceptr address) {
  {
    Locked locked(arena_lock);
    if (const Mapping* mapping = mapping_at(address)) mapping->backing->shared = true;
  }
  fix_address(address, 1, Fixed::kShared);
}

void answer(int fd) {
  uint64_t token = 0;
  if (!is_own_user(fd) || recv(fd, &token, sizeof token, 0) != ssize_t{sizeof token}) return;
  int descriptor = -1;
  const CUmemGenericAllocationHandle handle = exported_handle(token);
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  if (handle != 0) {
    OwnCall own(thread_state);
    result = driver().cuMemExportToShareableHandle(&descriptor, handle,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  }
  iovec part{&result, sizeof result};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (result == CUDA_SUCCESS) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  sendmsg(fd, &message, MSG_NOSIGNAL);
  if (descriptor >= 0) close(descriptor);
}

bool owns_listener() {
  struct stat now;
  return listener >= 0 && channel::file_status(listener, now) && now.st_dev == listener_device &&
         now.st_ino == listener_inode;
}

void* serve(void*) {
  // A program that closes all descriptors ends the service, and nothing else.
  while (owns_listener()) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      break;
    }
    bound_waits(fd);
    answer(fd);
    close(fd);
  }
  return nullptr;
}

// Under ipc_lock. The socket and its thread, once a process.
bool open_service() {
  if (process_name != 0) return owns_listener();
  const uint64_t name = random_number();
  const int fd = name != 0 ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) : -1;
  if (fd < 0) return false;
  listener = fcntl(fd, F_DUPFD_CLOEXEC, kHighDescriptor);
  if (listener >= 0) {
    close(fd);
  } else {
    listener = fd;
  }
  sockaddr_un address;
  const socklen_t length = name_socket(name, address);
  struct stat identity;
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
      listen(listener, kBacklog) == 0 && channel::file_status(listener, identity)) {
    listener_device = identity.st_dev;
    listener_inode = identity.st_ino;
    if (start_quiet_thread(serve)) {
      process_name = name;
      return true;
    }
  }
  close(listener);
  listener = -1;
  return false;
}

// ---- the importer
// --------------------------------------------------------------------------------

// The memory as a descriptor; below 0: `result` says why.
int fetch(const Handle& handle, CUresult& result) {
  result = CUDA_ERROR_MAP_FAILED;
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  bound_waits(fd);
  sockaddr_un address;
  const socklen_t length = name_socket(handle.process, address);
  int descriptor = -1;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0 && is_own_user(fd) &&
      send(fd, &handle.memory, sizeof handle.memory, MSG_NOSIGNAL) ==
          ssize_t{sizeof handle.memory}) {
    CUresult answer = CUDA_ERROR_MAP_FAILED;
    iovec part{&answer, sizeof answer};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    // Its context may be away: the answer comes when that is back, or its end with its process.
    ssize_t got;
    do {
      got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    } while (got < 0 && (errno == EAGAIN || errno == EINTR));
    const cmsghdr* rights = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
    if (rights != nullptr && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS &&
        rights->cmsg_len == CMSG_LEN(sizeof(int))) {
      memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
    }
    if (got == ssize_t{sizeof answer} && answer != CUDA_SUCCESS) result = answer;
  }
  close(fd);
  return descriptor;
}

// Closes the descriptor.
CUresult import(const Handle& handle, int descriptor, Opened& opened) {
  CUmemGenericAllocationHandle memory = 0;
  CUresult result = driver().cuMemImportFromShareableHandle(
      &memory, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  close(descriptor);
  if (result != CUDA_SUCCESS) return result;
  CUdevice ordinal = -1;
  CUmemAllocationProp properties{};
  uint8_t access[kMaxOrdinals] = {};
  result = driver().cuCtxGetDevice(&ordinal);
  if (result == CUDA_SUCCESS) {
    result = driver().cuMemGetAllocationPropertiesFromHandle(&properties, memory);
  }
  const auto grant = [&](CUdevice to) {
    if (to >= 0 && to < kMaxOrdinals) access[to] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  };
  grant(ordinal);
  grant(properties.location.id);
  const CUdeviceptr base = result == CUDA_SUCCESS ? map_again(memory, handle.bytes, access) : 0;
  if (base == 0) {
    driver().cuMemRelease(memory);
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_MAP_FAILED;
  }
  opened.handle = handle;
  opened.base = base;
  opened.memory = memory;
  opened.references = 1;
  return CUDA_SUCCESS;
}

// Under ipc_lock.
template <typename Match>
Opened* find_opened(Match match) {
  for (uint32_t n = 0; n < all_opened.count(); ++n) {
    Opened* opened = all_opened.at(n);
    if (opened->head.in_use && match(*opened)) return opened;
  }
  return nullptr;
}

void drop(const Opened& opened) {
  drop_mapped(opened.base, opened.handle.bytes, opened.memory, /*is_mapped=*/true);
}

}  // namespace

bool ipc_export(CUdeviceptr address, CUipcMemHandle* out, CUresult& result) {
  Handle handle{};
  memcpy(handle.magic, kMagic, sizeof kMagic);
  bool can = false;
  {
    Locked locked(arena_lock);
    const Mapping* mapping = mapping_at(address);
    if (mapping == nullptr || !mapping->backing->ours) return false;
    const Block* block = block_at(*mapping, address);
    if (block != nullptr && !block->stream_ordered) {
      const Backing& backing = *block->backing;
      can = backing.properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
      handle.memory = token_of(backing);
      handle.bytes = backing.bytes;
      handle.offset = block->address - mapping->address;
      handle.id = block->id;
    }
  }
  result = CUDA_ERROR_INVALID_VALUE;
  if (!can || out == nullptr) return true;
  Cancellation off;
  KeepErrno keep;
  {
    Locked locked(ipc_lock);
    if (!open_service()) {
      result = CUDA_ERROR_MAP_FAILED;
      return true;
    }
    handle.process = process_name;
  }
  share_address(address);
  memcpy(out, &handle, sizeof handle);
  result = CUDA_SUCCESS;
  return true;
}

bool ipc_open(const CUipcMemHandle& from, CUdeviceptr* address, CUresult& result) {
  Handle handle;
  memcpy(&handle, &from, sizeof handle);
  if (memcmp(handle.magic, kMagic, sizeof kMagic) != 0) return false;
  result = CUDA_ERROR_INVALID_VALUE;
  if (address == nullptr || handle.offset >= handle.bytes) return true;
  Cancellation off;
  KeepErrno keep;
  CUcontext context = nullptr;
  {
    OwnCall own(thread_state);
    result = driver().cuCtxGetCurrent(&context);
  }
  if (result == CUDA_SUCCESS && context == nullptr) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result != CUDA_SUCCESS) return true;
  const auto is_it = [&](const Opened& it) {
    return it.context == context && memcmp(&it.handle, &handle, sizeof handle) == 0;
  };
  const auto open_again = [&] {
    Opened* opened = find_opened(is_it);
    if (opened == nullptr) return false;
    ++opened->references;
    *address = opened->base + handle.offset;
    return true;
  };
  {
    Locked locked(ipc_lock);
    // What one made oneself cannot be opened.
    if (handle.process == process_name) {
      result = CUDA_ERROR_INVALID_CONTEXT;
      return true;
    }
    if (open_again()) return true;
  }
  const int descriptor = fetch(handle, result);
  if (descriptor < 0) return true;
  const MemoryUse use(thread_state);
  OwnCall own(thread_state);
  Opened fresh{};
  result = import(handle, descriptor, fresh);
  if (result != CUDA_SUCCESS) return true;
  fresh.context = context;
  {
    Locked locked(ipc_lock);
    Opened* opened = open_again() ? nullptr : all_opened.take();
    if (opened != nullptr) {
      fresh.head = opened->head;
      *opened = fresh;
      fixed_memory_made(Fixed::kImported);
      *address = fresh.base + handle.offset;
      return true;
    }
    if (find_opened(is_it) == nullptr) result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  drop(fresh);  // another thread was faster, or there is no room
  return true;
}

bool ipc_close(CUdeviceptr address, CUresult& result) {
  Cancellation off;
  OwnCall own(thread_state);
  Opened gone;
  {
    Locked locked(ipc_lock);
    Opened* opened =
        find_opened([&](const Opened& it) { return it.base + it.handle.offset == address; });
    if (opened == nullptr) return false;
    result = CUDA_SUCCESS;
    if (--opened->references > 0) return true;
    gone = *opened;
    all_opened.give(opened);
    fixed_memory_gone(Fixed::kImported);
  }
  // Nothing that was submitted may find it gone.
  if (open_captures.load(std::memory_order_relaxed) <= 0) result = driver().cuCtxSynchronize();
  drop(gone);
  return true;
}

void ipc_context_gone(CUcontext context) {
  for (;;) {
    Opened gone;
    {
      Locked locked(ipc_lock);
      Opened* opened = find_opened([&](const Opened& it) { return it.context == context; });
      if (opened == nullptr) return;
      gone = *opened;
      all_opened.give(opened);
      fixed_memory_gone(Fixed::kImported);
    }
    drop(gone);
  }
}

void forget_ipc_memory() {
  if (owns_listener()) close(listener);
  listener = -1;
  process_name = 0;
  all_opened.forget();
}

void lock_ipc_memory() { ipc_lock.lock(); }
void unlock_ipc_memory() { ipc_lock.unlock(); }

}  // namespace lull::shim
