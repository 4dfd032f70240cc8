// Lanes as few bytes, for the HTML report: about four a span where the spans are exact. Used by the
// export; any thread. Pure. report_viewer.html reads them.
//
//   a lane:    each of these of all its spans, one behind the other, as varints (byte_stream.h)
//     start    distance from the end of the span before, zigzag; of the first one from 0
//     length
//     what
//     units    less one
//     idle     length less busy time, zigzag
//   packed:    all lanes in their order, deflated (zlib), base64
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/trace/byte_stream.h"
#include "tools/lull/trace/lanes.h"

namespace lull::trace {

// Times count from `origin_ns`.
void pack_spans(const std::vector<Span>& spans, int64_t origin_ns, ByteSink& out);
std::string packed_text(const std::vector<uint8_t>& bytes);

}  // namespace lull::trace
