#include "tools/simulate/cluster/job_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "tools/simulate/cluster/generator.h"
#include "tools/simulate/random.h"

namespace lull::simulate::cluster {
namespace {

using nlohmann::json;
using Jobs = std::expected<JobFile, std::string>;

constexpr double kLongest_s = 10.0 * 365 * 86'400;

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> out(1);
  for (const char c : line) {
    if (c == ',') {
      out.emplace_back();
    } else if (c != '\r' && c != '"') {
      out.back() += c;
    }
  }
  return out;
}

std::optional<double> number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

// "2017-10-07 01:12:09" in seconds; the zone does not matter: differences are used.
std::optional<double> moment(const std::string& text) {
  std::tm tm{};
  const char* end = strptime(text.c_str(), "%Y-%m-%d %H:%M:%S", &tm);
  if (end == nullptr) return std::nullopt;
  return static_cast<double>(timegm(&tm));
}

// A job of a trace: arrival, GPUs and length are the trace's, the rest is drawn.
JobSpec drawn(const std::string& name, double arrival_s, double gpus, double length_s, bool failed,
              uint64_t seed, size_t index) {
  JobSpec job = make_nature(seed, index);
  job.name = name;
  job.arrival_s = arrival_s;
  job.gpus = static_cast<uint32_t>(std::clamp(gpus, 1.0, 4096.0));
  job.priority.level = 5;
  job.iterations = static_cast<uint64_t>(std::max(1.0, length_s / job.iteration_s));
  if (failed) {  // the trace's length is the one to the failure
    job.iterations *= 2;
    job.fails_at = 0.5;
  }
  return job;
}

// The text there; empty: there is none.
std::string text_at(const json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

void note_unreadable(LeftOut& left_out, std::string where) {
  if (left_out.unreadable++ == 0) left_out.first = std::move(where);
}

Jobs philly(const std::string& text, uint64_t seed) {
  const json all = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!all.is_array()) return std::unexpected("a Philly cluster_job_log is a JSON array of jobs");
  JobFile out;
  JobSpecs& jobs = out.jobs;
  for (size_t i = 0; i < all.size(); ++i) {
    const json& one = all[i];
    const auto unreadable = [&](const char* why) {
      note_unreadable(out.left_out, fmt::format("job {}: {}", i + 1, why));
    };
    if (!one.is_object()) {
      unreadable("it is no JSON object");
      continue;
    }
    const auto submitted = moment(text_at(one, "submitted_time"));
    if (!submitted || !one.contains("attempts") || !one["attempts"].is_array()) {
      unreadable("submitted_time or attempts is none");
      continue;
    }
    // All attempts' time on GPUs; the GPUs of the last attempt.
    double length_s = 0, gpus = 0;
    bool ran = false;
    for (const json& attempt : one["attempts"]) {
      const auto begin = moment(text_at(attempt, "start_time"));
      const auto end = moment(text_at(attempt, "end_time"));
      if (!begin || !end || *end <= *begin || !attempt.contains("detail")) continue;
      ran = true;
      double count = 0;
      for (const json& node : attempt["detail"]) {
        if (node.contains("gpus")) count += static_cast<double>(node["gpus"].size());
      }
      if (count == 0) continue;
      length_s += *end - *begin;
      gpus = count;
    }
    if (gpus == 0) {
      ++(ran ? out.left_out.without_gpu : out.left_out.not_run);
      continue;
    }
    jobs.push_back(drawn(text_at(one, "jobid"), *submitted, gpus, length_s,
                         text_at(one, "status") == "Failed", seed, jobs.size()));
  }
  return out;
}

Jobs helios(const std::string& text, uint64_t seed) {
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);
  std::map<std::string, size_t> column;
  for (const std::string& name : cells_of(line)) column.emplace(name, column.size());
  for (const char* name : {"job_id", "gpu_num", "state", "submit_time", "duration"}) {
    if (!column.contains(name)) {
      return std::unexpected(fmt::format("a Helios cluster_log.csv has a column {}", name));
    }
  }
  JobFile out;
  JobSpecs& jobs = out.jobs;
  for (size_t row = 2; std::getline(in, line); ++row) {
    if (line.empty()) continue;
    const auto cells = cells_of(line);
    if (cells.size() < column.size()) {
      note_unreadable(out.left_out, fmt::format("line {}: {} columns and not {}", row, cells.size(),
                                                column.size()));
      continue;
    }
    const auto gpus = number(cells[column["gpu_num"]]);
    const auto length = number(cells[column["duration"]]);
    const auto submitted = moment(cells[column["submit_time"]]);
    if (!gpus || !length || !submitted) {
      note_unreadable(out.left_out,
                      fmt::format("line {}: gpu_num, duration or submit_time is none", row));
      continue;
    }
    if (*gpus < 1 || *length <= 0) {
      ++(*gpus < 1 ? out.left_out.without_gpu : out.left_out.not_run);
      continue;
    }
    const std::string& state = cells[column["state"]];
    jobs.push_back(drawn(cells[column["job_id"]], *submitted, *gpus, *length,
                         state == "FAILED" || state == "TIMEOUT" || state == "NODE_FAIL", seed,
                         jobs.size()));
  }
  return out;
}

// pai_task_table.csv has no header line; its columns by pai_task_table.header.
Jobs pai(const std::string& text, uint64_t seed) {
  enum : size_t { kJob, kTask, kInstances, kStatus, kBegin, kEnd, kCpu, kMemory, kGpu, kType, kAll };
  struct Found {
    double begin = 0, end = 0, gpus = 0;
    bool failed = false;
  };
  JobFile out;
  std::map<std::string, Found> found;
  std::istringstream in(text);
  std::string line;
  for (size_t row = 1; std::getline(in, line); ++row) {
    if (line.empty() || line.starts_with("job_name,")) continue;
    const auto cells = cells_of(line);
    if (cells.size() != kAll) {
      note_unreadable(out.left_out, fmt::format("line {}: {} columns and not {}", row, cells.size(),
                                                size_t{kAll}));
      continue;
    }
    const auto instances = number(cells[kInstances]), begin = number(cells[kBegin]);
    const auto end = number(cells[kEnd]), gpu = number(cells[kGpu]);
    // An empty cell says something: no plan_gpu is a task of CPUs only, no end one that goes on.
    if (cells[kGpu].empty() || (gpu && *gpu <= 0)) {
      ++out.left_out.without_gpu;
      continue;
    }
    if (gpu && (cells[kBegin].empty() || cells[kEnd].empty() || (begin && end && *end <= *begin))) {
      ++out.left_out.not_run;
      continue;
    }
    if (!instances || !begin || !end || !gpu) {
      note_unreadable(
          out.left_out,
          fmt::format("line {}: inst_num, start_time, end_time or plan_gpu is none", row));
      continue;
    }
    Found& job = found[cells[kJob]];
    if (job.gpus == 0 || *begin < job.begin) job.begin = *begin;
    job.end = std::max(job.end, *end);
    // A hundredth of a GPU is the unit; parts of one count as a whole one.
    job.gpus += std::max(1.0, *instances) * std::ceil(*gpu / 100);
    job.failed |= cells[kStatus] == "Failed";
  }
  for (const auto& [name, job] : found) {
    out.jobs.push_back(
        drawn(name, job.begin, job.gpus, job.end - job.begin, job.failed, seed, out.jobs.size()));
  }
  return out;
}

Jobs own(const std::string& text, uint64_t seed) {
  const json all = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object() || !all.contains("jobs") || !all["jobs"].is_array()) {
    return std::unexpected("a file of jobs is {\"jobs\": [{...}, ...]}");
  }
  JobSpecs jobs;
  for (const json& one : all["jobs"]) {
    const std::string where = fmt::format("job {}", jobs.size());
    if (!one.is_object()) return std::unexpected(where + ": it is no object");
    JobSpec job = make_nature(seed, jobs.size());
    job.priority.level = 5;
    job.iterations = 0;
    for (const auto& [key, value] : one.items()) {
      if (key == "name") {
        if (!value.is_string()) return std::unexpected(where + ": name: a text is wanted");
        job.name = value.get<std::string>();
        continue;
      }
      if (key == "loads_switch") {
        if (!value.is_boolean()) return std::unexpected(where + ": loads_switch: true or false is wanted");
        job.bus = value.get<bool>();
        continue;
      }
      const auto in = [&](double low, double high) {
        return value.is_number() && value.get<double>() >= low && value.get<double>() <= high;
      };
      const double x = value.is_number() ? value.get<double>() : 0;
      const auto bad = [&](std::string_view what) {
        return std::unexpected(fmt::format("{}: {}: {}", where, key, what));
      };
      if (key == "arrival_s") {
        if (!in(0, kLongest_s)) return bad("seconds, 0 or more");
        job.arrival_s = x;
      } else if (key == "gpus") {
        if (!in(1, 4096)) return bad("1 to 4096");
        job.gpus = static_cast<uint32_t>(x);
      } else if (key == "most_gpus") {
        if (!in(0, 4096)) return bad("0 to 4096");
        job.most_gpus = static_cast<uint32_t>(x);
      } else if (key == "priority") {
        if (!in(0, 9)) return bad("0 (highest) to 9");
        job.priority.level = static_cast<uint8_t>(x);
      } else if (key == "memory_gb") {
        if (!in(0.001, 1000)) return bad("0.001 to 1000, on each GPU");
        job.memory_bytes = static_cast<uint64_t>(x * 1e9);
      } else if (key == "iterations") {
        if (!in(1, 1e12)) return bad("1 or more");
        job.iterations = static_cast<uint64_t>(x);
      } else if (key == "iteration_s") {
        if (!in(1e-6, 86'400)) return bad("seconds, more than 0");
        job.iteration_s = x;
      } else if (key == "busy") {
        if (!in(0.001, 1)) return bad("0.001 to 1");
        job.busy = x;
      } else if (key == "locality") {
        if (!in(0.01, 1)) return bad("0.01 to 1");
        job.locality = x;
      } else if (key == "fails_at") {
        if (!in(0, 1)) return bad("0 to 1");
        job.fails_at = x;
      } else if (key == "checkpoint_s") {
        if (!in(0, kLongest_s)) return bad("seconds, 0 or more");
        job.checkpoint_s = x;
      } else {
        return bad("there is no such key");
      }
    }
    if (job.iterations == 0) return std::unexpected(where + ": iterations is missing");
    if (job.name.empty()) job.name = fmt::format("j{}", jobs.size());
    jobs.push_back(std::move(job));
  }
  return JobFile{std::move(jobs), {}};
}

}  // namespace

std::string LeftOut::text() const {
  if (all() == 0) return {};
  std::string out;
  const auto add = [&](uint64_t count, std::string_view what) {
    if (count > 0) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, what);
  };
  add(without_gpu, "without a GPU");
  add(not_run, "that never ran or had not ended");
  add(unreadable, fmt::format("that cannot be read (the first: {})", first));
  return fmt::format("{} of the trace are left out: {}", all(), out);
}

Jobs parse_jobs(const std::string& text, TraceFormat format, uint64_t seed, uint64_t limit) {
  Jobs jobs = format == TraceFormat::kPhilly   ? philly(text, seed)
              : format == TraceFormat::kHelios ? helios(text, seed)
              : format == TraceFormat::kPai    ? pai(text, seed)
                                               : own(text, seed);
  if (!jobs) return jobs;
  JobSpecs& all = jobs->jobs;
  if (all.empty()) {
    const std::string left_out = jobs->left_out.text();
    return std::unexpected("there is no job with a GPU in it" +
                           (left_out.empty() ? left_out : ": " + left_out));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const JobSpec& a, const JobSpec& b) { return a.arrival_s < b.arrival_s; });
  if (limit > 0 && all.size() > limit) all.resize(limit);
  if (format != TraceFormat::kOwn) {
    const double first_s = all.front().arrival_s;
    for (JobSpec& job : all) job.arrival_s -= first_s;
  }
  return jobs;
}

Jobs read_jobs(const std::string& path, TraceFormat format, uint64_t seed, uint64_t limit) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::unexpected(path + ": cannot be read");
  std::ostringstream text;
  text << in.rdbuf();
  Jobs jobs = parse_jobs(text.str(), format, seed, limit);
  if (!jobs) return std::unexpected(path + ": " + jobs.error());
  return jobs;
}

}  // namespace lull::simulate::cluster
