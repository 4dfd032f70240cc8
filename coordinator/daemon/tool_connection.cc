#include "coordinator/daemon/tool_connection.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>

#include "coordinator/channel/messages.h"

namespace lull::daemon {

bool ToolConnection::send_more() {
  while (sent_ < reply_.size()) {
    const size_t chunk = std::min(reply_.size() - sent_, channel::kReplyChunkBytes);
    const ssize_t done =
        ::send(socket_.get(), reply_.data() + sent_, chunk, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (done < 0) return errno == EAGAIN || errno == EINTR;
    sent_ += static_cast<size_t>(done);
  }
  return false;
}

}  // namespace lull::daemon
