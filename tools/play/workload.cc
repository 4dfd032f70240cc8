#include "tools/play/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

namespace lull::play {
namespace {

using Json = nlohmann::json;

constexpr int kMaxRepeatDepth = 8;
constexpr std::string_view kKinds[] = {"inference", "training", "batch", "other"};

// Thrown and caught inside this file only: where, what is wrong and what would be right.
struct Bad {
  std::string path, why, right;
};

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return text;
}

// Of a Recorded or a const Recorded.
auto recorded_fields(auto& recorded) {
  using Field = std::pair<const char*, decltype(&recorded.gpu)>;
  return std::array<Field, 6>{{{"gpu", &recorded.gpu},
                               {"driver", &recorded.driver},
                               {"model", &recorded.model},
                               {"batch", &recorded.batch},
                               {"date", &recorded.date},
                               {"source", &recorded.source}}};
}

class Reader {
 public:
  Workload read(const Json& root) {
    object(root, "",
           {"lull_workload", "name", "kind", "description", "recorded", "streams", "call_ns",
            "pause_after_ns", "kernels", "ops"});
    const uint64_t version = number(root, "", "lull_workload", 0, UINT64_MAX);
    if (version != kWorkloadVersion) {
      throw Bad{"/lull_workload", fmt::format("version {} is not known", version),
                fmt::format("this lull reads version {}", kWorkloadVersion)};
    }
    work_.name = text(root, "", "name", 200, /*may_be_empty=*/false);
    work_.kind = root.contains("kind") ? text(root, "", "kind", 40, false) : "other";
    if (std::find(std::begin(kKinds), std::end(kKinds), work_.kind) == std::end(kKinds)) {
      throw Bad{"/kind", "is " + shown(root["kind"]), "give inference, training, batch or other"};
    }
    if (root.contains("description")) work_.description = text(root, "", "description", 400, true);
    read_recorded(root);
    work_.streams = static_cast<uint32_t>(number(root, "", "streams", 1, kMaxStreams, 1));
    call_ns_ = number(root, "", "call_ns", 0, kMaxTimeNs, 0);
    work_.pause_after_ns = number(root, "", "pause_after_ns", 0, kMaxTimeNs, 0);
    read_kernels(root);
    if (!root.contains("ops")) throw Bad{"/ops", "is missing", "give a list of operations"};
    read_ops(root["ops"], "/ops", 0, work_.ops);
    return std::move(work_);
  }

 private:
  void object(const Json& value, const std::string& path,
              std::initializer_list<std::string_view> known) {
    if (!value.is_object()) {
      throw Bad{path.empty() ? "/" : path, "is " + shown(value), "give an object"};
    }
    for (const auto& [key, ignored] : value.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      std::string right = "known here:";
      for (const auto& name : known) right.append(" ").append(name);
      throw Bad{path + "/" + key, "is not a known key", right};
    }
  }

  // Keys without a default must be there.
  uint64_t number(const Json& parent, const std::string& path, const char* key, uint64_t low,
                  uint64_t high, std::optional<uint64_t> otherwise = std::nullopt) {
    const auto found = parent.find(key);
    if (found == parent.end()) {
      if (otherwise) return *otherwise;
      throw Bad{path + "/" + key, "is missing",
                fmt::format("give a whole number from {} to {}", low, high)};
    }
    return whole(*found, path + "/" + key, low, high);
  }
  uint64_t whole(const Json& value, const std::string& path, uint64_t low, uint64_t high) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() < low ||
        value.get<uint64_t>() > high) {
      const bool time = path.ends_with("_ns");
      throw Bad{path, "is " + shown(value),
                fmt::format("give a whole number from {} to {}{}", low, high,
                            time ? " (nanoseconds)" : "")};
    }
    return value.get<uint64_t>();
  }
  std::string text(const Json& parent, const std::string& path, const char* key, size_t max_chars,
                   bool may_be_empty) {
    const auto found = parent.find(key);
    const std::string right = fmt::format(
        "give a text of {} to {} characters, without control "
        "characters",
        may_be_empty ? 0 : 1, max_chars);
    if (found == parent.end()) throw Bad{path + "/" + key, "is missing", right};
    if (!found->is_string()) throw Bad{path + "/" + key, "is " + shown(*found), right};
    auto value = found->get<std::string>();
    const bool control = std::any_of(value.begin(), value.end(),
                                     [](char c) { return static_cast<unsigned char>(c) < 32; });
    if (value.size() > max_chars || control || (value.empty() && !may_be_empty)) {
      throw Bad{path + "/" + key, "is " + shown(*found), right};
    }
    return value;
  }
  Extent extent(const Json& parent, const std::string& path, const char* key, uint64_t max_x,
                uint64_t max_y, uint64_t max_z) {
    const auto found = parent.find(key);
    const std::string at = path + "/" + key;
    if (found == parent.end() || !found->is_array() || found->empty() || found->size() > 3) {
      throw Bad{at, found == parent.end() ? "is missing" : "is " + shown(*found),
                "give one to three whole numbers, [x, y, z]"};
    }
    Extent result;
    uint32_t* const parts[] = {&result.x, &result.y, &result.z};
    const uint64_t most[] = {max_x, max_y, max_z};
    for (size_t i = 0; i < found->size(); ++i) {
      *parts[i] =
          static_cast<uint32_t>(whole((*found)[i], fmt::format("{}/{}", at, i), 1, most[i]));
    }
    return result;
  }

  void read_recorded(const Json& root) {
    const auto found = root.find("recorded");
    if (found == root.end()) return;
    object(*found, "/recorded", {"gpu", "driver", "model", "batch", "date", "source"});
    for (const auto& [key, value] : recorded_fields(work_.recorded)) {
      if (found->contains(key)) *value = text(*found, "/recorded", key, 400, true);
    }
  }
  void read_kernels(const Json& root) {
    if (!root.contains("kernels")) return;
    const Json& list = root["kernels"];
    if (!list.is_array() || list.size() > kMaxKernels) {
      throw Bad{"/kernels", list.is_array() ? "is too long" : "is " + shown(list),
                fmt::format("give a list of at most {} kernels", kMaxKernels)};
    }
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string path = fmt::format("/kernels/{}", i);
      const Json& entry = list[i];
      object(entry, path, {"name", "grid", "block", "shared_bytes", "duration_ns"});
      Kernel kernel;
      kernel.name = text(entry, path, "name", kMaxKernelNameChars, false);
      kernel.grid = extent(entry, path, "grid", 2147483647, 65535, 65535);
      kernel.block = extent(entry, path, "block", 1024, 1024, 64);
      if (uint64_t{kernel.block.x} * kernel.block.y * kernel.block.z > 1024) {
        throw Bad{path + "/block", "is " + shown(entry["block"]), "give at most 1024 threads"};
      }
      kernel.shared_bytes =
          static_cast<uint32_t>(number(entry, path, "shared_bytes", 0, kMaxSharedBytes, 0));
      default_duration_ns_.push_back(number(entry, path, "duration_ns", 1, kMaxTimeNs, 0));
      work_.kernels.push_back(std::move(kernel));
    }
  }

  void read_ops(const Json& list, const std::string& path, int depth, std::vector<Op>& out) {
    if (!list.is_array() || list.empty()) {
      throw Bad{path, list.is_array() ? "is empty" : "is " + shown(list),
                "give a list with at least one operation"};
    }
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string at = fmt::format("{}/{}", path, i);
      const Json& entry = list[i];
      if (entry.is_object() && entry.contains("repeat")) {
        read_repeat(entry, at, depth, out);
      } else {
        out.push_back(read_op(entry, at));
      }
      if (out.size() > kMaxOps) {
        throw Bad{at, "makes the iteration too long",
                  fmt::format("at most {} operations with repeats written out", kMaxOps)};
      }
    }
  }
  void read_repeat(const Json& entry, const std::string& at, int depth, std::vector<Op>& out) {
    object(entry, at, {"repeat", "ops"});
    const uint64_t times = number(entry, at, "repeat", 1, kMaxOps);
    if (depth >= kMaxRepeatDepth) {
      throw Bad{at, "is nested too deep", fmt::format("at most {} levels", kMaxRepeatDepth)};
    }
    if (!entry.contains("ops"))
      throw Bad{at + "/ops", "is missing", "give the repeated operations"};
    std::vector<Op> once;
    read_ops(entry["ops"], at + "/ops", depth + 1, once);
    if (once.size() * times + out.size() > kMaxOps) {
      throw Bad{at, "makes the iteration too long",
                fmt::format("at most {} operations with repeats written out", kMaxOps)};
    }
    out.reserve(out.size() + once.size() * times);
    for (uint64_t i = 0; i < times; ++i) out.insert(out.end(), once.begin(), once.end());
  }

  Op read_op(const Json& entry, const std::string& at) {
    static constexpr const char* kVerbs[] = {"launch", "copy", "memset", "sync", "record", "wait"};
    const std::string right =
        "give exactly one of launch, copy, memset, sync, record, wait, repeat";
    if (!entry.is_object()) throw Bad{at, "is " + shown(entry), "give an object"};
    const char* verb = nullptr;
    for (const char* candidate : kVerbs) {
      if (!entry.contains(candidate)) continue;
      if (verb != nullptr) throw Bad{at, fmt::format("has both {} and {}", verb, candidate), right};
      verb = candidate;
    }
    if (verb == nullptr) throw Bad{at, "says no operation", right};
    const std::string_view what = verb;
    Op op;
    op.pause_ns = number(entry, at, "pause_ns", 0, kMaxTimeNs, 0);
    if (what == "launch") {
      object(entry, at, {"launch", "stream", "pause_ns", "call_ns", "duration_ns"});
      if (work_.kernels.empty()) throw Bad{at + "/launch", "names a kernel", "fill /kernels first"};
      op.kind = OpKind::Launch;
      op.kernel = static_cast<uint32_t>(number(entry, at, "launch", 0, work_.kernels.size() - 1));
      const uint64_t usual = default_duration_ns_[op.kernel];
      op.duration_ns = number(entry, at, "duration_ns", 1, kMaxTimeNs,
                              usual != 0 ? std::optional(usual) : std::nullopt);
    } else if (what == "copy") {
      object(entry, at,
             {"copy", "bytes", "stream", "memory", "pause_ns", "call_ns", "recorded_ns"});
      const std::string direction = text(entry, at, "copy", 10, true);
      if (direction == "h2d")
        op.kind = OpKind::CopyToDevice;
      else if (direction == "d2h")
        op.kind = OpKind::CopyToHost;
      else if (direction == "d2d")
        op.kind = OpKind::CopyOnDevice;
      else
        throw Bad{at + "/copy", "is " + shown(entry["copy"]), "give h2d, d2h or d2d"};
      op.bytes = number(entry, at, "bytes", 1, kMaxCopyBytes);
      if (entry.contains("memory")) {
        const std::string memory = text(entry, at, "memory", 20, true);
        if ((memory != "pinned" && memory != "pageable") || op.kind == OpKind::CopyOnDevice) {
          throw Bad{at + "/memory", "is " + shown(entry["memory"]),
                    "give pinned or pageable, for h2d and d2h only"};
        }
        op.pageable = memory == "pageable";
      }
    } else if (what == "memset") {
      object(entry, at, {"memset", "stream", "pause_ns", "call_ns", "recorded_ns"});
      op.kind = OpKind::Memset;
      op.bytes = number(entry, at, "memset", 1, kMaxCopyBytes);
    } else if (what == "sync") {
      const std::string scope = text(entry, at, "sync", 10, true);
      if (scope == "stream") {
        object(entry, at, {"sync", "stream", "pause_ns"});
        op.kind = OpKind::StreamSync;
      } else if (scope == "device") {
        object(entry, at, {"sync", "pause_ns"});
        op.kind = OpKind::DeviceSync;
      } else {
        throw Bad{at + "/sync", "is " + shown(entry["sync"]), "give stream or device"};
      }
    } else {
      object(entry, at, {verb, "stream", "pause_ns", "call_ns"});
      op.kind = what == "record" ? OpKind::EventRecord : OpKind::EventWait;
      op.event = static_cast<uint32_t>(number(entry, at, verb, 0, kMaxEvents - 1));
      work_.events = std::max(work_.events, op.event + 1);
    }
    op.stream = static_cast<uint32_t>(number(entry, at, "stream", 0, work_.streams - 1, 0));
    if (!op.is_sync()) op.call_ns = number(entry, at, "call_ns", 0, kMaxTimeNs, call_ns_);
    if (op.is_copy() || op.kind == OpKind::Memset) {
      op.recorded_ns = number(entry, at, "recorded_ns", 0, kMaxTimeNs, 0);
    }
    return op;
  }

  Workload work_;
  uint64_t call_ns_ = 0;
  std::vector<uint64_t> default_duration_ns_;  // 0: each launch must say
};

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}
std::string extent_text(const Extent& extent) {
  return fmt::format("[{}, {}, {}]", extent.x, extent.y, extent.z);
}

std::string op_text(const Op& op) {
  std::string line;
  auto add = [&](const char* key, uint64_t value) {
    line += fmt::format(", \"{}\": {}", key, value);
  };
  switch (op.kind) {
    case OpKind::Launch:
      line = fmt::format("{{\"launch\": {}", op.kernel);
      break;
    case OpKind::CopyToDevice:
      line = "{\"copy\": \"h2d\"";
      break;
    case OpKind::CopyToHost:
      line = "{\"copy\": \"d2h\"";
      break;
    case OpKind::CopyOnDevice:
      line = "{\"copy\": \"d2d\"";
      break;
    case OpKind::Memset:
      line = fmt::format("{{\"memset\": {}", op.bytes);
      break;
    case OpKind::StreamSync:
      line = "{\"sync\": \"stream\"";
      break;
    case OpKind::DeviceSync:
      line = "{\"sync\": \"device\"";
      break;
    case OpKind::EventRecord:
      line = fmt::format("{{\"record\": {}", op.event);
      break;
    case OpKind::EventWait:
      line = fmt::format("{{\"wait\": {}", op.event);
      break;
  }
  if (op.is_copy()) add("bytes", op.bytes);
  if (op.pageable) line += ", \"memory\": \"pageable\"";
  if (op.kind != OpKind::DeviceSync && op.stream != 0) add("stream", op.stream);
  if (op.kind == OpKind::Launch) add("duration_ns", op.duration_ns);
  if (op.pause_ns != 0) add("pause_ns", op.pause_ns);
  if (op.call_ns != 0) add("call_ns", op.call_ns);
  if (op.recorded_ns != 0) add("recorded_ns", op.recorded_ns);
  return line + "}";
}

}  // namespace

const char* to_string(OpKind kind) {
  switch (kind) {
    case OpKind::Launch:
      return "launch";
    case OpKind::CopyToDevice:
      return "copy h2d";
    case OpKind::CopyToHost:
      return "copy d2h";
    case OpKind::CopyOnDevice:
      return "copy d2d";
    case OpKind::Memset:
      return "memset";
    case OpKind::StreamSync:
      return "stream sync";
    case OpKind::DeviceSync:
      return "device sync";
    case OpKind::EventRecord:
      return "event record";
    case OpKind::EventWait:
      return "event wait";
  }
  return "?";
}

WorkloadTotals totals(const Workload& workload) {
  WorkloadTotals sum;
  sum.host_ns = workload.pause_after_ns;
  for (const Op& op : workload.ops) {
    sum.host_ns += op.pause_ns + op.call_ns;
    if (op.kind == OpKind::Launch) {
      ++sum.launches;
      sum.kernel_ns += op.duration_ns;
    } else if (op.is_copy()) {
      ++sum.copies;
      sum.copy_bytes += op.bytes;
    } else if (op.kind == OpKind::Memset) {
      ++sum.memsets;
    } else if (op.is_sync()) {
      ++sum.syncs;
    }
  }
  return sum;
}

void close_iteration(Workload& workload) {
  if (!workload.ops.empty() && workload.ops.back().kind == OpKind::DeviceSync) return;
  Op sync;
  sync.kind = OpKind::DeviceSync;
  workload.ops.push_back(sync);
}

std::expected<Workload, std::string> parse_workload(const std::string& text,
                                                    const std::string& file) {
  const std::string failed = "cannot read " + file + ": ";
  Json root;
  try {
    root = Json::parse(text);
  } catch (const Json::parse_error& error) {
    const size_t byte = std::min<size_t>(error.byte, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<long>(byte), '\n');
    const bool cut = error.byte > text.size();
    return std::unexpected(
        fmt::format("{}it is {} (line {}, byte {}): give a whole workload, see "
                    "examples/workloads/README.md",
                    failed, cut ? "cut off" : "not JSON", line, error.byte));
  } catch (const std::exception& error) {
    return std::unexpected(fmt::format("{}{}: give a workload in JSON", failed, error.what()));
  }
  try {
    Workload workload = Reader().read(root);
    close_iteration(workload);
    return workload;
  } catch (const Bad& bad) {
    return std::unexpected(fmt::format("{}{} {}: {}", failed, bad.path, bad.why, bad.right));
  }
}

std::string write_workload(const Workload& workload) { return write_workload(workload, {}); }

std::string write_workload(const Workload& workload, const std::vector<Repeat>& repeats) {
  std::string out = fmt::format("{{\n\"lull_workload\": {},\n\"name\": {},\n\"kind\": {},\n",
                                kWorkloadVersion, quoted(workload.name), quoted(workload.kind));
  if (!workload.description.empty()) {
    out += fmt::format("\"description\": {},\n", quoted(workload.description));
  }
  if (workload.recorded != Recorded{}) {
    std::string fields;
    for (const auto& [key, value] : recorded_fields(workload.recorded)) {
      if (value->empty()) continue;
      fields += fmt::format("{}\"{}\": {}", fields.empty() ? "" : ", ", key, quoted(*value));
    }
    out += fmt::format("\"recorded\": {{{}}},\n", fields);
  }
  out += fmt::format("\"streams\": {},\n\"pause_after_ns\": {},\n\"kernels\": [", workload.streams,
                     workload.pause_after_ns);
  for (size_t i = 0; i < workload.kernels.size(); ++i) {
    const Kernel& kernel = workload.kernels[i];
    out += fmt::format("{}\n  {{\"name\": {}, \"grid\": {}, \"block\": {}, \"shared_bytes\": {}}}",
                       i == 0 ? "" : ",", quoted(kernel.name), extent_text(kernel.grid),
                       extent_text(kernel.block), kernel.shared_bytes);
  }
  out += "\n],\n\"ops\": [";
  auto repeat = repeats.begin();
  for (size_t i = 0; i < workload.ops.size();) {
    out += i == 0 ? "" : ",";
    if (repeat == repeats.end() || repeat->first != i) {
      out += "\n  " + op_text(workload.ops[i++]);
      continue;
    }
    out += fmt::format("\n  {{\"repeat\": {}, \"ops\": [", repeat->times);
    for (size_t j = 0; j < repeat->length; ++j) {
      out += fmt::format("{}\n    {}", j == 0 ? "" : ",", op_text(workload.ops[i + j]));
    }
    out += "\n  ]}";
    i += repeat->length * repeat->times;
    ++repeat;
  }
  return out + "\n]\n}\n";
}

}  // namespace lull::play
