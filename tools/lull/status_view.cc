#include "tools/lull/status_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tools/lull/job_display.h"
#include "tools/lull/pair_display.h"
#include "tools/lull/reply_fields.h"
#include "tools/lull/trace/kernel_display.h"
#include "tools/measure/text_table.h"
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

bool is_used(const json& client, const std::string& uuid) {
  for (const json& device : list(client, "devices")) {
    if (field<std::string>(device, "uuid", "") == uuid) return true;
  }
  return false;
}

std::string own_pid(const json& client) {
  const auto own = field<int64_t>(client, "namespace_pid", 0);
  if (own <= 0 || own == field<int64_t>(client, "pid", 0)) return "";
  return fmt::format("process {} in its own pid namespace", own);
}

std::string bound_of(const json& client) {
  const json& bound = field(client, "max_slowdown", json());
  const double mean = field(bound, "mean", -1.0), p99 = field(bound, "p99", -1.0);
  if (mean < 0) return "";
  return fmt::format("may lose {:g} % in the mean, {:g} % at p99 to less important ones",
                     100 * mean, 100 * p99);
}

std::string holders(const json& status, const json& held) {
  std::string by;
  for (const json& id : list(held, "by")) {
    if (!id.is_number_unsigned()) continue;
    by += fmt::format("{}{} ({})", by.empty() ? "" : ", ", task_of(status, id.get<uint64_t>()),
                      id.get<uint64_t>());
  }
  return by;
}

// Of the kernels that clients are held before, shortened together: those that differ are shown so.
using KernelNames = std::map<std::string, std::string>;

KernelNames held_names(const json& status) {
  std::vector<std::string> mangled, shown;
  for (const json& client : list(status, "clients")) {
    for (const json& held : list(client, "held")) {
      mangled.push_back(field<std::string>(held, "kernel", "?"));
      shown.push_back(trace::display_name(mangled.back()));
    }
  }
  shown = trace::shorten_names(shown, kNameChars);
  KernelNames names;
  for (size_t i = 0; i < mangled.size(); ++i) names.emplace(mangled[i], shown[i]);
  return names;
}

void add_held(TextTable& table, const json& status, const json& client, const KernelNames& names) {
  for (const json& held : list(client, "held")) {
    const std::string by = holders(status, held);
    table.note(
        fmt::format("held: thread {} before {} for {}{}: {}", field<uint64_t>(held, "thread", 0),
                    names.at(field<std::string>(held, "kernel", "?")),
                    show_ns(1e3 * field<double>(held, "for_us", 0)), by.empty() ? "" : ", by " + by,
                    field<std::string>(held, "why", "no reason given")));
  }
}

void add_client(TextTable& table, const json& status, const json& client, const std::string& uuid,
                const KernelNames& names) {
  for (const json& device : list(client, "devices")) {
    if (field<std::string>(device, "uuid", "") != uuid) continue;
    const auto allowance = field<uint64_t>(device, "memory_allowance_bytes", UINT64_MAX);
    std::string memory = show_bytes(field<uint64_t>(device, "memory_bytes", 0));
    if (allowance != UINT64_MAX && allowance != 0) memory += " of " + show_bytes(allowance);
    table.add({fmt::format("{}", field<uint64_t>(client, "id", 0)),
               field<std::string>(client, "task", "?"), show_pid(client),
               priority_name(field(client, "priority", 5)), field<std::string>(device, "gate", "?"),
               memory, show_ns(field<double>(device, "in_flight_ns", 0)),
               show_ns(field<double>(device, "device_time_ns", 0)),
               fmt::format("{}", field<uint64_t>(client, "launches", 0)),
               fmt::format("{}", field<uint64_t>(client, "dropped", 0)),
               show_ns(field<double>(client, "held_ns", 0))});
  }
  for (const std::string& fact : {own_pid(client), bound_of(client),
                                  describe_residence(field(client, "residence", json()))}) {
    if (!fact.empty()) table.note(fact);
  }
  for (const std::string& fact : describe_unsharable(status, client)) table.note(fact);
  add_held(table, status, client, names);
}

TextTable::Column id_column() { return TextTable::key_column("ID"); }

// Those that lulld did not let attach; they run unscheduled.
std::vector<std::string> refused_lines(const json& refused) {
  std::vector<std::string> lines;
  auto others = field<uint64_t>(refused, "attempts", 0);
  if (others == 0) return lines;
  for (const json& user : list(refused, "users")) {
    const auto attempts = field<uint64_t>(user, "attempts", 0);
    others -= std::min(others, attempts);
    lines.push_back(fmt::format("  uid {}, {} times: {}", field<uint64_t>(user, "uid", 0), attempts,
                                field<std::string>(user, "why", "no reason given")));
  }
  if (others > 0) lines.push_back(fmt::format("  other users, {} times", others));
  return lines;
}

// lulld knows how a simulated GPU is shared: some program has made it.
bool is_made(const json& status) { return !field<std::string>(status, "sharing", "?").empty(); }

}  // namespace

std::string simulated_gpu(const json& status) {
  if (!is_made(status)) return "simulated GPU: the first program makes it";
  return fmt::format("simulated GPU: sharing {}, slow motion {}",
                     field<std::string>(status, "sharing", "?"),
                     field<double>(status, "slow_motion", 1));
}

std::string status_text(const json& status, size_t width) {
  std::string out;
  const auto say = [&](const std::string& line, size_t indent = 2) {
    out += wrapped(trace::without_controls(line), width, indent) + '\n';
  };
  const bool simulated = field(status, "simulated", false);
  say(fmt::format("lulld {} (pid {}), up {:.0f} s{}, policy: {}",
                  field<std::string>(status, "version", "?"), field<int64_t>(status, "pid", 0),
                  field<double>(status, "uptime_s", 0), simulated ? " of real time" : "",
                  field<std::string>(status, "policy", "?")));
  if (simulated) {
    const std::string times = fmt::format(
        ", control latency {} us; times below are model time: {:g} s of real time are "
        "1 s of it",
        field<double>(status, "control_latency_us", 0), field<double>(status, "slow_motion", 1));
    say(simulated_gpu(status) + (is_made(status) ? times : ""));
  }
  const KernelNames names = held_names(status);
  if (list(status, "devices").empty()) say("no device is known yet");
  for (const json& device : list(status, "devices")) {
    const std::string uuid = field<std::string>(device, "uuid", "?");
    out += '\n';
    say(fmt::format("device {}  {}  {}  {}", field<uint64_t>(device, "index", 0), uuid,
                    field<std::string>(device, "name", "?"),
                    show_bytes(field<uint64_t>(device, "total_bytes", 0))));
    TextTable table({id_column(),
                     TextTable::name_column("TASK"),
                     {"PID"},
                     TextTable::word_column("PRIORITY"),
                     TextTable::word_column("GATE"),
                     TextTable::word_column("MEMORY"),
                     {"IN FLIGHT"},
                     {"DEVICE TIME"},
                     {"LAUNCHES"},
                     {"DROPPED"},
                     {"HELD"}});
    for (const json& client : list(status, "clients")) {
      if (is_used(client, uuid)) add_client(table, status, client, uuid, names);
    }
    out += table.empty() ? "  nobody uses it now\n" : table.text(width);
  }
  std::vector<std::string> jobs;
  for (const json& job : list(status, "jobs")) {
    if (job.is_object() && is_worth_showing(job)) jobs.push_back("  " + describe_job(job));
  }
  if (!jobs.empty()) out += "\njobs:\n";
  for (const std::string& job : jobs) say(job, 4);

  TextTable waiting(
      {id_column(), TextTable::name_column("TASK"), {"PID"}, TextTable::word_column("PRIORITY")});
  TextTable unscheduled(
      {id_column(), TextTable::name_column("TASK"), {"PID"}, TextTable::text_column("WHY")});
  for (const json& client : list(status, "clients")) {
    const std::string id = fmt::format("{}", field<uint64_t>(client, "id", 0));
    const auto task = field<std::string>(client, "task", "?");
    for (const json& device : list(client, "unscheduled")) {
      unscheduled.add({id, task, show_pid(client),
                       fmt::format("{}: {}", field<std::string>(device, "uuid", "?"),
                                   field<std::string>(device, "why", "no reason given"))});
    }
    if (list(client, "devices").empty() && list(client, "unscheduled").empty()) {
      waiting.add({id, task, show_pid(client), priority_name(field(client, "priority", 5))});
    }
  }
  if (!waiting.empty()) out += "\nattached, no device used yet:\n" + waiting.text(width);
  if (!unscheduled.empty()) {
    out += '\n';
    say("running unscheduled, on devices that lulld does not know:");
    out += unscheduled.text(width);
  }
  const auto refused = refused_lines(field(status, "refused", json::object()));
  if (!refused.empty()) {
    out += '\n';
    say("refused, running unscheduled (a program asks again each second):");
  }
  for (const std::string& line : refused) say(line, 4);
  if (!list(status, "notices").empty()) out += '\n';
  for (const json& notice : list(status, "notices")) {
    say("notice: " + (notice.is_string() ? notice.get<std::string>() : notice.dump()));
  }
  out += '\n';
  say(status_verdict(status), 0);
  return out;
}

std::string status_verdict(const json& status) {
  size_t programs = 0, waiting = 0, unscheduled = 0, lost = 0, held = 0;
  std::string who;
  for (const json& client : list(status, "clients")) {
    const bool unknown = !list(client, "unscheduled").empty();
    unscheduled += unknown ? 1 : 0;
    waiting += list(client, "devices").empty() && !unknown ? 1 : 0;
    programs += list(client, "devices").empty() ? 0 : 1;
    lost += field<uint64_t>(client, "dropped", 0) > 0 ? 1 : 0;
    if (list(client, "held").empty()) continue;
    if (held++ == 0) {
      who = fmt::format("{} is held", field<std::string>(client, "task", "?"));
      const std::string by = holders(status, list(client, "held").front());
      if (!by.empty()) who += " by " + by;
    }
  }
  const size_t devices = list(status, "devices").size();
  const auto count = [](size_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  std::string text =
      programs == 0 ? "Nobody uses a GPU now"
                    : fmt::format("{} on {}", count(programs, "program"), count(devices, "GPU"));
  if (held == 0 && programs > 0) text += ", nobody is held";
  if (held > 0) text += ", " + who;
  if (held > 1) text += fmt::format(", and {} more", held - 1);
  if (waiting > 0) text += fmt::format("; {} attached, no device used yet", waiting);
  if (unscheduled > 0)
    text += fmt::format("; {} unscheduled on devices that lulld does not know", unscheduled);
  if (const auto attempts =
          field<uint64_t>(field(status, "refused", json::object()), "attempts", 0);
      attempts > 0) {
    text += "; some are refused and run unscheduled";
  }
  if (lost > 0) text += fmt::format("; records of {} were lost", count(lost, "program"));
  if (const size_t notices = list(status, "notices").size(); notices > 0) {
    text += fmt::format("; {} to read", count(notices, "notice"));
  }
  return text + ".";
}

}  // namespace lull::command
