// The checkpoint of this process: what its restore thread (the service thread, effects.h) does when
// somebody asks for it through the device (checkpoint_record.h).
#pragma once

#include "tools/simgpu/device/device.h"

namespace simgpu::driver {

// Takes one step towards what was asked, if anything was; returns when to come again at the latest
// (model time). On the restore thread, with no lock held.
ModelNs attend_requests();

}  // namespace simgpu::driver
