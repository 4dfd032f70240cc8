// lull-play as a program: its errors, and what it does on the simulated GPU. Counts, no times.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tools/play/workload.h"

using namespace lull::play;
using Json = nlohmann::json;

namespace {

// A folder for one run: its report, its output and the simulated device.
class Scratch {
 public:
  Scratch() {
    char name[] = "/tmp/lull-player-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    folder = name;
  }
  ~Scratch() { std::filesystem::remove_all(folder); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string folder;

  std::string text_of(const std::string& file) const {
    std::ifstream in(folder + "/" + file);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  std::vector<Json> report() const {
    std::vector<Json> events;
    std::istringstream lines(text_of("report"));
    for (std::string line; std::getline(lines, line);) events.push_back(Json::parse(line));
    return events;
  }
};

pid_t start(const Scratch& scratch, const std::vector<std::string>& arguments,
            const char* library_path) {
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid != 0) return pid;
  const int out = open((scratch.folder + "/out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(out, 1);
  dup2(out, 2);
  setenv("LD_LIBRARY_PATH", library_path, 1);
  unsetenv("LD_PRELOAD");
  setenv("SIMGPU_DEVICE", (scratch.folder + "/device").c_str(), 1);
  for (const char* name :
       {"SIMGPU_PROFILE", "SIMGPU_SHARING", "SIMGPU_SLOW_MOTION", "SIMGPU_DEVICES"}) {
    unsetenv(name);
  }
  std::vector<std::string> words = {LULL_PLAY_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}
int wait_for(pid_t pid) {
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}
int run(const Scratch& scratch, const std::vector<std::string>& arguments,
        const char* library_path = "") {
  return wait_for(start(scratch, arguments, library_path));
}
std::string example(const std::string& name) {
  return std::string(LULL_EXAMPLE_WORKLOADS) + "/" + name + ".json";
}

}  // namespace

TEST_CASE("wrong usage of lull-play is one line and exit code 2") {
  const std::vector<std::string> rows[] = {{},
                                           {"a.json", "--iterations", "0"},
                                           {"a.json", "--iterations", "-1"},
                                           {"a.json", "--what"},
                                           {"a.json", "--seconds", "x"},
                                           {"a.json", "--iterations", "3", "--until-signal"},
                                           {"a.json", "b.json"}};
  for (const auto& row : rows) {
    const Scratch scratch;
    CHECK(run(scratch, row) == 2);
    const std::string out = scratch.text_of("out");
    INFO(out);
    CHECK(std::count(out.begin(), out.end(), '\n') == 1);
    CHECK(out.starts_with("lull: cannot play: "));
  }
}

TEST_CASE("an unreadable workload is one line, in the report too, and exit code 1") {
  const Scratch scratch;
  CHECK(run(scratch, {"/nonexistent.json", "--report", scratch.folder + "/report"}) == 1);
  CHECK(scratch.text_of("out").starts_with("lull: cannot read /nonexistent.json: no such file"));
  const auto events = scratch.report();
  REQUIRE(events.size() == 1);
  CHECK(events[0]["event"] == "error");
}

TEST_CASE("lull-play describes a workload without a device, a shipped one by its name") {
  for (const std::string& workload : {example("training_step"), std::string("training_step")}) {
    const Scratch scratch;
    CHECK(run(scratch, {workload, "--describe"}) == 0);
    CHECK(scratch.text_of("out").starts_with("training_step (training): 123 launches"));
  }
}

#ifdef LULL_SIM_LIBRARIES
TEST_CASE("every shipped workload plays on the simulated GPU with all of its launches") {
  for (const char* name :
       {"chatty_inference", "dense_inference", "training_step", "batch_long_kernels"}) {
    INFO(name);
    const Scratch scratch;
    const auto workload = load_workload(example(name));
    REQUIRE(workload.has_value());
    const auto sum = totals(*workload);
    const int code = run(scratch,
                         {example(name), "--iterations", "2", "--warmup", "1", "--report",
                          scratch.folder + "/report"},
                         LULL_SIM_LIBRARIES);
    INFO(scratch.text_of("out"));
    REQUIRE(code == 0);
    const auto events = scratch.report();
    REQUIRE(events.size() == 5);
    CHECK(events[0]["event"] == "ready");
    CHECK(events[0]["simulated"] == true);
    CHECK(events[0]["slow_motion"] == 1.0);
    CHECK(events[1]["event"] == "warmup");
    for (const size_t i : {2, 3}) {
      CHECK(events[i]["event"] == "iteration");
      CHECK(events[i]["i"] == i - 2);
      CHECK(events[i]["launches"] == sum.launches);
      CHECK(events[i]["kernel_ns"] == sum.kernel_ns);
      // The host alone takes this long, however late it is woken.
      const uint64_t took =
          events[i]["end_ns"].get<uint64_t>() - events[i]["start_ns"].get<uint64_t>();
      CHECK(took >= sum.host_ns - workload->pause_after_ns);
    }
    CHECK(events[4]["event"] == "done");
    CHECK(events[4]["launches"] == 3 * sum.launches);
    CHECK(events[4]["iterations"] == 2);
    CHECK(events[4]["partial_kernel_ns"] == 0);
  }
}

static pid_t start_endless(const Scratch& scratch, const std::string& option, const std::string& file) {
  return start(scratch,
               {example("chatty_inference"), "--until-signal", option, file, "--report",
                scratch.folder + "/report"},
               LULL_SIM_LIBRARIES);
}

TEST_CASE("a signal ends lull-play between two operations with its account settled") {
  const Scratch scratch;
  const std::string go = scratch.folder + "/go";
  const pid_t pid = start_endless(scratch, "--start-file", go);
  while (scratch.text_of("report").find("ready") == std::string::npos &&
         waitpid(pid, nullptr, WNOHANG) == 0)
    usleep(1000);
  CHECK(scratch.text_of("report").find("iteration") == std::string::npos);
  std::ofstream(go) << "go\n";
  while (scratch.text_of("report").find("\"iteration\"") == std::string::npos &&
         waitpid(pid, nullptr, WNOHANG) == 0)
    usleep(1000);
  REQUIRE(kill(pid, SIGTERM) == 0);
  CHECK(wait_for(pid) == 0);
  const auto events = scratch.report();
  uint64_t launches = 0;
  for (const auto& event : events) {
    if (event["event"] == "iteration") launches += event["launches"].get<uint64_t>();
  }
  REQUIRE(events.back()["event"] == "done");
  CHECK(events.back()["launches"].get<uint64_t>() >= launches);
  CHECK(events.back()["launches"].get<uint64_t>() < launches + 60);
}

TEST_CASE("while the pause file is there nothing is played, and then it goes on") {
  const Scratch scratch;
  const std::string pause = scratch.folder + "/pause";
  const pid_t pid = start_endless(scratch, "--pause-file", pause);
  const auto iterations = [&] {
    const std::string text = scratch.text_of("report");
    size_t count = 0, at = 0;
    while ((at = text.find("\"iteration\"", at)) != std::string::npos) ++at, ++count;
    return count;
  };
  const auto until = [&](size_t count) {
    while (iterations() < count && waitpid(pid, nullptr, WNOHANG) == 0) usleep(1000);
    return iterations();
  };
  REQUIRE(until(1) >= 1);
  std::ofstream(pause) << "pause\n";
  // One may be on its way; then they stop.
  size_t before = 0, now = iterations();
  for (int looks = 0; looks < 100 && before != now; ++looks) {
    before = now;
    usleep(300'000);
    now = iterations();
  }
  CHECK(now == before);
  unlink(pause.c_str());
  CHECK(until(now + 1) > now);
  REQUIRE(kill(pid, SIGTERM) == 0);
  CHECK(wait_for(pid) == 0);
  CHECK(scratch.report().back()["event"] == "done");
}

TEST_CASE("a device that is not there is named") {
  const Scratch scratch;
  CHECK(run(scratch, {example("chatty_inference"), "--device", "3"}, LULL_SIM_LIBRARIES) == 1);
  CHECK(scratch.text_of("out").find("there is no device 3") != std::string::npos);
}
#endif
