// The probe's kernels, as PTX text: one thread each, compiled by the driver at start.
//
//   null_kernel()                          nothing
//   spin(spin_ns)                          keeps a multiprocessor busy that long
//   watch(out, spin_ns, gap_ns, most)      spins and writes down when it did not run: each step of
//     the device's timer longer than gap_ns, at most `most` of them:
//     out[0] first timer value, out[1] number of gaps, out[2] last value, out[3 + 2 i], out[4 + 2
//     i] begin and end of gap i. The timer is the device's: two processes read the same one.
// The simulated GPU takes spin_ns as the kernel's cost and runs no code: out stays as it was.
#pragma once

namespace lull::probe {

inline constexpr char kKernels[] = R"(.version 6.0
.target sm_52
.address_size 64

.visible .entry null_kernel()
{
  ret;
}

.visible .entry spin(.param .u64 spin_ns)
{
  .reg .pred %more;
  .reg .u64 %length, %start, %now, %passed;
  ld.param.u64 %length, [spin_ns];
  mov.u64 %start, %globaltimer;
AGAIN:
  mov.u64 %now, %globaltimer;
  sub.u64 %passed, %now, %start;
  setp.lt.u64 %more, %passed, %length;
  @%more bra AGAIN;
  ret;
}

.visible .entry watch(.param .u64 out, .param .u64 spin_ns, .param .u64 gap_ns, .param .u64 most)
{
  .reg .pred %no, %more;
  .reg .u64 %out, %length, %gap, %most, %start, %last, %now, %step, %count, %at;
  ld.param.u64 %out, [out];
  ld.param.u64 %length, [spin_ns];
  ld.param.u64 %gap, [gap_ns];
  ld.param.u64 %most, [most];
  cvta.to.global.u64 %out, %out;
  mov.u64 %start, %globaltimer;
  mov.u64 %last, %start;
  mov.u64 %count, 0;
LOOK:
  mov.u64 %now, %globaltimer;
  sub.u64 %step, %now, %last;
  setp.lt.u64 %no, %step, %gap;
  @%no bra NEXT;
  setp.ge.u64 %no, %count, %most;
  @%no bra NEXT;
  shl.b64 %at, %count, 4;
  add.u64 %at, %at, %out;
  st.global.u64 [%at+24], %last;
  st.global.u64 [%at+32], %now;
  add.u64 %count, %count, 1;
NEXT:
  mov.u64 %last, %now;
  sub.u64 %step, %now, %start;
  setp.lt.u64 %more, %step, %length;
  @%more bra LOOK;
  st.global.u64 [%out], %start;
  st.global.u64 [%out+8], %count;
  st.global.u64 [%out+16], %now;
  ret;
}
)";

}  // namespace lull::probe
