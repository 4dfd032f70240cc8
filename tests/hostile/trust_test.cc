// Whom a program trusts, where it looks, and what it maps: the decisions by themselves.
#include "coordinator/channel/trust.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <string>

#include "coordinator/channel/sealed_memory.h"
#include "coordinator/channel/socket_place.h"
#include "coordinator/channel/trust_facts.h"

using namespace lull::channel;

namespace {

constexpr uint32_t kMe = 1000, kStranger = 1001, kService = 990, kNobody = 65534;
constexpr size_t kBytes = 64 << 10;

FileFacts directory(uint32_t owner, uint32_t mode = 0755) { return {true, owner, S_IFDIR | mode}; }
FileFacts socket_of(uint32_t owner) { return {true, owner, S_IFSOCK | 0666}; }

TrustFacts at_home() {
  TrustFacts known;
  known.own_uid = kMe;
  known.run = directory(0);
  known.directory = directory(kMe, 0700);
  known.socket = socket_of(kMe);
  return known;
}
TrustFacts in_container() {
  TrustFacts known = at_home();
  known.in_user_namespace = true;
  known.directory = directory(kNobody);
  known.socket = socket_of(kNobody);
  return known;
}

}  // namespace

TEST_CASE("root, oneself and the service user are trusted, and nobody else") {
  TrustFacts known = at_home();
  known.service = directory(kService);
  for (const uint32_t uid : {0U, kMe, kService}) CHECK(judge_peer(known, uid) == Distrust::kNone);
  for (const uint32_t uid : {kStranger, kNobody, UINT32_MAX}) {
    CHECK(judge_peer(known, uid) == Distrust::kPeer);
  }
}

TEST_CASE("the owner of /run/lull is the service user only where root alone makes that directory") {
  TrustFacts known = at_home();
  CHECK(judge_peer(known, kService) == Distrust::kPeer);
  known.service = directory(kStranger);
  CHECK(judge_peer(known, kStranger) == Distrust::kNone);
  known.run = directory(kStranger);
  CHECK(judge_peer(known, kStranger) == Distrust::kPeer);
  for (const uint32_t mode : {0777U, 01777U, 0775U}) {
    known.run = directory(0, mode);
    CHECK(judge_peer(known, kStranger) == Distrust::kPeer);
  }
  known.run = {};
  CHECK(judge_peer(known, kStranger) == Distrust::kPeer);
}

TEST_CASE("the directory of the socket belongs to a trusted user and is not writable by others") {
  TrustFacts known = at_home();
  CHECK(judge_place(known) == Distrust::kNone);
  known.directory = directory(0);
  CHECK(judge_place(known) == Distrust::kNone);
  known.directory = directory(kStranger, 0700);
  CHECK(judge_place(known) == Distrust::kDirectoryOwner);
  for (const uint32_t owner : {0U, kMe}) {
    for (const uint32_t mode : {0777U, 0775U, 0757U}) {
      known.directory = directory(owner, mode);
      CHECK(judge_place(known) == Distrust::kDirectoryWritable);
    }
  }
  known.directory = {};
  CHECK(judge_place(known) == Distrust::kNone);  // nothing is there to connect to
}

TEST_CASE("in a sticky directory the socket's own owner counts") {
  TrustFacts known = at_home();
  known.directory = directory(0, 01777);
  CHECK(judge_place(known) == Distrust::kNone);
  known.socket = socket_of(kStranger);
  CHECK(judge_place(known) == Distrust::kDirectoryWritable);
  known.directory = directory(kStranger, 01777);
  CHECK(judge_place(known) == Distrust::kDirectoryOwner);
}

TEST_CASE(
    "in a user namespace the overflow uid is nobody, and the operator's mount speaks for root") {
  TrustFacts known = in_container();
  CHECK(judge_place(known) == Distrust::kDirectoryOwner);
  CHECK(judge_peer(known, kNobody) == Distrust::kPeer);
  known.operators_mount = true;
  CHECK(judge_place(known) == Distrust::kNone);
  CHECK(judge_peer(known, kNobody) == Distrust::kNone);
}

TEST_CASE("a program whose own user has no number trusts no other such user") {
  TrustFacts known = in_container();
  known.own_uid = kNobody;
  CHECK(judge_place(known) == Distrust::kDirectoryOwner);
  CHECK(judge_peer(known, kNobody) == Distrust::kPeer);
  CHECK(judge_peer(known, 0) == Distrust::kNone);  // the namespace's own root
  known.in_user_namespace = false;                 // outside one it is a user as any other
  CHECK(judge_peer(known, kNobody) == Distrust::kNone);
}

TEST_CASE("where the socket is: named, the system's, the session's, one's own") {
  PlaceFacts known{.named = true, .runtime = true, .uid = kMe};
  CHECK(choose_place(known) == Place::kNamed);
  known.named = false;
  CHECK(choose_place(known) == Place::kRuntime);
  known.runtime = false;
  CHECK(choose_place(known) == Place::kTemporary);
  known.system_directory = directory(kService);
  CHECK(choose_place(known) == Place::kTemporary);
  known.system_socket = true;
  CHECK(choose_place(known) == Place::kSystem);
}

TEST_CASE("root's and the service user's socket is the system's, whatever is there yet") {
  PlaceFacts known{.runtime = true, .uid = 0};
  CHECK(choose_place(known) == Place::kSystem);
  known.uid = kService;
  CHECK(choose_place(known) == Place::kRuntime);
  known.system_directory = directory(kService);
  CHECK(choose_place(known) == Place::kSystem);
}

TEST_CASE("memory is mapped only sealed in size and allocated in full") {
  const char* failed = nullptr;
  const int good = make_sealed_memory("trust-test", kBytes, failed);
  REQUIRE(good >= 0);
  CHECK(is_sealed_memory(good, kBytes));
  CHECK_FALSE(is_sealed_memory(good, kBytes + 1));
  CHECK(ftruncate(good, 0) != 0);
  close(good);

  const auto with = [](int seals, bool allocated) {
    const int fd = memfd_create("trust-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(ftruncate(fd, kBytes) == 0);
    if (allocated) REQUIRE(fallocate(fd, 0, 0, kBytes) == 0);
    REQUIRE(fcntl(fd, F_ADD_SEALS, seals) == 0);
    const bool taken = is_sealed_memory(fd, kBytes);
    close(fd);
    return taken;
  };
  CHECK(with(kRegionSeals, /*allocated=*/true));
  CHECK_FALSE(with(kRegionSeals, /*allocated=*/false));
  CHECK_FALSE(with(F_SEAL_GROW | F_SEAL_SEAL, /*allocated=*/true));
  CHECK_FALSE(with(F_SEAL_SHRINK, /*allocated=*/true));

  const int file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0) {
    REQUIRE(ftruncate(file, kBytes) == 0);
    CHECK_FALSE(is_sealed_memory(file, kBytes));
    close(file);
  }
  CHECK_FALSE(is_sealed_memory(-1, kBytes));
}

TEST_CASE("the facts are those of the files") {
  char folder[] = "/tmp/lull-trust-test-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/s";
  TrustFacts seen = trust_facts(path.c_str());
  CHECK(seen.own_uid == geteuid());
  CHECK(seen.directory.exists);
  CHECK(seen.directory.owner == geteuid());
  CHECK((seen.directory.mode & 0777) == 0700);
  CHECK_FALSE(seen.socket.exists);
  CHECK_FALSE(seen.operators_mount);
  CHECK(chmod(folder, 0777) == 0);
  CHECK(judge_place(trust_facts(path.c_str())) == Distrust::kDirectoryWritable);
  CHECK(rmdir(folder) == 0);
  CHECK_FALSE(trust_facts(path.c_str()).directory.exists);
  CHECK(trust_facts("/s").directory.exists);
  CHECK(trust_facts("s").directory.exists);
  CHECK_FALSE(trust_facts(std::string(5000, '/').c_str()).directory.exists);
}
