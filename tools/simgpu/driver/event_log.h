// What the simulated device really did, written down by itself: one JSON line for each kernel, copy
// and memset that it executed (SIMGPU_EVENT_LOG). The measure that measuring tools are held to:
// the times are the device model's own, exact in model time, whoever looks and however late.
//
//   submit (State::mutex):  go_to -> kernel | bytes -> rides on the op as its Action
//   pump (Effects::apply_): add, ..., flush: whole lines, one append each time
//
// Several processes append to one file. A line is written once the submitting process has collected
// the completion: at any synchronisation or query, else within 20 ms of real time, and at exit. What
// a killed process had not collected yet is missing; no line is ever half there.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <string>

#include "tools/simgpu/device/cost_model.h"
#include "tools/simgpu/device/device.h"

namespace simgpu::driver {

struct LogPlace {
  uint32_t device = 0;        // the simulated device's own number
  uint64_t context = 0;       // cuCtxGetId
  uint64_t stream = 0;        // cuStreamGetId
  uint64_t graph_launch = 0;  // which launch of a graph of this process; 0: none
};

struct LoggedOperation {
  LogPlace place;
  uint64_t order = 0;  // in its stream, from 1, as submitted
  OpKind kind = OpKind::kKernel;
  std::string name;  // kernels
  uint32_t grid[3] = {0, 0, 0};
  uint32_t block[3] = {0, 0, 0};
  uint32_t shared_bytes = 0;  // dynamic
  uint64_t bytes = 0;         // copies and memsets
};

class EventLog {
 public:
  // Null: SIMGPU_EVENT_LOG is not set. The error is one line.
  static std::expected<std::unique_ptr<EventLog>, std::string> open_from_environment();
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // Under State::mutex. `count`: operations of the stream so far; raised for each that follows.
  void go_to(const LogPlace& place, uint64_t* count);
  std::shared_ptr<const LoggedOperation> kernel(const KernelLaunch& launch, uint32_t shared_bytes);
  std::shared_ptr<const LoggedOperation> bytes(OpKind kind, uint64_t bytes);

  // Under the lock that orders completions.
  void add(const LoggedOperation& operation, const Completion& completion);
  void flush();

 private:
  explicit EventLog(int file) : file_(file) {}
  std::shared_ptr<LoggedOperation> next(OpKind kind);

  const int file_;
  LogPlace place_;
  uint64_t* count_ = nullptr;
  std::string lines_;
  bool torn_ = false;  // the file ends in the middle of a line of ours
};

}  // namespace simgpu::driver
