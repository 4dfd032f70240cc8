// The actors of a fault under MPS: one that works on and says when it no longer can, one that
// breaks, one with much work in flight that somebody kills. tools/gpu_check/faults.py is the
// director.
#include <time.h>
#include <unistd.h>

#include <cstdlib>

#include "coordinator/channel/model_clock.h"
#include "tools/gpu_check/native/orders.h"
#include "tools/gpu_check/native/probes.h"

namespace lull::probe {

using nlohmann::json;

namespace {

// poke(address): writes there, whatever is there.
constexpr char kPoke[] = R"(.version 6.0
.target sm_52
.address_size 64

.visible .entry poke(.param .u64 address)
{
  .reg .u64 %address, %value;
  ld.param.u64 %address, [address];
  mov.u64 %value, 1;
  st.global.u64 [%address], %value;
  ret;
}
)";

constexpr uint64_t kNowhere = 0x10;  // no program has memory there

void say(const json& what) { answer(what); }

void pause_us(double us) {
  const auto ns = static_cast<long>(us * 1e3);
  const timespec length{ns / 1'000'000'000, ns % 1'000'000'000};
  nanosleep(&length, nullptr);
}

}  // namespace

json probe_bystander(Driver& driver, const BystanderWishes& wishes) {
  const uint64_t began_ns = channel::monotonic_ns();
  const Device device(driver);
  const CUstream stream = device.stream();
  uint64_t spin_ns = static_cast<uint64_t>(wishes.spin_us * 1e3);
  void* arguments[] = {&spin_ns};
  uint64_t rounds = 0, longest_ns = 0, last_ns = began_ns, said_ns = 0;
  json answer = {{"rounds", 0}};
  const uint64_t first_ns = channel::monotonic_ns();
  for (uint64_t now_ns = first_ns; static_cast<double>(now_ns - first_ns) < wishes.seconds * 1e9;) {
    CUresult result =
        driver.cuLaunchKernel(device.spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
    const char* call = "cuLaunchKernel";
    if (result == CUDA_SUCCESS) {
      call = "cuStreamSynchronize";
      result = driver.cuStreamSynchronize(stream);
    }
    const uint64_t end_ns = channel::monotonic_ns();
    if (result != CUDA_SUCCESS) {
      answer["error"] = driver.name_of(result);
      answer["call"] = call;
      answer["error_ns"] = end_ns;
      break;
    }
    longest_ns = std::max(longest_ns, end_ns - now_ns);
    last_ns = end_ns;
    ++rounds;
    if (rounds == 1 || end_ns - said_ns > 20'000'000) {
      say({{"working", rounds}, {"at_ns", end_ns}});
      said_ns = end_ns;
    }
    pause_us(wishes.pause_us);
    now_ns = channel::monotonic_ns();
  }
  answer["rounds"] = rounds;
  answer["longest_round_ms"] = static_cast<double>(longest_ns) / 1e6;
  answer["began_ns"] = began_ns;
  answer["last_ns"] = last_ns;
  say(answer);
  // A broken context may hang in its own destruction.
  std::_Exit(0);
}

json probe_illegal_address(Driver& driver) {
  const Device device(driver);
  CUmodule module = nullptr;
  CUfunction poke = nullptr;
  LULL_MUST(driver, cuModuleLoadData, &module, static_cast<const void*>(kPoke));
  LULL_MUST(driver, cuModuleGetFunction, &poke, module, "poke");
  const CUstream stream = device.stream();
  uint64_t address = kNowhere;
  void* arguments[] = {&address};
  device.launch(poke, stream, arguments);
  const CUresult result = driver.cuStreamSynchronize(stream);
  const uint64_t now_ns = channel::monotonic_ns();
  json answer = {{"at_ns", now_ns}};
  if (result != CUDA_SUCCESS) answer["error"] = driver.name_of(result);
  say(answer);
  std::_Exit(0);
}

json probe_flood(Driver& driver, const FloodWishes& wishes) {
  const Device device(driver);
  const CUstream stream = device.stream();
  uint64_t spin_ns = static_cast<uint64_t>(wishes.spin_us * 1e3);
  void* arguments[] = {&spin_ns};
  std::vector<CUevent> behind(static_cast<size_t>(wishes.in_flight), nullptr);
  for (CUevent& event : behind) event = device.event(CU_EVENT_DISABLE_TIMING);
  json answer = json::object();
  const uint64_t first_ns = channel::monotonic_ns();
  for (uint64_t n = 0;
       static_cast<double>(channel::monotonic_ns() - first_ns) < wishes.seconds * 1e9; ++n) {
    const CUevent event = behind[n % behind.size()];
    CUresult result = n < behind.size() ? CUDA_SUCCESS : driver.cuEventSynchronize(event);
    if (result == CUDA_SUCCESS) {
      result = driver.cuLaunchKernel(device.spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
    }
    if (result == CUDA_SUCCESS) result = driver.cuEventRecord(event, stream);
    if (result != CUDA_SUCCESS) {
      answer["error"] = driver.name_of(result);
      answer["error_ns"] = channel::monotonic_ns();
      break;
    }
    if (n + 1 == behind.size()) say({{"in_flight", n + 1}, {"at_ns", channel::monotonic_ns()}});
  }
  say(answer);
  std::_Exit(0);
}

}  // namespace lull::probe
