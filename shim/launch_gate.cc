#include "shim/launch_gate.h"

#include "coordinator/channel/model_clock.h"
#include "shim/connection.h"
#include "shim/silence.h"
#include "shim/system.h"

namespace lull::shim {

namespace {

constexpr uint64_t kSliceNs = 50'000'000;
// What work of unknown length counts as once the coordinator has said nothing about some for a
// slice.
constexpr uint32_t kUntoldNs = 50'000;

uint32_t told_ns(const Attachment& link, uint32_t kernel_slot) {
  return channel::predicted_ns(*link.region.kernel(kernel_slot));
}

uint32_t predicted_ns(const Attachment& link, uint32_t kernel_slot, uint32_t default_ns) {
  if (const uint32_t told = told_ns(link, kernel_slot)) return told;
  const bool untold = link.untold.load(std::memory_order_relaxed) != 0;
  return untold && default_ns == channel::kUnknownLength ? kUntoldNs : default_ns;
}

bool may_go(Attachment& link, uint32_t device, uint32_t kernel_slot, uint32_t default_ns,
            uint32_t& charged_ns) {
  const uint64_t gate = channel::load_gate(*link.control, device);
  switch (channel::gate_state(gate)) {
    case channel::GateState::kOpen:
      return true;
    case channel::GateState::kCredit: {
      const uint32_t predicted = predicted_ns(link, kernel_slot, default_ns);
      if (!channel::try_spend(gate, link.client->spent[device], predicted)) return false;
      charged_ns = channel::charged_ns(gate, predicted);
      return true;
    }
    default:
      return false;
  }
}

// A lulld that was found silent holds nobody until it looks again.
constexpr uint64_t kSilent = uint64_t{1} << 32;
bool is_silent(Attachment& link) {
  return link.silent_at.load(std::memory_order_relaxed) ==
         (kSilent | channel::looks(*link.control));
}

}  // namespace

uint32_t pass_gate(ThreadState& thread, Attachment& link, uint32_t device, uint32_t stream_slot,
                   uint32_t kernel_slot, uint32_t default_ns, uint32_t& charged_ns) {
  if (may_go(link, device, kernel_slot, default_ns, charged_ns)) return 0;
  if (is_silent(link)) {
    // It may have ended meanwhile, and nobody is held who would notice.
    look_now_and_then(link);
    count(thread, link, Counter::kUnheld, 1);
    return 0;
  }

  KeepErrno keep;
  // Threads that share the last slot take turns in showing their held launch there; the others
  // wait for the gate alone.
  bool shown = !thread.shares_slot;
  uint32_t ticket = 0;
  bool told = false;
  const uint64_t since_ns = channel::monotonic_ns();
  uint64_t looked_ns = since_ns;
  Silence silence(channel::looks(*link.control), since_ns);
  bool counted_elsewhere = false;
  for (;;) {
    const uint32_t wake = channel::wake_sequence(*link.control);
    if (may_go(link, device, kernel_slot, default_ns, charged_ns)) break;
    if (ticket != 0 && channel::is_released(*thread.slot, ticket)) break;
    if (is_silent(link)) {
      count(thread, link, Counter::kUnheld, 1);
      break;
    }
    if (link.gone.load(std::memory_order_acquire) != 0) {
      counted_elsewhere = true;
      break;
    }
    if (!shown) {
      uint32_t nobody = 0;
      shown = link.shared_held.compare_exchange_strong(nobody, 1, std::memory_order_acq_rel);
    }
    if (shown && !told) {
      if (ticket == 0) {
        // Never 0, and never the one that was released last on this slot.
        static std::atomic<uint32_t> last_ticket;
        do ticket = last_ticket.fetch_add(1, std::memory_order_relaxed) + 1;
        while (ticket == 0 || channel::is_released(*thread.slot, ticket));
        channel::publish_held(*thread.slot, ticket, kernel_slot, device, stream_slot,
                              channel::ticks());
      }
      channel::lull_record record{};
      record.kind = channel::kRecordHeld;
      record.kernel = kernel_slot;
      record.device = device;
      record.stream = stream_slot;
      record.tsc = channel::ticks();
      record.ticket = ticket;
      // A full ring: told again in the next slice.
      if (thread.shares_slot) {
        push_shared(thread, link, record);
        told = true;
      } else {
        told = channel::push_record_cached(*thread.slot, thread.ring, thread.cached_tail, record);
      }
      channel::fence_before_doorbell();
      ring_doorbell(link);
      if (told) continue;  // else: sleep a slice, then try again
    }
    futex_wait(&link.control->wake_sequence, wake, kSliceNs, /*private_futex=*/false);
    // By the clock, not by whole slices: signals may cut every one of them short.
    const uint64_t now_ns = channel::monotonic_ns();
    if (now_ns - looked_ns >= kSliceNs - 1'000'000) {
      looked_ns = now_ns;
      if (told_ns(link, kernel_slot) == 0) link.untold.store(1, std::memory_order_relaxed);
      if (!still_there(link)) {
        counted_elsewhere = true;
        break;
      }
      const uint32_t looks = channel::looks(*link.control);
      if (silence.lasts_too_long(looks, now_ns)) {
        link.silent_at.store(kSilent | looks, std::memory_order_relaxed);
      }
      ring_doorbell(link);
    }
  }
  if (!counted_elsewhere) {
    count(thread, link, Counter::kHeldNs, channel::monotonic_ns() - since_ns);
  }
  if (ticket != 0) {
    channel::clear_held(*thread.slot);
    if (thread.shares_slot) link.shared_held.store(0, std::memory_order_release);
  }
  return ticket;
}

}  // namespace lull::shim
