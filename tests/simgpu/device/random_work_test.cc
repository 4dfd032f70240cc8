// Random work on every sharing model; the seed is printed with each failure.
#include <catch2/catch.hpp>

#include <cstring>
#include <random>

#include "tests/simgpu/device/model_bench.h"

using namespace simgpu;
using simgpu::test::Bench;

namespace {

struct Player {
  explicit Player(uint32_t with_seed, Sharing sharing)
      : bench({2, sharing, 100, 2000, 25, 1'000'000}), random(with_seed) {
    for (uint32_t p = 0; p < 4; ++p) {
      const StreamId first = bench.stream_of_a_new_process(p % 2);
      streams.push_back(first);
      for (int i = 0; i < 3; ++i) streams.push_back(*bench.model().create_stream(first.context));
    }
  }
  uint32_t pick(uint32_t n) { return static_cast<uint32_t>(random() % n); }

  // One random act on the state as it is.
  void act() {
    DeviceModel m = bench.model();
    m.advance_to(now);
    StreamId& stream = streams[pick(static_cast<uint32_t>(streams.size()))];
    Op op;
    op.kind = static_cast<OpKind>(pick(10));
    op.token = pick(3) == 0 ? ++tokens : 0;
    if (pick(4) == 0 && last.count(stream.context.slot) != 0) {
      op.wait_for[op.wait_count++] = last[stream.context.slot];
    }
    const uint64_t ns = pick(8) == 0 ? 5000 + pick(5000) : pick(300);
    const uint32_t sms = 1 + pick(120);
    if (auto seq = m.submit(stream, op, ns, sms)) {
      last[stream.context.slot] = {stream, *seq};
      if (op.kind == OpKind::kWaitValue || op.kind == OpKind::kHostFunction) {
        external.push_back({stream, *seq});
      }
    }
    if (!external.empty() && pick(2) == 0) {
      const uint32_t which = pick(static_cast<uint32_t>(external.size()));
      if (m.satisfy(external[which]) == Status::kOk) external.erase(external.begin() + which);
    }
    if (pick(50) == 0) {
      m.destroy_stream(stream);
      if (auto fresh = m.create_stream(stream.context)) stream = *fresh;
    }
    if (pick(5) == 0) collect(m);
    now += pick(3) == 0 ? pick(2000) : 0;
  }
  void collect(DeviceModel& m) {
    for (uint32_t p = 0; p < 4; ++p) {
      Collected out;
      m.collect(p, out);
      completions.insert(completions.end(), out.completed.begin(), out.completed.end());
    }
  }
  // Lets everything end.
  void finish() {
    for (int i = 0; i < 100'000; ++i) {
      DeviceModel m = bench.model();
      m.advance_to(now += 1000);
      for (size_t e = 0; e < external.size(); ++e) m.satisfy(external[e]);
      collect(m);
      bool idle = true;
      for (uint32_t c = 0; c < kMaxContexts; ++c)
        idle = idle && bench.state->context[c].op_count == 0;
      if (idle) return;
    }
    FAIL("work never ended");
  }

  Bench bench;
  std::mt19937 random;
  ModelNs now = 0;
  uint64_t tokens = 0;
  std::vector<StreamId> streams;
  std::map<uint32_t, OpPoint> last;
  std::vector<OpPoint> external;
  std::vector<Completion> completions;
};

constexpr Sharing kAll[] = {Sharing::kTimeSlice, Sharing::kMps, Sharing::kSerial};

// Compares what means something, of the four contexts in use: entries behind a count and marks of
// change do not.
bool same(const model_state& a, const model_state& b) {
  bool equal = std::memcmp(&a.head, &b.head, offsetof(model_head, dirty_contexts)) == 0 &&
               std::memcmp(a.process, b.process, sizeof a.process) == 0 &&
               std::memcmp(a.finished, b.finished, sizeof a.finished) == 0 &&
               std::memcmp(a.stream, b.stream, 4 * sizeof a.stream[0]) == 0;
  for (uint32_t d = 0; d < 2; ++d) {
    equal = equal && std::memcmp(&a.device[d], &b.device[d],
                                 offsetof(device_state, running) +
                                     a.device[d].running_count * sizeof(running_op)) == 0;
  }
  for (uint32_t c = 0; c < 4; ++c) {
    equal = equal && std::memcmp(&a.context[c].generation, &b.context[c].generation,
                                 sizeof(context_state) - offsetof(context_state, generation)) == 0;
  }
  return equal;
}

}  // namespace

TEST_CASE("streams are FIFO, nothing idles while work is ready, and all work ends") {
  for (const Sharing sharing : kAll) {
    for (uint32_t seed = 1; seed <= 20; ++seed) {
      CAPTURE(seed, static_cast<int>(sharing));
      Player player(seed, sharing);
      for (int i = 0; i < 1000; ++i) {
        player.act();
        const model_state& s = *player.bench.state;
        for (uint32_t d = 0; d < 2; ++d) {
          bool ready = false;
          for (uint32_t c = 0; c < 4; ++c) {
            if (s.context[c].device != d) continue;
            for (const uint64_t word : s.context[c].ready[0]) ready = ready || word != 0;
          }
          const bool working = s.device[d].running_count > 0 || s.device[d].switch_to != kNoContext;
          REQUIRE(working == ready);
          uint32_t granted = 0;
          for (uint32_t r = 0; r < s.device[d].running_count; ++r) {
            granted += s.device[d].running[r].granted_sms;
          }
          REQUIRE(granted <= 100);
          REQUIRE(s.device[d].next_event_ns >= s.head.time_ns);
        }
      }
      player.finish();
      std::map<std::pair<uint32_t, uint32_t>, std::pair<Seq, ModelNs>> latest;
      for (const Completion& c : player.completions) {
        auto& [seq, completed] = latest[{c.at.stream.context.slot, c.at.stream.slot}];
        REQUIRE(c.at.seq > seq);
        REQUIRE(c.started_ns >= completed);
        REQUIRE(c.completed_ns >= c.started_ns);
        seq = c.at.seq;
        completed = c.completed_ns;
      }
      const model_state& s = *player.bench.state;
      if (sharing != Sharing::kMps) {
        for (uint32_t d = 0; d < 2; ++d) {
          CHECK(s.device[d].busy_ns == s.context[d].busy_ns + s.context[d + 2].busy_ns);
        }
      }
    }
  }
}

TEST_CASE("the same work twice gives the same bytes") {
  for (const Sharing sharing : kAll) {
    for (uint32_t seed = 1; seed <= 5; ++seed) {
      CAPTURE(seed, static_cast<int>(sharing));
      Player one(seed, sharing), two(seed, sharing);
      for (int i = 0; i < 1000; ++i) {
        one.act();
        two.act();
      }
      CHECK(std::memcmp(one.bench.state.get(), two.bench.state.get(), sizeof(model_state)) == 0);
      CHECK(std::memcmp(one.bench.ops.data(), two.bench.ops.data(),
                        one.bench.ops.size() * sizeof(op_record)) == 0);
    }
  }
}

TEST_CASE("how often the device is looked at changes nothing") {
  for (const Sharing sharing : kAll) {
    for (uint32_t seed = 1; seed <= 5; ++seed) {
      CAPTURE(seed, static_cast<int>(sharing));
      Player one(seed, sharing), two(seed, sharing);
      for (int i = 0; i < 1000; ++i) {
        for (ModelNs t = two.bench.state->head.time_ns; t < two.now; t += 37) {
          two.bench.model().advance_to(t);
        }
        one.act();
        two.act();
      }
      REQUIRE(one.completions.size() == two.completions.size());
      for (size_t i = 0; i < one.completions.size(); ++i) {
        REQUIRE(one.completions[i].token == two.completions[i].token);
        REQUIRE(one.completions[i].completed_ns == two.completions[i].completed_ns);
      }
    }
  }
}

TEST_CASE("the copy of what changed is the whole change, and an abandoned update leaves no trace") {
  for (const Sharing sharing : kAll) {
    for (uint32_t seed = 1; seed <= 5; ++seed) {
      CAPTURE(seed, static_cast<int>(sharing));
      Player player(seed, sharing);
      Player undisturbed(seed, sharing);
      auto published = std::make_unique<model_state>(*player.bench.state);
      std::mt19937 chance(seed);
      for (int i = 0; i < 600; ++i) {
        // What a process does that dies before it publishes: plays ahead, in place where it may.
        if (chance() % 4 == 0) {
          Bench& b = player.bench;
          auto kept = std::make_unique<model_state>(*b.state);
          b.model().advance_to(player.now + chance() % 3000);
          *b.state = *kept;
        }
        // As the shell does: the spare first catches up, then changes, then counts.
        auto spare = std::move(published);
        copy_changes(*player.bench.state, *spare);
        REQUIRE(same(*player.bench.state, *spare));
        published = std::move(player.bench.state);
        player.bench.state = std::move(spare);
        player.bench.model().advance_to(player.now);
        spare = std::move(published);
        copy_changes(*player.bench.state, *spare);
        REQUIRE(same(*player.bench.state, *spare));
        published = std::move(player.bench.state);
        player.bench.state = std::move(spare);
        player.act();
        undisturbed.act();
      }
      REQUIRE(player.completions.size() == undisturbed.completions.size());
      for (size_t i = 0; i < player.completions.size(); ++i) {
        REQUIRE(player.completions[i].token == undisturbed.completions[i].token);
        REQUIRE(player.completions[i].completed_ns == undisturbed.completions[i].completed_ns);
      }
    }
  }
}

TEST_CASE("a bound is never later than what it bounds") {
  for (const Sharing sharing : kAll) {
    for (uint32_t seed = 1; seed <= 10; ++seed) {
      CAPTURE(seed, static_cast<int>(sharing));
      Player player(seed, sharing);
      Bench copy(player.bench.p);
      for (int i = 0; i < 150; ++i) {
        for (int k = 0; k < 5; ++k) player.act();
        // Play a copy to the end, without anybody acting, and compare.
        DeviceModel m = player.bench.model();
        std::vector<std::pair<OpPoint, ModelNs>> bounds;
        for (const auto& [context, point] : player.last) {
          if (!m.is_complete(point)) bounds.push_back({point, m.earliest_completion(point)});
        }
        ModelNs visible[4];
        for (uint32_t p = 0; p < 4; ++p) visible[p] = m.earliest_visible(p);
        std::memcpy(static_cast<void*>(copy.state.get()), player.bench.state.get(),
                    offsetof(model_state, stream) + 4 * sizeof copy.state->stream[0]);
        std::copy_n(player.bench.ops.begin(), 4 * kMaxOps, copy.ops.begin());
        for (uint32_t p = 0; p < 4; ++p) {
          Collected drop;
          if (visible[p] > copy.state->head.time_ns) copy.model().collect(p, drop);
        }
        DeviceModel c = copy.model();
        while (c.next_event_ns() != kNever) {
          c.advance_to(c.next_event_ns());
          const ModelNs t = copy.state->head.time_ns;
          for (const auto& [point, bound] : bounds) {
            if (t < bound) REQUIRE_FALSE(c.is_complete(point));
          }
          for (uint32_t p = 0; p < 4; ++p) {
            if (t >= visible[p]) continue;
            const context_state& context = copy.state->context[p];
            REQUIRE(context.done_count == 0);
            REQUIRE(context.reached_new == 0);
          }
        }
      }
    }
  }
}
