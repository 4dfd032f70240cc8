#include "tools/lull/job_display.h"

#include <fmt/format.h>

#include "tools/lull/reply_fields.h"
#include "tools/measure/values.h"

namespace lull::command {

using nlohmann::json;

bool is_on_its_way(const json& job) {
  const auto state = field<std::string>(job, "state", "running");
  if (state == "stopping" || state == "leaving" || state == "returning" || state == "waiting")
    return true;
  // Asked, not begun.
  const bool suspends = field<std::string>(job, "target", "running") != "running";
  return (state == "running" && (suspends || field(job, "migrates", false))) ||
         (state == "suspended" && !suspends);
}

std::string describe_job(const json& job) {
  const auto state = field<std::string>(job, "state", "?");
  std::string text = fmt::format("{}: {}", field<std::string>(job, "job", "?"), state);
  const auto level = field<std::string>(job, "level", "");
  if (!level.empty() && (state == "suspended" || state == "waiting")) {
    text += level == "in_place" ? " in place" : level == "out" ? ", memory out" : ", GPU given up";
  }
  if (field(job, "pinned", false)) text += ", pinned";
  if (field(job, "by_policy", false)) text += ", by a policy";
  const auto bytes = field<uint64_t>(job, "moving_bytes", 0);
  if (bytes > 0 && (state == "leaving" || state == "returning")) {
    text += fmt::format(", {} of {}", show_bytes(field<uint64_t>(job, "moved_bytes", 0)),
                        show_bytes(bytes));
    if (const auto rate = field<uint64_t>(job, "bytes_per_s", 0); rate > 0) {
      text += fmt::format(" at {}/s", show_bytes(rate));
    }
  }
  if (const auto elastic = job.find("elastic"); elastic != job.end() && elastic->is_object()) {
    text += fmt::format(", elastic: {} GPUs of {} to {}", field<uint32_t>(*elastic, "gpus", 0),
                        field<uint32_t>(*elastic, "min", 0), field<uint32_t>(*elastic, "max", 0));
  }
  if (const auto waits = field<std::string>(job, "waits_for", ""); !waits.empty())
    text += ": " + waits;
  if (const auto why = field<std::string>(job, "reason", ""); !why.empty()) text += ": " + why;
  if (const auto decision = field<std::string>(job, "decision", ""); !decision.empty())
    text += "; " + decision;
  return text;
}

bool is_worth_showing(const json& job) {
  return !field<std::string>(job, "decision", "").empty() ||
         field<std::string>(job, "state", "running") != "running" || field(job, "pinned", false) ||
         !field<std::string>(job, "reason", "").empty() || job.contains("elastic");
}

std::string describe_residence(const json& residence) {
  if (!residence.is_object()) return "";
  std::string can;
  if (const auto abilities = residence.find("can");
      abilities != residence.end() && abilities->is_array()) {
    for (const json& one : *abilities) {
      if (one.is_string()) can += (can.empty() ? "" : ", ") + one.get<std::string>();
    }
  }
  std::string text =
      fmt::format("memory {}, {} can be swapped", field<std::string>(residence, "state", "?"),
                  show_bytes(field<uint64_t>(residence, "swappable_bytes", 0)));
  if (const auto fixed = field<uint64_t>(residence, "fixed_bytes", 0); fixed > 0) {
    text += ", " + show_bytes(fixed) + " cannot";
    const auto why = residence.find("fixed_why");
    std::string kinds;
    if (why != residence.end() && why->is_array()) {
      for (const json& one : *why) {
        if (one.is_string()) kinds += (kinds.empty() ? "" : ", ") + one.get<std::string>();
      }
    }
    if (!kinds.empty()) text += " (" + kinds + ")";
  }
  text +=
      fmt::format(", host arena {} of {}", show_bytes(field<uint64_t>(residence, "host_bytes", 0)),
                  show_bytes(field<uint64_t>(residence, "host_wanted_bytes", 0)));
  text += can.empty() ? "; can do nothing" : "; can " + can;
  if (const auto why = field<std::string>(residence, "reason", ""); !why.empty())
    text += ": " + why;
  return text;
}

}  // namespace lull::command
