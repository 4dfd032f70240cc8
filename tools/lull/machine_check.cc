#include "tools/lull/machine_check.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/lull/container_check.h"
#include "tools/lull/daemon_link.h"
#include "tools/lull/installed.h"
#include "tools/lull/pair_display.h"
#include "tools/lull/reply_fields.h"
#include "tools/lull/visible_devices.h"
#include "tools/measure/values.h"

extern char** environ;

namespace lull::command {
namespace {

constexpr rlim_t kDescriptorsWanted = 1024;
constexpr int kComputeModeProhibited = 2, kComputeModeExclusive = 3;  // nvml.h

void check_driver(Findings& findings, bool simulate) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) {
    const std::string seen = "no NVIDIA driver (libcuda.so.1 is not found)";
    if (simulate) {
      findings.push_back({Verdict::kOk, "driver", seen + ": not needed with --sim", ""});
    } else {
      findings.push_back({Verdict::kFail, "driver", seen,
                          "install the driver, or use `lull run --sim` for a simulated GPU"});
    }
    return;
  }
  const bool simulated = dlsym(driver, "simgpu_model_clock") != nullptr;
  const auto version_of = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDriverGetVersion"));
  int version = 0;
  if (version_of == nullptr || version_of(&version) != 0 || version < 11'000) {
    findings.push_back(
        {Verdict::kFail, "driver",
         version ? fmt::format("CUDA {}.{} is too old", version / 1000, version % 1000 / 10)
                 : "libcuda.so.1 does not say its version (is it the toolkit's stub?)",
         "install a driver for CUDA 11 or newer"});
    return;
  }
  std::ifstream in("/proc/driver/nvidia/version");
  std::string line;
  std::getline(in, line);
  findings.push_back(
      {Verdict::kOk, "driver",
       fmt::format("CUDA {}.{}{}{}", version / 1000, version % 1000 / 10,
                   simulated ? ", the simulated one" : "", line.empty() ? "" : "; " + line),
       ""});
}

void check_device_files(Findings& findings, bool simulate) {
  if (simulate) return;
  bool any = false;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", error)) {
    const std::string name = entry.path().filename();
    const bool gpu = name.size() > 6 && name.starts_with("nvidia") && std::isdigit(name[6]);
    if (!gpu && name != "nvidiactl" && name != "nvidia-uvm") continue;
    any |= gpu;
    if (access(entry.path().c_str(), R_OK | W_OK) != 0) {
      findings.push_back({Verdict::kFail, "device file",
                          fmt::format("{}: {}", entry.path().string(), std::strerror(errno)),
                          "join the group that owns it, or give the container this device"});
    }
  }
  if (!any) {
    findings.push_back({Verdict::kFail, "device files", "no /dev/nvidia0",
                        "load the driver (nvidia-modprobe), or give the container a GPU"});
  } else {
    findings.push_back({Verdict::kOk, "device files", "/dev/nvidia* are there", ""});
  }
}

// Compute mode through NVML, opened here so that machines without it lose one line only.
void check_compute_mode(Findings& findings, bool mps) {
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (nvml == nullptr) return;
  const auto start = reinterpret_cast<int (*)()>(dlsym(nvml, "nvmlInit_v2"));
  const auto count_of = reinterpret_cast<int (*)(unsigned*)>(dlsym(nvml, "nvmlDeviceGetCount_v2"));
  const auto handle_of =
      reinterpret_cast<int (*)(unsigned, void**)>(dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2"));
  const auto mode_of =
      reinterpret_cast<int (*)(void*, int*)>(dlsym(nvml, "nvmlDeviceGetComputeMode"));
  const auto stop = reinterpret_cast<int (*)()>(dlsym(nvml, "nvmlShutdown"));
  if (!start || !count_of || !handle_of || !mode_of || !stop || start() != 0) return;
  unsigned count = 0;
  count_of(&count);
  bool fine = true;
  for (unsigned n = 0; n < count; ++n) {
    void* handle = nullptr;
    int mode = 0;
    if (handle_of(n, &handle) != 0 || mode_of(handle, &mode) != 0) continue;
    if (mode == kComputeModeProhibited || (mode == kComputeModeExclusive && !mps)) {
      fine = false;
      findings.push_back(
          {Verdict::kFail, "compute mode",
           fmt::format("GPU {} is {}: two programs cannot share it", n,
                       mode == kComputeModeProhibited ? "PROHIBITED" : "EXCLUSIVE_PROCESS"),
           fmt::format("nvidia-smi -i {} -c DEFAULT", n)});
    }
  }
  if (fine && count > 0)
    findings.push_back({Verdict::kOk, "compute mode", "programs may share the GPUs", ""});
  stop();
}

bool mps_runs() {
  const char* told = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  return access(fmt::format("{}/control", told ? told : "/tmp/nvidia-mps").c_str(), F_OK) == 0;
}

// Programs that run now and cannot share a device, as the policy has found out.
void check_pairs(Findings& findings, const std::string& socket) {
  const auto status = ask_daemon(socket, {{"op", "status"}});
  if (!status) return;  // it has just answered, and is asked again by `lull status`
  for (const nlohmann::json& client : list(*status, "clients")) {
    for (const std::string& line : describe_unsharable(*status, client)) {
      findings.push_back({Verdict::kWarn, "pairs",
                          fmt::format("{} ({}) {}", field<std::string>(client, "task", "?"),
                                      field<uint64_t>(client, "id", 0), line),
                          "run them on two GPUs or under MPS, or allow the other more by --max-slowdown"});
    }
  }
}

void check_daemon(Findings& findings, const std::string& path, bool simulate,
                  const ContainerFacts& container) {
  const auto answer = ask_daemon(path, {{"op", "ping"}});
  struct stat about {};
  if (!answer && answer.error().kind == AskError::kDistrusted) {
    findings.push_back({Verdict::kFail, "lulld", answer.error().text, ""});
    return;
  }
  if (!answer) {
    const bool there = stat(path.c_str(), &about) == 0;
    if (there && access(path.c_str(), W_OK) != 0) {
      findings.push_back(
          {Verdict::kFail, "lulld", fmt::format("{}: no permission to connect", path),
           fmt::format("ask the operator for access (owner uid {}, gid {}, mode {:o})",
                       about.st_uid, about.st_gid, about.st_mode & 07777U)});
    } else {
      findings.push_back({Verdict::kWarn, "lulld",
                          fmt::format("none answers at {}: programs run unscheduled", path),
                          mend_silence(container)});
    }
    return;
  }
  const bool simulated = answer->value("simulated", simulate);
  if (simulated != simulate) {
    findings.push_back({Verdict::kWarn, "lulld",
                        fmt::format("the one at {} is for {}", path,
                                    simulated ? "the simulated GPU" : "real GPUs"),
                        simulate ? "start `lulld --sim` on a socket of its own"
                                 : "start lulld without --sim, or use `lull run --sim`"});
  } else {
    findings.push_back({Verdict::kOk, "lulld", fmt::format("answers at {}", path), ""});
  }
  if (stat(path.c_str(), &about) == 0 && (about.st_mode & 0002) == 0 && about.st_gid == 0 &&
      about.st_uid != 0) {
    findings.push_back({Verdict::kOk, "socket access",
                        fmt::format("{} is for uid {} only", path, about.st_uid), ""});
  }
  check_pairs(findings, path);
}

// What `lull run --suspendable` and stronger could have here. The driver's checkpoint is of
// CUDA 12.8, GPU pairs of 13.0 (cuda.h); neither is known to work under MPS, nor in parts of GPUs.
void check_moves(Findings& findings, const std::string& socket, bool simulate, bool mps) {
  constexpr int kCheckpoint = 12'080, kPairs = 13'000;
  int version = 0;
  if (void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
      driver != nullptr && !simulate) {
    const auto version_of = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDriverGetVersion"));
    if (version_of != nullptr) version_of(&version);
  }
  if (version == 0 && !simulate) return;  // said above
  std::ifstream memory("/proc/meminfo");
  uint64_t available = 0;
  for (std::string line; std::getline(memory, line);) {
    if (line.starts_with("MemAvailable:"))
      available = std::strtoull(line.c_str() + 13, nullptr, 10) << 10;
  }
  findings.push_back(
      {Verdict::kOk, "suspend to host",
       fmt::format("lull run --suspendable: {} of host memory are available; lulld lets all "
                   "programs together take host_memory of its configuration, by default "
                   "half of the machine's",
                   show_bytes(available)),
       ""});
  std::string why;
  if (!simulate && version < kCheckpoint) {
    why = fmt::format("the driver's CUDA {}.{} has no checkpoint, 12.8 has", version / 1000,
                      version % 1000 / 10);
  } else if (mps) {
    why = "MPS runs: a checkpoint of its clients is not known to work";
  }
  findings.push_back(
      {Verdict::kOk, "give up a GPU",
       why.empty() ? "lull suspend --level given_up: by the driver's checkpoint; not of programs "
                     "with managed or exported memory"
                   : why + ": programs can be suspended, not given up",
       ""});
  if (!why.empty()) return;
  if (!simulate && version < kPairs) {
    why = fmt::format("the driver's CUDA {}.{} cannot change GPUs, 13.0 can", version / 1000,
                      version % 1000 / 10);
  } else if (!simulate) {
    const auto gpus = machine_gpus(socket);
    const auto visible = all_devices(std::nullopt, gpus);
    if (!visible) {
      why = visible.error();
    } else if (visible->own < 2) {
      why = "there is one GPU only";
    }
  }
  findings.push_back(
      {Verdict::kOk, "migrate",
       why.empty() ? "lull run --migratable: between the GPUs of this machine" : "no: " + why, ""});
}

// Why the loader does not take the library, as far as it can be told: another machine's, or an
// image without glibc's parts.
std::string why_not_loaded(const Installed& parts) {
  const auto machine_of = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    char bytes[20] = {};
    in.read(bytes, sizeof bytes);
    uint16_t machine = 0;
    std::memcpy(&machine, bytes + 18, sizeof machine);  // e_machine
    return machine;
  };
  if (machine_of(parts.shim) != machine_of("/proc/self/exe")) return "it is for another machine";
  std::string absent;
  for (const char* name : {"libdl.so.2", "libpthread.so.0"}) {
    if (dlopen(name, RTLD_LAZY | RTLD_LOCAL) == nullptr) {
      absent += (absent.empty() ? "" : " and ") + std::string(name);
    }
  }
  return absent.empty() ? "" : "no " + absent + " here";
}

// Starts this program again under liblull.so and asks whether the library is mapped.
void check_preloading(Findings& findings, const Installed& parts, const ContainerFacts& container) {
  if (access(parts.shim.c_str(), R_OK) != 0) {
    const int why = errno;
    const std::string folder = std::filesystem::path(parts.shim).parent_path();
    findings.push_back(
        {Verdict::kFail, "liblull.so", fmt::format("{}: {}", parts.shim, std::strerror(why)),
         in_container(container) ? fmt::format("start the container with -v {0}:{0}:ro", folder)
                                 : "build or install lull whole"});
    return;
  }
  if (parts.shim.find_first_of(" :") != std::string::npos) {
    findings.push_back(
        {Verdict::kFail, "liblull.so",
         fmt::format("'{}': LD_PRELOAD allows no space or colon in a path", parts.shim),
         "move lull to another folder"});
    return;
  }
  std::vector<std::string> entries;
  for (char** entry = environ; entry && *entry; ++entry) {
    if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0) entries.emplace_back(*entry);
  }
  entries.push_back("LD_PRELOAD=" + parts.shim);
  std::vector<char*> envp;
  for (std::string& entry : entries) envp.push_back(entry.data());
  envp.push_back(nullptr);
  std::string words[] = {"lull", "doctor", kPreloadProbeWord};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t child = 0;
  int ended = 1;
  if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, argv, envp.data()) == 0) {
    // The probe reads one file; should the library make it hang, it is ended.
    const int handle = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
    pollfd wait{handle, POLLIN, 0};
    if (handle >= 0) {
      if (poll(&wait, 1, static_cast<int>(kAnswerWait.count())) == 0) kill(child, SIGKILL);
      close(handle);
    }
    waitpid(child, &ended, 0);
  }
  if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) {
    findings.push_back(
        {Verdict::kOk, "liblull.so", fmt::format("{} loads by LD_PRELOAD", parts.shim), ""});
  } else {
    const std::string why = why_not_loaded(parts);
    findings.push_back(
        {Verdict::kFail, "liblull.so",
         fmt::format("{} is not loaded by LD_PRELOAD{}", parts.shim, why.empty() ? "" : ": " + why),
         why.empty() ? "look at `LD_PRELOAD=that file /bin/true`"
                     : "use lull of this machine, and an image with glibc 2.17 or "
                       "newer"});
  }
}

void check_other_preloads(Findings& findings, const Installed& parts) {
  const char* list = std::getenv("LD_PRELOAD");
  std::ifstream system("/etc/ld.so.preload");
  std::string all((std::istreambuf_iterator<char>(system)), {});
  if (list) all += fmt::format(" {}", list);
  for (char& c : all)
    if (c == '\n' || c == ':') c = ' ';
  std::string others;
  size_t at = 0;
  while (at < all.size()) {
    const size_t end = std::min(all.find(' ', at), all.size());
    const std::string one = all.substr(at, end - at);
    if (!one.empty() && one != parts.shim) others += (others.empty() ? "" : ", ") + one;
    at = end + 1;
  }
  if (others.empty()) {
    findings.push_back({Verdict::kOk, "other preloads", "none", ""});
  } else {
    findings.push_back({Verdict::kWarn, "other preloads",
                        fmt::format("{} is preloaded too; if it intercepts CUDA, one of the two "
                                    "misses launches",
                                    others),
                        "take it out of LD_PRELOAD or /etc/ld.so.preload if it does"});
  }
  if (std::getenv("LULL_DISABLE")) {
    findings.push_back({Verdict::kWarn, "LULL_DISABLE", "is set: lull does nothing", "unset it"});
  }
}

void check_kernel(Findings& findings, const ContainerFacts& container) {
  utsname about{};
  uname(&about);
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  const int memory = static_cast<int>(memfd_create("lull-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (handle < 0 || memory < 0) {
    // Both are lulld's business, which is outside: programs in a container go without.
    const bool needed = !in_container(container);
    findings.push_back(
        {needed ? Verdict::kFail : Verdict::kWarn, "Linux",
         fmt::format("{} {}: no {}{}{}", about.sysname, about.release,
                     handle < 0 ? "pidfd_open" : "", handle < 0 && memory < 0 ? ", no " : "",
                     memory < 0 ? "sealed memfd_create" : ""),
         needed
             ? "use Linux 5.3 or newer, and a seccomp profile that allows both"
             : "only a lulld inside would need Linux 5.3 and a seccomp profile that allows both"});
  } else {
    findings.push_back(
        {Verdict::kOk, "Linux", fmt::format("{}: pidfd, sealed memfd", about.release), ""});
  }
  if (handle >= 0) close(handle);
  if (memory >= 0) close(memory);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < kDescriptorsWanted) {
    findings.push_back({Verdict::kWarn, "descriptors",
                        fmt::format("at most {} open files", limit.rlim_cur),
                        fmt::format("ulimit -n {}", kDescriptorsWanted)});
  } else {
    findings.push_back(
        {Verdict::kOk, "descriptors", fmt::format("{} open files allowed", limit.rlim_cur), ""});
  }
}

}  // namespace

Findings check_machine(const std::string& socket_path, bool simulate) {
  Findings findings;
  const Installed parts = installed();
  const ContainerFacts container = container_facts(socket_path);
  check_container(findings, container);
  check_driver(findings, simulate);
  check_device_files(findings, simulate);
  if (!simulate) {
    const bool mps = mps_runs();
    check_compute_mode(findings, mps);
    findings.push_back(
        {Verdict::kOk, "MPS",
         mps ? "runs: kernels of two programs overlap, one program's fault can end both"
             : "does not run: the driver gives the GPU to one program at a time",
         ""});
  }
  check_preloading(findings, parts, container);
  check_other_preloads(findings, parts);
  check_daemon(findings, socket_path, simulate, container);
  check_moves(findings, socket_path, simulate, !simulate && mps_runs());
  const bool has_sim = access((parts.sim_folder + "/libcuda.so.1").c_str(), R_OK) == 0;
  findings.push_back({has_sim ? Verdict::kOk : (simulate ? Verdict::kFail : Verdict::kWarn),
                      "simulated GPU",
                      has_sim ? fmt::format("in {}", parts.sim_folder)
                              : fmt::format("no libcuda.so.1 in {}", parts.sim_folder),
                      has_sim ? "" : "build target simgpu_cuda, or install lull whole"});
  check_kernel(findings, container);
  return findings;
}

int preload_probe() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.ends_with("/liblull.so")) return 0;
  }
  return 1;
}

}  // namespace lull::command
