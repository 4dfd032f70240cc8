#include "tools/lull/trace/kernel_kind.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "tools/lull/trace/kernel_display.h"

namespace lull::trace {
namespace {

struct Rule {
  std::string_view part;  // of the name, in small letters
  std::string_view kind;
};

// The first rule that fits counts, so the narrower come first: a fused attention kernel has "gemm"
// in its name, a reduction of gradients between GPUs "reduce".
constexpr Rule kRules[] = {
    {"nccl", "collective"},
    {"allreduce", "collective"},
    {"all_reduce", "collective"},
    {"allgather", "collective"},
    {"all_gather", "collective"},
    {"reducescatter", "collective"},
    {"reduce_scatter", "collective"},
    {"flash_", "attention"},
    {"fmha", "attention"},
    {"attention", "attention"},
    {"memcpy", "copy"},
    {"memset", "copy"},
    {"splitkreduce", "reduction"},  // cuBLAS: sums the parts of a gemm
    {"gemm", "gemm"},
    {"gemv", "gemm"},
    {"cutlass", "gemm"},
    {"xmma", "gemm"},
    {"cublas", "gemm"},
    {"convolve", "gemm"},  // cuDNN computes convolutions as matrix products
    {"fprop", "gemm"},
    {"dgrad", "gemm"},
    {"wgrad", "gemm"},
    {"softmax", "reduction"},
    {"layer_norm", "reduction"},
    {"layernorm", "reduction"},
    {"batch_norm", "reduction"},
    {"bn_fw", "reduction"},
    {"bn_bw", "reduction"},
    {"rmsnorm", "reduction"},
    {"rowwisemoments", "reduction"},
    {"reduce", "reduction"},
    {"argmax", "reduction"},
    {"scan", "reduction"},
    {"elementwise", "elementwise"},
    {"multi_tensor_apply", "elementwise"},
    {"vectorized", "elementwise"},
    {"pointwise", "elementwise"},
    {"catarraybatched", "copy"},
    {"copy_kernel", "copy"},
    {"transpose", "copy"},
};

}  // namespace

std::string_view work_kind(UnitKind unit, std::string_view name) {
  if (unit == UnitKind::kCopy || unit == UnitKind::kMemset) return "copy";
  std::string small(name);
  std::transform(small.begin(), small.end(), small.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const Rule& rule : kRules) {
    if (small.find(rule.part) != std::string::npos) return rule.kind;
  }
  return "other";
}

std::vector<KindRow> kind_rows(const Report& report) {
  std::vector<KindRow> rows;
  for (const KernelRow& kernel : report.kernels) {
    if (kernel.kernel >= report.kernel_infos.size()) continue;
    const KernelInfo& info = report.kernel_infos[kernel.kernel];
    const std::string_view kind = work_kind(info.kind, display_name(info.name));
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const KindRow& one) { return one.kind == kind; });
    if (row == rows.end()) row = rows.insert(rows.end(), {kind});
    row->count += kernel.total.count;
    row->total_ns += std::max(0.0, kernel.total.total_ns());
    row->estimated |= kernel.total.is_estimate();
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const KindRow& a, const KindRow& b) { return a.total_ns > b.total_ns; });
  return rows;
}

}  // namespace lull::trace
