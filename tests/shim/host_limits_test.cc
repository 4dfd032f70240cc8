// How much host memory is left, by files as the kernel writes them.
#include "shim/residence/host_limits.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/shim/probe_process.h"

using namespace lull::shim;

namespace {

constexpr uint64_t kGiB = 1 << 30;

struct Files {
  Files() : folder(lull::test::private_directory()) {}
  ~Files() { std::filesystem::remove_all(folder); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(folder + path).parent_path());
    std::ofstream(folder + path) << text;
  }
  void machine(uint64_t total_gib, uint64_t available_gib, const std::string& more = "") const {
    write("/proc/meminfo", "MemTotal:       " + std::to_string(total_gib << 20) +
                               " kB\nMemFree:          1000 kB\nMemAvailable:   " +
                               std::to_string(available_gib << 20) + " kB\n" + more);
  }
  HostRoom room() const {
    return host_room((folder + "/proc").c_str(), (folder + "/cgroup").c_str());
  }
  std::string folder;
};

}  // namespace

TEST_CASE("a tenth of the machine is left to others, and 1 GiB of a small one") {
  CHECK(host_reserve_bytes(100 * kGiB) == 10 * kGiB);
  CHECK(host_reserve_bytes(4 * kGiB) == kGiB);
  const Files files;
  files.machine(100, 50);
  CHECK(files.room().left_bytes == 40 * kGiB);
  CHECK(files.room().bound == HostBound::kMachine);
  files.machine(100, 8);
  CHECK(files.room().left_bytes == 0);
}

TEST_CASE("free reserved huge pages come on top, those that are promised do not") {
  const Files files;
  files.machine(100, 50,
                "HugePages_Total:     100\nHugePages_Free:       64\nHugePages_Rsvd:       32\n"
                "Hugepagesize:       2048 kB\n");
  CHECK(files.room().reserved_huge_bytes == 32 * (2ULL << 20));
  files.machine(
      100, 50, "HugePages_Free:       64\nHugePages_Rsvd:        0\nHugepagesize:    1048576 kB\n");
  CHECK(files.room().reserved_huge_bytes == 0);
}

TEST_CASE("the tightest cgroup above the process bounds it, idle file pages do not count") {
  const Files files;
  files.machine(100, 50);
  files.write("/proc/self/cgroup", "0::/jobs/one\n");
  files.write("/cgroup/jobs/one/memory.max", "max\n");
  files.write("/cgroup/jobs/one/memory.current", "123456\n");
  CHECK(files.room().left_bytes == 40 * kGiB);
  files.write("/cgroup/jobs/memory.max", std::to_string(8 * kGiB) + "\n");
  files.write("/cgroup/jobs/memory.current", std::to_string(7 * kGiB) + "\n");
  files.write("/cgroup/jobs/memory.stat",
              "anon 1\nfile 5\ninactive_file " + std::to_string(3 * kGiB) + "\n");
  CHECK(files.room().left_bytes == 4 * kGiB);
  CHECK(files.room().bound == HostBound::kCgroup);
  files.write("/cgroup/jobs/one/memory.max", std::to_string(kGiB) + "\n");
  CHECK(files.room().left_bytes == kGiB - 123456);
  files.write("/cgroup/jobs/memory.current", std::to_string(20 * kGiB) + "\n");
  CHECK(files.room().left_bytes == 0);
}

TEST_CASE("the root of a container's own hierarchy is a cgroup like others") {
  const Files files;
  files.machine(100, 50);
  files.write("/proc/self/cgroup", "0::/\n");
  files.write("/cgroup/memory.max", std::to_string(2 * kGiB) + "\n");
  files.write("/cgroup/memory.current", std::to_string(kGiB) + "\n");
  CHECK(files.room().left_bytes == kGiB);
}

TEST_CASE("cgroups of the first version, found by the memory controller") {
  const Files files;
  files.machine(100, 50);
  files.write("/proc/self/cgroup",
              "12:cpu,cpuacct:/a\n7:hugetlb,memory:/jobs/two\n1:name=systemd:/b\n0::/c\n");
  files.write("/cgroup/memory/jobs/two/memory.limit_in_bytes", std::to_string(3 * kGiB) + "\n");
  files.write("/cgroup/memory/jobs/two/memory.usage_in_bytes", std::to_string(2 * kGiB) + "\n");
  files.write("/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  files.write("/cgroup/memory/memory.usage_in_bytes", std::to_string(40 * kGiB) + "\n");
  CHECK(files.room().left_bytes == kGiB);
}

TEST_CASE("files that are not there bound nothing") {
  const Files files;
  CHECK(files.room().left_bytes == UINT64_MAX);
  CHECK(files.room().bound == HostBound::kNone);
}
