#include "coordinator/daemon/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "coordinator/channel/ticks.h"
#include "coordinator/daemon/file_descriptor.h"

namespace lull::daemon {
namespace {

constexpr uint64_t kFirstStretchNs = 2'000'000;
constexpr uint64_t kRenewAfterNs = 50'000'000;
constexpr int64_t kOldestTickNs = 10'000'000'000;
constexpr double kLongestTicksNs = 3.2e17;
constexpr int kReadings = 5;
constexpr double kSlowMotionMax = 1e6;

}  // namespace

Clock::Clock() {
  first_ = read_both();
  do {
    last_ = read_both();
  } while (last_.monotonic_ns - first_.monotonic_ns < kFirstStretchNs);
  ns_per_tick_ = static_cast<double>(last_.monotonic_ns - first_.monotonic_ns) /
                 static_cast<double>(std::max<uint64_t>(1, last_.ticks - first_.ticks));
}

Clock Clock::real() { return Clock(); }

Clock Clock::simulated(std::string device_file) {
  Clock clock;
  clock.simulated_ = true;
  clock.ready_ = false;
  clock.device_file_ = std::move(device_file);
  return clock;
}

// The tightest of a few pairs: an interruption between the two readings widens the pair.
Clock::Reading Clock::read_both() {
  Reading best;
  uint64_t best_width = UINT64_MAX;
  for (int n = 0; n < kReadings; ++n) {
    const uint64_t before = channel::ticks();
    const uint64_t monotonic = channel::monotonic_ns();
    const uint64_t after = channel::ticks();
    if (after - before >= best_width) continue;
    best_width = after - before;
    best = {before + (after - before) / 2, monotonic};
  }
  return best;
}

void Clock::refine(uint64_t monotonic_ns) {
  if (monotonic_ns - last_.monotonic_ns < kRenewAfterNs) return;
  const Reading reading = read_both();
  if (reading.ticks <= first_.ticks) return;
  ns_per_tick_ = static_cast<double>(reading.monotonic_ns - first_.monotonic_ns) /
                 static_cast<double>(reading.ticks - first_.ticks);
  last_ = reading;
}

std::expected<bool, std::string> Clock::look_for_device() {
  if (!simulated_) return false;
  const FileDescriptor file(::open(device_file_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    if (errno == ENOENT) return false;
    return std::unexpected(
        fmt::format("cannot read the simulated device {}: {}: name another with "
                    "--sim",
                    device_file_, strerror(errno)));
  }
  channel::sim_device_prefix prefix{};
  const ssize_t got = ::pread(file.get(), &prefix, sizeof prefix, 0);
  // Its creator is at work: a later look sees it.
  if (got < static_cast<ssize_t>(sizeof prefix) || prefix.ready != 1) return false;
  if (memcmp(prefix.magic, channel::kSimMagic, sizeof prefix.magic) != 0 ||
      prefix.version != channel::kSimVersion || !(prefix.slow_motion >= 1.0) ||
      prefix.slow_motion > kSlowMotionMax || prefix.sharing > 2 ||
      prefix.control_latency_ns > 1'000'000'000) {
    return std::unexpected(
        fmt::format("cannot use {}: it is no simulated device of this version: "
                    "remove it or name another with --sim",
                    device_file_));
  }
  if (ready_ && prefix.origin_ns == model_.origin_ns && prefix.slow_motion == model_.slow_motion) {
    return false;
  }
  model_ = {.origin_ns = prefix.origin_ns, .slow_motion = prefix.slow_motion};
  control_latency_ = {static_cast<int64_t>(prefix.control_latency_ns)};
  sharing_ = prefix.sharing;
  sim_device_ = prefix;
  ready_ = true;
  return true;
}

Instant Clock::now() const {
  if (!ready_) return {0};
  return {static_cast<int64_t>(model_.now_ns())};
}

Instant Clock::at_ticks(uint64_t ticks, Instant now) const {
  if (!ready_) return now;
  const double ahead =
      static_cast<double>(static_cast<int64_t>(ticks - last_.ticks)) * ns_per_tick_;
  const double at = static_cast<double>(last_.monotonic_ns) + ahead;
  if (!(at > 0.0) || at > 9e18) return now;
  const Instant instant{static_cast<int64_t>(model_.to_model_ns(static_cast<uint64_t>(at)))};
  return std::clamp(instant, Instant{std::max<int64_t>(0, now.ns - kOldestTickNs)}, now);
}

Duration Clock::length_of(uint64_t ticks) const {
  const double ns = static_cast<double>(ticks) * ns_per_tick_ / model_.slow_motion;
  return {static_cast<int64_t>(std::min(ns, kLongestTicksNs))};
}

uint64_t Clock::monotonic_at(Instant instant) const {
  if (instant == kNever) return UINT64_MAX;
  return model_.to_monotonic_ns(static_cast<uint64_t>(std::max<int64_t>(0, instant.ns)));
}

std::string Clock::sharing() const {
  constexpr const char* kNames[] = {"time_slice", "mps", "serial"};
  return simulated_ && ready_ ? kNames[sharing_] : "";
}

}  // namespace lull::daemon
