// Who else may touch the program's memory: peers of the process, other processes.
#include "shim/hooks/moves.h"
#include "shim/residence/ipc_memory.h"
#include "shim/residence/memory_gate.h"
#include "shim/residence/peer_access.h"
#include "shim/submit.h"

using namespace lull::shim;

namespace {

template <typename Call>
CUresult open_memory(CUdeviceptr* address, const CUipcMemHandle& handle, Call call) {
  ThreadState& thread = thread_state;
  CUresult result;
  // Another process's, whether or not this one can be moved.
  if (thread.depth == 0 && shim_enabled() && ipc_open(handle, address, result)) return result;
  return forward_use(thread, call);
}

}  // namespace

LULL_ENTRY(cuCtxEnablePeerAccess)(CUcontext peer, unsigned int flags) {
  ThreadState& thread = thread_state;
  MemoryUse use(thread);
  Cancellation off;
  const bool arena = moves();
  const CUresult result =
      forward(thread, [&] { return driver().cuCtxEnablePeerAccess(peer, flags); });
  if (result != CUDA_SUCCESS || !arena) return result;
  const CUresult granted = peer_access_enabled(peer);
  if (granted != CUDA_SUCCESS) {
    forward(thread, [&] { return driver().cuCtxDisablePeerAccess(peer); });
  }
  return granted;
}
LULL_ENTRY(cuCtxDisablePeerAccess)(CUcontext peer) {
  ThreadState& thread = thread_state;
  MemoryUse use(thread);
  Cancellation off;
  const bool arena = moves();
  const CUresult result = forward(thread, [&] { return driver().cuCtxDisablePeerAccess(peer); });
  if (result == CUDA_SUCCESS && arena) peer_access_disabled(peer);
  return result;
}

LULL_ENTRY(cuIpcGetMemHandle)(CUipcMemHandle* handle, CUdeviceptr address) {
  ThreadState& thread = thread_state;
  MemoryUse use(thread);
  CUresult result;
  if (moves() && ipc_export(address, handle, result)) return result;
  return forward(thread, [&] { return driver().cuIpcGetMemHandle(handle, address); });
}
LULL_ENTRY(cuIpcOpenMemHandle)(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
  return open_memory(address, handle,
                     [&] { return driver().cuIpcOpenMemHandle(address, handle, flags); });
}
LULL_ENTRY(cuIpcOpenMemHandle_v2)(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
  return open_memory(address, handle,
                     [&] { return driver().cuIpcOpenMemHandle_v2(address, handle, flags); });
}
LULL_ENTRY(cuIpcCloseMemHandle)(CUdeviceptr address) {
  ThreadState& thread = thread_state;
  MemoryUse use(thread);
  CUresult result;
  if (thread.depth == 0 && ipc_close(address, result)) return result;
  return forward(thread, [&] { return driver().cuIpcCloseMemHandle(address); });
}
