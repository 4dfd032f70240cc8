"""`lull compare` through real processes: the shipped pair, and real traces where they are present."""

import json
import os
import pathlib
import sys
import unittest

import lab

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRACES = pathlib.Path(os.environ.get("LULL_SHARED_TRACES", ROOT.parent / "shared/traces"))
WORKLOADS = ROOT / "examples/workloads"
ATTEMPTS = 3  # each twice as slow as the one before: on a machine with other work, late wake-ups move what is measured
FIELDS = {"policy", "task", "role", "completed", "jct_ms_mean", "p50_ms", "p99_ms", "slowdown_p50", "slowdown_p99",
          "throughput_ratio", "device_share", "gpu_busy", "valid"}


def compare(here, high, low, sharing, *options, timeout=300):
    out = here.folder / "compare.json"
    code, text, err = here.lull("compare", "--high", high, "--low", low, f"--sim={sharing}", "--json", out, *options, timeout=timeout)
    if code != 0:
        raise AssertionError(err)
    return json.loads(out.read_text()), text


def compare_until(holds, slow_motion, here, high, low, sharing, *options):
    """The first of ATTEMPTS results that `holds`, else the last; each is twice as slow as the one before."""
    for _ in range(ATTEMPTS):
        result, text = compare(here, high, low, sharing, "--slow-motion", slow_motion, *options)
        print(text)
        if holds(result):
            break
        slow_motion *= 2
    return result


def all_valid(result):
    return all(one["valid"] for one in result["rows"])


def simulate(here, high, low, sharing, *options):
    out = here.folder / "simulate.json"
    code, _, err = here.lull("simulate", "--high", high, "--low", low, "--sharing", sharing, "--no-oracle", "--json", out, *options)
    if code != 0:
        raise AssertionError(err)
    return json.loads(out.read_text())


def row(result, policy, role):
    return next(r for r in result["rows"] if r["policy"] == policy and r["role"] == role)


class Compare(unittest.TestCase):
    def test_the_shipped_pair_gives_a_full_table(self):
        with lab.Lab() as here:
            result, text = compare(here, WORKLOADS / "chatty_inference.json", WORKLOADS / "dense_inference.json", "time_slice",
                                   "--iterations", 15)
            self.assertIn("simulated", text)
            self.assertTrue(result["simulated"])
            for name in ("device", "sharing", "slow_motion", "control_latency_us", "player_late_p99_us"):
                self.assertIn(name, result)
            self.assertEqual({r["policy"] for r in result["rows"]}, {"alone", "share", "priority", "fikit", "guarded"})
            for one in result["rows"]:
                self.assertLessEqual(FIELDS, set(one))
                if one["role"] == "high":
                    self.assertGreater(one["completed"], 0, one)
            print(text)

    def test_the_high_program_may_state_what_it_may_lose(self):
        with lab.Lab() as here:
            result, text = compare(here, WORKLOADS / "chatty_inference.json", WORKLOADS / "dense_inference.json", "serial",
                                   "--policy", "guarded", "--max-slowdown", "1%", "--iterations", 5)
            self.assertEqual(result["max_slowdown"], {"mean_per_mille": 10, "p99_per_mille": 17})
            self.assertIn("high task may lose 1%,1.7%", text)
            self.assertGreater(row(result, "guarded", "high")["completed"], 0)

    @unittest.skipUnless(TRACES.is_dir(), "recorded traces are not here")
    def test_the_important_task_keeps_its_speed_beside_recorded_programs(self):
        bert = TRACES / "h100-bert-small-inference.json.gz"
        qwen = TRACES / "h100-qwen1.5-0.5b-inference.json.gz"
        vit = TRACES / "h100-vit-image-detection-inference.json.gz"
        timesformer = TRACES / "h100-timesformer.json.gz"
        sharings = ("time_slice", "mps", "serial")
        policies = [word for policy in ("priority", "fikit", "guarded") for word in ("--policy", policy)]
        # Each pair and each way of sharing once; LULL_EVERY_COMBINATION=1: all nine, some four minutes more.
        every = os.environ.get("LULL_EVERY_COMBINATION") == "1"
        for n, (high, low) in enumerate(((bert, qwen), (vit, bert), (bert, timesformer))):
            for sharing in sharings if every else (sharings[n],):
                with self.subTest(high=high.name, low=low.name, sharing=sharing), lab.Lab() as here:
                    result = compare_until(all_valid, 20, here, high, low, sharing, "--iterations", 20, *policies)
                    for one in result["rows"]:
                        self.assertTrue(one["valid"], one)
                    self.assertLessEqual(row(result, "guarded", "high")["slowdown_p50"], 1.10)
                    # The others promise nothing: no more than without processes and a machine's wake-ups.
                    simulated = simulate(here, high, low, sharing, *policies)
                    for policy in ("priority", "fikit", "guarded"):
                        with self.subTest(policy=policy):
                            self.assertLessEqual(row(result, policy, "high")["slowdown_p50"],
                                                 1.10 * row(simulated, policy, "high")["slowdown_p50"])


POLICIES = ("share", "priority", "fikit")  # those that the model knows
MOST = 0.10  # of the device


class SerialModel(unittest.TestCase):
    def test_device_shares_agree_with_an_independent_model_of_the_serial_device(self):
        sys.path.insert(0, str(ROOT / "tests/simulation"))
        import serial_model
        # Slower than usual: the model's programs and its coordinator react at once. Beside long kernels an iteration takes
        # long, and reactions matter less.
        for high, low, iterations, slow_motion in (("chatty_inference", "dense_inference", 10, 30),
                                                   ("chatty_inference", "chatty_inference", 10, 60),
                                                   ("chatty_inference", "training_step", 10, 30),
                                                   ("chatty_inference", "batch_long_kernels", 4, 20),
                                                   ("dense_inference", "chatty_inference", 10, 30)):
            files = [WORKLOADS / f"{name}.json" for name in (high, low)]
            model = {policy: serial_model.compare(*map(serial_model.read_workload, files), policy) for policy in POLICIES}
            with self.subTest(high=high, low=low), lab.Lab() as here:
                def shares(result):
                    return {(policy, role): (row(result, policy, role)["device_share"], model[policy][role]["device_share"])
                            for policy in POLICIES for role in ("high", "low")}

                def agrees(result):
                    return all(abs(ours - theirs) <= MOST for ours, theirs in shares(result).values())

                result = compare_until(agrees, slow_motion, here, *files, "serial", "--low-greedy", "--max-hold", 0,
                                       "--iterations", iterations, *(word for policy in POLICIES for word in ("--policy", policy)))
                for (policy, role), (ours, theirs) in shares(result).items():
                    print(f"{high} beside {low}, {policy}, {role}: {ours:.3f}, model {theirs:.3f}")
                    with self.subTest(policy=policy, role=role):
                        self.assertAlmostEqual(ours, theirs, delta=MOST)


if __name__ == "__main__":
    unittest.main()
