// moving_work [ITERATIONS [SEED [MEGABYTES [THREADS [KERNEL_US [PAUSE_US]]]]]]: a program whose
// every byte on the device is known and checked, for tests that take its memory away and bring it
// back.
//
// Each thread has streams, blocks and graphs of its own (moving_memory.h). An iteration is a dozen
// random steps (copies every way, memsets, copies on the device, values written by the device, host
// functions whose bytes go on to the device, allocations and frees by all ways), six kernels and
// two graphs always in the same order, and a check of all blocks. MEGABYTES (48) is the device
// memory of all threads together; host memory is about twice that.
// PROGRAM_STEADY=BYTES is one more block, from the beginning to the end; PROGRAM_MANAGED=BYTES
// holds managed memory too; PROGRAM_FIRST=BYTES is a block that it holds from the beginning, and the
// rest it allocates when PROGRAM_WAIT_FILE exists. With PROGRAM_STAYS=PATH it goes on behind its
// ITERATIONS, still checking every byte, until the file is there.
//
// Prints `ready`, with PROGRAM_SAY_STEPS=1 `step N` for each step of the first thread, and at last
//   digest=HEX iterations=N
// of all bytes that were read back in ITERATIONS: the same for the same arguments, whatever happened meanwhile.
// The first wrong byte ends it with 1 and a line that says where.
#include <algorithm>
#include <atomic>
#include <latch>
#include <memory>
#include <string>
#include <thread>

#include "moving_memory.h"
#include "spin_ptx.h"

namespace {

// Takes its time, and reads the memory it is given: where nothing is mapped it must not run.
#define KERNEL_PTX(name)                                        \
  SPIN_PTX_KERNEL_WITH(name, ", .param .u64 data",              \
                       "  ld.param.u64 %rd5, [data];\n"         \
                       "  ld.volatile.global.u8 %r1, [%rd5];\n")
const char kPtx[] = SPIN_PTX_HEADER KERNEL_PTX("read_a") KERNEL_PTX("read_b");

struct Options {
  unsigned long long iterations, seed, megabytes, threads, kernel_us, pause_us;
  bool say_steps;
};

struct Kernels {
  CUfunction function[2];
};

struct HostFill {
  unsigned char* to;
  size_t bytes;
  uint64_t seed;
  static void run(void* data) {
    const HostFill& fill = *static_cast<HostFill*>(data);
    fill_pattern(fill.to, fill.bytes, fill.seed);
  }
};

// Pinned memory that one copy uses at a time.
struct Staging {
  unsigned char* at = nullptr;
  CUevent ready = nullptr;
  Bytes registered;  // else from cuMemAllocHost
  HostFill fill{};

  void start(size_t bytes, bool registers) {
    CHECK(cuEventCreate(&ready, CU_EVENT_DISABLE_TIMING));
    if (registers) {
      registered.resize(bytes);
      at = registered.data();
      CHECK(cuMemHostRegister(at, bytes, 0));
    } else {
      void* memory = nullptr;
      CHECK(cuMemAllocHost(&memory, bytes));
      at = static_cast<unsigned char*>(memory);
    }
  }
  void end() {
    CHECK(cuEventSynchronize(ready));
    CHECK(cuEventDestroy(ready));
    CHECK(registered.empty() ? cuMemFreeHost(at) : cuMemHostUnregister(at));
  }
};

// Two graphs over the same memory: in -> first, a memset of a part, first -> second, second -> out.
// One is captured, one built node by node; kernel and host function are in both.
struct Graphs {
  static constexpr size_t kBytes = 192 << 10, kSetBytes = 5000;
  CUdeviceptr first = 0, second = 0;
  unsigned char *in = nullptr, *out = nullptr;
  unsigned char value = 0;
  CUgraphExec captured = nullptr, built = nullptr;
  std::atomic<uint64_t> host_calls{0};
  uint64_t launches = 0;

  static void count(void* data) { ++*static_cast<std::atomic<uint64_t>*>(data); }

  void start(const Kernels& kernels, CUstream stream, uint64_t kernel_ns, unsigned char set_to) {
    value = set_to;
    CHECK(cuMemAlloc(&first, kBytes));
    CHECK(cuMemAlloc(&second, kBytes));
    void* memory = nullptr;
    CHECK(cuMemAllocHost(&memory, 2 * kBytes));
    in = static_cast<unsigned char*>(memory);
    out = in + kBytes;
    capture(kernels, stream, kernel_ns);
    build(kernels, kernel_ns);
  }
  void capture(const Kernels& kernels, CUstream stream, uint64_t kernel_ns) {
    CUgraph graph = nullptr;
    void* arguments[] = {&kernel_ns, &first};
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuMemcpyHtoDAsync(first, in, kBytes, stream));
    CHECK(cuMemsetD8Async(first + 100, value, kSetBytes, stream));
    CHECK(cuLaunchKernel(kernels.function[0], 2, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr));
    CHECK(cuMemcpyDtoDAsync(second, first, kBytes, stream));
    CHECK(cuLaunchHostFunc(stream, count, &host_calls));
    CHECK(cuMemcpyDtoHAsync(out, second, kBytes, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&captured, graph, 0));
    CHECK(cuGraphDestroy(graph));
  }
  CUDA_MEMCPY3D copy() const {
    CUDA_MEMCPY3D copy{};
    copy.WidthInBytes = kBytes;
    copy.Height = copy.Depth = 1;
    return copy;
  }
  void build(const Kernels& kernels, uint64_t kernel_ns) {
    CUgraph graph = nullptr;
    CUcontext context = nullptr;
    CUgraphNode node = nullptr, next = nullptr;
    CHECK(cuCtxGetCurrent(&context));
    CHECK(cuGraphCreate(&graph, 0));
    CUDA_MEMCPY3D there = copy();
    there.srcMemoryType = CU_MEMORYTYPE_HOST;
    there.srcHost = in;
    there.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    there.dstDevice = first;
    CHECK(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &there, context));
    CUDA_MEMSET_NODE_PARAMS set{};
    set.dst = first + 100;
    set.value = value;
    set.elementSize = 1;
    set.width = kSetBytes;
    set.height = 1;
    CHECK(cuGraphAddMemsetNode(&next, graph, &node, 1, &set, context));
    node = next;
    void* arguments[] = {&kernel_ns, &first};
    CUDA_KERNEL_NODE_PARAMS kernel{};
    kernel.func = kernels.function[1];
    kernel.gridDimX = 2;
    kernel.gridDimY = kernel.gridDimZ = 1;
    kernel.blockDimX = 32;
    kernel.blockDimY = kernel.blockDimZ = 1;
    kernel.kernelParams = arguments;
    CHECK(cuGraphAddKernelNode(&next, graph, &node, 1, &kernel));
    node = next;
    CUDA_MEMCPY3D over = copy();
    over.srcMemoryType = over.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    over.srcDevice = first;
    over.dstDevice = second;
    CHECK(cuGraphAddMemcpyNode(&next, graph, &node, 1, &over, context));
    node = next;
    const CUDA_HOST_NODE_PARAMS host{count, &host_calls};
    CHECK(cuGraphAddHostNode(&next, graph, &node, 1, &host));
    node = next;
    CUDA_MEMCPY3D back = copy();
    back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    back.srcDevice = second;
    back.dstMemoryType = CU_MEMORYTYPE_HOST;
    back.dstHost = out;
    CHECK(cuGraphAddMemcpyNode(&next, graph, &node, 1, &back, context));
    CHECK(cuGraphInstantiate(&built, graph, 0));
    CHECK(cuGraphDestroy(graph));
  }
  // What `out` holds then.
  Bytes launch(CUgraphExec graph, CUstream stream, uint64_t seed) {
    fill_pattern(in, kBytes, seed);
    Bytes expected(in, in + kBytes);
    std::memset(expected.data() + 100, value, kSetBytes);
    CHECK(cuGraphLaunch(graph, stream));
    ++launches;
    return expected;
  }
  void end() {
    REQUIRE_THAT(host_calls == launches);
    CHECK(cuGraphExecDestroy(captured));
    CHECK(cuGraphExecDestroy(built));
    CHECK(cuMemFree(first));
    CHECK(cuMemFree(second));
    CHECK(cuMemFreeHost(in));
  }
};

class Worker {
 public:
  Worker(const Options& options, unsigned index, const Kernels& kernels)
      : options_(options),
        index_(index),
        kernels_(kernels),
        random_(options.seed * 1000 + index),
        budget_((options.megabytes << 20) / options.threads) {}

  // `all_done`: no thread waits for the whole context while another captures: drivers refuse that.
  void run(CUcontext context, CUdevice device, std::latch& all_done) {
    CHECK(cuCtxSetCurrent(context));
    start(device);
    for (iteration_ = 0; iteration_ < options_.iterations; ++iteration_) iterate();
    result_ = digest_;
    for (; stays(); ++iteration_) iterate();
    all_done.arrive_and_wait();
    end();
  }
  uint64_t digest() const { return result_; }

 private:
  static constexpr int kStreams = 4;
  static constexpr int kStagings = 2;
  static constexpr size_t kMostBlocks = 24;

  static bool stays() {
    const char* path = std::getenv("PROGRAM_STAYS");
    return path != nullptr && access(path, F_OK) != 0;
  }

  void iterate() {
    if (iteration_ % 8 == 0) renew_graphs();
    for (unsigned part = 0; part < 6; ++part) {
      random_step();
      random_step();
      kernel(part);
      if (part == 2) graph(graphs_->captured);
      if (part == 4) graph(graphs_->built);
    }
    for (Block& block : blocks_) verify(block);
    if (options_.pause_us != 0) usleep(static_cast<useconds_t>(options_.pause_us));
  }

  // Of one block, and of what is copied at a time.
  size_t most_bytes() const { return budget_ / 2; }
  size_t piece_bytes() const { return std::min(budget_ / 2, size_t{8} << 20); }

  void start(CUdevice device) {
    streams_[0] = nullptr;  // the legacy stream
    CHECK(cuStreamCreate(&streams_[1], CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&streams_[2], CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreateWithPriority(&streams_[3], CU_STREAM_NON_BLOCKING, -1));
    CHECK(cuEventCreate(&done_, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < kStagings; ++i) stagings_[i].start(piece_bytes(), i % 2 != 0);
    memory_.start(device);
    back_.resize(piece_bytes());
    const char* steady = std::getenv("PROGRAM_STEADY");
    if (steady != nullptr && index_ == 0) {
      blocks_.push_back(
          memory_.allocate(Way::kPlain, std::strtoull(steady, nullptr, 10), streams_[1], random_));
      write_all(blocks_.back());
      steady_ = 1;
    }
    for (int i = 0; i < 4; ++i) allocate();
  }

  void end() {
    for (Block& block : blocks_) {
      verify(block);
      memory_.free(block, any_stream());
    }
    graphs_->end();
    CHECK(cuCtxSynchronize());
    for (Staging& staging : stagings_) staging.end();
    memory_.end();
    for (int i = 1; i < kStreams; ++i) CHECK(cuStreamDestroy(streams_[i]));
    CHECK(cuEventDestroy(done_));
  }

  CUstream any_stream() { return streams_[below(random_, kStreams)]; }
  Block& any_block() { return blocks_[below(random_, blocks_.size())]; }

  void say_step() {
    ++steps_;
    if (index_ != 0 || !options_.say_steps) return;
    std::printf("step %llu\n", static_cast<unsigned long long>(steps_));
    std::fflush(stdout);
  }

  void compare(const unsigned char* is, const unsigned char* should, Part part,
               const std::string& what) {
    if (std::memcmp(is, should, part.bytes) == 0) {
      digest_ = digest_of(is, part.bytes, digest_);
      return;
    }
    size_t first = part.bytes, differ = 0;
    for (size_t i = 0; i < part.bytes; ++i) {
      if (is[i] == should[i]) continue;
      ++differ;
      first = std::min(first, i);
    }
    std::fprintf(
        stderr,
        "program: WRONG BYTE in iteration %llu, step %llu of thread %u: %s, byte %zu is 0x%02x "
        "and should be 0x%02x; %zu of %zu bytes differ\n",
        static_cast<unsigned long long>(iteration_), static_cast<unsigned long long>(steps_),
        index_, what.c_str(), part.offset + first, is[first], should[first], differ, part.bytes);
    std::_Exit(1);
  }
  std::string described(const Block& block) const {
    return std::string("block of ") + name_of(block.way) + " of " + std::to_string(block.bytes()) +
           " bytes";
  }

  // Every way work on a block begins and ends.
  CUstream begin(Block& block, CUstream stream) {
    CHECK(cuStreamWaitEvent(stream, block.ready, 0));
    return stream;
  }
  void done(Block& block, CUstream stream) { CHECK(cuEventRecord(block.ready, stream)); }
  Staging& free_staging() {
    Staging& staging = stagings_[below(random_, kStagings)];
    CHECK(cuEventSynchronize(staging.ready));
    return staging;
  }

  void allocate() {
    size_t held = 0;
    for (size_t i = steady_; i < blocks_.size(); ++i) held += blocks_[i].held();
    if (blocks_.size() >= kMostBlocks || held >= budget_) return;
    // 8 bytes to half the budget; one in four is large, the others are as likely small as not.
    size_t bytes = below(random_, 4) == 0 ? below(random_, most_bytes())
                                          : below(random_, size_t{8} << below(random_, 22));
    bytes = bytes % (most_bytes() - 4096) + 8;
    if (bytes > budget_ - held) bytes = 8 + bytes % (budget_ - held);
    const CUstream stream = any_stream();
    const Way way = static_cast<Way>(below(random_, kWays));
    if (way == Way::kPitch) bytes = std::min(bytes, piece_bytes() - 4096);  // a row fits a piece
    Block block = memory_.allocate(way, bytes, stream, random_);
    check_range(block);
    write_all(block);
    blocks_.push_back(std::move(block));
  }

  // What the driver says about an address is what it was asked for, wherever the memory has been.
  void check_range(const Block& block) {
    if (block.way != Way::kPlain) return;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CHECK(cuMemGetAddressRange(&base, &bytes, block.at + block.bytes() / 2));
    REQUIRE_THAT(base == block.at && bytes == block.bytes());
    int ordinal = -1;
    CHECK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block.at));
    REQUIRE_THAT(ordinal == 0);
    size_t free_bytes = 0, total_bytes = 0;
    CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
    REQUIRE_THAT(free_bytes <= total_bytes && total_bytes != 0);
  }

  void write_all(Block& block) {
    if (below(random_, 3) != 0) {
      write(block, block.whole());
    } else {
      set(block, block.whole());
    }
  }

  // From pageable memory at once, from pinned memory in order, or from what a host function wrote.
  void write(Block& block, Part part) {
    const uint64_t seed = random_();
    unsigned char* model = block.model.data() + part.offset;
    fill_pattern(model, part.bytes, seed);
    const uint64_t how = below(random_, 3);
    if (how == 0 || part.bytes > piece_bytes()) {
      begin(block, nullptr);
      if (below(random_, 2) == 0) CHECK(cuEventSynchronize(block.ready));
      upload(block, part, model, nullptr, /*ordered=*/false);
      done(block, nullptr);
      return;
    }
    const CUstream stream = any_stream();
    Staging& staging = free_staging();
    begin(block, stream);
    if (how == 1) {
      std::memcpy(staging.at, model, part.bytes);
    } else {
      staging.fill = {staging.at, part.bytes, seed};
      CHECK(cuLaunchHostFunc(stream, HostFill::run, &staging.fill));
    }
    upload(block, part, staging.at, stream, /*ordered=*/true);
    CHECK(cuEventRecord(staging.ready, stream));
    done(block, stream);
  }

  void set(Block& block, Part part) {
    const CUstream stream = begin(block, any_stream());
    const auto value = static_cast<unsigned char>(random_());
    unsigned char* model = block.model.data() + part.offset;
    const CUdeviceptr at = block.address(part.offset);
    if (block.has_rows()) {
      const Rows rows = rows_of(block, part);
      CHECK(cuMemsetD2D8Async(at, block.pitch, value, rows.width, rows.rows, stream));
      std::memset(model, value, part.bytes);
    } else if (at % 4 == 0 && part.bytes % 4 == 0 && below(random_, 2) == 0) {
      const auto word = static_cast<uint32_t>(random_());
      CHECK(cuMemsetD32Async(at, word, part.bytes / 4, stream));
      for (size_t i = 0; i < part.bytes; i += 4) std::memcpy(model + i, &word, 4);
    } else if (at % 2 == 0 && part.bytes % 2 == 0 && below(random_, 2) == 0) {
      const auto half = static_cast<uint16_t>(random_());
      CHECK(cuMemsetD16Async(at, half, part.bytes / 2, stream));
      for (size_t i = 0; i < part.bytes; i += 2) std::memcpy(model + i, &half, 2);
    } else {
      CHECK(cuMemsetD8Async(at, value, part.bytes, stream));
      std::memset(model, value, part.bytes);
    }
    done(block, stream);
  }

  void copy_over() {
    Block &from = any_block(), &to = any_block();
    if (&from == &to) return set(to, to.some(random_));
    const CUstream stream = any_stream();
    CUDA_MEMCPY2D copy{};
    size_t bytes = 0;
    if (from.has_rows() && to.has_rows()) return verify(from);
    if (from.has_rows() || to.has_rows()) {  // between rows and bytes in a row
      const Block& shaped = from.has_rows() ? from : to;
      const size_t rows = std::min(shaped.rows, std::min(from.bytes(), to.bytes()) / shaped.width);
      if (rows == 0) return verify(from);
      copy.WidthInBytes = shaped.width;
      copy.Height = rows;
      bytes = rows * shaped.width;
    } else {
      bytes = 1 + below(random_, std::min(from.bytes(), to.bytes()));
    }
    begin(from, stream);
    begin(to, stream);
    const size_t source = from.has_rows() ? 0 : below(random_, from.bytes() - bytes + 1);
    const size_t target = to.has_rows() ? 0 : below(random_, to.bytes() - bytes + 1);
    if (copy.Height != 0) {
      set_device_source(copy, from, source, copy.WidthInBytes);
      set_device_target(copy, to, target, copy.WidthInBytes);
      CHECK(cuMemcpy2DAsync(&copy, stream));
    } else if (below(random_, 2) == 0) {
      CHECK(cuMemcpyDtoDAsync(to.address(target), from.address(source), bytes, stream));
    } else {
      CHECK(cuMemcpyAsync(to.address(target), from.address(source), bytes, stream));
    }
    std::memcpy(to.model.data() + target, from.model.data() + source, bytes);
    done(from, stream);
    done(to, stream);
  }

  void write_value() {
    Block& block = any_block();
    if (block.has_rows()) return set(block, block.whole());
    const CUstream stream = begin(block, any_stream());
    const size_t offset = below(random_, block.bytes() / 4) * 4;
    const auto value = static_cast<uint32_t>(random_());
    CHECK(cuStreamWriteValue32(stream, block.address(offset), value, 0));
    std::memcpy(block.model.data() + offset, &value, 4);
    done(block, stream);
  }

  void verify(Block& block) {
    const size_t unit = block.has_rows() ? block.width : 1;
    const size_t piece = piece_bytes() / unit * unit;
    for (size_t offset = 0; offset < block.bytes(); offset += piece) {
      verify(block, {offset, std::min(piece, block.bytes() - offset)});
    }
  }
  void verify(Block& block, Part part) {
    const unsigned char* back = back_.data();
    if (below(random_, 2) == 0) {
      const CUstream stream = begin(block, any_stream());
      Staging& staging = free_staging();
      download(block, part, staging.at, stream, /*ordered=*/true);
      CHECK(cuEventRecord(staging.ready, stream));
      done(block, stream);
      CHECK(cuEventSynchronize(staging.ready));
      back = staging.at;
    } else {
      CHECK(cuEventSynchronize(block.ready));
      download(block, part, back_.data(), nullptr, /*ordered=*/false);
      done(block, nullptr);
    }
    compare(back, block.model.data() + part.offset, part, described(block));
  }

  void kernel(unsigned part) {
    Block& block = any_block();
    const CUstream stream = begin(block, streams_[part % kStreams]);
    uint64_t spin_ns = options_.kernel_us * 1000;
    void* arguments[] = {&spin_ns, &block.at};
    CHECK(cuLaunchKernel(kernels_.function[part % 2], 1 + part, 1, 1, 64, 1, 1, 0, stream,
                         arguments, nullptr));
    done(block, stream);
    say_step();
  }

  void graph(CUgraphExec executable) {
    const CUstream stream = streams_[2];
    const Bytes expected = graphs_->launch(executable, stream, random_());
    CHECK(cuEventRecord(done_, stream));
    CHECK(cuEventSynchronize(done_));
    compare(graphs_->out, expected.data(), {0, expected.size()}, "what a graph copied");
    say_step();
  }
  void renew_graphs() {
    if (graphs_) graphs_->end();
    graphs_ = std::make_unique<Graphs>();
    graphs_->start(kernels_, streams_[2], options_.kernel_us * 1000,
                   static_cast<unsigned char>(random_()));
    say_step();
  }

  void random_step() {
    switch (below(random_, 10)) {
      case 0:
      case 1: {
        Block& block = any_block();
        write(block, block.some(random_));
        break;
      }
      case 2: {
        Block& block = any_block();
        set(block, block.some(random_));
        break;
      }
      case 3:
      case 4:
        copy_over();
        break;
      case 5:
        write_value();
        break;
      case 6:
        verify(any_block());
        break;
      case 7:
        allocate();
        break;
      case 8:
        if (blocks_.size() > 3 + steady_) {
          const size_t index = steady_ + below(random_, blocks_.size() - steady_);
          verify(blocks_[index]);
          memory_.free(blocks_[index], any_stream());
          blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(index));
        }
        break;
      default: {
        Block& block = any_block();
        if (block.way == Way::kMapped) {
          memory_.replace_last_piece(block, random_);
          write_all(block);
        } else {
          check_range(block);
        }
      }
    }
    say_step();
  }

  const Options options_;
  const unsigned index_;
  const Kernels kernels_;
  Random random_;
  const size_t budget_;
  Memory memory_;
  std::vector<Block> blocks_;  // the first `steady_` of them stay
  size_t steady_ = 0;
  CUstream streams_[kStreams] = {};
  CUevent done_ = nullptr;
  Staging stagings_[kStagings];
  Bytes back_;
  std::unique_ptr<Graphs> graphs_;
  uint64_t iteration_ = 0, steps_ = 0, digest_ = 0xcbf29ce484222325U, result_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Options options{};
  options.iterations = argument(argc, argv, 1, 200);
  options.seed = argument(argc, argv, 2, 1);
  options.megabytes = argument(argc, argv, 3, 48);
  options.threads = argument(argc, argv, 4, 2);
  options.kernel_us = argument(argc, argv, 5, 50);
  options.pause_us = argument(argc, argv, 6, 0);
  options.say_steps = std::getenv("PROGRAM_SAY_STEPS") != nullptr;

  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  Kernels kernels{};
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoadData(&module, kPtx));
  CHECK(cuModuleGetFunction(&kernels.function[0], module, "read_a"));
  CHECK(cuModuleGetFunction(&kernels.function[1], module, "read_b"));
  CUdeviceptr managed = 0;
  if (const char* bytes = std::getenv("PROGRAM_MANAGED")) {
    CHECK(cuMemAllocManaged(&managed, std::strtoull(bytes, nullptr, 10), CU_MEM_ATTACH_GLOBAL));
  }
  CUdeviceptr first = 0;
  if (const char* bytes = std::getenv("PROGRAM_FIRST")) {
    CHECK(cuMemAlloc(&first, std::strtoull(bytes, nullptr, 10)));
  }
  std::printf("ready\n");
  std::fflush(stdout);
  if (first != 0) wait_until_told();

  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < options.threads; ++i) {
    workers.push_back(std::make_unique<Worker>(options, i, kernels));
  }
  std::latch all_done(static_cast<ptrdiff_t>(options.threads));
  for (auto& worker : workers) {
    threads.emplace_back([&] { worker->run(context, device, all_done); });
  }
  for (std::thread& thread : threads) thread.join();

  if (managed != 0) CHECK(cuMemFree(managed));
  if (first != 0) CHECK(cuMemFree(first));
  uint64_t digest = 0;
  for (auto& worker : workers) digest = digest * 31 + worker->digest();
  std::printf("digest=%016llx iterations=%llu\n", static_cast<unsigned long long>(digest),
              options.iterations);
  std::fflush(stdout);
  wait_until_told();
  CHECK(cuModuleUnload(module));
  CHECK(cuDevicePrimaryCtxRelease(device));
  return 0;
}
