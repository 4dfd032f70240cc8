// Allocations, mappings, copies and frees at random, against a model of the contents that knows
// nothing of the driver: every byte that is read has to be the one that was written last.
#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "tests/seed.h"
#include "tests/simgpu/driver/virtual_memory.h"

using namespace sim_test;

namespace {

using Bytes = std::vector<unsigned char>;

// Memory as the program thinks of it: what was put in.
struct Block {
  Bytes bytes;
  size_t reserved = 0;                      // what the device counts
  CUmemGenericAllocationHandle handle = 0;  // 0: plain memory
  CUdeviceptr address = 0;                  // of plain memory
  bool released = false;
  int mappings = 0;
};

class RandomMemory {
 public:
  explicit RandomMemory(unsigned seed) : random_(seed), begin_free_(free_bytes()) {
    OK(cuMemAddressReserve(&place_, kSlots * kUnit, 0, 0, 0));
    for (CUstream& stream : streams_) OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }

  void step() {
    switch (below(12)) {
      case 0:
        return allocate();
      case 1:
        return create();
      case 2:
        return free_plain();
      case 3:
        return release();
      case 4:
      case 5:
        return map();
      case 6:
        return unmap();
      case 7:
        return fill();
      case 8:
        return write();
      case 9:
        return copy();
      default:
        return read();
    }
  }

  // Everything, and nothing is lost on the device.
  void check_all() {
    for (auto& [id, block] : blocks_) {
      for (const CUdeviceptr at : places_of(block)) check(at, block, 0, block.bytes.size());
    }
    size_t held = 0;
    for (auto& [id, block] : blocks_) held += block.reserved;
    CHECK(begin_free_ - free_bytes() == held);
  }

  void end() {
    check_all();
    for (auto& slot : slots_) {
      if (slot.second.first)
        OK(cuMemUnmap(place_ + slot.first * kUnit, slot.second.second * kUnit));
    }
    for (auto& [id, block] : blocks_) {
      if (block.handle == 0) OK(cuMemFree_v2(block.address));
      if (block.handle != 0 && !block.released) OK(cuMemRelease(block.handle));
    }
    OK(cuMemAddressFree(place_, kSlots * kUnit));
    CHECK(begin_free_ == free_bytes());
  }

 private:
  static constexpr size_t kSlots = 12;
  static constexpr size_t kMostBlocks = 10;

  size_t below(size_t bound) {
    return std::uniform_int_distribution<size_t>(0, bound - 1)(random_);
  }

  Block* any_block(bool touchable) {
    std::vector<Block*> found;
    for (auto& [id, block] : blocks_) {
      if (!touchable || !places_of(block).empty()) found.push_back(&block);
    }
    return found.empty() ? nullptr : found[below(found.size())];
  }

  std::vector<CUdeviceptr> places_of(const Block& block) {
    if (block.handle == 0) return {block.address};
    std::vector<CUdeviceptr> found;
    for (const auto& [slot, mapping] : slots_) {
      if (mapping.first == &block) found.push_back(place_ + slot * kUnit);
    }
    return found;
  }

  // A block, a place where it is, and a stretch of it that is there.
  struct Stretch {
    Block* block = nullptr;
    CUdeviceptr at = 0;
    size_t offset = 0;
    size_t bytes = 0;
  };
  Stretch any_stretch() {
    Stretch stretch;
    stretch.block = any_block(true);
    if (stretch.block == nullptr) return stretch;
    const auto places = places_of(*stretch.block);
    stretch.at = places[below(places.size())];
    const size_t size = stretch.block->bytes.size();
    stretch.offset = below(size);
    stretch.bytes = 1 + below(std::min<size_t>(size - stretch.offset, 300'000));
    return stretch;
  }

  void allocate() {
    if (blocks_.size() >= kMostBlocks) return;
    static constexpr size_t kSizes[] = {1, 700, 70'000, 1 << 20, 3'000'001};
    Block block;
    block.bytes.assign(kSizes[below(std::size(kSizes))], kFreshByte);
    const size_t before = free_bytes();
    OK(cuMemAlloc_v2(&block.address, block.bytes.size()));
    block.reserved = before - free_bytes();
    CHECK(block.reserved >= block.bytes.size());
    blocks_.emplace(next_++, block);
  }

  void create() {
    if (blocks_.size() >= kMostBlocks) return;
    Block block;
    block.bytes.assign((1 + below(3)) * kUnit, kFreshByte);
    block.reserved = block.bytes.size();
    block.handle = make_memory(block.bytes.size());
    blocks_.emplace(next_++, block);
  }

  void forget(Block* gone) {
    std::erase_if(blocks_, [&](const auto& entry) { return &entry.second == gone; });
  }

  void free_plain() {
    Block* const block = any_block(false);
    if (block == nullptr || block->handle != 0) return;
    OK(cuMemFree_v2(block->address));
    forget(block);
  }

  void release() {
    Block* const block = any_block(false);
    if (block == nullptr || block->handle == 0 || block->released) return;
    OK(cuMemRelease(block->handle));
    block->released = true;
    if (block->mappings == 0) forget(block);
  }

  void map() {
    Block* const block = any_block(false);
    if (block == nullptr || block->handle == 0 || block->released) return;
    const size_t units = block->bytes.size() / kUnit;
    const size_t slot = below(kSlots - units + 1);
    const bool taken = std::ranges::any_of(slots_, [&](const auto& other) {
      return other.first < slot + units && slot < other.first + other.second.second;
    });
    const CUdeviceptr at = place_ + slot * kUnit;
    const CUresult result = cuMemMap(at, units * kUnit, 0, block->handle, 0);
    REQUIRE(result == (taken ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS));
    if (taken) return;
    OK(allow(at, units * kUnit));
    slots_[slot] = {block, units};
    ++block->mappings;
  }

  void unmap() {
    if (slots_.empty()) return;
    const auto found = std::next(slots_.begin(), static_cast<ptrdiff_t>(below(slots_.size())));
    OK(cuMemUnmap(place_ + found->first * kUnit, found->second.second * kUnit));
    Block* const block = found->second.first;
    slots_.erase(found);
    if (--block->mappings == 0 && block->released) forget(block);
  }

  void fill() {
    const Stretch to = any_stretch();
    if (to.block == nullptr) return;
    const auto value = static_cast<unsigned char>(below(256));
    OK(cuMemsetD8Async(to.at + to.offset, value, to.bytes, streams_[0]));
    std::memset(to.block->bytes.data() + to.offset, value, to.bytes);
    finish(0);
  }

  void write() {
    const Stretch to = any_stretch();
    if (to.block == nullptr) return;
    Bytes host(to.bytes);
    for (unsigned char& byte : host) byte = static_cast<unsigned char>(random_());
    OK(cuMemcpyHtoDAsync_v2(to.at + to.offset, host.data(), to.bytes, streams_[1]));
    std::memcpy(to.block->bytes.data() + to.offset, host.data(), to.bytes);
    finish(1);
  }

  void copy() {
    const Stretch from = any_stretch();
    Stretch to = any_stretch();
    if (from.block == nullptr || to.block == from.block) return;
    const size_t bytes = std::min(from.bytes, to.bytes);
    OK(cuMemcpyDtoDAsync_v2(to.at + to.offset, from.at + from.offset, bytes, streams_[0]));
    std::memcpy(to.block->bytes.data() + to.offset, from.block->bytes.data() + from.offset, bytes);
    finish(0);
  }

  void read() {
    const Stretch from = any_stretch();
    if (from.block != nullptr) check(from.at, *from.block, from.offset, from.bytes);
  }

  void check(CUdeviceptr at, const Block& block, size_t offset, size_t bytes) {
    Bytes host(bytes);
    OK(cuMemcpyDtoH_v2(host.data(), at + offset, bytes));
    const auto wrong = std::mismatch(host.begin(), host.end(),
                                     block.bytes.begin() + static_cast<ptrdiff_t>(offset));
    INFO("byte " << offset + static_cast<size_t>(wrong.first - host.begin()));
    REQUIRE(wrong.first == host.end());
  }

  // Streams run beside each other; the model does one thing after the other.
  void finish(int stream) { OK(cuStreamSynchronize(streams_[stream])); }

  std::mt19937 random_;
  const size_t begin_free_;
  CUdeviceptr place_ = 0;
  CUstream streams_[2] = {};
  std::map<unsigned, Block> blocks_;
  std::map<size_t, std::pair<Block*, size_t>> slots_;  // first unit -> block and units
  unsigned next_ = 0;
};

}  // namespace

TEST_CASE("whatever is allocated, mapped, copied and freed, every byte is the one written last") {
  const auto seed = static_cast<unsigned>(lull::tests::test_seed()) + GENERATE(0u, 1u, 2u);
  CAPTURE(seed);
  Program program;
  RandomMemory memory(seed);
  for (int i = 0; i < 400; ++i) memory.step();
  memory.end();
}
