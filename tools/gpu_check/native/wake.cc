#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "tools/gpu_check/native/probes.h"

namespace lull::probe {

using nlohmann::json;

namespace {

constexpr int kRounds = 2000;
constexpr uint64_t kThink_ns = 100'000;

struct Shared {
  std::atomic<uint32_t> asked, answered;
  std::atomic<uint64_t> woken_ns;
};

void think(uint64_t ns) {
  const uint64_t until = channel::monotonic_ns() + ns;
  while (channel::monotonic_ns() < until) {
  }
}

json spread(const std::vector<double>& ns) {
  return {{"p50", median(ns)}, {"p90", quantile(ns, 0.9)}, {"p99", quantile(ns, 0.99)}};
}

// One way, in ns: from before the parent's call to the child's first look at the clock.
template <typename Wait, typename Wake>
std::vector<double> one_way(Shared& shared, uint64_t think_ns, Wait&& wait, Wake&& wake) {
  shared.asked = 0;
  shared.answered = 0;
  const pid_t child = fork();
  if (child < 0) throw NotHere{"cannot fork"};
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (uint32_t round = 1; round <= kRounds; ++round) {
      wait(round);
      shared.woken_ns.store(channel::monotonic_ns(), std::memory_order_relaxed);
      shared.answered.store(round, std::memory_order_release);  // pairs with the parent's acquire
    }
    _exit(0);
  }
  std::vector<double> ns;
  for (uint32_t round = 1; round <= kRounds; ++round) {
    think(think_ns);
    const uint64_t start = channel::monotonic_ns();
    shared.asked.store(round, std::memory_order_release);  // pairs with the child's acquire
    wake();
    while (shared.answered.load(std::memory_order_acquire) != round) {
    }
    ns.push_back(static_cast<double>(shared.woken_ns.load(std::memory_order_relaxed) - start));
  }
  waitpid(child, nullptr, 0);
  return ns;
}

}  // namespace

json probe_wake() {
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) throw NotHere{"one processor: nobody to wake on another"};
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw NotHere{"no shared memory"};
  auto& shared = *new (page) Shared{};
  auto* word = reinterpret_cast<uint32_t*>(&shared.asked);
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) throw NotHere{"no sockets"};

  const auto spin = [&](uint32_t round) {
    while (shared.asked.load(std::memory_order_acquire) != round) {
    }
  };
  const auto sleep = [&](uint32_t round) {
    for (uint32_t seen; (seen = shared.asked.load(std::memory_order_acquire)) != round;) {
      syscall(SYS_futex, word, FUTEX_WAIT, seen, nullptr, nullptr, 0);
    }
  };
  const auto receive = [&](uint32_t) {
    char byte;
    (void)!read(ends[1], &byte, 1);
  };
  const json answer = {
      {"unit", "ns one way"},
      {"rounds", kRounds},
      {"think_ns", kThink_ns},
      {"store_seen_by_a_spinner", spread(one_way(shared, 0, spin, [] {}))},
      {"futex_wake",
       spread(one_way(shared, kThink_ns, sleep,
                      [&] { syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0); }))},
      {"socket_message",
       spread(one_way(shared, kThink_ns, receive, [&] { (void)!write(ends[0], "x", 1); }))}};
  close(ends[0]);
  close(ends[1]);
  munmap(page, 4096);
  return answer;
}

}  // namespace lull::probe
