// NVTX ranges of the program, for traces. Each NVTX (version 3) in a process is a few headers in the
// program or a library; at its first call it loads the library that NVTX_INJECTION64_PATH names,
// which `lull run` sets to this one, and calls InitializeInjectionNvtx2. We put our functions into its
// table; a program that has the variable set already keeps its own tool.
//
//   push, start: name and time kept by the thread, by an id --pop, end--> one record, when a trace is
//   marks: one record                                                     written (kRecordEverything)
//
// While no trace is written a call costs a look at two words. A range that was open when the trace
// began, or is when it ends, is not in it. Any thread; nothing is allocated, every table has a bound,
// and what finds one full is counted in the nesting and not recorded, or has a name that stands for
// several.
//
// The layouts below are NVTX's public ABI (nvtxTypes.h and nvToolsExt.h of github.com/NVIDIA/NVTX),
// as far as we read it.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace lull::shim::nvtx {

enum ExportTable : uint32_t { kCallbacks = 1 };
enum Module : int { kCore = 1, kCore2 = 5 };
enum CoreCall : uint32_t {
  kMarkEx = 1, kMarkA, kMarkW,
  kRangeStartEx, kRangeStartA, kRangeStartW, kRangeEnd,
  kRangePushEx, kRangePushA, kRangePushW, kRangePop,
};
enum Core2Call : uint32_t {
  kDomainMarkEx = 1, kDomainRangeStartEx, kDomainRangeEnd, kDomainRangePushEx, kDomainRangePop,
  kDomainRegisterStringA = 10, kDomainRegisterStringW, kDomainCreateA, kDomainCreateW,
};

using Function = void (*)();
// What a tool asks for: where the pointer of each call of a module lies, by number.
struct Callbacks {
  size_t struct_size;
  int (*function_table)(int module, Function*** table, unsigned int* size);
};
using GetExportTable = const void* (*)(uint32_t id);

enum MessageType : int32_t { kNoMessage = 0, kText = 1, kWide = 2, kRegistered = 3 };
struct Attributes {
  uint16_t version;
  uint16_t size;
  uint32_t category;
  int32_t colour_type;
  uint32_t colour;
  int32_t payload_type;
  int32_t reserved;
  uint64_t payload;
  int32_t message_type;
  const void* message;  // char*, wchar_t* or the handle of a registered string
};
static_assert(sizeof(Attributes) == 48);

}  // namespace lull::shim::nvtx
