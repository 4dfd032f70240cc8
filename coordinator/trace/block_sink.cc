#include "coordinator/trace/block_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lull::trace {
namespace {

// While it lives no signal is handled on this thread: SIGXFSZ of a full quota becomes an error of
// write, and a thread begun under it takes none of the program's signals.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

// 0, or the errno that ended it.
int write_all(int fd, const uint8_t* data, size_t size) {
  while (size != 0) {
    const ssize_t done = ::write(fd, data, size);
    if (done < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (done == 0) return ENOSPC;
    data += done;
    size -= static_cast<size_t>(done);
  }
  return 0;
}

const char* advice(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free space, or name a file on another disk";
    case EFBIG:
      return "raise the limit of file sizes (ulimit -f)";
    case EEXIST:
      return "name another, or remove it";
    default:
      return "name a file that can be written";
  }
}

}  // namespace

std::expected<std::unique_ptr<BlockSink>, std::string> BlockSink::create(const std::string& path,
                                                                         FileKind kind) {
  const auto fail = [&](const std::string& why, int error) {
    return std::unexpected(fmt::format("cannot write {}: {}: {}", path, why, advice(error)));
  };
  // Not truncated: an existing recording is never lost to a mistyped name.
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
  if (fd < 0) return fail(strerror(errno), errno);
  struct stat about;
  if (::fstat(fd, &about) != 0 || !(S_ISREG(about.st_mode) || S_ISCHR(about.st_mode))) {
    ::close(fd);
    return fail("it is no file", 0);
  }
  if (about.st_size != 0) {
    ::close(fd);
    return fail("it is there already", EEXIST);
  }
  const std::vector<uint8_t> head = file_head(kind);
  int error = 0;
  {
    NoSignals guard;
    error = write_all(fd, head.data(), head.size());
  }
  if (error != 0) {
    if (::ftruncate(fd, 0) != 0) { /* no regular file */
    }
    ::close(fd);
    return fail(strerror(error), error);
  }
  return std::unique_ptr<BlockSink>(new BlockSink(path, fd));
}

BlockSink::BlockSink(std::string path, int fd)
    : path_(std::move(path)), fd_(fd), bytes_(kFileHeadBytes) {
  NoSignals guard;
  thread_ = std::thread([this] { run(); });
}

BlockSink::~BlockSink() {
  {
    std::lock_guard hold(lock_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  ::close(fd_);
}

void BlockSink::push(BlockType type, std::vector<uint8_t> raw, uint64_t records) {
  {
    std::lock_guard hold(lock_);
    waiting_.fetch_add(raw.size(), std::memory_order_relaxed);
    queue_.push_back({type, std::move(raw), records});
  }
  changed_.notify_all();
}

void BlockSink::wait_for_room() {
  if (has_room()) return;
  std::unique_lock hold(lock_);
  changed_.wait(hold, [this] { return has_room() || has_failed(); });
}

void BlockSink::wait_for_all() {
  std::unique_lock hold(lock_);
  changed_.wait(hold, [this] { return queue_.empty() && !busy_; });
}

std::string BlockSink::failure() const {
  if (!has_failed()) return {};
  std::lock_guard hold(lock_);
  return failure_;
}

void BlockSink::run() {
  std::unique_lock hold(lock_);
  for (;;) {
    changed_.wait(hold, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Block block = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    hold.unlock();
    if (!has_failed()) append(block.type, block.raw);
    if (has_failed()) lost_records_.fetch_add(block.records, std::memory_order_relaxed);
    hold.lock();
    busy_ = false;
    waiting_.fetch_sub(block.raw.size(), std::memory_order_relaxed);
    changed_.notify_all();
  }
}

void BlockSink::append(BlockType type, const std::vector<uint8_t>& raw) {
  const auto packed = packer_.pack(type, raw);
  if (packed.empty()) return fail("no memory: free some");
  const int error = write_all(fd_, packed.data(), packed.size());
  if (error == 0) {
    bytes_.fetch_add(packed.size(), std::memory_order_relaxed);
    return;
  }
  if (::ftruncate(fd_, static_cast<off_t>(bytes())) != 0) { /* then the reader finds it cut */
  }
  fail(fmt::format("{}: {}", strerror(error), advice(error)));
}

void BlockSink::fail(const std::string& why) {
  {
    std::lock_guard hold(lock_);
    failure_ = fmt::format("cannot write {}: {}", path_, why);
    failed_.store(true, std::memory_order_relaxed);
  }
  changed_.notify_all();
}

}  // namespace lull::trace
