// moving_kinds KIND [ITERATIONS [SEED [PATH]]]: a program with device memory of one unusual kind,
// every byte of which is known and checked, for tests that take its memory away and bring it back.
//
//   array      arrays of one, two and three dimensions, layered and mipmapped
//   managed    managed memory that host and device write in turns
//   graph      a graph over memory allocated while it was captured: the program's own (cuMemAlloc,
//   as PyTorch's
//              private pools have it), and of allocation nodes from a pool that is destroyed before
//              the replays
//   threshold  stream-ordered memory of pools with a release threshold
//   host       registered and mapped host memory, which the device writes too
//   export     memory that another process opens by its handle (PATH); they write it in turns
//   import     the other process
//
// Beside it there is memory of the usual kind. Prints as moving_work does: `ready`, `step N`,
// digest=HEX iterations=N; the first wrong byte ends it with 1 and a line that says where. `export`
// and `import` have the same digest.
#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <string>

#include "moving_memory.h"

namespace {

struct Options {
  unsigned long long iterations, seed;
  const char* path;
};

class Checked {
 public:
  explicit Checked(const Options& options)
      : options_(options),
        random_(options.seed),
        says_(std::getenv("PROGRAM_SAY_STEPS") != nullptr) {}

  static void ready() {
    std::printf("ready\n");
    std::fflush(stdout);
  }
  void step() {
    ++steps_;
    if (!says_) return;
    std::printf("step %llu\n", static_cast<unsigned long long>(steps_));
    std::fflush(stdout);
    usleep(5000);  // whoever reads them has time to act
  }
  Bytes pattern(size_t bytes) {
    Bytes made(bytes);
    fill_pattern(made.data(), bytes, random_());
    return made;
  }
  void compare(const unsigned char* is, const Bytes& should, const char* what) {
    for (size_t i = 0; i < should.size(); ++i) {
      if (is[i] == should[i]) continue;
      std::fprintf(
          stderr, "program: WRONG BYTE in step %llu: %s, byte %zu is 0x%02x and should be 0x%02x\n",
          static_cast<unsigned long long>(steps_), what, i, is[i], should[i]);
      std::_Exit(1);
    }
    digest_ = digest_of(should.data(), should.size(), digest_);
  }
  void compare(const Bytes& is, const Bytes& should, const char* what) {
    REQUIRE_THAT(is.size() == should.size());
    compare(is.data(), should, what);
  }
  Random& random() { return random_; }
  const Options& options() const { return options_; }
  void say() const {
    std::printf("digest=%016llx iterations=%llu\n", static_cast<unsigned long long>(digest_),
                options_.iterations);
    std::fflush(stdout);
  }

 private:
  const Options options_;
  Random random_;
  const bool says_;
  uint64_t steps_ = 0, digest_ = 0xcbf29ce484222325U;
};

// Memory of the usual kind with contents that stay: it is there beside all others.
class Usual {
 public:
  explicit Usual(Checked& checked) : bytes_(checked.pattern(3 << 20)) {
    CHECK(cuMemAlloc(&at_, bytes_.size()));
    CHECK(cuMemcpyHtoD(at_, bytes_.data(), bytes_.size()));
  }
  void look(Checked& checked) {
    Bytes back(bytes_.size());
    CHECK(cuMemcpyDtoH(back.data(), at_, back.size()));
    checked.compare(back, bytes_, "memory beside it");
  }
  void end() { CHECK(cuMemFree(at_)); }

 private:
  Bytes bytes_;
  CUdeviceptr at_ = 0;
};

// ---- array
// ---------------------------------------------------------------------------------------------------------

struct Shape {
  CUarray array;
  size_t row, rows, slices;  // bytes, and how many
  size_t bytes() const { return row * rows * slices; }
};

CUDA_MEMCPY3D whole(const Shape& shape) {
  CUDA_MEMCPY3D copy{};
  copy.WidthInBytes = shape.row;
  copy.Height = shape.rows;
  copy.Depth = shape.slices;
  copy.srcPitch = copy.dstPitch = shape.row;
  copy.srcHeight = copy.dstHeight = shape.rows;
  return copy;
}

void arrays(Checked& it) {
  CUstream stream = nullptr;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const auto make = [](size_t width, size_t height, size_t depth, CUarray_format format,
                       size_t element, unsigned channels, unsigned flags) {
    CUDA_ARRAY3D_DESCRIPTOR description{};
    description.Width = width;
    description.Height = height;
    description.Depth = depth;
    description.Format = format;
    description.NumChannels = channels;
    description.Flags = flags;
    Shape shape{nullptr, width * element * channels, height ? height : 1, depth ? depth : 1};
    CHECK(cuArray3DCreate(&shape.array, &description));
    return shape;
  };
  std::vector<Shape> all;
  all.push_back(make(5000, 0, 0, CU_AD_FORMAT_UNSIGNED_INT16, 2, 1, 0));
  all.push_back(make(300, 200, 0, CU_AD_FORMAT_FLOAT, 4, 2, CUDA_ARRAY3D_SURFACE_LDST));
  all.push_back(make(300, 200, 0, CU_AD_FORMAT_FLOAT, 4, 2, 0));
  all.push_back(make(64, 32, 16, CU_AD_FORMAT_UNSIGNED_INT8, 1, 4, 0));
  all.push_back(make(128, 0, 6, CU_AD_FORMAT_HALF, 2, 4, CUDA_ARRAY3D_LAYERED));
  CUmipmappedArray mipmap = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR description{};
  description.Width = description.Height = 256;
  description.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  description.NumChannels = 1;
  CHECK(cuMipmappedArrayCreate(&mipmap, &description, 3));
  for (unsigned level = 0; level < 3; ++level) {
    Shape shape{nullptr, 4 * size_t{256} >> level, size_t{256} >> level, 1};
    CHECK(cuMipmappedArrayGetLevel(&shape.array, mipmap, level));
    all.push_back(shape);
  }
  std::vector<Bytes> model;
  const auto write = [&](size_t n) {
    model[n] = it.pattern(all[n].bytes());
    CUDA_MEMCPY3D copy = whole(all[n]);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = model[n].data();
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = all[n].array;
    CHECK(cuMemcpy3D(&copy));
  };
  model.resize(all.size());
  for (size_t n = 0; n < all.size(); ++n) write(n);
  CUdeviceptr linear = 0;
  CHECK(cuMemAlloc(&linear, 1 << 20));
  Usual usual(it);
  Checked::ready();
  for (unsigned long long i = 0; i < it.options().iterations; ++i) {
    const size_t n = below(it.random(), all.size());
    switch (below(it.random(), 4)) {
      case 0:
        write(n);
        break;
      case 1: {  // a part of the rows, in the stream
        const size_t rows = 1 + below(it.random(), all[n].rows);
        Bytes part = it.pattern(all[n].row * rows);
        CUDA_MEMCPY2D copy{};
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = part.data();
        copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.dstArray = all[n].array;
        copy.dstY = all[n].rows - rows;
        copy.WidthInBytes = copy.srcPitch = all[n].row;
        copy.Height = rows;
        CHECK(cuMemcpy2DAsync(&copy, stream));
        CHECK(cuStreamSynchronize(stream));
        std::memcpy(model[n].data() + copy.dstY * all[n].row, part.data(), part.size());
        break;
      }
      case 2: {  // from one to another of the same shape
        CUDA_MEMCPY3D copy = whole(all[1]);
        copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.srcArray = all[1].array;
        copy.dstArray = all[2].array;
        CHECK(cuMemcpy3DAsync(&copy, stream));
        CHECK(cuStreamSynchronize(stream));
        model[2] = model[1];
        break;
      }
      default: {  // another one in its place, so that there is always one of them
        const CUarray before = all[0].array;
        all[0] = make(5000, 0, 0, CU_AD_FORMAT_UNSIGNED_INT16, 2, 1, 0);
        model[0] = it.pattern(all[0].bytes());
        CHECK(cuMemcpyHtoA(all[0].array, 0, model[0].data(), model[0].size()));
        CHECK(cuArrayDestroy(before));
      }
    }
    // By way of memory of the usual kind.
    Bytes back(all[n].bytes());
    CUDA_MEMCPY3D copy = whole(all[n]);
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = all[n].array;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = linear;
    CHECK(cuMemcpy3DAsync(&copy, stream));
    CHECK(cuMemcpyDtoHAsync(back.data(), linear, back.size(), stream));
    CHECK(cuStreamSynchronize(stream));
    it.compare(back, model[n], "an array");
    it.step();
  }
  for (size_t n = 0; n < all.size(); ++n) {
    Bytes back(all[n].bytes());
    CUDA_MEMCPY3D copy = whole(all[n]);
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = all[n].array;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = back.data();
    CHECK(cuMemcpy3D(&copy));
    it.compare(back, model[n], "an array at the end");
  }
  usual.look(it);
  for (size_t n = 0; n < 5; ++n) CHECK(cuArrayDestroy(all[n].array));
  CHECK(cuMipmappedArrayDestroy(mipmap));
  CHECK(cuMemFree(linear));
  usual.end();
}

// ---- managed
// -------------------------------------------------------------------------------------------------------

void managed(Checked& it) {
  constexpr size_t kBytes = 3 << 20;
  CUdeviceptr one = 0, other = 0, linear = 0;
  CHECK(cuMemAllocManaged(&one, kBytes, CU_MEM_ATTACH_GLOBAL));
  CHECK(cuMemAllocManaged(&other, kBytes, CU_MEM_ATTACH_GLOBAL));
  CHECK(cuMemAlloc(&linear, kBytes));
  // Something else that stays, later: it is not why a checkpoint is refused.
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR description{64, 64, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  CHECK(cuArrayCreate(&array, &description));
  Usual usual(it);
  Checked::ready();
  for (unsigned long long i = 0; i < it.options().iterations; ++i) {
    const Bytes bytes = it.pattern(kBytes);
    std::memcpy(reinterpret_cast<void*>(one), bytes.data(), kBytes);  // by the host
    CHECK(cuMemcpyDtoD(linear, one, kBytes));
    CHECK(cuMemcpyDtoD(other, linear, kBytes));
    CHECK(cuCtxSynchronize());
    it.compare(reinterpret_cast<const unsigned char*>(other), bytes, "managed memory");
    it.step();
  }
  usual.look(it);
  CHECK(cuArrayDestroy(array));
  for (const CUdeviceptr address : {one, other, linear}) CHECK(cuMemFree(address));
  usual.end();
}

// ---- graph
// ---------------------------------------------------------------------------------------------------------

void graph(Checked& it, CUdevice device) {
  constexpr size_t kBytes = 1 << 20;
  CUstream stream = nullptr;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  void* memory = nullptr;
  CHECK(cuMemAllocHost(&memory, 2 * kBytes));
  auto* const in = static_cast<unsigned char*>(memory);
  unsigned char* const out = in + kBytes;
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  CUmemoryPool pool = nullptr;
  CHECK(cuMemPoolCreate(&pool, &properties));
  CUgraph made = nullptr;
  CUgraphExec executable = nullptr;
  CUdeviceptr own = 0, kept = 0, node = 0;
  CHECK(cuMemAlloc(&kept, kBytes));  // a pool's block from before
  CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK(cuMemAlloc(&own, kBytes));
  CHECK(cuMemAllocFromPoolAsync(&node, kBytes, pool, stream));
  CHECK(cuMemcpyHtoDAsync(own, in, kBytes, stream));
  CHECK(cuMemcpyDtoDAsync(node, own, kBytes, stream));
  CHECK(cuMemsetD8Async(node + 1000, 0x5a, 2000, stream));
  CHECK(cuMemcpyDtoDAsync(kept, node, kBytes, stream));
  CHECK(cuMemFreeAsync(node, stream));
  CHECK(cuMemcpyDtoHAsync(out, kept, kBytes, stream));
  CHECK(cuStreamEndCapture(stream, &made));
  CHECK(cuGraphInstantiate(&executable, made, 0));
  CHECK(cuGraphDestroy(made));
  CHECK(cuMemPoolDestroy(pool));
  Usual usual(it);
  Checked::ready();
  for (unsigned long long i = 0; i < it.options().iterations; ++i) {
    Bytes bytes = it.pattern(kBytes);
    std::memcpy(in, bytes.data(), kBytes);
    CHECK(cuGraphLaunch(executable, stream));
    CHECK(cuStreamSynchronize(stream));
    std::memset(bytes.data() + 1000, 0x5a, 2000);
    it.compare(out, bytes, "what a graph copied");
    Bytes back(kBytes);  // and what it left behind
    CHECK(cuMemcpyDtoH(back.data(), kept, kBytes));
    it.compare(back, bytes, "what a graph left");
    it.step();
  }
  usual.look(it);
  CHECK(cuGraphExecDestroy(executable));
  CHECK(cuMemFree(own));
  CHECK(cuMemFree(kept));
  CHECK(cuMemFreeHost(memory));
  usual.end();
}

// ---- threshold
// -----------------------------------------------------------------------------------------------------

void threshold(Checked& it, CUdevice device) {
  CUstream streams[2];
  for (CUstream& stream : streams) CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  CUmemoryPool pools[2];
  CHECK(cuMemPoolCreate(&pools[0], &properties));
  CHECK(cuDeviceGetDefaultMemPool(&pools[1], device));
  for (CUmemoryPool pool : pools) {
    cuuint64_t keep = UINT64_MAX;
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  }
  struct Held {
    CUdeviceptr at;
    Bytes bytes;
  };
  std::vector<Held> held;
  Usual usual(it);
  Checked::ready();
  const auto check_and_free = [&](size_t index, CUstream stream) {
    Bytes back(held[index].bytes.size());
    CHECK(cuMemcpyDtoHAsync(back.data(), held[index].at, back.size(), stream));
    CHECK(cuStreamSynchronize(stream));
    it.compare(back, held[index].bytes, "stream-ordered memory");
    CHECK(cuMemFreeAsync(held[index].at, stream));
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(index));
  };
  for (unsigned long long i = 0; i < it.options().iterations; ++i) {
    CUstream stream = streams[below(it.random(), 2)];
    CUmemoryPool pool = pools[below(it.random(), 2)];
    Held more{0, it.pattern(size_t{1} << (8 + below(it.random(), 14)))};
    if (below(it.random(), 2) == 0) {
      CHECK(cuMemAllocFromPoolAsync(&more.at, more.bytes.size(), pool, stream));
    } else {
      CHECK(cuMemAllocAsync(&more.at, more.bytes.size(), stream));
    }
    CHECK(cuMemcpyHtoDAsync(more.at, more.bytes.data(), more.bytes.size(), stream));
    CHECK(cuStreamSynchronize(stream));
    held.push_back(std::move(more));
    if (held.size() > 12)
      check_and_free(below(it.random(), held.size()), streams[below(it.random(), 2)]);
    if (i % 16 == 15) CHECK(cuMemPoolTrimTo(pool, 0));
    cuuint64_t keep = 0;
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    REQUIRE_THAT(keep == UINT64_MAX);
    it.step();
  }
  while (!held.empty()) check_and_free(0, streams[0]);
  for (CUstream stream : streams) CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemPoolDestroy(pools[0]));
  usual.look(it);
  usual.end();
}

// ---- host
// ----------------------------------------------------------------------------------------------------------

void host(Checked& it) {
  constexpr size_t kBytes = 1 << 20;
  CUstream stream = nullptr;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  Bytes plain(kBytes);
  CHECK(cuMemHostRegister(plain.data(), kBytes, CU_MEMHOSTREGISTER_DEVICEMAP));
  void* mapped = nullptr;
  CHECK(cuMemHostAlloc(&mapped, kBytes, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
  CUdeviceptr registered_at = 0, mapped_at = 0, linear = 0;
  CHECK(cuMemHostGetDevicePointer(&registered_at, plain.data(), 0));
  CHECK(cuMemHostGetDevicePointer(&mapped_at, mapped, 0));
  CHECK(cuMemAlloc(&linear, kBytes));
  Usual usual(it);
  Checked::ready();
  for (unsigned long long i = 0; i < it.options().iterations; ++i) {
    Bytes bytes = it.pattern(kBytes);
    std::memcpy(plain.data(), bytes.data(), kBytes);
    // The device reads and writes them by its own addresses.
    CHECK(cuMemcpyAsync(linear, registered_at, kBytes, stream));
    CHECK(cuMemcpyAsync(mapped_at, linear, kBytes, stream));
    CHECK(cuMemsetD8Async(mapped_at + 100, 0x3c, 5000, stream));
    const auto value = static_cast<uint32_t>(it.random()());
    CHECK(cuStreamWriteValue32(stream, mapped_at + 8000, value, 0));
    CHECK(cuStreamSynchronize(stream));
    std::memset(bytes.data() + 100, 0x3c, 5000);
    std::memcpy(bytes.data() + 8000, &value, 4);
    it.compare(static_cast<const unsigned char*>(mapped), bytes, "mapped host memory");
    unsigned flags = 0;
    CHECK(cuMemHostGetFlags(&flags, mapped));
    REQUIRE_THAT((flags & CU_MEMHOSTALLOC_PORTABLE) != 0);
    it.step();
  }
  usual.look(it);
  CHECK(cuMemHostUnregister(plain.data()));
  CHECK(cuMemFreeHost(mapped));
  CHECK(cuMemFree(linear));
  usual.end();
}

// ---- export, import
// ------------------------------------------------------------------------------------------------

constexpr size_t kSharedBytes[] = {5 << 20, 3000};

// A file that both map.
struct Meeting {
  std::atomic<uint32_t>
      turn;  // goes up; below 2: nothing is there yet; odd: the importer's, even: the exporter's
  CUipcMemHandle handle[2];
};

Meeting& meet(const char* path) {
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE_THAT(fd >= 0 && ftruncate(fd, sizeof(Meeting)) == 0);
  void* at = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  REQUIRE_THAT(at != MAP_FAILED);
  close(fd);
  return *static_cast<Meeting*>(at);
}

void shared(Checked& it, bool exports) {
  Meeting& meeting = meet(it.options().path);
  const auto wait_for = [&](uint32_t turn) {
    while (meeting.turn.load(std::memory_order_acquire) < turn) usleep(200);
  };
  CUdeviceptr at[2] = {};
  Usual usual(it);
  if (exports) {
    for (int n = 0; n < 2; ++n) {
      CHECK(cuMemAlloc(&at[n], kSharedBytes[n]));
      if (n == 1) {  // set before it is shared, as libraries do for memory that they register
        unsigned on = 1;
        CHECK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at[n]));
      }
      CHECK(cuIpcGetMemHandle(&meeting.handle[n], at[n]));
    }
    Checked::ready();
  } else {
    for (int n = 0; n < 2; ++n) {
      CHECK(cuIpcOpenMemHandle(&at[n], meeting.handle[n], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    }
    Checked::ready();
    meeting.turn.store(2, std::memory_order_release);
  }
  // Both draw the same random bytes, write them in turns, and check what the other one wrote.
  for (uint32_t i = 0; i < it.options().iterations; ++i) {
    const uint32_t mine = exports ? 2 * i + 2 : 2 * i + 3;
    for (const bool writes : {exports, !exports}) {
      for (int n = 0; n < 2; ++n) {
        const Bytes bytes = it.pattern(kSharedBytes[n]);
        if (n == 0) wait_for(writes ? mine : exports ? mine + 2 : mine);
        if (writes) {
          CHECK(cuMemcpyHtoD(at[n], bytes.data(), bytes.size()));
        }
        Bytes back(bytes.size());
        CHECK(cuMemcpyDtoH(back.data(), at[n], back.size()));
        it.compare(back, bytes,
                   writes ? "shared memory, as written" : "shared memory, by the other");
      }
      if (writes) meeting.turn.fetch_add(1, std::memory_order_acq_rel);
    }
    it.step();
  }
  usual.look(it);
  // What it sees last, the exporter's memory has to be there for.
  if (!exports) {
    for (const CUdeviceptr address : at) CHECK(cuIpcCloseMemHandle(address));
    meeting.turn.store(UINT32_MAX, std::memory_order_release);
  } else {
    wait_for(UINT32_MAX);
    for (const CUdeviceptr address : at) CHECK(cuMemFree(address));
  }
  usual.end();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  Options options{argument(argc, argv, 2, 200), argument(argc, argv, 3, 1),
                  argc > 4 ? argv[4] : ""};
  CUdevice device = 0;
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  Checked checked(options);
  if (kind == "array") {
    arrays(checked);
  } else if (kind == "managed") {
    managed(checked);
  } else if (kind == "graph") {
    graph(checked, device);
  } else if (kind == "threshold") {
    threshold(checked, device);
  } else if (kind == "host") {
    host(checked);
  } else if (kind == "export" || kind == "import") {
    shared(checked, kind == "export");
  } else {
    std::fprintf(stderr, "program: no such kind: %s\n", kind.c_str());
    return 2;
  }
  checked.say();
  wait_until_told();
  CHECK(cuDevicePrimaryCtxRelease(device));
  return 0;
}
