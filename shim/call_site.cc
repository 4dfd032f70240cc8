#include "shim/call_site.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shim/driver.h"
#include "shim/kernel_identity.h"
#include "shim/system.h"

extern "C" {
// The linker's: this library's code lies between.
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _DYNAMIC[] __attribute__((visibility("hidden")));
}

namespace lull::shim {

std::atomic<CallSites> call_sites;

namespace {

constexpr uint32_t kOwnFrames = 2;  // call_site and the hook
constexpr uint32_t kWalked = kCallSiteFrames + kOwnFrames;

// A walk as it was: where on the stack each return address was, and which. Seen again from the same
// place with the same words in the same places, it is the same walk: a frame's extent follows from
// its return address, so each word vouches for where the next one is. All of it lies above `here`
// on a stack that is in use, so looking is safe whatever the program has done to it.
struct Walk {
  uintptr_t here;  // 0: free
  uint32_t site;
  uint32_t frames;
  uint32_t offset[kWalked];  // from `here`
  uintptr_t address[kWalked];
};

struct KnownSite {
  uint64_t hash;
  uint32_t site;
};

}  // namespace

// Of one thread; zero pages until used.
struct SiteCache {
  static constexpr uint32_t kSets = 256;
  static constexpr uint32_t kWays = 4;
  static constexpr uint32_t kKnown = 1024;
  uintptr_t stack_low;  // with kStackNeeded added
  uintptr_t stack_high;
  bool unwinding;
  uint32_t misses;
  Walk walk[kSets][kWays];
  KnownSite known[kKnown];
};

namespace {

// What is kept of walks when their number exceeds the cache: one in so many, or each miss would pay
// for remembering.
constexpr uint32_t kMissesAllKept = 4096;
constexpr uint32_t kMissesPerKept = 16;
constexpr size_t kTextBytes = 3900;
constexpr size_t kPathBytes = 512;

// libunwind as far as it is used. The cursor and the context are its own; they are given more room
// than any version of it takes.
struct Unwinder {
  int (*backtrace)(void**, int);
  int (*get_context)(void*);
  int (*init_local)(void*, void*);
  int (*step)(void*);
  int (*get_reg)(void*, int, uintptr_t*);
};
Unwinder unwinder_calls;
std::atomic<const Unwinder*> unwinder;
#if defined(__x86_64__)
constexpr bool kRemembersWalks = true;  // the return address is the word below the caller's frame
constexpr int kRegisterIp = 16;
constexpr int kRegisterSp = 7;
#else
constexpr bool kRemembersWalks = false;
constexpr int kRegisterIp = 0;
constexpr int kRegisterSp = 0;
#endif
constexpr size_t kUnwinderWords = 1024;
std::atomic<bool> opening;

bool is_own(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  return at >= reinterpret_cast<uintptr_t>(__ehdr_start) && at < reinterpret_cast<uintptr_t>(_DYNAMIC);
}

// Once in a process; another thread that comes meanwhile goes without.
const Unwinder* open_libunwind() {
  if (opening.exchange(true, std::memory_order_acq_rel)) return nullptr;
  Cancellation off;
  KeepErrno keep;
  void* library = dlopen("libunwind.so.8", RTLD_LOCAL | RTLD_LAZY);
  const auto find = [&]<typename F>(F& out, const char* name) {
    out = library == nullptr ? nullptr : reinterpret_cast<F>(lull_real_dlsym()(library, name));
  };
  Unwinder& calls = unwinder_calls;
  find(calls.backtrace, "unw_backtrace");
  find(calls.get_context, "_Ux86_64_getcontext");
  find(calls.init_local, "_ULx86_64_init_local");
  find(calls.step, "_ULx86_64_step");
  find(calls.get_reg, "_ULx86_64_get_reg");
  if (calls.backtrace == nullptr) {
    call_sites.store(CallSites::kOff, std::memory_order_relaxed);
    if (environment_set("LULL_VERBOSE")) {
      say("lull: no call sites: libunwind.so.8 cannot be opened: install libunwind8");
    }
    return nullptr;
  }
  unwinder.store(&calls, std::memory_order_release);
  call_sites.store(CallSites::kOn, std::memory_order_relaxed);
  return &calls;
}

SiteCache* make_cache(ThreadState& thread) {
  Cancellation off;
  KeepErrno keep;
  auto* cache = static_cast<SiteCache*>(map_pages(sizeof(SiteCache)));
  if (cache == nullptr) return nullptr;
  // Left empty when it cannot be known: then no stack is this thread's own.
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    void* low = nullptr;
    size_t bytes = 0;
    if (pthread_attr_getstack(&attributes, &low, &bytes) == 0) {
      cache->stack_low = reinterpret_cast<uintptr_t>(low) + kStackNeeded;
      cache->stack_high = reinterpret_cast<uintptr_t>(low) + bytes;
    }
    pthread_attr_destroy(&attributes);
  }
  thread.sites = cache;
  return cache;
}

// Independent products, as in shape_hash.
uint64_t hash_of(void* const* frames, uint32_t count) {
  uint64_t hash = count;
  uint64_t factor = 0x9e3779b97f4a7c15ULL;
  for (uint32_t n = 0; n < count; ++n, factor += 0x6a09e667f3bcc90aULL) {
    const uint64_t word = reinterpret_cast<uint64_t>(frames[n]);
    hash += (word ^ (word << 29)) * factor;
  }
  hash ^= hash >> 32;
  return hash != 0 ? hash : 1;
}

uint32_t set_of(uintptr_t here) {
  return static_cast<uint32_t>((here * 0x9e3779b97f4a7c15ULL) >> 56);
}
static_assert(SiteCache::kSets == 256);

size_t put_hex(char* to, uint64_t value) {
  char digits[16];
  size_t count = 0;
  do digits[count++] = "0123456789abcdef"[value & 15];
  while ((value >>= 4) != 0);
  for (size_t n = 0; n < count; ++n) to[n] = digits[count - 1 - n];
  return count;
}

// "path+0xoffset;...": the offset, from the file's first byte in memory, of the call's last byte.
[[gnu::noinline]] uint32_t learn_site(void* const* frames, uint32_t count) {
  Cancellation off;
  KeepErrno keep;
  char text[kTextBytes + 1];
  size_t used = 0;
  char program[kPathBytes];
  const ssize_t got = readlink("/proc/self/exe", program, sizeof program);
  const size_t program_bytes = got > 0 && got < ssize_t{sizeof program} ? static_cast<size_t>(got) : 0;
  Dl_info main_program{};
  dladdr(reinterpret_cast<void*>(getauxval(AT_PHDR)), &main_program);
  for (uint32_t n = 0; n < count; ++n) {
    const auto at = reinterpret_cast<uintptr_t>(frames[n]) - 1;
    Dl_info info{};
    const char* path = "?";
    size_t path_bytes = 1;
    uint64_t offset = at;
    if (dladdr(reinterpret_cast<void*>(at), &info) != 0 && info.dli_fname != nullptr) {
      path = info.dli_fname;
      path_bytes = strnlen(path, kPathBytes);
      // The program is known to the loader by how it was called.
      if (info.dli_fbase == main_program.dli_fbase && program_bytes != 0) {
        path = program;
        path_bytes = program_bytes;
      }
      offset = at - reinterpret_cast<uintptr_t>(info.dli_fbase);
    }
    if (used + path_bytes + 24 > kTextBytes) break;
    if (used != 0) text[used++] = ';';
    for (size_t c = 0; c < path_bytes; ++c) {
      // What separates is not part of a path.
      text[used++] = path[c] == ';' ? '_' : path[c];
    }
    memcpy(text + used, "+0x", 3);
    used += 3;
    used += put_hex(text + used, offset);
  }
  text[used] = '\0';
  return used == 0 ? 0 : keep_call_site(text);
}

}  // namespace

namespace {

// The walk from call_site's frame on, with the places of its return addresses; false: it cannot be
// remembered. In a frame of its own: the context it takes is of that frame.
[[gnu::noinline]] bool remember(const Unwinder& calls, const SiteCache& cache, uintptr_t here,
                                Walk& walk) {
  if (!kRemembersWalks || calls.get_context == nullptr || calls.init_local == nullptr ||
      calls.step == nullptr || calls.get_reg == nullptr) {
    return false;
  }
  alignas(16) uintptr_t context[kUnwinderWords];
  alignas(16) uintptr_t cursor[kUnwinderWords];
  if (calls.get_context(context) < 0 || calls.init_local(cursor, context) < 0) return false;
  uint32_t frames = 0;
  while (frames < kWalked && calls.step(cursor) > 0) {
    uintptr_t ip = 0, sp = 0;
    if (calls.get_reg(cursor, kRegisterIp, &ip) < 0 || calls.get_reg(cursor, kRegisterSp, &sp) < 0) {
      return false;
    }
    if (ip == 0) break;
    const uintptr_t place = sp - sizeof(uintptr_t);
    if (place < here) continue;  // between here and call_site
    if (sp > cache.stack_high || place - here > UINT32_MAX) return false;
    if (*reinterpret_cast<const uintptr_t*>(place) != ip) return false;
    walk.offset[frames] = static_cast<uint32_t>(place - here);
    walk.address[frames] = ip;
    ++frames;
  }
  walk.frames = frames;
  return frames > 0;
}

// Asks libunwind; `here` is call_site's frame.
[[gnu::noinline]] uint32_t walk_slowly(const Unwinder& calls, SiteCache& cache, uintptr_t here) {
  if (cache.unwinding) return 0;  // by a signal, in the middle of this
  void* frames[kWalked + 1];
  cache.unwinding = true;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  // A thread cancelled inside would leave libunwind's locks taken.
  Cancellation off;
  const int walked = calls.backtrace(frames, kWalked + 1);
  uint32_t site = 0;
  uint32_t own = 0;
  const uint32_t count = walked <= 0 ? 0 : static_cast<uint32_t>(walked);
  while (own < count && is_own(frames[own])) ++own;
  if (own < count) {
    const uint32_t kept = count - own < kCallSiteFrames ? count - own : kCallSiteFrames;
    const uint64_t hash = hash_of(frames + own, kept);
    KnownSite& known = cache.known[hash % SiteCache::kKnown];
    if (known.hash != hash) {
      known.site = learn_site(frames + own, kept);
      known.hash = hash;
    }
    site = known.site;
    if (++cache.misses <= kMissesAllKept || cache.misses % kMissesPerKept == 0) {
      Walk fresh{};
      if (remember(calls, cache, here, fresh)) {
        fresh.site = site;
        fresh.here = here;
        cache.walk[set_of(here)][cache.misses % SiteCache::kWays] = fresh;
      }
    }
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
  cache.unwinding = false;
  return site;
}

}  // namespace

[[gnu::noinline]] uint32_t call_site(ThreadState& thread) {
  const Unwinder* calls = unwinder.load(std::memory_order_acquire);
  if (calls == nullptr) [[unlikely]] {
    calls = open_libunwind();
    if (calls == nullptr) return 0;
  }
  SiteCache* cache = thread.sites;
  if (cache == nullptr) [[unlikely]] {
    cache = make_cache(thread);
    if (cache == nullptr) return 0;
  }
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (here < cache->stack_low || here >= cache->stack_high) return 0;
  for (const Walk& walk : cache->walk[set_of(here)]) {
    if (walk.here != here) continue;
    uintptr_t differs = 0;
    for (uint32_t n = 0; n < walk.frames; ++n) {
      differs |= *reinterpret_cast<const uintptr_t*>(here + walk.offset[n]) ^ walk.address[n];
    }
    if (differs == 0) [[likely]] return walk.site;
  }
  return walk_slowly(*calls, *cache, here);
}

void ask_for_call_sites() {
  static std::atomic<bool> asked;
  if (asked.exchange(true, std::memory_order_relaxed)) return;
  if (environment_set("LULL_CALL_SITES")) {
    call_sites.store(CallSites::kWanted, std::memory_order_relaxed);
  }
}

void leave_call_sites(ThreadState& thread) {
  if (thread.sites == nullptr) return;
  munmap(thread.sites, sizeof(SiteCache));
  thread.sites = nullptr;
}

void forget_call_sites() {
  if (opening.load(std::memory_order_relaxed)) {
    call_sites.store(CallSites::kOff, std::memory_order_relaxed);
  }
}

}  // namespace lull::shim
