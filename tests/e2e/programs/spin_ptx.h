// PTX that takes its time. Two kernels that keep a real GPU busy for `spin_ns` nanoseconds; the
// simulated one takes the cost from the argument. Two, so that there is more than one kernel to
// tell apart.
#pragma once

#define SPIN_PTX_HEADER ".version 7.0\n.target sm_52\n.address_size 64\n"

// A kernel that runs for its parameter `spin_ns`, after `body`, which has %r0 to %r1 and %rd5 to
// itself.
#define SPIN_PTX_KERNEL_WITH(name, parameters, body)        \
  ".visible .entry " name "(.param .u64 spin_ns" parameters \
  ")\n"                                                     \
  "{\n"                                                     \
  "  .reg .pred %p<2>;\n"                                   \
  "  .reg .b32 %r<2>;\n"                                    \
  "  .reg .b64 %rd<6>;\n"                                   \
  "  ld.param.u64 %rd1, [spin_ns];\n" body                  \
  "  mov.u64 %rd2, %globaltimer;\n"                         \
  "again:\n"                                                \
  "  mov.u64 %rd3, %globaltimer;\n"                         \
  "  sub.u64 %rd4, %rd3, %rd2;\n"                           \
  "  setp.lt.u64 %p1, %rd4, %rd1;\n"                        \
  "  @%p1 bra again;\n"                                     \
  "  ret;\n"                                                \
  "}\n"
#define SPIN_PTX_KERNEL(name) SPIN_PTX_KERNEL_WITH(name, "", "")

[[maybe_unused]] static const char kSpinPtx[] =
    SPIN_PTX_HEADER SPIN_PTX_KERNEL("spin") SPIN_PTX_KERNEL("second_spin");
