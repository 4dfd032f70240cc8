// Daemon's part for the node's job policy: what it sees out of moves and engine, its orders into moves.
#include <fmt/format.h>

#include <algorithm>

#include "coordinator/daemon/daemon.h"

namespace lull::daemon {
namespace {

// How often the node is looked at while a job policy decides; with more than kFewClients clients that
// much less often, since a look costs some microseconds a client.
constexpr uint64_t kJobsLookNs = 100'000'000;
constexpr size_t kFewClients = 32;
constexpr size_t kDecisionsShown = 20;

}  // namespace

void Daemon::use_job_policy(const std::string& text) {
  if (scheduler_) {
    follow(scheduler_->let_go(moves_->facts()));
    scheduler_.reset();
  }
  commands_.clear();
  next_jobs_look_ns_ = UINT64_MAX;
  elastic_.allow_all();
  elastic_.begin_with_least(false);
  if (text == kNoJobPolicy) return;
  auto choice = jobs::parse_job_policy(text);
  if (!choice) {
    log_.line("job policy: " + choice.error());
    return;
  }
  elastic_.begin_with_least(choice->row->sizes_jobs);
  scheduler_ = std::make_unique<scheduling::JobScheduler>(std::move(*choice));
  next_jobs_look_ns_ = 0;
}

// What a job's name says of it. FAMILY/NAME: jobs of one user and family are of one multi-job.
scheduling::JobNature Daemon::nature_of(const SessionBirth& who) const {
  scheduling::JobNature nature{
      .job = who.job,
      .name = who.job_name.empty() ? fmt::format("{} of pid {}", printable(who.task), who.peer.pid)
                                   : printable(who.job_name)};
  if (const size_t slash = who.job_name.rfind('/'); slash != std::string::npos && slash > 0) {
    const std::string family = fmt::format("{}/{}", who.peer.uid, who.job_name.substr(0, slash));
    nature.multi_job.value = std::max<uint64_t>(1, std::hash<std::string>{}(family));
  }
  if (const auto elastic = elastic_.find(who.peer.uid, who.job_name)) {
    nature.least_gpus = elastic->least;
    nature.most_gpus = elastic->gpus;
    nature.told_gpus = elastic->told();
  }
  return nature;
}

scheduling::NodeView Daemon::node_view() const {
  scheduling::NodeView view{.facts = moves_->facts(), .paces = {}, .natures = {}, .devices = {}};
  for (const auto& [id, session] : sessions_) {
    if (!session->gone) view.natures.push_back(nature_of(session->who()));
  }
  std::ranges::sort(view.natures, {}, &scheduling::JobNature::job);
  for (const DeviceRow& row : devices_.rows()) {
    if (!row.known.instance) view.devices.push_back({row.id, row.known.name, Duration{}});
  }
  std::map<JobId, uint64_t> iterations;
  for (const engine::ClientStatus& client : engine_->status().clients) {
    if (client.iteration.completed > 0) {
      const auto [at, fresh] = iterations.try_emplace(client.job, client.iteration.completed);
      if (!fresh) at->second = std::min(at->second, client.iteration.completed);
    }
    for (const engine::DeviceUsageStatus& usage : client.devices) {
      const auto use =
          std::ranges::find(view.devices, usage.device, &scheduling::DeviceUse::device);
      if (use != view.devices.end()) use->busy += usage.device_time;
    }
  }
  for (const auto& [job, count] : iterations) view.paces.push_back({job, count});
  return view;
}

void Daemon::step_jobs(uint64_t monotonic_ns) {
  const size_t times = 1 + sessions_.size() / kFewClients;
  next_jobs_look_ns_ = sessions_.empty() ? UINT64_MAX : monotonic_ns + times * kJobsLookNs;
  if (!clock_.ready()) return;
  step_moves(monotonic_ns, /*whole=*/true);
  const size_t known = scheduler_->decisions().size();
  const Instant last = known == 0 ? Instant{0} : scheduler_->decisions().back().at;
  std::vector<scheduling::JobOrder> orders;
  const bool worked = scheduler_->broken_rule().empty();
  scheduler_->step(clock_.now(), node_view(), commands_, orders);
  commands_.clear();
  for (const scheduling::DecisionMade& one : scheduler_->decisions()) {
    if (known == 0 || one.at > last) log_.line("job policy: " + one.text);
  }
  if (worked && !scheduler_->broken_rule().empty()) {
    log_.line(fmt::format("job policy {} has broken a rule and decides no more: {}",
                          scheduler_->policy(), scheduler_->broken_rule()));
  }
  follow(orders);
}

void Daemon::allow_gpus(const scheduling::ResizeJob& order) {
  for (const auto& [id, session] : sessions_) {
    const SessionBirth& who = session->who();
    if (session->gone || who.job != order.job) continue;
    elastic_.allow(who.peer.uid, who.job_name, order.gpus);
    log_.line(fmt::format("job policy: {} of uid {} may have {} GPUs", printable(who.job_name),
                          who.peer.uid, order.gpus));
    return;
  }
}

void Daemon::follow(std::span<const scheduling::JobOrder> orders) {
  for (const scheduling::JobOrder& order : orders) {
    if (const auto* resize = std::get_if<scheduling::ResizeJob>(&order)) {
      allow_gpus(*resize);
      continue;
    }
    JobId job;
    moves::Input request;
    if (const auto* suspend = std::get_if<scheduling::SuspendJob>(&order)) {
      job = suspend->job;
      request = moves::SuspendAsked{.job = job, .level = {}, .by_policy = true};
    } else if (const auto* resume = std::get_if<scheduling::ResumeJob>(&order)) {
      job = resume->job;
      request = moves::ResumeAsked{.job = job, .by_policy = true};
    } else {
      const auto& migrate = std::get<scheduling::MigrateJob>(order);
      job = migrate.job;
      request = moves::MigrateAsked{.job = job, .to = migrate.to, .by_policy = true};
    }
    if (const auto why = moves_->objection(request)) {
      log_.line(fmt::format("job policy: job {}: {}", job.value, *why));
      scheduler_->refused(clock_.now(), job);
      continue;
    }
    moves_inputs_.push_back(std::move(request));
    run_moves();
  }
}

void Daemon::note_command(const JobOrder& order, JobId job, const std::vector<DeviceId>& to) {
  if (!scheduler_) return;
  using Order = jobs::Command::Order;
  jobs::Command command{.job = job, .to = to};
  switch (order.what) {
    case JobOrder::What::kSuspend:
      command.order = Order::kSuspend;
      break;
    case JobOrder::What::kResume:
      command.order = Order::kResume;
      break;
    case JobOrder::What::kMigrate:
      command.order = Order::kMigrate;
      break;
    case JobOrder::What::kPin:
      command.order = order.pinned ? Order::kPin : Order::kUnpin;
      break;
    case JobOrder::What::kResize:
      command.order = Order::kResize;
      command.gpus = order.gpus;
      break;
    default:
      return;
  }
  std::ranges::sort(command.to);
  commands_.push_back(std::move(command));
  next_jobs_look_ns_ = 0;
}

nlohmann::json Daemon::job_policy_json() const {
  if (!scheduler_) return nullptr;
  nlohmann::json decisions = nlohmann::json::array();
  const auto& made = scheduler_->decisions();
  for (size_t i = made.size() - std::min(made.size(), kDecisionsShown); i < made.size(); ++i) {
    decisions.push_back({{"at_ns", made[i].at.ns}, {"text", made[i].text}});
  }
  return {{"policy", scheduler_->policy()},
          {"broken_rule", scheduler_->broken_rule()},
          {"decisions", std::move(decisions)}};
}

std::string Daemon::job_policy_text() {
  return scheduler_ ? scheduler_->policy() : std::string(kNoJobPolicy);
}

std::expected<std::string, std::string> Daemon::change_job_policy(const std::string& text,
                                                                  const Peer& peer) {
  if (const auto allowed = must_be_operator("change the job policy", peer); !allowed) {
    return std::unexpected(allowed.error());
  }
  if (text != kNoJobPolicy) {
    const auto good = jobs::parse_job_policy(text);
    if (!good) return std::unexpected(good.error());
  }
  use_job_policy(text);
  log_.line(fmt::format("job policy {} (asked by uid {}, pid {})", job_policy_text(), peer.uid, peer.pid));
  return job_policy_text();
}

// ---- elastic jobs -------------------------------------------------------------------------------

nlohmann::json Daemon::elastic_json(const ElasticJob& job) const {
  return {{"min", job.least},
          {"max", job.most},
          {"gpus", job.told()},
          {"usable", usable_gpus(job, static_cast<uint32_t>(devices_.rows().size()))}};
}

std::expected<nlohmann::json, std::string> Daemon::elastic_job(
    const std::string& job, const std::optional<ElasticJob>& range, const Peer& peer) {
  if (range) {
    const bool known = elastic_.find(peer.uid, job).has_value();
    const auto declared = elastic_.declare(peer.uid, job, range->least, range->most);
    if (!declared) {
      return std::unexpected(
          fmt::format("cannot make {} elastic: {}", printable(job), declared.error()));
    }
    if (!known) {
      log_.line(fmt::format("job {} of uid {} is elastic: {} to {} GPUs", printable(job), peer.uid,
                            declared->least, declared->most));
    }
    return elastic_json(*declared);
  }
  const auto found = elastic_.ask(peer.uid, job);
  if (!found) {
    return std::unexpected(
        fmt::format("uid {} has no elastic job \"{}\": `lull run --elastic MIN:MAX --job NAME` makes "
                    "one",
                    peer.uid, printable(job)));
  }
  return elastic_json(*found);
}

std::expected<nlohmann::json, std::string> Daemon::resize_job(const JobOrder& order,
                                                              const Peer& peer) {
  const auto cannot = [&](const std::string& why) {
    return std::unexpected(fmt::format("cannot resize {}: {}", printable(order.job), why));
  };
  // Between two sizes a job may have no process: then it is known by its name alone.
  uid_t uid = peer.uid;
  std::string name = order.job;
  const bool is_own = elastic_.find(uid, name).has_value();
  const auto job = find_job(order.job, peer);
  if (!is_own && !job) return cannot(job.error());
  const Session* client = nullptr;
  for (const auto& [id, session] : sessions_) {
    if (job && !session->gone && session->who().job == *job) client = session.get();
  }
  if (!is_own) {
    if (client == nullptr) return cannot("it has just ended");
    uid = client->who().peer.uid;
    name = client->who().job_name;
  }
  if (uid != peer.uid && !is_operator(peer)) {
    return cannot(fmt::format("it belongs to uid {}: ask that user or an operator", uid));
  }
  if (!elastic_.find(uid, name)) {
    return cannot(
        "it is not elastic: only a job started with `lull run --elastic MIN:MAX` is: suspend or "
        "migrate it");
  }
  const auto resized = elastic_.resize(uid, name, order.gpus);
  if (!resized) return cannot(resized.error());
  if (job) note_command(order, *job, {});
  log_.line(fmt::format("resize {} to {} GPUs (asked by uid {}, pid {})", printable(name),
                        resized->gpus, peer.uid, peer.pid));
  if (client != nullptr && client->who().peer.uid == uid && client->who().job_name == name) {
    if (nlohmann::json shown = job_json(*job); !shown.is_null()) return shown;
  }
  return nlohmann::json{
      {"job", name}, {"state", "without a process"}, {"elastic", elastic_json(*resized)}};
}

}  // namespace lull::daemon
