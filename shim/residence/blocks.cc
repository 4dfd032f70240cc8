#include "shim/residence/blocks.h"

#include <sys/mman.h>

#include "shim/residence/mapped_memory.h"
#include "shim/residence/peer_access.h"
#include "shim/residence/pools.h"
#include "shim/residence/service.h"
#include "shim/residence/slab.h"
#include "shim/thread_state.h"

namespace lull::shim {

namespace {

constexpr uint64_t kUnitBytes = 512;          // and the alignment; the driver's is 256 at least
constexpr uint64_t kSmallBytes = 1ULL << 20;  // from here on the driver, too, takes whole 2 MiB
constexpr uint64_t kSlabBytes = 32ULL << 20;
constexpr uint64_t kSmallSlabBytes = 2ULL << 20;  // where there is no room for more

struct Piece {  // of a device's memory: a slab and where it is
  RecordHead head;
  Slab slab;
  Backing* backing;
  Piece* next;
};

// All under arena_lock.
Records<Block> blocks;
Records<Piece> pieces;
Piece* slabs[kMaxOrdinals];
std::atomic<uint64_t> unused[kMaxOrdinals];  // read without it as well

uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }
bool is_small(const Order& order) { return order.bytes < kSmallBytes; }

// New physical memory with its place in the tables. Its Mapping is the only one it has.
CUresult make_backing(const Order& order, uint64_t bytes, Backing*& backing) {
  uint8_t access[kMaxOrdinals];
  uint64_t generation;
  {
    Locked locked(arena_lock);
    fill_access(order.ordinal, access);
    generation = access_generation();
  }
  MappedMemory made;
  const CUresult result = make_mapped(order.ordinal, bytes, access, made);
  if (result != CUDA_SUCCESS) return result;
  bool whole = false;
  {
    Locked locked(arena_lock);
    backing = add_backing(made.handle, bytes, made.properties, order.device);
    Mapping* mapping = backing != nullptr ? add_mapping(*backing, made.address, bytes, 0) : nullptr;
    whole = mapping != nullptr;
    if (whole) {
      backing->ours = true;
      // What was granted or taken back meanwhile.
      fill_access(order.ordinal, mapping->access);
      if (generation != access_generation()) {
        OwnCall own(thread_state);
        for (int ordinal = 0; ordinal < kMaxOrdinals; ++ordinal) {
          if (mapping->access[ordinal] != access[ordinal]) {
            change_access(made.address, bytes, ordinal, mapping->access[ordinal]);
          }
        }
      }
    } else if (backing != nullptr) {
      remove_backing(*backing);
    }
  }
  if (!whole) {
    drop_mapped(made.address, bytes, made.handle, /*is_mapped=*/true);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  tell_service();
  return CUDA_SUCCESS;
}

// Out of the tables, under arena_lock; what the driver has to do then, without it.
struct Leaving {
  CUdeviceptr address;
  uint64_t bytes;
  CUmemGenericAllocationHandle handle;
  bool present;
};
Leaving take_out(Backing& backing) {
  Mapping& mapping = *backing.mappings;
  const Leaving leaving{mapping.address, backing.bytes, backing.handle, backing.present};
  remove_mapping(mapping);
  remove_backing(backing);
  return leaving;
}
void let_go(const Leaving& leaving) {
  drop_mapped(leaving.address, leaving.bytes, leaving.handle, leaving.present);
  tell_service();
}

// Under arena_lock. The slab of that number of units is no longer one.
Leaving take_out_slab(Piece& piece) {
  Backing& backing = *piece.backing;
  const CUdevice ordinal = backing.properties.location.id;
  Piece** link = &slabs[ordinal];
  while (*link != &piece) link = &(*link)->next;
  *link = piece.next;
  unused[ordinal].fetch_sub(piece.slab.free_units() * kUnitBytes, std::memory_order_relaxed);
  munmap(piece.slab.tables(), Slab::table_bytes(piece.slab.units()));
  pieces.give(&piece);
  return take_out(backing);
}

// ---- small allocations --------------------------------------------------------------------------

// Under arena_lock. From slabs that are there.
Block* take_piece(const Order& order, uint32_t units) {
  Block* block = blocks.take();
  if (block == nullptr) return nullptr;
  for (Piece* piece = slabs[order.ordinal]; piece != nullptr; piece = piece->next) {
    if (piece->backing->fixed != Fixed::kNot) continue;
    const uint32_t first = piece->slab.take(units, block->head.index);
    if (first == Slab::kNone) continue;
    unused[order.ordinal].fetch_sub(units * kUnitBytes, std::memory_order_relaxed);
    fill_block(*block, order, *piece->backing,
               piece->backing->mappings->address + first * kUnitBytes, units * kUnitBytes);
    return block;
  }
  blocks.give(block);
  return nullptr;
}

CUresult add_slab(const Order& order) {
  const uint64_t granularity = granularity_of(order.ordinal);
  Backing* backing = nullptr;
  uint64_t bytes = round_up(kSlabBytes, granularity);
  CUresult result = make_backing(order, bytes, backing);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    bytes = round_up(kSmallSlabBytes, granularity);
    result = make_backing(order, bytes, backing);
  }
  if (result != CUDA_SUCCESS) return result;
  const auto units = static_cast<uint32_t>(bytes / kUnitBytes);
  void* tables = map_pages(Slab::table_bytes(units));
  Leaving leaving;
  {
    Locked locked(arena_lock);
    Piece* piece = tables != nullptr ? pieces.take() : nullptr;
    if (piece != nullptr) {
      piece->slab.open(tables, units);
      piece->backing = backing;
      piece->next = slabs[order.ordinal];
      slabs[order.ordinal] = piece;
      backing->slab = &piece->slab;
      unused[order.ordinal].fetch_add(bytes, std::memory_order_relaxed);
      return CUDA_SUCCESS;
    }
    leaving = take_out(*backing);
  }
  if (tables != nullptr) munmap(tables, Slab::table_bytes(units));
  let_go(leaving);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult allocate_small(const Order& order, CUdeviceptr& address) {
  const auto units = static_cast<uint32_t>(round_up(order.bytes, kUnitBytes) / kUnitBytes);
  for (;;) {
    {
      Locked locked(arena_lock);
      if (const Block* block = take_piece(order, units)) {
        address = block->address;
        return CUDA_SUCCESS;
      }
    }
    const CUresult result = add_slab(order);
    if (result != CUDA_SUCCESS) return result;
  }
}

CUresult allocate_large(const Order& order, CUdeviceptr& address) {
  const uint64_t bytes = round_up(order.bytes, granularity_of(order.ordinal));
  if (bytes < order.bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  Backing* backing = nullptr;
  const CUresult result = make_backing(order, bytes, backing);
  if (result != CUDA_SUCCESS) return result;
  Leaving leaving;
  {
    Locked locked(arena_lock);
    Block* block = blocks.take();
    if (block != nullptr) {
      fill_block(*block, order, *backing, backing->mappings->address, bytes);
      backing->block = block;
      address = block->address;
      return CUDA_SUCCESS;
    }
    leaving = take_out(*backing);
  }
  let_go(leaving);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

Piece* piece_of(const Backing& backing) {
  for (Piece* piece = slabs[backing.properties.location.id]; piece != nullptr;
       piece = piece->next) {
    if (piece->backing == &backing) return piece;
  }
  return nullptr;
}

}  // namespace

uint64_t taken_by(const Order& order) {
  return round_up(order.bytes, is_small(order) ? kUnitBytes : granularity_of(order.ordinal));
}

// Under arena_lock.
void fill_block(Block& block, const Order& order, Backing& backing, uint64_t address,
                uint64_t taken) {
  block.address = address;
  block.bytes = order.bytes;
  block.taken = taken;
  block.counted = round_up(order.bytes, kUnitBytes);
  block.id = new_buffer_id();
  block.context = order.context;
  block.backing = &backing;
  block.pool = order.pool;
  block.stream_ordered = order.stream_ordered;
  block.live = true;
  change_counted(backing, static_cast<int64_t>(block.counted));
}

CUresult make_block(const Order& order, CUdeviceptr& address) {
  return is_small(order) ? allocate_small(order, address) : allocate_large(order, address);
}

// Nothing uses it any more. One empty slab of a device is kept for what comes next.
void give_block(Block& block) {
  Leaving leaving;
  {
    Locked locked(arena_lock);
    Backing& backing = *block.backing;
    give_to_pool(block.pool, block.taken);
    change_counted(backing, -static_cast<int64_t>(block.counted));
    const uint64_t offset = block.address - backing.mappings->address;
    const auto units = static_cast<uint32_t>(block.taken / kUnitBytes);
    blocks.give(&block);
    if (backing.slab == nullptr) {
      leaving = take_out(backing);
    } else {
      backing.slab->give(static_cast<uint32_t>(offset / kUnitBytes));
      const CUdevice ordinal = backing.properties.location.id;
      const uint64_t before =
          unused[ordinal].fetch_add(units * kUnitBytes, std::memory_order_relaxed);
      // Another one that is empty, or as good as.
      if (!backing.slab->is_empty() ||
          before + units * kUnitBytes < backing.bytes + kSlabBytes / 2) {
        return;
      }
      leaving = take_out_slab(*piece_of(backing));
    }
  }
  let_go(leaving);
}

void drop_empty_slabs(CUdevice ordinal) {
  for (;;) {
    Leaving leaving;
    {
      Locked locked(arena_lock);
      Piece* piece = slabs[ordinal];
      while (piece != nullptr && !piece->slab.is_empty()) piece = piece->next;
      if (piece == nullptr) return;
      leaving = take_out_slab(*piece);
    }
    let_go(leaving);
  }
}

Block* block_at(const Mapping& mapping, uint64_t address) {
  const Backing& backing = *mapping.backing;
  Block* block = backing.block;
  if (backing.slab != nullptr) {
    const uint32_t first =
        backing.slab->piece_at(static_cast<uint32_t>((address - mapping.address) / kUnitBytes));
    block = first != Slab::kNone ? blocks.at(backing.slab->word(first)) : nullptr;
  }
  return block != nullptr && block->live && address - block->address < block->bytes ? block
                                                                                    : nullptr;
}

uint64_t unused_slab_bytes(CUdevice ordinal) {
  return ordinal >= 0 && ordinal < kMaxOrdinals ? unused[ordinal].load(std::memory_order_relaxed)
                                                : 0;
}

void pool_of_blocks_gone(CUmemoryPool pool) {
  Locked locked(arena_lock);
  for (uint32_t n = 0; n < blocks.count(); ++n) {
    Block& block = *blocks.at(n);
    if (block.head.in_use && block.pool == pool) block.pool = nullptr;
  }
}

Records<Block>& all_blocks() { return blocks; }

void forget_blocks() {
  blocks.forget();
  pieces.forget();
  for (auto& slab : slabs) slab = nullptr;
  for (auto& bytes : unused) bytes.store(0, std::memory_order_relaxed);
}

}  // namespace lull::shim
