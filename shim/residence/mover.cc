#include "shim/residence/mover.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>

#include "coordinator/channel/model_clock.h"
#include "coordinator/channel/residence.h"
#include "shim/connection.h"
#include "shim/devices.h"
#include "shim/residence/device_arena.h"
#include "shim/residence/host_arena.h"
#include "shim/residence/live_contexts.h"
#include "shim/system.h"

namespace lull::shim {

namespace {

// Small backings are copied whole, many at a time: as many 2 MiB ones as fill two chunks.
constexpr uint32_t kMostUnderWay = 32;
// New memory is made that far ahead of the copies.
constexpr uint32_t kBackingsAhead = 8;
// A paced move sleeps no longer than that before it looks for another order.
constexpr uint64_t kPaceSliceNs = 5'000'000;

// Of a shorter copy, how long it took says how long one takes to start.
constexpr uint64_t kTimedBytes = 1 << 20;

enum class Way { kOut, kBack };

struct Copy {
  uint32_t backing;  // in Move::backings
  uint64_t bytes;
  bool last;  // of its backing
};

// What moves of one device.
struct Lane {
  CUcontext context;
  CUstream stream;
  CUevent done[kMostUnderWay];
  CUevent begun;                  // before the copy that is timed
  Copy under_way[kMostUnderWay];  // [oldest, newest), free-running
  uint32_t oldest;
  uint32_t newest;
  bool times;           // a copy is being timed: number `timed`
  uint32_t timed;
  uint64_t bytes_under_way;
  uint32_t first;       // of its backings
  uint32_t next;        // the one to copy from next
  uint32_t made;        // back: backings [.., made) have memory
  uint32_t end;         // of the lane's backings
  uint64_t offset;      // copied of the next one so far
  CUdeviceptr address;  // where; 0: not begun
  uint32_t to_release;  // out: backings [to_release, safe) can be given up
  uint32_t safe;
};

char failure[96];

class Move {
 public:
  Move(Way way, GoesOn goes_on) : way_(way), goes_on_(goes_on) {}
  ~Move() {
    for (Lane& lane : lanes_) close(lane);
    if (backings_ != nullptr) munmap(backings_, room_ * sizeof(Backing*));
  }
  Move(const Move&) = delete;

  MoveResult run() {
    OwnCall own(thread_state);
    if (!collect()) return {MoveEnd::kFailed, "no memory for the list of allocations"};
    publish();
    for (Lane& lane : lanes_) {
      if (lane.next < lane.end && !open(lane)) return {MoveEnd::kFailed, failure};
    }
    while (!over()) {
      if (end_ == MoveEnd::kDone && !goes_on_()) end_ = MoveEnd::kReplaced;
      bool moved = reap_all();
      if (end_ == MoveEnd::kDone) {
        for (Lane& lane : lanes_) moved = issue(lane) || moved;
      }
      // Memory calls while copies run.
      for (Lane& lane : lanes_) moved = manage_memory(lane) || moved;
      if (!moved) wait();
    }
    for (Lane& lane : lanes_) {
      end_backing(lane);
      if (way_ == Way::kBack && end_ != MoveEnd::kDone) give_up_again(lane);
    }
    return {end_, end_ == MoveEnd::kDone || end_ == MoveEnd::kReplaced ? "" : reason_};
  }

 private:
  bool moves(const Backing& backing) const { return backing.present == (way_ == Way::kOut); }

  // The backings to move, lane by lane.
  bool collect() {
    struct Count {
      Move* self;
      uint32_t of[channel::kMaxDevices];
      uint32_t all;
      bool any_absent;
    } count{this, {}, 0, false};
    visit_backings(
        [](Backing& backing, void* data) {
          Count& counting = *static_cast<Count*>(data);
          counting.any_absent = counting.any_absent || !backing.present;
          if (counting.self->moves(backing) && backing.device < channel::kMaxDevices) {
            ++counting.of[backing.device];
            ++counting.all;
          }
          return true;
        },
        &count);
    if (count.all == 0) return true;
    room_ = count.all;
    backings_ = static_cast<Backing**>(map_pages(room_ * sizeof(Backing*)));
    if (backings_ == nullptr) return false;
    uint32_t at = 0;
    for (uint32_t device = 0; device < channel::kMaxDevices; ++device) {
      Lane& lane = lanes_[device];
      lane.first = lane.next = lane.made = lane.end = lane.to_release = lane.safe = at;
      at += count.of[device];
    }
    // Where contents are in the arena is fixed as long as any are there.
    assign_ = way_ == Way::kOut && !count.any_absent;
    visit_backings(
        [](Backing& backing, void* data) {
          Move& self = *static_cast<Move*>(data);
          if (!self.moves(backing) || backing.device >= channel::kMaxDevices) return true;
          if (self.assign_) backing.host_offset = self.all_bytes_;
          self.all_bytes_ += backing.bytes;
          self.host_end_ = std::max(self.host_end_, backing.host_offset + backing.bytes);
          self.backings_[self.lanes_[backing.device].end++] = &backing;
          return true;
        },
        this);
    return true;
  }

  bool open(Lane& lane) {
    const CUdevice ordinal = backings_[lane.next]->properties.location.id;
    lane.context = context_on(ordinal);
    CUresult result = lane.context == nullptr ? CUDA_ERROR_INVALID_CONTEXT
                                              : driver().cuCtxSetCurrent(lane.context);
    if (result == CUDA_SUCCESS)
      result = driver().cuStreamCreate(&lane.stream, CU_STREAM_NON_BLOCKING);
    for (CUevent& event : lane.done) {
      if (result == CUDA_SUCCESS) {
        result = driver().cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC);
      }
    }
    if (result == CUDA_SUCCESS) result = driver().cuEventCreate(&lane.begun, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS) return true;
    fail("the driver gave no stream to copy in", result);
    return false;
  }

  void close(Lane& lane) {
    if (lane.context == nullptr || driver().cuCtxSetCurrent(lane.context) != CUDA_SUCCESS) return;
    if (lane.stream != nullptr) {
      driver().cuStreamSynchronize(lane.stream);
      driver().cuStreamDestroy_v2(lane.stream);
    }
    for (CUevent event : lane.done) {
      if (event != nullptr) driver().cuEventDestroy_v2(event);
    }
    if (lane.begun != nullptr) driver().cuEventDestroy_v2(lane.begun);
  }

  void fail(const char* what, CUresult result) {
    snprintf(failure, sizeof failure, "%s (error %d)", what, static_cast<int>(result));
    reason_ = failure;
    if (end_ == MoveEnd::kDone || end_ == MoveEnd::kReplaced) end_ = MoveEnd::kFailed;
  }

  bool over() const {
    for (const Lane& lane : lanes_) {
      if (lane.oldest != lane.newest || lane.to_release != lane.safe) return false;
      if (end_ == MoveEnd::kDone && lane.next != lane.end) return false;
    }
    return true;
  }

  // Takes the copies that are done off the list.
  bool reap_all() {
    bool any = false;
    for (Lane& lane : lanes_) {
      while (lane.oldest != lane.newest &&
             driver().cuEventQuery(lane.done[lane.oldest % kMostUnderWay]) !=
                 CUDA_ERROR_NOT_READY) {
        reap(lane);
        any = true;
      }
    }
    return any;
  }

  void reap(Lane& lane) {
    const Copy& copy = lane.under_way[lane.oldest % kMostUnderWay];
    // Of a context that has failed: what it copied is not to be relied on.
    const CUresult result = driver().cuEventQuery(lane.done[lane.oldest % kMostUnderWay]);
    if (result != CUDA_SUCCESS) copy_failed(lane, result);
    if (lane.times && lane.timed == lane.oldest) {
      lane.times = false;
      if (result == CUDA_SUCCESS) took(lane, copy.bytes);
    }
    ++lane.oldest;
    lane.bytes_under_way -= copy.bytes;
    moved_bytes_ += copy.bytes;
    if (copy.last) {
      end_copying(*backings_[copy.backing]);
      if (way_ == Way::kOut && (result == CUDA_SUCCESS)) lane.safe = copy.backing + 1;
    }
    publish();
  }

  // The timed copy is done: what the link copies a second, where nothing else was on it.
  void took(Lane& lane, uint64_t bytes) {
    if (bytes < kTimedBytes) return;
    float ms = 0;
    const CUevent end = lane.done[lane.timed % kMostUnderWay];
    if (driver().cuEventElapsedTime(&ms, lane.begun, end) != CUDA_SUCCESS || !(ms > 0)) return;
    const auto rate = static_cast<uint64_t>(static_cast<double>(bytes) * 1000.0 / ms);
    if (rate <= best_rate_) return;
    best_rate_ = rate;
    if (Attachment* link = attachment.load(std::memory_order_acquire)) {
      channel::publish_copy_rate(*link->client, rate);
    }
  }

  void copy_failed(const Lane& lane, CUresult result) {
    // On the way out nothing has been lost: what is present stays. On the way back the memory of a
    // context that has failed is there again, and the program learns from its context; of any other
    // the contents are still in the arena.
    if (way_ == Way::kBack && has_failed(lane)) return;
    fail("the driver failed a copy", result);
    if (way_ == Way::kBack) end_ = MoveEnd::kNoDeviceMemory;
  }
  // A context that has failed says so to every call.
  static bool has_failed(const Lane& lane) {
    if (driver().cuCtxSetCurrent(lane.context) != CUDA_SUCCESS) return true;
    const CUresult result = driver().cuStreamQuery(lane.stream);
    return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
  }

  uint64_t chunk_bytes() const {
    uint64_t bytes = 0;
    if (Attachment* link = attachment.load(std::memory_order_acquire)) {
      bytes = channel::order_chunk(*link->control);
    }
    return bytes == 0 ? kChunkBytes : std::max<uint64_t>(bytes, 64 * 1024);
  }

  // Copies of this lane until enough are under way. True: at least one.
  bool issue(Lane& lane) {
    bool any = false;
    while (end_ == MoveEnd::kDone && lane.next != lane.end &&
           lane.newest - lane.oldest < kMostUnderWay) {
      const uint64_t chunk = chunk_bytes();
      Backing& backing = *backings_[lane.next];
      const uint64_t left = backing.bytes - lane.offset;
      uint64_t bytes = std::min(left, chunk);
      if (lane.bytes_under_way != 0 && lane.bytes_under_way + bytes > kChunksUnderWay * chunk)
        break;
      if (way_ == Way::kBack && lane.next == lane.made && !make(lane)) break;
      if (channel::monotonic_ns() < not_before_ns_) break;
      if (!host_ready(backing.host_offset + lane.offset)) return true;
      if (end_ != MoveEnd::kDone) break;
      uint64_t run;
      char* host = host_arena_at(backing.host_offset + lane.offset, run);
      bytes = std::min(bytes, run);
      if (driver().cuCtxSetCurrent(lane.context) != CUDA_SUCCESS) {
        fail("the context cannot be used", CUDA_ERROR_INVALID_CONTEXT);
        break;
      }
      if (lane.address == 0) lane.address = begin_copying(backing);
      if (lane.address == 0) {
        fail("the driver would not map memory to copy it", CUDA_ERROR_MAP_FAILED);
        if (way_ == Way::kBack) end_ = MoveEnd::kNoDeviceMemory;
        break;
      }
      const CUdeviceptr from = lane.address + lane.offset;
      const bool times = !lane.times && bytes >= kTimedBytes &&
                         driver().cuEventRecord(lane.begun, lane.stream) == CUDA_SUCCESS;
      CUresult result = way_ == Way::kOut
                            ? driver().cuMemcpyDtoHAsync_v2(host, from, bytes, lane.stream)
                            : driver().cuMemcpyHtoDAsync_v2(from, host, bytes, lane.stream);
      const uint32_t slot = lane.newest % kMostUnderWay;
      if (result == CUDA_SUCCESS) result = driver().cuEventRecord(lane.done[slot], lane.stream);
      if (result != CUDA_SUCCESS) {
        copy_failed(lane, result);
        if (end_ != MoveEnd::kDone) break;
        // Nothing can be copied in that context any more; its memory is made all the same.
        end_backing(lane);
        moved_bytes_ += left;
        ++lane.next;
        any = true;
        continue;
      }
      lane.under_way[slot] = {lane.next, bytes, bytes == left};
      if (times) {
        lane.times = true;
        lane.timed = lane.newest;
      }
      ++lane.newest;
      lane.bytes_under_way += bytes;
      lane.offset += bytes;
      if (bytes == left) {
        ++lane.next;
        lane.offset = 0;
        lane.address = 0;
      }
      keep_pace(bytes);
      any = true;
    }
    return any;
  }

  // Whether the arena reaches beyond `offset`. Makes one piece of it ready where it does not yet;
  // the copies before run meanwhile. False: look again.
  bool host_ready(uint64_t offset) {
    if (offset < host_arena_bytes()) return true;
    Attachment* link = attachment.load(std::memory_order_acquire);
    const uint64_t allowance =
        link != nullptr ? channel::host_allowance(*link->control) : UINT64_MAX;
    const HostMemory made =
        prepare_host_arena(host_end_, allowance, backings_[0]->properties.location.id, reason_);
    if (made == HostMemory::kRefused) end_ = MoveEnd::kNoHostMemory;
    return made != HostMemory::kRefused && offset < host_arena_bytes();
  }

  // Device memory for the next backing. False: there is none.
  bool make(Lane& lane) {
    const CUresult result = restore_backing(*backings_[lane.made]);
    if (result == CUDA_SUCCESS) {
      ++lane.made;
      return true;
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      reason_ = "the GPU has not enough free memory";
      end_ = MoveEnd::kNoDeviceMemory;
    } else {
      fail("the driver gave no device memory back", result);
      end_ = MoveEnd::kNoDeviceMemory;
    }
    return false;
  }

  bool manage_memory(Lane& lane) {
    if (way_ == Way::kOut) {
      if (end_ != MoveEnd::kDone)
        lane.to_release = lane.safe;  // it comes back: what is there stays
      if (lane.to_release == lane.safe) return false;
      release_backing(*backings_[lane.to_release++]);
      return true;
    }
    if (end_ != MoveEnd::kDone || lane.made == lane.end ||
        lane.made - lane.next >= kBackingsAhead) {
      return false;
    }
    return make(lane);
  }

  // Of a way back that was broken off: new memory without its contents goes again; without enough
  // of it all does, so that it waits for the rest with nothing in its hands. The contents are in
  // the arena.
  void give_up_again(Lane& lane) {
    const uint32_t kept = end_ == MoveEnd::kNoDeviceMemory ? lane.first : lane.next;
    while (lane.made > kept) release_backing(*backings_[--lane.made]);
  }

  // A backing that was begun and is not copied to its end.
  void end_backing(Lane& lane) {
    if (lane.address != 0) end_copying(*backings_[lane.next]);
    lane.address = 0;
    lane.offset = 0;
  }

  void keep_pace(uint64_t bytes) {
    Attachment* link = attachment.load(std::memory_order_acquire);
    const uint64_t pace = link != nullptr ? channel::order_pace(*link->control) : 0;
    if (pace == 0) {
      not_before_ns_ = 0;
      return;
    }
    const uint64_t device_ns = bytes * 1'000'000'000 / pace;
    const uint64_t now = channel::monotonic_ns();
    not_before_ns_ = std::max(now, not_before_ns_) + channel::host_ns(*link->control, device_ns);
  }

  void wait() {
    const uint64_t now = channel::monotonic_ns();
    for (Lane& lane : lanes_) {
      if (lane.oldest == lane.newest) continue;
      driver().cuEventSynchronize(lane.done[lane.oldest % kMostUnderWay]);
      return;
    }
    if (not_before_ns_ <= now) return;
    const uint64_t ns = std::min(not_before_ns_ - now, kPaceSliceNs);
    const timespec pause{0, static_cast<long>(ns)};
    nanosleep(&pause, nullptr);
  }

  void publish() {
    if (Attachment* link = attachment.load(std::memory_order_acquire)) {
      channel::publish_moving(*link->client, all_bytes_, moved_bytes_);
    }
  }

  const Way way_;
  const GoesOn goes_on_;
  MoveEnd end_ = MoveEnd::kDone;
  const char* reason_ = "";
  bool assign_ = false;
  Backing** backings_ = nullptr;
  uint64_t room_ = 0;
  uint64_t all_bytes_ = 0;
  uint64_t moved_bytes_ = 0;
  uint64_t best_rate_ = 0;  // bytes a second of device time
  uint64_t host_end_ = 0;
  uint64_t not_before_ns_ = 0;
  Lane lanes_[channel::kMaxDevices] = {};
};

uint64_t bytes_where(bool present, uint32_t device) {
  struct Sum {
    bool present;
    uint32_t device;
    uint64_t bytes;
  } sum{present, device, 0};
  visit_backings(
      [](Backing& backing, void* data) {
        Sum& adding = *static_cast<Sum*>(data);
        const bool there = adding.device == kNoDevice || backing.device == adding.device;
        if (there && backing.present == adding.present) adding.bytes += backing.bytes;
        return true;
      },
      &sum);
  return sum.bytes;
}

}  // namespace

MoveResult move_out(GoesOn goes_on) { return Move(Way::kOut, goes_on).run(); }
MoveResult move_back(GoesOn goes_on) { return Move(Way::kBack, goes_on).run(); }
uint64_t present_bytes() { return bytes_where(/*present=*/true, kNoDevice); }
uint64_t absent_bytes(uint32_t device) { return bytes_where(/*present=*/false, device); }

}  // namespace lull::shim
