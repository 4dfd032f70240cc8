// Two kernels that keep a real GPU busy for `spin_ns` nanoseconds; the simulated one takes the
// cost from the argument. Two, so that there is more than one kernel to tell apart.
#pragma once

#define SPIN_PTX_KERNEL(name)         \
  ".visible .entry " name             \
  "(.param .u64 spin_ns)\n"           \
  "{\n"                               \
  "  .reg .pred %p<2>;\n"             \
  "  .reg .b64 %rd<5>;\n"             \
  "  ld.param.u64 %rd1, [spin_ns];\n" \
  "  mov.u64 %rd2, %globaltimer;\n"   \
  "again:\n"                          \
  "  mov.u64 %rd3, %globaltimer;\n"   \
  "  sub.u64 %rd4, %rd3, %rd2;\n"     \
  "  setp.lt.u64 %p1, %rd4, %rd1;\n"  \
  "  @%p1 bra again;\n"               \
  "  ret;\n"                          \
  "}\n"

static const char kSpinPtx[] =
    ".version 7.0\n.target sm_52\n.address_size 64\n" SPIN_PTX_KERNEL("spin")
        SPIN_PTX_KERNEL("second_spin");
