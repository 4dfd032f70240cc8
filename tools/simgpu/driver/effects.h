// What finished work does to memory and to the program. The device says when an op is complete;
// this process keeps, by token, what that means (a copy, a memset, a value, an event's time, a host
// function) and does it in the order of completion.
//
//   submit (any thread): token -> action            service thread: sleep until something is due,
//   pump (any thread that synchronises or asks): ->   pump, run host functions, poll value waits
//        collect, apply in order
//
// An action that touches memory which its device may not touch fails its context: from then on none
// of the context's actions happens, its value waits end, and `failure` gives the error for good.
//
// Host functions run on the service thread only and with no lock held. Locks: `apply_` (held while
// actions run) then `table_`; actions take no lock of the API layer, so a thread that holds it may
// pump.
#pragma once

#include <cuda.h>

#include <atomic>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "tools/simgpu/device/device.h"
#include "tools/simgpu/driver/event_log.h"

namespace simgpu::driver {

struct Action {
  // On completion of an ordinary op. An error fails the context.
  std::function<CUresult(const Completion&)> apply;
  // Value waits: true when the memory has the awaited value. An error fails the context.
  std::function<std::expected<bool, CUresult>()> satisfied;
  // Host functions; is told its context's failure.
  std::function<void(CUresult)> call;
  // What the event log says of it, where there is one.
  std::shared_ptr<const LoggedOperation> logged;
};

class Effects {
 public:
  // `log`: may be null; lives as long as this.
  Effects(Device& device, EventLog* log) : device_(device), log_(log) {}
  // Starts the service thread; once. It is the restore thread of the process as well: `attend` is
  // called on its rounds with no lock held, carries out what was asked of the process, and says
  // when it wants to be called again at the latest.
  void start(std::function<ModelNs()> attend);
  // Keeps the action, submits the op with its token. Waits while the context's ring is full.
  std::expected<Seq, Status> submit(StreamId stream, Op op, Action action = {});
  // Applies everything that has completed by now; on return it has been applied, by whomever.
  void pump();
  // Sleeps until the point is complete, then pumps.
  void wait(OpPoint point);
  void wait(const std::vector<OpPoint>& points);
  bool is_complete(OpPoint point);
  // What the context failed with; CUDA_SUCCESS: it did not.
  CUresult failure(ContextId context);
  // The actions of a destroyed context never happen.
  void forget(ContextId context);
  // True on the service thread while it runs a host function.
  static bool in_host_function();

 private:
  struct Pending {
    ContextId context;
    Action action;
  };
  [[noreturn]] void serve();
  void pump_locked();
  void fail(ContextId context, CUresult error);

  Device& device_;
  EventLog* const log_;
  std::atomic<uint64_t> next_token_{1};
  std::mutex apply_;
  std::mutex table_;
  std::unordered_map<uint64_t, Pending> pending_;
  std::map<ContextId, CUresult> failed_;  // under table_
  std::atomic<bool> any_failed_{false};
  std::function<ModelNs()> attend_;
  Collected collected_;                      // under apply_
  std::vector<ReachedWait> host_functions_;  // under apply_
  bool value_waits_ = false;                 // under apply_: some are reached and unsatisfied
  bool service_polls_ = false;               // under apply_: the service thread looks at them
};

}  // namespace simgpu::driver
