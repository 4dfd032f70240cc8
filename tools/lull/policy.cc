// `lull policy`: shows or changes the running daemon's policy. The daemon knows the names.
#include <nlohmann/json.hpp>
#include <sstream>

#include "policies/jobs/registry.h"
#include "policies/launch/registry.h"
#include "tools/lull/command.h"
#include "tools/lull/daemon_link.h"
#include "tools/lull/json_output.h"

namespace lull::command {
namespace {

std::vector<std::string> known_names(bool of_jobs) {
  std::vector<std::string> names;
  if (of_jobs) {
    for (const jobs::JobPolicyRow& row : jobs::job_policy_rows()) names.emplace_back(row.name);
  } else {
    for (const policies::PolicyRow& row : policies::policy_rows()) names.emplace_back(row.name);
  }
  return names;
}

// The daemon's text: a name, then key=value.
nlohmann::ordered_json policy_json(const std::string& text) {
  std::istringstream words(text);
  std::string name, option;
  words >> name;
  nlohmann::ordered_json out = {{"policy", name}, {"options", nlohmann::ordered_json::object()}};
  while (words >> option) {
    const size_t equals = option.find('=');
    out["options"][option.substr(0, equals)] =
        equals == std::string::npos ? "" : option.substr(equals + 1);
  }
  return out;
}

}  // namespace

int policy_main(const Words& words) {
  std::vector<std::string> parts;
  std::string socket;
  JsonOutput as_json;
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
  as_json.add_to(line);
  if (const auto code = parse_words(line, words)) return *code;
  if (list) {
    const std::vector<std::string> names = known_names(of_jobs);
    if (!as_json.replaces_text()) fmt::print("{}\n", fmt::join(names, "\n"));
    return as_json.write("policy", nlohmann::json{{"policies", names}}) ? kDone : kFailed;
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
  const std::string text =
      now != answer->end() && now->is_string() ? now->get<std::string>() : wanted;
  if (!as_json.replaces_text()) fmt::print("{}\n", text);
  return as_json.write("policy", policy_json(text)) ? kDone : kFailed;
}

}  // namespace lull::command
