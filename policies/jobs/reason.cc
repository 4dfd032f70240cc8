#include <array>

#include "policies/jobs/job_policy.h"

namespace lull::jobs {
namespace {

// In the order of Why. %j: the other job, %v: the value, in thousandths.
constexpr std::array kWords = {
    "GPUs are free",
    "no GPU is free: the least used ones are shared",
    "it is next",
    "job %j is more important",
    "its turn is over: job %j is next",
    "job %j has had less service",
    "runs alone to be profiled",
    "tried together with job %j",
    "changes places with job %j, on trial",
    "goes on together with job %j: that is faster than taking turns",
    "together with job %j it made %v of what they make apart",
    "beside job %j all together made %v of what they made before",
    "the memory of the GPUs does not hold them all",
    "GPUs became free",
    "here it makes %v of its best speed",
    "GPUs nearer to each other became free",
    "makes room for job %j",
    "its GPUs go to job %j and others are free",
    "nobody waits for idle GPUs",
    "job %j waits for the GPUs",
    "the operator said so",
    "its GPU has vanished",
    "has arrived, and the policy has given it no GPU yet",
    "runs beside job %j of the same search, as others of it do",
    "with fewer beside job %j all together make as much",
};
static_assert(kWords.size() == static_cast<size_t>(Why::kTooMany) + 1);

std::string per_mille(int64_t value) {
  std::string digits = std::to_string(value % 1000);
  return std::to_string(value / 1000) + "." + std::string(3 - digits.size(), '0') + digits;
}

std::string name(JobId id, const JobName& name_of) {
  return name_of ? name_of(id) : std::to_string(id.value);
}

std::string on(const GpuSet& gpus) {
  std::string out = " on";
  for (const DeviceId device : gpus) out += " " + std::to_string(device.value);
  return out;
}

template <typename... F>
struct Overload : F... {
  using F::operator()...;
};

}  // namespace

std::string text_of(const Reason& reason, const JobName& name_of) {
  std::string out;
  const std::string_view words = kWords[static_cast<size_t>(reason.why)];
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == '%' && words[i + 1] == 'j') {
      out += name(reason.other, name_of);
      ++i;
    } else if (words[i] == '%') {
      out += per_mille(reason.value);
      ++i;
    } else {
      out += words[i];
    }
  }
  return out;
}

std::string text_of(const Decision& decision, const JobName& name_of) {
  const auto job = [&](JobId id) { return " job " + name(id, name_of); };
  const std::string what = std::visit(
      Overload{
          [&](const Place& d) { return "place" + job(d.job) + on(d.gpus); },
          [&](const Suspend& d) { return "suspend" + job(d.job); },
          [&](const Resume& d) { return "resume" + job(d.job) + on(d.gpus); },
          [&](const Pack& d) { return "pack" + job(d.job) + on(d.gpus); },
          [&](const Unpack& d) { return "unpack" + job(d.job); },
          [&](const Migrate& d) { return "migrate" + job(d.job) + on(d.gpus); },
          [&](const Grow& d) { return "grow" + job(d.job) + on(d.gpus); },
          [&](const Shrink& d) { return "shrink" + job(d.job) + on(d.gpus); },
          [&](const SetTimer& d) {
            return d.at == kNever ? std::string("timer off")
                                  : "timer " + std::to_string(d.at.ns / 1'000'000) + " ms";
          },
      },
      decision.what);
  if (std::holds_alternative<SetTimer>(decision.what)) return what;
  return what + ": " + text_of(decision.reason, name_of);
}

}  // namespace lull::jobs
