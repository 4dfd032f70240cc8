// The kernels that lull-device-probe loads a device with, as PTX text: compiled by the driver at
// start, so one text serves every architecture.
//
// load_ptx(), compute capability 5.2 and newer:
//   held(block_ns, spin_ns)                  each block keeps its place for block_ns of running:
//   time
//     in which the device ran another process does not count. One thread looks at the clock, the
//     others wait at a barrier and take no issue slots.
//   multiply_add(out, rounds, spin_ns)       outer products in registers, operands from shared
//     memory, as a matrix multiplication without tensor cores; out[thread] = 16 rounds
//   stream(from, to, loops, rounds, spin_ns) copies 4 loops 16-byte elements a thread, rounds times
//   reread(from, out, loops, rounds, spin_ns) reads as many past the first-level cache and adds
//     up; out[thread] = 16 loops rounds where every word of `from` is 1
// tensor_ptx(), 8.0 and newer:
//   multiply(out, rounds, spin_ns)           the same on tensor cores: a warp multiplies 16 x 16 by
//     16 x 64 halves a round; out[thread] = 512 rounds
//
// The simulated GPU runs no code and takes spin_ns as each kernel's cost. `rounds` is at least 1.
// All but `held` use at most 64 registers a thread, so that two kernels of kLoadThreads threads
// fit on one multiprocessor. Pure text; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace lull::probe {

inline constexpr uint32_t kLoadThreads = 512;

std::string load_ptx();
std::string tensor_ptx();

}  // namespace lull::probe
