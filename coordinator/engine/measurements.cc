// How long launches took: as the shim measured it, and as completions tell.
#include <algorithm>
#include <cstdlib>

#include "coordinator/engine/core.h"

namespace lull::engine {

bool Engine::Core::had_co_running(const Client& client, Instant since) const {
  if (since == kNever) return false;
  for (const auto& mine : client.usages) {
    const Device& on = device_of(*mine);
    if (on.busy.size() > (mine->units > 0 ? 1U : 0U)) return true;
    // No work of a client has ended later than its last touch.
    for (auto member = on.lately.rbegin(); member != on.lately.rend(); ++member) {
      if (*member == client.id) continue;
      const Client& other = *find(*member);
      const DeviceUsage& usage = *other.usage(mine->device);
      if (usage.touched < since) break;
      const Instant due = usage.last_due + usage.kept_off;
      const Instant last = std::max({usage.last_launch, usage.last_progress, due});
      if (other.launches > 0 && last >= since) return true;
    }
  }
  return false;
}

// Co-running work, as far as is known, beside a unit of this stream launched at `since`: other clients', and the
// client's own on other streams.
LearnedLaunches::CoRunning Engine::Core::co_running(const Device& on, const Client& client,
                                                    const DeviceUsage& usage, size_t slot,
                                                    Instant since) {
  LearnedLaunches::CoRunning found{.present = on.busy.size() > (usage.units > 0 ? 1U : 0U),
                                   .launches = on.launches - usage.launches};
  for (size_t i = 0; i < client.streams.size(); ++i) {
    const Stream& other = client.streams[i];
    if (i == slot) continue;
    if (!other.units.empty() && other.units.front().device == usage.device)
      found.own = std::max(found.own, other.units.front().lengthens);
    if (other.longest.done_at >= since && other.longest.device == usage.device)
      found.own = std::max(found.own, other.longest.lengthens);
  }
  return found;
}

// How much own work on other streams may have lengthened this launch. Its completion may not be seen yet.
Duration Engine::Core::own_beside(const Client& client, const LearnedLaunches::Place& place) const {
  const size_t slot = slot_of(place.stream);
  if (place.completed || slot >= client.streams.size() || client.streams[slot].units.empty()) return place.own;
  const DeviceUsage& usage = *client.usage(client.streams[slot].units.front().device);
  return std::max(place.own, co_running(device_of(usage), client, usage, slot, place.at).own);
}

// A launch that is no longer remembered is older than all that are. But a client could claim that of
// any launch, so its age counts as 0.
bool Engine::Core::is_possible(const Client& client, const Timed& timed) const {
  const LearnedLaunches::Place* place = client.learned.place(timed);
  const Duration since_launch = place == nullptr ? Duration{} : now_ - place->at;
  return timed.duration.ns >= 0 && timed.duration <= since_launch + kHeardLate;
}

void Engine::Core::take(const Timed& input) {
  Client* client = find(input.client);
  TaskKernel* kernel = client == nullptr || !is_possible(*client, input)
                           ? nullptr
                           : client->profile->kernel(input.kernel);
  if (kernel == nullptr) {
    dropped_ += 1;
    return;
  }
  const LearnedLaunches::Place* place = client->learned.place(input);
  const bool co_running = place != nullptr && place->completed
                              ? place->disturbed
                              : had_co_running(*client, input.launched);
  measured(*client, *kernel, input, co_running);
}

void Engine::Core::measured(Client& client, TaskKernel& kernel, const Timed& input,
                            bool co_running) {
  policies::KernelProfile& profile = kernel.profile;
  const bool first = profile.count() == 0;
  const LearnedLaunches::Place* place = client.learned.place(input);
  policies::Known before{.kernel = &profile};
  if (place != nullptr) before = known(client, profile, *place, policies::Predictor::kPosition);
  // Longer launches meet others more often: to leave out all that had co-running work would leave out
  // the long ones. A length that was seen at the same place without others did not suffer from them.
  const auto suffered = [](bool beside_others, const policies::LengthProfile* here,
                           Duration length) {
    return beside_others && (here == nullptr || !here->has_seen(length.ns));
  };
  // Own work on another stream does not change the pause, and hardly changes the length if that work is short.
  const bool own = place != nullptr && own_beside(client, *place).ns > input.duration.ns / kLittle;
  const Disturbed disturbed{
      .duration = suffered(co_running || own, durations_here(before), input.duration),
      .gap = suffered(co_running, gaps_here(before), input.gap)};
  if (place != nullptr) {
    kernel.choice.add(before, disturbed.duration ? Duration{-1} : input.duration,
                       disturbed.gap ? Duration{-1} : input.gap);
  }
  client.profile->add(input.kernel, kernel, input.duration, input.gap, disturbed);
  if (place != nullptr && !co_running) {
    const Duration length = own ? Duration{-1} : input.duration;
    if (length.ns >= 0 || input.gap.ns >= 0) {
      client.learned.timed(*place, profile, length, input.gap);
      client.profile->add_pair(place->before, place->kernel, profile, length, input.gap);
    }
  }
  const Duration mean = profile.mean();
  use_kernel(client, input.kernel);
  for (ClientId user : client.profile->users) {
    Client& other = *find(user);
    auto use = other.kernels.find(input.kernel);
    if (use == other.kernels.end()) continue;
    use->second.known = &kernel;
    Duration& published = use->second.published;
    const int64_t moved = std::abs(mean.ns - published.ns);
    if (moved == 0 || (!first && moved <= published.ns / kPredictionStep)) continue;
    published = mean;
    put(Predict{user, input.kernel, mean});
  }
}

// Long kernels only: reports come a little late.
bool Engine::Core::is_seen(const KernelUse& use) const {
  return use.known != nullptr && use.known->profile.mean() >= kSeenByCompletion;
}

// If the unit came to a device with little work, and nobody else's work came, it has run since its launch, or since
// the work before it was done. Beside others it may have waited for them for any time.
void Engine::Core::saw(Client& client, StreamSlot stream, const Unit& unit) {
  if (unit.ahead.ns < 0 || !unit.tracked) return;
  const Device& on = *device(unit.device);
  const bool alone = on.busy.size() <= 1 && unit.ahead.ns <= (now_ - unit.at).ns / 8 &&
                     on.done - client.usage(unit.device)->done == unit.others_done;
  if (!alone) return;
  const LearnedLaunches::Place* place = client.learned.place(stream, unit.sequence);
  TaskKernel* kernel = place == nullptr ? nullptr : client.profile->kernel(place->kernel);
  if (kernel == nullptr) return;
  Timed timed;
  timed.client = client.id;
  timed.kernel = place->kernel;
  timed.duration = now_ - std::max(unit.at, on.done_at);
  timed.launched = unit.at;
  timed.stream = stream;
  timed.sequence = unit.sequence;
  measured(client, *kernel, timed, /*co_running=*/false);
}

}  // namespace lull::engine
