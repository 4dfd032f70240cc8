// The coordinator's answer to a hello: the welcome, and the region's memfd with it. Called by lulld,
// by lull-bench's stand-in and by tests, on any thread; it never blocks.
#pragma once

#include <string.h>
#include <sys/socket.h>

#include "coordinator/channel/messages.h"

namespace lull::channel {

// `memory` < 0: no region goes along (a refusal). False: the peer has gone.
inline bool send_welcome(int socket, const lull_welcome& welcome, int memory) {
  iovec part{const_cast<lull_welcome*>(&welcome), sizeof welcome};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (memory >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &memory, sizeof memory);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof welcome);
}

}  // namespace lull::channel
