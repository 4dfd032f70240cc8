#include "tools/lull/job_display.h"

#include <catch2/catch.hpp>

namespace lull::command {

using nlohmann::json;

TEST_CASE("a job on its way is described with its bytes, its rate and its reason") {
  const json job = {{"job", "train"},
                    {"state", "leaving"},
                    {"level", "out"},
                    {"target", "out"},
                    {"moving_bytes", 4ULL << 30},
                    {"moved_bytes", 1ULL << 30},
                    {"bytes_per_s", 1ULL << 30},
                    {"reason", ""},
                    {"waits_for", ""}};
  CHECK(is_on_its_way(job));
  const std::string text = describe_job(job);
  CHECK(text.starts_with("train: leaving, 1"));
  CHECK(text.find(" of 4") != std::string::npos);
  CHECK(text.find("/s") != std::string::npos);
}

TEST_CASE("where a job is, is said when it is there") {
  json job = {{"job", "a"}, {"state", "stopping"}, {"level", "out"}, {"target", "out"}};
  CHECK(describe_job(job) == "a: stopping");
  job["state"] = "leaving";
  CHECK(describe_job(job) == "a: leaving");
  job["state"] = "suspended";
  CHECK(describe_job(job) == "a: suspended, memory out");
  job["level"] = "in_place";
  job["reason"] = "client 1 has no memory that can be swapped out";
  CHECK(describe_job(job) ==
        "a: suspended in place: client 1 has no memory that can be swapped out");
}

TEST_CASE("what waits says for what, and what runs undisturbed is not worth a line") {
  const json waits = {
      {"job", "a"}, {"state", "waiting"}, {"target", "running"}, {"waits_for", "GPU 0"}};
  CHECK(describe_job(waits) == "a: waiting: GPU 0");
  CHECK(is_on_its_way(waits));
  CHECK(is_worth_showing(waits));
  const json runs = {{"job", "a"}, {"state", "running"}, {"target", "running"}, {"reason", ""}};
  CHECK_FALSE(is_on_its_way(runs));
  CHECK_FALSE(is_worth_showing(runs));
  CHECK(is_worth_showing({{"state", "running"}, {"pinned", true}}));
  CHECK(is_worth_showing({{"state", "running"}, {"reason", "client 1: managed memory"}}));
  CHECK_FALSE(is_on_its_way({{"state", "lost"}}));
}

TEST_CASE("nonsense of a daemon of another version is no error") {
  for (const json& nonsense :
       {json(nullptr), json::array(), json(3), json{{"state", 3}, {"reason", 4}}}) {
    if (!nonsense.is_object()) {
      CHECK(describe_residence(nonsense).empty());
      continue;
    }
    CHECK(describe_job(nonsense) == "?: ?");
    CHECK_FALSE(is_on_its_way(nonsense));
  }
}

TEST_CASE("where a program's memory is takes one line") {
  const json residence = {{"state", "out"},
                          {"can", {"swap"}},
                          {"fixed_bytes", 1 << 20},
                          {"swappable_bytes", 1 << 30},
                          {"reason", "managed memory"}};
  const std::string text = describe_residence(residence);
  CHECK(text.find("memory out") == 0);
  CHECK(text.find("cannot") != std::string::npos);
  CHECK(text.ends_with("can swap: managed memory"));
  json named = residence;
  named["fixed_why"] = {"arrays", "memory of graphs"};
  CHECK(describe_residence(named).find("MiB cannot (arrays, memory of graphs)") !=
        std::string::npos);
  named["fixed_why"] = {3};
  CHECK(describe_residence(named).find("MiB cannot, ") != std::string::npos);
}

}  // namespace lull::command
