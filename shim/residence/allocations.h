// The program's allocations in the arena: small ones are pieces of slabs, each larger one has
// physical memory of its own. Any thread.
//
//   allocate --> live --free--> (its context's work has ended) --> gone
//                  |  ^
//      free in     |  | allocation in the same stream, of the same size
//      stream order v  |
//                waiting: an event is behind it in its stream --> gone
//
// Each call answers true when the arena has dealt with it, `result` then being what the program
// gets. False: it is the driver's. So is all that is out of the ordinary, errors included: they are
// the driver's own words.
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
  Block* next;
};

bool arena_allocate(uint64_t bytes, CUdeviceptr* address, CUresult& result);
bool arena_allocate_pitch(uint64_t width, uint64_t height, unsigned element, CUdeviceptr* address,
                          size_t* pitch, CUresult& result);
// `pool` null: the one that is current on the stream's device. The stream is not capturing.
bool arena_allocate_in_stream(uint64_t bytes, CUmemoryPool pool, CUstream stream,
                              CUdeviceptr* address, CUresult& result);
bool arena_free(CUdeviceptr address, CUresult& result);
bool arena_free_in_stream(CUdeviceptr address, CUstream stream, CUresult& result);

// After an allocation that the arena left to the driver.
void note_unmapped_memory();

// The pool is no more; what came from it stays.
void pool_of_blocks_gone(CUmemoryPool pool);
void forget_allocations();
// Of slabs, in no allocation: free as the program sees it.
uint64_t unused_slab_bytes(CUdevice ordinal);

// Under arena_lock. The allocation that holds the address; null. `live` only.
Block* block_at(const Mapping& mapping, uint64_t address);

}  // namespace lull::shim
