#include "tools/simulate/coordinator_model.h"

#include <algorithm>

namespace lull::simulate {
namespace {

engine::EngineOptions engine_options(const CoordinatorOptions& options) {
  engine::EngineOptions engine;
  engine.policy = options.policy;
  engine.predictor = options.predictor;
  engine.control_latency = options.control_latency;
  engine.marker = options.marker;
  engine.policies = options.policies;
  return engine;
}

}  // namespace

CoordinatorModel::CoordinatorModel(const CoordinatorOptions& options)
    : options_(options), engine_(engine_options(options)) {
  sessions_.resize(1);
}

// As the daemon looks at close clients: ever more rarely, until the doorbell rings. By what it knew of
// the client before the news.
void CoordinatorModel::notice(Session& session, Instant now) {
  session.news = true;
  const Duration quiet = now - session.last_event;
  Instant at = now;
  const bool watched = session.tracked_streams != 0;
  const Duration linger{session.waiting > 0 ? daemon::kHeldLingerNs : daemon::kCloseLingerNs};
  if (watched || quiet < linger) {
    Instant look = session.last_event;
    const Duration close{options_.poll.ns * daemon::kSpacingShare};
    if (quiet > close) {
      look = look + close;
      while (look < now) {
        look = look + Duration{daemon::close_spacing_ns((look - session.last_event).ns, options_.poll.ns)};
      }
      at = look;
    }
    // One turn of the daemon looks at all: its looks lie on one grid.
    at.ns = (at.ns + options_.poll.ns - 1) / options_.poll.ns * options_.poll.ns;
  }
  look_at_ = std::min(look_at_, at);
}

void CoordinatorModel::tell(engine::Input input, Instant at) {
  inputs_.push_back(std::move(input));
  cause_ = std::max(cause_, at);
}

void CoordinatorModel::attach(const engine::ClientAttached& attached, DeviceId device,
                              uint32_t streams, Instant now) {
  const ClientId client = attached.client;
  if (sessions_.size() <= client.value) sessions_.resize(client.value + 1);
  Session& fresh = session(client);
  fresh = {};
  fresh.present = true;
  fresh.last_event = now;
  fresh.words.resize(streams);
  tell(attached, now);
  tell(engine::DeviceUsed{client, device, options_.model}, now);
  look_at_ = now;
}

void CoordinatorModel::detach(ClientId client, Instant now) {
  session(client).present = false;
  tell(engine::ClientDetached{client}, now);
  look_at_ = now;
}

void CoordinatorModel::set_policy(const std::string& text, Instant now) {
  tell(engine::PolicyChanged{text}, now);
  look_at_ = now;
}

void CoordinatorModel::launched(const engine::Launched& launch, Instant now) {
  Session& of = session(launch.client);
  notice(of, now);
  Word& word = of.words[launch.stream.value];
  word.launched = launch.sequence;
  if (launch.tracked) {
    word.tracked = launch.sequence;
    of.tracked_streams |= uint64_t{1} << launch.stream.value;
  }
  if (launch.ticket.value != 0) of.waiting = 0;
  tell(launch, now);
}

void CoordinatorModel::held(const engine::Held& held, Instant now) {
  Session& of = session(held.client);
  notice(of, now);
  of.waiting = 1;
  tell(held, now);
}

void CoordinatorModel::timed(const engine::Timed& timed, Instant now) {
  tell(timed, now);
  notice(session(timed.client), now);
}

void CoordinatorModel::complete(ClientId client, StreamSlot stream, uint64_t sequence,
                                Instant at, bool synced) {
  Session& of = session(client);
  Word& word = of.words[stream.value];
  const uint64_t known = std::min(sequence, word.launched);
  if (known < word.completed || (known == word.completed && !synced)) return;
  word.completed = known;
  tell(engine::Progressed{client, stream, known, synced ? at : kNever}, at);
  if (word.completed >= word.tracked) of.tracked_streams &= ~(uint64_t{1} << stream.value);
}

void CoordinatorModel::synced(ClientId client, StreamSlot stream, uint64_t sequence,
                              Instant now) {
  notice(session(client), now);
  complete(client, stream, sequence, now, /*synced=*/true);
}

void CoordinatorModel::progressed(ClientId client, StreamSlot stream, uint64_t sequence,
                                  Instant now) {
  Session& of = session(client);
  of.words[stream.value].written = sequence;
  of.written_streams |= uint64_t{1} << stream.value;
  notice(of, now);
}

Instant CoordinatorModel::next() const {
  return std::min({look_at_, timer_, queue_.next()});
}

void CoordinatorModel::step(Instant now) {
  const bool timer_due = timer_ <= now;
  if (look_at_ > now && !timer_due) return;
  if (timer_due) {
    cause_ = std::max(cause_, timer_);
    timer_ = kNever;
  }
  if (look_at_ <= now) {
    look_at_ = kNever;
    for (uint32_t id = 1; id < sessions_.size(); ++id) {
      Session& of = sessions_[id];
      if (!of.news) continue;
      of.news = false;
      of.last_event = now;
      if (!of.present) continue;
      for (uint64_t bits = of.written_streams; bits != 0; bits &= bits - 1) {
        const auto slot = static_cast<uint32_t>(__builtin_ctzll(bits));
        complete(ClientId{id}, StreamSlot{slot}, of.words[slot].written, now, /*synced=*/false);
      }
      of.written_streams = 0;
    }
  }
  outputs_.clear();
  engine_.step(now, inputs_, outputs_);
  steps_ += 1;
  if (watch_) watch_(now, inputs_, outputs_);
  inputs_.clear();
  const Instant earliest = cause_ + options_.control_latency;
  cause_ = Instant{0};
  for (engine::Output& output : outputs_) {
    if (const auto* timer = std::get_if<engine::SetTimer>(&output)) {
      timer_ = timer->at;
    } else if (auto* text = std::get_if<engine::Notice>(&output)) {
      notices_.push_back(std::move(text->text));
    } else {
      queue_.push(std::max(now, earliest), std::move(output));
    }
  }
}

}  // namespace lull::simulate
