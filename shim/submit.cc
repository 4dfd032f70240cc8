#include "shim/submit.h"

namespace lull::shim {

bool prepare_markers(ThreadState& thread, Attachment& link) {
  // Registering host memory is forbidden while another thread captures in global mode.
  if (open_captures.load(std::memory_order_relaxed) > 0) return false;
  Locked locked(link.markers_lock);
  const Markers state = link.markers.load(std::memory_order_relaxed);
  if (state != Markers::kUnknown) return state == Markers::kReady;
  OwnCall own(thread);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver().cuThreadExchangeStreamCaptureMode(&mode);
  bool ready = driver().cuCtxGetCurrent(&link.progress_context) == CUDA_SUCCESS &&
               link.progress_context != nullptr;
  ready = ready &&
          driver().cuMemHostRegister_v2(
              link.region.progress(), 4096,
              CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
  ready = ready && driver().cuMemHostGetDevicePointer_v2(
                       &link.progress_address, link.region.progress(), 0) == CUDA_SUCCESS;
  driver().cuThreadExchangeStreamCaptureMode(&mode);
  // Release: pairs with the acquire in `marks`.
  link.markers.store(ready ? Markers::kReady : Markers::kImpossible, std::memory_order_release);
  return ready;
}

void push_shared_launch(ThreadState& thread, Attachment& link, uint32_t kernel, StreamRef stream,
                        uint64_t sequence, uint64_t bytes, uint32_t flags, uint32_t ticket,
                        uint32_t charged_ns, uint64_t called_ticks) {
  channel::lull_record record;
  fill_launch(record, kernel, stream, sequence, bytes, flags, ticket, charged_ns, called_ticks);
  if (!push_shared(thread, link, record)) count(thread, link, Counter::kUnrecorded, 1);
}

void record_aside(ThreadState& thread, Attachment& link, const Unit& unit, uint64_t called_ticks) {
  KeepErrno keep;
  const StreamRef stream = find_stream(thread, unit.stream);
  if (stream.device == kNoDevice) return;
  stream_slots[stream.slot].asides.fetch_add(1, std::memory_order_relaxed);
  const ShapeEntry& shape = find_shape(unit.handle, unit.shape, /*site=*/0);
  channel::lull_record record;
  fill_launch(record, shape.slot.load(std::memory_order_relaxed), stream, next_sequence(stream),
              unit.bytes, channel::kFlagAside, /*ticket=*/0, /*charged_ns=*/0, called_ticks);
  push(thread, link, record);
  ring_doorbell(link);
}

void write_marker(ThreadState& thread, Attachment& link, uintptr_t stream, uint32_t slot,
                  uint64_t sequence) {
  OwnCall own(thread);
  const CUresult result = driver().cuStreamWriteValue64_v2(
      stream_of(stream), link.progress_address + slot * sizeof(uint64_t), sequence,
      CU_STREAM_WRITE_VALUE_DEFAULT);
  // No more of them; what was announced is settled by the next synchronisation.
  if (result != CUDA_SUCCESS) link.markers.store(Markers::kImpossible, std::memory_order_release);
}

void cancel_launch(ThreadState& thread, Attachment& link, uint32_t kernel, StreamRef stream,
                   uint64_t sequence) {
  channel::lull_record record{};
  record.kind = channel::kRecordCancel;
  record.kernel = kernel;
  record.device = stream.device;
  record.stream = stream.slot;
  record.sequence = sequence;
  record.tsc = channel::ticks();
  push(thread, link, record);
  ring_doorbell(link);
}

void markers_context_gone(CUcontext context) {
  Attachment* link = attachment.load(std::memory_order_acquire);
  if (link == nullptr || context == nullptr) return;
  Locked locked(link->markers_lock);
  if (link->progress_context != context) return;
  link->progress_context = nullptr;
  // Registered anew by the next launch that wants one. A page that would not register stays so.
  if (link->markers.load(std::memory_order_relaxed) == Markers::kReady) {
    link->markers.store(Markers::kUnknown, std::memory_order_release);
  }
}

}  // namespace lull::shim
