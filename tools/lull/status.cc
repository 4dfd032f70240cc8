// `lull status`: the daemon's own account, as a table or as it came.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/lull/command.h"
#include "tools/lull/daemon_link.h"
#include "tools/lull/job_display.h"
#include "tools/lull/json_output.h"
#include "tools/lull/pair_display.h"
#include "tools/lull/reply_fields.h"
#include "tools/lull/trace/kernel_display.h"
#include "tools/measure/values.h"

namespace lull::command {
namespace {

using nlohmann::json;

constexpr size_t kNameChars = 60;  // of a kernel

std::string task_of(const json& status, uint64_t id) {
  for (const json& client : list(status, "clients")) {
    if (field<uint64_t>(client, "id", 0) == id) return field<std::string>(client, "task", "?");
  }
  return "?";
}

// A dash for a program in a container that lulld does not see into.
std::string show_pid(const json& client) {
  const auto pid = field<int64_t>(client, "pid", 0);
  return pid > 0 ? fmt::format("{}", pid) : "-";
}

void print_client(const json& client, const std::string& uuid) {
  for (const json& device : list(client, "devices")) {
    if (field<std::string>(device, "uuid", "") != uuid) continue;
    const auto allowance = field<uint64_t>(device, "memory_allowance_bytes", UINT64_MAX);
    std::string memory = show_bytes(field<uint64_t>(device, "memory_bytes", 0));
    if (allowance != UINT64_MAX && allowance != 0) memory += " of " + show_bytes(allowance);
    fmt::print(
        "  {:>4}  {:<20.20}  {:>8}  {:<8}  {:<6}  {:<22}  {:>9}  {:>11}  {:>10}  {:>7}  {:>9}\n",
        field<uint64_t>(client, "id", 0), field<std::string>(client, "task", "?"), show_pid(client),
        priority_name(field(client, "priority", 5)), field<std::string>(device, "gate", "?"),
        memory, show_ns(field<double>(device, "in_flight_ns", 0)),
        show_ns(field<double>(device, "device_time_ns", 0)), field<uint64_t>(client, "launches", 0),
        field<uint64_t>(client, "dropped", 0), show_ns(field<double>(client, "held_ns", 0)));
  }
}

void print_own_pid(const json& client) {
  const auto own = field<int64_t>(client, "namespace_pid", 0);
  if (own <= 0 || own == field<int64_t>(client, "pid", 0)) return;
  fmt::print("        process {} in its own pid namespace\n", own);
}

void print_bound(const json& client) {
  const json& bound = field(client, "max_slowdown", json());
  const double mean = field(bound, "mean", -1.0), p99 = field(bound, "p99", -1.0);
  if (mean < 0) return;
  fmt::print("        may lose {:g} % in the mean, {:g} % at p99 to less important ones\n",
             100 * mean, 100 * p99);
}

void print_residence(const json& client) {
  const std::string text = describe_residence(field(client, "residence", json()));
  if (!text.empty()) fmt::print("        {}\n", text);
}

// The kernels that clients are held before, shortened together: those that differ are shown so.
std::map<std::string, std::string> held_names(const json& status) {
  std::vector<std::string> mangled, shown;
  for (const json& client : list(status, "clients")) {
    for (const json& held : list(client, "held")) {
      mangled.push_back(field<std::string>(held, "kernel", "?"));
      shown.push_back(trace::display_name(mangled.back()));
    }
  }
  shown = trace::shorten_names(shown, kNameChars);
  std::map<std::string, std::string> names;
  for (size_t i = 0; i < mangled.size(); ++i) names.emplace(mangled[i], shown[i]);
  return names;
}

void print_held(const json& status, const json& client,
                const std::map<std::string, std::string>& names) {
  for (const json& held : list(client, "held")) {
    std::string by;
    for (const json& id : list(held, "by")) {
      if (!id.is_number_unsigned()) continue;
      by += fmt::format("{}{} ({})", by.empty() ? "" : ", ", task_of(status, id.get<uint64_t>()),
                        id.get<uint64_t>());
    }
    fmt::print("        held: thread {} before {} for {}{}{}{}\n",
               field<uint64_t>(held, "thread", 0),
               names.at(field<std::string>(held, "kernel", "?")),
               show_ns(1e3 * field<double>(held, "for_us", 0)), by.empty() ? "" : ", by " + by,
               ": ", field<std::string>(held, "why", "no reason given"));
  }
}

// Those that lulld did not let attach; they run unscheduled.
void print_refused(const json& refused) {
  auto others = field<uint64_t>(refused, "attempts", 0);
  if (others == 0) return;
  fmt::print("\nrefused, running unscheduled (a program asks again each second):\n");
  for (const json& user : list(refused, "users")) {
    const auto attempts = field<uint64_t>(user, "attempts", 0);
    others -= std::min(others, attempts);
    fmt::print("  uid {}, {} times: {}\n", field<uint64_t>(user, "uid", 0), attempts,
               field<std::string>(user, "why", "no reason given"));
  }
  if (others > 0) fmt::print("  other users, {} times\n", others);
}

void print_status(const json& status) {
  const bool simulated = field(status, "simulated", false);
  fmt::print("lulld {} (pid {}), up {:.0f} s{}, policy: {}\n",
             field<std::string>(status, "version", "?"), field<int64_t>(status, "pid", 0),
             field<double>(status, "uptime_s", 0), simulated ? " of real time" : "",
             field<std::string>(status, "policy", "?"));
  if (simulated) {
    const auto slow_motion = field<double>(status, "slow_motion", 1);
    fmt::print(
        "simulated GPU: sharing {}, slow motion {}, control latency {} us; times below are model "
        "time: {:g} s of real time are 1 s of it\n",
        field<std::string>(status, "sharing", "?"), slow_motion,
        field<double>(status, "control_latency_us", 0), slow_motion);
  }
  const auto names = held_names(status);
  if (list(status, "devices").empty()) fmt::print("no device is known yet\n");
  for (const json& device : list(status, "devices")) {
    const std::string uuid = field<std::string>(device, "uuid", "?");
    fmt::print("\ndevice {}  {}  {}  {}\n", field<uint64_t>(device, "index", 0), uuid,
               field<std::string>(device, "name", "?"),
               show_bytes(field<uint64_t>(device, "total_bytes", 0)));
    fmt::print(
        "  {:>4}  {:<20}  {:>8}  {:<8}  {:<6}  {:<22}  {:>9}  {:>11}  {:>10}  {:>7}  {:>9}\n", "ID",
        "TASK", "PID", "PRIORITY", "GATE", "MEMORY", "IN FLIGHT", "DEVICE TIME", "LAUNCHES",
        "DROPPED", "HELD");
    for (const json& client : list(status, "clients")) {
      print_client(client, uuid);
      for (const json& used : list(client, "devices")) {
        if (field<std::string>(used, "uuid", "") == uuid) {
          print_own_pid(client);
          print_bound(client);
          print_residence(client);
          for (const std::string& line : describe_unsharable(status, client)) {
            fmt::print("        {}\n", line);
          }
          print_held(status, client, names);
          break;
        }
      }
    }
  }
  bool first = true;
  for (const json& job : list(status, "jobs")) {
    if (!job.is_object() || !is_worth_showing(job)) continue;
    fmt::print("{}  {}\n", first ? "\njobs:\n" : "", describe_job(job));
    first = false;
  }
  first = true;
  for (const json& client : list(status, "clients")) {
    if (!list(client, "devices").empty() || !list(client, "unscheduled").empty()) continue;
    if (first) fmt::print("\nattached, no device used yet:\n");
    first = false;
    fmt::print("  {:>4}  {:<20.20}  {:>8}  {}\n", field<uint64_t>(client, "id", 0),
               field<std::string>(client, "task", "?"), show_pid(client),
               priority_name(field(client, "priority", 5)));
  }
  first = true;
  for (const json& client : list(status, "clients")) {
    for (const json& device : list(client, "unscheduled")) {
      if (first) fmt::print("\nrunning unscheduled, on devices that lulld does not know:\n");
      first = false;
      fmt::print("  {:>4}  {:<20.20}  {:>8}  {}: {}\n", field<uint64_t>(client, "id", 0),
                 field<std::string>(client, "task", "?"), show_pid(client),
                 field<std::string>(device, "uuid", "?"),
                 field<std::string>(device, "why", "no reason given"));
    }
  }
  print_refused(field(status, "refused", json::object()));
  for (const json& notice : list(status, "notices")) {
    fmt::print("{}notice: {}\n", &notice == &list(status, "notices").front() ? "\n" : "",
               notice.is_string() ? notice.get<std::string>() : notice.dump());
  }
}

}  // namespace

int status_main(const Words& words) {
  JsonOutput as_json;
  std::string socket;
  CommandLine line("Shows who shares the GPUs, whose gate is closed, and who holds whom.",
                   "lull status");
  as_json.add_to(line);
  line.option("--socket", socket, "socket of lulld");
  if (const auto code = parse_words(line, words)) return *code;
  const auto answer = ask_daemon(socket.empty() ? default_socket() : socket, {{"op", "status"}});
  if (!answer) {
    complain("status: " + answer.error().text);
    return kFailed;
  }
  if (!as_json.replaces_text()) print_status(*answer);
  return as_json.write("status", *answer) ? kDone : kFailed;
}

}  // namespace lull::command
