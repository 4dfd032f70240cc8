#include "shim/kernel_identity.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "coordinator/channel/file_status.h"
#include "coordinator/channel/identity.h"
#include "shim/connection.h"
#include "shim/system.h"
#include "shim/thread_state.h"

namespace lull::shim {

constinit ShapeEntry shape_table[kShapeTable];
constinit std::atomic<uint32_t> identity_generation{1};

namespace {

constexpr uint32_t kFunctions = 32768;
constexpr uint32_t kModules = 8192;
constexpr uint32_t kLongestName = 4096;
constexpr uint32_t kGraphNodes = 4096;  // looked at in one graph
constexpr int kGraphDepth = 4;
const void* const kHole = reinterpret_cast<const void*>(uintptr_t{1} << 63);

struct Function {
  const void* handle;
  const void* module;
  uint64_t image_hash;
  uint32_t name_offset;
  uint32_t graph_kernels;  // > 0 or kind graph
  uint32_t kind;
};
struct Module {
  const void* handle;
  uint64_t image_hash;
};

Lock identity_lock;  // everything below
Function functions[kFunctions];
uint32_t functions_used;
Module modules[kModules];
uint32_t modules_used;
channel::lull_kernel kernels[channel::kMaxKernels];
uint32_t kernel_count;
char names[channel::kNameBytes];  // as in the region, so that offsets are the same
uint32_t name_bytes;
constexpr uint32_t kNamesSeen = 8192;
uint32_t name_seen[kNamesSeen];
constexpr uint32_t kSites = 4096;
struct Site {
  uint64_t hash;  // of its text
  uint32_t text_offset;
};
Site sites[kSites];  // by number; 0 is no site
uint32_t site_count = 1;
// What call sites may fill, so that kernels without one always find room.
constexpr uint32_t kSiteNameBytes = channel::kNameBytes / 4 * 3;
constexpr uint32_t kSiteKernels = channel::kMaxKernels / 4 * 3;
// KernelId -> slot + 1.
constexpr uint32_t kKernelIndex = channel::kMaxKernels * 2;
uint16_t kernel_index[kKernelIndex];

template <typename Entry, uint32_t kSize>
Entry* find_in(Entry (&table)[kSize], const void* handle) {
  uint32_t at = static_cast<uint32_t>(
      (reinterpret_cast<uintptr_t>(handle) * 0x9e3779b97f4a7c15ULL) >> 40) % kSize;
  for (uint32_t n = 0; n < kSize; ++n, at = (at + 1) % kSize) {
    if (table[at].handle == handle) return &table[at];
    if (table[at].handle == nullptr) return nullptr;
  }
  return nullptr;
}
// The entry of the handle, or a free one with the handle set; null: full.
template <typename Entry, uint32_t kSize>
Entry* place_in(Entry (&table)[kSize], uint32_t& used, const void* handle) {
  if (Entry* known = find_in(table, handle)) return known;
  uint32_t at = static_cast<uint32_t>(
      (reinterpret_cast<uintptr_t>(handle) * 0x9e3779b97f4a7c15ULL) >> 40) % kSize;
  for (uint32_t n = 0; n < kSize; ++n, at = (at + 1) % kSize) {
    if (table[at].handle != nullptr && table[at].handle != kHole) continue;
    if (table[at].handle == nullptr) {
      if (used >= kSize / 8 * 7) return nullptr;
      ++used;
    }
    table[at] = Entry{};
    table[at].handle = handle;
    return &table[at];
  }
  return nullptr;
}

void make_shapes_stale() { identity_generation.fetch_add(1, std::memory_order_release); }

// 0: no room. The first name, at 0, is that of slot 0. A name met before keeps its place, as far
// as a direct-mapped table remembers.
uint32_t keep_name(const char* name) {
  const size_t length = strnlen(name, kLongestName);
  uint32_t& seen = name_seen[channel::hash_bytes(name, length) % kNamesSeen];
  if (seen != 0 && strncmp(names + seen, name, length) == 0 && names[seen + length] == '\0') {
    return seen;
  }
  if (name_bytes + length + 1 > sizeof names) return 0;
  const uint32_t offset = name_bytes;
  memcpy(names + offset, name, length);
  names[offset + length] = '\0';
  name_bytes += static_cast<uint32_t>(length) + 1;
  Attachment* link = attachment.load(std::memory_order_acquire);
  if (link != nullptr) memcpy(link->region.names() + offset, names + offset, length + 1);
  seen = offset;
  return offset;
}

void begin_tables() {
  if (kernel_count != 0) return;
  keep_name("(other kernels)");
  kernels[0].kernel_id = channel::kernel_id(names, 0, kernels[0].grid, kernels[0].block, 0);
  kernel_count = 1;
  Attachment* link = attachment.load(std::memory_order_acquire);
  if (link != nullptr) channel::publish_kernel(link->region, 0, kernels[0], name_bytes);
}

uint32_t slot_of(const Function& function, const Shape& shape, uint32_t site) {
  begin_tables();
  const char* name = names + function.name_offset;
  uint64_t id = channel::kernel_id(name, function.image_hash, shape.grid, shape.block,
                                   shape.shared_bytes);
  if (site != 0) id = channel::kernel_id_at(id, sites[site].hash);
  uint32_t at = static_cast<uint32_t>(id % kKernelIndex);
  for (; kernel_index[at] != 0; at = (at + 1) % kKernelIndex) {
    if (kernels[kernel_index[at] - 1].kernel_id == id) return kernel_index[at] - 1U;
  }
  if (site != 0 && kernel_count >= kSiteKernels) return slot_of(function, shape, 0);
  if (kernel_count == channel::kMaxKernels || function.name_offset == 0) {
    return channel::kOverflowKernel;
  }
  const uint32_t slot = kernel_count++;
  channel::lull_kernel& kernel = kernels[slot];
  kernel.kernel_id = id;
  kernel.image_hash = function.image_hash;
  kernel.name_offset = function.name_offset;
  memcpy(kernel.grid, shape.grid, sizeof kernel.grid);
  memcpy(kernel.block, shape.block, sizeof kernel.block);
  kernel.shared_bytes = shape.shared_bytes;
  kernel.kind = function.kind;
  kernel.graph_kernels = function.graph_kernels;
  kernel.call_site_offset = site != 0 ? sites[site].text_offset : 0;
  kernel_index[at] = static_cast<uint16_t>(slot + 1);
  Attachment* link = attachment.load(std::memory_order_acquire);
  if (link != nullptr) channel::publish_kernel(link->region, slot, kernel, name_bytes);
  return slot;
}

const char* name_of(Direction direction) {
  switch (direction) {
    case Direction::kHostToDevice: return "copy h2d";
    case Direction::kDeviceToHost: return "copy d2h";
    case Direction::kDeviceToDevice: return "copy d2d";
    case Direction::kMemset: return "memset";
    case Direction::kPrefetch: return "prefetch";
    default: return "copy";
  }
}

Function* add_function(const void* handle, const void* module, const char* name) {
  begin_tables();
  const Module* home = module != nullptr ? find_in(modules, module) : nullptr;
  const uint64_t image_hash = home != nullptr ? home->image_hash : 0;
  Function* known = find_in(functions, handle);
  if (known != nullptr) {
    if (known->kind == channel::kKindKernel && known->image_hash == image_hash &&
        strcmp(names + known->name_offset, name) == 0) {
      known->module = module;
      return known;
    }
    make_shapes_stale();  // the handle means something else now
  } else {
    known = place_in(functions, functions_used, handle);
    if (known == nullptr) return nullptr;
  }
  *known = Function{handle, module, image_hash, keep_name(name), 0, channel::kKindKernel};
  return known;
}

// ---- graphs ------------------------------------------------------------------------------------

struct GraphSummary {
  uint64_t hash = 0;
  uint32_t kernels = 0;
};

// Outside the lock: asks the driver, and for kernels it has not seen, their names.
void summarise(CUgraph graph, int depth, GraphSummary& summary) {
  size_t count = 0;
  Driver& calls = driver();
  if (calls.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) return;
  summary.hash = channel::hash_mix(summary.hash, count);
  CUgraphNode few[64];
  CUgraphNode* nodes = few;
  size_t bytes = 0;
  size_t looked_at = count;
  if (count > 64) {
    if (looked_at > kGraphNodes) looked_at = kGraphNodes;
    bytes = looked_at * sizeof(CUgraphNode);
    nodes = static_cast<CUgraphNode*>(map_pages(bytes));
    if (nodes == nullptr) return;
  }
  size_t got = looked_at;
  if (calls.cuGraphGetNodes(graph, nodes, &got) == CUDA_SUCCESS) {
    if (got > looked_at) got = looked_at;
    for (size_t n = 0; n < got; ++n) {
      CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
      if (calls.cuGraphNodeGetType(nodes[n], &type) != CUDA_SUCCESS) continue;
      summary.hash = channel::hash_mix(summary.hash, static_cast<uint64_t>(type));
      if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
        ++summary.kernels;
        CUDA_KERNEL_NODE_PARAMS params{};
        if (calls.cuGraphKernelNodeGetParams_v2(nodes[n], &params) != CUDA_SUCCESS) continue;
        const void* handle = params.func != nullptr ? static_cast<const void*>(params.func)
                                                    : static_cast<const void*>(params.kern);
        const Shape shape{{params.gridDimX, params.gridDimY, params.gridDimZ},
                          {params.blockDimX, params.blockDimY, params.blockDimZ},
                          params.sharedMemBytes};
        const uint32_t slot = learn_shape(handle, shape, 0).slot.load(std::memory_order_relaxed);
        summary.hash = channel::hash_mix(summary.hash, kernels[slot].kernel_id);
      } else if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < kGraphDepth) {
        CUgraph child = nullptr;
        if (calls.cuGraphChildGraphNodeGetGraph(nodes[n], &child) == CUDA_SUCCESS) {
          summarise(child, depth + 1, summary);
        }
      }
    }
  }
  if (nodes != few) munmap(nodes, bytes);
}

// ---- images ------------------------------------------------------------------------------------

size_t elf_bytes(const unsigned char* image) {
  Elf64_Ehdr header;
  memcpy(&header, image, sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return sizeof header;
  size_t end = header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
  const size_t programs = header.e_phoff + size_t{header.e_phnum} * header.e_phentsize;
  if (programs > end) end = programs;
  for (uint32_t n = 0; n < header.e_shnum && header.e_shentsize >= sizeof(Elf64_Shdr); ++n) {
    Elf64_Shdr section;
    memcpy(&section, image + header.e_shoff + size_t{n} * header.e_shentsize, sizeof section);
    // Sections of the processor's own types may have no bytes in the file either.
    if (section.sh_type == SHT_NOBITS || section.sh_type >= SHT_LOPROC) continue;
    if (section.sh_offset + section.sh_size > end) end = section.sh_offset + section.sh_size;
  }
  return end;
}

constexpr uint32_t kFatWrapperMagic = 0x466243b1;
constexpr uint32_t kFatMagic = 0xba55ed50;

}  // namespace

uint64_t hash_of_image(const void* image) {
  if (image == nullptr) return 0;
  uint32_t magic;
  memcpy(&magic, image, sizeof magic);
  if (magic == kFatWrapperMagic) {
    const void* inner;
    memcpy(&inner, static_cast<const char*>(image) + 8, sizeof inner);
    if (inner == nullptr) return 0;
    image = inner;
    memcpy(&magic, image, sizeof magic);
  }
  if (magic == kFatMagic) {
    uint16_t header_bytes;
    uint64_t bytes;
    memcpy(&header_bytes, static_cast<const char*>(image) + 6, sizeof header_bytes);
    memcpy(&bytes, static_cast<const char*>(image) + 8, sizeof bytes);
    return channel::hash_image(image, header_bytes + bytes);
  }
  if (memcmp(&magic, ELFMAG, SELFMAG) == 0) {
    return channel::hash_image(image, elf_bytes(static_cast<const unsigned char*>(image)));
  }
  return channel::hash_image(image, strlen(static_cast<const char*>(image)));
}

uint64_t hash_of_file(const char* path) {
  if (path == nullptr) return 0;
  KeepErrno keep;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  uint64_t hash = 0;
  struct stat size;
  if (channel::file_status(fd, size) && size.st_size > 0) {
    const auto bytes = static_cast<size_t>(size.st_size);
    void* content = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (content != MAP_FAILED) {
      hash = channel::hash_image(content, bytes);
      munmap(content, bytes);
    }
  }
  close(fd);
  return hash;
}

void image_loaded(const void* module, uint64_t image_hash) {
  Locked locked(identity_lock);
  if (Module* entry = place_in(modules, modules_used, module)) entry->image_hash = image_hash;
}

void image_shared(const void* from_module, const void* to_module) {
  Locked locked(identity_lock);
  const Module* from = find_in(modules, from_module);
  if (from == nullptr) return;
  const uint64_t hash = from->image_hash;
  if (Module* entry = place_in(modules, modules_used, to_module)) entry->image_hash = hash;
}

void image_unloaded(const void* module) {
  if (module == nullptr) return;  // refused by the driver; graphs and copies have no module either
  Locked locked(identity_lock);
  if (Module* entry = find_in(modules, module)) entry->handle = kHole;
  for (Function& function : functions) {
    if (function.handle != nullptr && function.handle != kHole && function.module == module) {
      function.handle = kHole;
    }
  }
  make_shapes_stale();
}

void function_found(const void* function, const void* module, const char* name) {
  if (function == nullptr || name == nullptr) return;
  Locked locked(identity_lock);
  add_function(function, module, name);
}

void function_shared(const void* from_function, const void* to_function) {
  Locked locked(identity_lock);
  const Function* from = find_in(functions, from_function);
  if (from == nullptr || to_function == nullptr || from_function == to_function) return;
  Function copy = *from;
  copy.handle = to_function;
  Function* known = find_in(functions, to_function);
  if (known != nullptr && (known->name_offset != copy.name_offset ||
                           known->image_hash != copy.image_hash)) {
    make_shapes_stale();
  }
  if (known == nullptr) known = place_in(functions, functions_used, to_function);
  if (known != nullptr) *known = copy;
}

void graph_instantiated(CUgraphExec exec, CUgraph graph) {
  GraphSummary summary;
  {
    OwnCall own(thread_state);
    summarise(graph, 0, summary);
  }
  char name[48];
  snprintf(name, sizeof name, "graph of %u kernels", summary.kernels);
  Locked locked(identity_lock);
  begin_tables();
  Function* known = find_in(functions, exec);
  const uint64_t hash = channel::hash_finish(summary.hash);
  if (known != nullptr) {
    if (known->image_hash == hash && known->kind == channel::kKindGraph) return;
    make_shapes_stale();
  } else {
    known = place_in(functions, functions_used, exec);
    if (known == nullptr) return;
  }
  *known = Function{exec, nullptr, hash, keep_name(name), summary.kernels, channel::kKindGraph};
}

void graph_destroyed(CUgraphExec exec) {
  Locked locked(identity_lock);
  if (Function* known = find_in(functions, exec)) known->handle = kHole;
  make_shapes_stale();
}

ShapeEntry& learn_shape(const void* handle, Shape shape, uint32_t site) {
  const bool builtin = reinterpret_cast<uintptr_t>(handle) < 16;
  identity_lock.lock();
  const Function* function = find_in(functions, handle);
  if (function == nullptr && builtin) {
    begin_tables();
    const auto direction = static_cast<Direction>(reinterpret_cast<uintptr_t>(handle));
    if (Function* added = place_in(functions, functions_used, handle)) {
      *added = Function{handle, nullptr, 0, keep_name(name_of(direction)), 0,
                        direction == Direction::kMemset ? channel::kKindMemset
                                                        : channel::kKindCopy};
      function = added;
    }
  }
  // Graphs and copies have handles that are no functions; they are not asked about even when the
  // table was too full to keep them.
  const bool is_function =
      !builtin && (shape.grid[0] | shape.block[0]) != 0;
  if (function == nullptr && is_function) {
    // A handle that came by a way without a hook: the driver knows its name.
    identity_lock.unlock();
    const char* name = nullptr;
    CUresult result;
    {
      OwnCall own(thread_state);
      result = driver().cuFuncGetName(
          &name, static_cast<CUfunction>(const_cast<void*>(handle)));
    }
    char unnamed[40];
    if (result != CUDA_SUCCESS || name == nullptr) {
      snprintf(unnamed, sizeof unnamed, "kernel without a name");
      name = unnamed;
    }
    identity_lock.lock();
    function = find_in(functions, handle);
    if (function == nullptr) function = add_function(handle, nullptr, name);
  }
  const Function overflow{};
  if (function == nullptr) function = &overflow;
  const uint32_t generation = identity_generation.load(std::memory_order_acquire);
  const uint32_t slot = slot_of(*function, shape, site);
  const uint32_t hash = shape_hash(handle, shape, site);
  ShapeEntry* entry = nullptr;
  for (uint32_t n = 0; n < kShapeProbes; ++n) {
    ShapeEntry& candidate = shape_table[(hash + n) % kShapeTable];
    const void* seen = candidate.handle.load(std::memory_order_relaxed);
    if (seen == nullptr) {
      candidate.shape = shape;
      candidate.site = site;
      entry = &candidate;
      break;
    }
    if (seen == handle && candidate.site == site && same_shape(candidate.shape, shape)) {
      entry = &candidate;
      break;
    }
  }
  static ShapeEntry others;  // slot 0, for what found no place
  if (entry == nullptr && site != 0) {
    identity_lock.unlock();
    return find_shape(handle, shape, 0);
  }
  if (entry == nullptr) {
    entry = &others;
  } else {
    if (entry->slot.load(std::memory_order_relaxed) != slot) {
      entry->samples.store(0, std::memory_order_relaxed);
      entry->launches_to_window.store(0, std::memory_order_relaxed);
    }
    entry->slot.store(slot, std::memory_order_relaxed);
    entry->graph_kernels.store(function->graph_kernels, std::memory_order_relaxed);
    // Release: both pair with the acquires in find_shape.
    entry->generation.store(generation, std::memory_order_release);
    entry->handle.store(handle, std::memory_order_release);
  }
  identity_lock.unlock();
  return *entry;
}

uint32_t keep_call_site(const char* text) {
  const uint64_t hash = channel::hash_bytes(text, strlen(text));
  Locked locked(identity_lock);
  begin_tables();
  for (uint32_t n = 1; n < site_count; ++n) {
    if (sites[n].hash == hash && strcmp(names + sites[n].text_offset, text) == 0) return n;
  }
  if (site_count == kSites || name_bytes + strlen(text) >= kSiteNameBytes) return 0;
  const uint32_t offset = keep_name(text);
  if (offset == 0) return 0;
  sites[site_count] = {hash, offset};
  return site_count++;
}

uint32_t keep_range_name(const char* name) {
  Locked locked(identity_lock);
  begin_tables();
  return keep_name(name);
}

void republish_kernels(Attachment& link) {
  Locked locked(identity_lock);
  memcpy(link.region.names(), names, name_bytes);
  for (uint32_t slot = 0; slot < kernel_count; ++slot) {
    channel::publish_kernel(link.region, slot, kernels[slot], name_bytes);
  }
}

void lock_identity() { identity_lock.lock(); }
void unlock_identity() { identity_lock.unlock(); }

}  // namespace lull::shim
