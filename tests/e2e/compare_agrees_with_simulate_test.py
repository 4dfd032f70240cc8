"""`lull compare` through real processes on the simulated GPU against `lull simulate`: the same workload
files, sharing model, control latency and numbers of iterations. Medians of repetitions must agree.

A row that compare calls invalid (its player was late: the machine was too busy) is measured again, a
few times; if it stays invalid, the test says so and fails.
"""

import json
import statistics
import typing
import unittest

import lab
from compare_test import WORKLOADS, compare


class Pair(typing.NamedTuple):
    high: str
    low: str
    policies: tuple
    warmup: int = 6
    iterations: int = 10
    slow_motion: int = 50


# Where a few iterations say what a policy gives. Under guarded that is when it knows how long undisturbed ones take and
# has filled its accounts: after some 20, but after 100 where the machine's wake-ups make it look at more of them. Not here:
#   - fikit with dense_inference on either side: as high it fills with the pause behind the last kernel, which is
#     timed once in 23 iterations (a kernel that is warm: 16 units in 1,024 of its launches), and a host that wakes a
#     millisecond late just then gives a tenth more for good; as low its kernels fill the gaps of chatty_inference
#     but for a third of a microsecond, or just do not
#   - long kernels beside chatty_inference, which get nothing under fikit or guarded, either way
PAIRS = (Pair("chatty_inference", "dense_inference", ("guarded",), warmup=100, iterations=20, slow_motion=30),
         Pair("chatty_inference", "chatty_inference", ("fikit", "guarded"), warmup=24, slow_motion=30),
         Pair("chatty_inference", "training_step", ("priority",)),
         Pair("dense_inference", "chatty_inference", ("guarded",), warmup=24, slow_motion=30))
SHARING = "serial"
REPETITIONS = 3
ATTEMPTS = 5  # at as many rows as are missing
MOST = 0.10
FIGURES = (("high", "p50_ms"), ("low", "throughput_ratio"))


def figures(rows, policy):
    """(high p50, low throughput) of each time that the policy ran and its rows are valid."""
    of = {role: [r for r in rows if r["policy"] == policy and r["role"] == role] for role in ("high", "low")}
    return [tuple(both[role == "low"][name] for role, name in FIGURES)
            for both in zip(of["high"], of["low"]) if all(r["valid"] for r in both)]


def words_of(pair, policies):
    return ["--warmup", pair.warmup, "--iterations", pair.iterations, *(word for policy in policies for word in ("--policy", policy))]


def files(pair):
    return (WORKLOADS / f"{name}.json" for name in (pair.high, pair.low))


def measured(here, pair):
    """By policy the figures of REPETITIONS valid runs; the control latency; the player's lateness."""
    seen = {policy: [] for policy in pair.policies}
    late_us = 0
    for _ in range(ATTEMPTS):
        missing = [p for p in pair.policies for _ in range(REPETITIONS - len(seen[p]))]
        if not missing:
            break
        result, _ = compare(here, *files(pair), SHARING, "--slow-motion", pair.slow_motion, *words_of(pair, missing))
        for policy in pair.policies:
            seen[policy] += figures(result["rows"], policy)
        for reason in {r["reason"] for r in result["rows"] if not r["valid"]}:
            print(f"  to be measured again: {reason}")
        late_us = max(late_us, result["player_late_p99_us"])
    return seen, result["control_latency_us"], late_us


def simulated(here, pair, control_latency_us):
    high, low = files(pair)
    code, text, err = here.lull("simulate", "--high", high, "--low", low, "--sharing", SHARING, *words_of(pair, pair.policies),
                                "--control-latency-us", control_latency_us, "--json", "-")
    if code != 0:
        raise AssertionError(err)
    return {policy: figures(json.loads(text)["rows"], policy)[0] for policy in pair.policies}


class Agreement(unittest.TestCase):
    def test_real_processes_and_the_simulator_agree(self):
        print(f"all simulated; sharing {SHARING}, medians of {REPETITIONS} (least .. most)")
        for pair in PAIRS:
            with lab.Lab() as here:
                seen, latency_us, late_us = measured(here, pair)
                model = simulated(here, pair, latency_us)
            print(f"{pair.high} beside {pair.low}: slow motion {pair.slow_motion}, control latency {latency_us:g} us, "
                  f"player late p99 {late_us:.1f} us")
            for policy in pair.policies:
                with self.subTest(high=pair.high, low=pair.low, policy=policy):
                    self.assertEqual(len(seen[policy]), REPETITIONS, f"too few valid rows after {ATTEMPTS} attempts: "
                                     "the machine is too busy")
                for at, (role, name) in enumerate(FIGURES):
                    values = [both[at] for both in seen[policy]]
                    if not values:
                        continue
                    median, expected = statistics.median(values), model[policy][at]
                    self.assertGreater(expected, 0)
                    off = median / expected - 1
                    print(f"  {policy:8} {role:4} {name:16} compare {median:7.3f} ({min(values):.3f} .. {max(values):.3f})"
                          f"  simulate {expected:7.3f}  difference {100 * off:+5.1f} %", flush=True)
                    with self.subTest(high=pair.high, low=pair.low, policy=policy, figure=name):
                        self.assertLessEqual(abs(off), MOST)


if __name__ == "__main__":
    unittest.main()
