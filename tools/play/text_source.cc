#include "tools/play/text_source.h"

#include <sys/stat.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace lull::play {

std::expected<std::unique_ptr<TextSource>, std::string> TextSource::open(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) {
    return std::unexpected(errno == ENOENT ? "no such file" : std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) return std::unexpected("it is not a regular file");
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return std::unexpected(std::strerror(errno));
  gzbuffer(file, kPieceBytes);
  std::unique_ptr<TextSource> source(new TextSource());
  source->file_ = file;
  source->file_bytes_ = static_cast<uint64_t>(status.st_size);
  source->buffer_.resize(4 * kPieceBytes);
  source->reader_ = std::jthread(
      [self = source.get()](const std::stop_token& stop) { self->read_ahead(stop); });
  source->more(0);
  return source;
}

TextSource::~TextSource() {
  reader_.request_stop();
  if (reader_.joinable()) reader_.join();
  if (file_ != nullptr) gzclose(static_cast<gzFile>(file_));
}

void TextSource::read_ahead(const std::stop_token& stop) {
  for (;;) {
    Piece piece = read_piece();
    const bool last = piece.bytes.empty();
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, stop, [this] { return ahead_.size() < kAhead; })) return;
    ahead_.push_back(std::move(piece));
    changed_.notify_all();
    if (last) return;
  }
}

TextSource::Piece TextSource::read_piece() {
  Piece piece;
  piece.bytes.resize(kPieceBytes);
  auto* file = static_cast<gzFile>(file_);
  const int count = gzread(file, piece.bytes.data(), static_cast<unsigned>(kPieceBytes));
  piece.bytes.resize(count > 0 ? static_cast<size_t>(count) : 0);
  if (count <= 0) {
    int code = Z_OK;
    const char* why = gzerror(file, &code);
    if (code == Z_BUF_ERROR || code == Z_DATA_ERROR) {
      piece.error = "the gzip data is damaged or cut off";
    } else if (code != Z_OK && code != Z_STREAM_END) {
      piece.error = code == Z_ERRNO ? std::strerror(errno) : why;
    }
    return piece;
  }
  total_bytes_ += piece.bytes.size();
  if (total_bytes_ > kMaxTextBytes) {
    piece.bytes.clear();
    piece.error = "it unpacks to more than 16 GiB";
  } else if (file_bytes_ > 0) {
    piece.share = static_cast<double>(gzoffset(file)) / static_cast<double>(file_bytes_);
  }
  return piece;
}

bool TextSource::more(size_t give_up) {
  position_ += give_up;
  passed_bytes_ += give_up;
  if (ended_) return false;
  Piece piece;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ahead_.empty(); });
    piece = std::move(ahead_.front());
    ahead_.pop_front();
    changed_.notify_all();
  }
  if (piece.bytes.empty()) {
    ended_ = true;
    error_ = std::move(piece.error);
    return false;
  }
  // Behind what is kept, which is mostly a few bytes.
  if (buffer_.size() - filled_ < piece.bytes.size()) {
    std::memmove(buffer_.data(), buffer_.data() + position_, filled_ - position_);
    filled_ -= position_;
    position_ = 0;
    if (buffer_.size() - filled_ < piece.bytes.size()) buffer_.resize(2 * buffer_.size());
  }
  std::memcpy(buffer_.data() + filled_, piece.bytes.data(), piece.bytes.size());
  filled_ += piece.bytes.size();
  if (watcher_) watcher_(piece.share);
  return true;
}

std::expected<std::string, std::string> TextSource::read_all(size_t max_bytes) {
  std::string text;
  do {
    text.append(window());
    if (text.size() > max_bytes) {
      return std::unexpected("it is longer than " + std::to_string(max_bytes >> 20) + " MiB");
    }
  } while (more(window().size()));
  if (!error_.empty()) return std::unexpected(error_);
  return text;
}

}  // namespace lull::play
