// Records of one kind, in pages of their own: an address is good as long as its record is in use,
// one that was given back is used again. A Record begins with its RecordHead. The caller locks.
#pragma once

#include <stdint.h>

#include "shim/system.h"

namespace lull::shim {

struct RecordHead {
  uint32_t index;
  uint32_t generation;  // how often the place was taken
  uint32_t next_free;   // + 1
  bool in_use;
};

template <typename Record>
class Records {
 public:
  // Zeroed but for its head; null: no host memory.
  Record* take() {
    Record* record = nullptr;
    if (free_ != 0) {
      record = at(free_ - 1);
      free_ = record->head.next_free;
    } else {
      Record*& chunk = chunks_[chunk_of(count_)];
      if (chunk == nullptr) {
        chunk = static_cast<Record*>(map_pages((kFirst << chunk_of(count_)) * sizeof(Record)));
        if (chunk == nullptr) return nullptr;
      }
      record = at(count_);
      record->head.index = count_++;
    }
    const RecordHead head{record->head.index, record->head.generation + 1, 0, true};
    *record = Record{};
    record->head = head;
    return record;
  }
  void give(Record* record) {
    record->head.in_use = false;
    record->head.next_free = free_;
    free_ = record->head.index + 1;
  }
  Record* at(uint32_t index) {
    const uint32_t chunk = chunk_of(index);
    return chunks_[chunk] + (index - ((kFirst << chunk) - kFirst));
  }
  uint32_t count() const { return count_; }  // places, in use or not
  void forget() {
    for (uint32_t index = 0; index < count_; ++index) {
      if (at(index)->head.in_use) give(at(index));
    }
  }

 private:
  // Chunk n holds kFirst << n records.
  static constexpr uint64_t kFirst = 64;
  static uint32_t chunk_of(uint32_t index) {
    return 63 - static_cast<uint32_t>(__builtin_clzll(index / kFirst + 1));
  }
  Record* chunks_[24];
  uint32_t count_;
  uint32_t free_;
};

}  // namespace lull::shim
