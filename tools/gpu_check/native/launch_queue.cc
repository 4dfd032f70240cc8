// How far ahead of the device a program gets before a launch call waits, what lies behind each
// launch taking places too; what progress markers and timing events cost a device that always has
// work; and what two events around a kernel measure beside it.
#include <algorithm>
#include <functional>
#include <iterator>
#include <random>

#include "tools/gpu_check/native/probes.h"

namespace lull::probe {

using nlohmann::json;

namespace {

// stamp(out, spin_ns): out[0] and out[1] are the device's timer at its begin and end.
constexpr char kStamp[] = R"(.version 6.0
.target sm_52
.address_size 64

.visible .entry stamp(.param .u64 out, .param .u64 spin_ns)
{
  .reg .pred %more;
  .reg .u64 %out, %length, %start, %now, %passed;
  mov.u64 %start, %globaltimer;
  ld.param.u64 %out, [out];
  ld.param.u64 %length, [spin_ns];
  cvta.to.global.u64 %out, %out;
  st.global.u64 [%out], %start;
AGAIN:
  mov.u64 %now, %globaltimer;
  sub.u64 %passed, %now, %start;
  setp.lt.u64 %more, %passed, %length;
  @%more bra AGAIN;
  st.global.u64 [%out+8], %now;
  ret;
}
)";

constexpr uint64_t kLongCallNs = 100'000;  // many times what a call takes that does not wait
constexpr int kSparse = 16;                // one marker in so many launches

// What goes around a launch.
enum class Around { kNothing, kValueWrite, kSparseWrite, kEvent, kTimedPair };
constexpr struct {
  Around around;
  const char* name;
} kKinds[] = {{Around::kNothing, "nothing"},
              {Around::kValueWrite, "value write"},
              {Around::kSparseWrite, "value write behind one launch in 16"},
              {Around::kEvent, "untimed event"},
              {Around::kTimedPair, "timed event before and behind"}};

json spread(const std::vector<double>& values) {
  return {{"count", values.size()},
          {"p10", quantile(values, 0.1)},
          {"p50", median(values)},
          {"p90", quantile(values, 0.9)}};
}

// Launches of one kernel on one stream, with what goes around them.
class Launcher {
 public:
  explicit Launcher(const Device& device) : device_(device), stream_(device.stream()) {
    for (CUevent& event : timed_) event = device.event();
    for (CUevent& event : untimed_) event = device.event(CU_EVENT_DISABLE_TIMING);
    over_ = device.event(CU_EVENT_DISABLE_TIMING);
    void* page = nullptr;
    LULL_MUST(device.driver, cuMemHostAlloc, &page, size_t{4096},
              static_cast<unsigned>(CU_MEMHOSTALLOC_DEVICEMAP));
    LULL_MUST(device.driver, cuMemHostGetDevicePointer, &word_, page, 0u);
  }

  CUstream stream() const { return stream_; }

  // Whether the device takes such a thing at all.
  bool can(Around around) {
    if (around != Around::kValueWrite && around != Around::kSparseWrite) return true;
    return device_.driver.cuStreamWriteValue64 != nullptr &&
           device_.driver.cuStreamWriteValue64(stream_, word_, 0, 0) == CUDA_SUCCESS;
  }

  // Keeps the device busy; `held` is true until that is over.
  void hold(uint64_t ns) {
    void* arguments[] = {&ns};
    device_.launch(device_.spin, stream_, arguments);
    LULL_MUST(device_.driver, cuEventRecord, over_, stream_);
  }
  bool held() const { return device_.driver.cuEventQuery(over_) == CUDA_ERROR_NOT_READY; }

  void launch(Around around, uint64_t kernel_ns) {
    const uint64_t n = launches_++;
    CUevent* pair = &timed_[2 * n % std::size(timed_)];
    if (around == Around::kTimedPair) LULL_MUST(device_.driver, cuEventRecord, pair[0], stream_);
    void* arguments[] = {&kernel_ns};
    device_.launch(kernel_ns != 0 ? device_.spin : device_.null_kernel, stream_,
                   kernel_ns != 0 ? arguments : nullptr);
    switch (around) {
      case Around::kNothing:
        break;
      case Around::kSparseWrite:
        if (n % kSparse != 0) break;
        [[fallthrough]];
      case Around::kValueWrite:
        LULL_MUST(device_.driver, cuStreamWriteValue64, stream_, word_, n, 0u);
        break;
      case Around::kEvent:
        LULL_MUST(device_.driver, cuEventRecord, untimed_[n % std::size(untimed_)], stream_);
        break;
      case Around::kTimedPair:
        LULL_MUST(device_.driver, cuEventRecord, pair[1], stream_);
        break;
    }
  }

  void wait() const { LULL_MUST(device_.driver, cuStreamSynchronize, stream_); }

 private:
  const Device& device_;
  CUstream stream_;
  CUevent over_ = nullptr;
  CUevent timed_[512] = {};
  CUevent untimed_[256] = {};
  CUdeviceptr word_ = 0;
  uint64_t launches_ = 0;
};

struct Filled {
  int launches;   // accepted while the device was held
  bool waited;    // then a call waited for the device
  bool released;  // the device was free again before either was known
};

Filled fill(const Device& device, Launcher& launcher, Around around, const QueueWishes& wishes) {
  launcher.hold(static_cast<uint64_t>(wishes.hold_ms * 1e6));
  Filled found{wishes.most, false, false};
  for (int n = 0; n < wishes.most; ++n) {
    const uint64_t start = device.now_ns();
    launcher.launch(around, 0);
    // A call that the machine held up returns with the device still busy.
    if (device.now_ns() - start > kLongCallNs && !launcher.held()) {
      found = {n, true, false};
      break;
    }
  }
  if (!found.waited) found.released = !launcher.held();
  launcher.wait();
  return found;
}

json depths(const Device& device, Launcher& launcher, const QueueWishes& wishes) {
  json rows = json::array();
  for (const auto& kind : kKinds) {
    if (kind.around == Around::kSparseWrite || !launcher.can(kind.around)) continue;
    std::vector<double> launches;
    int waited = 0, released = 0;
    for (int i = 0; i < wishes.fills; ++i) {
      const Filled found = fill(device, launcher, kind.around, wishes);
      released += found.released ? 1 : 0;
      waited += found.waited ? 1 : 0;
      if (found.waited) launches.push_back(found.launches);
    }
    json row = {{"around", kind.name},
                {"fills", wishes.fills},
                {"waited", waited},
                {"released_early", released},
                {"most", wishes.most}};
    if (!launches.empty()) {
      row["launches_p50"] = median(launches);
      row["launches_least"] = *std::ranges::min_element(launches);
      row["launches_most"] = *std::ranges::max_element(launches);
    }
    rows.push_back(row);
  }
  return rows;
}

// ns a launch of a device that always has work: every kind once in each round, in any order, so
// that a machine that is slow for a while is slow for all of them.
json drags(const Device& device, Launcher& launcher, const QueueWishes& wishes) {
  const CUevent from = device.event(), to = device.event();
  std::mt19937 random(1);
  json rows = json::array();
  for (const double kernel_us : {0.0, 20.0}) {
    struct Times {
      std::vector<double> device_ns, host_ns, added_ns;
    } times[std::size(kKinds)];
    int starved = 0;
    std::vector<size_t> order;
    for (size_t kind = 0; kind < std::size(kKinds); ++kind) {
      if (launcher.can(kKinds[kind].around)) order.push_back(kind);
    }
    for (int round = -1; round < wishes.rounds; ++round) {
      std::ranges::shuffle(order, random);
      double took[std::size(kKinds)] = {}, called[std::size(kKinds)] = {};
      bool ahead = true;
      for (const size_t kind : order) {
        launcher.hold(static_cast<uint64_t>(wishes.ahead_ms * 1e6));
        LULL_MUST(device.driver, cuEventRecord, from, launcher.stream());
        const uint64_t start = device.now_ns();
        for (int n = 0; n < wishes.batch; ++n) {
          launcher.launch(kKinds[kind].around, static_cast<uint64_t>(kernel_us * 1e3));
        }
        called[kind] = static_cast<double>(device.now_ns() - start) / wishes.batch;
        ahead = ahead && launcher.held();  // everything was queued before the first could begin
        LULL_MUST(device.driver, cuEventRecord, to, launcher.stream());
        launcher.wait();
        took[kind] = device.elapsed_us(from, to) * 1e3 / wishes.batch;
      }
      if (round < 0) continue;
      if (!ahead) {
        ++starved;
        continue;
      }
      for (const size_t kind : order) {
        times[kind].device_ns.push_back(took[kind]);
        times[kind].host_ns.push_back(called[kind]);
        times[kind].added_ns.push_back(took[kind] - took[0]);
      }
    }
    for (size_t kind = 0; kind < std::size(kKinds); ++kind) {
      if (times[kind].device_ns.empty()) continue;
      rows.push_back({{"around", kKinds[kind].name},
                      {"kernel_us", kernel_us},
                      {"device_ns", spread(times[kind].device_ns)},
                      {"host_ns", spread(times[kind].host_ns)},
                      {"added_ns", spread(times[kind].added_ns)},
                      {"rounds_left_out", starved}});
    }
  }
  return rows;
}

// Kernels that write down when they ran, on a device that always has work: with nothing between
// them and with two events around each. The events' times beside the kernels' own.
json stamps(const Device& device, Launcher& launcher, const QueueWishes& wishes) {
  constexpr size_t kCount = 64;
  constexpr size_t kBytes = 2 * kCount * sizeof(uint64_t);
  Driver& driver = device.driver;
  CUmodule module = nullptr;
  CUfunction stamp = nullptr;
  LULL_MUST(driver, cuModuleLoadData, &module, static_cast<const void*>(kStamp));
  LULL_MUST(driver, cuModuleGetFunction, &stamp, module, "stamp");
  CUdeviceptr out = 0;
  LULL_MUST(driver, cuMemAlloc, &out, kBytes);
  std::vector<CUevent> begins, ends;
  for (size_t n = 0; n < kCount; ++n) {
    begins.push_back(device.event());
    ends.push_back(device.event());
  }
  std::vector<uint64_t> words(2 * kCount);
  std::vector<double> bare_gap, gap, excess, between;
  for (int round = -1; round < wishes.rounds; ++round) {
    for (const bool events : {false, true}) {
      LULL_MUST(driver, cuMemsetD32, out, 0u, kBytes / 4);
      launcher.hold(static_cast<uint64_t>(wishes.ahead_ms * 1e6));
      for (size_t n = 0; n < kCount; ++n) {
        CUdeviceptr place = out + 2 * n * sizeof(uint64_t);
        uint64_t spin_ns = 20'000;
        void* arguments[] = {&place, &spin_ns};
        if (events) LULL_MUST(driver, cuEventRecord, begins[n], launcher.stream());
        device.launch(stamp, launcher.stream(), arguments);
        if (events) LULL_MUST(driver, cuEventRecord, ends[n], launcher.stream());
      }
      const bool ahead = launcher.held();
      launcher.wait();
      LULL_MUST(driver, cuMemcpyDtoH, static_cast<void*>(words.data()), out, kBytes);
      if (words[0] == 0 || words[1] == 0) {
        LULL_MUST(driver, cuMemFree, out);
        return {{"skipped", "the device runs no code: its kernels wrote no times"}};
      }
      if (round < 0 || !ahead) continue;
      for (size_t n = 0; n < kCount; ++n) {
        const auto length = static_cast<double>(words[2 * n + 1] - words[2 * n]);
        if (events) excess.push_back(device.elapsed_us(begins[n], ends[n]) * 1e3 - length);
        if (n + 1 == kCount) break;
        const double free =
            static_cast<double>(words[2 * n + 2]) - static_cast<double>(words[2 * n + 1]);
        (events ? gap : bare_gap).push_back(free);
        if (events) between.push_back(device.elapsed_us(ends[n], begins[n + 1]) * 1e3);
      }
    }
  }
  LULL_MUST(driver, cuMemFree, out);
  if (excess.empty() || bare_gap.empty()) {
    return {{"skipped", "the host was never far enough ahead of the device"}};
  }
  // The device's timer may tick in steps of a microsecond: means see through that, medians do not.
  const auto mean = [](const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  };
  const auto row = [&](const std::vector<double>& values) {
    json one = spread(values);
    one["mean"] = mean(values);
    return one;
  };
  return {{"events_over_kernel_ns", row(excess)},
          {"gap_ns", row(gap)},
          {"gap_between_events_ns", row(between)},
          {"gap_without_events_ns", row(bare_gap)}};
}

}  // namespace

json probe_queue(Driver& driver, const QueueWishes& wishes) {
  const Device device(driver);
  Launcher launcher(device);
  for (int n = 0; n < 100; ++n) launcher.launch(Around::kNothing, 0);
  launcher.wait();
  json answer = {{"batch", wishes.batch}, {"rounds", wishes.rounds}};
  answer["depths"] = depths(device, launcher, wishes);
  answer["drags"] = drags(device, launcher, wishes);
  answer["stamps"] = stamps(device, launcher, wishes);
  return answer;
}

}  // namespace lull::probe
