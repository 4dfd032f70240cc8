// `lull suspend | resume | migrate | pin | resize JOB`: asks lulld to move a job, and with --wait
// shows how it goes until it is there.
#include <time.h>

#include <nlohmann/json.hpp>

#include "tools/lull/command.h"
#include "tools/lull/daemon_link.h"
#include "tools/lull/job_display.h"
#include "tools/lull/json_output.h"
#include "tools/lull/progress_line.h"
#include "tools/measure/values.h"

namespace lull::command {
namespace {

using nlohmann::json;

constexpr timespec kLookEvery{0, 100'000'000};

constexpr const char* kJobIs = "a job's or a task's name, a pid or a client id";

struct Request {
  std::string job;
  std::string socket;
  bool wait = false;
  JsonOutput as_json;

  void add_to(CommandLine& line, bool waits) {
    line.option("job", job, kJobIs).required();
    if (waits) line.flag("--wait", wait, "return when it is there, and show how it goes");
    as_json.add_to(line);
    line.option("--socket", socket, "socket of lulld");
  }
};

// Asks until the job is where it was sent, or is known not to get there. The last answer.
std::expected<json, AskError> wait_for(const std::string& socket, const json& asked, json job) {
  ProgressLine progress;
  // Named by a client of it: another job of the same name may come.
  json who = asked["job"];
  if (const json& clients = job.value("clients", json::array()); !clients.empty()) {
    who = std::to_string(clients.front().get<uint64_t>());
  }
  while (is_on_its_way(job)) {
    progress.show(describe_job(job));
    nanosleep(&kLookEvery, nullptr);
    const auto answer = ask_daemon(socket, {{"op", "job"}, {"job", who}});
    if (!answer) return answer;
    job = answer->value("job", json::object());
  }
  return job;
}

bool is_as_far(const json& question, const json& job) {
  const std::string level = question.value("level", "auto");
  return level == "auto" || level == job.value("level", "");
}

int ask(const char* name, Request& request, json question) {
  question["op"] = name;
  question["job"] = request.job;
  const std::string socket = request.socket.empty() ? default_socket() : request.socket;
  const auto fail = [&](const AskError& error) {
    complain(fmt::format("{}: {}", name, error.text));
    return kFailed;
  };
  const auto answer = ask_daemon(socket, question);
  if (!answer) return fail(answer.error());
  json job = answer->value("job", json::object());
  if (request.wait) {
    const auto end = wait_for(socket, question, job);
    if (!end) return fail(end.error());
    job = *end;
  }
  if (!request.as_json.replaces_text()) fmt::print("{}\n", describe_job(job));
  if (!request.as_json.write(name, job)) return kFailed;
  if (!request.wait) return kDone;
  const std::string state = job.value("state", "?");
  const bool suspends = question["op"] == "suspend";
  const bool there =
      suspends ? state == "suspended" && is_as_far(question, job) : state == "running";
  // A job that could not be moved goes on, with the reason.
  const bool refused = std::string(name) == "migrate" && !job.value("reason", "").empty();
  return there && !refused ? kDone : kFailed;
}

void add_moment(CommandLine& line, std::string& at) {
  line.option("--at", at,
              "iteration: where its iteration holds least memory, within 10 s (default); or now")
      .one_of({"iteration", "now"});
}

}  // namespace

int suspend_main(const Words& words) {
  Request request;
  std::string at = "iteration", level = "auto";
  CommandLine line("Suspends a job: it launches no more, and its device memory moves to the host.",
                   "lull suspend");
  request.add_to(line, /*waits=*/true);
  add_moment(line, at);
  line.option("--level", level,
              "out: memory that can be swapped; given_up: the whole GPU; in_place: nothing; auto: "
              "out where "
              "it can, else in_place (default)")
      .one_of({"auto", "in_place", "out", "given_up"});
  if (const auto code = parse_words(line, words)) return *code;
  return ask("suspend", request, {{"at", at}, {"level", level}});
}

int resume_main(const Words& words) {
  Request request;
  CommandLine line("Lets a suspended job go on, once the GPU has room for its memory.",
                   "lull resume");
  request.add_to(line, /*waits=*/true);
  if (const auto code = parse_words(line, words)) return *code;
  return ask("resume", request, json::object());
}

int migrate_main(const Words& words) {
  Request request;
  std::string at = "iteration";
  std::vector<std::string> to;
  CommandLine line(
      "Moves a job to other GPUs of this node. It was started with lull run --migratable.",
      "lull migrate");
  request.add_to(line, /*waits=*/true);
  add_moment(line, at);
  line.option("--to", to,
              "a GPU by its index or UUID in `lull status`; once for each GPU that the job uses")
      .required()
      .repeated();
  if (const auto code = parse_words(line, words)) return *code;
  return ask("migrate", request, {{"at", at}, {"to", to}});
}

int pin_main(const Words& words) {
  Request request;
  bool off = false;
  CommandLine line("Pins a job: nobody moves it, neither a person nor a policy.", "lull pin");
  request.add_to(line, /*waits=*/false);
  line.flag("--off", off, "let it be moved again");
  if (const auto code = parse_words(line, words)) return *code;
  return ask("pin", request, {{"pinned", !off}});
}

int resize_main(const Words& words) {
  Request request;
  uint32_t gpus = 0;
  CommandLine line("Gives an elastic job more GPUs, or fewer.", "lull resize");
  request.add_to(line, /*waits=*/false);
  line.option("--gpus", gpus, "how many").required();
  if (const auto code = parse_words(line, words)) return *code;
  return ask("resize", request, {{"gpus", gpus}});
}

}  // namespace lull::command
