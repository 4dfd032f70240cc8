// What is known of a task on one model of GPU, as data and as text: so that it can be kept between
// runs. Made by Engine::record, taken up by the input TaskRecalled; the daemon's ProfileStore keeps
// the text. Pure.
//
// The text is JSON, version 1:
//   {"format":"lull task profile","version":1,"task":"1000/train","gpu":"NVIDIA H100 80GB HBM3",
//    "iteration":{"undisturbed_ns":75473000,"count":63},
//    "kernels":[{"id":"00f3..","name":"gemm","count":9450,"mean_ns":8123,"p50_ns":..,"p90_ns":..,
//                "p99_ns":..,"last_ns":..,"buckets":[[index,samples],..],
//                "gap":{"count":..,"mean_ns":..,"p50_ns":..,...,"buckets":[..]}}]}
// Read back are count, mean, last and the buckets; the quantiles and names are there for people.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "policies/prediction/kernel_profile.h"
#include "policies/vocabulary.h"

namespace lull::engine {

inline constexpr int kTaskRecordVersion = 1;
inline constexpr size_t kMaxTaskKey = 256;  // bytes
inline constexpr size_t kMaxKernelsInRecord = 8192;
inline constexpr size_t kMaxTaskRecordBytes = 16U << 20;

struct TaskRecord {
  struct Kernel {
    KernelId id;
    std::string name;  // may be empty
    policies::KernelProfile::Saved saved;
  };
  std::string task;  // its key
  std::string gpu;   // model
  Duration undisturbed;  // an iteration of it; 0: not known
  uint64_t undisturbed_count = 0;
  std::vector<Kernel> kernels;  // by id
};

std::string write_task_record(const TaskRecord& record);
// An error says why, in one line.
std::expected<TaskRecord, std::string> read_task_record(std::string_view text);

}  // namespace lull::engine
