#include "policies/prediction/iteration_template.h"

#include <algorithm>
#include <bit>

namespace lull::policies {
namespace {

uint64_t spread(uint64_t x) {
  x = (x ^ (x >> 32)) * 0x9e3779b97f4a7c15ULL;
  return x ^ (x >> 29);
}

}  // namespace

IterationTemplate::IterationTemplate(std::vector<KernelId> launches)
    : launches_(std::move(launches)) {
  const uint32_t length = this->length();
  slack_ = length / 16;
  table_.resize(std::bit_ceil(std::max<uint32_t>(length, 2)) * 2);
  const uint64_t mask = table_.size() - 1;
  const auto entry = [&](KernelId kernel) -> Entry& {
    uint64_t at = spread(kernel.value) & mask;
    while (table_[at].count != 0 && table_[at].kernel != kernel) at = (at + 1) & mask;
    return table_[at];
  };
  for (const KernelId kernel : launches_) {
    Entry& known = entry(kernel);
    known.kernel = kernel;
    known.count += 1;
  }
  uint32_t next = 0;
  for (Entry& known : table_) {
    known.first = next;
    next += known.count;
  }
  positions_.resize(length);
  std::vector<uint32_t> filled(table_.size(), 0);
  for (uint32_t position = 0; position < length; ++position) {
    Entry& known = entry(launches_[position]);
    const auto index = static_cast<size_t>(&known - table_.data());
    positions_[known.first + filled[index]++] = position;
  }
}

const IterationTemplate::Entry* IterationTemplate::find(KernelId kernel) const {
  const uint64_t mask = table_.size() - 1;
  uint64_t at = spread(kernel.value) & mask;
  while (table_[at].count != 0) {
    if (table_[at].kernel == kernel) return &table_[at];
    at = (at + 1) & mask;
  }
  return nullptr;
}

int32_t IterationTemplate::distance(uint32_t position, uint32_t from) const {
  const auto length = static_cast<int32_t>(this->length());
  int32_t away = static_cast<int32_t>(position) - static_cast<int32_t>(from);
  if (away > length / 2) away -= length;
  if (away < -(length / 2)) away += length;
  return away;
}

uint32_t IterationTemplate::moved(uint32_t position, int32_t by) const {
  const auto length = static_cast<int32_t>(this->length());
  return static_cast<uint32_t>(((static_cast<int32_t>(position) + by) % length + length) % length);
}

std::optional<uint32_t> IterationTemplate::nearest(KernelId kernel, uint32_t position) const {
  const Entry* entry = find(kernel);
  if (entry == nullptr) return std::nullopt;
  const uint32_t* begin = positions_.data() + entry->first;
  const uint32_t* end = begin + entry->count;
  const uint32_t* after = std::lower_bound(begin, end, position);
  const uint32_t next = after == end ? *begin : *after;
  const uint32_t before = after == begin ? *(end - 1) : *(after - 1);
  return std::abs(distance(next, position)) <= std::abs(distance(before, position)) ? next : before;
}

std::optional<uint32_t> IterationTemplate::only(KernelId kernel) const {
  const Entry* entry = find(kernel);
  if (entry == nullptr || entry->count != 1) return std::nullopt;
  return positions_[entry->first];
}

}  // namespace lull::policies
