// moving_runtime [ITERATIONS]: moving_work's little sister on the CUDA runtime: every byte on the device is known
// and checked while cudaMalloc, pitched and stream-ordered memory comes and goes, through copies,
// memsets and a captured graph. Prints `ready`, `step N` with PROGRAM_SAY_STEPS=1, and
// `digest=HEX iterations=N`.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "program.h"

constexpr size_t kGraphBytes = 64 << 10;

__device__ unsigned long long counter;

__global__ void read_all(const unsigned char* data, unsigned long long clocks) {
  const long long begin = clock64() + data[threadIdx.x] * 0;
  while (clock64() - begin < static_cast<long long>(clocks)) {
  }
  if (threadIdx.x == 0 && blockIdx.x == 0) counter += 1;
}

using Bytes = std::vector<unsigned char>;
static std::mt19937_64 dice(1);
static uint64_t digest = 0xcbf29ce484222325U;

struct Block {
  unsigned char* at = nullptr;
  size_t width = 0, rows = 1, pitch = 0;
  bool ordered = false;
  Bytes model;
};

static void random_bytes(Bytes& bytes) {
  uint64_t word = dice();
  for (unsigned char& byte : bytes) {
    word = word * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<unsigned char>(word >> 56);
  }
}

static Block allocate(cudaStream_t stream) {
  Block block;
  block.width = 64 + dice() % (size_t{1} << (8 + dice() % 13));
  if (dice() % 3 == 0) {
    block.rows = 1 + dice() % 8;
    CHECK(cudaMallocPitch(&block.at, &block.pitch, block.width, block.rows));
  } else if (dice() % 2 == 0) {
    block.ordered = true;
    CHECK(cudaMallocAsync(&block.at, block.width, stream));
    CHECK(cudaStreamSynchronize(stream));
  } else {
    CHECK(cudaMalloc(&block.at, block.width));
  }
  if (block.pitch == 0) block.pitch = block.width;
  block.model.resize(block.width * block.rows);
  return block;
}

static void write(Block& block, cudaStream_t stream) {
  if (dice() % 3 == 0) {
    const int value = static_cast<int>(dice() % 256);
    CHECK(cudaMemset2DAsync(block.at, block.pitch, value, block.width, block.rows, stream));
    std::memset(block.model.data(), value, block.model.size());
  } else {
    random_bytes(block.model);
    CHECK(cudaMemcpy2DAsync(block.at, block.pitch, block.model.data(), block.width, block.width,
                            block.rows, cudaMemcpyHostToDevice, stream));
  }
  CHECK(cudaStreamSynchronize(stream));
}

static void verify(const unsigned char* is, const Bytes& should, const char* what) {
  for (size_t i = 0; i < should.size(); ++i) {
    if (is[i] != should[i]) {
      std::fprintf(stderr, "program: WRONG BYTE: %s of %zu bytes, byte %zu is 0x%02x and should be 0x%02x\n",
                   what, should.size(), i, is[i], should[i]);
      std::_Exit(1);
    }
    digest = (digest ^ is[i]) * 0x100000001b3U;
  }
}

static void verify(const Block& block) {
  Bytes back(block.model.size());
  CHECK(cudaMemcpy2D(back.data(), block.width, block.at, block.pitch, block.width, block.rows,
                     cudaMemcpyDeviceToHost));
  verify(back.data(), block.model, "a block");
}

int main(int argc, char** argv) {
  const auto iterations = argument(argc, argv, 1, 100);
  const bool say = std::getenv("PROGRAM_SAY_STEPS") != nullptr;
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  unsigned char *in = nullptr, *out = nullptr, *first = nullptr, *second = nullptr;
  CHECK(cudaMallocHost(&in, kGraphBytes));
  CHECK(cudaMallocHost(&out, kGraphBytes));
  CHECK(cudaMalloc(&first, kGraphBytes));
  CHECK(cudaMalloc(&second, kGraphBytes));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaMemcpyAsync(first, in, kGraphBytes, cudaMemcpyHostToDevice, stream));
  read_all<<<2, 32, 0, stream>>>(first, 20000);
  CHECK(cudaMemcpyAsync(second, first, kGraphBytes, cudaMemcpyDeviceToDevice, stream));
  CHECK(cudaMemsetAsync(second, 5, 1000, stream));
  CHECK(cudaMemcpyAsync(out, second, kGraphBytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  CHECK(cudaGraphDestroy(graph));
  std::printf("ready\n");

  std::vector<Block> blocks;
  unsigned long long steps = 0;
  for (unsigned long long i = 0; i < iterations; ++i) {
    blocks.push_back(allocate(stream));
    write(blocks.back(), stream);
    if (blocks.size() > 12) {
      const size_t index = dice() % blocks.size();
      if (blocks[index].ordered) {
        CHECK(cudaFreeAsync(blocks[index].at, stream));
      } else {
        CHECK(cudaFree(blocks[index].at));
      }
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(index));
    }
    for (Block& block : blocks) {
      read_all<<<1, 32, 0, stream>>>(block.at, 20000);
      CHECK(cudaGetLastError());
      if (dice() % 4 == 0) write(block, stream);
      verify(block);
      if (say) std::printf("step %llu\n", ++steps);
    }
    Bytes expected(kGraphBytes);
    random_bytes(expected);
    std::memcpy(in, expected.data(), kGraphBytes);
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::memset(expected.data(), 5, 1000);
    verify(out, expected, "what a graph copied");
    std::fflush(stdout);
  }
  for (Block& block : blocks) CHECK(cudaFree(block.at));
  CHECK(cudaGraphExecDestroy(executable));
  std::printf("digest=%016llx iterations=%llu\n", static_cast<unsigned long long>(digest), iterations);
  std::fflush(stdout);
  wait_until_told();
  return 0;
}
