"""`lull compare` through real processes: what its table and JSON say, and that `lull simulate` counts the same. No
time: how far their figures agree is measured by tools/bench/agreement."""

import json
import pathlib
import unittest

import lab

WORKLOADS = pathlib.Path(__file__).resolve().parents[2] / "examples/workloads"
PAIR = ("--high", WORKLOADS / "chatty_inference.json", "--low", WORKLOADS / "dense_inference.json")
ITERATIONS = 10
FIELDS = {"policy", "task", "role", "completed", "jct_ms_mean", "p50_ms", "p99_ms", "slowdown_p50", "slowdown_p99",
          "throughput_ratio", "device_share", "gpu_busy", "valid"}


class Compare(unittest.TestCase):
    def table(self, here, command, *options):
        out = here.folder / f"{command}.json"
        code, text, err = here.lull(command, *PAIR, "--iterations", ITERATIONS, "--json", out, *options, timeout=550)
        self.assertEqual(code, 0, err)
        return json.loads(out.read_text()), text

    def test_the_shipped_pair_gives_a_full_table_and_simulate_counts_the_same(self):
        with lab.Lab() as here:
            result, text = self.table(here, "compare", "--sim=time_slice")
            model, _ = self.table(here, "simulate", "--sharing", "time_slice", "--no-oracle")
        self.assertIn("simulated", text)
        self.assertTrue(result["simulated"])
        for name in ("device", "sharing", "slow_motion", "control_latency_us", "player_late_p99_us"):
            self.assertIn(name, result)
        for one in result["rows"]:
            self.assertLessEqual(FIELDS, set(one))
        self.assertEqual(result["control_latency_us"], model["control_latency_us"])

        def counted(rows):
            # Alone, and of the low task, each runs as long as it needs for its figures.
            return [(row["policy"], row["role"], row["task"],
                     row["completed"] if row["role"] == "high" and row["policy"] != "alone" else None) for row in rows]
        self.assertEqual(counted(result["rows"]), counted(model["rows"]))
        self.assertEqual({row["completed"] for row in result["rows"] if row["role"] == "high"}, {ITERATIONS})
        print(text)

    def test_the_high_program_may_state_what_it_may_lose(self):
        with lab.Lab() as here:
            result, text = self.table(here, "compare", "--sim=serial", "--policy", "guarded", "--max-slowdown", "1%")
        self.assertEqual(result["max_slowdown"], {"mean": 0.01, "p99": 0.017})
        self.assertIn("high task may lose 1 % in the mean and 1.7 % at p99", text)
        self.assertEqual(result["rows"][-2]["completed"], ITERATIONS)


if __name__ == "__main__":
    unittest.main()
