// Whether this is a container, and what of lull is not mounted into it as it has to be. The
// judgement is pure; the facts are looked up by `container_facts`. Called by `lull doctor`.
//
// A program needs from outside: the folder that holds lulld's socket, and liblull.so. The memory
// that it shares with lulld comes through the socket: no /dev/shm, /proc or pid namespace is
// shared.
#pragma once

#include <string>

#include "tools/lull/findings.h"

namespace lull::command {

struct ContainerFacts {
  bool own_pid_namespace = false;  // processes outside have no number here
  bool marked = false;             // /.dockerenv or /run/.containerenv
  bool user_namespace = false;
  bool proc = true;       // /proc is there
  std::string directory;  // that holds the socket
  bool directory_exists = false;
  bool socket_exists = false;
  bool socket_is_mount = false;  // the socket itself, not its directory
  bool read_only = false;        // where the socket lies
};

inline bool in_container(const ContainerFacts& facts) {
  return facts.own_pid_namespace || facts.marked;
}

ContainerFacts container_facts(const std::string& socket_path);

// Nothing outside containers.
void check_container(Findings& findings, const ContainerFacts& facts);

// What to do where nobody answers.
std::string mend_silence(const ContainerFacts& facts);

}  // namespace lull::command
