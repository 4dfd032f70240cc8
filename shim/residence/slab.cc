#include "shim/residence/slab.h"

namespace lull::shim {

size_t Slab::table_bytes(uint32_t units) {
  return units * sizeof(Tag) + (units + 63) / 64 * sizeof(uint64_t);
}

void Slab::open(void* tables, uint32_t units) {
  tags_ = static_cast<Tag*>(tables);
  begins_ = reinterpret_cast<uint64_t*>(tags_ + units);
  units_ = units;
  free_units_ = units;
  for (uint32_t& head : heads_) head = 0;
  filled_[0] = filled_[1] = 0;
  tags_[0].units = units;
  tags_[0].before = 0;
  insert(0);
}

// Four classes for each power of two: all pieces of a class are as large as its smallest, and less
// than a quarter larger. Below four units a class is one size.
uint32_t Slab::class_of(uint32_t units) {
  if (units < 4) return units;
  const uint32_t power = 31 - static_cast<uint32_t>(__builtin_clz(units));
  return power * 4 - 4 + (units >> (power - 2) & 3);
}

void Slab::mark(uint32_t first, bool used) {
  const uint64_t bit = uint64_t{1} << (first % 64);
  if (used) {
    begins_[first / 64] |= bit;
  } else {
    begins_[first / 64] &= ~bit;
  }
}

void Slab::insert(uint32_t first) {
  const uint32_t size_class = class_of(tags_[first].units);
  const uint32_t next = heads_[size_class];
  tags_[first].word = next;
  tags_[first].previous = 0;
  if (next != 0) tags_[next - 1].previous = first + 1;
  heads_[size_class] = first + 1;
  filled_[size_class / 64] |= uint64_t{1} << (size_class % 64);
}

void Slab::remove(uint32_t first) {
  const uint32_t size_class = class_of(tags_[first].units);
  const uint32_t next = tags_[first].word;
  const uint32_t previous = tags_[first].previous;
  if (next != 0) tags_[next - 1].previous = previous;
  if (previous != 0) {
    tags_[previous - 1].word = next;
  } else {
    heads_[size_class] = next;
    if (next == 0) filled_[size_class / 64] &= ~(uint64_t{1} << (size_class % 64));
  }
}

// Anything of a larger class fits; of its own class, what is large enough.
uint32_t Slab::find(uint32_t units) const {
  const uint32_t own = class_of(units);
  const uint32_t above = own + 1;
  uint64_t low = above < 64 ? filled_[0] >> above << above : 0;
  uint64_t high = above < 64 ? filled_[1] : filled_[1] >> (above - 64) << (above - 64);
  for (uint32_t at = heads_[own]; at != 0; at = tags_[at - 1].word) {
    if (tags_[at - 1].units >= units) return at - 1;
    if (low != 0 || high != 0) break;  // no need to look through all of them
  }
  if (low != 0) return heads_[__builtin_ctzll(low)] - 1;
  if (high != 0) return heads_[64 + __builtin_ctzll(high)] - 1;
  return kNone;
}

uint32_t Slab::take(uint32_t units, uint32_t word) {
  if (units == 0 || units > free_units_) return kNone;
  const uint32_t first = find(units);
  if (first == kNone) return kNone;
  remove(first);
  Tag& taken = tags_[first];
  const uint32_t rest = taken.units - units;
  const uint32_t after = first + taken.units;
  if (rest != 0) {
    Tag& left = tags_[first + units];
    left.units = rest;
    left.before = units;
    insert(first + units);
  }
  if (after < units_) tags_[after].before = rest != 0 ? rest : units;
  taken.units = units;
  taken.word = word;
  mark(first, true);
  free_units_ -= units;
  return first;
}

void Slab::give(uint32_t first) {
  mark(first, false);
  uint32_t units = tags_[first].units;
  free_units_ += units;
  uint32_t after = first + units;
  if (after < units_ && !is_used(after)) {
    remove(after);
    units += tags_[after].units;
  }
  if (tags_[first].before != 0 && !is_used(first - tags_[first].before)) {
    first -= tags_[first].before;
    remove(first);
    units += tags_[first].units;
  }
  tags_[first].units = units;
  after = first + units;
  if (after < units_) tags_[after].before = units;
  insert(first);
}

uint32_t Slab::piece_at(uint32_t unit) const {
  if (unit >= units_) return kNone;
  uint32_t word = unit / 64;
  uint64_t bits = begins_[word] & (~uint64_t{0} >> (63 - unit % 64));
  while (bits == 0 && word > 0) bits = begins_[--word];
  if (bits == 0) return kNone;
  const uint32_t first = word * 64 + 63 - static_cast<uint32_t>(__builtin_clzll(bits));
  return unit - first < tags_[first].units ? first : kNone;
}

bool Slab::is_sound() const {
  uint32_t before = 0;
  uint32_t free_units = 0;
  uint32_t free_pieces = 0;
  bool free_before = false;
  for (uint32_t first = 0; first < units_; first += before) {
    const Tag& tag = tags_[first];
    if (tag.units == 0 || tag.before != before) return false;
    const bool is_free = !is_used(first);
    if (is_free && free_before) return false;  // they would have merged
    free_before = is_free;
    if (is_free) {
      free_units += tag.units;
      ++free_pieces;
    }
    before = tag.units;
    if (before > units_ - first) return false;
  }
  uint32_t listed = 0;
  for (uint32_t size_class = 0; size_class < kClasses; ++size_class) {
    if ((heads_[size_class] != 0) != ((filled_[size_class / 64] >> (size_class % 64) & 1) != 0))
      return false;
    for (uint32_t at = heads_[size_class]; at != 0; at = tags_[at - 1].word) {
      if (is_used(at - 1) || class_of(tags_[at - 1].units) != size_class) return false;
      ++listed;
    }
  }
  return free_units == free_units_ && listed == free_pieces;
}

}  // namespace lull::shim
