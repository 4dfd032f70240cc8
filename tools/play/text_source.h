// The text of a file, plain or gzip, read in pieces: traces of a gigabyte are never held whole.
// Used by the readers of workloads and traces, from one thread. Does not parse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lull::play {

class TextSource {
 public:
  static constexpr uint64_t kMaxTextBytes = 16ULL << 30;

  // The error says why in half a line ("no such file", "is a folder").
  static std::expected<std::unique_ptr<TextSource>, std::string> open(const std::string& path);
  ~TextSource();
  TextSource(const TextSource&) = delete;
  TextSource& operator=(const TextSource&) = delete;

  // Called for each piece that is read, with the part of the file that has been, 0 to 1.
  void watch(std::function<void(double)> each_piece) { watcher_ = std::move(each_piece); }

  // What is buffered and not yet taken; the first piece of the file right after opening.
  std::string_view buffered() const { return {buffer_.data() + position_, filled_ - position_}; }
  // The rest of the file, or an error when it is damaged or longer than `max_bytes`.
  std::expected<std::string, std::string> read_all(size_t max_bytes);

  bool at_end() { return position_ == filled_ && !fill(); }
  char current() const { return buffer_[position_]; }
  void advance() { ++position_; }
  // Why reading stopped early (damaged gzip, I/O error); empty when all went well.
  const std::string& error() const { return error_; }

  // Input iterator for the JSON parser; all copies share one position.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;
    Iterator() = default;
    explicit Iterator(TextSource* source) : source_(source) {}
    reference operator*() const { return source_->buffer_[source_->position_]; }
    Iterator& operator++() {
      source_->advance();
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      source_->advance();
      return before;
    }
    bool operator==(const Iterator& other) const { return ended() == other.ended(); }
    bool operator!=(const Iterator& other) const { return !(*this == other); }

   private:
    bool ended() const { return source_ == nullptr || source_->at_end(); }
    TextSource* source_ = nullptr;
  };
  Iterator begin() { return Iterator(this); }
  Iterator end() { return Iterator(); }

 private:
  TextSource() = default;
  bool fill();

  void* file_ = nullptr;  // gzFile
  std::vector<char> buffer_;
  size_t position_ = 0, filled_ = 0;
  uint64_t total_bytes_ = 0, file_bytes_ = 0;
  std::function<void(double)> watcher_;
  std::string error_;
};

}  // namespace lull::play
