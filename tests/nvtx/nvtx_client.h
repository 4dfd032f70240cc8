// A program's side of NVTX, for the tests: what its headers do at the first call. The library that
// NVTX_INJECTION64_PATH names is loaded, asked for InitializeInjectionNvtx2, and fills in the tables of
// functions; without one, or where it returns 0, every call is nothing. Written from the public
// description of the protocol; only what is tested is there. Header only; one per program or library.
#pragma once

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>

#include <cstddef>

namespace nvtx_client {

struct Attributes {
  uint16_t version = 3, size = 48;
  uint32_t category = 0;
  int32_t colour_type = 0;
  uint32_t colour = 0;
  int32_t payload_type = 0, reserved = 0;
  uint64_t payload = 0;
  int32_t message_type = 0;
  const void* message = nullptr;
};
static_assert(sizeof(Attributes) == 48);

using Function = void (*)();
// As many as NVTX has calls, the first one unused.
inline Function core[16], core2[16];
inline Function* core_table[17];
inline Function* core2_table[17];

inline int function_table(int module, Function*** table, unsigned int* size) {
  if (module != 1 && module != 5) return 0;  // the modules that name CUDA's things: not here
  if (table != nullptr) *table = module == 1 ? core_table : core2_table;
  if (size != nullptr) *size = 16;
  return 1;
}
struct Callbacks {
  size_t size;
  int (*function_table)(int, Function***, unsigned int*);
};
inline const Callbacks callbacks{sizeof(Callbacks), function_table};
inline const void* export_table(uint32_t id) { return id == 1 ? &callbacks : nullptr; }

// 0: there is a tool; else what was missing.
inline int load() {
  for (int n = 1; n < 16; ++n) core_table[n] = &core[n], core2_table[n] = &core2[n];
  const char* path = getenv("NVTX_INJECTION64_PATH");
  if (path == nullptr) return 1;
  void* library = dlopen(path, RTLD_LAZY);
  if (library == nullptr) return 2;
  const auto initialise = reinterpret_cast<int (*)(const void* (*)(uint32_t))>(
      dlsym(library, "InitializeInjectionNvtx2"));
  if (initialise == nullptr) return dlclose(library), 3;
  if (initialise(export_table) == 0) return dlclose(library), 4;
  return 0;
}

template <typename Result, typename... Arguments>
Result call(Function function, Result nothing, Arguments... arguments) {
  if (function == nullptr) return nothing;
  return reinterpret_cast<Result (*)(Arguments...)>(function)(arguments...);
}
template <typename... Arguments>
void tell(Function function, Arguments... arguments) {
  if (function != nullptr) reinterpret_cast<void (*)(Arguments...)>(function)(arguments...);
}

inline constexpr int kNoTool = -2;
inline int push(const char* name) { return call(core[9], kNoTool, name); }
inline int push(const wchar_t* name) { return call(core[10], kNoTool, name); }
inline int push(const Attributes& what) { return call(core[8], kNoTool, &what); }
inline int pop() { return call(core[11], kNoTool); }
inline void mark(const char* name) { tell(core[2], name); }
inline uint64_t start(const char* name) { return call(core[5], uint64_t{0}, name); }
inline void end(uint64_t id) { tell(core[7], id); }
inline void* domain(const char* name) { return call(core2[12], static_cast<void*>(nullptr), name); }
inline void* registered(void* domain, const char* name) {
  return call(core2[10], static_cast<void*>(nullptr), domain, name);
}
inline int push(void* domain, const Attributes& what) {
  return call(core2[4], kNoTool, domain, &what);
}
inline int pop(void* domain) { return call(core2[5], kNoTool, domain); }

}  // namespace nvtx_client
