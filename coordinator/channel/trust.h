// Whom a program takes for its coordinator: the decision, on facts that trust_facts.h gathers. A
// coordinator learns the names of a program's kernels, holds its launches and limits its memory, so
// a stranger must not be one. Asked by the shim and by every tool before it sends the first byte.
// Pure; any thread.
//
// Trusted are root, the user that the program runs as, and the service user: the owner of
// /run/lull, if root alone can make that directory. The peer must be one of them, and so must the
// owner of the directory that holds the socket, so that nobody else replaces the socket.
//
// In a user namespace the users outside have no number of their own: root and a stranger show alike
// as the overflow uid. There the operator's word counts in place of the number: the socket, or its
// directory, is a read-only mount of its own, which only who rules the namespace can make; of the
// directory, where others cannot write, from outside either.
#pragma once

#include <stdint.h>

namespace lull::channel {

struct FileFacts {
  bool exists = false;
  uint32_t owner = 0;
  uint32_t mode = 0;  // st_mode
};

struct TrustFacts {
  uint32_t own_uid = 0;
  bool in_user_namespace = false;  // also where that is not known
  uint32_t overflow_uid = 65534;   // how users without a number show
  bool operators_mount = false;    // of the socket or its directory; false outside user namespaces
  FileFacts run;                   // /run
  FileFacts service;               // /run/lull
  FileFacts directory;             // that holds the socket
  FileFacts socket;
};

enum class Distrust {
  kNone,
  kDirectoryOwner,     // the directory belongs to another user
  kDirectoryWritable,  // other users can replace the socket
  kPeer,               // another user answers
};

namespace trust {
inline constexpr uint32_t kWritableByOthers = 0022;
inline constexpr uint32_t kSticky = 01000;
}  // namespace trust

constexpr bool is_trusted_user(const TrustFacts& facts, uint32_t uid) {
  if (facts.in_user_namespace && uid == facts.overflow_uid) return false;  // that is anybody
  if (uid == 0 || uid == facts.own_uid) return true;
  const bool only_root_makes_it =
      facts.run.exists && facts.run.owner == 0 && (facts.run.mode & trust::kWritableByOthers) == 0;
  return only_root_makes_it && facts.service.exists && uid == facts.service.owner;
}

// Before connecting. A place where nothing is yet is not distrusted.
constexpr Distrust judge_place(const TrustFacts& facts) {
  if (facts.operators_mount || !facts.directory.exists) return Distrust::kNone;
  if (!is_trusted_user(facts, facts.directory.owner)) return Distrust::kDirectoryOwner;
  if ((facts.directory.mode & trust::kWritableByOthers) == 0) return Distrust::kNone;
  // In /tmp and its like nobody but its owner replaces a file.
  if ((facts.directory.mode & trust::kSticky) == 0) return Distrust::kDirectoryWritable;
  const bool strangers = facts.socket.exists && !is_trusted_user(facts, facts.socket.owner);
  return strangers ? Distrust::kDirectoryWritable : Distrust::kNone;
}

// Once connected: `peer_uid` by SO_PEERCRED, of the process that listened.
constexpr Distrust judge_peer(const TrustFacts& facts, uint32_t peer_uid) {
  return facts.operators_mount || is_trusted_user(facts, peer_uid) ? Distrust::kNone
                                                                   : Distrust::kPeer;
}

// What is wrong, to be followed by the socket's path.
constexpr const char* what_is_wrong(Distrust distrust) {
  switch (distrust) {
    case Distrust::kNone:
      return "nothing";
    case Distrust::kDirectoryOwner:
      return "a socket in another user's directory";
    case Distrust::kDirectoryWritable:
      return "a socket that other users can replace";
    case Distrust::kPeer:
      return "another user's coordinator";
  }
  return "?";
}
constexpr const char* what_to_do(const TrustFacts& facts, Distrust distrust) {
  if (facts.in_user_namespace) {
    return "mount lulld's directory into this container, read-only";
  }
  if (distrust == Distrust::kDirectoryWritable) {
    return "take write permission on its directory from group and others";
  }
  return "use root's lulld or one of your own";
}

}  // namespace lull::channel
