#include "coordinator/daemon/config.h"

#include <errno.h>
#include <fmt/format.h>
#include <grp.h>
#include <string.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <sstream>

namespace lull::daemon {
namespace {

using nlohmann::json;

constexpr size_t kMaxConfigBytes = 1U << 20;

// Thrown and caught inside this file only.
struct BadConfig {
  std::string key;
  std::string problem;  // what is wrong: what would be right
};

[[noreturn]] void fail(const std::string& key, const std::string& problem) {
  throw BadConfig{key, problem};
}

void check_keys(const json& object, const std::string& where,
                std::initializer_list<const char*> known) {
  if (!object.is_object()) {
    fail(where, fmt::format("is {}: an object {{...}} is expected", object.type_name()));
  }
  for (const auto& [key, value] : object.items()) {
    bool found = false;
    for (const char* name : known) found = found || key == name;
    if (found) continue;
    std::string names;
    for (const char* name : known) names += (names.empty() ? "" : ", ") + std::string(name);
    fail(where.empty() ? key : where + "." + key,
         fmt::format("is not a known key: known are {}", names));
  }
}

std::string join(const std::string& where, const char* key) {
  return where.empty() ? key : where + "." + key;
}

uint64_t read_number(const json& value, const std::string& key, uint64_t least, uint64_t most) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() < least ||
      value.get<uint64_t>() > most) {
    fail(key,
         fmt::format("is {}: a whole number from {} to {} is expected", value.dump(), least, most));
  }
  return value.get<uint64_t>();
}

std::string read_string(const json& value, const std::string& key, const char* expected) {
  if (!value.is_string()) fail(key, fmt::format("is {}: {} is expected", value.dump(), expected));
  return value.get<std::string>();
}

Priority read_priority(const json& value, const std::string& key) {
  std::optional<Priority> priority;
  if (value.is_string()) priority = parse_priority(value.get<std::string>());
  if (value.is_number_unsigned() && value.get<uint64_t>() <= 9) {
    priority = Priority{value.get<uint8_t>()};
  }
  if (!priority) fail(key, fmt::format("is {}: {} is expected", value.dump(), kLevelsExpected));
  return *priority;
}

mode_t read_mode(const json& value, const std::string& key) {
  const char* expected = "permissions as a string of octal digits, such as \"0660\",";
  const std::string text = read_string(value, key, expected);
  mode_t mode = 0;
  bool good = text.size() >= 3 && text.size() <= 4;
  for (const char c : text) {
    good = good && c >= '0' && c <= '7';
    mode = mode * 8 + static_cast<mode_t>(c - '0');
  }
  if (!good || mode > 0777) fail(key, fmt::format("is \"{}\": {} is expected", text, expected));
  return mode;
}

gid_t read_group(const json& value, const std::string& key) {
  if (value.is_number_unsigned()) {
    return static_cast<gid_t>(read_number(value, key, 0, UINT32_MAX - 1));
  }
  const std::string name = read_string(value, key, "a group's name or number");
  const group* entry = ::getgrnam(name.c_str());
  if (entry == nullptr) {
    fail(key, fmt::format("is \"{}\": no such group on this machine: name one that exists (getent "
                          "group)",
                          name));
  }
  return entry->gr_gid;
}

PeerMatch read_match(const json& object, const std::string& where) {
  PeerMatch match;
  int named = 0;
  if (object.contains("uid")) {
    match.uid =
        static_cast<uid_t>(read_number(object["uid"], join(where, "uid"), 0, UINT32_MAX - 1));
    ++named;
  }
  if (object.contains("gid")) {
    match.gid =
        static_cast<gid_t>(read_number(object["gid"], join(where, "gid"), 0, UINT32_MAX - 1));
    ++named;
  }
  if (object.contains("any")) {
    if (object["any"] != json(true)) {
      fail(join(where, "any"), fmt::format("is {}: true is expected", object["any"].dump()));
    }
    match.any = true;
    ++named;
  }
  if (named != 1) {
    fail(where, fmt::format("names {} of uid, gid, any: exactly one is expected", named));
  }
  return match;
}

const json& read_list(const json& value, const std::string& key) {
  if (!value.is_array()) {
    fail(key, fmt::format("is {}: a list [...] is expected", value.type_name()));
  }
  return value;
}

std::vector<PriorityRule> read_rules(const json& value) {
  std::vector<PriorityRule> rules;
  for (const json& item : read_list(value, "priorities")) {
    const std::string where = fmt::format("priorities[{}]", rules.size());
    check_keys(item, where, {"uid", "gid", "any", "highest", "default"});
    PriorityRule rule;
    rule.who = read_match(item, where);
    if (!item.contains("highest")) {
      fail(join(where, "highest"), fmt::format("is missing: {} is expected", kLevelsExpected));
    }
    rule.highest = read_priority(item["highest"], join(where, "highest"));
    rule.normal = std::max(rule.highest, Priority{5});
    if (item.contains("default")) {
      rule.normal = read_priority(item["default"], join(where, "default"));
      if (rule.normal < rule.highest) {
        fail(join(where, "default"),
             fmt::format("is {}, above this rule's highest, {}: {} to 9 is expected",
                         rule.normal.level, rule.highest.level, rule.highest.level));
      }
    }
    rules.push_back(rule);
  }
  return rules;
}

std::vector<PeerMatch> read_operators(const json& value) {
  std::vector<PeerMatch> operators;
  for (const json& item : read_list(value, "operators")) {
    const std::string where = fmt::format("operators[{}]", operators.size());
    check_keys(item, where, {"uid", "gid", "any"});
    operators.push_back(read_match(item, where));
  }
  return operators;
}

std::vector<KnownDevice> read_devices(const json& value) {
  std::vector<KnownDevice> devices;
  for (const json& item : read_list(value, "devices")) {
    const std::string where = fmt::format("devices[{}]", devices.size());
    check_keys(item, where, {"uuid", "name", "memory_bytes"});
    const std::string key = join(where, "uuid");
    const char* expected = "a device's UUID as nvidia-smi -L prints it, GPU-... or MIG-...,";
    const auto uuid = item.find("uuid");
    if (uuid == item.end()) fail(key, fmt::format("is missing: {} is expected", expected));
    const auto device = parse_uuid(read_string(*uuid, key, expected));
    if (!device) fail(key, fmt::format("is {}: {} is expected", uuid->dump(), expected));
    devices.push_back(*device);
    if (item.contains("name")) {
      devices.back().name = read_string(item["name"], join(where, "name"), "the model's name");
    }
    if (item.contains("memory_bytes")) {
      devices.back().total_bytes =
          read_number(item["memory_bytes"], join(where, "memory_bytes"), 0, UINT64_C(1) << 48);
    }
  }
  if (devices.size() > kMaxNodeDevices) {
    fail("devices",
         fmt::format("lists {}: at most {} are expected", devices.size(), kMaxNodeDevices));
  }
  return devices;
}

std::vector<MoveRule> read_moves(const json& value) {
  std::vector<MoveRule> rules;
  for (const json& item : read_list(value, "moves")) {
    const std::string where = fmt::format("moves[{}]", rules.size());
    check_keys(item, where, {"uid", "gid", "any", "suspendable", "migratable", "oversubscribe"});
    MoveRule rule{.who = read_match(item, where), .suspendable = {}, .migratable = {}, .oversubscribe = {}};
    bool any = false;
    for (const auto& [key, to] : {std::pair{"suspendable", &rule.suspendable},
                                  std::pair{"migratable", &rule.migratable},
                                  std::pair{"oversubscribe", &rule.oversubscribe}}) {
      if (!item.contains(key)) continue;
      if (!item[key].is_boolean()) {
        fail(join(where, key), fmt::format("is {}: true or false is expected", item[key].dump()));
      }
      *to = item[key].get<bool>();
      any = true;
    }
    if (!any) fail(where, "says nothing: suspendable, migratable or oversubscribe is expected");
    for (const auto& [key, to] : {std::pair{"migratable", &rule.migratable},
                                  std::pair{"oversubscribe", &rule.oversubscribe}}) {
      if (rule.suspendable == false && *to == true) {
        fail(join(where, key), "is true where suspendable is false: it needs it");
      }
    }
    rules.push_back(rule);
  }
  return rules;
}

uint64_t read_bytes(const json& value, const std::string& key) {
  constexpr uint64_t kMost = UINT64_C(1) << 48;
  if (value.is_number_unsigned()) return read_number(value, key, 0, kMost);
  const char* expected = "a number of bytes, or text such as \"64G\" (K, M, G, T),";
  const std::string text = read_string(value, key, expected);
  uint64_t number = 0;
  size_t used = 0;
  while (used < text.size() && text[used] >= '0' && text[used] <= '9' && number <= kMost) {
    number = number * 10 + static_cast<uint64_t>(text[used++] - '0');
  }
  const std::string unit = text.substr(used);
  const size_t power = std::string("KMGT").find(unit.empty() ? '?' : unit[0]);
  const bool good = used > 0 && unit.size() == 1 && power != std::string::npos;
  if (!good || number > (kMost >> (10 * (power + 1)))) {
    fail(key, fmt::format("is \"{}\": {} is expected", text, expected));
  }
  return number << (10 * (power + 1));
}

Config read_config(const json& root, const PolicyCheck& check) {
  check_keys(root, "",
             {"socket", "policy", "priorities", "operators", "devices", "max_clients",
              "max_clients_per_user", "timing", "timing_period", "trace", "decision_log",
              "profiles", "memory_reserve_bytes", "moves", "host_memory", "context_bytes", "quantum_s",
              "job_policy"});
  Config config;
  if (root.contains("socket")) {
    const json& socket = root["socket"];
    check_keys(socket, "socket", {"mode", "group"});
    if (socket.contains("mode")) config.socket_mode = read_mode(socket["mode"], "socket.mode");
    if (socket.contains("group")) config.socket_group = read_group(socket["group"], "socket.group");
  }
  if (root.contains("policy")) {
    config.policy = read_string(root["policy"], "policy", "a policy's name and options, as text,");
    if (const auto good = check(config.policy); !good) fail("policy", good.error());
  }
  if (root.contains("priorities")) config.priorities = read_rules(root["priorities"]);
  if (root.contains("operators")) config.operators = read_operators(root["operators"]);
  if (root.contains("devices")) config.devices = read_devices(root["devices"]);
  if (root.contains("max_clients")) {
    config.max_clients =
        static_cast<uint32_t>(read_number(root["max_clients"], "max_clients", 1, kMaxClientsLimit));
  }
  if (root.contains("max_clients_per_user")) {
    config.max_clients_per_user = static_cast<uint32_t>(
        read_number(root["max_clients_per_user"], "max_clients_per_user", 1, config.max_clients));
  }
  if (root.contains("timing_period")) {
    const auto period = static_cast<uint32_t>(
        read_number(root["timing_period"], "timing_period", 0, 1'000'000'000));
    config.timing_period = period;
    if (period == 0) config.timing = channel::kTimingOff;
    if (period == 1) config.timing = channel::kTimingFull;
  }
  if (root.contains("timing")) {
    const std::string expected = "\"off\", \"sampled\" or \"full\"";
    const auto timing = parse_timing(read_string(root["timing"], "timing", expected.c_str()));
    if (!timing) {
      fail("timing", fmt::format("is {}: {} is expected", root["timing"].dump(), expected));
    }
    config.timing = *timing;
  }
  for (const auto& [key, file] :
       {std::pair{"trace", &config.trace}, std::pair{"decision_log", &config.decision_log}}) {
    if (!root.contains(key)) continue;
    *file = read_string(root[key], key, "a file's path");
    if (!file->starts_with("/")) {
      fail(key, fmt::format("is \"{}\": a file's whole path, from / on, is expected", *file));
    }
  }
  if (root.contains("profiles")) {
    const char* expected = "the whole path of a directory, or \"\" for none,";
    config.profiles = read_string(root["profiles"], "profiles", expected);
    if (!config.profiles->empty() && !config.profiles->starts_with("/")) {
      fail("profiles", fmt::format("is \"{}\": {} is expected", *config.profiles, expected));
    }
  }
  if (root.contains("memory_reserve_bytes")) {
    config.memory_reserve_bytes =
        read_number(root["memory_reserve_bytes"], "memory_reserve_bytes", 0, UINT64_C(1) << 48);
  }
  if (root.contains("moves")) config.moves = read_moves(root["moves"]);
  if (root.contains("host_memory")) config.host_memory_bytes = read_bytes(root["host_memory"], "host_memory");
  if (root.contains("context_bytes")) {
    config.context_bytes = read_number(root["context_bytes"], "context_bytes", 0, UINT64_C(1) << 36);
  }
  if (root.contains("job_policy")) {
    config.job_policy =
        read_string(root["job_policy"], "job_policy", "a job policy's name and options, or \"none\",");
    if (config.job_policy != kNoJobPolicy) {
      const auto good = jobs::parse_job_policy(config.job_policy);
      if (!good) fail("job_policy", good.error());
    }
  }
  if (root.contains("quantum_s")) {
    config.quantum_s = static_cast<uint32_t>(read_number(root["quantum_s"], "quantum_s", 1, 86'400));
  }
  return config;
}

}  // namespace

std::optional<channel::lull_timing> parse_timing(const std::string& word) {
  if (word == "off") return channel::kTimingOff;
  if (word == "sampled") return channel::kTimingSampled;
  if (word == "full") return channel::kTimingFull;
  return std::nullopt;
}

uint32_t moves_for(const Config& config, const Peer& peer, uint32_t asked) {
  constexpr uint32_t kAll =
      channel::kMovesSwap | channel::kMovesMigrate | channel::kMovesOversubscribe;
  uint32_t granted = asked & kAll;
  const auto rule = std::ranges::find_if(config.moves, [&](const MoveRule& r) { return r.who.matches(peer); });
  if ((granted & (channel::kMovesMigrate | channel::kMovesOversubscribe)) != 0) {
    granted |= channel::kMovesSwap;
  }
  if (rule == config.moves.end()) return granted;
  const auto apply = [&](const std::optional<bool>& said, uint32_t bit) {
    if (said) granted = *said ? granted | bit : granted & ~bit;
  };
  apply(rule->migratable, channel::kMovesMigrate);
  apply(rule->oversubscribe, channel::kMovesOversubscribe);
  if (rule->migratable == true || rule->oversubscribe == true) granted |= channel::kMovesSwap;
  apply(rule->suspendable, channel::kMovesSwap);
  return (granted & channel::kMovesSwap) != 0 ? granted : 0;
}

uint64_t host_memory_for(const Config& config) {
  if (config.host_memory_bytes) return *config.host_memory_bytes;
  struct sysinfo machine {};
  if (::sysinfo(&machine) != 0) return 0;
  return static_cast<uint64_t>(machine.totalram) * machine.mem_unit / 2;
}

uint32_t clients_per_user(const Config& config) {
  return config.max_clients_per_user.value_or(config.max_clients - config.max_clients / 2);
}

uint32_t timing_period_for(const Config& config, uint32_t wish,
                           std::optional<channel::lull_timing> recording) {
  uint32_t timing = wish == channel::kTimingUnset ? config.timing : wish;
  if (recording && wish != channel::kTimingOff) timing = *recording;
  if (timing == channel::kTimingOff) return 0;
  if (timing == channel::kTimingFull) return 1;
  return config.timing_period >= 2 ? config.timing_period : kDefaultTimingPeriod;
}

std::expected<Config, std::string> parse_config(const std::string& text, const std::string& name,
                                                const PolicyCheck& check) {
  json root;
  try {
    root = json::parse(text, nullptr, /*allow_exceptions=*/true, /*ignore_comments=*/true);
  } catch (const json::parse_error& error) {
    size_t line = 1;
    for (size_t i = 0; i + 1 < error.byte && i < text.size(); ++i) line += text[i] == '\n' ? 1 : 0;
    return std::unexpected(
        fmt::format("cannot read {}: line {} is not JSON: mend it there, or compare it with "
                    "lulld.json as shipped",
                    name, line));
  }
  try {
    return read_config(root, check);
  } catch (const BadConfig& bad) {
    return std::unexpected(fmt::format("cannot use {}: {} {}", name,
                                       bad.key.empty() ? "the file" : bad.key, bad.problem));
  }
}

std::expected<Config, std::string> load_config(const std::string& path, const PolicyCheck& check) {
  errno = 0;
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) {
    return std::unexpected(
        fmt::format("cannot read {}: {}: name a readable JSON file with --config", path,
                    errno != 0 ? strerror(errno) : "it is empty"));
  }
  if (text.str().size() > kMaxConfigBytes) {
    return std::unexpected(
        fmt::format("cannot use {}: it is larger than 1 MiB: name a lulld.json", path));
  }
  return parse_config(text.str(), path, check);
}

}  // namespace lull::daemon
