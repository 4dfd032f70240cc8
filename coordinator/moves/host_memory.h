// How the host memory that arenas may take is shared out among clients. Pure; the daemon asks it
// when wishes change, and publishes the answers (lull_order.host_allowance_bytes).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lull::moves {

struct HostWish {
  uint64_t has_bytes = 0;    // populated already
  uint64_t wants_bytes = 0;  // in all
};

// By wish, an allowance. Nobody gets less than it has; the rest goes round in equal parts, of which
// nobody takes more than it wants (max-min fairness): who wants without measure gets no more than
// the others' wishes leave. What nobody wants yet is shared out equally as well: wishes grow
// between two looks, and an order does not wait for the next.
std::vector<uint64_t> share_host_memory(uint64_t total_bytes, std::span<const HostWish> wishes);

}  // namespace lull::moves
