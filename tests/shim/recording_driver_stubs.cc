// One function for every row of the shim's list, weak, that notes its name and succeeds. Without
// cuda.h, so that no prototype is in the way. recording_driver.cc defines the ones that act.
extern "C" void note_call(const char* name);

#define LULL_HOOK(name, family)                                                    \
  extern "C" __attribute__((weak, visibility("default"))) int name() {             \
    note_call(#name);                                                              \
    return 0;                                                                      \
  }
#include "shim/driver_api.def"
#undef LULL_HOOK

struct VersionedCall {
  const char* base;
  int version;
  bool per_thread;
  const char* name;
  int (*function)();
};
extern const VersionedCall versioned_calls[];
const VersionedCall versioned_calls[] = {
#define LULL_VERSION(base, version, per_thread, name) {#base, version, per_thread, #name, &name},
#include "shim/proc_versions.def"
#undef LULL_VERSION
    {nullptr, 0, false, nullptr, nullptr}};
