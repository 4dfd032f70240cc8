// Which GPUs the program sees, and which ones they really are. A process that can change GPU has to
// see all of the machine's (a driver's restore names every one), its own first;
// LULL_VISIBLE_DEVICES=k says how many those are, and the shim hides the rest. No ordinal is ever
// translated.
//
//   ordinal   0 .. k-1 | k ..                         after a move 0 -> the GPU that was 2:
//             shown    | as if there were none        its UUID is the new one by the driver; its
//             bus ids
//                                                     by the table of who was where at cuInit
//
// Without LULL_VISIBLE_DEVICES all is as the driver says. Any thread.
#pragma once

#include <stdint.h>

#include "shim/driver.h"

namespace lull::shim {

// How many of `count` devices the program sees.
int visible_count(int count);
inline bool is_hidden(CUdevice ordinal) { return ordinal >= visible_count(ordinal + 1); }
// After cuInit.
void remember_devices();
// Where the GPU that is now at that ordinal stood at cuInit. `ordinal` itself: it has not moved.
CUdevice first_place_of(CUdevice ordinal);
// And the other way round. -1: nowhere.
CUdevice present_place_of(CUdevice first_place);
// What its PCI addresses were at cuInit; false: not known.
struct PciPlace {
  char bus_id[32];
  int domain;
  int bus;
  int device;
};
bool pci_place(CUdevice first_place, PciPlace& place);

}  // namespace lull::shim
