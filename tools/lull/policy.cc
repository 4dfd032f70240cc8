// `lull policy`: shows or changes the running daemon's policy. The daemon knows the names.
#include <nlohmann/json.hpp>

#include "policies/jobs/registry.h"
#include "policies/launch/registry.h"
#include "tools/lull/command.h"
#include "tools/lull/daemon_link.h"

namespace lull::command {

int policy_main(const Words& words) {
  std::vector<std::string> parts;
  std::string socket;
  CommandLine line(
      "Shows the policy of the running daemon, or changes it: share, exclusive, time_slice, "
      "priority, fikit or guarded, with options as key=value.",
      "lull policy");
  line.option("policy", parts, "name and options, for example: priority in_flight_us=50");
  line.option("--socket", socket, "socket of lulld");
  bool list = false;
  bool of_jobs = false;
  line.flag("--jobs", of_jobs,
            "the job policy instead: static, fifo, time_slice, las or gandiva decide who lives on which "
            "GPU; none: only people move jobs");
  line.flag("--list", list, "print the names of all policies, one a line; needs no daemon");
  if (const auto code = parse_words(line, words)) return *code;
  if (list) {
    for (const jobs::JobPolicyRow& row : jobs::job_policy_rows()) {
      if (of_jobs) fmt::print("{}\n", row.name);
    }
    if (of_jobs) return kDone;
    for (const policies::PolicyRow& row : policies::policy_rows()) fmt::print("{}\n", row.name);
    return kDone;
  }
  std::string wanted;
  for (const std::string& part : parts) wanted += (wanted.empty() ? "" : " ") + part;
  nlohmann::json question = {{"op", of_jobs ? "job_policy" : "policy"}};
  if (!wanted.empty()) question["policy"] = wanted;
  const auto answer = ask_daemon(socket.empty() ? default_socket() : socket, question);
  if (!answer) {
    complain("policy: " + answer.error().text);
    return kFailed;
  }
  const auto now = answer->find("policy");
  fmt::print("{}\n", now != answer->end() && now->is_string() ? now->get<std::string>() : wanted);
  return kDone;
}

}  // namespace lull::command
