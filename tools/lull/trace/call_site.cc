#include "tools/lull/trace/call_site.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <string_view>

#include "tools/lull/trace/kernel_display.h"

namespace lull::trace {

const command::ElfSymbols& CallSites::symbols_of(const std::string& path) {
  auto& known = files_[path];
  if (known) return *known;
  // A trace may name anything: only regular files are opened, and nothing waits for them.
  const int file =
      path.starts_with('/') ? open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
  struct stat facts {};
  if (file >= 0 && fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size > 0 &&
      static_cast<uint64_t>(facts.st_size) <= kMaxFileBytes) {
    const auto size = static_cast<size_t>(facts.st_size);
    void* bytes = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (bytes != MAP_FAILED) {
      known = std::make_unique<command::ElfSymbols>(
          std::span(static_cast<const std::byte*>(bytes), size));
      munmap(bytes, size);
    }
  }
  if (file >= 0) close(file);
  if (!known) known = std::make_unique<command::ElfSymbols>(std::span<const std::byte>{});
  return *known;
}

std::vector<std::string> CallSites::frames(const std::string& call_site) {
  std::vector<std::string> names;
  std::string_view rest = call_site;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(';'), rest.size());
    const std::string frame(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (frame.empty()) continue;
    const size_t plus = frame.rfind("+0x");
    uint64_t offset = 0;
    const bool has_offset =
        plus != std::string::npos &&
        std::from_chars(frame.data() + plus + 3, frame.data() + frame.size(), offset, 16).ec ==
            std::errc();
    const std::string path = frame.substr(0, plus);
    const std::string file = path.substr(path.rfind('/') + 1);
    const std::string name = has_offset ? symbols_of(path).at(offset) : std::string();
    names.push_back(without_controls(!name.empty() ? fmt::format("{} [{}]", display_name(name), file)
                                     : has_offset  ? fmt::format("{}+{:#x}", file, offset)
                                                   : frame));
  }
  return names;
}

std::string CallSites::line(const std::string& call_site, size_t most) {
  std::string text;
  size_t shown = 0;
  for (const std::string& frame : frames(call_site)) {
    if (shown++ == most) return text + " < ..";
    const size_t file = frame.rfind(" [");
    text += (text.empty() ? "" : " < ") + shorten_name(frame.substr(0, file), 60);
  }
  return text;
}

}  // namespace lull::trace
