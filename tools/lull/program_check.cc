#include "tools/lull/program_check.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tools/lull/installed.h"

namespace lull::command {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kOurMachine = EM_X86_64;
#else
constexpr uint16_t kOurMachine = EM_AARCH64;
#endif
constexpr int kScriptsMax = 4;

void check_code(const ElfFacts& facts, const char* what, Findings& findings) {
  if (facts.imports_name("dlmopen")) {
    findings.push_back({Verdict::kFail, "dlmopen",
                        fmt::format("{} calls dlmopen: what it opens so has symbols of its own, "
                                    "and its launches are not seen",
                                    what),
                        "open the library with dlopen"});
  }
  if (facts.opens_deepbind) {
    findings.push_back({Verdict::kFail, "RTLD_DEEPBIND",
                        fmt::format("{} may open plugins with RTLD_DEEPBIND: launches from such a "
                                    "plugin are not seen",
                                    what),
                        "open them without RTLD_DEEPBIND"});
  } else if (facts.imports_name("dlopen")) {
    findings.push_back({Verdict::kOk, "RTLD_DEEPBIND",
                        "no dlopen call with a constant RTLD_DEEPBIND; computed flags and other "
                        "libraries are not examined (give those with --plugin)",
                        ""});
  }
  if (facts.launches_on_device) {
    findings.push_back({Verdict::kFail, "device-side launches",
                        fmt::format("{} has kernels that launch kernels: lull sees only the first "
                                    "of them, with the time of all",
                                    what),
                        "launch from the host where each kernel is to be counted"});
  }
  for (const auto& [kind, value] :
       {std::pair{"DT_RPATH", &facts.rpath}, {"DT_RUNPATH", &facts.runpath}}) {
    if (value->empty()) continue;
    const bool hides = std::string_view(kind) == "DT_RPATH";
    findings.push_back(
        {hides ? Verdict::kWarn : Verdict::kOk, "library path",
         fmt::format("{} {}{}", kind, *value,
                     hides ? ": a libcuda.so.1 there goes before the simulated one" : ""),
         hides ? "for --sim, link with --enable-new-dtags (DT_RUNPATH)" : ""});
  }
}

}  // namespace

std::expected<std::string, std::string> real_executable(const std::string& path) {
  std::string file = path;
  for (int n = 0; n <= kScriptsMax; ++n) {
    std::ifstream in(file, std::ios::binary);
    char start[256] = {};
    in.read(start, sizeof start - 1);
    if (in.gcount() <= 0) return std::unexpected(fmt::format("{} cannot be read", file));
    if (start[0] != '#' || start[1] != '!') return file;
    std::istringstream line(std::string(start + 2, std::strcspn(start + 2, "\n")));
    std::string interpreter, word;
    line >> interpreter;
    if (interpreter.empty()) return std::unexpected(fmt::format("{} has an empty #! line", file));
    if (interpreter.ends_with("/env")) {
      while (line >> word && (word[0] == '-' || word.find('=') != std::string::npos)) {
      }
      const char* search = std::getenv("PATH");
      const auto found = find_program(word, search ? search : "/usr/bin:/bin");
      if (!found)
        return std::unexpected(fmt::format("{} asks for {}, not found in PATH", file, word));
      interpreter = *found;
    }
    file = interpreter;
  }
  return std::unexpected(fmt::format("{} is a script of a script of a script", path));
}

std::expected<ElfFacts, std::string> read_elf_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::unexpected(fmt::format("cannot be opened: {}", std::strerror(errno)));
  struct stat about {};
  if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size == 0) {
    close(fd);
    return std::unexpected("is no regular file with content");
  }
  const auto size = static_cast<size_t>(about.st_size);
  void* base = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (base == MAP_FAILED)
    return std::unexpected(fmt::format("cannot be read: {}", std::strerror(errno)));
  auto facts = read_elf({static_cast<const std::byte*>(base), size});
  munmap(base, size);
  return facts;
}

Findings check_program(const std::string& path) {
  Findings findings;
  struct stat about {};
  if (stat(path.c_str(), &about) != 0) {
    findings.push_back({Verdict::kFail, "program",
                        fmt::format("{}: {}", path, std::strerror(errno)),
                        "give the path of the executable"});
    return findings;
  }
  const auto facts = read_elf_file(path);
  if (!facts) {
    findings.push_back({Verdict::kFail, "program", fmt::format("{} {}", path, facts.error()),
                        "give an executable of this machine"});
    return findings;
  }
  if (facts->machine != kOurMachine || !facts->is_64_bit) {
    findings.push_back({Verdict::kFail, "machine",
                        facts->is_64_bit
                            ? "built for another machine"
                            : "a 32-bit program: the 64-bit liblull.so cannot be loaded",
                        "use a build for this machine, 64 bit"});
  } else if (!facts->has_interpreter) {
    findings.push_back({Verdict::kFail, "linking",
                        "static: it has no loader, LD_PRELOAD is not read",
                        "link it dynamically (without -static)"});
  } else {
    findings.push_back({Verdict::kOk, "linking", fmt::format("{}: dynamic, 64 bit", path), ""});
  }
  const bool setid = about.st_mode & (S_ISUID | S_ISGID);
  const bool capable = getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
  if (setid || capable) {
    findings.push_back(
        {Verdict::kFail, "privileges",
         setid ? "setuid or setgid: the loader ignores LD_PRELOAD for it"
               : "file capabilities: the loader ignores LD_PRELOAD for it",
         setid ? "run a copy without the setuid bit" : "run a copy without capabilities"});
  } else {
    findings.push_back({Verdict::kOk, "privileges", "no setuid, setgid or file capabilities", ""});
  }
  if (facts->needs("libasan.so")) {
    findings.push_back({Verdict::kWarn, "sanitizer",
                        "built with AddressSanitizer, which refuses to start under any LD_PRELOAD",
                        "`lull run` sets ASAN_OPTIONS=verify_asan_link_order=0 for it; without "
                        "`lull run`, set it yourself"});
  }
  check_code(*facts, "the program", findings);
  return findings;
}

Findings check_plugin(const std::string& path) {
  Findings findings;
  const auto facts = read_elf_file(path);
  if (!facts) {
    findings.push_back({Verdict::kFail, "plugin", fmt::format("{} {}", path, facts.error()),
                        "give the path of a shared library"});
    return findings;
  }
  if (facts->machine != kOurMachine || !facts->is_64_bit) {
    findings.push_back({Verdict::kFail, "plugin",
                        fmt::format("{} is built for another machine", path),
                        "use a build for this machine, 64 bit"});
    return findings;
  }
  findings.push_back({Verdict::kOk, "plugin", fmt::format("{}: dynamic, 64 bit", path), ""});
  check_code(*facts, path.c_str(), findings);
  return findings;
}

}  // namespace lull::command
