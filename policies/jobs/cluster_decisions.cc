// The decisions of cluster.h.
#include <algorithm>
#include <utility>

#include "policies/jobs/cluster.h"

namespace lull::jobs {

void Cluster::start(Instant now, Unit& unit, Places gpus, Reason reason, Out& out) {
  std::sort(gpus.begin(), gpus.end());
  unit.gpus = std::move(gpus);
  unit.running = true;
  unit.since = unit.settled = now;
  take(unit);
  forget_pace(unit);
  const GpuSet where = devices(unit.gpus);
  bool first = true;
  for (Job* job : unit.jobs) {
    if (!first) {
      out.push_back({Pack{job->request.job, where}, {Why::kKeepPack, unit.first().request.job}});
    } else if (job->started) {
      out.push_back({Resume{job->request.job, where}, reason});
    } else {
      out.push_back({Place{job->request.job, where}, reason});
    }
    job->started = true;
    first = false;
  }
}

void Cluster::stop(Instant now, Unit& unit, Reason reason, Out& out) {
  for (const Job* job : unit.jobs) out.push_back({Suspend{job->request.job}, reason});
  stopped(now, unit);
}

void Cluster::migrate(Instant now, Unit& unit, Places gpus, Reason reason, Out& out) {
  settle(now, unit);
  give(unit);
  std::sort(gpus.begin(), gpus.end());
  unit.gpus = std::move(gpus);
  take(unit);
  forget_pace(unit);
  const GpuSet where = devices(unit.gpus);
  bool first = true;
  for (const Job* job : unit.jobs) {
    if (first) {
      out.push_back({Migrate{job->request.job, where}, reason});
    } else {
      out.push_back({Pack{job->request.job, where}, {Why::kKeepPack, unit.first().request.job}});
    }
    first = false;
  }
}

void Cluster::resize(Instant now, Unit& unit, Places gpus, Reason reason, Out& out) {
  settle(now, unit);
  const bool more = gpus.size() > unit.gpus.size();
  give(unit);
  std::sort(gpus.begin(), gpus.end());
  unit.gpus = std::move(gpus);
  take(unit);
  forget_pace(unit);
  const JobId job = unit.first().request.job;
  if (more) {
    out.push_back({Grow{job, devices(unit.gpus)}, reason});
  } else {
    out.push_back({Shrink{job, devices(unit.gpus)}, reason});
  }
}

void Cluster::pack(Instant now, Unit& single, Unit& host, Reason reason, Out& out) {
  Job* job = single.jobs.front();
  if (single.running) {
    settle(now, single);
    give(single);
  }
  settle(now, host);
  remove_unit(single);
  host.jobs.push_back(job);
  job->unit = &host;
  job->started = true;
  forget_pace(host);
  out.push_back({Pack{job->request.job, devices(host.gpus)}, reason});
}

Unit& Cluster::unpack(Instant now, Job& job, Reason reason, Out& out) {
  const bool ran = job.unit->running;
  Unit& unit = split(now, job);
  if (ran) out.push_back({Unpack{job.request.job}, reason});
  return unit;
}

Unit& Cluster::part(Instant now, Job& job, Places gpus, Reason reason, Out& out) {
  Unit& unit = split(now, job);
  std::sort(gpus.begin(), gpus.end());
  unit.gpus = std::move(gpus);
  unit.running = true;
  unit.settled = now;
  take(unit);
  out.push_back({Migrate{job.request.job, devices(unit.gpus)}, reason});
  return unit;
}

void Cluster::dissolve(Instant now, Unit& unit) {
  const Instant since = unit.since;
  while (unit.jobs.size() > 1) split(now, *unit.jobs.back()).since = since;
}

void Cluster::obey_wishes(Instant now, Out& out) {
  for (const Command& wish : std::exchange(wishes_, {})) obey(now, wish, out);
}

bool Cluster::obey(Instant now, const Command& command, Out& out) {
  if (command.order != Command::Order::kPrioritise && command.order != Command::Order::kResize) {
    std::erase_if(wishes_, [&](const Command& wish) { return wish.job == command.job; });
  }
  Job* job = find(command.job);
  if (job == nullptr) return false;
  const Reason reason{Why::kOperator};
  Unit* unit = job->unit;
  switch (command.order) {
    case Command::Order::kSuspend:
      if (unit->jobs.size() > 1) unit = &unpack(now, *job, reason, out);
      unit->held = true;
      job->pinned = unit->pinned = false;
      if (unit->running) stop(now, *unit, reason, out);
      return true;
    case Command::Order::kResume:
      unit->held = false;
      return true;
    case Command::Order::kPin:
      job->pinned = unit->pinned = true;
      unit->wanted = unit->running ? unit->gpus : Places{};
      return true;
    case Command::Order::kUnpin:
      job->pinned = false;
      unit->pinned = unit->any_pinned();
      if (!unit->pinned) unit->wanted.clear();
      return true;
    case Command::Order::kMigrate: {
      Places to = places(command.to);
      if (to.size() != job->request.gpus || !job->request.migratable) {
        unit->held = false;
        return true;
      }
      if (unit->jobs.size() > 1) {
        if (unit->running && !job->may_leave()) {  // it stays as long as it cannot be stopped
          wishes_.push_back(command);
          return false;
        }
        unit = &unpack(now, *job, reason, out);
      }
      unit->held = false;
      job->pinned = unit->pinned = true;
      unit->wanted = std::move(to);
      return true;
    }
    case Command::Order::kPrioritise:
      if (command.priority == job->request.priority) return false;
      job->request.priority = command.priority;
      if (unit->jobs.size() > 1) {  // only jobs of one importance share GPUs
        // It leaves the others; if it cannot be stopped, those of them that can be leave it.
        const bool ran = unit->running;
        const bool stays = ran && !job->may_stop();
        const std::vector<Job*> jobs = unit->jobs;
        for (Job* one : jobs) {
          if ((one == job) == stays || (ran && !one->may_stop())) continue;
          if (one->unit->jobs.size() < 2) break;
          unpack(now, *one, reason, out);
          if (one == job) break;
        }
      }
      return true;
    case Command::Order::kResize:
      job->request.most_gpus = command.gpus;
      return true;
  }
  return false;
}

}  // namespace lull::jobs
