#include "tools/lull/pair_display.h"

#include <fmt/format.h>

#include "tools/lull/reply_fields.h"
#include "tools/measure/values.h"

namespace lull::command {
namespace {

using nlohmann::json;

std::string task_of(const json& status, uint64_t id) {
  for (const json& client : list(status, "clients")) {
    if (field<uint64_t>(client, "id", 0) == id) return field<std::string>(client, "task", "?");
  }
  return "?";
}

}  // namespace

std::vector<std::string> describe_unsharable(const json& status, const json& client) {
  std::vector<std::string> lines;
  for (const json& pair : list(client, "cannot_share")) {
    const auto with = field<uint64_t>(pair, "with", 0);
    const std::string task = task_of(status, with);
    lines.push_back(fmt::format(
        "cannot share device {} with {} ({}): its longest kernel takes {}, {} can wait {}",
        field<uint64_t>(pair, "device", 0), task, with,
        show_ns(field<double>(pair, "longest_ns", 0)), task,
        show_ns(field<double>(pair, "slack_ns", 0))));
  }
  return lines;
}

}  // namespace lull::command
