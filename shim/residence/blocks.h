// Blocks: memory for one allocation, as a piece of a slab or with physical memory of its own;
// making them and giving them back, their place in the tables included. Any thread; nothing waits
// here.
#pragma once

#include "shim/residence/backings.h"

namespace lull::shim {

struct Block {
  RecordHead head;
  uint64_t address;
  uint64_t bytes;    // as asked for
  uint64_t taken;    // of its backing
  uint64_t counted;  // by device_memory
  uint64_t id;
  CUcontext context;
  Backing* backing;
  CUmemoryPool pool;    // null: none, or it is no more
  bool stream_ordered;  // outlives its context
  bool live;            // false: it is being freed
  // Waiting. No event: freed during a capture, until its context can be waited for.
  CUevent event;
  CUcontext event_context;
  uint64_t stream_id;
  bool in_hand;  // a thread has taken it from the list, and may be waiting for its event
  Block* next;
};

// What is wanted.
struct Order {
  uint64_t bytes;
  CUcontext context;
  CUdevice ordinal;
  uint32_t device;
  CUmemoryPool pool;
  bool stream_ordered;
  uint64_t stream_id;
};

// What a block takes of its device.
uint64_t taken_by(const Order& order);
// The driver's error where there is none to be had.
CUresult make_block(const Order& order, CUdeviceptr& address);
// Of a block that nothing uses any more. One empty slab of a device is kept for what comes next.
void give_block(Block& block);
void drop_empty_slabs(CUdevice ordinal);
// Of slabs, in no allocation: free as the program sees it.
uint64_t unused_slab_bytes(CUdevice ordinal);
// The pool is no more; what came from it stays.
void pool_of_blocks_gone(CUmemoryPool pool);
void forget_blocks();

// --- under arena_lock ---
// The allocation that holds the address; null. `live` only.
Block* block_at(const Mapping& mapping, uint64_t address);
void fill_block(Block& block, const Order& order, Backing& backing, uint64_t address,
                uint64_t taken);
Records<Block>& all_blocks();

}  // namespace lull::shim
