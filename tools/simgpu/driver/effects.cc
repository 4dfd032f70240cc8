#include "tools/simgpu/driver/effects.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>

namespace simgpu::driver {
namespace {

// How often the memory under a value wait is looked at; the host may write it without telling us.
constexpr ModelNs kValuePollNs = 20'000;
constexpr ModelNs kRingFullWaitNs = 200'000;

thread_local bool t_in_host_function = false;

}  // namespace

bool Effects::in_host_function() { return t_in_host_function; }

void Effects::start(std::function<ModelNs()> attend) {
  attend_ = std::move(attend);
  // The program's signals are the program's threads' business.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const auto body = [](void* self) -> void* {
    pthread_setname_np(pthread_self(), "simgpu");
    static_cast<Effects*>(self)->serve();
  };
  pthread_create(&thread, &attributes, body, this);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

CUresult Effects::failure(ContextId context) {
  // Acquire: pairs with the release in `fail`; what made it fail is seen with it.
  if (!any_failed_.load(std::memory_order_acquire)) return CUDA_SUCCESS;
  const std::lock_guard lock(table_);
  const auto found = failed_.find(context);
  return found == failed_.end() ? CUDA_SUCCESS : found->second;
}

void Effects::fail(ContextId context, CUresult error) {
  const std::lock_guard lock(table_);
  failed_.emplace(context, error);
  any_failed_.store(true, std::memory_order_release);
}

std::expected<Seq, Status> Effects::submit(StreamId stream, Op op, Action action) {
  const bool acts = action.apply || action.satisfied || action.call;
  if (acts || action.logged) {
    op.unhurried = op.unhurried || !acts;
    op.token = next_token_.fetch_add(1, std::memory_order_relaxed);
    const std::lock_guard lock(table_);
    pending_.emplace(op.token, Pending{stream.context, std::move(action)});
  }
  for (;;) {
    auto seq = device_.try_submit(stream, op);
    if (!seq && seq.error() == Status::kRingFull) {
      pump();
      seq = device_.try_submit(stream, op);
      if (!seq && seq.error() == Status::kRingFull) {
        const auto unfinished = device_.unfinished(stream.context);
        if (!unfinished.empty()) {
          // One op before the end of the fullest stream: room comes with any completion.
          device_.wait_until(unfinished.front(), device_.now_ns() + kRingFullWaitNs);
        }
        continue;
      }
    }
    if (!seq && op.token != 0) {
      const std::lock_guard lock(table_);
      pending_.erase(op.token);
    }
    return seq;
  }
}

void Effects::pump_locked() {
  // An action may satisfy a value wait, which lets more complete: until nothing moves.
  for (bool moved = true; moved;) {
    moved = false;
    device_.collect(collected_);
    for (const Completion& completion : collected_.completed) {
      Pending pending;
      {
        const std::lock_guard lock(table_);
        const auto found = pending_.find(completion.token);
        if (found == pending_.end()) continue;
        pending = std::move(found->second);
        pending_.erase(found);
      }
      if (pending.action.logged) log_->add(*pending.action.logged, completion);
      if (!pending.action.apply || failure(pending.context) != CUDA_SUCCESS) continue;
      const CUresult result = pending.action.apply(completion);
      if (result != CUDA_SUCCESS) fail(pending.context, result);
    }
    host_functions_.clear();
    value_waits_ = false;
    for (const ReachedWait& wait : collected_.reached) {
      if (wait.kind == OpKind::kHostFunction) {
        host_functions_.push_back(wait);
        continue;
      }
      std::function<std::expected<bool, CUresult>()> satisfied;
      {
        const std::lock_guard lock(table_);
        const auto found = pending_.find(wait.token);
        if (found != pending_.end()) satisfied = found->second.action.satisfied;
      }
      const ContextId context = wait.at.stream.context;
      if (satisfied && failure(context) == CUDA_SUCCESS) {
        const auto reached = satisfied();
        if (!reached) {
          fail(context, reached.error());
        } else if (!*reached) {
          value_waits_ = true;
          continue;
        }
      }
      if (device_.satisfy(wait.at) == Status::kOk) moved = true;
      const std::lock_guard lock(table_);
      pending_.erase(wait.token);
    }
  }
  if (log_ != nullptr) log_->flush();
}

void Effects::pump() {
  const std::lock_guard lock(apply_);
  pump_locked();
  // What only the service thread does has been collected here, so it may not notice by itself.
  if (!host_functions_.empty() || (value_waits_ && !service_polls_)) device_.wake_service();
}

void Effects::serve() {
  device_.serve_requests();
  for (;;) {
    std::vector<ReachedWait> calls;
    ModelNs deadline = kNever;
    {
      const std::lock_guard lock(apply_);
      pump_locked();
      calls = host_functions_;
      service_polls_ = value_waits_;
      if (value_waits_) deadline = device_.now_ns() + kValuePollNs;
    }
    for (const ReachedWait& wait : calls) {
      Action action;
      {
        const std::lock_guard lock(table_);
        const auto found = pending_.find(wait.token);
        if (found != pending_.end()) {
          action = std::move(found->second.action);
          pending_.erase(found);
        }
      }
      t_in_host_function = true;
      if (action.call) action.call(failure(wait.at.stream.context));
      t_in_host_function = false;
      device_.satisfy(wait.at);
    }
    deadline = std::min(deadline, attend_());
    if (calls.empty()) device_.wait_for_work(deadline);
  }
}

void Effects::wait(OpPoint point) {
  device_.wait_until(point);
  pump();
}

void Effects::wait(const std::vector<OpPoint>& points) {
  for (const OpPoint& point : points) device_.wait_until(point);
  pump();
}

bool Effects::is_complete(OpPoint point) {
  if (!device_.is_complete(point)) return false;
  pump();
  return true;
}

void Effects::forget(ContextId context) {
  const std::lock_guard lock(apply_);
  const std::lock_guard table_lock(table_);
  std::erase_if(pending_, [&](const auto& entry) { return entry.second.context == context; });
  failed_.erase(context);
}

}  // namespace simgpu::driver
