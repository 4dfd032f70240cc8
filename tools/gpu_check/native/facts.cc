#include <dlfcn.h>

#include <fstream>

#include "tools/gpu_check/native/probes.h"

namespace lull::probe {

using nlohmann::json;

json probe_facts(Driver& driver) {
  LULL_MUST(driver, cuInit, 0u);
  CUdevice device = 0;
  LULL_MUST(driver, cuDeviceGet, &device, 0);
  int version = 0;
  LULL_MUST(driver, cuDriverGetVersion, &version);
  char name[256] = {};
  LULL_MUST(driver, cuDeviceGetName, name, static_cast<int>(sizeof name), device);
  CUuuid uuid{};
  LULL_MUST(driver, cuDeviceGetUuid, &uuid, device);
  size_t bytes = 0;
  LULL_MUST(driver, cuDeviceTotalMem, &bytes, device);
  json facts = {{"cuda_version", version},
                {"name", std::string(name)},
                {"uuid", uuid_text(uuid)},
                {"memory_bytes", bytes},
                {"missing_calls", driver.missing()}};
  constexpr std::pair<const char*, CUdevice_attribute> kAttributes[] = {
      {"compute_major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
      {"compute_minor", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
      {"sm_count", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
      {"threads_per_sm", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
      {"blocks_per_sm", CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR},
      {"registers_per_sm", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
      {"shared_bytes_per_sm", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
      {"shared_bytes_per_block", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
      {"shared_bytes_per_block_optin", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
      {"clock_khz", CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
      {"memory_clock_khz", CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE},
      {"memory_bus_bits", CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH},
      {"l2_bytes", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
      {"async_engines", CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT},
      {"compute_mode", CU_DEVICE_ATTRIBUTE_COMPUTE_MODE},
      {"compute_preemption", CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED},
      {"stream_priorities", CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED},
      {"virtual_memory_management", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
      {"memory_pools", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
      {"host_register", CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED},
      {"gpu_direct_rdma_with_vmm", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED},
      {"multicast", CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED},
      {"mps_enabled", CU_DEVICE_ATTRIBUTE_MPS_ENABLED},
  };
  for (const auto& [key, attribute] : kAttributes) {
    int value = 0;
    if (driver.cuDeviceGetAttribute != nullptr &&
        driver.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS) {
      facts[key] = value;
    }
  }
  return facts;
}

json probe_addresses(Driver& driver, const std::string& list_file) {
  LULL_MUST(driver, cuInit, 0u);
  using Ask = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  const auto ask = reinterpret_cast<Ask>(dlsym(driver.library, "cuGetProcAddress_v2"));
  if (ask == nullptr) throw NotHere{"the driver has no cuGetProcAddress_v2"};
  std::ifstream list(list_file);
  if (!list) throw std::runtime_error("cannot read " + list_file);
  json different = json::array(), not_by_version = json::array(), not_by_name = json::array();
  int asked = 0, equal = 0;
  std::string base, name;
  int version = 0;
  unsigned long long flags = 0;
  while (list >> base >> version >> flags >> name) {
    ++asked;
    void* by_name = dlsym(driver.library, name.c_str());
    void* by_version = nullptr;
    const CUresult result = ask(base.c_str(), &by_version, version, flags, nullptr);
    if (by_name == nullptr) {
      not_by_name.push_back(name);
    } else if (result != CUDA_SUCCESS || by_version == nullptr) {
      not_by_version.push_back(base + "@" + std::to_string(version));
    } else if (by_name == by_version) {
      ++equal;
    } else {
      Dl_info about{};
      const bool known = dladdr(by_version, &about) != 0 && about.dli_sname != nullptr;
      different.push_back({{"asked", base + "@" + std::to_string(version)},
                           {"flags", flags},
                           {"expected", name},
                           {"got", known ? about.dli_sname : "an address without a name"}});
    }
  }
  return {{"asked", asked},
          {"equal", equal},
          {"different", different},
          {"not_by_version", not_by_version},
          {"not_by_name", not_by_name}};
}

}  // namespace lull::probe
