"""`lull compare` through real processes on the simulated GPU against `lull simulate`: the same workload
files, sharing model, control latency and numbers of iterations. Medians of repetitions must agree.

A row that compare calls invalid (its player was late: the machine was too busy) is measured again, a
few times; if it stays invalid, the test says so and fails.
"""

import json
import statistics
import unittest

import lab
from compare_test import WORKLOADS, compare

# Where a few iterations say what a policy gives: guarded beside a busy high task spends its accounts over
# hundreds, what fikit gives there depends on gaps as short as the daemon's own reactions, and what fikit
# and guarded give long kernels beside chatty_inference is nothing either way.
PAIRS = (("chatty_inference", "dense_inference", ("fikit", "guarded")),
         ("chatty_inference", "chatty_inference", ("fikit", "guarded")),
         ("chatty_inference", "training_step", ("priority",)))
SHARING = "serial"
SLOW_MOTION = 50
REPETITIONS = 3
ATTEMPTS = 5  # at as many rows as are missing
COUNTS = ("--warmup", 6, "--iterations", 10)
MOST = 0.10
FIGURES = (("high", "p50_ms"), ("low", "throughput_ratio"))


def figures(rows, policy):
    """(high p50, low throughput) of each time that the policy ran and its rows are valid."""
    of = {role: [r for r in rows if r["policy"] == policy and r["role"] == role] for role in ("high", "low")}
    return [tuple(both[role == "low"][name] for role, name in FIGURES)
            for both in zip(of["high"], of["low"]) if all(r["valid"] for r in both)]


def measured(here, high, low, policies):
    """By policy the figures of REPETITIONS valid runs; the control latency; the player's lateness."""
    seen = {policy: [] for policy in policies}
    late_us = 0
    for _ in range(ATTEMPTS):
        missing = [p for p in policies for _ in range(REPETITIONS - len(seen[p]))]
        if not missing:
            break
        words = [word for policy in missing for word in ("--policy", policy)]
        result, _ = compare(here, high, low, SHARING, "--slow-motion", SLOW_MOTION, *COUNTS, *words)
        for policy in policies:
            seen[policy] += figures(result["rows"], policy)
        for reason in {r["reason"] for r in result["rows"] if not r["valid"]}:
            print(f"  to be measured again: {reason}")
        late_us = max(late_us, result["player_late_p99_us"])
    return seen, result["control_latency_us"], late_us


def simulated(here, high, low, policies, control_latency_us):
    words = [word for policy in policies for word in ("--policy", policy)]
    code, text, err = here.lull("simulate", "--high", high, "--low", low, "--sharing", SHARING, *COUNTS, *words,
                                "--control-latency-us", control_latency_us, "--json", "-")
    if code != 0:
        raise AssertionError(err)
    return {policy: figures(json.loads(text)["rows"], policy)[0] for policy in policies}


class Agreement(unittest.TestCase):
    def test_real_processes_and_the_simulator_agree(self):
        print(f"all simulated; sharing {SHARING}, slow motion {SLOW_MOTION}, medians of {REPETITIONS} (least .. most)")
        for *names, policies in PAIRS:
            high, low = (WORKLOADS / f"{name}.json" for name in names)
            with lab.Lab() as here:
                seen, latency_us, late_us = measured(here, high, low, policies)
                model = simulated(here, high, low, policies, latency_us)
            print(f"{names[0]} beside {names[1]}: control latency {latency_us:g} us, player late p99 {late_us:.1f} us")
            for policy in policies:
                with self.subTest(high=names[0], low=names[1], policy=policy):
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
                    with self.subTest(high=names[0], low=names[1], policy=policy, figure=name):
                        self.assertLessEqual(abs(off), MOST)


if __name__ == "__main__":
    unittest.main()
