// Where lull's own parts lie (relative to the running executable, so that a build tree and an
// installation look alike), and which socket lulld is expected at. Any thread; reads the
// environment and the file system, changes nothing.
#pragma once

#include <expected>
#include <string>

namespace lull::command {

struct Installed {
  std::string bin;         // folder of lull, lulld, lull-play
  std::string shim;        // .../lib/lull/liblull.so
  std::string sim_folder;  // .../lib/lull/sim
};
Installed installed();

// $LULL_SOCKET, else /run/lull/lulld.sock if its folder exists and (we are root or the socket
// exists), else $XDG_RUNTIME_DIR/lull/lulld.sock, else /tmp/lull-<uid>/lulld.sock.
std::string default_socket();

// $SIMGPU_DEVICE, else /dev/shm/simgpu-<uid>.
std::string default_sim_device();

// Looks `name` up as execvp does: as it is when it has a slash, else along `path` (the value of
// PATH). The error is an errno: ENOENT, or EACCES when the only matches cannot be executed.
std::expected<std::string, int> find_program(const std::string& name, const std::string& path);

}  // namespace lull::command
