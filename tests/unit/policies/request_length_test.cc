// How many services make one request.
#include "policies/launch/guarded/model/request_length.h"

#include <catch2/catch.hpp>

using namespace lull::policies;

namespace {

void serve(RequestLength& requests, int services) {
  for (int n = 0; n < services; ++n) requests.served(/*round=*/0);
  requests.paused();
}

}  // namespace

TEST_CASE("A request is what all numbers of services between two pauses are multiples of, once there were enough") {
  RequestLength requests;
  CHECK(requests.services() == 1);
  requests.paused();
  for (int n = 0; n < 15; ++n) {
    serve(requests, n % 3 == 0 ? 12 : 18);
    CHECK(requests.services() == 1);
    CHECK(requests.between_pauses() == 1);
  }
  serve(requests, 18);
  CHECK(requests.services() == 6);
  CHECK(requests.between_pauses() == 6);
  serve(requests, 4);
  CHECK(requests.services() == 2);
  for (int n = 0; n < 63; ++n) serve(requests, n % 2 == 0 ? 6 : 12);
  CHECK(requests.services() == 2);
  serve(requests, 6);  // that is long ago
  CHECK(requests.services() == 6);
}

TEST_CASE("Pauses that always come after as many services say nothing of requests") {
  RequestLength requests;
  requests.paused();
  for (int n = 0; n < 100; ++n) serve(requests, 8);  // a batch of them, or what a step in eight does
  CHECK(requests.services() == 1);
}

TEST_CASE("What came before the first pause is part of a request") {
  RequestLength requests;
  serve(requests, 2);
  for (int n = 0; n < 16; ++n) serve(requests, n % 2 == 0 ? 6 : 12);
  CHECK(requests.services() == 6);
}

TEST_CASE("A pause in the midst of a service is one") {
  RequestLength requests;
  requests.paused();
  for (int n = 0; n < 16; ++n) {
    serve(requests, n % 2 == 0 ? 6 : 12);
    requests.paused();
  }
  CHECK(requests.services() == 6);
}

TEST_CASE("Where the host never pauses a round is a request, and never more than that") {
  RequestLength requests;
  for (int n = 0; n < 100; ++n) requests.served(/*round=*/4);
  CHECK(requests.services() == 4);
  CHECK(requests.between_pauses() == 1);
  requests.paused();
  serve(requests, 12);
  CHECK(requests.services() == 4);
  serve(requests, 1);
  CHECK(requests.services() == 1);
  requests.restart();
  CHECK(requests.services() == 1);
}

TEST_CASE("A round that cannot be told is believed in for a while, another at once") {
  RequestLength requests;
  requests.served(/*round=*/4);
  for (int n = 0; n < 200; ++n) requests.served(/*round=*/0);
  CHECK(requests.services() == 4);
  requests.served(/*round=*/3);
  CHECK(requests.services() == 3);
  for (int n = 0; n < 300; ++n) requests.served(/*round=*/0);
  CHECK(requests.services() == 1);
}
