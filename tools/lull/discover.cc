// `lull discover JOB`: how many workers an elastic job may have now, in the form that launchers take.
#include <sys/stat.h>

#include <climits>
#include <cstdlib>
#include <fstream>
#include <unistd.h>

#include "tools/lull/command.h"
#include "tools/lull/daemon_link.h"
#include "tools/lull/elastic_range.h"
#include "tools/lull/reply_fields.h"

namespace lull::command {
namespace {

using nlohmann::json;

// As one word of sh.
std::string shell_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

int write_script(const std::string& file, const std::string& words) {
  char self[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self);
  if (length <= 0) {
    complain("discover: --script: cannot find this program: is /proc mounted?");
    return kFailed;
  }
  std::ofstream out(file);
  out << "#!/bin/sh\nexec " << shell_word(std::string(self, static_cast<size_t>(length))) << " discover"
      << words << "\n";
  out.close();
  if (!out || chmod(file.c_str(), 0755) != 0) {
    complain(fmt::format("discover: --script: {} cannot be written: name a file in a folder of yours",
                         file));
    return kFailed;
  }
  return kDone;
}

}  // namespace

int discover_main(const Words& words) {
  std::string job, elastic, host = "localhost", script, socket;
  bool count = false;
  CommandLine line(
      "Prints how many workers an elastic job may have now: HOST:SLOTS, the line that Horovod's "
      "--host-discovery-script prints.",
      "lull discover");
  line.option("job", job, "the job's name, of lull run --job").required();
  line.flag("--count", count, "print the number alone, for torchrun's --nproc-per-node");
  line.option("--host", host, "this node's name for the launcher (default: localhost)");
  line.option("--elastic", elastic,
              "MIN:MAX, where lull run has not said it (default: of LULL_ELASTIC in the job)");
  line.option("--script", script, "write a program that prints it to this file instead");
  line.option("--socket", socket, "socket of lulld");
  if (const auto code = parse_words(line, words)) return *code;
  // In the job's own environment: a lulld that has restarted since learns the range again.
  const char* own_job = std::getenv("LULL_JOB");
  const char* own_range = std::getenv("LULL_ELASTIC");
  const bool from_environment = elastic.empty() && own_job != nullptr && own_range != nullptr && job == own_job;
  if (from_environment) elastic = own_range;
  json question = {{"op", "elastic"}, {"job", job}};
  if (!elastic.empty()) {
    const auto range = parse_elastic(elastic);
    if (!range) {
      complain(fmt::format("discover: {}: {}", from_environment ? "LULL_ELASTIC" : "--elastic",
                           range.error()));
      return kUsage;
    }
    question["min"] = range->least;
    question["max"] = range->most;
  }
  if (!script.empty()) {
    std::string again = " " + shell_word(job) + " --host " + shell_word(host);
    if (count) again += " --count";
    if (!elastic.empty()) again += " --elastic " + elastic;
    if (!socket.empty()) again += " --socket " + shell_word(socket);
    return write_script(script, again);
  }
  const auto answer = ask_daemon(socket.empty() ? default_socket() : socket, question);
  if (!answer) {
    complain("discover: " + answer.error().text);
    return kFailed;
  }
  const auto gpus = field<uint32_t>(answer->value("elastic", json::object()), "usable", 0);
  if (gpus == 0) {
    complain("discover: lulld's answer has no number of GPUs: use a lull of its version");
    return kFailed;
  }
  if (count) {
    fmt::print("{}\n", gpus);
  } else {
    fmt::print("{}:{}\n", host, gpus);
  }
  return kDone;
}

}  // namespace lull::command
