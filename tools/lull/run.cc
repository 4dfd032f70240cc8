// `lull run`: checks what can be checked, sets the environment, and becomes the program.
#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "coordinator/channel/messages.h"
#include "coordinator/channel/model_clock.h"
#include "tools/lull/command.h"
#include "tools/lull/daemon_link.h"
#include "tools/lull/launch_environment.h"
#include "tools/lull/program_check.h"
#include "tools/lull/values.h"

extern char** environ;

namespace lull::command {
namespace {

// How many of `words` are lull's own: up to the program's name. Options that take a value are
// known from `app`, so that `--name x prog --name y` is cut before `prog`. A `--` is dropped.
size_t own_words(const CLI::App& app, const Words& words, bool& marker) {
  marker = false;
  for (size_t n = 0; n < words.size(); ++n) {
    const std::string& word = words[n];
    if (word == "--") {
      marker = true;
      return n;
    }
    if (word.size() < 2 || word[0] != '-') return n;
    if (word.find('=') != std::string::npos) continue;
    const CLI::Option* option = app.get_option_no_throw(word);
    if (option != nullptr && option->get_items_expected_max() > 0) ++n;
  }
  return words.size();
}

Environment current_environment() {
  Environment all;
  for (char** entry = environ; entry && *entry; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals) all.emplace(std::string(*entry, static_cast<size_t>(equals - *entry)), equals + 1);
  }
  return all;
}

// A device that exists keeps the parameters it was made with: say so rather than ignore a wish.
void note_existing_device(const LaunchWishes& wishes) {
  channel::sim_device_prefix prefix{};
  const std::string path = default_sim_device();
  std::ifstream in(path, std::ios::binary);
  if (!in.read(reinterpret_cast<char*>(&prefix), sizeof prefix)) return;
  if (std::memcmp(prefix.magic, channel::kSimMagic, sizeof prefix.magic) != 0) return;
  const bool other_sharing =
      !wishes.sharing.empty() && wishes.sharing != sharing_name(prefix.sharing);
  const bool other_speed = wishes.slow_motion && *wishes.slow_motion != prefix.slow_motion;
  if (!other_sharing && !other_speed) return;
  complain(
      fmt::format("run: the simulated device {} already runs with {}, slow motion {}: remove "
                  "the file for a fresh one, or set SIMGPU_DEVICE to another",
                  path, sharing_name(prefix.sharing), prefix.slow_motion));
}

}  // namespace

int run_main(const Words& words) {
  LaunchWishes wishes;
  std::string priority, memory, sim;
  double slow_motion = 0;
  CLI::App app(
      "Runs a CUDA program under lull. The program takes lull's place: pid, terminal and "
      "exit code are its own.",
      "lull run");
  app.add_option("--priority", priority, "0 (highest) to 9, or realtime, high, normal, low, idle");
  app.add_option("--name", wishes.name, "task name (default: the program's file name)");
  app.add_option("--job", wishes.job, "programs with one job name belong together");
  app.add_option("--memory", memory, "device memory it may use, for example 20G");
  app.add_option("--socket", wishes.socket, "socket of lulld");
  app.add_flag("--sim{default}", sim, "use the simulated GPU; --sim=time_slice, mps or serial");
  app.add_option("--slow-motion", slow_motion,
                 "with --sim: stretch the model's time by this factor");
  app.add_flag("--require-coordinator", wishes.require_coordinator,
               "fail when there is no lulld (else: run unscheduled)");

  Words shown_in_help;
  app.add_option("program", shown_in_help, "the program and its arguments");

  bool marker = false;
  const size_t own = own_words(app, words, marker);
  if (const auto code = parse_words(app, Words(words.begin(), words.begin() + own), kRunFailed)) {
    return *code;
  }
  const Words program(words.begin() + own + (marker ? 1 : 0), words.end());
  const auto fail = [](std::string_view text) {
    complain(fmt::format("run: {}", text));
    return kRunFailed;
  };
  if (program.empty()) return fail("no program given: lull run [OPTIONS] -- PROGRAM ARGS...");
  if (!priority.empty()) {
    const auto level = parse_priority(priority);
    if (!level) return fail("--priority: " + level.error());
    wishes.priority = *level;
  }
  if (!memory.empty()) {
    const auto bytes = parse_bytes(memory);
    if (!bytes) return fail("--memory: " + bytes.error());
    wishes.memory_bytes = *bytes;
  }
  for (const auto& [option, text, limit] :
       {std::tuple{"--name", &wishes.name, sizeof(channel::lull_hello::name)},
        {"--job", &wishes.job, sizeof(channel::lull_hello::job)}}) {
    if (text->size() >= limit) {
      return fail(
          fmt::format("{}: '{}' is too long: use at most {} bytes", option, *text, limit - 1));
    }
  }
  wishes.simulate = !sim.empty();
  if (wishes.simulate && sim != "default") {
    const auto sharing = parse_sharing(sim);
    if (!sharing) return fail("--sim: " + sharing.error());
    wishes.sharing = sim;
  }
  if (app.count("--slow-motion") > 0) {
    if (!wishes.simulate) return fail("--slow-motion: a real GPU has none: use it with --sim");
    if (!(slow_motion >= 1 && slow_motion <= 1e6)) {
      return fail(fmt::format("--slow-motion: {} is out of range: use 1 or more", slow_motion));
    }
    wishes.slow_motion = slow_motion;
  }

  const Environment before = current_environment();
  const auto path = before.find("PATH");
  const auto file = find_program(program[0], path == before.end() ? "/usr/bin:/bin" : path->second);
  if (!file) {
    const bool missing = file.error() == ENOENT;
    complain(fmt::format("run: '{}': {}", program[0],
                         missing
                             ? "no such program: check the name and PATH"
                             : "cannot be executed: check that it is a file with x permission"));
    return missing ? kNotFound : kCannotInvoke;
  }

  const Installed parts = installed();
  if (access(parts.shim.c_str(), R_OK) != 0) {
    return fail(
        fmt::format("{}: {}: build or install lull whole", parts.shim, std::strerror(errno)));
  }
  if (parts.shim.find_first_of(" :") != std::string::npos) {
    return fail(
        fmt::format("'{}': LD_PRELOAD allows no space or colon in a path: move lull", parts.shim));
  }
  if (wishes.simulate) {
    const std::string driver = parts.sim_folder + "/libcuda.so.1";
    if (access(driver.c_str(), R_OK) != 0) {
      return fail(fmt::format("no simulated driver at {}: build target simgpu_cuda", driver));
    }
    note_existing_device(wishes);
  } else if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) {
    return fail(
        "no NVIDIA driver here (libcuda.so.1 is not found): install one, or use --sim for a "
        "simulated GPU");
  }

  const std::string socket = wishes.socket.empty() ? default_socket() : wishes.socket;
  if (wishes.priority || wishes.require_coordinator) {
    const auto answer = wishes.priority
                            ? ask_daemon(socket, {{"op", "may"}, {"priority", *wishes.priority}})
                            : ask_daemon(socket, {{"op", "ping"}});
    if (!answer && answer.error().kind == AskError::kRefused) {
      return fail(fmt::format("--priority {}: {}", priority, answer.error().text));
    }
    if (!answer && wishes.require_coordinator) return fail(answer.error().text);
  }
  if (const auto real = real_executable(*file)) {
    if (const auto facts = read_elf_file(*real)) wishes.has_asan = facts->needs("libasan.so");
  }

  const Environment after = launch_environment(before, wishes, parts);
  std::vector<std::string> entries;
  for (const auto& [name, value] : after) entries.push_back(name + "=" + value);
  std::vector<char*> envp, argv;
  for (std::string& entry : entries) envp.push_back(entry.data());
  envp.push_back(nullptr);
  for (const std::string& word : program) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  // execvpe, because it runs a script without #! as a shell would.
  environ = envp.data();
  execvpe(file->c_str(), argv.data(), envp.data());
  const int error = errno;
  complain(fmt::format("run: '{}': {}", *file, std::strerror(error)));
  return error == ENOENT ? kNotFound : kCannotInvoke;
}

}  // namespace lull::command
