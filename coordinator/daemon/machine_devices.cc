#include "coordinator/daemon/machine_devices.h"

#include <dlfcn.h>
#include <string.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>

namespace lull::daemon {
namespace {

// NVML's, as its documentation gives them (NVML API reference, "Device Queries").
using NvmlDevice = struct NvmlDeviceHandle*;
constexpr int kNvmlSuccess = 0;
constexpr unsigned kNvmlText = 96;
struct NvmlMemory {
  unsigned long long total, free, used;
};

class Nvml {
 public:
  // Null: it cannot be opened, lacks a call, or says no.
  static std::unique_ptr<Nvml> open(const std::string& name) {
    std::unique_ptr<Nvml> nvml(new Nvml);
    nvml->library_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (nvml->library_ == nullptr || !nvml->find_calls() || nvml->init_() != kNvmlSuccess) {
      return nullptr;
    }
    nvml->begun_ = true;
    return nvml;
  }
  ~Nvml() {
    if (begun_) shutdown_();
    if (library_ != nullptr) ::dlclose(library_);
  }

  std::vector<KnownDevice> devices() const {
    std::vector<KnownDevice> list;
    unsigned count = 0;
    if (count_(&count) != kNvmlSuccess) return list;
    for (unsigned index = 0; index < std::min<unsigned>(count, kMaxNodeDevices); ++index) {
      NvmlDevice gpu = nullptr;
      if (by_index_(index, &gpu) != kNvmlSuccess) continue;
      add(gpu, list);
      // Drivers that know no instances lack these calls; a GPU without any says none or an error.
      unsigned instances = 0;
      if (instance_count_ == nullptr || instance_ == nullptr ||
          instance_count_(gpu, &instances) != kNvmlSuccess) {
        continue;
      }
      for (unsigned i = 0; i < std::min<unsigned>(instances, kMaxNodeDevices); ++i) {
        NvmlDevice part = nullptr;
        if (instance_(gpu, i, &part) == kNvmlSuccess) add(part, list);
      }
    }
    return list;
  }

 private:
  Nvml() = default;

  template <typename Call>
  bool find(Call& call, const char* name) {
    call = reinterpret_cast<Call>(::dlsym(library_, name));
    return call != nullptr;
  }
  bool find_calls() {
    find(instance_count_, "nvmlDeviceGetMaxMigDeviceCount");
    find(instance_, "nvmlDeviceGetMigDeviceHandleByIndex");
    return find(init_, "nvmlInit_v2") && find(shutdown_, "nvmlShutdown") &&
           find(count_, "nvmlDeviceGetCount_v2") &&
           find(by_index_, "nvmlDeviceGetHandleByIndex_v2") && find(uuid_, "nvmlDeviceGetUUID") &&
           find(name_, "nvmlDeviceGetName") && find(memory_, "nvmlDeviceGetMemoryInfo");
  }
  void add(NvmlDevice handle, std::vector<KnownDevice>& list) const {
    char text[kNvmlText] = {};
    if (uuid_(handle, text, sizeof text) != kNvmlSuccess) return;
    auto device = parse_uuid(text);
    if (!device || list.size() >= kMaxNodeDevices) return;
    char name[kNvmlText] = {};
    if (name_(handle, name, sizeof name) == kNvmlSuccess) device->name = name;
    NvmlMemory memory{};
    if (memory_(handle, &memory) == kNvmlSuccess) device->total_bytes = memory.total;
    list.push_back(*device);
  }

  void* library_ = nullptr;
  bool begun_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*by_index_)(unsigned, NvmlDevice*) = nullptr;
  int (*uuid_)(NvmlDevice, char*, unsigned) = nullptr;
  int (*name_)(NvmlDevice, char*, unsigned) = nullptr;
  int (*memory_)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*instance_count_)(NvmlDevice, unsigned*) = nullptr;
  int (*instance_)(NvmlDevice, unsigned, NvmlDevice*) = nullptr;
};

std::string after_colon(const std::string& line) {
  const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
  return begin == std::string::npos ? "" : line.substr(begin);
}

// "Model: \t\t NVIDIA H100 80GB HBM3" and "GPU UUID: \t GPU-..." among others. A GPU that nobody
// has used yet shows question marks in place of its UUID.
std::vector<KnownDevice> from_proc(const std::string& folder) {
  std::vector<std::filesystem::path> gpus;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    gpus.push_back(entry.path());
  }
  std::sort(gpus.begin(), gpus.end());
  std::vector<KnownDevice> list;
  for (const auto& gpu : gpus) {
    std::ifstream file(gpu / "information");
    std::optional<KnownDevice> device;
    std::string model;
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("Model:")) model = after_colon(line);
      if (line.starts_with("GPU UUID:")) device = parse_uuid(after_colon(line));
    }
    if (!device || list.size() >= kMaxNodeDevices) continue;
    device->name = model;
    list.push_back(*device);
  }
  return list;
}

}  // namespace

std::vector<KnownDevice> machine_devices(const MachineSources& sources) {
  if (const auto nvml = Nvml::open(sources.nvml)) {
    if (auto devices = nvml->devices(); !devices.empty()) return devices;
  }
  return from_proc(sources.proc);
}

std::vector<KnownDevice> sim_devices(const Clock& clock) {
  const channel::sim_device_prefix& file = clock.sim_device();
  std::vector<KnownDevice> list;
  for (uint32_t index = 0; index < std::min<size_t>(file.device_count, kMaxNodeDevices); ++index) {
    KnownDevice device;
    std::copy_n(file.uuid, device.uuid.size(), device.uuid.begin());
    device.uuid[channel::kSimUuidIndex] += static_cast<uint8_t>(index);
    device.name.assign(file.name, strnlen(file.name, sizeof file.name));
    device.total_bytes = file.memory_bytes;
    list.push_back(std::move(device));
  }
  return list;
}

}  // namespace lull::daemon
