// What an allocation and its free cost a program: the driver alone, under liblull.so, and under it
// in a process whose memory can be moved (its allocations are then mapped by the shim).
//
// Over the empty driver: processor time of lull alone. Over the simulated GPU: time that passes,
// with what the measured profile says that mapping takes; there a plain allocation takes no time,
// which no real driver manages, so that only the difference says something.
#pragma once

#include <filesystem>

namespace lull::bench {

int run_allocations(const std::filesystem::path& self, const std::filesystem::path& libraries,
                    bool json);
// The measured program: prints {"small_ns":..,"medium_ns":..,"large_ns":..}.
int run_allocator();

}  // namespace lull::bench
