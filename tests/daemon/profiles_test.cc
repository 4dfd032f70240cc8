// What lulld keeps of tasks whose programs leave before their profiles have been read.
#include <catch2/catch.hpp>

#include "coordinator/daemon/profile_store.h"
#include "tests/daemon/fake_client.h"

using namespace lull;
using namespace lull::daemon;

TEST_CASE("a program that leaves before its profile has been read takes nothing away from it") {
  TempDir dir;
  DaemonSettings settings = quiet_settings(dir);
  settings.config.profiles = dir.path("profiles");
  const std::string socket = settings.socket_path;
  policies::KernelProfile profile;
  for (int n = 0; n < 9; ++n) profile.add_duration(Duration{5000}, /*disturbed=*/false);
  ProfileStore store(*settings.config.profiles);
  // So many that reading them takes longer than the program stays.
  REQUIRE(store.save(known_task("serve", 8000, "k", profile)));
  auto daemon = start_daemon(std::move(settings));
  FakeClient client(socket, FakeClient::hello("serve"));
  REQUIRE(client.join(*daemon));
  client.add_device(7);
  client.add_kernel(1, "k");
  channel::lull_record timing = client.record(channel::kRecordTiming, 0);
  timing.value0 = 123'000;
  timing.value1 = channel::kGapUnknown;
  client.push(timing);
  client.launch(0, 1);
  REQUIRE(turn_until(*daemon, [&] { return daemon->is_recalling(); }));
  client.hang_up();
  REQUIRE(turn_until(*daemon, [&] { return daemon->client_count() == 0; }));
  daemon.reset();
  REQUIRE(store.list().size() == 1);
  CHECK(store.list()[0].kernels == 8000);
}
