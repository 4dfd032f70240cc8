// The process behind a client's socket, whatever pid namespace (container) it runs in. Loop thread,
// once a client; looks at the kernel's word alone, never at the client's.
//
//   program's namespace               SO_PEERCRED's pid      SO_PEERPIDFD (Linux 6.5)
//   lulld's own, or one below it      as lulld sees it       yes
//   beside or above it                0                      yes
//   process gone already              its pid of then        no
//
// Who has no pidfd is watched by its socket alone, whose hang-up tells the same.
#pragma once

#include <sys/types.h>

#include "coordinator/daemon/file_descriptor.h"
#include "coordinator/daemon/priority_rules.h"

namespace lull::daemon {

// Readable once the process has ended. None: it has ended already, or this kernel has none for it.
FileDescriptor peer_pidfd(int socket, const Peer& peer);

// The process's pid as it sees it itself. 0: not known (its namespace is none of those below
// lulld's, /proc is not there or hides it, or it has ended).
pid_t pid_in_its_namespace(const Peer& peer, const FileDescriptor& pidfd);

// Of the lines of /proc/PID/status: the last number of "NSpid:", 0 where there is none.
pid_t innermost_pid(const char* status);

}  // namespace lull::daemon
