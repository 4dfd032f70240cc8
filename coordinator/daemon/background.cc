#include "coordinator/daemon/background.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "coordinator/daemon/file_descriptor.h"

namespace lull::daemon {

struct Background::Shared {
  FileDescriptor ended{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> work;
  std::vector<Then> done;
  bool running = false;
  bool stopping = false;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || !work.empty(); });
      if (stopping) break;
      const Work next = std::move(work.front());
      work.pop_front();
      lock.unlock();
      Then then;
      try {
        then = next();
      } catch (const std::exception&) {
        // Out of memory: who waits for it is told nothing, and gives up.
      }
      lock.lock();
      done.push_back(std::move(then));
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t told = ::write(ended.get(), &one, sizeof one);
    }
    running = false;
    changed.notify_all();
  }
};

Background::Background() : shared_(std::make_shared<Shared>()) {}

Background::~Background() {
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, std::chrono::seconds(1), [&] { return !shared_->running; });
}

bool Background::post(Work work) {
  const std::lock_guard lock(shared_->mutex);
  if (!shared_->ended) return false;
  if (!shared_->running) {
    try {
      // Detached: it holds what it needs, and nobody can wait for a driver that hangs.
      std::thread([shared = shared_] { shared->run(); }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    shared_->running = true;
  }
  shared_->work.push_back(std::move(work));
  shared_->changed.notify_all();
  ++waiting_;
  return true;
}

int Background::fd() const { return shared_->ended.get(); }

void Background::finish() {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = ::read(shared_->ended.get(), &count, sizeof count);
  std::vector<Then> done;
  {
    const std::lock_guard lock(shared_->mutex);
    done.swap(shared_->done);
  }
  for (const Then& then : done) {
    --waiting_;
    if (then) then();
  }
}

void Background::wait(int most_ms) const {
  pollfd ended{shared_->ended.get(), POLLIN, 0};
  ::poll(&ended, 1, most_ms);
}

}  // namespace lull::daemon
