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
// gets: out of memory too, so that a full device never turns a movable allocation into one that
// stays. False: it is the driver's. So is all else that is out of the ordinary, errors included:
// they are the driver's own words.
#pragma once

#include "shim/residence/blocks.h"

namespace lull::shim {

bool arena_allocate(uint64_t bytes, CUdeviceptr* address, CUresult& result);
bool arena_allocate_pitch(uint64_t width, uint64_t height, unsigned element, CUdeviceptr* address,
                          size_t* pitch, CUresult& result);
// `pool` null: the one that is current on the stream's device. The stream is not capturing.
bool arena_allocate_in_stream(uint64_t bytes, CUmemoryPool pool, CUstream stream,
                              CUdeviceptr* address, CUresult& result);
bool arena_free(CUdeviceptr address, CUresult& result);
bool arena_free_in_stream(CUdeviceptr address, CUstream stream, CUresult& result);

// After an allocation that the arena left to the driver.
Fixed why_unmapped();

void forget_allocations();

}  // namespace lull::shim
