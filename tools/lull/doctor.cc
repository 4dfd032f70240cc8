// `lull doctor [PROGRAM]`: what on this machine, or in this program, would stop lull from working.
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tools/lull/command.h"
#include "tools/lull/daemon_link.h"
#include "tools/lull/installed.h"
#include "tools/lull/json_output.h"
#include "tools/lull/machine_check.h"
#include "tools/lull/output_width.h"
#include "tools/lull/program_check.h"

namespace lull::command {
namespace {

const char* word(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarn:
      return "warn";
    case Verdict::kFail:
      return "fail";
  }
  return "?";
}

// The lines about PROGRAM; a script is examined as its interpreter.
Findings check_named_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  const auto file = find_program(name, path ? path : "/usr/bin:/bin");
  if (!file) {
    return {{Verdict::kFail, "program",
             fmt::format("'{}' {}", name,
                         file.error() == ENOENT ? "is not found" : "cannot be executed"),
             "check the name, PATH and its x permission"}};
  }
  const auto real = real_executable(*file);
  if (!real)
    return {{Verdict::kFail, "program", real.error(), "give the program that runs in the end"}};
  Findings findings;
  if (*real != *file) {
    findings.push_back({Verdict::kOk, "script", fmt::format("{} is run by {}", *file, *real), ""});
  }
  for (Finding& finding : check_program(*real)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace

std::string findings_text(const Findings& findings, size_t width) {
  TextTable table({TextTable::key_column("", TextTable::Align::kLeft),
                   TextTable::key_column("", TextTable::Align::kLeft), TextTable::text_column("")},
                  /*indent=*/0);
  size_t fail = 0, warn = 0;
  const Finding* first = nullptr;
  for (const Finding& finding : findings) {
    table.add({word(finding.verdict), finding.check,
               finding.seen + (finding.mend.empty() ? "" : ": " + finding.mend)});
    fail += finding.verdict == Verdict::kFail ? 1 : 0;
    warn += finding.verdict == Verdict::kWarn ? 1 : 0;
    if (finding.verdict == Verdict::kFail && first == nullptr) first = &finding;
  }
  const std::string warnings =
      warn == 0 ? "" : fmt::format("; {} {} to read", warn, warn == 1 ? "warning" : "warnings");
  const std::string sentence =
      first == nullptr
          ? fmt::format("lull works here: none of {} checks failed{}.", findings.size(), warnings)
          : fmt::format(
                "lull would not work here as it should: {} of {} checks failed, first of all {}{}.",
                fail, findings.size(), first->check, warnings);
  return table.text(width) + "\n" + wrapped(sentence, width) + "\n";
}

int doctor_main(const Words& words) {
  if (words.size() == 1 && words[0] == kPreloadProbeWord) return preload_probe();
  bool simulate = false;
  JsonOutput as_json;
  std::string socket, program;
  std::vector<std::string> plugins;
  CommandLine line(
      "Says what on this machine, or in PROGRAM, would stop lull from working, and how to "
      "mend it. Exit code 1 when anything fails.",
      "lull doctor");
  line.option("program", program, "a program to examine (it is not run)");
  line.option("--plugin", plugins, "a library the program opens while it runs; may be repeated")
      .repeated();
  line.flag("--sim", simulate, "for the simulated GPU: a missing driver is no failure");
  as_json.add_to(line);
  line.option("--socket", socket, "socket of lulld");
  if (const auto code = parse_words(line, words)) return *code;

  Findings findings = check_machine(socket.empty() ? default_socket() : socket, simulate);
  if (!program.empty()) {
    for (Finding& finding : check_named_program(program)) findings.push_back(std::move(finding));
  }
  for (const std::string& plugin : plugins) {
    for (Finding& finding : check_plugin(plugin)) findings.push_back(std::move(finding));
  }

  bool failed = false;
  nlohmann::json rows = nlohmann::json::array();
  for (const Finding& finding : findings) {
    failed |= finding.verdict == Verdict::kFail;
    rows.push_back({{"verdict", word(finding.verdict)},
                    {"check", finding.check},
                    {"seen", finding.seen},
                    {"mend", finding.mend}});
  }
  if (!as_json.replaces_text()) fmt::print("{}", findings_text(findings, output_width()));
  const bool written = as_json.write("doctor", nlohmann::json{{"ok", !failed}, {"findings", rows}});
  return failed || !written ? kFailed : kDone;
}

}  // namespace lull::command
