// lull-bench: what lull costs on the launch path, as nanoseconds and as ratios to the bare call.
//
// A child process launches over a driver whose calls do nothing (empty_driver.cc), so that only
// lull is left. In every row the bare call is measured in the same process, in alternating
// batches. Medians over batches; this machine's figures, not a pass or a fail.
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "coordinator/command_line/command_line.h"
#include "tools/bench/allocations.h"
#include "tools/bench/child.h"
#include "tools/bench/decisions.h"
#include "tools/bench/launcher.h"
#include "tools/bench/stand_in_coordinator.h"

namespace {

namespace fs = std::filesystem;
using lull::bench::Mode;

struct Row {
  std::string name;
  double ns;
  double p10_ns;  // of the batches: on a busy machine those in which the rings were drained
  double bare_ns;
  uint64_t records;
  uint64_t dropped;
};

struct Setup {
  fs::path self;
  fs::path libraries;  // .../lib/lull
  fs::path directory;  // private, temporary
  int batches;
  int calls;
};

std::optional<nlohmann::json> run_launches(const Setup& setup, int threads, const std::string& preload,
                                           const std::string& socket, const std::string& variable) {
  std::vector<std::string> environment = {"LD_LIBRARY_PATH=" + (setup.libraries / "bench").string()};
  if (!preload.empty()) environment.push_back("LD_PRELOAD=" + preload);
  if (!socket.empty()) environment.push_back("LULL_SOCKET=" + socket);
  if (!variable.empty()) environment.push_back(variable);
  return lull::bench::run_child(setup.self.string(),
                                {"--launcher", std::to_string(threads), "--batches", std::to_string(setup.batches),
                                 "--calls", std::to_string(setup.calls)},
                                environment);
}

std::optional<Row> measure(const Setup& setup, const std::string& name, int threads, bool preload,
                           std::optional<Mode> mode, const std::string& variable) {
  const fs::path socket = setup.directory / "bench.sock";
  std::optional<lull::bench::StandInCoordinator> coordinator;
  if (mode) {
    coordinator.emplace(socket.string());
    coordinator->set_mode(*mode);
  }
  const auto result = run_launches(setup, threads, preload ? (setup.libraries / "liblull.so").string() : "",
                                mode ? socket.string() : "", variable);
  if (!result) return std::nullopt;
  return Row{name, (*result)["launch_ns"], (*result)["launch_p10_ns"], (*result)["bare_ns"], coordinator ? coordinator->records() : 0,
             coordinator ? coordinator->dropped() : 0};
}

}  // namespace

int main(int argc, char** argv) {
  lull::CommandLine line("What lull costs a launch, beside the bare driver call.", "lull-bench");
  Setup setup{};
  bool json = false;
  bool decisions = false;
  bool allocations = false;
  bool allocator = false;
  int launcher = 0;
  // Together with a launcher's warm-up less than a ring holds: what is measured is a launch, not a
  // ring that overflows because the coordinator got no processor.
  setup.batches = 1001;
  setup.calls = 200;
  line.flag("--json", json, "Print {\"rows\": [{name, ns, ratio_to_bare, ...}]}");
  line.flag("--decisions", decisions, "Instead: what a step of the engine costs on a device with many clients");
  line.flag("--allocations", allocations, "Instead: what an allocation and its free cost, with memory that can be moved and without");
  line.option("--batches", setup.batches, "Batches a figure is the median of").range(3, 10000);
  line.option("--calls", setup.calls, "Launches in a batch").range(100, 10000000);
  line.option("--launcher", launcher).hidden();
  line.flag("--allocator", allocator, "").hidden();
  line.version("lull-bench " LULL_VERSION);
  if (const auto stop = line.parse({argv + 1, argv + argc})) {
    if (!stop->wrong) {
      fmt::print("{}", stop->text);
      return 0;
    }
    fmt::print(stderr, "lull-bench: {}: see lull-bench --help\n", stop->text);
    return 2;
  }
  if (launcher > 0) return lull::bench::run_launcher(launcher, setup.batches, setup.calls);
  if (allocator) return lull::bench::run_allocator();

  if (decisions) return lull::bench::run_decisions(json);

  setup.self = fs::read_symlink("/proc/self/exe");
  setup.libraries = setup.self.parent_path().parent_path() / "lib" / "lull";
  if (!fs::exists(setup.libraries / "liblull.so") || !fs::exists(setup.libraries / "bench/libcuda.so.1")) {
    fmt::print(stderr, "lull-bench: no liblull.so and bench/libcuda.so.1 in {}: build or install all of lull\n",
               setup.libraries.string());
    return 1;
  }
  if (allocations) return lull::bench::run_allocations(setup.self, setup.libraries, json);

  std::string name = (fs::temp_directory_path() / "lull-bench-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    fmt::print(stderr, "lull-bench: cannot make a directory {}: set TMPDIR to a writable one\n", name);
    return 1;
  }
  setup.directory = name;

  struct Case {
    const char* name;
    int threads;
    bool preload;
    std::optional<Mode> mode;
    const char* variable = "";
  };
  const Case cases[] = {
      {"bare_call", 1, false, std::nullopt},        {"shim_no_coordinator", 1, true, std::nullopt},
      {"gate_open_no_record", 1, true, Mode::kOpenNoRecords},
      {"gate_open", 1, true, Mode::kOpen},          {"gate_open_timed", 1, true, Mode::kOpenTimed},
      {"gate_open_call_sites", 1, true, Mode::kOpenNoRecords, "LULL_CALL_SITES=1"},
      {"gate_open_timed_call_sites", 1, true, Mode::kOpenTimed, "LULL_CALL_SITES=1"},
      {"gate_open_sampled", 1, true, Mode::kOpenSampled},
      {"gate_credit", 1, true, Mode::kCredit},
      {"gate_open_marker", 1, true, Mode::kOpenMarkers},
      {"gate_open_no_record_moves", 1, true, Mode::kOpenNoRecords, "LULL_SUSPENDABLE=1"},
      {"gate_open_moves", 1, true, Mode::kOpen, "LULL_SUSPENDABLE=1"},
      {"gate_open_2_threads", 2, true, Mode::kOpen}, {"gate_credit_2_threads", 2, true, Mode::kCredit},
  };
  std::vector<Row> rows;
  bool failed = false;
  for (const Case& one : cases) {
    try {
      if (auto row = measure(setup, one.name, one.threads, one.preload, one.mode, one.variable)) {
        rows.push_back(*row);
        continue;
      }
    } catch (const std::exception& error) {
      fmt::print(stderr, "lull-bench: {}\n", error.what());
    }
    fmt::print(stderr, "lull-bench: {} could not be measured\n", one.name);
    failed = true;
  }
  fs::remove_all(setup.directory);

  if (json) {
    nlohmann::json out;
    out["unit"] = "ns a launch, median over batches";
    out["cores"] = std::thread::hardware_concurrency();
    for (const Row& row : rows) {
      out["rows"].push_back({{"name", row.name}, {"ns", row.ns}, {"p10_ns", row.p10_ns}, {"bare_ns", row.bare_ns},
                             {"over_bare_ns", row.ns - row.bare_ns}, {"ratio_to_bare", row.ns / row.bare_ns},
                             {"records", row.records}, {"dropped", row.dropped}});
    }
    fmt::print("{}\n", out.dump(2));
  } else {
    fmt::print("{:<28} {:>9} {:>9} {:>9} {:>10} {:>8} {:>12} {:>10}\n", "name", "ns", "p10 ns", "bare ns", "over bare",
               "ratio", "records", "dropped");
    for (const Row& row : rows) {
      fmt::print("{:<28} {:>9.2f} {:>9.2f} {:>9.2f} {:>10.2f} {:>8.2f} {:>12} {:>10}\n", row.name, row.ns, row.p10_ns, row.bare_ns,
                 row.ns - row.bare_ns, row.ns / row.bare_ns, row.records, row.dropped);
    }
  }
  return failed ? 1 : 0;
}
