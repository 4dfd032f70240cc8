// Call sites: kernels told apart by the host code that launches them, without harm to programs that
// walk strange stacks.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <set>

#include "tests/shim/coordinator.h"
#include "tests/shim/probe_process.h"

using namespace lull::test;
namespace channel = lull::channel;

namespace {

struct Sites {
  std::string directory = private_directory();
  Coordinator coordinator{directory + "/s"};
  ProbeProcess probe;
  Client client;

  explicit Sites(Environment more = {{"LULL_CALL_SITES", "1"}}) : probe(with(std::move(more))) {
    REQUIRE(probe.ask("init") == "0");
    client = coordinator.client();
    drain(client);
  }
  Environment with(Environment more) const {
    more["LULL_SOCKET"] = directory + "/s";
    return more;
  }
  // The call sites of the launches recorded now, in their order; "" where none was taken.
  std::vector<std::string> taken() {
    std::vector<std::string> found;
    for (const auto& record : drain(client, channel::kRecordLaunch)) {
      const uint32_t at = client.region.kernel(record.kernel)->call_site_offset;
      found.emplace_back(at == 0 ? "" : client.region.names() + at);
      slots.push_back(record.kernel);
      ids.push_back(channel::kernel_id(client.region, record.kernel));
    }
    return found;
  }
  std::vector<uint32_t> slots;
  std::vector<uint64_t> ids;
};

size_t frames(const std::string& site) {
  return site.empty() ? 0 : static_cast<size_t>(std::count(site.begin(), site.end(), ';')) + 1;
}

}  // namespace

TEST_CASE("one kernel launched from two places is two kernels, and warm ones stay what they are") {
  Sites sites;
  CHECK(sites.probe.ask("layers 60") == "0");
  const auto taken = sites.taken();
  REQUIRE(taken.size() == 120);
  CHECK(taken[0] != taken[1]);
  for (size_t n = 0; n < taken.size(); ++n) CHECK(taken[n] == taken[n % 2]);
  CHECK(std::set<uint32_t>(sites.slots.begin(), sites.slots.end()).size() == 2);
  CHECK(kernel_name(sites.client, sites.slots[0]) == kernel_name(sites.client, sites.slots[1]));
  // Innermost first, the library's own frames left out; the program by its path.
  CHECK(taken[0].find("/shim_probe+0x") != std::string::npos);
  CHECK(taken[0].find("/shim_probe+0x") < taken[0].find(';'));
  CHECK(taken[0].find("liblull") == std::string::npos);
  CHECK(frames(taken[0]) >= 4);
  CHECK(frames(taken[0]) <= 16);
}

TEST_CASE("a call site is the same kernel in another process, and another one than without") {
  uint64_t first = 0, again = 0, without = 0;
  for (uint64_t* id : {&first, &again, &without}) {
    Sites sites(id == &without ? Environment{} : Environment{{"LULL_CALL_SITES", "1"}});
    sites.probe.ask("layers 1");
    const auto taken = sites.taken();
    REQUIRE(taken.size() == 2);
    CHECK(taken[0].empty() == (id == &without));
    if (id == &without) CHECK(sites.slots[0] == sites.slots[1]);
    *id = sites.ids[0];
  }
  CHECK(first == again);
  CHECK(first != without);
}

TEST_CASE("deep recursion and frames of any size are walked, sixteen at most") {
  Sites sites;
  CHECK(sites.probe.ask("below 20000") == "0");
  const auto deep = sites.taken();
  REQUIRE(deep.size() == 1);
  CHECK(frames(deep[0]) == 16);
  CHECK(sites.probe.ask("frames") == "0");
  CHECK(sites.probe.ask("frames") == "0");
  std::set<std::string> from_frames;
  for (const std::string& site : sites.taken()) from_frames.insert(site);
  CHECK(from_frames.size() == 1);  // one path, whatever its frames' sizes
  CHECK(from_frames.count(deep[0]) == 0);
}

TEST_CASE("no call site is taken on a coroutine's or a small stack, and the launch goes") {
  Sites sites;
  CHECK(sites.probe.ask("coroutine") == "0");
  CHECK(sites.probe.ask("smallstack") == "0");
  CHECK(sites.taken() == std::vector<std::string>{"", ""});
  CHECK(sites.probe.ask("layers 1") == "0");
  CHECK_FALSE(sites.taken().front().empty());
}

TEST_CASE("threads, cancelled threads and fork children go on as without call sites") {
  Sites sites;
  CHECK(sites.probe.ask("layers 1") == "0");
  CHECK(sites.probe.ask("threads 40") == "ok");
  CHECK(sites.probe.ask("cancel") == "1");
  CHECK(sites.probe.ask("fork") == "42");
  CHECK(sites.probe.ask("layers 1") == "0");
  CHECK(totals(sites.client).launches == 2 + 80 + 1 + 2);
}

TEST_CASE("without libunwind there are no call sites, and one line says so to who asks") {
  for (const bool verbose : {false, true}) {
    const std::string bad = private_directory();
    std::ofstream(bad + "/libunwind.so.8") << "not a library";
    Environment environment{{"LULL_CALL_SITES", "1"},
                            {"LD_LIBRARY_PATH", bad + ":" LULL_PROBE_LIBRARIES}};
    if (verbose) environment["LULL_VERBOSE"] = "1";
    Sites sites(environment);
    CHECK(sites.probe.ask("layers 2") == "0");
    for (const std::string& site : sites.taken()) CHECK(site.empty());
    CHECK(sites.probe.complaints() ==
          (verbose ? "lull: no call sites: libunwind.so.8 cannot be opened: install libunwind8\n"
                   : ""));
    unlink((bad + "/libunwind.so.8").c_str());
    rmdir(bad.c_str());
  }
}
