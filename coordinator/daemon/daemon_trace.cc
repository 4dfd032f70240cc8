// Daemon's recordings: the trace of what clients do, and the log of what the engine decides.
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "coordinator/daemon/daemon.h"

namespace lull::daemon {
namespace {

constexpr uint64_t kDecisionFlushNs = 1'000'000'000;
constexpr uint64_t kClosingLookNs = 5'000'000;

}  // namespace

std::expected<void, std::string> Daemon::start_recording(TraceOrder order) {
  auto recorder = TraceRecorder::open(
      std::move(order), devices_,
      [this](ClientId client, DeviceId device) { return engine_->waits_for(client, device); });
  if (!recorder) return std::unexpected(recorder.error());
  recorder_ = std::move(*recorder);
  const Instant now = clock_.now();
  for (const auto& [id, session] : sessions_) {
    // What its rings hold is of before.
    if (!session->gone) session->drain(clock_, now, devices_, /*thorough=*/true, inputs_);
  }
  recording_since_launches_ = clock_.ready();
  publish_timing();
  begin_recording();
  return {};
}

// The head of a trace says what its times mean, so it waits for the clock; nothing can have been
// launched before, but for what is in the rings at this moment.
void Daemon::begin_recording() {
  if (recorder_->has_begun() || recorder_->is_closing() || !clock_.ready()) return;
  recorder_->begin(clock_, policy_text());
  if (const auto figures = recorder_->figures(); figures["failure"] != "") {
    log_.line(figures["failure"].get<std::string>());
    last_trace_ = figures;
    last_trace_["running"] = false;
    last_trace_["written"] = true;
    recorder_.reset();
    publish_timing();
    return;
  }
  log_.detail(fmt::format("recording into {}", recorder_->figures()["file"].get<std::string>()));
  const Instant now = clock_.now();
  for (const auto& [id, session] : sessions_) {
    if (session->gone) continue;
    recorder_->client_started(
        *session, recording_since_launches_ ? session->totals() : channel::ThreadTotals{}, now);
    session->set_record_mode(channel::kRecordEverything);
    wake(*session);
  }
}

// The client's last records, and what it did in all.
void Daemon::record_end(Session& session) {
  if (session.observer == nullptr) return;
  const Instant now = clock_.now();
  if (!session.is_hopeless()) session.drain(clock_, now, devices_, /*thorough=*/true, inputs_);
  recorder_->drained(session, now);
  recorder_->client_ended(session, now);
}

void Daemon::stop_recording() {
  for (const auto& [id, session] : sessions_) {
    if (session->gone) continue;
    record_end(*session);
    wake(*session);
  }
  recorder_->close();
  publish_timing();
}

std::optional<channel::lull_timing> Daemon::recorded_timing() const {
  return recorder_ ? recorder_->timing() : std::nullopt;
}

void Daemon::publish_timing() {
  for (const auto& [id, session] : sessions_) {
    if (session->gone) continue;
    session->set_timing_period(
        timing_period_for(settings_.config, session->who().timing_wish, recorded_timing()));
  }
}

void Daemon::keep_records(uint64_t monotonic_ns) {
  if (recorder_ && recorder_->is_closing()) {
    if (recorder_->is_written()) {
      last_trace_ = recorder_->figures();
      recorder_.reset();
    } else {
      recorder_->look_again_at(monotonic_ns + kClosingLookNs);
    }
  } else if (recorder_) {
    recorder_->keep(monotonic_ns);
  }
  if (!decisions_) return;
  if (monotonic_ns >= next_decision_flush_ns_) {
    decisions_->flush();
    next_decision_flush_ns_ = UINT64_MAX;
  } else if (next_decision_flush_ns_ == UINT64_MAX && decisions_->has_unflushed()) {
    next_decision_flush_ns_ = monotonic_ns + kDecisionFlushNs;
  }
}

std::expected<nlohmann::json, std::string> Daemon::trace(const std::optional<TraceOrder>& order,
                                                         bool stop, const Peer& peer) {
  if (!order && !stop) return recorder_ ? recorder_->figures() : last_trace_;
  // The file is made with the daemon's rights, so who asks must have them.
  if (peer.uid != 0 && peer.uid != ::geteuid()) {
    return std::unexpected(fmt::format(
        "cannot trace: uid {} may not have lulld write files as uid {}: use `lull trace record -- "
        "PROGRAM`, or ask that user",
        peer.uid, ::geteuid()));
  }
  if (stop) {
    if (!recorder_) return std::unexpected("cannot stop tracing: no trace is recorded: see status");
    if (!recorder_->is_closing()) stop_recording();
    return recorder_->figures();
  }
  if (recorder_) {
    return std::unexpected(fmt::format("cannot trace into {}: lulld records into {} already: stop "
                                       "that first",
                                       order->file, recorder_->figures()["file"].get<std::string>()));
  }
  if (const auto begun = start_recording(*order); !begun) return std::unexpected(begun.error());
  return recorder_ ? recorder_->figures() : last_trace_;
}

std::expected<void, std::string> Daemon::start_decision_log(const std::string& file) {
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  auto log = trace::DecisionLogWriter::create(
      file, {.lull_version = LULL_VERSION,
             .host = host,
             .created_unix_ns = wall.tv_sec * 1'000'000'000 + wall.tv_nsec});
  if (!log) return std::unexpected(log.error());
  decisions_ = std::move(*log);
  return {};
}

}  // namespace lull::daemon
