#include "coordinator/daemon/profile_store.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>

using namespace lull;
using namespace lull::daemon;
using lull::engine::TaskRecord;
using lull::policies::KernelProfile;

namespace {

struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "lull-profiles-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

TaskRecord record_of(const std::string& task, const std::string& gpu, uint64_t kernels) {
  TaskRecord record{.task = task, .gpu = gpu, .undisturbed = Duration{75'000'000}, .undisturbed_count = 9};
  for (uint64_t k = 0; k < kernels; ++k) {
    KernelProfile profile;
    for (int64_t i = 0; i < 50; ++i) profile.add(Duration{1000 + 37 * i}, Duration{i % 3 == 0 ? -1 : 20 * i});
    record.kernels.push_back({KernelId{~k}, "kernel " + std::to_string(k), profile.saved()});
  }
  return record;
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("What is kept comes back as it was, for each model of GPU apart") {
  const Folder folder;
  ProfileStore store((folder.path / "a/b").string());
  const TaskRecord first = record_of("1000/train", "H100", 3);
  REQUIRE(store.save(first).has_value());
  REQUIRE(store.save(record_of("1000/train", "A100", 5)).has_value());
  const auto kept = store.load("1000/train", "H100");
  REQUIRE((kept && *kept));
  CHECK((*kept)->record.undisturbed.ns == 75'000'000);
  REQUIRE((*kept)->record.kernels.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    const auto& was = first.kernels[i];
    const auto& is = (*kept)->record.kernels[i];
    CHECK(is.id == was.id);
    CHECK(is.name == was.name);
    CHECK(is.saved.count == was.saved.count);
    CHECK(is.saved.mean_x1024 == was.saved.mean_x1024);
    CHECK(is.saved.gap_mean_x1024 == was.saved.gap_mean_x1024);
    const auto a = KernelProfile::from(was.saved);
    const auto b = KernelProfile::from(is.saved);
    for (const uint32_t q : {500U, 900U, 990U}) {
      CHECK(a.quantile(q) == b.quantile(q));
      CHECK(a.gap_quantile(q) == b.gap_quantile(q));
    }
  }
  CHECK((*store.load("1000/train", "A100"))->record.kernels.size() == 5);
  CHECK(!*store.load("1000/train", "V100"));
  REQUIRE(store.list().size() == 2);
  CHECK(store.list()[0].gpu == "A100");
  CHECK(store.list()[1].samples == 150);
  CHECK(store.find("train").size() == 2);
  CHECK(store.find("1001/train").empty());
}

TEST_CASE("Without a directory nothing is kept") {
  ProfileStore store;
  CHECK(store.save(record_of("t", "g", 1)).has_value());
  CHECK(!*store.load("t", "g"));
  CHECK(store.list().empty());
}

TEST_CASE("Bad and newer files are moved aside with one line and never lost") {
  const Folder folder;
  ProfileStore store(folder.path.string());
  const auto path = folder.path / ProfileStore::file_name("t", "g");
  REQUIRE(store.save(record_of("t", "g", 2)).has_value());
  std::ifstream file(path);
  const std::string good{std::istreambuf_iterator<char>(file), {}};
  const std::pair<std::string, const char*> cases[] = {
      {"", ".bad"},
      {"{", ".bad"},
      {good.substr(0, good.size() / 2), ".bad"},
      {"[1,2,3]", ".bad"},
      {R"({"format":"lull task profile","version":99})", ".newer"},
      {R"({"format":"lull task profile","version":1,"task":"t","gpu":"g","kernels":[{"id":"zz"}]})", ".bad"},
      {R"({"format":"lull task profile","version":1,"task":"t","gpu":"g","kernels":[{"id":"1","count":1,"mean_ns":-5,"last_ns":1,"buckets":[]}]})", ".bad"},
      {R"({"format":"lull task profile","version":1,"task":"other","gpu":"g","kernels":[]})", ".bad"},
      {std::string(100'000, '['), ".bad"},
  };
  for (const auto& [text, suffix] : cases) {
    INFO(text.substr(0, 80));
    write(path, text);
    const auto kept = store.load("t", "g");
    REQUIRE(!kept.has_value());
    CHECK(kept.error().find('\n') == std::string::npos);
    CHECK(kept.error().find(path.string()) != std::string::npos);
    CHECK(!std::filesystem::exists(path));
    std::ifstream aside(path.string() + suffix);
    CHECK(std::string{std::istreambuf_iterator<char>(aside), {}} == text);
    CHECK(!*store.load("t", "g"));  // learnt anew
  }
}

TEST_CASE("A writer that is killed leaves the old profile or the new one") {
  const Folder folder;
  ProfileStore store(folder.path.string());
  REQUIRE(store.save(record_of("t", "g", 1)).has_value());
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ProfileStore mine(folder.path.string());
      const char byte = 1;
      if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
      for (uint64_t n = 0;; ++n) {
        if (!mine.save(record_of("t", "g", 1 + n % 40))) ::_exit(1);
      }
    }
    char byte;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    for (uint32_t spin = random() % 4'000'000; spin > 0; --spin) asm volatile("");
    REQUIRE(::kill(child, SIGKILL) == 0);
    int status;
    ::waitpid(child, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    ::close(ready[0]);
    ::close(ready[1]);
    const auto kept = store.load("t", "g");
    REQUIRE(kept.has_value());
    REQUIRE(kept->has_value());
    CHECK((*kept)->record.kernels.size() >= 1);
  }
}

TEST_CASE("There are no more files than the bound, and forgetting removes a task's") {
  const Folder folder;
  ProfileStore store(folder.path.string());
  const std::string small = engine::write_task_record(record_of("x", "g", 0));
  for (size_t i = 0; i < ProfileStore::kMostFiles; ++i) {
    write(folder.path / ("old-" + std::to_string(i) + ".json"), small);
  }
  REQUIRE(store.save(record_of("5/new", "g", 1)).has_value());
  CHECK(store.list().size() == ProfileStore::kMostFiles);
  CHECK(*store.forget("new", "6/") == 0);
  CHECK(*store.forget("new", "5/") == 1);
  CHECK(!*store.load("5/new", "g"));
}

TEST_CASE("A user with many profiles pushes out its own, not another's") {
  const Folder folder;
  ProfileStore store(folder.path.string());
  REQUIRE(store.save(record_of("7/mine", "g", 1)).has_value());
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(24);
  std::filesystem::last_write_time(folder.path / ProfileStore::file_name("7/mine", "g"), long_ago);
  const std::string small = engine::write_task_record(record_of("x", "g", 0));
  for (size_t i = 0; i < ProfileStore::kMostFiles + 3; ++i) {
    write(folder.path / ("5_" + std::to_string(i) + ".json"), small);
  }
  const auto eldest = folder.path / "5_99.json";
  std::filesystem::last_write_time(eldest, long_ago + std::chrono::hours(1));
  REQUIRE(store.save(record_of("5/new", "g", 1)).has_value());
  CHECK(store.list().size() == ProfileStore::kMostFiles);
  CHECK_FALSE(std::filesystem::exists(eldest));
  const auto kept = store.load("7/mine", "g");
  REQUIRE(kept.has_value());
  CHECK(kept->has_value());
}

TEST_CASE("A directory that cannot be written is one line") {
  ProfileStore store("/proc/none/profiles");
  const auto kept = store.save(record_of("t", "g", 1));
  REQUIRE(!kept.has_value());
  CHECK(kept.error().find("/proc/none") != std::string::npos);
}
