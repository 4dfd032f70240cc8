// PTX for a workload's kernels: each distinct name becomes one entry that keeps the device busy
// for a given time and touches nothing of the program's memory. Pure text; any thread.
//
//   .visible .entry NAME(.param .u64 spin_ns, .param .u64 start_word, .param .u64 ticket)
//
// The grid may be larger than the device holds at once: its blocks then come in waves, which must
// not add up. So the launch as a whole lasts spin_ns: the first block to arrive writes its clock
// into the stream's start word, and every block ends once spin_ns have passed since then; a block
// of a later wave ends at once. One word serves all launches of a stream, which never overlap:
//
//   start word = [ ticket, low 16 bits | %globaltimer, low 48 bits ]
//
// A word with another launch's ticket is replaced (atom.cas), by whoever comes first. Only one
// thread of a block waits; the block keeps its place on the device until that thread ends.
// The time in which the device ran another process is no time of this kernel: a block that finds
// more than 50,000 cycles between two looks at its clock was away, and the first to notice moves
// the start word on by that long.
// simgpu never runs this: there the parameter named spin_ns is the kernel's cost.
#pragma once

#include <string>
#include <vector>

#include "tools/play/workload.h"

namespace lull::play {

// The escaped name (kernel_name.h) of each kernel of the workload, by index.
std::vector<std::string> entry_names(const Workload& workload);
// One module with every distinct entry; compute capability 5.2 and newer.
std::string spin_module_ptx(const std::vector<std::string>& names);

}  // namespace lull::play
