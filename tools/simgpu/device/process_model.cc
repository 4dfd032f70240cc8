// Memory of processes and their checkpoints, as part of the model (device_model.h). Pure.
#include <algorithm>
#include <bit>

#include "tools/simgpu/device/device_model.h"

namespace simgpu {
namespace {

uint64_t bit(uint32_t index) { return uint64_t{1} << (index & 63); }

template <typename F>
void each_bit(uint64_t word, F&& f) {
  for (; word != 0; word &= word - 1) f(static_cast<uint32_t>(std::countr_zero(word)));
}

shared_block* find_block(model_state& state, uint64_t id) {
  const auto found = std::ranges::find(state.block, id, &shared_block::id);
  return found == std::end(state.block) ? nullptr : &*found;
}

}  // namespace

uint64_t DeviceModel::free_bytes(uint32_t device) const {
  return p_.memory_bytes - s_.device[device].memory_bytes;
}

// ---------------------------------------------------------------------------------------- memory

Status DeviceModel::allocate(ContextId context, uint64_t bytes) {
  if (!valid(context)) return Status::kStale;
  const uint32_t device = s_.context[context.slot].device;
  if (bytes > free_bytes(device)) return Status::kOutOfMemory;
  touch_context(context.slot).memory_bytes += bytes;
  step();
  touch_device(device).memory_bytes += bytes;
  return Status::kOk;
}

void DeviceModel::release(ContextId context, uint64_t bytes) {
  if (!valid(context)) return;
  context_state& c = touch_context(context.slot);
  const uint64_t freed = std::min(bytes, c.memory_bytes);
  c.memory_bytes -= freed;
  if (s_.process[c.process].away == 0) touch_device(c.device).memory_bytes -= freed;
}

Status DeviceModel::hold(uint32_t process, uint32_t device, uint64_t bytes) {
  if (bytes > free_bytes(device)) return Status::kOutOfMemory;
  s_.head.dirty_tables = 1;
  s_.process[process].held_bytes[device] += bytes;
  step();
  touch_device(device).memory_bytes += bytes;
  return Status::kOk;
}

void DeviceModel::drop(uint32_t process, uint32_t device, uint64_t bytes) {
  process_state& p = s_.process[process];
  const uint64_t freed = std::min(bytes, p.held_bytes[device]);
  s_.head.dirty_tables = 1;
  p.held_bytes[device] -= freed;
  step();
  if (p.away == 0) touch_device(device).memory_bytes -= freed;
}

std::expected<uint64_t, Status> DeviceModel::share(uint32_t process, uint32_t device,
                                                   uint64_t bytes) {
  shared_block* const block = find_block(s_, 0);
  process_state& p = s_.process[process];
  if (block == nullptr) return std::unexpected(Status::kTableFull);
  if (p.held_bytes[device] < bytes) return std::unexpected(Status::kStale);
  s_.head.dirty_tables = 1;
  p.held_bytes[device] -= bytes;
  step();
  *block = {++s_.head.last_block, bytes, device, 1U << process};
  return block->id;
}

Status DeviceModel::join(uint32_t process, uint64_t id, uint32_t device, uint64_t bytes) {
  if (id == 0) return Status::kStale;
  s_.head.dirty_tables = 1;
  if (shared_block* const known = find_block(s_, id)) {
    known->holders |= 1U << process;
    return Status::kOk;
  }
  shared_block* const block = find_block(s_, 0);
  if (block == nullptr) return Status::kTableFull;
  if (bytes > free_bytes(device)) return Status::kOutOfMemory;
  *block = {id, bytes, device, 1U << process};
  step();
  touch_device(device).memory_bytes += bytes;
  return Status::kOk;
}

void DeviceModel::leave(uint32_t process, uint64_t id) {
  shared_block* const block = id == 0 ? nullptr : find_block(s_, id);
  if (block == nullptr) return;
  s_.head.dirty_tables = 1;
  block->holders &= ~(1U << process);
  step();
  if (block->holders != 0) return;
  touch_device(block->device).memory_bytes -= block->bytes;
  *block = {};
}

void DeviceModel::forget_process_memory(uint32_t process) {
  for (const shared_block& block : s_.block) {
    if (block.holders & 1U << process) leave(process, block.id);
  }
  for (uint32_t d = 0; d < p_.device_count; ++d) {
    drop(process, d, s_.process[process].held_bytes[d]);
  }
  touch_checkpoint(process) = {};
}

// ----------------------------------------------------------------------------------- checkpoints

checkpoint_record& DeviceModel::touch_checkpoint(uint32_t process) {
  s_.head.dirty_checkpoints |= 1U << process;
  return s_.checkpoint[process];
}

bool DeviceModel::is_asked(uint32_t process) const {
  return s_.checkpoint[process].asked != s_.checkpoint[process].answered;
}

std::optional<uint32_t> DeviceModel::find_process(int32_t pid, uint64_t pid_namespace) const {
  for (uint32_t p = 0; p < kMaxProcesses; ++p) {
    const process_state& known = s_.process[p];
    if (known.used != 0 && known.pid == pid && known.pid_namespace == pid_namespace) return p;
  }
  return std::nullopt;
}

std::expected<uint64_t, Status> DeviceModel::ask(uint32_t process,
                                                 const CheckpointRequest& request) {
  if (is_asked(process)) return std::unexpected(Status::kBusy);
  checkpoint_record& record = touch_checkpoint(process);
  record.request = request;
  step();
  return ++record.asked;
}

void DeviceModel::answer(uint32_t process, ProcessState state, int32_t answer) {
  checkpoint_record& record = touch_checkpoint(process);
  record.answer[record.asked % kKeptAnswers] = answer;
  record.state = state;
  step();
  record.answered = record.asked;
}

void DeviceModel::set_restore_thread(uint32_t process, int32_t thread) {
  touch_checkpoint(process).restore_thread = thread;
}

void DeviceModel::leave_devices(uint32_t process) {
  process_state& p = s_.process[process];
  if (p.away != 0) return;
  s_.head.dirty_tables = 1;
  p.away = 1;
  each_bit(s_.head.contexts, [&](uint32_t c) {
    const context_state& context = s_.context[c];
    if (context.process == process) {
      touch_device(context.device).memory_bytes -= context.memory_bytes;
    }
    step();
  });
  for (uint32_t d = 0; d < p_.device_count; ++d) {
    if (p.held_bytes[d] != 0) touch_device(d).memory_bytes -= p.held_bytes[d];
  }
}

Status DeviceModel::return_to_devices(uint32_t process,
                                      const std::array<uint8_t, kMaxDevices>& to) {
  process_state& p = s_.process[process];
  if (p.away == 0) return Status::kStale;
  uint64_t needed[kMaxDevices] = {};
  uint64_t held[kMaxDevices] = {};
  each_bit(s_.head.contexts, [&](uint32_t c) {
    const context_state& context = s_.context[c];
    if (context.process == process) needed[to[context.device]] += context.memory_bytes;
  });
  for (uint32_t d = 0; d < p_.device_count; ++d) {
    held[to[d]] += p.held_bytes[d];
    needed[to[d]] += p.held_bytes[d];
  }
  for (uint32_t d = 0; d < p_.device_count; ++d) {
    if (needed[d] > free_bytes(d)) return Status::kOutOfMemory;
  }
  s_.head.dirty_tables = 1;
  p.away = 0;
  each_bit(s_.head.contexts, [&](uint32_t c) {
    if (s_.context[c].process == process) move_context(c, to[s_.context[c].device]);
    step();
  });
  for (uint32_t d = 0; d < p_.device_count; ++d) {
    p.held_bytes[d] = held[d];
    if (needed[d] != 0) touch_device(d).memory_bytes += needed[d];
  }
  settle(s_.head.time_ns);
  return Status::kOk;
}

// Of a context with nothing in flight. What it did so far stays with the device that did it.
void DeviceModel::move_context(uint32_t context, uint32_t to) {
  const uint32_t from = s_.context[context].device;
  if (from == to) return;
  account(from, s_.head.time_ns);
  context_state& c = touch_context(context);
  process_state& p = s_.process[c.process];
  p.busy_ns[from] += c.busy_ns;
  p.launches[from] += c.launches;
  c.busy_ns = 0;
  c.launches = 0;
  c.device = static_cast<uint16_t>(to);
  device_state& d = touch_device(from);
  d.contexts &= ~bit(context);
  if (d.current == context) d.current = kGoneContext;
  if (d.switch_to == context) d.switch_to = kGoneContext;
  touch_device(to).contexts |= bit(context);
  reschedule_devices_ |= 1U << from | 1U << to;
}

}  // namespace simgpu
