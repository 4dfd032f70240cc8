#include <unistd.h>

#include <atomic>
#include <functional>

#include "tools/gpu_check/native/orders.h"
#include "tools/gpu_check/native/probes.h"

namespace lull::probe {

using nlohmann::json;

namespace {

json spread(const std::vector<double>& values) {
  return {{"p50", median(values)},
          {"p10", quantile(values, 0.1)},
          {"p90", quantile(values, 0.9)},
          {"p99", quantile(values, 0.99)}};
}

// ns a call of `body(i)`, i in [0, calls), as the host sees it; then everything is waited for.
// `device_ns` gets the same until the device was done.
std::vector<double> host_cost(const Device& device, CUstream stream, const LaunchWishes& wishes,
                              const std::function<void(int)>& body,
                              std::vector<double>* device_ns = nullptr) {
  std::vector<double> costs;
  for (int batch = -2; batch < wishes.batches; ++batch) {
    const uint64_t start = device.now_ns();
    for (int i = 0; i < wishes.calls; ++i) body(i);
    const uint64_t called = device.now_ns();
    LULL_MUST(device.driver, cuStreamSynchronize, stream);
    const uint64_t done = device.now_ns();
    if (batch < 0) continue;
    costs.push_back(static_cast<double>(called - start) / wishes.calls);
    if (device_ns) device_ns->push_back(static_cast<double>(done - start) / wishes.calls);
  }
  return costs;
}

}  // namespace

json probe_launch(Driver& driver, const LaunchWishes& wishes) {
  const Device device(driver);
  const CUstream stream = device.stream();
  json answer = {{"unit", "ns"}, {"calls", wishes.calls}, {"batches", wishes.batches}};

  std::vector<double> drained;
  const auto launches = host_cost(
      device, stream, wishes, [&](int) { device.launch(device.null_kernel, stream); }, &drained);
  answer["launch_host"] = spread(launches);
  answer["launch_until_done"] = spread(drained);
  if (wishes.launches_only) return answer;

  const CUevent from = device.event(), to = device.event();
  const CUevent untimed = device.event(CU_EVENT_DISABLE_TIMING);
  std::vector<double> with_events, with_untimed;
  answer["event_record_host"] = spread(host_cost(
      device, stream, wishes, [&](int) { LULL_MUST(driver, cuEventRecord, from, stream); }));
  answer["launch_with_event_host"] = spread(host_cost(
      device, stream, wishes,
      [&](int) {
        device.launch(device.null_kernel, stream);
        LULL_MUST(driver, cuEventRecord, to, stream);
      },
      &with_events));
  answer["launch_with_event_until_done"] = spread(with_events);
  answer["launch_with_untimed_event_host"] = spread(host_cost(
      device, stream, wishes,
      [&](int) {
        device.launch(device.null_kernel, stream);
        LULL_MUST(driver, cuEventRecord, untimed, stream);
      },
      &with_untimed));
  answer["launch_with_untimed_event_until_done"] = spread(with_untimed);
  answer["event_query_host"] =
      spread(host_cost(device, stream, wishes, [&](int) { driver.cuEventQuery(to); }));

  std::vector<double> empty_ns, null_ns, round_trip;
  for (int i = 0; i < 200; ++i) {
    LULL_MUST(driver, cuEventRecord, from, stream);
    LULL_MUST(driver, cuEventRecord, to, stream);
    LULL_MUST(driver, cuStreamSynchronize, stream);
    empty_ns.push_back(device.elapsed_us(from, to) * 1e3);
    LULL_MUST(driver, cuEventRecord, from, stream);
    device.launch(device.null_kernel, stream);
    LULL_MUST(driver, cuEventRecord, to, stream);
    LULL_MUST(driver, cuStreamSynchronize, stream);
    null_ns.push_back(device.elapsed_us(from, to) * 1e3);
    const uint64_t start = device.now_ns();
    device.launch(device.null_kernel, stream);
    LULL_MUST(driver, cuStreamSynchronize, stream);
    round_trip.push_back(static_cast<double>(device.now_ns() - start));
  }
  answer["event_pair_empty"] = spread(empty_ns);
  answer["event_pair_null_kernel"] = spread(null_ns);
  answer["launch_and_wait"] = spread(round_trip);

  // The device writes a number into host memory that is registered, as the channel's is.
  void* page = nullptr;
  LULL_MUST(driver, cuMemHostAlloc, &page, size_t{4096},
            static_cast<unsigned>(CU_MEMHOSTALLOC_DEVICEMAP));
  auto* word = static_cast<volatile uint64_t*>(page);
  *word = 0;
  CUdeviceptr target = 0;
  LULL_MUST(driver, cuMemHostGetDevicePointer, &target, page, 0u);
  uint64_t number = 0;
  try {
    LULL_MUST(driver, cuStreamWriteValue64, stream, target, ++number, 0u);
  } catch (const Refused& refused) {
    answer["value_write"] = {{"skipped", refused.call + ": " + driver.name_of(refused.result)}};
    return answer;
  }
  std::vector<double> with_writes;
  json write;
  write["host"] = spread(host_cost(device, stream, wishes, [&](int) {
    LULL_MUST(driver, cuStreamWriteValue64, stream, target, ++number, 0u);
  }));
  write["with_launch_host"] = spread(host_cost(
      device, stream, wishes,
      [&](int) {
        device.launch(device.null_kernel, stream);
        LULL_MUST(driver, cuStreamWriteValue64, stream, target, ++number, 0u);
      },
      &with_writes));
  write["with_launch_until_done"] = spread(with_writes);
  // Never backwards, and the last one there when the stream is done.
  uint64_t seen = *word, backwards = 0, late = 0, looks = 0;
  std::vector<double> visible;
  for (int i = 0; i < 300; ++i) {
    const uint64_t start = device.now_ns();
    device.launch(device.null_kernel, stream);
    LULL_MUST(driver, cuStreamWriteValue64, stream, target, ++number, 0u);
    uint64_t value = *word;
    while (value != number && device.now_ns() - start < 20'000'000) {
      if (value < seen) ++backwards;
      seen = value;
      ++looks;
      value = *word;
    }
    if (value == number) visible.push_back(static_cast<double>(device.now_ns() - start));
    LULL_MUST(driver, cuStreamSynchronize, stream);
    if (*word != number) ++late;
    seen = *word;
  }
  write["launch_until_visible"] = spread(visible);
  write["backwards"] = backwards;
  write["not_there_after_synchronise"] = late;
  write["never_visible_before_synchronise"] = 300 - visible.size();
  answer["value_write"] = write;
  return answer;
}

json probe_turns(Driver& driver, const TurnWishes& wishes) {
  const Device device(driver);
  const CUstream stream = device.stream();
  const LaunchWishes batches{.calls = wishes.calls, .batches = wishes.batches};
  const auto turn = [&] {
    std::vector<double> done;
    const auto called = host_cost(
        device, stream, batches, [&](int) { device.launch(device.null_kernel, stream); }, &done);
    return json{{"call_ns", median(called)}, {"done_ns", median(done)}};
  };
  turn();
  answer({{"ready", getpid()}});
  Orders orders;
  int turns = 0;
  for (; orders.next(); ++turns) answer(turn());
  return {{"turns", turns}};
}

}  // namespace lull::probe
