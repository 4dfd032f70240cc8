#include "tools/lull/compare/child_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

using namespace lull::command;
using namespace std::chrono_literals;

namespace {

int wait_for_end(ChildProcess& child) {
  while (!child.ended()) std::this_thread::yield();
  return *child.ended();
}

}  // namespace

TEST_CASE("a child gets its own environment, and its last line is kept for the error") {
  auto scratch = ScratchFolder::make();
  REQUIRE(scratch);
  setenv("LULLTEST_OUT", "1", 1);
  ChildStart start;
  start.words = {"/bin/sh", "-c", "echo first; echo ${LULLTEST_OUT-none} $ADDED >&2; exit 3"};
  start.set = {{"ADDED", "yes"}};
  start.unset_prefixes = {"LULLTEST_"};
  start.output_file = (*scratch)->file("out");
  auto child = ChildProcess::start(start);
  REQUIRE(child);
  const int status = wait_for_end(**child);
  CHECK(WEXITSTATUS(status) == 3);
  CHECK((*child)->last_words() == "none yes");
  CHECK((*child)->how_it_ended() == "exit code 3: none yes");
}

TEST_CASE("the whole group of a child is gone when its owner is") {
  auto scratch = ScratchFolder::make();
  REQUIRE(scratch);
  const std::string file = (*scratch)->file("grandchild");
  pid_t grandchild = 0;
  {
    ChildStart start;
    // Both ignore SIGTERM: only SIGKILL to the group ends them.
    start.words = {"/bin/sh", "-c",
                   "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >" + file + ".part; mv " + file +
                       ".part " + file + "; while :; do sleep 100; done' & wait"};
    start.output_file = (*scratch)->file("out");
    auto child = ChildProcess::start(start);
    REQUIRE(child);
    while (!std::filesystem::exists(file)) std::this_thread::yield();
    std::ifstream(file) >> grandchild;
    REQUIRE(grandchild > 0);
    REQUIRE(kill(grandchild, 0) == 0);
    (*child)->end(0ms);
    CHECK((*child)->ended());
  }
  // The orphan is reaped by whoever inherits it: gone, or a zombie.
  for (;;) {
    std::ifstream in("/proc/" + std::to_string(grandchild) + "/stat");
    std::string pid, name, state;
    if (!(in >> pid >> name >> state) || state == "Z") break;
    std::this_thread::yield();
  }
  SUCCEED();
}

TEST_CASE("a scratch folder is gone at its end, and so is one that a killed process left") {
  std::string path, left;
  const pid_t child = fork();
  if (child == 0) {
    auto scratch = ScratchFolder::make();
    std::ofstream((*scratch)->file("content")) << "x";
    _exit(0);  // without the destructor
  }
  int status = 0;
  waitpid(child, &status, 0);
  auto scratch = ScratchFolder::make();
  REQUIRE(scratch);
  path = std::filesystem::path((*scratch)->file("x")).parent_path();
  CHECK(std::filesystem::is_directory(path));
  const auto parent = std::filesystem::path(path).parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(parent)) {
    CHECK_FALSE(entry.path().filename().string().starts_with("lull-compare." +
                                                             std::to_string(child) + "."));
  }
  scratch->reset();
  CHECK_FALSE(std::filesystem::exists(path));
}
