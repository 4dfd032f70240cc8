// Events as the raw bytes of one block and back. Fields of one meaning stand together (a column
// each), as differences to what was to be expected: a launch mostly costs its kernel and the time
// since the last one, a timing its duration and gap. What is expected is learnt from the block
// itself and from nothing before it, but for the number of kernels defined so far.
//
// Used by Writer and Reader; one thread at a time. The decoder trusts nothing: it never reads
// beyond the block, holds memory in proportion to it, and says "bad" for what no encoder writes.
// Whether indices name something that was defined is the Reader's question.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "coordinator/trace/byte_stream.h"
#include "coordinator/trace/events.h"

namespace lull::trace {

namespace codec {

enum Column : size_t {
  kKinds,  // a byte an event: index in the variant
  kRare,   // everything that is neither launch nor timing, whole
  kLanes,  // definitions of lanes, in order of their first use
  kLaunchLane,
  kLaunchKernel,
  kLaunchSequence,  // distance from the stream's next
  kLaunchAt,        // distance from the thread's last
  kLaunchFlags,
  kLaunchMore,  // held, held by, bytes: where a flag says so
  kTimingLane,
  kTimingKernel,  // where it is not that of the launch
  kTimingSequence,
  kTimingFlags,
  kTimingStart,     // distance from the end of the last one and its gap
  kTimingDuration,  // distance from the kernel's last; low byte
  kTimingGap,       // distance from the kernel's last; low byte
  kTimingDurationHigh,
  kTimingGapHigh,
  kLaunchAtHigh,
  kColumns,
};

// What the coding of one event expects of the next; the same on both sides.
struct Expectation {
  struct Lane {
    ClientId client;
    DeviceId device;
    ThreadSlot thread;
    StreamSlot stream;
    size_t thread_place = 0, stream_place = 0, client_place = 0;
  };
  struct Thread {
    uint64_t at = 0;
  };
  struct Stream {
    uint64_t launched = 0;  // sequence
    uint64_t timed = 0;
    uint64_t first = 0;  // sequence of kernels[0]
    std::vector<KernelIndex> kernels;
  };
  struct Client {
    uint64_t start = 0;  // of its next timing
  };
  struct Kernel {
    uint64_t duration = 0, gap = 0;
  };
  static constexpr size_t kKernels = 1024;
  static constexpr KernelIndex kNoKernel = UINT32_MAX;

  size_t add_launch_lane(const Lane& lane);
  size_t add_timing_lane(const Lane& lane);
  void launched(const Lane& lane, uint64_t sequence, KernelIndex kernel);
  KernelIndex kernel_of(const Lane& lane, uint64_t sequence) const;
  Kernel& kernel(KernelIndex index) { return kernels[index % kKernels]; }
  void clear();

  std::vector<Lane> launch_lanes, timing_lanes;
  std::vector<Thread> threads;
  std::vector<Stream> streams;
  std::vector<Client> clients;
  std::unordered_map<uint64_t, size_t> thread_places, stream_places, client_places;
  std::vector<Kernel> kernels = std::vector<Kernel>(kKernels);

 private:
  void place(Lane& lane);
};

}  // namespace codec

class BlockEncoder {
 public:
  void add(const Event& event);
  bool empty() const { return columns_[codec::kKinds].size() == 0; }
  size_t size() const { return size_; }  // about as long as the block would be
  // The block's raw bytes; the encoder begins anew.
  std::vector<uint8_t> take();

 private:
  void put(const Launch& launch);
  void put(const Timing& timing);
  size_t launch_lane(const Launch& launch);
  size_t timing_lane(const Timing& timing);

  std::array<ByteSink, codec::kColumns> columns_;
  codec::Expectation expected_;
  std::unordered_map<uint64_t, size_t> launch_lane_of_, timing_lane_of_;
  size_t last_launch_lane_ = 0, last_timing_lane_ = 0;
  size_t size_ = 0;
};

class BlockDecoder {
 public:
  enum class Result { kEvent, kEnd, kBad };
  // `raw` must stay until the block is read. False: it is no block of events.
  bool begin(std::span<const uint8_t> raw);
  // `kernels`: how many are defined so far; the next KernelInfo gets this index.
  Result next(Event& event, KernelIndex kernels);

 private:
  bool get(Launch& launch);
  bool get(Timing& timing);
  bool rare(Event& event, size_t kind, KernelIndex kernels);

  std::array<ByteSource, codec::kColumns> columns_;
  codec::Expectation expected_;
};

// Whether times, lengths and levels are what they can be. Neither written nor read otherwise.
bool is_sane(const Event& event);

// The file's head block.
std::vector<uint8_t> encode_info(const FileInfo& info);
bool decode_info(std::span<const uint8_t> raw, FileInfo& info);

}  // namespace lull::trace
