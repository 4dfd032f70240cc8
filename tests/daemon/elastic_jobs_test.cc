#include "coordinator/daemon/elastic_jobs.h"

#include <catch2/catch.hpp>

using namespace lull::daemon;

TEST_CASE("an elastic job begins with its most and keeps what it is resized to") {
  ElasticJobs jobs;
  CHECK(jobs.declare(1, "train", 1, 4) == ElasticJob{1, 4, 4});
  CHECK(jobs.resize(1, "train", 2) == ElasticJob{1, 4, 2});
  CHECK(jobs.declare(1, "train", 1, 4) == ElasticJob{1, 4, 2});
  CHECK(jobs.declare(1, "train", 3, 4) == ElasticJob{3, 4, 3});
  CHECK(jobs.ask(1, "train") == ElasticJob{3, 4, 3});
}

TEST_CASE("what is outside the range is refused, and changes nothing") {
  ElasticJobs jobs;
  CHECK(jobs.resize(1, "train", 1).error() == "it is not elastic");
  REQUIRE(jobs.declare(1, "train", 2, 4));
  for (const uint32_t gpus : {1, 5}) {
    CHECK(jobs.resize(1, "train", gpus).error().find("not within 2:4") != std::string::npos);
  }
  CHECK(jobs.find(1, "train") == ElasticJob{2, 4, 4});
}

TEST_CASE("a user's jobs are that user's") {
  ElasticJobs jobs;
  REQUIRE(jobs.declare(1, "train", 1, 4));
  REQUIRE(jobs.declare(2, "train", 1, 2));
  REQUIRE(jobs.resize(1, "train", 3));
  CHECK(jobs.find(2, "train") == ElasticJob{1, 2, 2});
  CHECK(!jobs.find(3, "train"));
}

TEST_CASE("where a user has the most, the one longest unasked for goes") {
  ElasticJobs jobs;
  for (size_t n = 0; n < kMaxElasticJobsOfUser; ++n) {
    REQUIRE(jobs.declare(1, std::to_string(n), 1, 2));
  }
  REQUIRE(jobs.ask(1, "0"));
  REQUIRE(jobs.declare(1, "more", 1, 2));
  CHECK(jobs.find(1, "0"));
  CHECK(!jobs.find(1, "1"));
  CHECK(jobs.find(1, "2"));
}

TEST_CASE("users are no more than their bound") {
  ElasticJobs jobs;
  for (uid_t user = 0; user < kMaxElasticUsers; ++user) REQUIRE(jobs.declare(user, "a", 1, 1));
  CHECK(!jobs.declare(kMaxElasticUsers, "a", 1, 1));
  CHECK(jobs.declare(0, "b", 1, 1));
}

TEST_CASE("a job may use what the node has, and never less than its least") {
  CHECK(usable_gpus({1, 4, 3}, 0) == 3);
  CHECK(usable_gpus({1, 4, 3}, 8) == 3);
  CHECK(usable_gpus({1, 4, 3}, 2) == 2);
  CHECK(usable_gpus({3, 4, 4}, 2) == 3);
}

TEST_CASE("a job policy allows fewer than a person's number, and never fewer than the least") {
  ElasticJobs jobs;
  REQUIRE(jobs.declare(1, "train", 2, 8));
  jobs.allow(1, "train", 5);
  CHECK(jobs.find(1, "train")->told() == 5);
  CHECK(usable_gpus(*jobs.find(1, "train"), 4) == 4);
  REQUIRE(jobs.resize(1, "train", 3));
  CHECK(jobs.find(1, "train")->told() == 3);
  jobs.allow(1, "train", 1);
  CHECK(jobs.find(1, "train")->told() == 2);
  jobs.allow(1, "nobody's", 1);
  jobs.allow(2, "train", 1);
  jobs.allow_all();
  CHECK(jobs.find(1, "train")->told() == 3);
}

TEST_CASE("under a policy that sizes jobs a job begins with its least, and keeps it when it asks again") {
  ElasticJobs jobs;
  jobs.begin_with_least(true);
  CHECK(jobs.declare(1, "train", 2, 4)->told() == 2);
  jobs.allow(1, "train", 4);
  CHECK(jobs.declare(1, "train", 2, 4)->told() == 4);
}
