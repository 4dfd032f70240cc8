// Where lulld's socket is: the one rule, for the daemon, the shim and every tool.
//
//   $LULL_SOCKET                            if it is set
//   /run/lull/lulld.sock                    for root and for the owner of /run/lull, always;
//                                           for others once the socket is there
//   $XDG_RUNTIME_DIR/lull/lulld.sock        if that is set
//   /tmp/lull-<uid>/lulld.sock
//
// Any thread; reads the environment and the file system. The uid is the effective one.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/channel/trust_facts.h"

namespace lull::channel {

inline constexpr char kSystemSocket[] = "/run/lull/lulld.sock";
inline constexpr char kSocketPlaces[] =
    "$LULL_SOCKET, /run/lull/lulld.sock for root and where it is there, "
    "$XDG_RUNTIME_DIR/lull/lulld.sock, /tmp/lull-<uid>/lulld.sock";
inline constexpr size_t kSocketPathBytes = 108;  // sockaddr_un.sun_path, with its NUL

enum class Place { kNamed, kSystem, kRuntime, kTemporary };

struct PlaceFacts {
  bool named = false;    // $LULL_SOCKET is set
  bool runtime = false;  // $XDG_RUNTIME_DIR is set
  uint32_t uid = 0;
  FileFacts system_directory;
  bool system_socket = false;  // it exists
};

constexpr Place choose_place(const PlaceFacts& facts) {
  if (facts.named) return Place::kNamed;
  const bool owns = facts.system_directory.exists && facts.system_directory.owner == facts.uid;
  if (facts.uid == 0 || owns || facts.system_socket) return Place::kSystem;
  return facts.runtime ? Place::kRuntime : Place::kTemporary;
}

struct SocketPlace {
  Place place = Place::kTemporary;
  bool fits = false;  // false: the path is longer than a socket's may be
  char path[kSocketPathBytes] = {};
};

inline SocketPlace socket_place() {
  const auto variable = [](const char* name) {
    const char* value = getenv(name);
    return value != nullptr && value[0] != '\0' ? value : nullptr;
  };
  const char* named = variable("LULL_SOCKET");
  const char* runtime = variable("XDG_RUNTIME_DIR");
  PlaceFacts facts{.named = named != nullptr,
                   .runtime = runtime != nullptr,
                   .uid = geteuid(),
                   .system_directory = file_facts(kSystemDirectory),
                   .system_socket = file_facts(kSystemSocket).exists};
  SocketPlace found{.place = choose_place(facts)};
  char digits[16];
  char* number = digits + sizeof digits;
  *--number = '\0';
  uint32_t rest = facts.uid;
  do *--number = static_cast<char>('0' + rest % 10);
  while ((rest /= 10) != 0);
  const auto put = [&](const char* head, const char* middle, const char* tail) {
    found.fits = strlen(head) + strlen(middle) + strlen(tail) < sizeof found.path;
    if (!found.fits) return;
    strcpy(found.path, head);
    strcat(found.path, middle);
    strcat(found.path, tail);
  };
  switch (found.place) {
    case Place::kNamed:
      put(named, "", "");
      break;
    case Place::kSystem:
      put(kSystemSocket, "", "");
      break;
    case Place::kRuntime:
      put(runtime, "/lull/lulld.sock", "");
      break;
    case Place::kTemporary:
      put("/tmp/lull-", number, "/lulld.sock");
      break;
  }
  return found;
}

}  // namespace lull::channel
