#include "shim/nvtx.h"

#include <string.h>
#include <wchar.h>

#include <atomic>

#include "coordinator/channel/identity.h"
#include "shim/connection.h"
#include "shim/driver.h"
#include "shim/kernel_identity.h"

namespace lull::shim {
namespace {

using namespace nvtx;

constexpr uint32_t kNames = 4096;            // different names of ranges and domains
constexpr uint32_t kNameTable = 2 * kNames;  // a power of two
constexpr uint32_t kManyNames = kNames / 2;  // from here on digits in a name become one '#'
constexpr size_t kNameChars = 255;
constexpr uint32_t kRangeNameBytes = channel::kNameBytes / 4;
constexpr uint32_t kDomains = 64;
constexpr uint32_t kOpen = 256;   // started and not ended
constexpr uint32_t kNested = 32;  // pushed and not popped, of a thread

// ---- names -------------------------------------------------------------------------------------

// A name and where the channel has it. `hash` is set first, by whoever claims the entry; until
// `offset` is there too the name has none.
struct Name {
  std::atomic<uint64_t> hash;
  std::atomic<uint32_t> offset;
};
constinit Name names[kNameTable];
std::atomic<uint32_t> names_used;
std::atomic<uint32_t> name_bytes_used;

size_t without_digits(char* text, size_t length) {
  size_t kept = 0;
  for (size_t n = 0; n < length; ++n) {
    const bool digit = text[n] >= '0' && text[n] <= '9';
    if (digit && kept > 0 && text[kept - 1] == '#') continue;
    text[kept++] = digit ? '#' : text[n];
  }
  return kept;
}

Name* find_name(uint64_t hash, bool& fresh) {
  fresh = false;
  for (uint32_t n = 0; n < kNameTable; ++n) {
    Name& entry = names[(hash + n) % kNameTable];
    uint64_t seen = entry.hash.load(std::memory_order_acquire);
    if (seen == hash) return &entry;
    if (seen != 0) continue;
    if (names_used.load(std::memory_order_relaxed) >= kNames) return nullptr;
    if (entry.hash.compare_exchange_strong(seen, hash, std::memory_order_acq_rel)) {
      names_used.fetch_add(1, std::memory_order_relaxed);
      fresh = true;
      return &entry;
    }
    if (seen == hash) return &entry;
  }
  return nullptr;
}

// Where the channel keeps it; 0: no name, or no room for one.
uint32_t keep(char* text, size_t length) {
  if (length == 0) return 0;
  if (names_used.load(std::memory_order_relaxed) >= kManyNames) {
    length = without_digits(text, length);
  }
  const uint64_t hash = channel::hash_bytes(text, length, 3) | 1;
  bool fresh = false;
  Name* entry = find_name(hash, fresh);
  if (entry == nullptr) return 0;
  if (fresh && name_bytes_used.fetch_add(static_cast<uint32_t>(length) + 1,
                                         std::memory_order_relaxed) < kRangeNameBytes) {
    text[length] = '\0';
    entry->offset.store(keep_range_name(text), std::memory_order_release);
  }
  return entry->offset.load(std::memory_order_acquire);
}

uint32_t keep_text(const char* text) {
  if (text == nullptr) return 0;
  char copy[kNameChars + 1];
  const size_t length = strnlen(text, kNameChars);
  memcpy(copy, text, length);
  return keep(copy, length);
}

uint32_t keep_wide(const wchar_t* text) {
  if (text == nullptr) return 0;
  char copy[kNameChars + 1];
  size_t length = 0;
  for (; *text != 0 && length + 4 <= kNameChars; ++text) {
    const auto code = static_cast<uint32_t>(*text);
    const auto put = [&](uint32_t byte) { copy[length++] = static_cast<char>(byte); };
    if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xc0 | code >> 6), put(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
      put(0xe0 | code >> 12), put(0x80 | (code >> 6 & 0x3f)), put(0x80 | (code & 0x3f));
    } else if (code < 0x110000) {
      put(0xf0 | code >> 18), put(0x80 | (code >> 12 & 0x3f)), put(0x80 | (code >> 6 & 0x3f)),
          put(0x80 | (code & 0x3f));
    } else {
      put('?');
    }
  }
  return keep(copy, length);
}

// Handles are offsets of names: a program only hands them back.
void* handle_of(uint32_t offset) { return reinterpret_cast<void*>(uintptr_t{offset}); }
uint32_t offset_of(const void* handle) {
  const auto value = reinterpret_cast<uintptr_t>(handle);
  return value < channel::kNameBytes ? static_cast<uint32_t>(value) : 0;
}

uint32_t name_of(const Attributes* attributes) {
  if (attributes == nullptr || attributes->size < sizeof(Attributes)) return 0;
  switch (attributes->message_type) {
    case kText: return keep_text(static_cast<const char*>(attributes->message));
    case kWide: return keep_wide(static_cast<const wchar_t*>(attributes->message));
    case kRegistered: return offset_of(attributes->message);
    default: return 0;
  }
}

// A domain: its place is the handle, and place 0 is the one without a handle. The last one stands
// for all that found no place.
struct Domain {
  std::atomic<uint32_t> name;
};
constinit Domain domains[kDomains];

void* domain_of_name(uint32_t name) {
  for (uint32_t n = 1; n < kDomains - 1; ++n) {
    uint32_t seen = domains[n].name.load(std::memory_order_relaxed);
    if (seen == 0 && domains[n].name.compare_exchange_strong(seen, name, std::memory_order_relaxed)) {
      return &domains[n];
    }
    if (seen == name) return &domains[n];
  }
  return &domains[kDomains - 1];
}
uint32_t index_of(const void* domain) {
  const auto distance = reinterpret_cast<uintptr_t>(domain) - reinterpret_cast<uintptr_t>(domains);
  return distance < sizeof domains ? static_cast<uint32_t>(distance / sizeof(Domain)) : 0;
}

// ---- ranges ------------------------------------------------------------------------------------

// Null: no trace is written.
Attachment* recording() {
  // Acquire: pairs with the release of a complete attachment in connection.cc.
  Attachment* link = attachment.load(std::memory_order_acquire);
  return link != nullptr && channel::record_mode(*link->control) == channel::kRecordEverything
             ? link
             : nullptr;
}

void tell(channel::lull_range_kind kind, uint32_t domain, uint32_t name, uint32_t depth,
          uint64_t began, uint64_t ended) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) return;
  Attachment* link = enter(thread);
  if (link == nullptr) return;
  channel::lull_record record{};
  record.kind = channel::kRecordRange;
  record.kernel = name;
  record.device = domains[domain].name.load(std::memory_order_relaxed);
  record.stream = kind;
  record.sequence = depth;
  record.tsc = ended;
  record.value0 = ended - began;
  push(thread, *link, record);
  ring_doorbell(*link);
}

struct Pushed {
  uint32_t name, domain;
  uint64_t began;  // 0: no trace was written then
};
struct Nesting {
  Pushed ranges[kNested];
  uint32_t count;
  uint32_t beyond;  // pushed when `ranges` was full, whatever their domain
};
thread_local constinit Nesting nesting;

// How many are open in the domain, this one left out.
template <typename NameOf>
int push_range(const void* handle, NameOf name_of_it) {
  Nesting& mine = nesting;
  const uint32_t domain = index_of(handle);
  int level = 0;
  for (uint32_t n = 0; n < mine.count; ++n) level += mine.ranges[n].domain == domain ? 1 : 0;
  if (mine.count == kNested) return level + static_cast<int>(mine.beyond++);
  Pushed& fresh = mine.ranges[mine.count++];
  fresh = {0, domain, 0};
  if (recording() != nullptr) [[unlikely]] {
    fresh.name = name_of_it();
    fresh.began = channel::ticks();
  }
  return level;
}

int pop_range(const void* handle) {
  Nesting& mine = nesting;
  const uint32_t domain = index_of(handle);
  if (mine.beyond > 0) return static_cast<int>(kNested + --mine.beyond);
  uint32_t at = mine.count;
  while (at > 0 && mine.ranges[at - 1].domain != domain) --at;
  if (at == 0) return -1;  // nothing to pop
  const Pushed popped = mine.ranges[at - 1];
  for (uint32_t n = at; n < mine.count; ++n) mine.ranges[n - 1] = mine.ranges[n];
  --mine.count;
  int level = 0;
  for (uint32_t n = 0; n + 1 < at; ++n) level += mine.ranges[n].domain == domain ? 1 : 0;
  if (popped.began != 0 && recording() != nullptr) [[unlikely]] {
    tell(channel::kRangeNested, domain, popped.name, at - 1, popped.began, channel::ticks());
  }
  return level;
}

// Started by one thread, ended by any. `id` 0: free; 1: being filled.
struct Open {
  std::atomic<uint64_t> id;
  uint32_t name, domain;
  uint64_t began;
};
constinit Open open_ranges[kOpen] = {};
std::atomic<uint64_t> next_range{1};

template <typename NameOf>
uint64_t start_range(const void* handle, NameOf name_of_it) {
  const uint64_t id = next_range.fetch_add(1, std::memory_order_relaxed) + 1;
  if (recording() == nullptr) [[likely]] return id;
  Open& entry = open_ranges[id % kOpen];
  uint64_t free = 0;
  // Acquire: pairs with the release of whoever ended the range before.
  if (!entry.id.compare_exchange_strong(free, 1, std::memory_order_acquire)) return id;
  entry.name = name_of_it();
  entry.domain = index_of(handle);
  entry.began = channel::ticks();
  entry.id.store(id, std::memory_order_release);
  return id;
}

void end_range(uint64_t id) {
  Open& entry = open_ranges[id % kOpen];
  // Acquire: pairs with the release in start_range; of two that end it one goes on.
  if (id <= 1 || entry.id.load(std::memory_order_acquire) != id ||
      !entry.id.compare_exchange_strong(id, 1, std::memory_order_acquire)) {
    return;
  }
  const Open copy{{}, entry.name, entry.domain, entry.began};
  entry.id.store(0, std::memory_order_release);
  if (recording() != nullptr) {
    tell(channel::kRangeFree, copy.domain, copy.name, 0, copy.began, channel::ticks());
  }
}

template <typename NameOf>
void mark(const void* handle, NameOf name_of_it) {
  if (recording() == nullptr) [[likely]] return;
  const uint64_t now = channel::ticks();
  tell(channel::kRangeMark, index_of(handle), name_of_it(), nesting.count, now, now);
}

// ---- what goes into the tables -----------------------------------------------------------------

void mark_ex(const Attributes* what) { mark(nullptr, [=] { return name_of(what); }); }
void mark_a(const char* text) { mark(nullptr, [=] { return keep_text(text); }); }
void mark_w(const wchar_t* text) { mark(nullptr, [=] { return keep_wide(text); }); }
uint64_t start_ex(const Attributes* what) { return start_range(nullptr, [=] { return name_of(what); }); }
uint64_t start_a(const char* text) { return start_range(nullptr, [=] { return keep_text(text); }); }
uint64_t start_w(const wchar_t* text) { return start_range(nullptr, [=] { return keep_wide(text); }); }
void end(uint64_t id) { end_range(id); }
int push_ex(const Attributes* what) { return push_range(nullptr, [=] { return name_of(what); }); }
int push_a(const char* text) { return push_range(nullptr, [=] { return keep_text(text); }); }
int push_w(const wchar_t* text) { return push_range(nullptr, [=] { return keep_wide(text); }); }
int pop() { return pop_range(nullptr); }

void domain_mark_ex(void* domain, const Attributes* what) { mark(domain, [=] { return name_of(what); }); }
uint64_t domain_start_ex(void* domain, const Attributes* what) {
  return start_range(domain, [=] { return name_of(what); });
}
void domain_end(void*, uint64_t id) { end_range(id); }
int domain_push_ex(void* domain, const Attributes* what) {
  return push_range(domain, [=] { return name_of(what); });
}
int domain_pop(void* domain) { return pop_range(domain); }
void* register_a(void*, const char* text) { return handle_of(keep_text(text)); }
void* register_w(void*, const wchar_t* text) { return handle_of(keep_wide(text)); }
void* create_domain_a(const char* name) { return domain_of_name(keep_text(name)); }
void* create_domain_w(const wchar_t* name) { return domain_of_name(keep_wide(name)); }

struct Row {
  uint32_t call;
  Function function;
};
template <typename F>
Function as_function(F* function) { return reinterpret_cast<Function>(function); }

void fill(const Callbacks& callbacks, Module module, const Row* rows, size_t count) {
  Function** table = nullptr;
  unsigned int size = 0;
  if (callbacks.function_table(module, &table, &size) == 0 || table == nullptr) return;
  for (size_t n = 0; n < count; ++n) {
    if (rows[n].call < size && table[rows[n].call] != nullptr) {
      *table[rows[n].call] = rows[n].function;
    }
  }
}

}  // namespace
}  // namespace lull::shim

// Called by each NVTX of the process at its first call, on that thread. 0: not us, it goes on
// without a tool.
extern "C" LULL_PUBLIC int InitializeInjectionNvtx2(lull::shim::nvtx::GetExportTable get_table) {
  using namespace lull::shim;
  if (!shim_enabled() || get_table == nullptr) return 0;
  const auto* callbacks = static_cast<const Callbacks*>(get_table(kCallbacks));
  if (callbacks == nullptr || callbacks->struct_size < sizeof(Callbacks) ||
      callbacks->function_table == nullptr) {
    return 0;
  }
  const Row core[] = {
      {kMarkEx, as_function(mark_ex)},         {kMarkA, as_function(mark_a)},
      {kMarkW, as_function(mark_w)},           {kRangeStartEx, as_function(start_ex)},
      {kRangeStartA, as_function(start_a)},    {kRangeStartW, as_function(start_w)},
      {kRangeEnd, as_function(end)},           {kRangePushEx, as_function(push_ex)},
      {kRangePushA, as_function(push_a)},      {kRangePushW, as_function(push_w)},
      {kRangePop, as_function(pop)},
  };
  const Row core2[] = {
      {kDomainMarkEx, as_function(domain_mark_ex)},
      {kDomainRangeStartEx, as_function(domain_start_ex)},
      {kDomainRangeEnd, as_function(domain_end)},
      {kDomainRangePushEx, as_function(domain_push_ex)},
      {kDomainRangePop, as_function(domain_pop)},
      {kDomainRegisterStringA, as_function(register_a)},
      {kDomainRegisterStringW, as_function(register_w)},
      {kDomainCreateA, as_function(create_domain_a)},
      {kDomainCreateW, as_function(create_domain_w)},
  };
  fill(*callbacks, kCore, core, sizeof core / sizeof core[0]);
  fill(*callbacks, kCore2, core2, sizeof core2 / sizeof core2[0]);
  return 1;
}
