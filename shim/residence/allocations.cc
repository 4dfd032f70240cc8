#include "shim/residence/allocations.h"

#include "shim/captures.h"
#include "shim/devices.h"
#include "shim/residence/ipc_memory.h"
#include "shim/residence/mapped_memory.h"
#include "shim/residence/peer_access.h"
#include "shim/residence/pools.h"
#include "shim/residence/service.h"

namespace lull::shim {

namespace {

constexpr uint32_t kSpareEvents = 64;

// Of threads that are out of memory, while they wait for frees; alone of its kind it is held
// across driver calls that block, and fork does not take it.
Lock full_lock;

// All under arena_lock.
Block* waiting;
struct SpareEvent {
  CUevent event;
  CUcontext context;
};
SpareEvent spare_events[kSpareEvents];
uint32_t spare_event_count;
std::atomic<uint32_t> waiting_count;  // read without the lock as well

uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

// A capture forbids calls to threads that are not in relaxed mode; ours are not the program's.
class RelaxedCaptures {
 public:
  RelaxedCaptures() : any_(open_captures.load(std::memory_order_relaxed) > 0) {
    if (any_) driver().cuThreadExchangeStreamCaptureMode(&mode_);
  }
  ~RelaxedCaptures() {
    if (any_) driver().cuThreadExchangeStreamCaptureMode(&mode_);
  }
  RelaxedCaptures(const RelaxedCaptures&) = delete;

 private:
  bool any_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// False: the context is no more.
class InContext {
 public:
  explicit InContext(CUcontext context) {
    CUcontext current = nullptr;
    if (driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context) {
      good_ = true;
      return;
    }
    pushed_ = good_ = driver().cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
  }
  ~InContext() {
    CUcontext popped;
    if (pushed_) driver().cuCtxPopCurrent_v2(&popped);
  }
  InContext(const InContext&) = delete;
  explicit operator bool() const { return good_; }

 private:
  bool good_ = false;
  bool pushed_ = false;
};

// ---- giving back
// ---------------------------------------------------------------------------------

// Under arena_lock. Its stream has got there.
void keep_event(Block& block) {
  if (block.event == nullptr) return;
  if (spare_event_count < kSpareEvents) {
    spare_events[spare_event_count++] = {block.event, block.event_context};
  } else {
    driver().cuEventDestroy_v2(block.event);
  }
  block.event = nullptr;
}

// Under arena_lock. The context ends, or may: its events are not asked about from now on, and what
// waited for one waits for the context. `alive`: they are to be destroyed.
void drop_events(CUcontext context, bool alive) {
  for (uint32_t n = 0; n < spare_event_count;) {
    if (spare_events[n].context != context) {
      ++n;
      continue;
    }
    if (alive) driver().cuEventDestroy_v2(spare_events[n].event);
    spare_events[n] = spare_events[--spare_event_count];
  }
  Records<Block>& blocks = all_blocks();
  for (uint32_t n = 0; n < blocks.count(); ++n) {
    Block& block = *blocks.at(n);
    if (!block.head.in_use || block.event == nullptr || block.event_context != context) continue;
    if (alive && !block.in_hand) driver().cuEventDestroy_v2(block.event);
    block.event = nullptr;
    block.context = context;
  }
}

// Nothing uses it any more.
void finish_block(Block& block) {
  OwnCall own(thread_state);
  {
    Locked locked(arena_lock);
    keep_event(block);
  }
  give_block(block);
}

// Before it is given back, or when it begins to wait: the program has it no longer.
void not_counted(Block& block) {
  change_counted(*block.backing, -static_cast<int64_t>(block.counted));
  block.counted = 0;
}

void wait_list_push(Block& block) {
  block.in_hand = false;
  block.next = waiting;
  waiting = &block;
  waiting_count.fetch_add(1, std::memory_order_relaxed);
}

// Of the list of those that wait, the ones that `chosen` are, as a list.
template <typename Chosen>
Block* take_waiting(Chosen chosen) {
  Locked locked(arena_lock);
  Block* taken = nullptr;
  for (Block** link = &waiting; *link != nullptr;) {
    Block* block = *link;
    if (!chosen(*block)) {
      link = &block->next;
      continue;
    }
    *link = block->next;
    block->next = taken;
    block->in_hand = true;
    taken = block;
    waiting_count.fetch_sub(1, std::memory_order_relaxed);
  }
  return taken;
}

void reclaim(bool wait) {
  if (waiting_count.load(std::memory_order_relaxed) == 0) return;
  OwnCall own(thread_state);
  RelaxedCaptures relaxed;
  wait = wait && open_captures.load(std::memory_order_relaxed) <= 0;
  // Asked while they wait: whoever allocates meanwhile finds them.
  Block* block = take_waiting([&](const Block& it) {
    return wait || (it.event != nullptr && driver().cuEventQuery(it.event) == CUDA_SUCCESS);
  });
  while (block != nullptr) {
    Block* next = block->next;
    CUevent event = nullptr;
    {
      Locked locked(arena_lock);
      if (!wait) keep_event(*block);  // it has been asked
      event = block->event;
    }
    CUresult done = CUDA_SUCCESS;
    if (event != nullptr) {
      done = driver().cuEventSynchronize(event);
    } else if (wait) {
      InContext in(block->context);
      if (in) done = driver().cuCtxSynchronize();
    }
    if (done != CUDA_SUCCESS) {
      Locked locked(arena_lock);
      // Where the event was not dropped, its context has failed and will take the block along.
      const bool dropped = event != nullptr && block->event == nullptr;
      if (!dropped) {
        wait_list_push(*block);
        block = next;
        continue;
      }
    }
    finish_block(*block);
    block = next;
  }
}

// Freed in this stream before, of that size: what comes next in the stream may have it at once.
bool take_from_stream(const Order& order, uint64_t taken, CUdeviceptr& address) {
  if (order.stream_id == 0 || waiting_count.load(std::memory_order_relaxed) == 0) return false;
  bool found = false;
  Block* block = take_waiting([&](const Block& it) {
    const bool fits = !found && it.event != nullptr && it.stream_id == order.stream_id &&
                      it.taken == taken && it.backing->fixed == Fixed::kNot &&
                      it.backing->properties.location.id == order.ordinal;
    found = found || fits;
    return fits;
  });
  if (block == nullptr) return false;
  Locked locked(arena_lock);
  keep_event(*block);
  give_to_pool(block->pool, block->taken);
  fill_block(*block, order, *block->backing, block->address, block->taken);
  address = block->address;
  return true;
}

// ---- the ways in
// -------------------------------------------------------------------------------------

bool can_serve(const Order& order) {
  return order.bytes != 0 && order.context != nullptr && can_map(order.ordinal) &&
         order.device != kNoDevice;
}

bool current_place(Order& order) {
  OwnCall own(thread_state);
  return driver().cuCtxGetCurrent(&order.context) == CUDA_SUCCESS && order.context != nullptr &&
         driver().cuCtxGetDevice(&order.ordinal) == CUDA_SUCCESS && order.ordinal >= 0 &&
         order.ordinal < kMaxOrdinals;
}

// CUDA_ERROR_OUT_OF_MEMORY is the program's answer. On any other error the driver shall try it
// itself, and say what is wrong if it is.
CUresult serve(const Order& order, CUdeviceptr& address) {
  if (take_from_stream(order, taken_by(order), address)) return CUDA_SUCCESS;
  CUresult result = make_block(order, address);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    // Frees that are on their way may make room, those that another thread waits for too.
    Locked alone(full_lock);
    reclaim(/*wait=*/true);
    drop_empty_slabs(order.ordinal);
    result = make_block(order, address);
  }
  if (result == CUDA_SUCCESS) want_service();
  return result;
}

// Whether that is the program's answer.
bool settles(CUresult served) {
  return served == CUDA_SUCCESS || served == CUDA_ERROR_OUT_OF_MEMORY;
}

// What forbids an allocation now: a capture, a context that has failed. The driver says it of a
// call that does nothing else.
bool is_forbidden() {
  OwnCall own(thread_state);
  return driver().cuMemFree_v2(0) != CUDA_SUCCESS;
}

// The allocation that begins there, marked as being freed. True: `result` holds, or `block` is it.
bool find_for_free(CUdeviceptr address, Block*& block, CUresult& result) {
  Locked locked(arena_lock);
  Mapping* mapping = mapping_at(address);
  if (mapping == nullptr || !mapping->backing->ours) return false;
  block = block_at(*mapping, address);
  if (block == nullptr || block->address != address) {
    block = nullptr;
    result = CUDA_ERROR_INVALID_VALUE;
  } else {
    block->live = false;
  }
  return true;
}

void still_live(Block& block) {
  Locked locked(arena_lock);
  block.live = true;
}

CUresult new_event(CUcontext context, CUevent& event) {
  {
    Locked locked(arena_lock);
    for (uint32_t n = 0; n < spare_event_count; ++n) {
      if (spare_events[n].context != context) continue;
      event = spare_events[n].event;
      spare_events[n] = spare_events[--spare_event_count];
      return CUDA_SUCCESS;
    }
  }
  InContext in(context);
  return in ? driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING)
            : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

}  // namespace

bool arena_allocate(uint64_t bytes, CUdeviceptr* address, CUresult& result) {
  Order order{};
  order.bytes = bytes;
  if (address == nullptr || !current_place(order)) return false;
  order.device = use_device(order.ordinal);
  Cancellation off;
  CUdeviceptr at = 0;
  reclaim(/*wait=*/false);
  if (!can_serve(order) || is_forbidden()) return false;
  result = serve(order, at);
  if (result == CUDA_SUCCESS) *address = at;
  return settles(result);
}

bool arena_allocate_pitch(uint64_t width, uint64_t height, unsigned element, CUdeviceptr* address,
                          size_t* pitch, CUresult& result) {
  Order place{};
  if (pitch == nullptr || width == 0 || height == 0 ||
      (element != 4 && element != 8 && element != 16) || !current_place(place)) {
    return false;
  }
  int unit = 0;
  int most = 0;
  {
    OwnCall own(thread_state);
    if (driver().cuDeviceGetAttribute(&unit, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT,
                                      place.ordinal) != CUDA_SUCCESS ||
        driver().cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_PITCH, place.ordinal) !=
            CUDA_SUCCESS ||
        unit <= 0 || most <= 0) {
      return false;
    }
  }
  const uint64_t row = round_up(width, static_cast<uint64_t>(unit));
  if (row < width || row > static_cast<uint64_t>(most) || height > UINT64_MAX / row) return false;
  if (!arena_allocate(row * height, address, result)) return false;
  if (result == CUDA_SUCCESS) *pitch = row;
  return true;
}

bool arena_allocate_in_stream(uint64_t bytes, CUmemoryPool pool, CUstream stream,
                              CUdeviceptr* address, CUresult& result) {
  Order order{};
  order.bytes = bytes;
  order.stream_ordered = true;
  if (address == nullptr) return false;
  {
    OwnCall own(thread_state);
    if (driver().cuStreamGetCtx(stream, &order.context) != CUDA_SUCCESS) return false;
    InContext in(order.context);
    if (!in || driver().cuCtxGetDevice(&order.ordinal) != CUDA_SUCCESS) return false;
    unsigned long long id = 0;
    if (driver().cuStreamGetId(stream, &id) == CUDA_SUCCESS) order.stream_id = id + 1;
  }
  if (pool == nullptr) {
    if (order.ordinal < 0 || order.ordinal >= kMaxOrdinals) return false;
    pool = current_pool(order.ordinal);
    if (pool == nullptr) return false;
  } else {
    order.ordinal = served_pool(pool);
    if (order.ordinal < 0) return false;
  }
  order.pool = pool;
  order.device = use_device(order.ordinal);
  Cancellation off;
  CUdeviceptr at = 0;
  reclaim(/*wait=*/false);
  if (!can_serve(order)) return false;
  {
    // The driver, which has handed out less of the pool, would not know.
    Locked locked(arena_lock);
    if (!take_from_pool(pool, taken_by(order))) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
      return true;
    }
  }
  result = serve(order, at);
  if (result == CUDA_SUCCESS) {
    *address = at;
  } else {
    Locked locked(arena_lock);
    give_to_pool(pool, taken_by(order));
  }
  return settles(result);
}

bool arena_free(CUdeviceptr address, CUresult& result) {
  Block* block = nullptr;
  if (address == 0 || !find_for_free(address, block, result)) return false;
  if (block == nullptr) return true;
  Cancellation off;
  OwnCall own(thread_state);
  result = driver().cuMemFree_v2(0);  // refused now?
  if (result == CUDA_SUCCESS && open_captures.load(std::memory_order_relaxed) > 0) {
    // No context can be waited for while a stream of it captures.
    Locked locked(arena_lock);
    not_counted(*block);
    wait_list_push(*block);
    return true;
  }
  const CUcontext context = block->context;
  if (result == CUDA_SUCCESS) {
    // As the driver does: until nothing that was submitted can be using it.
    InContext in(context);
    if (in) result = driver().cuCtxSynchronize();
  }
  if (result != CUDA_SUCCESS) {
    still_live(*block);
    return true;
  }
  finish_block(*block);
  Block* more =
      take_waiting([&](const Block& it) { return it.event == nullptr && it.context == context; });
  while (more != nullptr) {
    Block* next = more->next;
    finish_block(*more);
    more = next;
  }
  return true;
}

bool arena_free_in_stream(CUdeviceptr address, CUstream stream, CUresult& result) {
  Block* block = nullptr;
  if (address == 0 || !find_for_free(address, block, result)) return false;
  if (block == nullptr) return true;
  Cancellation off;
  OwnCall own(thread_state);
  RelaxedCaptures relaxed;
  CUcontext context = nullptr;
  CUevent event = nullptr;
  result = driver().cuStreamGetCtx(stream, &context);
  if (result == CUDA_SUCCESS) result = new_event(context, event);
  if (result == CUDA_SUCCESS) {
    InContext in(context);
    result = driver().cuEventRecord(event, stream);
  }
  if (result != CUDA_SUCCESS) {  // its context has failed, and takes the event along
    still_live(*block);
    return true;
  }
  unsigned long long id = 0;
  if (driver().cuStreamGetId(stream, &id) == CUDA_SUCCESS) ++id;
  Locked locked(arena_lock);
  block->event = event;
  block->event_context = context;
  block->stream_id = id;
  not_counted(*block);
  wait_list_push(*block);
  return true;
}

Fixed why_unmapped() {
  Order place{};
  return current_place(place) && can_map(place.ordinal) ? Fixed::kNotMapped : Fixed::kCannotMap;
}

void reclaim_freed() {
  Cancellation off;
  reclaim(/*wait=*/false);
}

void arena_context_pauses(CUcontext context) {
  if (context == nullptr) return;
  Cancellation off;
  reclaim(/*wait=*/false);
  OwnCall own(thread_state);
  Locked locked(arena_lock);
  drop_events(context, /*alive=*/true);
}

void arena_context_gone(CUcontext context, bool reset) {
  if (context == nullptr) return;
  Cancellation off;
  peer_access_of_gone(context);
  ipc_context_gone(context);
  {
    Locked locked(arena_lock);
    drop_events(context, /*alive=*/false);
  }
  const auto dies = [&](const Block& it) {
    return it.head.in_use && it.live && it.context == context && (!it.stream_ordered || reset);
  };
  Block* gone =
      take_waiting([&](const Block& it) { return it.event == nullptr && it.context == context; });
  while (gone != nullptr) {
    Block* next = gone->next;
    finish_block(*gone);
    gone = next;
  }
  // Blocks that wait for the stream of another context go when that has got there.
  Records<Block>& blocks = all_blocks();
  for (uint32_t n = 0;; ++n) {
    Block* block = nullptr;
    {
      Locked locked(arena_lock);
      while (n < blocks.count() && !dies(*blocks.at(n))) ++n;
      if (n == blocks.count()) return;
      block = blocks.at(n);
      block->live = false;
    }
    finish_block(*block);
  }
}

void forget_allocations() {
  forget_blocks();
  waiting = nullptr;
  waiting_count.store(0, std::memory_order_relaxed);
  spare_event_count = 0;
  full_lock.try_lock();
  full_lock.unlock();
}

}  // namespace lull::shim
