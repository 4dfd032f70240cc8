#include "shim/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "coordinator/channel/messages.h"
#include "coordinator/channel/model_clock.h"
#include "coordinator/channel/sealed_memory.h"
#include "coordinator/channel/socket_place.h"
#include "coordinator/channel/trust_facts.h"
#include "shim/call_site.h"
#include "shim/captures.h"
#include "shim/device_memory.h"
#include "shim/devices.h"
#include "shim/kernel_identity.h"
#include "shim/kernel_timer.h"
#include "shim/patience.h"
#include "shim/residence/device_arena.h"
#include "shim/residence/live_contexts.h"
#include "shim/residence/memory_gate.h"
#include "shim/residence/service.h"
#include "shim/stream_slots.h"

// What pthread_atfork's static half names our handlers by; the start files would have brought it.
extern "C" {
__attribute__((visibility("hidden"))) void* __dso_handle = &__dso_handle;
}

namespace lull::shim {

std::atomic<Attachment*> attachment;
std::atomic<bool> attach_attempted;
thread_local constinit ThreadState thread_state;

namespace {

// As long as a held launch waits for a sign of life: a busy machine's coordinator answers within it.
constexpr uint64_t kFirstAttachNs = 1'000'000'000;
// For a program that fails without one.
constexpr uint64_t kRequiredAttachNs = 10'000'000'000;
constexpr uint64_t kLaterAttachNs = 50'000'000;
constexpr uint64_t kRetryNs = 1'000'000'000;
constexpr uint64_t kSliceNs = 50'000'000;  // of a wait for the answer (patience.h)
constexpr uint32_t kSharedSlot = channel::kMaxThreads - 1;
constexpr int kHighDescriptor = 900;

Lock attach_lock;
std::atomic<bool> may_attach{true};    // false in a fork child until its own cuInit
std::atomic<uint64_t> next_attempt_ns;
std::atomic<bool> said;                // the one line of this process
std::atomic<bool> prepared;            // fork handlers and the thread key; set under attach_lock
bool moves_decided;                    // under attach_lock: `can_move` says what it will say for ever
// Under attach_lock. Once attached, a program comes back to this place alone: where the service has gone
// it runs unscheduled, and does not take the next place's coordinator in its stead.
constinit channel::SocketPlace place;
bool place_settled;
std::atomic<bool> attachment_made;  // release: `place` stays as it is
pthread_key_t thread_key;

// ---- the environment -------------------------------------------------------------------------

int32_t asked_priority() {
  const char* text = environment("LULL_PRIORITY");
  if (text == nullptr) return channel::kPriorityUnset;
  if (text[0] >= '0' && text[0] <= '9' && text[1] == '\0') return text[0] - '0';
  constexpr struct {
    const char* name;
    int32_t level;
  } kLevels[] = {{"realtime", 0}, {"high", 2}, {"normal", 5}, {"low", 7}, {"idle", 9}};
  for (const auto& known : kLevels) {
    if (strcmp(text, known.name) == 0) return known.level;
  }
  return channel::kPriorityUnset;
}

uint32_t asked_timing() {
  const char* text = environment("LULL_TIMING");
  if (text == nullptr) return channel::kTimingUnset;
  if (strcmp(text, "off") == 0) return channel::kTimingOff;
  if (strcmp(text, "sampled") == 0) return channel::kTimingSampled;
  if (strcmp(text, "full") == 0) return channel::kTimingFull;
  return channel::kTimingUnset;
}

// "30,50", as `lull run` writes it: in the mean and at p99, in thousandths. Anything else: no wish.
void ask_for_bound(channel::lull_hello& hello) {
  hello.slowdown_mean = hello.slowdown_p99 = channel::kSlowdownUnset;
  const char* text = environment("LULL_MAX_SLOWDOWN");
  int32_t parts[2];
  for (int n = 0; n < 2; ++n) {
    int32_t& part = parts[n];
    if (text == nullptr || *text < '0' || *text > '9') return;
    for (part = 0; *text >= '0' && *text <= '9'; ++text) {
      part = part * 10 + (*text - '0');
      if (part > 1'000'000) return;
    }
    if (*text++ != (n == 0 ? ',' : '\0')) return;
  }
  hello.slowdown_mean = parts[0];
  hello.slowdown_p99 = parts[1];
}

uint32_t asked_moves() {
  const bool migrates = environment_set("LULL_MIGRATABLE");
  const bool shares = environment_set("LULL_OVERSUBSCRIBE");
  uint32_t moves = 0;
  if (migrates || shares || environment_set("LULL_SUSPENDABLE")) moves |= channel::kMovesSwap;
  if (migrates) moves |= channel::kMovesMigrate;
  if (shares) moves |= channel::kMovesOversubscribe;
  return moves;
}

// Under attach_lock. What the user wishes and what the operator lets be done without a wish, at the first
// attach; without a coordinator then, the wish alone: one may come.
void decide_moves(uint32_t granted) {
  if (moves_decided || !prepared.load(std::memory_order_relaxed)) return;
  moves_decided = true;
  can_move.store(((asked_moves() | granted) & channel::kMovesSwap) != 0, std::memory_order_relaxed);
}

void copy_text(char* to, size_t room, const char* from) {
  size_t length = from == nullptr ? 0 : strnlen(from, room - 1);
  memcpy(to, from, length);
  to[length] = '\0';
}

void program_name(char* to, size_t room) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return copy_text(to, room, "?");
  path[length] = '\0';
  const char* slash = strrchr(path, '/');
  copy_text(to, room, slash != nullptr ? slash + 1 : path);
}

bool user_asked() {
  return environment("LULL_SOCKET") != nullptr || environment("LULL_RUN") != nullptr;
}

void say_once(const char* what, const char* path, const char* cure) {
  if (!user_asked() && !environment_set("LULL_REQUIRE_COORDINATOR")) return;
  if (said.exchange(true, std::memory_order_relaxed)) return;
  say("lull: %s at %s: %s: %s", what, path,
      environment_set("LULL_REQUIRE_COORDINATOR") ? "a coordinator is required"
                                                  : "running unscheduled",
      cure);
}

// ---- the socket ------------------------------------------------------------------------------

// True: the descriptor is still the socket we opened, not something the program put there.
bool owns_descriptor(const Attachment& link) {
  struct stat now;
  return link.fd >= 0 && channel::file_status(link.fd, now) && now.st_dev == link.fd_device &&
         now.st_ino == link.fd_inode;
}

int move_high(int fd) {
  rlimit files;
  int floor = kHighDescriptor;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur <= kHighDescriptor + 100) {
    floor = files.rlim_cur > 64 ? static_cast<int>(files.rlim_cur) - 32 : 3;
  }
  const int high = fcntl(fd, F_DUPFD_CLOEXEC, floor);
  if (high < 0) return fd;
  close(fd);
  return high;
}

// Waits for the descriptor. What has come while the patience ran out counts.
bool readable_within(int fd, Patience& patience) {
  for (;;) {
    const uint64_t left_ns = patience.left_ns(channel::monotonic_ns());
    const uint64_t slice_ns = std::min(left_ns, kSliceNs);
    pollfd wait{fd, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>((slice_ns + 999'999) / 1'000'000));
    if (ready > 0) return true;
    if (left_ns == 0 || (ready < 0 && errno != EINTR)) return false;
  }
}

bool connect_within(int fd, const char* path, Patience& patience) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  static_assert(sizeof address.sun_path == channel::kSocketPathBytes);
  strcpy(address.sun_path, path);
  while (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    // EAGAIN: the listener's queue is full.
    if (errno != EAGAIN && errno != EINTR) return false;
    if (patience.left_ns(channel::monotonic_ns()) == 0) return false;
    const timespec pause{0, 2'000'000};
    nanosleep(&pause, nullptr);
  }
  return true;
}

// Hello out, welcome and region in. Null: the reason has been said.
Attachment* handshake(int fd, const char* path, Patience& patience, bool first) {
  channel::lull_hello hello{};
  hello.magic = channel::kMagic;
  hello.version = channel::kVersion;
  hello.priority = asked_priority();
  hello.timing = asked_timing();
  ask_for_bound(hello);
  const uint64_t limit = own_memory_limit_bytes();
  hello.memory_limit = limit == UINT64_MAX ? 0 : limit;
  // Memory that was allocated outside the arena stays outside: a process that began as one that cannot
  // be moved is one.
  hello.moves = !moves_decided || can_move.load(std::memory_order_relaxed) ? asked_moves() : 0;
  hello.uncounted = first ? 0 : 1;
  copy_text(hello.name, sizeof hello.name, environment("LULL_NAME"));
  copy_text(hello.job, sizeof hello.job, environment("LULL_JOB"));
  program_name(hello.program, sizeof hello.program);
  if (send(fd, &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof hello ||
      !readable_within(fd, patience)) {
    say_once("no answer from the coordinator", path, "look at its log, or restart it");
    return nullptr;
  }
  channel::lull_welcome welcome{};
  iovec part{&welcome, sizeof welcome};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  int memory = -1;
  if (got >= 0) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t n = 0; n < count; ++n) {
        int descriptor;
        memcpy(&descriptor, CMSG_DATA(c) + n * sizeof(int), sizeof descriptor);
        if (memory < 0) {
          memory = descriptor;
        } else {
          close(descriptor);
        }
      }
    }
  }
  welcome.message[sizeof welcome.message - 1] = '\0';
  const bool whole = got == static_cast<ssize_t>(sizeof welcome) &&
                     welcome.magic == channel::kMagic;
  if (!whole || welcome.version != channel::kVersion ||
      welcome.status == channel::kWelcomeVersion) {
    say_once("a coordinator of another version", path, "restart lulld after an upgrade");
    if (memory >= 0) close(memory);
    return nullptr;
  }
  if (welcome.status != channel::kWelcomeOk && welcome.status != channel::kWelcomeClamped) {
    say_once(welcome.message[0] != '\0' ? welcome.message : "refused by the coordinator", path,
             "see lull status");
    if (memory >= 0) close(memory);
    return nullptr;
  }
  void* base = MAP_FAILED;
  if (memory >= 0 && welcome.region_bytes == channel::kRegionBytes &&
      channel::is_sealed_memory(memory, channel::kRegionBytes)) {
    base = mmap(nullptr, channel::kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  }
  if (memory >= 0) close(memory);
  if (base == MAP_FAILED) {
    say_once("no usable memory from the coordinator", path, "restart lulld");
    return nullptr;
  }
  channel::Region region{static_cast<char*>(base)};
  if (region.header()->magic != channel::kMagic || region.header()->version != channel::kVersion ||
      region.header()->region_bytes != channel::kRegionBytes) {
    munmap(base, channel::kRegionBytes);
    say_once("a coordinator of another version", path, "restart lulld after an upgrade");
    return nullptr;
  }
  auto* link = static_cast<Attachment*>(map_pages(sizeof(Attachment)));
  if (link == nullptr) {
    munmap(base, channel::kRegionBytes);
    return nullptr;
  }
  link->region = region;
  link->control = region.control();
  link->client = region.client();
  decide_moves(welcome.moves);
  if (welcome.message[0] != '\0' && !said.exchange(true, std::memory_order_relaxed)) {
    say(strncmp(welcome.message, "lull:", 5) == 0 ? "%s" : "lull: %s", welcome.message);
  }
  return link;
}

// ---- threads ---------------------------------------------------------------------------------

void thread_ends(void*) {
  ThreadState& thread = thread_state;
  end_all_uses(thread);
  leave_timing(thread);
  release_per_thread_stream(thread);
  captures_of_thread_gone(thread);
  leave_call_sites(thread);
  Attachment* link = thread.attachment;
  if (link == nullptr) return;
  thread.attachment = nullptr;
  if (thread.shares_slot) return;
  channel::vacate_thread(*thread.slot);
  link->threads_taken.fetch_and(~(uint64_t{1} << thread.slot_index), std::memory_order_release);
}

void take_slot(ThreadState& thread, Attachment& link) {
  uint64_t taken = link.threads_taken.load(std::memory_order_relaxed);
  uint32_t slot = kSharedSlot;
  for (;;) {
    const uint64_t free = ~taken & ~(uint64_t{1} << kSharedSlot);
    if (free == 0) break;
    const uint32_t lowest = static_cast<uint32_t>(__builtin_ctzll(free));
    // Acquire: pairs with the release of the thread that left the slot.
    if (link.threads_taken.compare_exchange_weak(taken, taken | (uint64_t{1} << lowest),
                                                 std::memory_order_acquire,
                                                 std::memory_order_relaxed)) {
      slot = lowest;
      break;
    }
  }
  thread.shares_slot = slot == kSharedSlot;
  thread.slot_index = slot;
  thread.slot = link.region.thread(slot);
  thread.ring = link.region.ring(slot);
  thread.cached_tail = 0;
  thread.last_sample = 0;
  thread.window.left = 0;
  channel::occupy_thread(*thread.slot, static_cast<uint32_t>(syscall(SYS_gettid)));
  thread.attachment = &link;
  register_thread_end(thread);
}

// ---- fork ------------------------------------------------------------------------------------

void before_fork() {
  attach_lock.lock();
  lock_identity();
  lock_streams();
  lock_memory();
  lock_devices();
  lock_timer();
  lock_arena();
  lock_live_contexts();
  lock_captures();
}
void after_fork() {
  unlock_captures();
  unlock_live_contexts();
  unlock_arena();
  unlock_timer();
  unlock_devices();
  unlock_memory();
  unlock_streams();
  unlock_identity();
  attach_lock.unlock();
}
void in_child() {
  Attachment* link = attachment.load(std::memory_order_relaxed);
  if (link != nullptr && owns_descriptor(*link)) close(link->fd);
  attachment.store(nullptr, std::memory_order_relaxed);
  may_attach.store(false, std::memory_order_relaxed);
  ThreadState& thread = thread_state;
  const bool registered = thread.exit_registered;
  thread = ThreadState{};
  thread.exit_registered = registered;
  can_move.store(false, std::memory_order_relaxed);
  moves_decided = false;
  after_fork();
  forget_memory_gate();
  forget_service();
  forget_timing();
  forget_all_memory();
  forget_arena();
  forget_streams();
  forget_captures();
  forget_call_sites();
}

// ---- attach, detach --------------------------------------------------------------------------

// Under attach_lock.
Attachment* attach(uint64_t bound_ns) {
  KeepErrno keep;
  Cancellation off;
  const uint64_t began_ns = channel::monotonic_ns();
  Patience patience(bound_ns, began_ns);
  const bool first = !attach_attempted.exchange(true, std::memory_order_relaxed);
  next_attempt_ns.store(began_ns + bound_ns + kRetryNs, std::memory_order_relaxed);
  if (!place_settled) place = channel::socket_place();
  if (!place.fits) {
    say_once("no coordinator", "a socket path that is too long", "pass a shorter --socket");
    return nullptr;
  }
  if (!prepared.load(std::memory_order_relaxed)) {
    if (pthread_key_create(&thread_key, thread_ends) != 0) return nullptr;
    if (pthread_atfork(before_fork, after_fork, in_child) != 0) return nullptr;
    prepared.store(true, std::memory_order_relaxed);
  }
  const channel::TrustFacts facts = channel::trust_facts(place.path);
  channel::Distrust distrust = channel::judge_place(facts);
  const auto refuse = [&] {
    say_once(channel::what_is_wrong(distrust), place.path, channel::what_to_do(facts, distrust));
    return nullptr;
  };
  if (distrust != channel::Distrust::kNone) return refuse();
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return nullptr;
  if (!connect_within(fd, place.path, patience)) {
    close(fd);
    say_once("no coordinator", place.path, "start lulld or pass --socket");
    return nullptr;
  }
  distrust = channel::judge_connection(facts, fd);
  if (distrust != channel::Distrust::kNone) {
    close(fd);
    return refuse();
  }
  Attachment* link = handshake(fd, place.path, patience, first);
  if (link == nullptr) {
    close(fd);
    return nullptr;
  }
  place_settled = true;
  attachment_made.store(true, std::memory_order_release);
  link->fd = move_high(fd);
  struct stat identity;
  if (channel::file_status(link->fd, identity)) {
    link->fd_device = identity.st_dev;
    link->fd_inode = identity.st_ino;
  }
  ask_for_call_sites();
  republish_kernels(*link);
  republish_devices(*link);
  // Release: pairs with the acquire in `enter`.
  attachment.store(link, std::memory_order_release);
  // Again, for what other threads learnt while nobody was attached.
  republish_kernels(*link);
  return link;
}

void detach(Attachment& link) {
  if (link.gone.exchange(1, std::memory_order_acq_rel) != 0) return;
  KeepErrno keep;
  channel::publish_detached(link.region);
  Attachment* expected = &link;
  attachment.compare_exchange_strong(expected, nullptr, std::memory_order_acq_rel);
  next_attempt_ns.store(channel::monotonic_ns() + kRetryNs, std::memory_order_relaxed);
  if (owns_descriptor(link)) close(link.fd);
  // All held threads look again; the region is ours to write even when the daemon is dead.
  futex_wake(&link.control->wake_sequence, INT32_MAX, false);
}

// Tells the daemon what it cannot see from the records alone.
void announce(ThreadState& thread, Attachment& link) {
  announce_memory(thread, link);
  ring_doorbell(link);
}

}  // namespace

CUresult attach_at_init() {
  if (!shim_enabled()) return CUDA_SUCCESS;
  const bool required = environment_set("LULL_REQUIRE_COORDINATOR");
  ThreadState& thread = thread_state;
  may_attach.store(true, std::memory_order_relaxed);
  Attachment* link = attachment.load(std::memory_order_acquire);
  if (link == nullptr) {
    Locked locked(attach_lock);
    link = attachment.load(std::memory_order_acquire);
    if (link == nullptr) link = attach(required ? kRequiredAttachNs : kFirstAttachNs);
    decide_moves(/*granted=*/0);
  }
  if (link != nullptr) {
    if (thread.attachment != link) take_slot(thread, *link);
    announce(thread, *link);
    return CUDA_SUCCESS;
  }
  return required ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_SUCCESS;
}

Attachment* enter_slowly(ThreadState& thread) {
  Attachment* now = attachment.load(std::memory_order_acquire);
  if (now == nullptr) {
    if (!may_attach.load(std::memory_order_relaxed) || !shim_enabled()) return nullptr;
    if (channel::monotonic_ns() < next_attempt_ns.load(std::memory_order_relaxed)) return nullptr;
    if (!attach_lock.try_lock()) return nullptr;
    now = attachment.load(std::memory_order_acquire);
    if (now == nullptr) {
      now = attach(attach_attempted.load(std::memory_order_relaxed) ? kLaterAttachNs : kFirstAttachNs);
    }
    attach_lock.unlock();
    if (now == nullptr) return nullptr;
    take_slot(thread, *now);
    announce(thread, *now);
    return now;
  }
  take_slot(thread, *now);
  return now;
}

void register_thread_end(ThreadState& thread) {
  if (thread.exit_registered || !prepared.load(std::memory_order_relaxed)) return;
  thread.exit_registered = true;
  pthread_setspecific(thread_key, &thread);
}

const char* coordinator_path() {
  return attachment_made.load(std::memory_order_acquire) ? place.path : nullptr;
}

bool still_there(Attachment& link) {
  if (link.gone.load(std::memory_order_acquire) != 0) return false;
  KeepErrno keep;
  Cancellation off;
  if (owns_descriptor(link)) {
    char byte;
    const ssize_t got = recv(link.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) {
      return true;
    }
  }
  detach(link);
  return false;
}

void look_now_and_then(Attachment& link) {
  static std::atomic<uint64_t> next_look_ns;
  const uint64_t now = channel::monotonic_ns();
  uint64_t due = next_look_ns.load(std::memory_order_relaxed);
  if (now < due) return;
  if (!next_look_ns.compare_exchange_strong(due, now + 50'000'000, std::memory_order_relaxed)) return;
  still_there(link);
}

void say_unknown_device(Attachment& link) {
  const uint32_t unknown = channel::unknown_devices(*link.control);
  const uint32_t index =
      unknown == 0 ? channel::kMaxDevices : static_cast<uint32_t>(__builtin_ctz(unknown));
  if (index >= channel::kMaxDevices || !user_asked()) return;
  if (said.exchange(true, std::memory_order_relaxed)) return;
  say("lull: device %u is none that the coordinator knows: running unscheduled there: see lull "
      "status",
      link.client->device[index].ordinal);
}

void ring_doorbell_slowly(Attachment& link) {
  // A thread cancelled between taking the doorbell and ringing it would leave the daemon asleep.
  Cancellation off;
  if (!channel::take_doorbell(*link.control)) return;
  KeepErrno keep;
  look_for_unknown_device(link);
  if (!owns_descriptor(link)) return detach(link);
  const char byte = '!';
  if (send(link.fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
      (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)) {
    detach(link);
  }
}

bool push_shared(ThreadState& thread, Attachment& link, const channel::lull_record& record) {
  Locked locked(link.shared_lock);
  return channel::push_record(*thread.slot, thread.ring, record);
}

uint32_t ring_room(ThreadState& thread, Attachment& link) {
  if (!thread.shares_slot) return channel::ring_room(*thread.slot);
  Locked locked(link.shared_lock);
  return channel::ring_room(*thread.slot);
}

void count_shared(ThreadState& thread, Attachment& link, Counter counter, uint64_t amount) {
  Locked locked(link.shared_lock);
  channel::add_count(counter_word(*thread.slot, counter), amount);
}

uint64_t own_memory_limit_bytes() {
  static std::atomic<uint64_t> known;  // 0: not read yet
  uint64_t limit = known.load(std::memory_order_relaxed);
  if (limit != 0) return limit;
  limit = UINT64_MAX;
  if (const char* text = environment("LULL_MEMORY")) {
    // By hand: newer C libraries give strtoull another symbol version.
    uint64_t bytes = 0;
    for (; *text >= '0' && *text <= '9'; ++text) {
      bytes = bytes * 10 + static_cast<uint64_t>(*text - '0');
    }
    const char* units = "KMGT";
    const char* unit = *text != '\0' ? strchr(units, *text & ~0x20) : nullptr;
    const unsigned shift = unit != nullptr ? 10 * static_cast<unsigned>(unit - units + 1) : 0;
    if (bytes != 0) limit = bytes << shift;
  }
  known.store(limit, std::memory_order_relaxed);
  return limit;
}

bool memory_limit_is_the_jobs() {
  static std::atomic<uint32_t> known;
  uint32_t state = known.load(std::memory_order_relaxed);
  if (state == 0) {
    state = environment("LULL_JOB") != nullptr ? 2 : 1;
    known.store(state, std::memory_order_relaxed);
  }
  return state == 2;
}

}  // namespace lull::shim
