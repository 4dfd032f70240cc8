// The text of a file, plain or gzip, read in pieces: traces of a gigabyte are never held whole.
// Used by the readers of workloads and traces, from one thread; a thread of its own reads, and
// unpacks, kAhead pieces ahead of it. Does not parse.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <expected>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace lull::play {

class TextSource {
 public:
  static constexpr uint64_t kMaxTextBytes = 16ULL << 30;
  static constexpr size_t kPieceBytes = 256UL << 10;
  static constexpr size_t kAhead = 8;

  // The error says why in half a line ("no such file", "is a folder").
  static std::expected<std::unique_ptr<TextSource>, std::string> open(const std::string& path);
  ~TextSource();
  TextSource(const TextSource&) = delete;
  TextSource& operator=(const TextSource&) = delete;

  // Called for each piece that is taken, with the part of the file that has been read, 0 to 1.
  void watch(std::function<void(double)> each_piece) { watcher_ = std::move(each_piece); }

  // The rest of the file, or an error when it is damaged or longer than `max_bytes`.
  std::expected<std::string, std::string> read_all(size_t max_bytes);

  // What is there of the text, from `passed` bytes on; stands until the next `more`. Right after
  // opening the first piece of the file.
  std::string_view window() const { return {buffer_.data() + position_, filled_ - position_}; }
  // Gives up so many bytes of the window and reads on behind the rest. False: there is no more.
  bool more(size_t give_up);
  uint64_t passed() const { return passed_bytes_; }

  // Why reading stopped early (damaged gzip, I/O error); empty when all went well. After `more` has
  // said that there is no more.
  const std::string& error() const { return error_; }

 private:
  struct Piece {
    std::vector<char> bytes;  // none: the end
    double share = 0;         // of the file, read so far
    std::string error;
  };

  TextSource() = default;
  void read_ahead(const std::stop_token& stop);
  Piece read_piece();

  // The reading thread's own.
  void* file_ = nullptr;  // gzFile
  uint64_t total_bytes_ = 0, file_bytes_ = 0;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Piece> ahead_;  // under the mutex

  std::vector<char> buffer_;
  size_t position_ = 0, filled_ = 0;  // the window
  uint64_t passed_bytes_ = 0;
  bool ended_ = false;
  std::function<void(double)> watcher_;
  std::string error_;
  std::jthread reader_;  // last: it ends before what it uses
};

}  // namespace lull::play
