// Which process a client's socket leads to: its pidfd, and its pid in a namespace of its own.
#include "coordinator/daemon/peer_process.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <string>

#include "coordinator/daemon/listener.h"

using namespace lull::daemon;

namespace {

// A process that has connected to a listener of ours and then waits to be killed. In a namespace:
// its child, process 1 there, connects.
class Connected {
 public:
  explicit Connected(bool in_namespace) {
    char folder[] = "/tmp/lull-peer.XXXXXX";
    REQUIRE(mkdtemp(folder) != nullptr);
    path_ = std::string(folder) + "/s";
    auto listener = Listener::open(path_, 0600, std::nullopt);
    REQUIRE(listener);
    child_ = fork();
    if (child_ == 0) {
      if (in_namespace && unshare(CLONE_NEWPID) != 0) _exit(2);
      if (in_namespace) {
        if (const pid_t inner = fork(); inner != 0) {
          int status = 0;
          waitpid(inner, &status, 0);
          _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 0);
        }
      }
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      strcpy(address.sun_path, path_.c_str());
      const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
      if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) _exit(1);
      for (;;) pause();
    }
    pollfd wait{listener->fd(), POLLIN, 0};
    // A child that cannot have a namespace ends instead.
    while (poll(&wait, 1, 50) == 0) {
      if (waitpid(child_, nullptr, WNOHANG) == child_) return;
    }
    socket_ = listener->accept();
  }
  ~Connected() { rmdir(path_.substr(0, path_.size() - 2).c_str()); }
  bool here() const { return static_cast<bool>(socket_); }
  int socket() const { return socket_.get(); }
  void end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  pid_t child() const { return child_; }

 private:
  std::string path_;
  pid_t child_ = 0;
  FileDescriptor socket_;
};

bool ended(const FileDescriptor& pidfd, int patience_ms) {
  pollfd wait{pidfd.get(), POLLIN, 0};
  return poll(&wait, 1, patience_ms) == 1;
}

}  // namespace

TEST_CASE("the last number of NSpid is the pid in the innermost namespace") {
  CHECK(innermost_pid("Name:\tx\nPid:\t12\nNSpid:\t12\nNSpgid:\t9\n") == 12);
  CHECK(innermost_pid("Name:\tx\nNSpid:\t4711\t17\t1\nNSpgid:\t4711\t17\t1\n") == 1);
  CHECK(innermost_pid("Name:\tx\nPid:\t12\n") == 0);
  CHECK(innermost_pid("Name:\tNSpid:\t5\nNSpid:\t") == 0);
  CHECK(innermost_pid("") == 0);
}

TEST_CASE("a client's process is known until it ends") {
  Connected client(/*in_namespace=*/false);
  REQUIRE(client.here());
  const auto peer = peer_of(client.socket());
  REQUIRE(peer);
  CHECK(peer->pid == client.child());
  const FileDescriptor pidfd = peer_pidfd(client.socket(), *peer);
  REQUIRE(pidfd);
  CHECK_FALSE(ended(pidfd, 0));
  CHECK(pid_in_its_namespace(*peer, pidfd) == client.child());
  client.end(client.child());
  CHECK(ended(pidfd, -1));
  CHECK(pid_in_its_namespace(*peer, pidfd) == 0);
}

TEST_CASE("a process in a pid namespace of its own has both its pids") {
  Connected client(/*in_namespace=*/true);
  if (!client.here()) {
    WARN("skipped: no pid namespace may be made here");
    return;
  }
  const auto peer = peer_of(client.socket());
  REQUIRE(peer);
  CHECK(peer->pid > 1);
  CHECK(peer->pid != client.child());
  const FileDescriptor pidfd = peer_pidfd(client.socket(), *peer);
  REQUIRE(pidfd);
  CHECK(pid_in_its_namespace(*peer, pidfd) == 1);
  client.end(peer->pid);
  CHECK(ended(pidfd, -1));
}

TEST_CASE("what lulld does not see has no pid") {
  CHECK(pid_in_its_namespace(Peer{}, FileDescriptor()) == 0);
}
