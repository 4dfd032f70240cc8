// A device model on the heap, without a file, a lock or a clock: the tests' own hands on it.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "tools/simgpu/device/device_model.h"

namespace simgpu::test {

struct Bench {
  explicit Bench(ModelParameters parameters)
      : p(parameters), state(new model_state{}), ops(size_t{kMaxContexts} * kMaxOps) {
    DeviceModel::initialise(*state);
  }
  DeviceModel model() { return {*state, ops, p}; }

  StreamId stream_of_a_new_process(uint32_t device = 0) {
    DeviceModel m = model();
    const auto process = m.add_process(next_pid++, 1);
    return *m.create_stream(*m.create_context(*process, device));
  }
  // At model time `at_ns`; the token is the test's name for the op.
  OpPoint kernel(StreamId stream, ModelNs at_ns, uint64_t ns, uint64_t token, uint32_t sms = 0) {
    return put(stream, at_ns, {.kind = OpKind::kKernel, .token = token}, ns, sms);
  }
  OpPoint put(StreamId stream, ModelNs at_ns, Op op, uint64_t ns = 0, uint32_t sms = 0) {
    DeviceModel m = model();
    m.advance_to(at_ns);
    return {stream, *m.submit(stream, op, ns, sms == 0 ? p.sm_count : sms)};
  }
  // Completions by token, up to `at_ns`, of all processes.
  std::map<uint64_t, Completion> run(ModelNs at_ns) {
    DeviceModel m = model();
    m.advance_to(at_ns);
    for (uint32_t process = 0; process < kMaxProcesses; ++process) {
      if (state->process[process].used == 0) continue;
      Collected out;
      m.collect(process, out);
      for (const Completion& c : out.completed) done[c.token] = c;
      for (const ReachedWait& w : out.reached) reached[w.token] = w;
    }
    return done;
  }

  ModelParameters p;
  std::unique_ptr<model_state> state;
  std::vector<op_record> ops;
  std::map<uint64_t, Completion> done;
  std::map<uint64_t, ReachedWait> reached;
  int32_t next_pid = 1000;
};

}  // namespace simgpu::test
