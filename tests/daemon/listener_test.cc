#include "coordinator/daemon/listener.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/daemon/fake_client.h"

namespace lull::daemon {
namespace {

int bind_socket(const std::string& path, bool listening) {
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  if (listening) REQUIRE(::listen(fd, 1) == 0);
  return fd;
}

TEST_CASE("a second daemon on the same socket is refused with one line") {
  TempDir dir;
  const auto first = start_daemon(quiet_settings(dir));
  const auto second = Daemon::start(quiet_settings(dir));
  REQUIRE_FALSE(second);
  CHECK(second.error() == "cannot listen on " + dir.path("lulld.sock") + ": another lulld (pid " +
                              std::to_string(::getpid()) +
                              ") has it: stop that one or choose another --socket");
  CHECK(ask(*first, dir.path("lulld.sock"), nlohmann::json{{"op", "ping"}})["ok"] == true);
}

TEST_CASE("daemons on sockets of their own run side by side") {
  TempDir one, two;
  const auto first = start_daemon(quiet_settings(one));
  const auto second = start_daemon(quiet_settings(two));
  CHECK(ask(*first, one.path("lulld.sock"), nlohmann::json{{"op", "ping"}})["ok"] == true);
  CHECK(ask(*second, two.path("lulld.sock"), nlohmann::json{{"op", "ping"}})["ok"] == true);
}

TEST_CASE("a socket on which something else answers is left alone") {
  TempDir dir;
  const int other = bind_socket(dir.path("lulld.sock"), /*listening=*/true);
  const auto daemon = Daemon::start(quiet_settings(dir));
  REQUIRE_FALSE(daemon);
  CHECK(daemon.error().find("another daemon answers there") != std::string::npos);
  ::close(other);
}

TEST_CASE("a dead daemon's socket is replaced") {
  TempDir dir;
  ::close(bind_socket(dir.path("lulld.sock"), /*listening=*/true));
  write_file(dir.path("lulld.sock.lock"), "4711\n");
  const auto daemon = Daemon::start(quiet_settings(dir));
  REQUIRE(daemon);
  CHECK(ask(**daemon, dir.path("lulld.sock"), nlohmann::json{{"op", "ping"}})["ok"] == true);
}

TEST_CASE("a file that is no socket is not removed") {
  TempDir dir;
  write_file(dir.path("lulld.sock"), "precious");
  const auto daemon = Daemon::start(quiet_settings(dir));
  REQUIRE_FALSE(daemon);
  CHECK(
      daemon.error().find("it exists and is not a socket: remove it or choose another --socket") !=
      std::string::npos);
}

TEST_CASE("an ended daemon leaves nothing behind") {
  TempDir dir;
  start_daemon(quiet_settings(dir)).reset();
  CHECK(::access(dir.path("lulld.sock").c_str(), F_OK) != 0);
  CHECK(::access(dir.path("lulld.sock.lock").c_str(), F_OK) != 0);
}

TEST_CASE("the socket has the configured permissions") {
  TempDir dir;
  const auto listener = Listener::open(dir.path("s"), 0640, ::getgid());
  REQUIRE(listener);
  struct stat info;
  REQUIRE(::stat(dir.path("s").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0640);
}

TEST_CASE("a path that no socket can have is refused with its length") {
  TempDir dir;
  const auto listener = Listener::open(dir.path(std::string(200, 'x')), 0600, std::nullopt);
  REQUIRE_FALSE(listener);
  CHECK(listener.error().find("a socket's path has 1 to 107 characters") != std::string::npos);
  const auto nowhere = Listener::open(dir.path("missing/s"), 0600, std::nullopt);
  REQUIRE_FALSE(nowhere);
  CHECK(nowhere.error().find("make that directory or choose another --socket") !=
        std::string::npos);
}

}  // namespace
}  // namespace lull::daemon
