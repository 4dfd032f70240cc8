#include "coordinator/engine/task_record.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "coordinator/engine/json_depth.h"

namespace lull::engine {
namespace {

using nlohmann::json;
using policies::KernelProfile;
using policies::QuantileSketch;

constexpr const char* kFormat = "lull task profile";
constexpr int kDeepest = 8;

json write_buckets(const std::vector<QuantileSketch::Bucket>& buckets) {
  json list = json::array();
  for (const auto& bucket : buckets) list.push_back({bucket.index, bucket.samples});
  return list;
}

std::vector<QuantileSketch::Bucket> read_buckets(const json& list) {
  std::vector<QuantileSketch::Bucket> buckets;
  for (const json& entry : list) {
    if (buckets.size() >= QuantileSketch::kBuckets) break;
    const auto index = entry.at(0).get<uint64_t>();
    if (index >= QuantileSketch::kBuckets) throw std::range_error("a bucket that cannot be");
    buckets.push_back({static_cast<uint16_t>(index),
                       static_cast<uint32_t>(std::min<uint64_t>(entry.at(1).get<uint64_t>(),
                                                                QuantileSketch::kFull))});
  }
  return buckets;
}

std::string hex(uint64_t value) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = 16; i > 0; --i, value >>= 4) text[i - 1] = kDigits[value & 15];
  return text;
}

uint64_t read_hex(const std::string& text) {
  if (text.empty() || text.size() > 16) throw std::range_error("an id that cannot be");
  uint64_t value = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) throw std::range_error("an id that cannot be");
    value = value * 16 + static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return value;
}

// A mean is kept in 1024ths of a nanosecond and written in nanoseconds, with a fraction.
double mean_of(int64_t x1024) { return static_cast<double>(x1024) / 1024.0; }
int64_t x1024_of(const json& mean) {
  const auto ns = mean.get<double>();
  if (!(ns >= 0) || ns > static_cast<double>(QuantileSketch::kLongestNs)) {
    throw std::range_error("a mean that cannot be");
  }
  return static_cast<int64_t>(ns * 1024.0 + 0.5);
}

}  // namespace

std::string write_task_record(const TaskRecord& record) {
  json kernels = json::array();
  for (const TaskRecord::Kernel& kernel : record.kernels) {
    const KernelProfile profile = KernelProfile::from(kernel.saved);
    json entry = {{"id", hex(kernel.id.value)},
                  {"name", kernel.name},
                  {"count", kernel.saved.count},
                  {"mean_ns", mean_of(kernel.saved.mean_x1024)},
                  {"p50_ns", profile.quantile(500).ns},
                  {"p90_ns", profile.quantile(900).ns},
                  {"p99_ns", profile.quantile(990).ns},
                  {"last_ns", kernel.saved.last.ns},
                  {"buckets", write_buckets(kernel.saved.durations)}};
    if (kernel.saved.gap_count > 0) {
      entry["gap"] = {{"count", kernel.saved.gap_count},
                      {"mean_ns", mean_of(kernel.saved.gap_mean_x1024)},
                      {"p50_ns", profile.gap_quantile(500).ns},
                      {"p90_ns", profile.gap_quantile(900).ns},
                      {"p99_ns", profile.gap_quantile(990).ns},
                      {"last_ns", kernel.saved.last_gap.ns},
                      {"buckets", write_buckets(kernel.saved.gaps)}};
    }
    kernels.push_back(std::move(entry));
  }
  json root = {{"format", kFormat},
               {"version", kTaskRecordVersion},
               {"task", record.task},
               {"gpu", record.gpu},
               {"kernels", std::move(kernels)}};
  if (record.undisturbed.ns > 0) {
    root["iteration"] = {{"undisturbed_ns", record.undisturbed.ns},
                         {"count", record.undisturbed_count}};
  }
  return root.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::expected<TaskRecord, std::string> read_task_record(std::string_view text) {
  if (text.size() > kMaxTaskRecordBytes) return std::unexpected("it is too long");
  if (nests_deeper(text, kDeepest)) return std::unexpected("it is nested too deeply");
  try {
    const json root = json::parse(text);
    if (!root.is_object() || root.value("format", "") != kFormat) {
      return std::unexpected("it is no task profile of lull");
    }
    const auto version = root.at("version").get<int64_t>();
    if (version > kTaskRecordVersion) {
      return std::unexpected("it is of version " + std::to_string(version) + ", newer than " +
                             std::to_string(kTaskRecordVersion));
    }
    if (version < 1) return std::unexpected("its version makes no sense");
    TaskRecord record;
    record.task = root.at("task").get<std::string>();
    record.gpu = root.at("gpu").get<std::string>();
    if (const auto iteration = root.find("iteration"); iteration != root.end()) {
      record.undisturbed.ns = std::clamp<int64_t>(iteration->at("undisturbed_ns").get<int64_t>(), 0,
                                                  QuantileSketch::kLongestNs);
      record.undisturbed_count = iteration->at("count").get<uint64_t>();
    }
    for (const json& entry : root.at("kernels")) {
      if (record.kernels.size() >= kMaxKernelsInRecord) break;
      TaskRecord::Kernel kernel;
      kernel.id.value = read_hex(entry.at("id").get<std::string>());
      kernel.name = entry.value("name", "");
      kernel.saved.count = entry.at("count").get<uint64_t>();
      kernel.saved.mean_x1024 = x1024_of(entry.at("mean_ns"));
      kernel.saved.last.ns = entry.at("last_ns").get<int64_t>();
      kernel.saved.durations = read_buckets(entry.at("buckets"));
      if (const auto gap = entry.find("gap"); gap != entry.end()) {
        kernel.saved.gap_count = gap->at("count").get<uint64_t>();
        kernel.saved.gap_mean_x1024 = x1024_of(gap->at("mean_ns"));
        kernel.saved.last_gap.ns = gap->at("last_ns").get<int64_t>();
        kernel.saved.gaps = read_buckets(gap->at("buckets"));
      }
      record.kernels.push_back(std::move(kernel));
    }
    return record;
  } catch (const json::parse_error&) {
    return std::unexpected("it is not JSON, or ends early");
  } catch (const json::exception&) {
    return std::unexpected("a value is missing or of another type");
  } catch (const std::exception& error) {
    return std::unexpected(std::string(error.what()));
  }
}

}  // namespace lull::engine
