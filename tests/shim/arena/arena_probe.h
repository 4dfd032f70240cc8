// What the shim of the tests can be asked beyond what liblull.so exports: its arena, from the
// thread that calls, as the service thread would. No work of the program's may be under way.
#pragma once

#include <cstdint>

extern "C" {
// Copies all that can be swapped to the host and gives its memory away. Bytes; below 0: the
// driver's error.
int64_t arena_probe_out(void);
// And back. 0, or the driver's error: then still out, as far as it had not come back.
int arena_probe_back(void);
uint64_t arena_probe_swappable(uint32_t device);
uint64_t arena_probe_fixed(uint32_t device);
const char* arena_probe_reason(void);
uint32_t arena_probe_absent(void);              // backings
uint64_t arena_probe_counted(uint32_t device);  // by device_memory
// Host memory for so many bytes, on behalf of device 0. 0: ready; 1: refused, with the reason.
int arena_probe_host(uint64_t wanted_bytes, uint64_t allowance_bytes, const char** reason);
uint64_t arena_probe_host_at(uint64_t offset);  // its address
void arena_probe_host_trim(void);               // gives all of it back
// What the driver itself says is free on the current device.
uint64_t arena_probe_driver_free(void);
}
