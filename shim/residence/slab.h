// Hands out pieces of one stretch of memory, in units: segregated free lists with boundary tags, so
// that taking and giving are a few steps whatever is in it, and neighbours merge at once. Pure: it
// knows neither addresses nor the driver, and its tables lie in memory that the caller brings. The
// caller locks.
//
//   unit   0      3            9        12
//          | used | free       | used   | free ...      first unit of each piece: its tag
//
// At most kMaxUnits. The caller keeps one word of its own with each piece that is in use.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace lull::shim {

class Slab {
 public:
  static constexpr uint32_t kMaxUnits = 1U << 20;
  static constexpr uint32_t kNone = UINT32_MAX;

  // What `open` needs for so many units; zeroed.
  static size_t table_bytes(uint32_t units);
  void open(void* tables, uint32_t units);
  void* tables() const { return tags_; }

  // First unit of a new piece; kNone: no room in one piece. `units` > 0.
  uint32_t take(uint32_t units, uint32_t word);
  // The piece that begins there and is in use.
  void give(uint32_t first);
  // First unit of the piece in use that holds the unit; kNone: it is free.
  uint32_t piece_at(uint32_t unit) const;
  uint32_t word(uint32_t first) const { return tags_[first].word; }
  uint32_t size(uint32_t first) const { return tags_[first].units; }

  uint32_t units() const { return units_; }
  uint32_t free_units() const { return free_units_; }
  bool is_empty() const { return free_units_ == units_; }
  // What holds between its tables; a test asks.
  bool is_sound() const;

 private:
  struct Tag {
    uint32_t units;     // of the piece that begins here
    uint32_t before;    // units of the piece before it; 0: none
    uint32_t word;      // in use: the caller's; free: the next of its class
    uint32_t previous;  // free: the one before it in its class
  };
  static constexpr uint32_t kClasses = 80;
  static uint32_t class_of(uint32_t units);
  bool is_used(uint32_t first) const { return (begins_[first / 64] >> (first % 64) & 1) != 0; }
  void mark(uint32_t first, bool used);
  void insert(uint32_t first);
  void remove(uint32_t first);
  uint32_t find(uint32_t units) const;

  Tag* tags_;
  uint64_t* begins_;  // a bit for each unit: a piece in use begins there
  uint32_t units_;
  uint32_t free_units_;
  uint32_t heads_[kClasses];  // first unit + 1; 0: the class has none
  uint64_t filled_[2];        // classes that have some
};

}  // namespace lull::shim
