#include "tools/play/text_source.h"

#include <sys/stat.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>

namespace lull::play {

std::expected<std::unique_ptr<TextSource>, std::string> TextSource::open(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) {
    return std::unexpected(errno == ENOENT ? "no such file" : std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) return std::unexpected("it is not a regular file");
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return std::unexpected(std::strerror(errno));
  gzbuffer(file, 256 * 1024);
  std::unique_ptr<TextSource> source(new TextSource());
  source->file_ = file;
  source->file_bytes_ = static_cast<uint64_t>(status.st_size);
  source->buffer_.resize(256 * 1024);
  source->fill();
  return source;
}

TextSource::~TextSource() {
  if (file_ != nullptr) gzclose(static_cast<gzFile>(file_));
}

bool TextSource::fill() {
  position_ = filled_ = 0;
  if (file_ == nullptr || !error_.empty()) return false;
  const int count =
      gzread(static_cast<gzFile>(file_), buffer_.data(), static_cast<unsigned>(buffer_.size()));
  if (count <= 0) {
    int code = Z_OK;
    const char* why = gzerror(static_cast<gzFile>(file_), &code);
    if (code == Z_BUF_ERROR || code == Z_DATA_ERROR) {
      error_ = "the gzip data is damaged or cut off";
    } else if (code != Z_OK && code != Z_STREAM_END) {
      error_ = code == Z_ERRNO ? std::strerror(errno) : why;
    }
    return false;
  }
  total_bytes_ += static_cast<uint64_t>(count);
  if (total_bytes_ > kMaxTextBytes) {
    error_ = "it unpacks to more than 16 GiB";
    return false;
  }
  filled_ = static_cast<size_t>(count);
  if (watcher_ && file_bytes_ > 0) {
    watcher_(static_cast<double>(gzoffset(static_cast<gzFile>(file_))) /
             static_cast<double>(file_bytes_));
  }
  return true;
}

std::expected<std::string, std::string> TextSource::read_all(size_t max_bytes) {
  std::string text;
  while (!at_end()) {
    text.append(buffered());
    position_ = filled_;
    if (text.size() > max_bytes) {
      return std::unexpected("it is longer than " + std::to_string(max_bytes >> 20) + " MiB");
    }
  }
  if (!error_.empty()) return std::unexpected(error_);
  return text;
}

}  // namespace lull::play
