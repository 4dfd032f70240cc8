// `lull profile list|show TASK|forget TASK`: what is kept of tasks between runs. The running daemon
// is asked; without one the directory is read here.
#include <ctime>
#include <nlohmann/json.hpp>
#include <set>

#include "coordinator/daemon/profile_store.h"
#include "tools/lull/command.h"
#include "tools/lull/daemon_link.h"
#include "tools/lull/json_output.h"
#include "tools/lull/output_width.h"
#include "tools/lull/trace/kernel_display.h"
#include "tools/measure/values.h"

namespace lull::command {
namespace {

using daemon::ProfileStore;
using nlohmann::json;

std::string day_of(int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm parts{};
  if (::localtime_r(&time, &parts) == nullptr) return "?";
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
  return text;
}

// The same answers as the daemon gives.
std::expected<json, std::string> ask_directory(const std::string& directory, const json& question) {
  ProfileStore store(directory);
  if (question.contains("forget")) {
    const auto gone = store.forget(question["forget"].get<std::string>());
    if (!gone) return std::unexpected(gone.error());
    return json{{"forgotten", *gone}, {"running", 0}};
  }
  json reply = {{"directory", directory}};
  if (question.contains("show")) {
    reply["records"] = json::array();
    for (const auto& record : store.find(question["show"].get<std::string>())) {
      reply["records"].push_back(json::parse(engine::write_task_record(record)));
    }
    return reply;
  }
  reply["profiles"] = json::array();
  for (const ProfileStore::Entry& entry : store.list()) {
    reply["profiles"].push_back({{"task", entry.task},
                                 {"gpu", entry.gpu},
                                 {"kernels", entry.kernels},
                                 {"samples", entry.samples},
                                 {"bytes", entry.bytes},
                                 {"saved_unix_s", entry.saved_unix_s},
                                 {"file", entry.file}});
  }
  return reply;
}

void print_list(const json& reply, size_t width) {
  const json& entries = reply.at("profiles");
  if (entries.empty()) {
    fmt::print("no profiles in {}\n", reply.at("directory").get<std::string>());
    return;
  }
  TextTable table({TextTable::name_column("TASK"),
                   TextTable::name_column("GPU"),
                   {"KERNELS"},
                   {"SAMPLES"},
                   {"SIZE"},
                   TextTable::word_column("SAVED")},
                  /*indent=*/0);
  std::set<std::string> tasks, gpus;
  uint64_t bytes = 0;
  for (const json& entry : entries) {
    const auto task = entry.at("task").get<std::string>(), gpu = entry.at("gpu").get<std::string>();
    table.add({task, gpu, fmt::format("{}", entry.at("kernels").get<uint64_t>()),
               fmt::format("{}", entry.at("samples").get<uint64_t>()),
               show_bytes(entry.at("bytes").get<uint64_t>()),
               day_of(entry.at("saved_unix_s").get<int64_t>())});
    tasks.insert(task);
    gpus.insert(gpu);
    bytes += entry.at("bytes").get<uint64_t>();
  }
  fmt::print("{}\n{}\n", table.text(width),
             wrapped(fmt::format("{} known on {}, {} in all.",
                                 tasks.size() == 1 ? "One task is"
                                                   : fmt::format("{} tasks are", tasks.size()),
                                 gpus.size() == 1 ? "one model of GPU"
                                                  : fmt::format("{} models of GPU", gpus.size()),
                                 show_bytes(bytes)),
                     width));
}

void print_record(const json& record, size_t width) {
  const auto say = [&](const std::string& text) { fmt::print("{}\n", wrapped(text, width, 2)); };
  say(fmt::format("{} on {}", record.at("task").get<std::string>(),
                  record.at("gpu").get<std::string>()));
  if (const auto found = record.find("iteration"); found != record.end()) {
    say(fmt::format("iteration, undisturbed: {}",
                    show_ns(found->at("undisturbed_ns").get<double>())));
  }
  std::vector<const json*> kernels;
  for (const json& kernel : record.at("kernels")) kernels.push_back(&kernel);
  const auto total = [](const json& kernel) {
    return kernel.at("count").get<double>() * kernel.at("mean_ns").get<double>();
  };
  std::stable_sort(kernels.begin(), kernels.end(),
                   [&](const json* a, const json* b) { return total(*a) > total(*b); });
  TextTable table({{"SAMPLES"},
                   {"MEAN"},
                   {"P50"},
                   {"P99"},
                   {"GAP P50"},
                   {"GAP P99"},
                   TextTable::name_column("KERNEL", trace::shorten_name)},
                  /*indent=*/0);
  double all = 0;
  for (const json* kernel : kernels) {
    const auto time = [&](const json& object, const char* key) {
      return show_ns(object.at(key).get<double>());
    };
    const auto gap = kernel->find("gap");
    const bool known = gap != kernel->end();
    const auto name = kernel->at("name").get<std::string>();
    table.add({fmt::format("{}", kernel->at("count").get<uint64_t>()), time(*kernel, "mean_ns"),
               time(*kernel, "p50_ns"), time(*kernel, "p99_ns"), known ? time(*gap, "p50_ns") : "-",
               known ? time(*gap, "p99_ns") : "-",
               name.empty() ? kernel->at("id").get<std::string>() : trace::display_name(name)});
    all += total(*kernel);
  }
  // How few kernels make nine tenths of the time.
  size_t most = 0;
  for (double sum = 0; most < kernels.size() && sum < 0.9 * all; ++most)
    sum += total(*kernels[most]);
  fmt::print("{}\n", table.text(width));
  say(fmt::format("{} of {} kernels make 90 % of the time that was seen.", most, kernels.size()));
}

}  // namespace

int profile_main(const Words& words) {
  JsonOutput as_json;
  std::string socket;
  std::string directory;
  std::string task;
  CommandLine line("Shows what was learnt of tasks in earlier runs, or forgets it.",
                   "lull profile");
  CommandLine* list = &line.command("list", "every task and model of GPU");
  CommandLine* show = &line.command("show", "the kernels of a task");
  CommandLine* forget = &line.command("forget", "remove what is kept of a task");
  for (CommandLine* one : {list, show, forget}) {
    one->option("--socket", socket, "socket of lulld");
    one->option("--directory", directory, "look into this directory, without the daemon");
    if (one != forget) as_json.add_to(*one);
    if (one != list) {
      one->option("task", task, "its name, or UID/name as `list` shows it").required();
    }
  }
  line.require_command();
  if (const auto code = parse_words(line, words)) return *code;

  json question = {{"op", "profile"}};
  if (show->given()) question["show"] = task;
  if (forget->given()) question["forget"] = task;
  std::expected<json, std::string> reply = std::unexpected(std::string());
  bool asked = false;
  if (directory.empty()) {
    auto answer = ask_daemon(socket.empty() ? default_socket() : socket, question);
    asked = answer || answer.error().kind != AskError::kUnreachable || !socket.empty();
    if (answer) {
      reply = std::move(*answer);
    } else {
      reply = std::unexpected(answer.error().text);
    }
    if (!asked) directory = daemon::default_profile_directory();
  }
  if (!asked) {
    if (directory.empty()) {
      complain("profile: no daemon and no home to look in: give --directory");
      return kFailed;
    }
    reply = ask_directory(directory, question);
  }
  if (!reply) {
    complain("profile: " + reply.error());
    return kFailed;
  }
  try {
    if (forget->given()) {
      const auto gone = reply->at("forgotten").get<uint64_t>();
      const auto running = reply->at("running").get<uint64_t>();
      if (gone == 0 && running == 0) {
        complain(fmt::format("profile: nothing is kept of '{}': see `lull profile list`", task));
        return kFailed;
      }
      fmt::print("{} forgotten{}\n", gone == 1 ? "1 profile" : fmt::format("{} profiles", gone),
                 running > 0 ? "; the task is running and is kept again when it leaves" : "");
      return kDone;
    }
    if (show->given() && reply->at("records").empty()) {
      complain(fmt::format("profile: nothing is kept of '{}': see `lull profile list`", task));
      return kFailed;
    }
    if (!as_json.write("profile", show->given() ? reply->at("records") : *reply)) return kFailed;
    if (as_json.replaces_text()) return kDone;
    if (show->given()) {
      for (const json& record : reply->at("records")) print_record(record, output_width());
    } else {
      print_list(*reply, output_width());
    }
  } catch (const json::exception&) {
    complain("profile: the answer is not understood: is the daemon of this version?");
    return kFailed;
  }
  return kDone;
}

}  // namespace lull::command
