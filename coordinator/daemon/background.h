// Work that may wait (a disk, a driver) on a thread of its own, so that the loop never does. Posted
// by the loop thread; what follows is handed back to it:
//
//   post(work) --> thread: then = work() --> fd readable --> loop thread: finish() --> then()
//
// In order, one at a time. Work must not touch what belongs to the loop; `then` may.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace lull::daemon {

class Background {
 public:
  using Then = std::function<void()>;
  using Work = std::function<Then()>;

  // Errors: no descriptor left; then every `post` says no.
  Background();
  // Waits a second for what is being done; a thread that hangs is left to the end of the process.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // False: it cannot be done at all. The thread begins with the first work.
  bool post(Work work);
  // Posted and not finished.
  size_t waiting() const { return waiting_; }
  // Readable when there is something to finish; -1: none.
  int fd() const;
  // Does what follows from the work that is done.
  void finish();
  // Waits until something can be finished, at most so long.
  void wait(int most_ms) const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  size_t waiting_ = 0;
};

}  // namespace lull::daemon
