// The host side of the arena on this machine: what kind of pages it is on, and what is refused where there
// is too little. Skips, with the reason, what the machine does not grant.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/shim/arena/moved_program.h"

using namespace arena_test;

namespace {

// What /proc/self/smaps says of the mapping that holds the address.
std::string mapping_of(uint64_t address) {
  std::ifstream smaps("/proc/self/smaps");
  std::string line, text;
  bool inside = false;
  while (std::getline(smaps, line)) {
    unsigned long long from = 0, to = 0;
    if (sscanf(line.c_str(), "%llx-%llx ", &from, &to) == 2) inside = from <= address && address < to;
    if (inside) text += line + "\n";
  }
  return text;
}

uint64_t kib_of(const std::string& text, const std::string& field) {
  const size_t at = text.find("\n" + field + ":");
  return at == std::string::npos ? 0 : std::stoull(text.substr(at + field.size() + 2));
}

bool has_flag(const std::string& text, const std::string& flag) {
  const size_t at = text.find("VmFlags:");
  return at != std::string::npos && (text.substr(at) + " ").find(" " + flag + " ") != std::string::npos;
}

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  return !file.fail();
}

std::string read_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

const std::string kHugePages = "/sys/kernel/mm/hugepages/hugepages-2048kB/";

uint64_t huge_pages(const char* name) {
  const std::string line = read_line(kHugePages + name);
  return line.empty() ? 0 : std::stoull(line);
}

// Some more huge pages of the machine's for one test, taken back behind it. How many there are is
// a number of the machine: whoever changes it holds the kernel's lock on it, which ends with the
// process however that ends. Other programs may take the pages as well, and keep them for a while
// behind it (surplus).
class ReservedHugePages {
 public:
  explicit ReservedHugePages(uint64_t more) : number_(kHugePages + "nr_hugepages") {
    lock_ = ::open(number_.c_str(), O_RDONLY | O_CLOEXEC);
    if (lock_ < 0 || ::flock(lock_, LOCK_EX) != 0) return;
    before_ = huge_pages("nr_hugepages") - huge_pages("surplus_hugepages");
    write_file(number_, std::to_string(before_ + more));
    granted_ = huge_pages("nr_hugepages") - huge_pages("surplus_hugepages") == before_ + more;
  }
  ~ReservedHugePages() {
    if (lock_ < 0) return;
    write_file(number_, std::to_string(before_));
    ::close(lock_);
  }
  ReservedHugePages(const ReservedHugePages&) = delete;
  ReservedHugePages& operator=(const ReservedHugePages&) = delete;

  bool granted() const { return granted_; }

 private:
  const std::string number_;
  int lock_ = -1;
  uint64_t before_ = 0;
  bool granted_ = false;
};

}  // namespace

TEST_CASE("the host side is there in full, on transparent huge pages where none are reserved") {
  MovedProgram it;
  const char* reason = "";
  REQUIRE(arena_probe_host(32 * kMiB, UINT64_MAX, &reason) == 0);
  const std::string text = mapping_of(arena_probe_host_at(0));
  INFO(text);
  CHECK(kib_of(text, "Size") >= 32 * 1024);
  CHECK(has_flag(text, "dc"));  // not copied into a fork child
  if (has_flag(text, "ht")) {
    WARN("skipped: this machine has huge pages reserved");
    return;
  }
  CHECK(kib_of(text, "Rss") >= 32 * 1024);
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) {
    WARN("skipped: this kernel has no transparent huge pages");
    return;
  }
  CHECK(has_flag(text, "hg"));
}

TEST_CASE("reserved huge pages come first, as far as they go") {
  for (int attempt = 0; attempt < 20; ++attempt) {
    const ReservedHugePages reserved(8);
    if (!reserved.granted()) {
      WARN("skipped: this machine reserves no huge pages for the test");
      return;
    }
    MovedProgram it;
    const char* reason = "";
    REQUIRE(arena_probe_host(8 * kMiB, UINT64_MAX, &reason) == 0);
    const std::string text = mapping_of(arena_probe_host_at(0));
    INFO(text);
    if (!has_flag(text, "ht") && huge_pages("free_hugepages") < huge_pages("resv_hugepages") + 4) {
      arena_probe_host_trim();
      continue;  // another program has taken them
    }
    CHECK(has_flag(text, "ht"));
    CHECK(kib_of(text, "KernelPageSize") == 2048);
    // There are not enough for the next piece: it is on others.
    REQUIRE(arena_probe_host(72 * kMiB, UINT64_MAX, &reason) == 0);
    CHECK_FALSE(has_flag(mapping_of(arena_probe_host_at(70 * kMiB)), "ht"));
    arena_probe_host_trim();
    return;
  }
  WARN("skipped: other programs take all huge pages that are reserved for the test");
}

TEST_CASE("more than the machine has is refused whole, with the reason") {
  MovedProgram it;
  const char* reason = "";
  CHECK(arena_probe_host(uint64_t{1} << 46, UINT64_MAX, &reason) == 1);
  INFO(reason);
  CHECK(std::string(reason).rfind("host memory: 67108864 MiB more needed, ", 0) == 0);
  CHECK(arena_probe_host(64 * kMiB, 63 * kMiB, &reason) == 1);
  CHECK(std::string(reason) ==
        "host memory: 64 MiB needed, the operator's host_memory leaves this job 63 MiB");
}

TEST_CASE("more than memory.max of the job's cgroup leaves is refused, and says so") {
  MovedProgram it;
  const std::string line = read_line("/proc/self/cgroup");
  const bool unified = std::filesystem::exists("/sys/fs/cgroup/cgroup.controllers");
  const std::string own = unified && line.rfind("0::", 0) == 0 ? line.substr(3) : "";
  const std::string root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
  const std::string folder = root + "/lull-test-" + std::to_string(getpid());
  const std::string limit = folder + (unified ? "/memory.max" : "/memory.limit_in_bytes");
  std::error_code failed;
  std::filesystem::create_directory(folder, failed);
  const bool limited = !failed && write_file(limit, std::to_string(256 * kMiB)) &&
                       write_file(folder + "/cgroup.procs", std::to_string(getpid()));
  if (limited) {
    const char* reason = "";
    CHECK(arena_probe_host(512 * kMiB, UINT64_MAX, &reason) == 1);
    INFO(reason);
    CHECK(std::string(reason).find("the cgroup's memory.max leaves") != std::string::npos);
    CHECK(arena_probe_host(16 * kMiB, UINT64_MAX, &reason) == 0);
  } else {
    WARN("skipped: this machine grants no cgroup of the test's own");
  }
  write_file(root + (own.empty() ? "" : own) + "/cgroup.procs", std::to_string(getpid()));
  std::filesystem::remove(folder, failed);
}
