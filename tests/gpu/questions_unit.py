"""The steps that take decisions: from what was measured to the answer, and the probes that measure it."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import unittest.mock

import lab
from gpu_check import block_wait, bound, interference, mps
from gpu_check.led import Led
from gpu_check.steps import run_steps
from gpu_check.verdict import UNDECIDED, Failed, OutOfTime


def cell(block_us, p99_us, kernel="short", fills=True, times=1.0, unsteady=False):
    return {"block_us": block_us, "kernel": kernel, "fills_the_device": fills, "unsteady": unsteady, "wait_us": {"p50": p99_us / 2, "p99": p99_us},
            "times_alone": {"p50": times, "p99": times}}


class BlockWait(unittest.TestCase):
    def test_the_wait_is_how_much_later_the_same_quantile_is(self):
        self.assertEqual(block_wait.waits({"p50": 20.0, "p99": 30.0}, {"p50": 45.0, "p99": 29.0}), {"p50": 25.0, "p99": 0.0})
        self.assertEqual(block_wait.waits({"count": 0}, {"p50": 45.0, "p99": 29.0}), {})

    def test_one_and_a_half_blocks_at_p99_are_a_yes_and_no_more(self):
        kept = [cell(20, 30.0), cell(2000, 3000.0)]
        self.assertEqual(block_wait.priority_verdict(kept, 1)[0], "yes")
        late = [cell(20, 30.1), cell(2000, 3000.0)]
        answer, sentence = block_wait.priority_verdict(late, 1)
        self.assertEqual(answer, "partly")
        self.assertIn("behind blocks of 20 us only", sentence)
        self.assertEqual(block_wait.priority_verdict([cell(20, 31.0), cell(2000, 3001.0)], 1)[0], "no")

    def test_a_persistent_kernel_and_a_wide_one_do_not_count(self):
        cells = [cell(100, 10.0), cell(block_wait.PERSISTENT, 5000.0), cell(100, 900.0, kernel="wide")]
        self.assertEqual(block_wait.priority_verdict(cells, 1)[0], "yes")
        self.assertEqual(block_wait.priority_verdict(cells[1:], 1)[0], UNDECIDED)

    def test_what_the_server_did_not_grant_was_not_measured(self):
        answer, sentence = block_wait.priority_verdict([cell(20, 1.0)], 0)
        self.assertEqual(answer, UNDECIDED)
        self.assertIn("was granted 0", sentence)

    def test_a_log_that_says_nothing_leaves_a_yes_to_the_figures_and_no_other(self):
        self.assertEqual(block_wait.priority_verdict([cell(20, 1.0)], None)[0], "yes")
        answer, sentence = block_wait.priority_verdict([cell(20, 5000.0)], None)
        self.assertEqual(answer, UNDECIDED)
        self.assertIn("says nothing", sentence)

    def test_what_is_lost_in_the_machines_own_noise_is_not_judged(self):
        answer, seen = block_wait.behind_blocks([cell(20, 0.0, unsteady=True), cell(500, 100.0)])
        self.assertEqual(answer, "yes")
        self.assertIn("not judged, for alone it varies by more itself: 20 us", seen)
        self.assertEqual(block_wait.behind_blocks([cell(20, 0.0, unsteady=True)])[0], UNDECIDED)

    def test_blocks_that_leave_places_free_decide_nothing(self):
        self.assertEqual(block_wait.behind_blocks([cell(20, 1.0, fills=False)])[0], UNDECIDED)

    def test_the_largest_cap_beside_which_it_hardly_waits(self):
        def beside(times):
            return [cell(2000, 9e3, times=9.0), cell(0, 5.0, times=times), cell(0, 5.0, kernel="wide", times=2.0)]
        self.assertEqual(block_wait.cap_verdict({25: beside(1.0), 50: beside(1.5), 75: beside(1.6)})[0], "50 %")
        self.assertEqual(block_wait.cap_verdict({25: beside(1.51), 50: beside(4.0), 75: beside(5.0)})[0], "none")


class Interference(unittest.TestCase):
    def matrix(self, **factors):
        """`compute_cache=1.2`: compute beside cache; 1.0 where nothing is said."""
        return {kind: {beside: factors.get(f"{kind}_{beside}", factors.get("all", 1.0)) for beside in interference.KINDS} for kind in interference.KINDS}

    def test_the_simplest_model_that_the_figures_allow(self):
        self.assertEqual(interference.model(self.matrix(cache_compute=1.04))[0], "none")
        self.assertEqual(interference.model(self.matrix(compute_compute=2.0, cache_cache=1.6, cache_compute=1.08))[0], "by kind")
        self.assertEqual(interference.model(self.matrix(all=1.3, cache_cache=1.4))[0], "one factor")
        answer, sentence = interference.model(self.matrix(compute_compute=2.0, cache_bandwidth=1.7))
        self.assertEqual(answer, "by pair")
        self.assertIn("2.00x (compute beside compute)", sentence)

    def test_a_kernel_that_never_ended_decides_nothing(self):
        self.assertEqual(interference.model({"cache": {"cache": None}})[0], UNDECIDED)
        self.assertEqual(interference.model({})[0], UNDECIDED)

    def test_speeds_are_rounds_a_second(self):
        self.assertEqual(interference.speeds({"done": 10, "now_ns": 0}, {"done": 30, "now_ns": 500_000_000}, 4), 160)
        self.assertIsNone(interference.speeds({"done": 1, "now_ns": 5}, {"done": 1, "now_ns": 5}, 4))


class Bound(unittest.TestCase):
    def rows(self, mean, p99, count=1000, alone=(3.4, 3.4)):
        return [{"how": "alone under lull", "role": "high", "window_means": list(alone)},
                {"how": "lull: guarded", "role": "high", "count": count, "over_alone_under_lull": {"mean": mean, "p99": p99}},
                {"how": "lull: guarded", "role": "low", "throughput": 0.25}]

    def test_three_per_cent_in_the_mean_and_five_at_p99(self):
        self.assertEqual(bound.verdict(self.rows(1.03, 1.05), "guarded")[0], "yes")
        self.assertEqual(bound.verdict(self.rows(1.031, 1.0), "guarded")[0], "no")
        answer, seen = bound.verdict(self.rows(1.0, 1.051), "guarded")
        self.assertEqual(answer, "no")
        self.assertIn("the other at 0.250 of its speed", seen)

    def test_a_machine_that_is_unsteady_itself_cannot_break_it(self):
        self.assertEqual(bound.verdict(self.rows(1.2, 1.2, alone=(3.4, 3.6)), "guarded")[0], UNDECIDED)
        self.assertEqual(bound.verdict(self.rows(1.0, 1.0, alone=(3.4, 3.6)), "guarded")[0], "yes")

    def test_few_iterations_have_no_p99(self):
        self.assertEqual(bound.verdict(self.rows(1.0, 1.0, count=99), "guarded")[0], UNDECIDED)
        self.assertEqual(bound.verdict([], "guarded")[0], UNDECIDED)

    def test_guarded_gives_the_answer_and_priority_is_beside_it(self):
        answer, sentence = bound.sentence({"guarded": ("no", "guarded: slow"), "priority": ("yes", "priority: fine")})
        self.assertEqual(answer, "no")
        self.assertIn("guarded: slow; priority: fine. guarded breaks its bound here", sentence)


class Probes(unittest.TestCase):
    def test_orders_are_answered_until_the_end(self):
        with lab.context() as context:
            with Led(context, "load", context.env()) as load:
                running = load.ask("blocks 2000 500")
                self.assertEqual((running["waves"], running["threads"], running["fills_the_device"]), (4, 1024, True))
                for kind in interference.KINDS:
                    self.assertEqual(load.ask(f"{kind} 1000")["running"], kind)
                self.assertIn("done", load.ask("mark"))
                load.ask("idle")
            self.assertEqual(load.child.code(), 0)
            self.assertEqual(json.loads(load.child.out().splitlines()[-1])["obeyed"], 6)

    def test_an_order_that_is_wrong_is_said_and_so_is_a_probe_that_dies(self):
        with lab.context() as context:
            for order, said in (("blocks", "would be right"), ("compute 0", "would be right"), ("sing 5", "not known")):
                with self.assertRaisesRegex(Failed, said), Led(context, "load", context.env()) as load:
                    load.ask(order)
            with Led(context, "waits", context.env()) as waits:
                waits.child.signal(9)
                with self.assertRaisesRegex(Failed, "waits: ended"):
                    waits.ask("rounds 1 1 1 1")

    def test_no_answer_in_time_is_no_answer_and_the_budgets_end_is_another_thing(self):
        with lab.context() as context:
            waits = Led(context, "waits", context.env())
            with self.assertRaisesRegex(Failed, "no answer in 0 s"):
                waits.ask("rounds 60000 1000 1 1", 0.05)
            waits = Led(context, "waits", context.env())
            context.ends_at, context.timeout = 0, lambda wanted_s: min(wanted_s, 0.05)
            with self.assertRaises(OutOfTime):
                waits.ask("rounds 60000 1000 1 1", 10)

    def test_every_kernel_is_accepted_by_nvidias_assembler(self):
        ptxas = shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas"
        if not pathlib.Path(ptxas).exists():
            self.skipTest("no ptxas on this machine")
        texts = json.loads(subprocess.run([lab.BUILD / "bin/lull-device-probe", "kernels"], capture_output=True, text=True, check=True, timeout=30).stdout)
        with tempfile.TemporaryDirectory() as folder:
            for name, text in texts.items():
                path = pathlib.Path(folder) / f"{name}.ptx"
                path.write_text(text)
                for architecture in ("sm_75", "sm_90") if name == "load" else ("sm_80", "sm_90"):
                    done = subprocess.run([ptxas, f"-arch={architecture}", "-v", path, "-o", path.with_suffix(".cubin")], capture_output=True,
                                          text=True, check=False, timeout=60)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIsNone(re.search(r"[1-9]\d* bytes spill", done.stderr), done.stderr)

    def test_under_mps_of_our_own_the_priority_is_the_servers_word(self):
        with lab.context_with_fake_mps(SIMGPU_SHARING="mps") as context:
            found = block_wait.with_priority(context)
            self.assertEqual(found["answer"]["granted"], mps.BELOW_NORMAL)
            self.assertEqual([c["block_us"] for c in found["answer"]["cells"]], [*block_wait.BLOCKS_US, block_wait.PERSISTENT])
            self.assertIn(found["decision"]["answer"], ("yes", "no", "partly", UNDECIDED))
            self.assertTrue(any("Priority level" in line for line in found["answer"]["server_log"]))
            self.assertEqual(list(found["profile"]["block_wait"]), ["MPS, the other below normal"])
            self.assertTrue(all(c["low_speed"] > 0 for c in found["answer"]["cells"]))

    def test_without_mps_and_beside_somebody_elses_each_step_says_so_and_the_rest_goes_on(self):
        for seen, path, said in (("", "/nowhere", "no nvidia-cuda-mps-control"), ("process 7 (nvidia-cuda-mps)", None, "somebody else is here \\(process 7")):
            with lab.context_with_fake_mps() as context, unittest.mock.patch.dict(os.environ, {"PATH": path} if path else {}):
                context._foreign_mps = seen
                steps = [(step.name, step) for step in block_wait.steps() + interference.steps()]
                run_steps(steps, context, 600, False, lambda text: None)
                found = context.results.data["steps"]
                self.assertEqual(found.pop("block wait, time slices")["verdict"], "pass")
                self.assertEqual(len(found), 4)
                for step in found.values():
                    self.assertEqual(step["verdict"], "skipped")
                    self.assertRegex(step["reason"], said)

    def test_caps_and_interference_run_whole_under_mps_of_our_own(self):
        with lab.context_with_fake_mps(SIMGPU_SHARING="mps") as context, unittest.mock.patch.object(block_wait, "CAPS", (50,)):
            found = block_wait.caps(context)
            self.assertEqual(list(found["answer"]), ["50"])
            self.assertEqual({(c["kernel"], c["block_us"]) for c in found["answer"]["50"]["cells"]},
                             {(kernel, block_us) for kernel in ("short", "wide") for block_us in (2000, block_wait.PERSISTENT)})
            self.assertIn(found["decision"]["answer"], ("50 %", "none"))
            found = interference.interference(context)
            self.assertEqual((list(found["answer"]), found["lines"]), ([interference.SAME, interference.APART], []))
            for place in found["answer"].values():
                self.assertTrue(all(factor > 0 for others in place["slowdown"].values() for factor in others.values()), place)
            self.assertNotEqual(found["decision"]["answer"], UNDECIDED)


if __name__ == "__main__":
    unittest.main()
