// A job whose memory is known, led by orders: for moving it, and for asking whether it is what it
// was.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "tools/gpu_check/native/orders.h"
#include "tools/gpu_check/native/probes.h"
#include "tools/gpu_check/native/self_checkpoint.h"

namespace lull::probe {

using nlohmann::json;

namespace {

constexpr size_t kPiece = 256 << 20;
constexpr auto kBetweenKernels = std::chrono::milliseconds(1);

struct Piece {
  CUdeviceptr at = 0;
  size_t bytes = 0;
  uint32_t word = 0;
};

bool is_intact(Driver& driver, const std::vector<Piece>& pieces) {
  std::vector<uint32_t> back;
  for (const Piece& piece : pieces) {
    back.assign(piece.bytes / 4, ~piece.word);
    LULL_MUST(driver, cuMemcpyDtoH, static_cast<void*>(back.data()), piece.at, piece.bytes);
    for (const uint32_t word : back) {
      if (word != piece.word) return false;
    }
  }
  return true;
}

}  // namespace

json probe_hold(Driver& driver, uint64_t bytes) {
  const Device device(driver);
  std::vector<Piece> pieces;
  for (uint64_t held = 0; held < bytes; held += pieces.back().bytes) {
    Piece piece;
    piece.bytes = std::min<uint64_t>(kPiece, bytes - held) / 4 * 4;
    if (piece.bytes == 0) break;
    piece.word = 0xA5000000u + static_cast<uint32_t>(pieces.size());
    LULL_MUST(driver, cuMemAlloc, &piece.at, piece.bytes);
    LULL_MUST(driver, cuMemsetD32, piece.at, piece.word, piece.bytes / 4);
    pieces.push_back(piece);
  }
  const CUstream stream = device.stream();
  Orders orders;
  answer({{"bytes", bytes}});
  for (;;) {
    while (!orders.waiting()) {  // it works on
      device.launch(device.null_kernel, stream);
      LULL_MUST(driver, cuStreamSynchronize, stream);
      std::this_thread::sleep_for(kBetweenKernels);
    }
    const auto order = orders.next();
    if (!order) return {{"bytes", bytes}};
    if (*order == "check") {
      answer({{"intact", is_intact(driver, pieces)}});
    } else if (*order == "checkpoint") {
      SelfCheckpoint checkpoint(driver);
      checkpoint.there_and_back(false);
      answer(checkpoint.answer());
      if (!checkpoint.running()) _exit(0);  // any further call may hang for good
    } else {
      answer({{"failed", "unknown order: " + *order}});
    }
  }
}

}  // namespace lull::probe
