// Where finished blocks go: packed and appended to a file by a thread of its own, oldest first. The
// callers (Writer, DecisionLogWriter) are on one thread, which waits for the disk only where it
// asks to. The first failure is remembered, what the disk took of a block is cut off again so that
// the file ends with a whole block, and nothing is written any more.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <expected>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/trace/block_file.h"

namespace lull::trace {

inline constexpr size_t kQueueBytes = 8UL << 20;  // raw bytes waiting; more: the sink is behind

class BlockSink {
 public:
  // Creates the file with its head; an existing one must be empty. Error: "cannot write FILE: ...".
  static std::expected<std::unique_ptr<BlockSink>, std::string> create(const std::string& path,
                                                                       FileKind kind);
  ~BlockSink();  // writes what waits
  BlockSink(const BlockSink&) = delete;

  // Whether one more block may be pushed without waiting.
  bool has_room() const { return waiting_bytes() < kQueueBytes; }
  size_t waiting_bytes() const { return waiting_.load(std::memory_order_relaxed); }
  void wait_for_room();
  // `records`: what it holds, for lost_records().
  void push(BlockType type, std::vector<uint8_t> raw, uint64_t records = 0);
  // Until all that was pushed is in the file, or lost to a failure.
  void wait_for_all();
  bool is_idle() const { return waiting_bytes() == 0 || has_failed(); }

  bool has_failed() const { return failed_.load(std::memory_order_relaxed); }
  std::string failure() const;
  // In blocks that never reached the file because the sink failed.
  uint64_t lost_records() const { return lost_records_.load(std::memory_order_relaxed); }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }  // in the file
  const std::string& path() const { return path_; }

 private:
  BlockSink(std::string path, int fd);
  void run();
  void append(BlockType type, const std::vector<uint8_t>& raw);
  void fail(const std::string& why);

  struct Block {
    BlockType type;
    std::vector<uint8_t> raw;
    uint64_t records;
  };
  std::string path_;
  int fd_;
  BlockPacker packer_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint64_t> lost_records_{0};
  std::atomic<size_t> waiting_{0};
  std::atomic<bool> failed_{false};
  mutable std::mutex lock_;
  std::condition_variable changed_;
  std::deque<Block> queue_;  // under lock_
  bool busy_ = false;        // under lock_
  bool stopping_ = false;    // under lock_
  std::string failure_;      // under lock_
  std::thread thread_;
};

}  // namespace lull::trace
