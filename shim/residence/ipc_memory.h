// CUDA's legacy interprocess handles for memory of the arena, which the driver cannot export that
// way: the handle names a socket, and the memory goes through it as a descriptor.
//
//   exporter                                           importer (any process under the shim)
//   cuIpcGetMemHandle: memory is fixed, handle ------> cuIpcOpenMemHandle: connect, ask
//   its thread: export, descriptor <-----------------> import, map; counted by allocation and
//   context
//
// The socket has an abstract name with 64 random bits; both sides take only peers of their own
// user, and the network namespace has to be the same. A thread of its own serves it, from the first
// export on; it blocks all signals, holds no lock while it waits, and dies with the process. A fork
// child has none. Where the exporter's context is away the importer waits until it is back or its
// process has ended, and can be moved meanwhile.
#pragma once

#include "shim/driver.h"

namespace lull::shim {

// Each true: dealt with. False: the driver's.
bool ipc_export(CUdeviceptr address, CUipcMemHandle* handle, CUresult& result);
bool ipc_open(const CUipcMemHandle& handle, CUdeviceptr* address, CUresult& result);
bool ipc_close(CUdeviceptr address, CUresult& result);
void ipc_context_gone(CUcontext context);
void lock_ipc_memory();
void unlock_ipc_memory();
void forget_ipc_memory();  // fork child

}  // namespace lull::shim
