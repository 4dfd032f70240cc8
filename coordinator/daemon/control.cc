#include "coordinator/daemon/control.h"

#include <fmt/format.h>
#include <unistd.h>

#include "coordinator/channel/messages.h"
#include "coordinator/daemon/config.h"
#include "coordinator/daemon/device_table.h"
#include "coordinator/engine/json_depth.h"

namespace lull::daemon {
namespace {

constexpr int kDeepestRequest = 8;

using nlohmann::json;

json failure(const std::string& error) { return {{"ok", false}, {"error", error}}; }

std::optional<Priority> priority_in(const json& request, const char* key) {
  const auto value = request.find(key);
  if (value == request.end()) return std::nullopt;
  if (value->is_string()) return parse_priority(value->get<std::string>());
  if (value->is_number_integer() && *value >= 0 && *value <= 9) {
    return Priority{value->get<uint8_t>()};
  }
  return std::nullopt;
}

std::string shown(const json& request, const char* key) {
  const auto value = request.find(key);
  return value == request.end() ? "missing"
                                : value->dump(-1, ' ', true, json::error_handler_t::replace);
}

// Where a page begins; a tool that says nonsense gets the first.
uint32_t from_in(const json& request) {
  const auto from = request.find("from");
  return from != request.end() && from->is_number_unsigned() && *from <= UINT32_MAX
             ? from->get<uint32_t>()
             : 0;
}

// The launch policy, or the job policy: its text, or a change of it.
json answer_policy(const json& request, const char* what, const char* expected,
                   const std::function<std::string()>& get,
                   const std::function<std::expected<std::string, std::string>(const std::string&)>& change) {
  const auto text = request.find("policy");
  if (text == request.end()) return {{"ok", true}, {"policy", get()}};
  if (!text->is_string()) {
    return failure(fmt::format("cannot change the {}: policy is {}: {} are expected", what,
                               shown(request, "policy"), expected));
  }
  const auto changed = change(text->get<std::string>());
  if (!changed) return failure(changed.error());
  return {{"ok", true}, {"policy", *changed}};
}

json answer_priority(const json& request, const Peer& peer, ControlTarget& target) {
  const auto level = priority_in(request, "level");
  if (!level) {
    return failure(fmt::format("cannot change a priority: level is {}: {} is expected",
                               shown(request, "level"), kLevelsExpected));
  }
  const auto task = request.find("task");
  std::string name;
  if (task != request.end() && task->is_string()) name = task->get<std::string>();
  if (task != request.end() && task->is_number_unsigned()) name = task->dump();
  if (name.empty()) {
    return failure(
        fmt::format("cannot change a priority: task is {}: a task's name, a pid or a "
                    "client id is expected",
                    shown(request, "task")));
  }
  const auto changed = target.change_priority(name, *level, peer);
  if (!changed) return failure(changed.error());
  json ids = json::array();
  for (const ClientId id : *changed) ids.push_back(id.value);
  return {{"ok", true}, {"changed", ids}, {"level", level->level}};
}

json answer_may(const json& request, const Peer& peer, ControlTarget& target) {
  const auto level = priority_in(request, "priority");
  if (!level) {
    return failure(fmt::format("cannot judge: priority is {}: {} is expected",
                               shown(request, "priority"), kLevelsExpected));
  }
  const PriorityVerdict verdict = target.judge(peer, *level);
  if (verdict.clamped) {
    json reply =
        failure(fmt::format("priority {} is not allowed for uid {}: allowed are {}",
                            priority_name(*level), peer.uid, allowed_levels(verdict.highest)));
    reply["highest"] = verdict.highest.level;
    return reply;
  }
  return {{"ok", true}, {"priority", level->level}, {"highest", verdict.highest.level}};
}

json answer_kernels(const json& request, ControlTarget& target) {
  const auto client = request.find("client");
  if (client == request.end() || !client->is_number_unsigned() || *client > UINT32_MAX) {
    return failure(fmt::format("cannot list kernels: client is {}: a client id is expected",
                               shown(request, "client")));
  }
  const auto page = target.kernels(ClientId{client->get<uint32_t>()}, from_in(request));
  return page ? *page : failure(page.error());
}

json answer_trace(const json& request, const Peer& peer, ControlTarget& target) {
  std::optional<TraceOrder> order;
  const auto text = [&](const char* key, std::string& value) {
    const auto found = request.find(key);
    if (found == request.end()) return true;
    if (!found->is_string()) return false;
    value = found->get<std::string>();
    return true;
  };
  const auto stop = request.find("stop");
  if (stop != request.end() && *stop != json(true)) {
    return failure(fmt::format("cannot trace: stop is {}: true is expected", shown(request, "stop")));
  }
  if (request.contains("file")) {
    order.emplace();
    if (stop != request.end() || !text("file", order->file) || !text("source", order->source) ||
        !text("command", order->command) || !order->file.starts_with("/")) {
      return failure(fmt::format("cannot trace: file is {}: the whole path of a file, without stop, "
                                 "is expected",
                                 shown(request, "file")));
    }
  }
  if (request.contains("timing")) {
    std::string word;
    const bool is_text = text("timing", word);
    const auto timing = is_text ? parse_timing(word) : std::nullopt;
    if (!order || !timing) {
      return failure(fmt::format("cannot trace: timing is {}: off, sampled or full, with a file, is "
                                 "expected",
                                 shown(request, "timing")));
    }
    order->timing = timing;
  }
  const auto figures = target.trace(order, stop != request.end(), peer);
  if (!figures) return failure(figures.error());
  return {{"ok", true}, {"trace", *figures}};
}

json answer_job(const std::string& op, JobOrder::What what, const json& request, const Peer& peer,
                ControlTarget& target) {
  JobOrder order{.what = what};
  const auto wrong = [&](const char* key, const char* expected) {
    return failure(fmt::format("cannot {}: {} is {}: {} is expected", op, key, shown(request, key), expected));
  };
  const auto job = request.find("job");
  if (job != request.end() && job->is_string()) order.job = job->get<std::string>();
  if (job != request.end() && job->is_number_unsigned()) order.job = job->dump();
  if (order.job.empty()) return wrong("job", "the name of a job or a task, a pid or a client id");
  if (request.contains("level")) {
    constexpr std::pair<const char*, moves::Level> kLevels[] = {{"in_place", moves::Level::kInPlace},
                                                                {"out", moves::Level::kOut},
                                                                {"given_up", moves::Level::kGivenUp}};
    for (const auto& [word, level] : kLevels) {
      if (request["level"] == word) order.level = level;
    }
    if (!order.level && request["level"] != "auto") return wrong("level", "auto, in_place, out or given_up");
  }
  if (request.contains("at")) {
    if (request["at"] != "iteration" && request["at"] != "now") return wrong("at", "iteration or now");
    if (request["at"] == "now") order.at = moves::At::kNow;
  }
  if (what == JobOrder::What::kMigrate) {
    const auto to = request.find("to");
    if (to == request.end() || !to->is_array() || to->empty() || to->size() > kMaxNodeDevices) {
      return wrong("to", "a list of GPUs, each by its index or UUID in `lull status`,");
    }
    for (const json& one : *to) {
      if (!one.is_string() && !one.is_number_unsigned()) {
        return wrong("to", "a list of GPUs, each by its index or UUID in `lull status`,");
      }
      order.to.push_back(one.is_string() ? one.get<std::string>() : one.dump());
    }
  }
  if (what == JobOrder::What::kPin) {
    const auto pinned = request.find("pinned");
    if (pinned == request.end() || !pinned->is_boolean()) return wrong("pinned", "true or false");
    order.pinned = pinned->get<bool>();
  }
  if (what == JobOrder::What::kResize) {
    const auto gpus = request.find("gpus");
    if (gpus == request.end() || !gpus->is_number_unsigned() || *gpus < 1 || *gpus > kMaxNodeDevices) {
      return wrong("gpus", "a number of GPUs, from 1 on,");
    }
    order.gpus = gpus->get<uint32_t>();
  }
  const auto now = target.move_job(order, peer);
  if (!now) return failure(now.error());
  return {{"ok", true}, {"job", *now}};
}

json answer_elastic(const json& request, const Peer& peer, ControlTarget& target) {
  const auto wrong = [&](const char* key, const std::string& expected) {
    return failure(fmt::format("cannot look at an elastic job: {} is {}: {} is expected", key,
                               shown(request, key), expected));
  };
  const auto job = request.find("job");
  if (job == request.end() || !job->is_string() || job->get<std::string>().empty() ||
      job->get<std::string>().size() >= sizeof(channel::lull_hello::job)) {
    return wrong("job", fmt::format("a job's name, at most {} bytes,",
                                    sizeof(channel::lull_hello::job) - 1));
  }
  std::optional<ElasticJob> range;
  if (request.contains("min") || request.contains("max")) {
    range.emplace();
    uint32_t least = 1;
    for (const auto& [key, to] : {std::pair{"min", &range->least}, {"max", &range->most}}) {
      const auto value = request.find(key);
      if (value == request.end() || !value->is_number_unsigned() || *value < least ||
          *value > kMaxNodeDevices) {
        return wrong(key, fmt::format("a number of GPUs, {} to {},", least, kMaxNodeDevices));
      }
      least = *to = value->get<uint32_t>();
    }
  }
  const auto now = target.elastic_job(job->get<std::string>(), range, peer);
  if (!now) return failure(now.error());
  return {{"ok", true}, {"elastic", *now}};
}

using Send = std::function<void(const json&)>;

void answer_profile(const json& request, const Peer& peer, ControlTarget& target,
                    const Send& send) {
  ProfileOrder order{.from = from_in(request)};
  for (const auto& [key, value] :
       {std::pair{"show", &order.show}, std::pair{"forget", &order.forget}}) {
    const auto found = request.find(key);
    if (found == request.end()) continue;
    if (!found->is_string() || found->get<std::string>().empty()) {
      return send(
          failure(fmt::format("cannot look at profiles: {} is {}: a task's name is expected", key,
                              shown(request, key))));
    }
    *value = found->get<std::string>();
  }
  target.profiles(order, peer, [send](std::expected<json, std::string> reply) {
    if (!reply) return send(failure(reply.error()));
    (*reply)["ok"] = true;
    send(*reply);
  });
}

// But for profiles, which are answered later.
json answer_json(const json& request, const Peer& peer, ControlTarget& target) {
  const auto op = request.find("op");
  const std::string name = op != request.end() && op->is_string() ? op->get<std::string>() : "";
  if (name == "ping") return {{"ok", true}, {"version", LULL_VERSION}, {"pid", ::getpid()}};
  if (name == "status") return target.status(from_in(request));
  if (name == "kernels") return answer_kernels(request, target);
  if (name == "policy") {
    return answer_policy(
        request, "policy", "a policy's name and options as text", [&] { return target.policy_text(); },
        [&](const std::string& text) { return target.change_policy(text, peer); });
  }
  if (name == "job_policy") {
    return answer_policy(
        request, "job policy", "a job policy's name and options as text, or \"none\",",
        [&] { return target.job_policy_text(); },
        [&](const std::string& text) { return target.change_job_policy(text, peer); });
  }
  if (name == "priority") return answer_priority(request, peer, target);
  if (name == "may") return answer_may(request, peer, target);
  if (name == "trace") return answer_trace(request, peer, target);
  if (name == "elastic") return answer_elastic(request, peer, target);
  using What = JobOrder::What;
  for (const auto& [word, what] : {std::pair{"suspend", What::kSuspend}, {"resume", What::kResume},
                                   {"migrate", What::kMigrate}, {"pin", What::kPin},
                                   {"resize", What::kResize}, {"job", What::kShow}}) {
    if (name == word) return answer_job(name, what, request, peer, target);
  }
  return failure(
      fmt::format("unknown request: op is {}: ping, status, kernels, policy, job_policy, priority, may, "
                  "trace, profile, job, suspend, resume, migrate, pin, resize or elastic is expected",
                  shown(request, "op")));
}

}  // namespace

void answer(std::string_view request, const Peer& peer, ControlTarget& target,
            const std::function<void(std::string)>& reply) {
  const Send send = [reply](const json& value) {
    reply(value.dump(-1, ' ', false, json::error_handler_t::replace));
  };
  if (engine::nests_deeper(request, kDeepestRequest)) {
    return send(failure("unknown request: nested too deeply: send one flat object"));
  }
  const json parsed = json::parse(request, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) {
    return send(
        failure("unknown request: it is not JSON: send one object such as {\"op\":\"status\"}"));
  }
  if (!parsed.is_object()) return send(failure("unknown request: a JSON object is expected"));
  const auto op = parsed.find("op");
  if (op != parsed.end() && *op == "profile") return answer_profile(parsed, peer, target, send);
  json value;
  try {
    value = answer_json(parsed, peer, target);
  } catch (const std::exception& error) {
    value = failure(fmt::format("request failed: {}: report this", error.what()));
  }
  send(value);
}

}  // namespace lull::daemon
