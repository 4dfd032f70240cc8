#include "tools/lull/trace/kernel_kind.h"

#include <catch2/catch.hpp>

#include "tests/trace_show/events.h"
#include "tools/lull/trace/analysis.h"

using namespace lull;
using namespace lull::trace;
using namespace lull::trace::testing;

TEST_CASE("kernels are grouped by what their names say") {
  const auto kind = [](std::string_view name) { return work_kind(UnitKind::kKernel, name); };
  CHECK(kind("ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn") == "gemm");
  CHECK(kind("void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm>()") == "gemm");
  CHECK(kind("void cublasLt::splitKreduce_kernel<32, 16, int, float>()") == "reduction");
  CHECK(kind("fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)") ==
        "attention");
  CHECK(kind("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float> >()") ==
        "elementwise");
  CHECK(kind("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>()") ==
        "reduction");
  CHECK(kind("ncclDevKernel_AllReduce_Sum_f32_RING_LL") == "collective");
  CHECK(kind("void at::native::CatArrayBatchedCopy<float>()") == "copy");
  CHECK(kind("vectorAdd(float*)") == "other");
  CHECK(work_kind(UnitKind::kMemset, "gemm") == "copy");
}

TEST_CASE("a kind's total is that of its kernels") {
  Analysis analysis{FileInfo{}};
  analysis.feed(started(1, "t"));
  analysis.feed(kernel(0, "gemm_a"));
  analysis.feed(kernel(1, "gemm_b"));
  analysis.feed(kernel(2, "softmax"));
  for (uint32_t i = 0; i < 3; ++i) {
    analysis.feed(launch(1, 0, i, i + 1, 100));
    analysis.feed(timing(1, 0, i, i + 1, -1, 100 * (i + 1)));
  }
  const auto rows = kind_rows(analysis.finish());
  REQUIRE(rows.size() == 2);

  CHECK(rows[0].count + rows[1].count == 3);
  CHECK(rows[0].total_ns == 300);
  CHECK(rows[1].total_ns == 300);
}
