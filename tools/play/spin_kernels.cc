#include "tools/play/spin_kernels.h"

#include <set>

#include "tools/play/kernel_name.h"

namespace lull::play {
namespace {

constexpr char kHeader[] =
    ".version 6.0\n"
    ".target sm_52\n"
    ".address_size 64\n";

constexpr char kBody[] = R"((
  .param .u64 spin_ns,
  .param .u64 start_word,
  .param .u64 ticket
)
{
  .reg .pred %more;
  .reg .u32 %thread, %part;
  .reg .u64 %spin, %word, %mine, %seen, %old, %fresh, %start, %now, %passed;
  .reg .u64 %cycles, %cycles_before, %before, %away;
  mov.u32 %thread, %tid.x;
  mov.u32 %part, %tid.y;
  or.b32 %thread, %thread, %part;
  mov.u32 %part, %tid.z;
  or.b32 %thread, %thread, %part;
  setp.ne.u32 %more, %thread, 0;
  @%more bra DONE;
  ld.param.u64 %spin, [spin_ns];
  ld.param.u64 %word, [start_word];
  ld.param.u64 %mine, [ticket];
  shl.b64 %mine, %mine, 48;
  cvta.to.global.u64 %word, %word;
  ld.volatile.global.u64 %seen, [%word];
LOOK:
  xor.b64 %old, %seen, %mine;
  shr.u64 %old, %old, 48;
  setp.eq.u64 %more, %old, 0;
  @%more bra STARTED;
  mov.u64 %now, %globaltimer;
  shl.b64 %fresh, %now, 16;
  shr.u64 %fresh, %fresh, 16;
  or.b64 %fresh, %fresh, %mine;
  atom.global.cas.b64 %old, [%word], %seen, %fresh;
  setp.eq.u64 %more, %old, %seen;
  mov.u64 %seen, %old;
  @!%more bra LOOK;
  mov.u64 %seen, %fresh;
STARTED:
  shl.b64 %start, %seen, 16;
  mov.u64 %before, %globaltimer;
  mov.u64 %cycles_before, %clock64;
SPIN:
  mov.u64 %cycles, %clock64;
  mov.u64 %now, %globaltimer;
  sub.u64 %away, %cycles, %cycles_before;
  mov.u64 %cycles_before, %cycles;
  setp.gt.u64 %more, %away, 50000;
  @%more bra AWAY;
BACK:
  mov.u64 %before, %now;
  shl.b64 %passed, %now, 16;
  sub.u64 %passed, %passed, %start;
  shr.s64 %passed, %passed, 16;
  setp.lt.s64 %more, %passed, %spin;
  @%more bra SPIN;
  bra DONE;
AWAY:
  sub.u64 %away, %now, %before;
  shl.b64 %away, %away, 16;
  add.u64 %fresh, %start, %away;
  shr.u64 %fresh, %fresh, 16;
  or.b64 %fresh, %fresh, %mine;
  atom.global.cas.b64 %old, [%word], %seen, %fresh;
  setp.eq.u64 %more, %old, %seen;
  mov.u64 %seen, %old;
  @%more mov.u64 %seen, %fresh;
  shl.b64 %start, %seen, 16;
  bra BACK;
DONE:
  ret;
}
)";

}  // namespace

std::vector<std::string> entry_names(const Workload& workload) {
  std::vector<std::string> names;
  names.reserve(workload.kernels.size());
  for (const Kernel& kernel : workload.kernels) names.push_back(escape_kernel_name(kernel.name));
  return names;
}

std::string spin_module_ptx(const std::vector<std::string>& names) {
  std::string ptx = kHeader;
  for (const auto& name : std::set<std::string>(names.begin(), names.end())) {
    ptx += "\n.visible .entry " + name + kBody;
  }
  return ptx;
}

}  // namespace lull::play
