// The period of a program in which its host waits, from launches and waits alone.
#include "policies/launch/guarded/model/request_pattern.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

using namespace lull;
using namespace lull::policies;

namespace {

// A host that launches every 10 us, and waits. In us.
class Host {
 public:
  // So many launches of kernels 1, 2, ..., of which the first comes after a pause; then a wait.
  // Before the last launch the host waits for others for `late_us`.
  void stretch(uint32_t launches, int64_t pause_us = 50, uint64_t first = 1, int64_t late_us = 0) {
    now_us_ += pause_us;
    places.clear();
    for (uint32_t n = 0; n < launches; ++n) {
      now_us_ += n + 1 == launches ? 10 + late_us : 10;
      places.push_back(pattern.launch(KernelId{first + n}, at(), detected));
    }
    now_us_ += 100;
    pattern.waited(at());
  }
  const IterationPlace& last() const { return places.back(); }

  RequestPattern pattern;
  IterationPlace detected;
  std::vector<IterationPlace> places;  // of the last stretch

 private:
  Instant at() const { return Instant{now_us_ * 1000}; }
  int64_t now_us_ = 0;
};

}  // namespace

TEST_CASE("Stretches that are alike are the period") {
  Host host;
  for (int n = 0; n < 4; ++n) host.stretch(3);
  CHECK(host.last().in_step);
  CHECK(host.last().length == 3);
  CHECK(host.last().position == 2);
  CHECK(host.places.front().started);
}

TEST_CASE("Different stretches by turns are one period, which begins with the longest pause") {
  Host host;
  for (int n = 0; n < 6; ++n) {
    host.stretch(3, 50);
    host.stretch(5, 500, 10);
  }
  host.stretch(3, 50);
  CHECK(host.last().length == 8);
  CHECK(host.last().position == 7);
  host.stretch(5, 500, 10);
  CHECK(host.places.front().position == 0);
  CHECK(host.places.front().started);
}

// Requests of which the first ones queue: their host does not pause before them, but within them.
TEST_CASE("A period that turns out to begin elsewhere begins there, once that is sure") {
  Host host;
  for (int n = 0; n < 4; ++n) {
    host.stretch(3, 30);
    host.stretch(5, 80, 10);
  }
  CHECK(host.last().position == 4);
  CHECK(host.places.front().started);
  for (int n = 0; n < 32; ++n) {
    host.stretch(3, n % 2 == 0 ? 30 : 9'000);
    CHECK(host.places.front().started == (n > 14));
    host.stretch(5, 80, 10);
  }
  host.stretch(3, 9'000);
  CHECK(host.places.front().started);
  CHECK(host.last().length == 8);
  CHECK(host.pattern.begins_surely());
  host.stretch(5, 80, 10);
  CHECK(host.last().position == 7);
}

TEST_CASE("Seven steps of which the last reads something back are one period") {
  Host host;
  for (int request = 0; request < 4; ++request) host.stretch(7 * 20);
  CHECK(host.last().in_step);
  CHECK(host.last().length == 140);
}

TEST_CASE("Tokens that differ in nothing but the host's pauses make a period") {
  Host host;
  for (int request = 0; request < 40; ++request) {
    for (const int64_t pause_us : {900, 60, 200, 400}) host.stretch(5, pause_us);
  }
  CHECK(host.last().length == 20);
  host.stretch(5, 900);
  CHECK(host.places.front().started);
}

// Found by and by: of four tokens, then eight, and each time the pause behind the last is not much longer.
TEST_CASE("Sixteen tokens are a period where the host pauses for twice as long behind the last") {
  Host host;
  for (int request = 0; request < 60; ++request) {
    for (int token = 0; token < 16; ++token)
      host.stretch(5, (token == 0 ? 1'940 : token % 4 == 0 ? 1'260 : 660) + request % 7);
  }
  CHECK(host.last().length == 80);
  CHECK(host.last().position == 79);
}

TEST_CASE("Pauses at random make no period, whatever they look like for a while") {
  std::mt19937 random(7);  // the same on every machine
  Host host;
  for (int request = 0; request < 2'000; ++request) {
    host.stretch(5, 50 + static_cast<int64_t>(random() % 2'000));
    if (request > 4) REQUIRE(host.last().length == 5);
  }
}

TEST_CASE("Long pauses that happen to be equally far apart make no period") {
  for (int before = 20; before < 150; ++before) {
    Host host;
    for (int n = 0; n < before; ++n) host.stretch(5, 200);
    for (int n = 0; n < 3; ++n) {
      host.stretch(5, 20'000);
      host.stretch(5, 200);
      host.stretch(5, 200);
    }
    for (int n = 0; n < 6; ++n) host.stretch(5, 200);
    REQUIRE(host.last().length == 5);
  }
}

TEST_CASE("Stretches that others made longer make no period") {
  Host host;
  for (int n = 0; n < 200; ++n) {
    host.stretch(5, 50, 1, /*late_us=*/n % 22 == 0 ? 500 : 0);
    if (n > 4) REQUIRE(host.last().length == 5);
  }
}

TEST_CASE("Tokens of texts that come at random make a period, which begins with a text") {
  std::mt19937 random(7);
  Host host;
  for (int request = 0; request < 200; ++request) {
    host.stretch(5, 1'000 + static_cast<int64_t>(random() % 9'000));
    for (int token = 1; token < 4; ++token) host.stretch(5, 100);
  }
  CHECK(host.last().length == 20);
  CHECK(host.last().position == 19);
}

// Most requests come while another is served, and each pause within them differs from the last.
TEST_CASE("Texts that come fast make a period too, however their pauses vary") {
  std::mt19937 random(7);
  Host host;
  for (int request = 0; request < 400; ++request) {
    const bool waited_for = random() % 4 == 0;
    host.stretch(5, waited_for ? 2'000 + static_cast<int64_t>(random() % 9'000) : 300);
    for (int token = 1; token < 4; ++token)
      host.stretch(5, 100 + static_cast<int64_t>(random() % 200));
  }
  CHECK(host.last().length == 20);
  CHECK(host.last().position == 19);
  CHECK(host.pattern.begins_surely());
}

TEST_CASE("Steps of a solver that wait three times each are one request, of 75 waits") {
  Host host;
  for (int request = 0; request < 30; ++request) {
    for (int step = 0; step < 25; ++step) {
      host.stretch(4, step == 0 ? 1'150 : 4);
      host.stretch(2, 4, 10);
      host.stretch(3, 4, 20);
    }
  }
  CHECK(host.last().length == 25 * 9);
  CHECK(host.last().position == 25 * 9 - 1);
}

// What a host does within a request may take as long as what it does between two. Where steps come evenly that is unlikely.
TEST_CASE("A run of four steps or more that come evenly surely begins with the far longer pause") {
  const auto even = [](std::initializer_list<int64_t> pauses_us) {
    Host host;
    for (int request = 0; request < 40; ++request) {
      for (const int64_t pause_us : pauses_us) host.stretch(5, pause_us);
    }
    CHECK(host.last().length == 5 * pauses_us.size());
    CHECK(host.pattern.begins_surely());
    return host.pattern.others_are_even();
  };
  CHECK(even({600, 5, 5, 5}));
  CHECK(even({1'600, 80, 95, 110, 90}));
  CHECK_FALSE(even({600, 5, 5}));         // of three pauses one is always the odd one
  CHECK_FALSE(even({600, 5, 60, 5, 5}));  // where the host may begin another request
  CHECK_FALSE(even({600, 90, 90, 90}));   // not far longer
}

TEST_CASE("Steps that come evenly no more say nothing of where a request begins") {
  Host host;
  const auto requests = [&](int count, int64_t inner_us) {
    for (int request = 0; request < count; ++request) {
      for (const int64_t pause_us : {int64_t{900}, int64_t{5}, inner_us, int64_t{5}}) host.stretch(5, pause_us);
    }
  };
  requests(40, 5);
  REQUIRE(host.pattern.others_are_even());
  requests(800, 100);
  CHECK_FALSE(host.pattern.others_are_even());
  CHECK(host.pattern.known());
}

TEST_CASE("Where there is no period any more, nobody knows where a request begins") {
  Host host;
  for (int request = 0; request < 40; ++request) {
    for (const int64_t pause_us : {900, 5, 5, 5}) host.stretch(5, pause_us);
  }
  REQUIRE(host.pattern.others_are_even());
  for (uint32_t n = 0; n < 40; ++n) host.stretch(6 + n, 5);
  REQUIRE_FALSE(host.pattern.known());
  CHECK_FALSE(host.pattern.others_are_even());
  CHECK_FALSE(host.pattern.begins_surely());
}

TEST_CASE("Requests at random are not taken for two at a time") {
  std::mt19937 random(7);
  Host host;
  const auto request = [&](int64_t pause_us) {
    host.stretch(5, pause_us);
    for (int token = 1; token < 4; ++token) host.stretch(5, 100);
  };
  for (int n = 0; n < 3'000; ++n) {
    request(random() % 2 == 0 ? 1'000 + static_cast<int64_t>(random() % 90'000) : 150);
    if (n > 100) REQUIRE(host.last().length == 20);
  }
}

// By chance the few long pauses are all before every other request.
TEST_CASE("Requests that come fast and differ in nothing are not taken for two at a time") {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    INFO(seed);
    std::mt19937 random(seed);
    Host host;
    for (int n = 0; n < 200; ++n) {
      const bool waited_for = random() % 4 == 0;
      for (int step = 0; step < 16; ++step) {
        const int64_t between_us = 100 + static_cast<int64_t>(random() % 2'000);
        const bool begins = waited_for && step == 0;
        host.stretch(2, begins ? 2'000 + static_cast<int64_t>(random() % 90'000) : between_us,
                     10 * (step % 4) + 1);
      }
      REQUIRE(host.last().length <= 2 * 16);
    }
  }
}

TEST_CASE("A stretch that is not as foretold is out of step, and the next ones are in it again") {
  Host host;
  for (int n = 0; n < 8; ++n) host.stretch(4);
  const uint64_t generation = host.last().generation;
  host.stretch(6, 50, 100);
  CHECK_FALSE(host.last().in_step);
  host.stretch(4);
  host.stretch(4);
  CHECK(host.last().in_step);
  CHECK(host.last().generation == generation);
}

TEST_CASE("Where nothing repeats, what is detected elsewhere is used") {
  Host host;
  host.detected = {.in_step = true, .position = 3, .length = 9, .generation = 5};
  for (uint32_t n = 0; n < 400; ++n) host.stretch(3 + n, 50, n);
  CHECK(host.last().length == 9);
  CHECK(host.last().position == 3);
}

TEST_CASE("A period that is over is given up") {
  Host host;
  for (int n = 0; n < 8; ++n) host.stretch(4);
  host.detected = {.in_step = true, .position = 3, .length = 9, .generation = 5};
  for (uint32_t n = 0; n < 40; ++n) host.stretch(5 + n, 50, n + 20);
  CHECK(host.last().length == 9);
}
