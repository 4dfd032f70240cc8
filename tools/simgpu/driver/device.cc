// Start-up and what a program asks of a device.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/state.h"

using namespace simgpu::driver;

namespace {

constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;

std::string uuid_text(const std::array<uint8_t, 16>& uuid) {
  std::string text = "GPU-";
  char digits[3];
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::snprintf(digits, sizeof digits, "%02x", uuid[i]);
    text += digits;
  }
  return text;
}

// CUDA_VISIBLE_DEVICES: indices or UUID prefixes, up to the first that names no device.
std::vector<uint32_t> visible_devices(simgpu::Device& device) {
  std::vector<uint32_t> visible;
  const char* wanted = std::getenv("CUDA_VISIBLE_DEVICES");
  if (wanted == nullptr) {
    for (uint32_t i = 0; i < device.device_count(); ++i) visible.push_back(i);
    return visible;
  }
  std::string_view rest = wanted;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    std::string entry(rest.substr(0, comma));
    rest.remove_prefix(std::min(rest.size(), comma + 1));
    while (!entry.empty() && entry.front() == ' ') entry.erase(entry.begin());
    while (!entry.empty() && entry.back() == ' ') entry.pop_back();
    std::optional<uint32_t> index;
    char* end = nullptr;
    const long number = std::strtol(entry.c_str(), &end, 10);
    if (!entry.empty() && *end == '\0' && number >= 0 && number < long{device.device_count()}) {
      index = static_cast<uint32_t>(number);
    } else if (entry.starts_with("GPU-")) {
      for (uint32_t i = 0; i < device.device_count() && !index; ++i) {
        if (uuid_text(device.uuid(i)).starts_with(entry)) index = i;
      }
    }
    if (!index) break;
    if (std::ranges::find(visible, *index) != visible.end()) return {};
    visible.push_back(*index);
  }
  return visible;
}

int to_int(uint64_t value) { return static_cast<int>(std::min<uint64_t>(value, 0x7fffffff)); }

// Plausible values of the modelled class of device; 0 for what is not modelled.
std::optional<int> attribute_value(State& state, int device, CUdevice_attribute attribute) {
  const simgpu::DeviceProfile& p = state.profile(device);
  switch (static_cast<int>(attribute)) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return 0x7fffffff;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return to_int(p.shared_bytes_per_block);
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      return 65536;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      return 0x7fffffff;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
      return 65536;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return to_int(p.clock_khz);
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
      return 512;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
      return 1;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return to_int(p.sm_count);
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      return 1;
    // Clusters launch as what they are to the cost rules: blocks.
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
      return p.compute_major >= 9 ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH:
      return 131072;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT:
      return 65536;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH:
      return 16384;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH:
      return 1 << 28;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return to_int(state.visible_at_start[device] + 1);
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return to_int(p.memory_clock_khz);
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return to_int(p.memory_bus_bits);
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return to_int(p.l2_bytes);
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return to_int(p.threads_per_sm);
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 2;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
      return 32;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return to_int(p.compute_major);
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return to_int(p.compute_minor);
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return to_int(p.shared_bytes_per_sm);
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return to_int(p.registers_per_sm);
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO:
      return 2;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return to_int(p.shared_bytes_per_block_optin);
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return to_int(p.blocks_per_sm);
    case CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE:
      return to_int(p.l2_bytes / 8 * 5);
    case CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE:
      return 128 << 20;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
      return 100;
    case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT:
      return 4;
    case CU_DEVICE_ATTRIBUTE_NUMA_ID:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
      return -1;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
      return state.device->sharing() == simgpu::Sharing::kMps;
    case CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID:
      return 0x233010de;
    case CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID:
      return 0x16c110de;
    default:
      break;
  }
  if (attribute >= 1 && attribute < CU_DEVICE_ATTRIBUTE_MAX) return 0;
  return std::nullopt;
}

// Calls about a device: refused before cuInit, and for a device that is not there.
struct DeviceCall : Call {
  explicit DeviceCall(CUdevice device, bool pointers_given = true) {
    if (error == CUDA_SUCCESS && !pointers_given) error = kWrong;
    if (error == CUDA_SUCCESS && !state.is_device(device)) error = CUDA_ERROR_INVALID_DEVICE;
  }
};

}  // namespace

SIM_API cuInit(unsigned flags) {
  if (is_forked()) return CUDA_ERROR_NOT_INITIALIZED;
  if (flags != 0) return kWrong;
  State& state = State::get();
  const std::lock_guard lock(state.mutex);
  if (state.initialised) return CUDA_SUCCESS;
  auto device = simgpu::open_device_from_environment();
  if (!device) {
    std::fprintf(stderr, "%s%s\n",
                 device.error().starts_with("lull: ") ? "" : "lull: simulated GPU: ",
                 device.error().c_str());
    return CUDA_ERROR_NO_DEVICE;
  }
  state.visible = visible_devices(**device);
  if (state.visible.empty()) return CUDA_ERROR_NO_DEVICE;
  state.visible_at_start = state.visible;
  state.device = *device;
  auto log = EventLog::open_from_environment();
  if (!log) {
    std::fprintf(stderr, "%s\n", log.error().c_str());
    return CUDA_ERROR_NO_DEVICE;
  }
  state.log = log->release();
  state.effects = new Effects(**device, state.log);
  if (state.log != nullptr) {
    // What completed last may not have been collected by anybody.
    std::atexit([] {
      if (!is_forked()) State::get().effects->pump();
    });
  }
  state.primaries.resize(state.visible.size());
  for (size_t i = 0; i < state.visible.size(); ++i) {
    auto pool = std::make_shared<Pool>();
    pool->handle = state.new_handle();
    pool->device = static_cast<int>(i);
    state.pools.add(pool);
    state.default_pool.push_back(pool);
    state.current_pool.push_back(pool);
  }
  state.initialised = true;
  mark_initialised();
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGetCount(int* count) {
  Call call;
  if (!call) return call.error;
  if (count == nullptr) return kWrong;
  *count = static_cast<int>(call.state.visible.size());
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGet(CUdevice* device, int ordinal) {
  DeviceCall call(ordinal, device != nullptr);
  if (!call) return call.error;
  *device = ordinal;
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGetName(char* name, int length, CUdevice device) {
  DeviceCall call(device, name != nullptr && length > 0);
  if (!call) return call.error;
  std::snprintf(name, static_cast<size_t>(length), "%s", call.state.profile(device).name);
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  DeviceCall call(device, uuid != nullptr);
  if (!call) return call.error;
  const auto bytes = call.state.device->uuid(call.state.visible[device]);
  std::memcpy(uuid->bytes, bytes.data(), bytes.size());
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

SIM_API cuDeviceGetLuid(char* luid, unsigned* mask, CUdevice device) {
  DeviceCall call(device, luid != nullptr && mask != nullptr);
  return call ? CUDA_ERROR_NOT_SUPPORTED : call.error;  // as on every Linux machine
}

SIM_API cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  DeviceCall call(device, bytes != nullptr);
  if (!call) return call.error;
  *bytes = call.state.device->memory_info(call.state.visible[device]).total_bytes;
  return CUDA_SUCCESS;
}

SIM_API cuDeviceTotalMem(unsigned* bytes, CUdevice device) {
  size_t wide = 0;
  const CUresult result = bytes == nullptr ? kWrong : cuDeviceTotalMem_v2(&wide, device);
  if (result == CUDA_SUCCESS) *bytes = static_cast<unsigned>(std::min<size_t>(wide, UINT32_MAX));
  return result;
}

SIM_API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  DeviceCall call(device, value != nullptr);
  if (!call) return call.error;
  const auto found = attribute_value(call.state, device, attribute);
  if (!found) return kWrong;
  *value = *found;
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGetProperties(CUdevprop* properties, CUdevice device) {
  DeviceCall call(device, properties != nullptr);
  if (!call) return call.error;
  const simgpu::DeviceProfile& p = call.state.profile(device);
  *properties = {};
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 0x7fffffff;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->sharedMemPerBlock = to_int(p.shared_bytes_per_block);
  properties->totalConstantMemory = 65536;
  properties->SIMDWidth = 32;
  properties->memPitch = 0x7fffffff;
  properties->regsPerBlock = 65536;
  properties->clockRate = to_int(p.clock_khz);
  properties->textureAlign = 512;
  return CUDA_SUCCESS;
}

SIM_API cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  DeviceCall call(device, major != nullptr && minor != nullptr);
  if (!call) return call.error;
  *major = to_int(call.state.profile(device).compute_major);
  *minor = to_int(call.state.profile(device).compute_minor);
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  DeviceCall call(device, text != nullptr && length > 0);
  if (!call) return call.error;
  std::snprintf(text, static_cast<size_t>(length), "0000:%02X:00.0",
                call.state.visible_at_start[device] + 1);
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  Call call;
  if (!call) return call.error;
  if (device == nullptr || text == nullptr) return kWrong;
  unsigned domain = 0;
  unsigned bus = 0;
  if (std::sscanf(text, "%x:%x", &domain, &bus) != 2) return kWrong;
  for (size_t i = 0; i < call.state.visible.size(); ++i) {
    if (domain == 0 && call.state.visible_at_start[i] + 1 == bus) {
      *device = static_cast<CUdevice>(i);
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

SIM_API cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  DeviceCall call(device, can != nullptr);
  if (!call) return call.error;
  if (!call.state.is_device(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = device != peer;
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice source,
                                CUdevice target) {
  DeviceCall call(source, value != nullptr);
  if (!call) return call.error;
  if (!call.state.is_device(target) || source == target) return CUDA_ERROR_INVALID_DEVICE;
  *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ||
           attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType, CUdevice device) {
  DeviceCall call(device, supported != nullptr);
  if (!call) return call.error;
  *supported = 0;
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGetTexture1DLinearMaxWidth(size_t* width, CUarray_format, unsigned,
                                           CUdevice device) {
  DeviceCall call(device, width != nullptr);
  if (!call) return call.error;
  *width = size_t{1} << 28;
  return CUDA_SUCCESS;
}
