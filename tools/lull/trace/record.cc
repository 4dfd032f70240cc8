// `lull trace record -o F [OPTIONS] -- PROGRAM`: a daemon of its own that traces, and the program
// under it. Without a program: asks the running daemon to trace until Ctrl-C.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>

#include "coordinator/channel/messages.h"
#include "coordinator/trace/reader.h"
#include "tools/lull/compare/child_process.h"
#include "tools/lull/daemon_link.h"
#include "tools/lull/foreground_program.h"
#include "tools/lull/installed.h"
#include "tools/lull/program_start.h"
#include "tools/lull/trace/commands.h"
#include "tools/measure/values.h"

namespace lull::command {
namespace {

constexpr std::chrono::milliseconds kDaemonUpWait{10'000};
constexpr std::chrono::milliseconds kDaemonEndWait{10'000};
constexpr std::chrono::milliseconds kWrittenWait{60'000};  // for the disk to take what is left
constexpr std::chrono::milliseconds kLook{10};
constexpr std::chrono::milliseconds kSlowLook{500};

struct Order {
  LaunchWishes wishes;
  std::string output;  // whole path
  std::string timing;  // off, sampled, full
  bool force = false;
  Words program;
};

int fail(const std::string& text, int code) {
  complain("trace record: " + text);
  return code;
}

// Nothing of a recording is lost to a mistyped name; with --force its place is made free.
std::expected<void, std::string> make_room(const Order& order) {
  struct stat about;
  if (stat(order.output.c_str(), &about) != 0) return {};
  if (!S_ISREG(about.st_mode)) {
    return std::unexpected(fmt::format("{}: it is no file: name another with -o", order.output));
  }
  if (about.st_size == 0) return {};
  if (!order.force) {
    return std::unexpected(fmt::format(
        "{}: it is there already: name another with -o, or replace it with --force", order.output));
  }
  if (unlink(order.output.c_str()) != 0) {
    return std::unexpected(
        fmt::format("{}: {}: name another with -o", order.output, std::strerror(errno)));
  }
  return {};
}

std::string joined(const Words& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
  return line;
}

std::expected<std::unique_ptr<ChildProcess>, std::string> start_daemon(const ScratchFolder& scratch,
                                                                       const std::string& socket,
                                                                       const std::string& device) {
  ChildStart start;
  start.words = {installed().bin + "/lulld", "--socket", socket, "--policy", "share"};
  start.unset_prefixes = {"LULL_", "SIMGPU_", "LD_PRELOAD"};
  if (!device.empty()) {
    start.words.insert(start.words.end(), {"--sim", device});
    start.set["SIMGPU_DEVICE"] = device;
  }
  start.output_file = scratch.file("lulld.out");
  auto daemon = ChildProcess::start(start);
  if (!daemon) return daemon;
  const auto deadline = std::chrono::steady_clock::now() + kDaemonUpWait;
  while (!ask_daemon(socket, {{"op", "ping"}})) {
    if ((*daemon)->ended()) return std::unexpected("lulld: " + (*daemon)->how_it_ended());
    if (std::chrono::steady_clock::now() > deadline) {
      return std::unexpected(fmt::format("lulld does not answer within {} s: {}",
                                         kDaemonUpWait.count() / 1000, (*daemon)->last_words()));
    }
    std::this_thread::sleep_for(kLook);
  }
  return daemon;
}

struct Recorded {
  uint64_t launches = 0, lost = 0, bytes = 0;
  std::string trouble;  // half a line
};

// Ends the trace and waits until the disk has it. Nothing: the daemon is gone.
std::optional<Recorded> stop_tracing(const std::string& socket) {
  auto answer = ask_daemon(socket, {{"op", "trace"}, {"stop", true}});
  const auto deadline = std::chrono::steady_clock::now() + kWrittenWait;
  for (;;) {
    // It may have ended by itself: a full disk.
    if (!answer && answer.error().kind != AskError::kRefused) return std::nullopt;
    if (answer && answer->contains("trace") && (*answer)["trace"].is_object()) {
      const nlohmann::json& figures = (*answer)["trace"];
      const bool written = figures.value("written", true);
      if (written || std::chrono::steady_clock::now() > deadline) {
        Recorded recorded;
        recorded.launches = figures.value("launches", uint64_t{0});
        recorded.lost = figures.value("lost", uint64_t{0}) + figures.value("dropped", uint64_t{0});
        recorded.bytes = figures.value("bytes", uint64_t{0});
        recorded.trouble = figures.value("failure", "");
        if (!written) recorded.trouble = "the disk has not taken all of it yet";
        return recorded;
      }
    } else if (answer) {
      return std::nullopt;
    }
    std::this_thread::sleep_for(kLook);
    answer = ask_daemon(socket, {{"op", "trace"}});
  }
}

// From the file alone, when the daemon that wrote it is gone.
Recorded look_into(const std::string& path) {
  Recorded recorded;
  recorded.trouble = "its lulld ended before it";
  std::error_code ignored;
  const auto bytes = std::filesystem::file_size(path, ignored);
  if (!ignored) recorded.bytes = bytes;
  auto reader = trace::Reader::open(path);
  if (!reader) return recorded;
  while (const trace::Event* event = reader->next()) {
    if (std::holds_alternative<trace::Launch>(*event)) ++recorded.launches;
    if (const auto* lost = std::get_if<trace::Lost>(event)) recorded.lost += lost->records;
  }
  return recorded;
}

void say(const Recorded& recorded, const std::string& path, bool simulated) {
  std::string line =
      fmt::format("lull: {} launch{} recorded{}, {} lost, {} in {}", recorded.launches,
                  recorded.launches == 1 ? "" : "es", simulated ? " on the simulated GPU" : "",
                  recorded.lost, show_bytes(recorded.bytes), path);
  if (!recorded.trouble.empty()) line += ": incomplete: " + recorded.trouble;
  fmt::print(stderr, "{}\n", line);
}

int record_program(Order order) {
  auto scratch = ScratchFolder::make();
  if (!scratch) return fail(scratch.error(), kRunFailed);
  const std::string socket = (*scratch)->file("lulld.sock");
  std::string device;
  if (order.wishes.simulate) {
    const char* told = std::getenv("SIMGPU_DEVICE");
    device = told != nullptr && *told != '\0' ? told : (*scratch)->file("device");
  }
  order.wishes.socket = socket;
  auto program = prepare_program(order.program, order.wishes, installed());
  if (!program) return fail(program.error().text, program.error().code);
  if (program->no_driver) {
    return fail(
        fmt::format("{}: there is nothing to record: use --sim for a simulated GPU", kNoDriver),
        kRunFailed);
  }
  if (!device.empty()) program->environment["SIMGPU_DEVICE"] = device;
  if (const auto room = make_room(order); !room) return fail(room.error(), kRunFailed);

  auto daemon = start_daemon(**scratch, socket, device);
  if (!daemon) return fail(daemon.error(), kRunFailed);
  const auto begun = ask_daemon(socket, {{"op", "trace"},
                                         {"file", order.output},
                                         {"source", "lull trace record"},
                                         {"timing", order.timing},
                                         {"command", joined(order.program)}});
  if (!begun) return fail(begun.error().text, kRunFailed);

  auto running = ForegroundProgram::start(*program);
  if (!running) {
    (*daemon)->end(kDaemonEndWait);
    unlink(order.output.c_str());
    return fail(running.error().text, running.error().code);
  }
  const int status = running->wait();
  auto recorded = stop_tracing(socket);
  if (!recorded) recorded = look_into(order.output);
  (*daemon)->end(kDaemonEndWait);
  say(*recorded, order.output, order.wishes.simulate);
  // Gone before we end by a signal.
  daemon->reset();
  scratch->reset();
  return end_as(status);
}

int record_node(const Order& order) {
  const std::string socket = order.wishes.socket.empty() ? default_socket() : order.wishes.socket;
  if (const auto room = make_room(order); !room) return fail(room.error(), kFailed);
  StopSignals stop;
  const auto begun = ask_daemon(socket, {{"op", "trace"},
                                         {"file", order.output},
                                         {"source", "lull trace record"},
                                         {"timing", order.timing}});
  if (!begun) return fail(begun.error().text, kFailed);
  fmt::print(stderr, "lull: recording what all tasks launch into {}: Ctrl-C ends it\n",
             order.output);
  bool simulated = false;
  if (const auto status = ask_daemon(socket, {{"op", "status"}})) {
    simulated = status->value("simulated", false);
  }
  while (StopSignals::seen() == 0) {
    std::this_thread::sleep_for(kSlowLook);
    const auto now = ask_daemon(socket, {{"op", "trace"}});
    const bool gone = !now && now.error().kind == AskError::kUnreachable;
    const bool ended =
        now && (*now)["trace"].is_object() && !(*now)["trace"].value("running", false);
    if (gone || ended) break;
  }
  const bool asked = StopSignals::seen() != 0;
  auto recorded = stop_tracing(socket);
  if (!recorded) recorded = look_into(order.output);
  say(*recorded, order.output, simulated);
  return asked && recorded->trouble.empty() ? kDone : kFailed;
}

}  // namespace

int trace_record_main(const Words& words) {
  Order order;
  std::string priority, sim;
  order.timing = "full";
  double slow_motion = 0;
  bool call_sites = false;
  CommandLine line(
      "Runs a CUDA program and records its launches, alone, with a lulld of its own. Its exit "
      "code, "
      "signals and terminal are the program's.\nWithout a program: has the running lulld record "
      "what all tasks launch, until Ctrl-C.",
      "lull trace record");
  line.option("-o,--output", order.output, "the trace to write").required();
  line.flag("--force", order.force, "replace the file if it is there");
  line.option("--timing", order.timing,
              "full, sampled or off: which launches are timed while it records (default: full)")
      .one_of({"off", "sampled", "full"});
  line.flag("--call-sites", call_sites, "tell kernels apart by the host code that launches them");
  line.flag("--sim{default}", sim, "use the simulated GPU; --sim=time_slice, mps or serial")
      .value_name("SHARING");
  const Option slow = line.option("--slow-motion", slow_motion,
                                  "with --sim: stretch the model's time by this factor");
  line.option("--priority", priority, "0 (highest) to 9, or realtime, high, normal, low, idle");
  line.option("--name", order.wishes.name, "task name (default: the program's file name)");
  line.option("--socket", order.wishes.socket, "without a program: socket of lulld");
  Words shown_in_help;
  line.option("program", shown_in_help, "the program and its arguments");

  bool marker = false;
  const size_t own = own_words(line, words, marker);
  order.program.assign(words.begin() + static_cast<ptrdiff_t>(own + (marker ? 1 : 0)), words.end());
  const int usage = order.program.empty() ? kUsage : kRunFailed;
  if (const auto code = parse_words(
          line, Words(words.begin(), words.begin() + static_cast<ptrdiff_t>(own)), usage)) {
    return *code;
  }
  LaunchWishes& wishes = order.wishes;
  if (!priority.empty()) {
    const auto level = parse_priority(priority);
    if (!level) return fail("--priority: " + level.error(), usage);
    wishes.priority = *level;
  }
  if (wishes.name.size() >= sizeof(channel::lull_hello::name)) {
    return fail(fmt::format("--name: '{}' is too long: use at most {} bytes", wishes.name,
                            sizeof(channel::lull_hello::name) - 1),
                usage);
  }
  wishes.simulate = !sim.empty();
  if (wishes.simulate && sim != "default") {
    const auto sharing = parse_sharing(sim);
    if (!sharing) return fail("--sim: " + sharing.error(), usage);
    wishes.sharing = sim;
  }
  if (slow) {
    if (!wishes.simulate)
      return fail("--slow-motion: a real GPU has none: use it with --sim", usage);
    if (!(slow_motion >= 1 && slow_motion <= 1e6)) {
      return fail(fmt::format("--slow-motion: {} is out of range: use 1 or more", slow_motion),
                  usage);
    }
    wishes.slow_motion = slow_motion;
  }
  wishes.timing = order.timing;
  wishes.call_sites = call_sites;
  // The daemon is another process, in another folder.
  std::error_code ignored;
  order.output = std::filesystem::absolute(order.output, ignored).string();
  if (!order.program.empty()) {
    if (!wishes.socket.empty())
      return fail("--socket: a program is recorded by a lulld of its own", usage);
    return record_program(std::move(order));
  }
  if (wishes.simulate || !priority.empty() || call_sites || !wishes.name.empty()) {
    return fail("these options are of a program: lull trace record -o FILE [OPTIONS] -- PROGRAM",
                usage);
  }
  return record_node(order);
}

}  // namespace lull::command
