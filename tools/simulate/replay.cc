#include "tools/simulate/replay.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <variant>
#include <vector>

#include "coordinator/trace/decision_log.h"

namespace lull::simulate {
namespace {

using namespace engine;

std::string words(const SetGate& o) {
  const std::string of = fmt::format("gate of client {} on device {}: ", o.client.value, o.device.value);
  if (o.gate == Gate::kOpen) return of + "open";
  if (o.gate == Gate::kClosed) return of + "closed";
  return of + fmt::format("credit {} ns{}", o.granted.ns, o.new_epoch ? ", new epoch" : "");
}
std::string words(const Release& o) {
  return fmt::format("release client {} thread {} ticket {}", o.client.value, o.thread.value,
                     o.ticket.value);
}
std::string words(const SetProgress& o) {
  const std::string what = o.every == 0   ? "none"
                           : o.every == 1 ? "every launch"
                                          : fmt::format("one launch in {}", o.every);
  return fmt::format("progress of client {} on device {}: {}", o.client.value, o.device.value, what);
}
std::string words(const Predict& o) {
  return fmt::format("predict client {} kernel {:016x}: {} ns", o.client.value, o.kernel.value,
                     o.length.ns);
}
std::string words(const SetTimer& o) {
  return o.at == kNever ? "no timer" : fmt::format("timer at {} ns", o.at.ns);
}
std::string words(const JobStands& o) {
  return fmt::format("job {} stands{}", o.job.value, o.drained ? "" : ", not drained");
}
std::string words(const Notice& o) {
  std::string text = o.text;
  std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return "notice: " + text;
}

std::string output_at(const std::vector<Output>& outputs, size_t index) {
  if (index >= outputs.size()) return "nothing";
  return std::visit([](const auto& o) { return words(o); }, outputs[index]);
}

// The first output of the step that is not the log's.
std::string difference(const trace::Replay& replay) {
  size_t at = 0;
  const size_t both = std::min(replay.logged.size(), replay.replayed.size());
  while (at < both && trace::outputs_as_bytes(std::span(&replay.logged[at], 1)) ==
                          trace::outputs_as_bytes(std::span(&replay.replayed[at], 1))) {
    ++at;
  }
  return fmt::format("step {} at {} ns: output {}: the log has \"{}\", the engine gives \"{}\"",
                     replay.different_step, replay.different_at.ns, at + 1,
                     output_at(replay.logged, at), output_at(replay.replayed, at));
}

}  // namespace

std::expected<ReplayReport, std::string> replay_decisions(const std::string& path,
                                                          const std::string& own_version) {
  auto log = trace::DecisionLogReader::open(path);
  if (!log) return std::unexpected(log.error());
  const trace::Replay replay = trace::replay(*log);
  if (!log->problem().empty() && !log->was_cut()) {
    return std::unexpected("cannot read " + log->problem());
  }
  if (replay.steps == 0) {
    return std::unexpected(
        fmt::format("{}: there is no step in it: let lulld run longer, and end it with SIGTERM", path));
  }
  ReplayReport report;
  report.summary = fmt::format("replayed {} steps of {} engine{}, {} inputs, {} outputs; policy {}",
                               replay.steps, std::max<uint64_t>(1, replay.engines),
                               replay.engines > 1 ? "s" : "", replay.inputs, replay.outputs,
                               fmt::join(replay.policies, ", then "));
  if (!log->problem().empty()) report.note = log->problem();
  if (replay.different_step != 0) {
    report.difference = difference(replay);
    const std::string& recorded_by = log->info().lull_version;
    if (recorded_by != own_version) {
      report.difference += fmt::format(" (recorded by lull {}, this is {})", recorded_by, own_version);
    }
  }
  return report;
}

}  // namespace lull::simulate
