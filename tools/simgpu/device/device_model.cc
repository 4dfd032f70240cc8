#include "tools/simgpu/device/device_model.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace simgpu {
namespace {

constexpr uint32_t kWalkLimit = 128;                    // ops looked at for a lower bound
constexpr uint64_t kMaxWorkNs = 1'000'000'000'000'000;  // 11 days: SM * ns stays in 64 bits
constexpr int kBoundDepth = 4;                          // dependencies followed for a lower bound

uint64_t bit(uint32_t index) { return uint64_t{1} << (index & 63); }
void set(uint64_t* words, uint32_t index) { words[index / 64] |= bit(index); }
void clear(uint64_t* words, uint32_t index) { words[index / 64] &= ~bit(index); }
bool has(const uint64_t* words, uint32_t index) { return (words[index / 64] & bit(index)) != 0; }
template <size_t N>
bool any(const uint64_t (&words)[N]) {
  return std::any_of(words, words + N, [](uint64_t word) { return word != 0; });
}
template <typename F>
void each_bit(uint64_t word, F&& f) {
  for (; word != 0; word &= word - 1) f(static_cast<uint32_t>(std::countr_zero(word)));
}
// Takes the words by value: `f` may change the set it walks.
template <typename F>
void each_stream(const uint64_t (&words)[kStreamWords], F&& f) {
  uint64_t copy[kStreamWords];
  std::memcpy(copy, words, sizeof copy);
  for (uint32_t w = 0; w < kStreamWords; ++w) {
    each_bit(copy[w], [&](uint32_t b) { f(w * 64 + b); });
  }
}
template <size_t N>
uint32_t first_clear(const uint64_t (&words)[N]) {
  for (uint32_t w = 0; w < N; ++w) {
    if (~words[w] != 0) return w * 64 + static_cast<uint32_t>(std::countr_one(words[w]));
  }
  return N * 64;
}
uint64_t ceil_div(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
bool takes_time(OpKind kind) { return engine_of(kind) <= Engine::kDownload; }
// Whether its process wants to wake up for it.
bool is_visible(const op_record& record) {
  return engine_of(record.kind) == Engine::kExternal ||
         (record.token != 0 && record.unhurried == 0);
}

}  // namespace

Engine engine_of(OpKind kind) {
  switch (kind) {
    case OpKind::kKernel:
    case OpKind::kCopyD2D:
    case OpKind::kMemset:
      return Engine::kCompute;
    case OpKind::kCopyH2D:
      return Engine::kUpload;
    case OpKind::kCopyD2H:
      return Engine::kDownload;
    case OpKind::kWaitValue:
    case OpKind::kHostFunction:
      return Engine::kExternal;
    default:
      return Engine::kInstant;
  }
}

size_t copy_changes(const model_state& from, model_state& to) {
  size_t bytes = sizeof(model_head);
  each_bit(from.head.dirty_contexts, [&](uint32_t c) {
    to.context[c] = from.context[c];
    bytes += sizeof(context_state);
    each_stream(from.context[c].dirty_streams, [&](uint32_t s) {
      to.stream[c][s] = from.stream[c][s];
      bytes += sizeof(stream_state);
    });
  });
  each_bit(from.head.dirty_devices, [&](uint32_t d) {
    const device_state& device = from.device[d];
    const size_t size = offsetof(device_state, running) + device.running_count * sizeof(running_op);
    std::memcpy(static_cast<void*>(&to.device[d]), &device, size);
    bytes += size;
  });
  if (from.head.dirty_tables != 0) {
    std::memcpy(to.process, from.process, sizeof to.process);
    std::memcpy(to.finished, from.finished, sizeof to.finished);
    std::memcpy(to.block, from.block, sizeof to.block);
    bytes += sizeof to.process + sizeof to.finished + sizeof to.block;
  }
  each_bit(from.head.dirty_checkpoints, [&](uint32_t p) {
    to.checkpoint[p] = from.checkpoint[p];
    bytes += sizeof(checkpoint_record);
  });
  to.head = from.head;
  to.head.dirty_contexts = 0;
  to.head.dirty_devices = 0;
  to.head.dirty_tables = 0;
  to.head.dirty_checkpoints = 0;
  return bytes;
}

size_t copy_all(const model_state& from, model_state& to) {
  size_t bytes = offsetof(model_state, stream);
  for (uint32_t c = 0; c < kMaxContexts; ++c) {
    if (from.context[c].generation == 0 && to.context[c].generation == 0) continue;
    std::memcpy(to.stream[c], from.stream[c], sizeof to.stream[c]);
    bytes += sizeof to.stream[c];
  }
  std::memcpy(static_cast<void*>(&to), &from, offsetof(model_state, stream));
  to.head.dirty_contexts = 0;
  to.head.dirty_devices = 0;
  to.head.dirty_tables = 0;
  to.head.dirty_checkpoints = 0;
  return bytes;
}

void DeviceModel::initialise(model_state& state) {
  for (device_state& device : state.device) {
    device.next_event_ns = kNever;
    device.current = kNoContext;
    device.switch_to = kNoContext;
  }
}

context_state& DeviceModel::touch_context(uint32_t context) {
  context_state& c = s_.context[context];
  if ((s_.head.dirty_contexts & bit(context)) == 0) {
    s_.head.dirty_contexts |= bit(context);
    std::memset(c.dirty_streams, 0, sizeof c.dirty_streams);
  }
  return c;
}

stream_state& DeviceModel::touch_stream(uint32_t context, uint32_t stream) {
  set(touch_context(context).dirty_streams, stream);
  return s_.stream[context][stream];
}

device_state& DeviceModel::touch_device(uint32_t device) {
  s_.head.dirty_devices |= 1U << device;
  return s_.device[device];
}

// ------------------------------------------------------------------------------------------ time

ModelNs DeviceModel::next_event_ns() const {
  ModelNs next = kNever;
  for (uint32_t d = 0; d < p_.device_count; ++d) next = std::min(next, s_.device[d].next_event_ns);
  return next;
}

void DeviceModel::advance_to(ModelNs now_ns) {
  for (;;) {
    uint32_t device = 0;
    for (uint32_t d = 1; d < p_.device_count; ++d) {
      if (s_.device[d].next_event_ns < s_.device[device].next_event_ns) device = d;
    }
    const ModelNs next = s_.device[device].next_event_ns;
    if (next > now_ns) break;
    play(device, next);
    s_.head.time_ns = std::max(s_.head.time_ns, next);
  }
  s_.head.time_ns = std::max(s_.head.time_ns, now_ns);
}

void DeviceModel::play(uint32_t device, ModelNs at_ns) {
  account(device, at_ns);
  device_state& d = touch_device(device);
  running_op due[kMaxRunning + 2];
  uint32_t due_count = 0;
  for (uint32_t i = 0; i < d.running_count; ++i) {
    const running_op& r = d.running[i];
    if (s_.stream[r.context][r.stream].remaining == 0) due[due_count++] = r;
  }
  for (copy_engine& engine : d.copy) {
    if (engine.busy == 0 || engine.ends_ns > at_ns) continue;
    due[due_count++] = {engine.context, engine.stream, 0};
    engine.busy = 0;
  }
  for (uint32_t i = 0; i < due_count; ++i) {
    complete_first(due[i].context, due[i].stream, at_ns);
    examine(due[i].context, due[i].stream, at_ns);
  }
  reschedule_devices_ |= 1U << device;
  settle(at_ns);
}

// Charges the time since the last accounting to what has been running since then.
void DeviceModel::account(uint32_t device, ModelNs at_ns) {
  if (s_.device[device].accounted_ns >= at_ns) return;
  device_state& d = touch_device(device);
  const uint64_t dt = at_ns - d.accounted_ns;
  uint64_t contexts = 0;
  for (uint32_t i = 0; i < d.running_count; ++i) {
    const running_op& r = d.running[i];
    stream_state& st = touch_stream(r.context, r.stream);
    st.remaining -= std::min(st.remaining, r.granted_sms * dt);
    contexts |= bit(r.context);
  }
  each_bit(contexts, [&](uint32_t c) { touch_context(c).busy_ns += dt; });
  if (d.running_count > 0) d.busy_ns += dt;
  if (d.switch_to != kNoContext)
    d.switched_ns += std::min(at_ns, d.switch_until_ns) - d.accounted_ns;
  d.accounted_ns = at_ns;
}

// Looks at a stream whose first op is neither ready nor reached: makes it so if it can be, and does
// on the spot what takes no time.
void DeviceModel::examine(uint32_t context, uint32_t stream, ModelNs at_ns) {
  for (;;) {
    const stream_state& seen = s_.stream[context][stream];
    if (seen.used == 0) return;
    if (seen.count == 0) {
      if (seen.closing != 0) free_stream(context, stream);
      return;
    }
    context_state& c = touch_context(context);
    const op_record& first = first_op(context, stream);
    if (!waits_met(first)) {
      set(c.blocked, stream);
      return;
    }
    clear(c.blocked, stream);
    stream_state& st = touch_stream(context, stream);
    const Engine engine = engine_of(first.kind);
    st.started = 0;
    if (engine == Engine::kInstant) {
      complete_first(context, stream, at_ns);
      continue;
    }
    if (engine == Engine::kExternal) {
      st.started_ns = at_ns;
      st.started = 1;
      c.reached_new = 1;
      set(c.external, stream);
      return;
    }
    st.ticket = s_.head.next_ticket++;
    st.remaining = first.work_ns * first.sm_demand;
    set(c.ready[static_cast<uint32_t>(engine)], stream);
    reschedule_devices_ |= 1U << c.device;
    return;
  }
}

void DeviceModel::complete_first(uint32_t context, uint32_t stream, ModelNs at_ns) {
  context_state& c = touch_context(context);
  stream_state& st = touch_stream(context, stream);
  const uint16_t slot = st.head;
  op_record& record = op(context, slot);
  const Engine engine = engine_of(record.kind);
  const bool visible = is_visible(record);
  record.started_ns = st.started != 0 ? st.started_ns : at_ns;
  step();
  record.completed_ns = at_ns;
  st.completed_seq = record.seq;
  if (--st.count == 0) {
    clear(c.pending, stream);
  } else {
    st.head = record.next;
  }
  st.visible -= visible ? 1 : 0;
  st.started = 0;
  clear(c.external, stream);
  if (engine <= Engine::kDownload) clear(c.ready[static_cast<uint32_t>(engine)], stream);
  if (record.token != 0 && engine != Engine::kExternal) {
    record.done_order = s_.head.next_done++;
    if (c.done_count++ == 0) {
      c.done_head = slot;
    } else {
      op(context, c.done_tail).done_next = slot;
      step();
    }
    c.done_tail = slot;
    c.done_visible += visible ? 1 : 0;
  } else {
    free_op(context, slot);
  }
  recheck_processes_ |= 1U << c.process;
}

void DeviceModel::free_op(uint32_t context, uint32_t slot) {
  context_state& c = touch_context(context);
  clear(c.ops, slot);
  --c.op_count;
}

void DeviceModel::free_stream(uint32_t context, uint32_t stream) {
  context_state& c = touch_context(context);
  stream_state& st = touch_stream(context, stream);
  st.used = 0;
  st.closing = 0;
  clear(c.streams, stream);
  --c.stream_count;
}

// Follows dependencies until nothing moves, then lets every device whose ready ops changed choose
// again what runs.
void DeviceModel::settle(ModelNs at_ns) {
  while (recheck_processes_ != 0) {
    const auto process = static_cast<uint32_t>(std::countr_zero(recheck_processes_));
    recheck_processes_ &= recheck_processes_ - 1;
    each_bit(s_.head.contexts, [&](uint32_t c) {
      if (s_.context[c].process != process) return;
      each_stream(s_.context[c].blocked, [&](uint32_t stream) {
        if (waits_met(first_op(c, stream))) examine(c, stream, at_ns);
      });
    });
  }
  const uint32_t devices = reschedule_devices_;
  reschedule_devices_ = 0;
  each_bit(devices, [&](uint32_t d) { reschedule(d, at_ns); });
}

bool DeviceModel::point_complete(const op_point& point) const {
  const context_state& c = s_.context[point.context];
  if (point.seq == 0 || c.used == 0 || c.generation != point.context_generation) return true;
  const stream_state& st = s_.stream[point.context][point.stream];
  if (st.used == 0 || st.generation != point.stream_generation) return true;
  return st.completed_seq >= point.seq;
}

bool DeviceModel::waits_met(const op_record& record) const {
  for (uint32_t i = 0; i < record.wait_count; ++i) {
    if (!point_complete(record.wait_for[i])) return false;
  }
  return true;
}

// ------------------------------------------------------------------------------------ scheduling

uint64_t DeviceModel::ready_contexts(const device_state& device, Engine engine) const {
  uint64_t ready = 0;
  each_bit(device.contexts, [&](uint32_t c) {
    if (any(s_.context[c].ready[static_cast<uint32_t>(engine)])) ready |= bit(c);
  });
  return ready;
}

void DeviceModel::start_copies(uint32_t device, ModelNs at_ns) {
  for (uint32_t direction = 0; direction < 2; ++direction) {
    if (s_.device[device].copy[direction].busy != 0) continue;
    uint64_t best_ticket = UINT64_MAX;
    uint32_t context = 0, stream = 0;
    each_bit(s_.device[device].contexts, [&](uint32_t c) {
      each_stream(s_.context[c].ready[1 + direction], [&](uint32_t s) {
        if (s_.stream[c][s].ticket >= best_ticket) return;
        best_ticket = s_.stream[c][s].ticket;
        context = c;
        stream = s;
      });
    });
    if (best_ticket == UINT64_MAX) continue;
    stream_state& st = touch_stream(context, stream);
    st.started = 1;
    st.started_ns = at_ns;
    touch_device(device).copy[direction] = {static_cast<uint16_t>(context),
                                            static_cast<uint16_t>(stream), 1,
                                            at_ns + first_op(context, stream).work_ns};
  }
}

uint64_t DeviceModel::choose_contexts(device_state& d, uint64_t ready, ModelNs at_ns) {
  if (p_.sharing != Sharing::kTimeSlice) return ready;
  bool was_running = d.running_count > 0;
  if (d.switch_to != kNoContext) {
    if (at_ns < d.switch_until_ns) return 0;
    d.current = d.switch_to;
    d.switch_to = kNoContext;
    was_running = false;
  }
  if (ready == 0) {
    d.contended = 0;
    return 0;
  }
  const auto next_after = [&](uint32_t context) {
    const uint64_t later = context >= 63 ? 0 : ready & ~((uint64_t{2} << context) - 1);
    return static_cast<uint16_t>(std::countr_zero(later != 0 ? later : ready));
  };
  if (d.current == kNoContext) d.current = next_after(63);
  const uint64_t mine = d.current < kMaxContexts ? ready & bit(d.current) : 0;
  const uint64_t others = ready & ~mine;
  if (mine != 0) {
    if (!was_running) {
      d.slice_start_ns = at_ns;
      d.contended = 0;
    }
    if (others == 0) {
      d.contended = 0;
      return mine;
    }
    if (d.contended == 0) {
      d.contended = 1;
      d.slice_start_ns = at_ns - (at_ns - d.slice_start_ns) % p_.slice_ns;
    }
    if (at_ns - d.slice_start_ns < p_.slice_ns) return mine;
  }
  const uint16_t next = next_after(d.current < kMaxContexts ? d.current : 63);
  d.contended = 0;
  if (p_.switch_ns > 0) {
    d.switch_to = next;
    d.switch_until_ns = at_ns + p_.switch_ns;
    return 0;
  }
  d.current = next;
  d.slice_start_ns = at_ns;
  d.contended = (ready & ~bit(next)) != 0 ? 1 : 0;
  return bit(next);
}

void DeviceModel::fill_compute(device_state& d, uint64_t contexts, ModelNs at_ns) {
  struct Candidate {
    uint64_t ticket;
    uint16_t context, stream;
  };
  const uint32_t limit = p_.sharing == Sharing::kSerial ? 1 : kMaxRunning;
  Candidate best[kMaxRunning];
  uint32_t count = 0;
  each_bit(contexts, [&](uint32_t c) {
    each_stream(s_.context[c].ready[0], [&](uint32_t s) {
      const uint64_t ticket = s_.stream[c][s].ticket;
      if (count == limit && ticket > best[count - 1].ticket) return;
      uint32_t at = count < limit ? count++ : count - 1;
      for (; at > 0 && best[at - 1].ticket > ticket; --at) best[at] = best[at - 1];
      best[at] = {ticket, static_cast<uint16_t>(c), static_cast<uint16_t>(s)};
    });
  });
  uint32_t left = p_.sm_count;
  d.running_count = 0;
  for (uint32_t i = 0; i < count && left > 0; ++i) {
    const Candidate& candidate = best[i];
    const uint32_t demand = first_op(candidate.context, candidate.stream).sm_demand;
    const uint32_t granted = std::min(demand, left);
    left -= granted;
    d.running[d.running_count++] = {candidate.context, candidate.stream, granted};
    if (s_.stream[candidate.context][candidate.stream].started == 0) {
      stream_state& st = touch_stream(candidate.context, candidate.stream);
      st.started = 1;
      st.started_ns = at_ns;
    }
  }
}

void DeviceModel::reschedule(uint32_t device, ModelNs at_ns) {
  account(device, at_ns);
  start_copies(device, at_ns);
  device_state& d = touch_device(device);
  const uint64_t ready = ready_contexts(d, Engine::kCompute);
  fill_compute(d, choose_contexts(d, ready, at_ns), at_ns);
  ModelNs next = kNever;
  for (uint32_t i = 0; i < d.running_count; ++i) {
    const running_op& r = d.running[i];
    next =
        std::min(next, at_ns + ceil_div(s_.stream[r.context][r.stream].remaining, r.granted_sms));
  }
  for (const copy_engine& engine : d.copy) {
    if (engine.busy != 0) next = std::min(next, engine.ends_ns);
  }
  if (d.switch_to != kNoContext) next = std::min(next, d.switch_until_ns);
  if (d.contended != 0) next = std::min(next, d.slice_start_ns + p_.slice_ns);
  d.next_event_ns = next;
  step();
}

// ------------------------------------------------------------- processes, contexts and streams

std::expected<uint32_t, Status> DeviceModel::add_process(int32_t pid, uint64_t start_time,
                                                         uint64_t pid_namespace) {
  for (uint32_t p = 0; p < kMaxProcesses; ++p) {
    if (s_.process[p].used != 0) continue;
    s_.head.dirty_tables = 1;
    s_.process[p] = {};
    s_.process[p].pid = pid;
    s_.process[p].start_time = start_time;
    s_.process[p].pid_namespace = pid_namespace;
    s_.process[p].used = 1;
    step();
    return p;
  }
  return std::unexpected(Status::kTableFull);
}

void DeviceModel::remove_process(uint32_t process) {
  each_bit(s_.head.contexts, [&](uint32_t c) {
    if (s_.context[c].process == process) destroy_context({c, s_.context[c].generation});
    step();
  });
  forget_process_memory(process);
  process_state& p = s_.process[process];
  for (uint32_t d = 0; d < p_.device_count; ++d) {
    if (p.launches[d] == 0 && p.busy_ns[d] == 0) continue;
    s_.finished[s_.head.finished_count++ % kFinishedRecords] = {p.pid, d, p.busy_ns[d],
                                                                p.launches[d]};
  }
  s_.head.dirty_tables = 1;
  p = {};
  step();
}

std::expected<ContextId, Status> DeviceModel::create_context(uint32_t process, uint32_t device) {
  if (~s_.head.contexts == 0) return std::unexpected(Status::kTableFull);
  const auto slot = static_cast<uint32_t>(std::countr_one(s_.head.contexts));
  context_state& c = touch_context(slot);
  const context_state before = c;
  c = {};
  std::memcpy(c.dirty_streams, before.dirty_streams, sizeof c.dirty_streams);
  c.generation = before.generation + 1;
  c.used = 1;
  c.device = static_cast<uint16_t>(device);
  c.process = process;
  c.next_seq = 1;
  s_.head.contexts |= bit(slot);
  touch_device(device).contexts |= bit(slot);
  ++s_.process[process].context_count;
  s_.head.dirty_tables = 1;
  step();
  return ContextId{slot, c.generation};
}

Status DeviceModel::destroy_context(ContextId context) {
  if (!valid(context)) return Status::kStale;
  const uint32_t slot = context.slot;
  const uint32_t device = s_.context[slot].device;
  account(device, s_.head.time_ns);
  context_state& c = touch_context(slot);
  device_state& d = touch_device(device);
  process_state& p = s_.process[c.process];
  p.busy_ns[device] += c.busy_ns;
  p.launches[device] += c.launches;
  --p.context_count;
  s_.head.dirty_tables = 1;
  each_stream(c.streams, [&](uint32_t s) {
    stream_state& st = touch_stream(slot, s);
    const uint32_t generation = st.generation;
    st = {};
    st.generation = generation;
  });
  step();
  for (copy_engine& engine : d.copy) {
    if (engine.busy != 0 && engine.context == slot) engine.busy = 0;
  }
  if (d.current == slot) d.current = kGoneContext;
  if (d.switch_to == slot) d.switch_to = kGoneContext;
  d.contexts &= ~bit(slot);
  if (p.away == 0) d.memory_bytes -= c.memory_bytes;
  s_.head.contexts &= ~bit(slot);
  recheck_processes_ |= 1U << c.process;
  const uint32_t generation = c.generation;
  c = {};
  c.generation = generation;
  // All streams were touched, or were clean before: the copy must carry them.
  std::memset(c.dirty_streams, 0xFF, sizeof c.dirty_streams);
  reschedule_devices_ |= 1U << device;
  settle(s_.head.time_ns);
  return Status::kOk;
}

std::expected<StreamId, Status> DeviceModel::create_stream(ContextId context) {
  if (!valid(context)) return std::unexpected(Status::kStale);
  const uint32_t slot = first_clear(s_.context[context.slot].streams);
  if (slot >= kMaxStreams) return std::unexpected(Status::kTableFull);
  context_state& c = touch_context(context.slot);
  stream_state& st = touch_stream(context.slot, slot);
  const uint32_t generation = st.generation + 1;
  st = {};
  st.generation = generation;
  st.used = 1;
  set(c.streams, slot);
  ++c.stream_count;
  step();
  return StreamId{context, slot, generation};
}

Status DeviceModel::destroy_stream(StreamId stream) {
  if (!valid(stream)) return Status::kStale;
  stream_state& st = touch_stream(stream.context.slot, stream.slot);
  if (st.closing != 0) return Status::kStale;
  st.closing = 1;
  if (st.count == 0) free_stream(stream.context.slot, stream.slot);
  return Status::kOk;
}

// ------------------------------------------------------------------------------------------ work

std::expected<Seq, Status> DeviceModel::submit(StreamId stream, const Op& wanted, uint64_t work_ns,
                                               uint32_t sm_demand) {
  const uint32_t context = stream.context.slot;
  if (!valid(stream) || s_.stream[context][stream.slot].closing != 0) {
    return std::unexpected(Status::kStale);
  }
  if (s_.context[context].op_count == kMaxOps) return std::unexpected(Status::kRingFull);
  context_state& c = touch_context(context);
  stream_state& st = touch_stream(context, stream.slot);
  const uint32_t slot = first_clear(c.ops);
  op_record& record = op(context, slot);
  step();
  record.seq = c.next_seq++;
  record.token = wanted.token;
  record.work_ns = takes_time(wanted.kind) ? std::clamp<uint64_t>(work_ns, 1, kMaxWorkNs) : 0;
  record.sm_demand = std::clamp<uint32_t>(sm_demand, 1, p_.sm_count);
  record.kind = wanted.kind;
  record.unhurried = wanted.unhurried ? 1 : 0;
  record.submitted_ns = s_.head.time_ns;
  record.wait_count = 0;
  record.stream = stream.slot;
  for (uint32_t i = 0; i < std::min(wanted.wait_count, kMaxWaits); ++i) {
    const OpPoint& point = wanted.wait_for[i];
    if (!point.stream || is_complete(point)) continue;
    record.wait_for[record.wait_count++] = {static_cast<uint16_t>(point.stream.context.slot),
                                            static_cast<uint16_t>(point.stream.slot),
                                            point.stream.context.generation,
                                            point.stream.generation,
                                            0,
                                            point.seq};
  }
  step();
  set(c.ops, slot);
  ++c.op_count;
  if (wanted.kind == OpKind::kKernel) ++c.launches;
  const bool first = st.count == 0;
  if (first) {
    st.head = static_cast<uint16_t>(slot);
    set(c.pending, stream.slot);
  } else {
    op(context, st.tail).next = static_cast<uint16_t>(slot);
    step();
  }
  st.tail = static_cast<uint16_t>(slot);
  ++st.count;
  if (is_visible(record)) ++st.visible;
  st.submitted_seq = record.seq;
  const Seq seq = record.seq;
  if (first) {
    examine(context, stream.slot, s_.head.time_ns);
    settle(s_.head.time_ns);
  }
  return seq;
}

Status DeviceModel::satisfy(OpPoint external) {
  if (!valid(external.stream)) return Status::kStale;
  const uint32_t context = external.stream.context.slot;
  const uint32_t stream = external.stream.slot;
  if (!has(s_.context[context].external, stream) || first_op(context, stream).seq != external.seq) {
    return Status::kStale;
  }
  complete_first(context, stream, s_.head.time_ns);
  examine(context, stream, s_.head.time_ns);
  settle(s_.head.time_ns);
  return Status::kOk;
}

bool DeviceModel::has_work_to_report(uint32_t process) const {
  bool found = false;
  each_bit(s_.head.contexts, [&](uint32_t c) {
    const context_state& context = s_.context[c];
    if (context.process != process) return;
    found = found || context.done_count > 0 || any(context.external) || context.reached_new != 0;
  });
  return found;
}

void DeviceModel::collect(uint32_t process, Collected& out) {
  struct Found {
    uint64_t order;
    Completion completion;
  };
  std::vector<Found> found;
  each_bit(s_.head.contexts, [&](uint32_t slot) {
    if (s_.context[slot].process != process) return;
    each_stream(s_.context[slot].external, [&](uint32_t s) {
      const op_record& record = first_op(slot, s);
      out.reached.push_back(
          {record.token, {id_of(slot, s), record.seq}, record.kind, s_.stream[slot][s].started_ns});
    });
    if (s_.context[slot].done_count == 0 && s_.context[slot].reached_new == 0) return;
    context_state& c = touch_context(slot);
    c.reached_new = 0;
    c.done_visible = 0;
    while (c.done_count > 0) {
      const uint16_t done = c.done_head;
      const op_record& record = op(slot, done);
      found.push_back({record.done_order,
                       {record.token,
                        {id_of(slot, record.stream), record.seq},
                        record.kind,
                        record.submitted_ns,
                        record.started_ns,
                        record.completed_ns}});
      if (--c.done_count > 0) c.done_head = record.done_next;
      free_op(slot, done);
      step();
    }
  });
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.order < b.order; });
  for (Found& f : found) out.completed.push_back(f.completion);
}

// ---------------------------------------------------------------------------------------- asking

bool DeviceModel::valid(ContextId context) const {
  return context.slot < kMaxContexts && context.generation != 0 &&
         s_.context[context.slot].used != 0 &&
         s_.context[context.slot].generation == context.generation;
}

bool DeviceModel::valid(StreamId stream) const {
  return valid(stream.context) && stream.slot < kMaxStreams && stream.generation != 0 &&
         s_.stream[stream.context.slot][stream.slot].used != 0 &&
         s_.stream[stream.context.slot][stream.slot].generation == stream.generation;
}

bool DeviceModel::is_complete(OpPoint point) const {
  if (point.seq == 0 || !valid(point.stream)) return true;
  return s_.stream[point.stream.context.slot][point.stream.slot].completed_seq >= point.seq;
}

StreamId DeviceModel::id_of(uint32_t context, uint32_t stream) const {
  return {{context, s_.context[context].generation}, stream, s_.stream[context][stream].generation};
}

uint64_t DeviceModel::busy_ns(uint32_t context) const {
  const context_state& c = s_.context[context];
  const device_state& d = s_.device[c.device];
  for (uint32_t i = 0; i < d.running_count; ++i) {
    if (d.running[i].context == context) return c.busy_ns + (s_.head.time_ns - d.accounted_ns);
  }
  return c.busy_ns;
}

uint64_t DeviceModel::device_busy_ns(uint32_t device) const {
  const device_state& d = s_.device[device];
  return d.busy_ns + (d.running_count > 0 ? s_.head.time_ns - d.accounted_ns : 0);
}

// When the context that has the device will at the earliest have nothing ready.
ModelNs DeviceModel::drain_bound(const device_state& d, uint32_t context) const {
  ModelNs latest = s_.head.time_ns;
  uint32_t steps = kWalkLimit;
  each_stream(s_.context[context].ready[0], [&](uint32_t s) {
    const stream_state& st = s_.stream[context][s];
    uint16_t slot = st.head;
    ModelNs at = d.accounted_ns + ceil_div(st.remaining, op(context, slot).sm_demand);
    for (uint32_t i = 1; i < st.count && steps > 0; ++i, --steps) {
      slot = op(context, slot).next;
      if (engine_of(op(context, slot).kind) != Engine::kCompute) break;
      at += op(context, slot).work_ns;
    }
    latest = std::max(latest, at);
  });
  return latest;
}

// When a ready op of the context that is not running can be at the earliest.
ModelNs DeviceModel::start_bound(const device_state& d, uint32_t context) const {
  const ModelNs now = s_.head.time_ns;
  if (p_.sharing == Sharing::kMps) return now;
  if (p_.sharing == Sharing::kSerial)
    return std::max(now, d.running_count > 0 ? d.next_event_ns : now);
  if (d.switch_to != kNoContext) {
    return d.switch_until_ns + (d.switch_to == context ? 0 : p_.switch_ns);
  }
  if (d.current == context || d.current >= kMaxContexts) return now;
  const ModelNs slice_end = d.contended != 0 ? d.slice_start_ns + p_.slice_ns : now;
  return std::max(now, std::min(slice_end, drain_bound(d, d.current))) + p_.switch_ns;
}

// A lower bound for the completion of op `until` of the stream; `until` 0: of its first op that
// the process sees (for an external one: until it is reached).
ModelNs DeviceModel::bound(uint32_t context, uint32_t stream, Seq until, int depth) const {
  const context_state& c = s_.context[context];
  const stream_state& st = s_.stream[context][stream];
  if (st.count == 0 || (until == 0 && st.visible == 0)) return kNever;
  if (has(c.external, stream)) return kNever;
  const device_state& d = s_.device[c.device];
  uint16_t slot = st.head;
  const op_record* record = &op(context, slot);
  ModelNs at = s_.head.time_ns;
  if (has(c.blocked, stream)) {
    if (depth >= kBoundDepth) return next_event_ns();
    for (uint32_t i = 0; i < record->wait_count; ++i) {
      const op_point& point = record->wait_for[i];
      if (point_complete(point)) continue;
      const ModelNs met = bound(point.context, point.stream, point.seq, depth + 1);
      if (met == kNever) return kNever;
      at = std::max(at, met);
    }
    at += record->work_ns;
  } else if (has(c.ready[0], stream)) {
    bool running = false;
    for (uint32_t i = 0; i < d.running_count && !running; ++i) {
      running = d.running[i].context == context && d.running[i].stream == stream;
    }
    const uint64_t rest = ceil_div(st.remaining, record->sm_demand);
    at = running ? d.accounted_ns + rest : start_bound(d, context) + rest;
  } else {
    const copy_engine& engine = d.copy[engine_of(record->kind) == Engine::kUpload ? 0 : 1];
    const bool running = engine.busy != 0 && engine.context == context && engine.stream == stream;
    if (running) {
      at = engine.ends_ns;
    } else {
      at = std::max(at, engine.busy != 0 ? engine.ends_ns : at) + record->work_ns;
    }
  }
  for (uint32_t i = 0; i < kWalkLimit; ++i) {
    const bool external = engine_of(record->kind) == Engine::kExternal;
    if (until == 0 ? is_visible(*record) : record->seq >= until) break;
    if (external) return kNever;
    if (i + 1 >= st.count) break;
    slot = record->next;
    record = &op(context, slot);
    at += record->work_ns;
  }
  return std::max(at, next_event_ns());
}

ModelNs DeviceModel::earliest_completion(OpPoint point) const {
  if (is_complete(point)) return s_.head.time_ns;
  return bound(point.stream.context.slot, point.stream.slot, point.seq, 0);
}

ModelNs DeviceModel::earliest_visible(StreamId stream) const {
  if (!valid(stream)) return kNever;
  const context_state& c = s_.context[stream.context.slot];
  if (c.done_visible > 0 || c.reached_new != 0) return s_.head.time_ns;
  return bound(stream.context.slot, stream.slot, 0, 0);
}

ModelNs DeviceModel::earliest_visible(uint32_t process) const {
  ModelNs earliest = kNever;
  each_bit(s_.head.contexts, [&](uint32_t slot) {
    const context_state& c = s_.context[slot];
    if (c.process != process) return;
    if (c.done_visible > 0 || c.reached_new != 0) earliest = s_.head.time_ns;
    each_stream(c.pending, [&](uint32_t s) {
      if (earliest > s_.head.time_ns) earliest = std::min(earliest, bound(slot, s, 0, 0));
    });
  });
  return earliest;
}

}  // namespace simgpu
