// The event log: what the simulated device says it did. Each program is a child process of its own.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/simgpu/driver/sim_program.h"

using namespace sim_test;

namespace {

struct Log {
  Log() : path("/tmp/simgpu-test-log-" + std::to_string(getpid()) + ".jsonl") {
    unlink(path.c_str());
    use_own_device("2");
    setenv("SIMGPU_EVENT_LOG", path.c_str(), 1);
  }
  ~Log() {
    unlink(path.c_str());
    unsetenv("SIMGPU_EVENT_LOG");
  }
  // Every line is a whole JSON object, or the test fails.
  std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> found;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) found.push_back(nlohmann::json::parse(line));
    return found;
  }
  std::string path;
};

pid_t start(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    const int code = body();
    std::exit(code);
  }
  return child;
}
int finish(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

uint64_t number(const nlohmann::json& line, const char* key) { return line.at(key); }

}  // namespace

TEST_CASE("the event log has each executed operation once, with exact times, in stream order") {
  Log log;
  const int code = finish(start([] {
    Program program;
    CUstream stream;
    CUevent begin, end;
    if (cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) || cuEventCreate(&begin, 0) ||
        cuEventCreate(&end, 0)) {
      return 1;
    }
    CUdeviceptr memory;
    if (cuMemAlloc_v2(&memory, 1 << 20)) return 2;
    // Held: the host's own time is in no gap.
    program.hold(stream);
    cuEventRecord(begin, stream);
    for (unsigned n = 1; n <= 5; ++n) program.launch(stream, n * 100'000, n);
    cuMemsetD8Async(memory, 1, 1 << 20, stream);
    cuEventRecord(end, stream);
    program.open_gate();
    if (cuStreamSynchronize(stream)) return 3;
    unsigned long long id = 0;
    cuStreamGetId(stream, &id);
    // Told to the parent by a copy of as many bytes.
    if (cuMemcpyHtoD_v2(memory, std::vector<char>(id * 1000).data(), id * 1000)) return 4;
    float ms = elapsed_ms(begin, end);
    return cuMemcpyHtoD_v2(memory, std::vector<char>(1 << 20).data(),
                           static_cast<size_t>(ms * 1000 + 0.5f)) == CUDA_SUCCESS
               ? 0
               : 5;
  }));
  REQUIRE(code == 0);
  const auto lines = log.lines();
  REQUIRE(lines.size() == 9);  // Program's own launch, five kernels, a memset, two copies
  const uint64_t stream = number(lines[7], "bytes") / 1000;
  uint64_t previous_end = 0;
  for (unsigned n = 1; n <= 5; ++n) {
    const auto& line = lines[n];
    CHECK(line.at("kind") == "kernel");
    CHECK(line.at("name") == "spin");
    CHECK(line.at("grid") == nlohmann::json({n, 1, 1}));
    CHECK(line.at("block") == nlohmann::json({32, 1, 1}));
    CHECK(number(line, "stream") == stream);
    CHECK(number(line, "order") == n);
    CHECK(number(line, "graph_launch") == 0);
    CHECK(number(line, "end_ns") - number(line, "start_ns") == n * 100'000);
    CHECK(number(line, "submitted_ns") <= number(line, "start_ns"));
    if (n > 1) CHECK(number(line, "start_ns") == previous_end);
    previous_end = number(line, "end_ns");
  }
  CHECK(lines[6].at("kind") == "memset");
  CHECK(number(lines[6], "bytes") == 1 << 20);
  CHECK(number(lines[6], "order") == 6);
  CHECK(number(lines[6], "start_ns") == previous_end);
  // What the program's own events measured, in whole microseconds.
  CHECK(number(lines[8], "bytes") ==
        (number(lines[6], "end_ns") - number(lines[1], "start_ns") + 500) / 1000);
  CHECK(lines[8].at("kind") == "copy_h2d");
}

TEST_CASE("a graph's nodes are in the event log under its stream and launch") {
  Log log;
  REQUIRE(finish(start([] {
            Program program;
            CUstream stream;
            if (cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) return 1;
            CUgraph graph;
            CUgraphExec exec;
            if (cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)) return 2;
            for (int n = 0; n < 3; ++n) program.launch(stream, 1000);
            if (cuStreamEndCapture(stream, &graph)) return 3;
            if (cuGraphInstantiateWithFlags(&exec, graph, 0)) return 4;
            if (cuGraphLaunch(exec, stream) || cuGraphLaunch(exec, stream)) return 5;
            program.launch(stream, 2000);
            return cuStreamSynchronize(stream) == CUDA_SUCCESS ? 0 : 6;
          })) == 0);
  const auto lines = log.lines();
  REQUIRE(lines.size() == 8);  // the captured launches were none
  for (size_t n = 1; n < 8; ++n) {
    CHECK(number(lines[n], "graph_launch") == (n <= 3 ? 1u : n <= 6 ? 2u : 0u));
    CHECK(number(lines[n], "stream") == number(lines[1], "stream"));
    CHECK(number(lines[n], "order") == n);
  }
}

TEST_CASE("a killed process leaves whole lines of what it had collected, and nothing unfinished") {
  Log log;
  const int code = finish(start([] {
    Program program;
    for (int n = 0; n < 20; ++n) program.launch(nullptr, 1000);
    if (cuCtxSynchronize()) return 1;
    program.launch(nullptr, 3'600'000'000'000);
    raise(SIGKILL);
    return 0;
  }));
  REQUIRE(code == -SIGKILL);
  CHECK(log.lines().size() == 21);
}

TEST_CASE("several processes append to one event log without a torn or lost line") {
  Log log;
  constexpr int kProcesses = 4;
  constexpr int kLaunches = 500;
  std::vector<pid_t> children;
  for (int n = 0; n < kProcesses; ++n) {
    children.push_back(start([] {
      Program program;
      for (int k = 0; k < kLaunches; ++k) program.launch(nullptr, 500);
      return cuCtxSynchronize() == CUDA_SUCCESS ? 0 : 1;
    }));
  }
  for (const pid_t child : children) CHECK(finish(child) == 0);
  std::map<pid_t, uint64_t> last_order;
  for (const auto& line : log.lines()) {
    CHECK(number(line, "order") == ++last_order[line.at("pid")]);
  }
  for (const pid_t child : children) CHECK(last_order[child] == kLaunches + 1);
}

TEST_CASE("an event log that cannot be written is refused at cuInit, none is made unasked") {
  Log log;
  setenv("SIMGPU_EVENT_LOG", "/nonexistent/folder/log", 1);
  CHECK(finish(start([] { return cuInit(0) == CUDA_ERROR_NO_DEVICE ? 0 : 1; })) == 0);
  unsetenv("SIMGPU_EVENT_LOG");
  CHECK(finish(start([] {
          Program program;
          return 0;
        })) == 0);
  CHECK(access(log.path.c_str(), F_OK) != 0);
}
