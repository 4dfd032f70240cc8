#include "tools/gpu_check/native/load_kernels.h"

namespace lull::probe {
namespace {

// 50,000 cycles between two looks: 25 us at 2 GHz, longer than a block waits for its turn on a
// multiprocessor and shorter than a slice of another process.
constexpr char kHeld[] = R"(
.visible .entry held(.param .u64 block_ns, .param .u64 spin_ns)
{
  .reg .pred %other, %away, %more;
  .reg .u32 %thread;
  .reg .u64 %length, %last, %now, %step, %passed, %cycles, %cycles_before;
  mov.u32 %thread, %tid.x;
  setp.ne.u32 %other, %thread, 0;
  @%other bra DONE;
  ld.param.u64 %length, [block_ns];
  mov.u64 %passed, 0;
  mov.u64 %last, %globaltimer;
  mov.u64 %cycles_before, %clock64;
LOOK:
  mov.u64 %cycles, %clock64;
  mov.u64 %now, %globaltimer;
  sub.u64 %step, %cycles, %cycles_before;
  mov.u64 %cycles_before, %cycles;
  setp.gt.u64 %away, %step, 50000;
  sub.u64 %step, %now, %last;
  mov.u64 %last, %now;
  @%away bra LOOK;
  add.u64 %passed, %passed, %step;
  setp.lt.u64 %more, %passed, %length;
  @%more bra LOOK;
DONE:
  bar.sync 0;
  ret;
}
)";

// The thread's number in the grid, and the number of threads.
constexpr char kThread[] = R"(
  mov.u32 %thread, %tid.x;
  mov.u32 %width, %ntid.x;
  mov.u32 %index, %ctaid.x;
  mad.lo.u32 %index, %index, %width, %thread;
  mov.u32 %all, %nctaid.x;
  mul.lo.u32 %all, %all, %width;
)";

// Each thread has a part of shared memory filled with `word`, of `words` 4-byte words in all.
std::string filled(const char* word, int words) {
  return std::string(R"(
  mov.u32 %base, tile;
  mov.u32 %at, %thread;
FILL:
  setp.ge.u32 %more, %at, )") +
         std::to_string(words) + R"(;
  @%more bra FILLED;
  shl.b32 %place, %at, 2;
  add.u32 %place, %place, %base;
  st.shared.b32 [%place], )" +
         word + R"(;
  add.u32 %at, %at, %width;
  bra FILL;
FILLED:
  bar.sync 0;
)";
}

constexpr char kMultiplyRegisters[] =
    R"(.visible .entry NAME(.param .u64 out, .param .u64 rounds, .param .u64 spin_ns)
.maxnreg 64
{
  .reg .pred %more;
  .reg .u32 %thread, %width, %index, %all, %base, %at, %place, %stage;
  .reg .u64 %rounds, %left, %out, %offset;
)";

std::string multiply_head(const std::string& name) {
  std::string text = kMultiplyRegisters;
  return "\n" + text.replace(text.find("NAME"), 4, name);
}

// Adds the registers %c0 to %c(count - 1) and stores the sum as the thread's.
std::string sum_and_store(int count) {
  std::string text;
  for (int i = 1; i < count; ++i) text += "  add.f32 %c0, %c0, %c" + std::to_string(i) + ";\n";
  return text + R"(
  ld.param.u64 %out, [out];
  cvta.to.global.u64 %out, %out;
  mul.wide.u32 %offset, %index, 4;
  add.u64 %out, %out, %offset;
  st.global.f32 [%out], %c0;
  ret;
}
)";
}

// Each of the four parts of the tile in turn: what is read depends on the round, and so stays in
// the loop.
std::string loop_head(int part_bytes) {
  return R"(
  ld.param.u64 %rounds, [rounds];
  mov.u64 %left, %rounds;
ROUND:
  cvt.u32.u64 %stage, %left;
  and.b32 %stage, %stage, 3;
  mul.lo.u32 %stage, %stage, )" +
         std::to_string(part_bytes) + ";\n  add.u32 %stage, %stage, %place;\n";
}
constexpr char kLoopEnd[] = R"(
  sub.u64 %left, %left, 1;
  setp.ne.u64 %more, %left, 0;
  @%more bra ROUND;
)";

std::string zeros(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "  mov.f32 %c" + std::to_string(i) + ", 0f00000000;\n";
  return text;
}

std::string multiply_add() {
  // A part: 32 lanes of four floats for each side.
  std::string text = multiply_head("multiply_add") + R"(
  .reg .f32 %x<4>, %y<4>, %c<16>;
  .shared .align 16 .b8 tile[4096];
)";
  text += kThread + filled("0x3f800000", 1024) + zeros(16) + R"(
  and.b32 %place, %thread, 31;
  shl.b32 %place, %place, 4;
  add.u32 %place, %place, %base;
)" + loop_head(1024) +
          R"(
  ld.shared.v4.f32 {%x0, %x1, %x2, %x3}, [%stage];
  ld.shared.v4.f32 {%y0, %y1, %y2, %y3}, [%stage+512];
)";
  for (int i = 0; i < 16; ++i) {
    const std::string c = "%c" + std::to_string(i);
    text += "  fma.rn.f32 " + c + ", %x" + std::to_string(i / 4) + ", %y" + std::to_string(i % 4) +
            ", " + c + ";\n";
  }
  return text + kLoopEnd + sum_and_store(16);
}

std::string multiply() {
  // A part: the left matrix, 16 bytes a lane, then eight pieces of the right one, 8 bytes a lane.
  std::string text = multiply_head("multiply") + R"(
  .reg .b32 %a<4>, %b<2>;
  .reg .f32 %c<32>;
  .reg .u32 %right;
  .shared .align 16 .b8 tile[10240];
)";
  text += kThread + filled("0x3c003c00", 2560) + zeros(32) + R"(
  and.b32 %at, %thread, 31;
  shl.b32 %place, %at, 4;
  add.u32 %place, %place, %base;
)" + loop_head(2560) +
          R"(
  ld.shared.v4.b32 {%a0, %a1, %a2, %a3}, [%stage];
  shl.b32 %right, %at, 3;
  sub.u32 %right, %stage, %right;
)";
  for (int piece = 0; piece < 8; ++piece) {
    std::string c;
    for (int i = 0; i < 4; ++i) c += (i ? ", %c" : "%c") + std::to_string(4 * piece + i);
    text += "  ld.shared.v2.b32 {%b0, %b1}, [%right+" + std::to_string(512 + 256 * piece) +
            "];\n  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {" + c +
            "}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, {" + c + "};\n";
  }
  return text + kLoopEnd + sum_and_store(32);
}

// What `stream` and `reread` share: pointers to the thread's elements, and the steps between them.
constexpr char kWalk[] = R"(
  ld.param.u64 %from, [from];
  cvta.to.global.u64 %from, %from;
  mul.wide.u32 %offset, %index, 16;
  mul.wide.u32 %stride, %all, 16;
  shl.b64 %leap, %stride, 2;
  ld.param.u64 %rounds, [rounds];
ROUND:
  add.u64 %read, %from, %offset;
  ld.param.u64 %loops, [loops];
)";
constexpr char kWalkRegisters[] = R"(
.maxnreg 64
{
  .reg .pred %more;
  .reg .u32 %thread, %width, %index, %all;
  .reg .u32 %v<16>, %sum;
  .reg .u64 %from, %to, %offset, %stride, %leap, %loops, %rounds, %read, %write, %ahead;
)";
constexpr char kWalkEnd[] = R"(
  sub.u64 %loops, %loops, 1;
  setp.ne.u64 %more, %loops, 0;
  @%more bra LOOP;
  sub.u64 %rounds, %rounds, 1;
  setp.ne.u64 %more, %rounds, 0;
  @%more bra ROUND;
)";

std::string four(int i) {
  std::string text = "{";
  for (int n = 4 * i; n < 4 * i + 4; ++n) text += (n % 4 ? ", %v" : "%v") + std::to_string(n);
  return text + "}";
}

// Four elements a step apart, from (or to) `pointer`.
std::string four_elements(const std::string& pointer, const std::string& access, bool load) {
  std::string text = "  mov.u64 %ahead, " + pointer + ";\n";
  for (int i = 0; i < 4; ++i) {
    text += load ? "  " + access + " " + four(i) + ", [%ahead];\n"
                 : "  " + access + " [%ahead], " + four(i) + ";\n";
    if (i < 3) text += "  add.u64 %ahead, %ahead, %stride;\n";
  }
  return text + "  add.u64 " + pointer + ", " + pointer + ", %leap;\n";
}

std::string stream() {
  return std::string(
             "\n.visible .entry stream(.param .u64 from, .param .u64 to, .param .u64 loops, "
             ".param .u64 rounds, .param .u64 spin_ns)") +
         kWalkRegisters + kThread + "  ld.param.u64 %to, [to];\n  cvta.to.global.u64 %to, %to;\n" +
         kWalk + "  add.u64 %write, %to, %offset;\nLOOP:\n" +
         four_elements("%read", "ld.global.v4.u32", true) +
         four_elements("%write", "st.global.v4.u32", false) + kWalkEnd + "  ret;\n}\n";
}

std::string reread() {
  std::string text =
      "\n.visible .entry reread(.param .u64 from, .param .u64 out, .param .u64 loops, "
      ".param .u64 rounds, .param .u64 spin_ns)";
  text += kWalkRegisters;
  text += kThread;
  text += "  mov.u32 %sum, 0;\n";
  text += kWalk;
  text += "LOOP:\n" + four_elements("%read", "ld.global.cg.v4.u32", true);
  for (int i = 0; i < 16; ++i) text += "  add.u32 %sum, %sum, %v" + std::to_string(i) + ";\n";
  text += kWalkEnd;
  return text + R"(
  ld.param.u64 %to, [out];
  cvta.to.global.u64 %to, %to;
  mul.wide.u32 %offset, %index, 4;
  add.u64 %to, %to, %offset;
  st.global.u32 [%to], %sum;
  ret;
}
)";
}

}  // namespace

std::string load_ptx() {
  return ".version 6.0\n.target sm_52\n.address_size 64\n" + std::string(kHeld) + multiply_add() +
         stream() + reread();
}

std::string tensor_ptx() { return ".version 7.0\n.target sm_80\n.address_size 64\n" + multiply(); }

}  // namespace lull::probe
