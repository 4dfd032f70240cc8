// The command as a user starts it: every mistake is one line on stderr and the right exit code.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Result {
  int code = -1;
  std::string out, err;
};

class Lull {
 public:
  Lull() {
    std::string pattern = "/tmp/lull-command-XXXXXX";
    folder = mkdtemp(pattern.data());
  }
  ~Lull() { std::filesystem::remove_all(folder); }

  // No daemon answers there: the socket lies in the test's own folder.
  Result run(std::vector<std::string> words) const {
    return run_program(LULL_COMMAND, std::move(words));
  }
  Result run_program(const std::string& program, std::vector<std::string> words) const {
    const pid_t child = fork();
    if (child == 0) {
      const auto to = [&](const char* name, int fd) {
        dup2(open((folder + name).c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), fd);
      };
      to("/out", 1);
      to("/err", 2);
      setenv("LULL_SOCKET", (folder + "/lulld.sock").c_str(), 1);
      unsetenv("LD_PRELOAD");
      unsetenv("COLUMNS");
      std::vector<char*> argv = {const_cast<char*>("lull")};
      for (std::string& word : words) argv.push_back(word.data());
      argv.push_back(nullptr);
      execv(program.c_str(), argv.data());
      _exit(99);
    }
    int status = 0;
    waitpid(child, &status, 0);
    Result result;
    result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    result.out = read("/out");
    result.err = read("/err");
    return result;
  }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder + "/" + name) << text;
    return folder + "/" + name;
  }
  std::string folder;

 private:
  std::string read(const char* name) const {
    std::ifstream in(folder + name);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  }
};

// Answers one question, whatever it is.
class FakeDaemon {
 public:
  FakeDaemon(const std::string& path, const nlohmann::json& answer) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    fd_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    REQUIRE(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(fd_, 1) == 0);
    thread_ = std::thread([this, text = answer.dump()] {
      const int peer = accept(fd_, nullptr, nullptr);
      char question[4096];
      (void)!recv(peer, question, sizeof question, 0);
      send(peer, text.data(), text.size(), MSG_NOSIGNAL);
      close(peer);
    });
  }
  ~FakeDaemon() {
    shutdown(fd_, SHUT_RDWR);  // where nobody has asked
    thread_.join();
    close(fd_);
  }

 private:
  int fd_ = -1;
  std::thread thread_;
};

void check_one_line(const Result& result, int code, const std::string& says) {
  INFO(result.err);
  CHECK(result.code == code);
  CHECK(result.err.starts_with("lull: "));
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  CHECK(result.err.find(says) != std::string::npos);
}

}  // namespace

TEST_CASE("help is on stdout and exits 0; nothing at all is a usage error") {
  Lull lull;
  for (const std::string command : {"run", "status", "policy", "priority", "suspend", "resume",
                                    "migrate", "pin", "resize", "discover", "doctor", "compare"}) {
    INFO(command);
    const Result help = lull.run({command, "--help"});
    CHECK(help.code == 0);
    CHECK(help.out.find("lull " + command) != std::string::npos);
    CHECK(lull.run({"--help"}).out.find(command) != std::string::npos);
  }
  CHECK(lull.run({}).code == 2);
}

TEST_CASE("help fits 80 columns and names what stands for a value") {
  Lull lull;
  for (const std::vector<std::string>& words : {std::vector<std::string>{},
                                                {"run"},
                                                {"top"},
                                                {"policy"},
                                                {"suspend"},
                                                {"compare"},
                                                {"simulate"},
                                                {"simulate", "cluster"},
                                                {"ask"},
                                                {"trace"},
                                                {"trace", "show"},
                                                {"trace", "export"}}) {
    auto asked = words;
    asked.push_back("--help");
    std::istringstream help(lull.run(asked).out);
    for (std::string line; std::getline(help, line);) {
      INFO(line);
      CHECK(line.size() <= 80);
    }
  }
  const auto says = [&](const std::string& command, const std::string& text) {
    INFO(lull.run({command, "--help"}).out);
    return lull.run({command, "--help"}).out.find(text) != std::string::npos;
  };
  CHECK(says("run", "  --timing off|sampled|full  "));
  CHECK(says("run", "  --sim[=SHARING]  "));
  CHECK(says("status", "  --json[=FILE]  "));
  CHECK(says("compare", "  --json[=FILE]  "));
}

TEST_CASE("every command says its version, wherever it is asked") {
  Lull lull;
  const std::string said = lull.run({"--version"}).out;
  CHECK(said.starts_with("lull "));
  for (const std::vector<std::string>& words : {std::vector<std::string>{"run"},
                                                {"status"},
                                                {"top"},
                                                {"profile"},
                                                {"profile", "list"},
                                                {"policy"},
                                                {"priority"},
                                                {"suspend"},
                                                {"resume"},
                                                {"migrate"},
                                                {"pin"},
                                                {"resize"},
                                                {"discover"},
                                                {"doctor"},
                                                {"compare"},
                                                {"simulate"},
                                                {"trace"},
                                                {"trace", "record"},
                                                {"trace", "show"},
                                                {"trace", "timeline"},
                                                {"trace", "diff"},
                                                {"trace", "export"},
                                                {"trace", "import"}}) {
    std::vector<std::string> asked = words;
    asked.emplace_back("--version");
    const Result result = lull.run(asked);
    INFO(words.front() << " " << words.back() << ": " << result.err);
    CHECK(result.code == 0);
    CHECK(result.out == said);
  }
  const std::string number = said.substr(said.find(' '));
  for (const std::string program : {"lulld", "lull-play", "lull-bench"}) {
    const std::string path = std::filesystem::path(LULL_COMMAND).parent_path() / program;
    if (!std::filesystem::exists(path)) continue;  // a target of its own
    CHECK(lull.run_program(path, {"--version"}).out == program + number);
  }
}

TEST_CASE("the option --json means the same wherever it is: alone on stdout, with a file beside the text") {
  Lull lull;
  const std::string workloads = LULL_EXAMPLE_WORKLOADS;
  const std::vector<std::string> simulate = {"simulate",
                                             "--high",
                                             workloads + "/chatty_inference.json",
                                             "--low",
                                             workloads + "/chatty_inference.json",
                                             "--policy",
                                             "share",
                                             "--iterations",
                                             "10",
                                             "--no-oracle"};
  for (const std::vector<std::string>& words : {std::vector<std::string>{"doctor", "--sim"},
                                                {"profile", "list", "--directory", lull.folder},
                                                simulate}) {
    INFO(words.front());
    std::vector<std::string> alone = words, beside = words;
    alone.emplace_back("--json");
    beside.push_back("--json=" + lull.folder + "/out.json");
    const std::string json = lull.run(alone).out;
    CHECK(json.starts_with("{"));
    const std::string shown = lull.run(beside).out;
    CHECK_FALSE(shown.empty());
    CHECK_FALSE(shown.starts_with("{"));
    std::ifstream in(lull.folder + "/out.json");
    const std::string written((std::istreambuf_iterator<char>(in)), {});
    // How much memory is free changes from one call of doctor to the next.
    const std::regex size("[0-9.]+ [KMGT]iB");
    CHECK(std::regex_replace(written, size, "N") == std::regex_replace(json, size, "N"));
  }
  check_one_line(lull.run({"doctor", "--sim", "--json=/no/such/folder/x"}), 1,
                 "--json: /no/such/folder/x: No such file");
}

TEST_CASE("unknown commands and options are one line and exit code 2") {
  Lull lull;
  check_one_line(lull.run({"rum"}), 2, "use one of run, status");
  check_one_line(lull.run({"status", "--jason"}), 2, "lull status --help");
  check_one_line(lull.run({"priority", "x"}), 2, "priority");
  check_one_line(lull.run({"priority", "x", "urgent"}), 2, "realtime");
  check_one_line(lull.run({"compare", "--high", "x"}), 2, "--low");
  check_one_line(lull.run({"suspend"}), 2, "lull suspend --help");
  check_one_line(lull.run({"suspend", "x", "--at", "noon"}), 2, "--at");
  check_one_line(lull.run({"suspend", "x", "--level", "away"}), 2, "--level");
  check_one_line(lull.run({"migrate", "x"}), 2, "--to");
  check_one_line(lull.run({"resize", "x", "--gpus", "two"}), 2, "--gpus");
}

TEST_CASE("doctor says what of suspension and migration a program could have") {
  Lull lull;
  const std::string said = lull.run({"doctor", "--sim"}).out;
  CHECK(said.find("lull run --suspendable") != std::string::npos);
  CHECK(said.find("lull suspend --level given_up") != std::string::npos);
  CHECK(said.find("lull run --migratable") != std::string::npos);
}

TEST_CASE("a policy as JSON is its name and its options, and the list is the list") {
  Lull lull;
  {
    FakeDaemon daemon(lull.folder + "/lulld.sock", {{"ok", true}, {"policy", "fikit a=3 b=x=1"}});
    const Result told = lull.run({"policy", "--json"});
    CHECK(told.code == 0);
    CHECK(nlohmann::json::parse(told.out) ==
          nlohmann::json{{"policy", "fikit"}, {"options", {{"a", "3"}, {"b", "x=1"}}}});
  }
  for (const std::vector<std::string>& what :
       {std::vector<std::string>{"policy", "--list"}, {"policy", "--list", "--jobs"}}) {
    std::vector<std::string> asked = what;
    asked.emplace_back("--json");
    std::string names;
    const nlohmann::json listed = nlohmann::json::parse(lull.run(asked).out);
    for (const auto& name : listed["policies"]) names += name.get<std::string>() + "\n";
    CHECK(names == lull.run(what).out);
    CHECK(!names.empty());
  }
}

TEST_CASE("a job is moved, and what came of it is one line and the exit code") {
  Lull lull;
  check_one_line(lull.run({"suspend", "train"}), 1, "suspend: ");
  const auto answered = [&](std::vector<std::string> words, const nlohmann::json& answer) {
    FakeDaemon daemon(lull.folder + "/lulld.sock", answer);
    Result result = lull.run(std::move(words));
    std::filesystem::remove(lull.folder + "/lulld.sock");
    return result;
  };
  const nlohmann::json out = {
      {"ok", true},
      {"job", {{"job", "train"}, {"state", "suspended"}, {"level", "out"}, {"target", "out"}}}};
  Result result = answered({"suspend", "train", "--wait"}, out);
  CHECK(result.code == 0);
  CHECK(result.out == "train: suspended, memory out\n");
  result = answered({"suspend", "train", "--json"}, out);
  CHECK(nlohmann::json::parse(result.out)["state"] == "suspended");
  nlohmann::json runs = {
      {"ok", true},
      {"job", {{"job", "train"}, {"state", "running"}, {"target", "running"}, {"reason", "client 1: busy"}}}};
  // It was to be suspended, and goes on: that has failed.
  result = answered({"suspend", "train", "--wait"}, runs);
  CHECK(result.code == 1);
  CHECK(result.out == "train: running: client 1: busy\n");
  CHECK(answered({"migrate", "train", "--to", "1", "--wait"}, runs).code == 1);
  runs["job"]["reason"] = "";
  CHECK(answered({"migrate", "train", "--to", "1", "--wait"}, runs).code == 0);
  CHECK(answered({"resume", "train", "--wait"}, runs).code == 0);
  CHECK(answered({"pin", "train", "--off"}, runs).code == 0);
  check_one_line(answered({"resize", "train", "--gpus", "2"},
                          {{"ok", false}, {"error", "cannot resize train: it is not elastic"}}),
                 1, "resize: cannot resize train: it is not elastic");
}

TEST_CASE("the option --migratable says where it cannot be, and the program runs without") {
  Lull lull;
  setenv("SIMGPU_DEVICE", (lull.folder + "/device").c_str(), 1);
  setenv("SIMGPU_DEVICES", "3", 1);
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  Result result = lull.run({"run", "--sim", "--migratable", "--", "/usr/bin/env"});
  CHECK(result.err.find("--migratable") == std::string::npos);
  CHECK(result.out.find("LULL_VISIBLE_DEVICES=1\n") != std::string::npos);
  const size_t at = result.out.find("CUDA_VISIBLE_DEVICES=GPU-");
  REQUIRE(at != std::string::npos);
  const std::string list = result.out.substr(at, result.out.find('\n', at) - at);
  CHECK(std::count(list.begin(), list.end(), ',') == 2);
  setenv("CUDA_VISIBLE_DEVICES", "9", 1);
  result = lull.run({"run", "--sim", "--migratable", "--", "/usr/bin/env"});
  unsetenv("SIMGPU_DEVICE");
  unsetenv("SIMGPU_DEVICES");
  unsetenv("CUDA_VISIBLE_DEVICES");
  CHECK(result.code == 0);
  CHECK(result.err.find("it can be suspended, not migrated") != std::string::npos);
  CHECK(result.out.find("LULL_MIGRATABLE") == std::string::npos);
  CHECK(result.out.find("LULL_SUSPENDABLE=1\n") != std::string::npos);
  CHECK(result.out.find("CUDA_VISIBLE_DEVICES=9\n") != std::string::npos);
}

TEST_CASE("the policies are listed without a daemon") {
  Lull lull;
  const Result listed = lull.run({"policy", "--list"});
  CHECK(listed.code == 0);
  CHECK(listed.out.starts_with("share\n"));
  CHECK(listed.out.find("\nfikit\n") != std::string::npos);
}

TEST_CASE("without a daemon, what needs one says so and exits 1") {
  Lull lull;
  check_one_line(lull.run({"status"}), 1, "start lulld");
  check_one_line(lull.run({"policy"}), 1, "start lulld");
  check_one_line(lull.run({"policy", "share"}), 1, "start lulld");
  check_one_line(lull.run({"priority", "x", "high"}), 1, "start lulld");
}

TEST_CASE("run says what is wrong with its own words and exits 125") {
  Lull lull;
  check_one_line(lull.run({"run"}), 125, "no program");
  check_one_line(lull.run({"run", "--sim", "--"}), 125, "no program");
  check_one_line(lull.run({"run", "--priority", "urgent", "true"}), 125, "realtime");
  check_one_line(lull.run({"run", "--max-slowdown", "300x", "true"}), 125,
                 "run: --max-slowdown: '300x' is not in percent: give percent, 0% to 1000%");
  check_one_line(lull.run({"run", "--memory", "lots", "true"}), 125, "20G");
  check_one_line(
      lull.run({"run", "--memory", "20", "true"}), 125,
      "run: --memory: '20' has no unit: give a number with its unit, K, M, G or T, as in 20G");
  check_one_line(lull.run({"run", "--memory", "20B", "true"}), 125,
                 "'20B' is 20 B: no program works");
  check_one_line(lull.run({"run", "--sim=round", "true"}), 125, "time_slice");
  check_one_line(lull.run({"run", "--slow-motion", "2", "true"}), 125, "--sim");
  check_one_line(lull.run({"run", "--nonsense", "true"}), 125, "--nonsense");
  check_one_line(lull.run({"run", "--name", std::string(100, 'n'), "true"}), 125, "too long");
}

TEST_CASE("run exits 127 for a program that is not there and 126 for one that cannot run") {
  Lull lull;
  check_one_line(lull.run({"run", "--sim", "no-such-program"}), 127, "no such program");
  const std::string file = lull.write("plain", "text");
  check_one_line(lull.run({"run", "--sim", file}), 126, "x permission");
  check_one_line(lull.run({"run", "--sim", lull.folder}), 126, "cannot be executed");
}

TEST_CASE("where no driver is the program runs all the same, after one line") {
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr) {
    WARN("skipped: there is a driver here");
    return;
  }
  Lull lull;
  const Result ran =
      lull.run({"run", "--priority", "high", "--name", "x", "sh", "-c", "echo here; exit 7"});
  check_one_line(ran, 7, "no NVIDIA driver here (libcuda.so.1 is not found): running unscheduled");
  CHECK(ran.out == "here\n");
  check_one_line(lull.run({"run", "--require-coordinator", "true"}), 125, "no NVIDIA driver here");
  check_one_line(lull.run({"run", "no-such-program"}), 127, "no such program");
  check_one_line(lull.run({"trace", "record", "-o", lull.folder + "/t", "true"}), 125,
                 "nothing to record");
}

TEST_CASE("status names kernels as their source does") {
  Lull lull;
  const nlohmann::json held = {{"thread", 7},
                               {"kernel", "_Z4gemmIfLi4EEvPKT_i"},
                               {"for_us", 5},
                               {"by", {1}},
                               {"why", "busy"}};
  const nlohmann::json device = {
      {"uuid", "GPU-0"}, {"gate", "closed"}, {"memory_allowance_bytes", nullptr}};
  const FakeDaemon daemon(
      lull.folder + "/lulld.sock",
      {{"ok", true},
       {"devices", {{{"index", 0}, {"uuid", "GPU-0"}}}},
       {"clients", {{{"id", 2}, {"task", "train"}, {"devices", {device}}, {"held", {held}}}}}});
  const Result shown = lull.run({"status"});
  INFO(shown.out << shown.err);
  CHECK(shown.out.find("gemm<float, 4>(") != std::string::npos);
  CHECK(shown.out.find("_Z4gemm") == std::string::npos);
}

TEST_CASE("a missing coordinator is an error only where it is required") {
  Lull lull;
  const std::string driver =
      std::filesystem::path(LULL_COMMAND).parent_path().parent_path() / "lib/lull/sim/libcuda.so.1";
  if (!std::filesystem::exists(driver)) return;
  check_one_line(lull.run({"run", "--sim", "--require-coordinator", "true"}), 125, "start lulld");
  const Result alone =
      lull.run({"run", "--sim", "--priority", "high", "sh", "-c", "echo $LULL_PRIORITY; exit 7"});
  CHECK(alone.code == 7);
  CHECK(alone.out == "2\n");
  CHECK(alone.err.empty());
  const Result bound =
      lull.run({"run", "--sim", "--max-slowdown", "3%", "printenv", "LULL_MAX_SLOWDOWN"});
  CHECK(bound.out == "30,50\n");
  CHECK(bound.err.empty());
}

TEST_CASE("what stands behind the program's name is the program's") {
  Lull lull;
  const std::string driver =
      std::filesystem::path(LULL_COMMAND).parent_path().parent_path() / "lib/lull/sim/libcuda.so.1";
  if (!std::filesystem::exists(driver)) return;
  CHECK(lull.run({"run", "--sim", "echo", "--name", "x", "--", "--help"}).out ==
        "--name x -- --help\n");
  CHECK(lull.run({"run", "--name", "job", "--sim", "--", "echo", "--sim"}).out == "--sim\n");
  CHECK(lull.run({"run", "--sim=mps", "--name=job", "printenv", "LULL_NAME"}).out == "job\n");
}

TEST_CASE("doctor refuses a program that cannot be covered, one line a check") {
  Lull lull;
  check_one_line({lull.run({"doctor", "--nope"})}, 2, "doctor");
  const Result script = lull.run({"doctor", "--sim", lull.write("s", "not a program")});
  CHECK(script.code == 1);
  CHECK(script.out.find("fail  program") != std::string::npos);
  const Result shell = lull.run({"doctor", "--sim", "sh"});
  CHECK(shell.out.find("dynamic, 64 bit") != std::string::npos);
  const std::string cut = lull.write("cut", std::string("\x7f"
                                                        "ELF\x02\x01\x01",
                                                        7));
  std::filesystem::permissions(cut, std::filesystem::perms::owner_all);
  const Result damaged = lull.run({"doctor", "--sim", cut});
  CHECK(damaged.code == 1);
  CHECK(damaged.out.find("no ELF file") != std::string::npos);
}

TEST_CASE("compare says what is wrong before it starts anything") {
  Lull lull;
  const std::string broken = lull.write("broken.json", "{\"version\": 1,");
  const std::string high = "cmd:true";
  check_one_line(lull.run({"compare", "--high", "/no/such.json", "--low", high, "--sim"}), 1,
                 "/no/such.json");
  check_one_line(lull.run({"compare", "--high", broken, "--low", high, "--sim"}), 1, "broken.json");
  check_one_line(lull.run({"compare", "--high", "cmd:", "--low", high, "--sim"}), 1, "no command");
  check_one_line(lull.run({"compare", "--high", high, "--low", high, "--policy", "best", "--sim"}),
                 2, "best");
  check_one_line(lull.run({"compare", "--high", high, "--low", high, "--max-slowdown", "5%,3%"}), 2,
                 "compare: --max-slowdown: '5%,3%' allows less at p99");
  check_one_line(lull.run({"simulate", "--high", high, "--low", high, "--max-slowdown", "3"}), 2,
                 "simulate: --max-slowdown: '3' is not in percent");
  check_one_line(lull.run({"compare", "--high", high, "--low", high, "--sim=round"}), 2,
                 "time_slice");
  check_one_line(lull.run({"compare", "--high", high, "--low", high, "--slow-motion", "2"}), 2,
                 "--sim");
  check_one_line(
      lull.run({"compare", "--high", high, "--low", high, "--sim", "--slow-motion", "0.5"}), 2,
      "1 or more");
  check_one_line(lull.run({"compare", "--high", high, "--low", high, "--sim", "--seconds", "-1"}),
                 2, "--seconds");
  check_one_line(lull.run({"compare", "--high", high, "--low", high, "--sim", "--low-greedy"}), 2,
                 "--low-greedy");
  check_one_line(lull.run({"compare", "--high", high, "--low", high, "--sim", "--seconds", "1",
                           "--iterations", "2"}),
                 2, "--seconds");
}
