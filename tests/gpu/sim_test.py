"""tools/gpu-check on the simulated GPU, as CI runs it: whole, cut off and gone on with, and with parts
that break; and what it does around PyTorch models, with a stand-in for PyTorch."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import lab
from gpu_check import cost, counting, interception, mps, pairs, real_pairs, tasks
from gpu_check.real_pairs import DEFAULT, Way

CHECK = lab.ROOT / "tools/gpu-check"
TIMEOUT_S = 900
ALL = ("all", "--sim", "--short")
PARTS = {"device", "interception", "cost", "timing", "sharing", "pairs", "queue", "suspension", "faults", "workloads"}


def start(*words, build=lab.BUILD, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LULL_", "SIMGPU_", "LD_"))}
    return subprocess.Popen([sys.executable, CHECK, *words, "--build", build], env=env, text=True, **more)


def check(*words, build=lab.BUILD):
    child = start(*words, build=build, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = child.communicate(timeout=TIMEOUT_S)
    return subprocess.CompletedProcess(child.args, child.returncode, out, err)


class Whole:
    """The check of everything, begun before all tests: it mostly waits, and so do they."""

    def __init__(self):
        self.out = pathlib.Path(tempfile.mkdtemp(prefix="lull-sim-test-"))
        self._log = open(self.out / "log", "w+")
        self._child = start(*ALL, "--out", self.out / "results", stdout=self._log, stderr=subprocess.STDOUT)

    def wait(self):
        """(exit code, what it said)"""
        code = self._child.wait(TIMEOUT_S)
        self._log.seek(0)
        return code, self._log.read()

    def end(self):
        if self._child.poll() is None:
            self._child.terminate()  # it ends its own children
            self._child.wait(60)
        self._log.close()
        shutil.rmtree(self.out, ignore_errors=True)


def setUpModule():
    whole = Whole()
    unittest.addModuleCleanup(whole.end)
    OnTheSimulatedGpu.whole = whole


class OnTheSimulatedGpu(unittest.TestCase):
    whole = None

    def setUp(self):
        self.out = pathlib.Path(tempfile.mkdtemp(prefix="lull-sim-test-"))
        self.addCleanup(shutil.rmtree, self.out, ignore_errors=True)

    def results(self):
        return json.loads((self.out / "results.json").read_text())

    def test_all_parts_pass_or_skip_with_a_reason_and_are_not_done_twice(self):
        self.out = self.whole.out / "results"
        code, said = self.whole.wait()
        self.assertEqual(code, 0, said)
        found = self.results()
        self.assertTrue(found["simulated"])
        self.assertEqual({name.split("/")[0] for name in found["steps"]}, PARTS)
        for name, step in found["steps"].items():
            self.assertIn(step["verdict"], ("pass", "skipped"), (name, step))
            if step["verdict"] == "skipped":
                self.assertTrue(step["reason"], name)
        passed = {name for name, step in found["steps"].items() if step["verdict"] == "pass"}
        self.assertLessEqual({"device/launches", "device/copies", "device/profile", "device/hardware and simulation",
                              "interception/doctor", "interception/driver API programs", "cost/lull-bench", "cost/null kernels",
                              "cost/idle neighbour, chatty_inference", "timing/played kernels",
                              "sharing/lull compare", "sharing/chatty_inference + dense_inference", "sharing/chatty_inference + training_step",
                              "device/block wait, time slices", "device/block wait, MPS", "device/interference",
                              "pairs/chatty_inference + dense_inference", "queue/launches ahead of the device", "faults/without MPS"}, passed)
        idle = found["steps"]["cost/idle neighbour, chatty_inference"]["data"]
        self.assertEqual({policy: len(rounds) for policy, rounds in idle["medians"].items()}, {"share": 2, "priority": 2, "guarded": 2})
        self.assertEqual(set(idle["times"]), {"priority", "guarded"})
        for name in ("suspension/client of MPS", "faults/under MPS"):
            self.assertIn("MPS is the real driver's", found["steps"][name]["reason"])
        # Whether this driver maps memory, it says itself.
        self.assertRegex(found["steps"]["suspension/pipeline"]["reason"], "^$|cuMem.*NOT_SUPPORTED")
        ways = found["steps"]["pairs/chatty_inference + dense_inference"]["data"]
        self.assertEqual(set(ways["rows"]), {"default sharing", "guarded, MPS"})
        self.assertIn("without guarded, MPS, priority: the simulated GPU knows neither priorities", ways["lines"][0])
        self.assertEqual(found["steps"]["queue/launches ahead of the device"]["data"]["profile"]["launch_queue"]["nothing"], 1022)
        for name in ("device/block wait, MPS with priority", "device/block wait, MPS with caps"):
            self.assertIn("knows neither priorities", found["steps"][name]["reason"])
        decisions = [step["data"]["decision"] for step in found["steps"].values() if "decision" in step.get("data", {})]
        self.assertLessEqual({1, 3, 4, 5, 6}, {one["question"] for one in decisions})
        self.assertEqual({one["answer"] for one in decisions}, {"not decided"})
        rows = found["steps"]["sharing/chatty_inference + dense_inference"]["data"]["rows"]
        self.assertEqual({row["how"] for row in rows},
                         {"alone", "default sharing", "alone under lull", "lull: share", "lull: priority", "lull: guarded"})
        self.assertTrue((self.out / "decisions-chatty_inference-dense_inference.gz").stat().st_size > 0)
        self.assertTrue(all(row["count"] > 0 for row in rows if row["role"] == "high"), rows)
        text = (self.out / "report.md").read_text()
        self.assertIn("Everything here is simulated", text)
        for part in PARTS:
            self.assertIn(f"## {part}: ", text)
        for line in text.splitlines():  # every table row is whole
            if line.startswith("|"):
                self.assertTrue(line.rstrip().endswith("|"), line)
        profile = json.loads((self.out / "profile.json").read_text())
        self.assertIn("measured", profile["assumptions"]["launch_ns"])
        self.assertEqual(set(profile["measured"]["block_wait"]), {"time slices", "MPS"})
        self.assertEqual(set(profile["measured"]["block_wait"]["MPS"]["500 us"]), {"p50_us", "p99_us"})
        self.assertEqual(set(profile["measured"]["interference"]["same multiprocessors"]), {"compute", "bandwidth", "cache"})

        again = check(*ALL, "--out", self.out)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(again.stdout.count("as found before"), len(found["steps"]))
        self.assertEqual(self.results()["steps"], found["steps"])

    def test_killed_at_any_moment_it_goes_on_where_it_was(self):
        child = start("interception", "cost", "--sim", "--short", "--out", self.out, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 600
        while time.monotonic() < end and child.poll() is None:
            if (self.out / "results.json").exists() and len(self.results()["steps"]) >= 4:
                break
            time.sleep(0.02)
        child.send_signal(signal.SIGKILL)
        child.wait(120)
        before = self.results()["steps"]
        self.assertGreaterEqual(len(before), 4)
        done = check("interception", "cost", "--sim", "--short", "--out", self.out)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        after = self.results()["steps"]
        self.assertEqual({name: after[name] for name in before}, before)
        self.assertGreater(len(after), len(before))

    def test_a_child_that_crashes_fails_its_step_and_nothing_else(self):
        build = self.out / "build"
        (build / "bin").mkdir(parents=True)
        for name in ("lib", "check"):
            (build / name).symlink_to(lab.BUILD / name)
        for path in (lab.BUILD / "bin").iterdir():
            if path.name != "lull-device-probe":  # lull finds its library beside the file it really is
                shutil.copy(path, build / "bin" / path.name)
        probe = build / "bin/lull-device-probe"
        probe.write_text(f'#!/bin/sh\n[ "$1" = copies ] && kill -SEGV $$\nexec {lab.BUILD}/bin/lull-device-probe "$@"\n')
        probe.chmod(0o755)
        done = check("device", "--sim", "--short", "--out", self.out / "results", "--only", "[!h]*", build=build)
        self.assertEqual(done.returncode, 1, done.stdout)
        steps = json.loads((self.out / "results/results.json").read_text())["steps"]
        self.assertEqual(steps["device/copies"]["verdict"], "fail")
        self.assertIn("signal 11", steps["device/copies"]["reason"])
        for name in ("facts", "launches", "wake", "profile"):
            self.assertEqual(steps[f"device/{name}"]["verdict"], "pass", steps[f"device/{name}"])
        self.assertIn("signal 11", (self.out / "results/report.md").read_text())

    def test_wrong_usage_is_one_line_and_2(self):
        for words in (("shearing",), ("cost", "--budget", "0", "--sim"), ("cost", "--short")):
            done = check(*words, "--out", self.out)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
            self.assertTrue(done.stderr.startswith("lull: gpu-check: "), done.stderr)
        done = check("cost", "--sim", "--out", self.out, build=self.out)
        self.assertEqual(done.returncode, 2)
        self.assertIn("cmake --preset release", done.stderr)


class EveryWay(unittest.TestCase):
    """real_pairs with a stand-in for MPS."""

    def test_every_way_is_measured_in_every_round_and_the_granted_priority_is_told(self):
        ways = (Way(DEFAULT), Way("guarded, MPS, priority", True, mps.BELOW_NORMAL, "guarded"))
        with lab.context_with_fake_mps() as context:
            specs = [(name, tasks.played(context, context.root / f"examples/workloads/{name}.json", 1)) for name in ("chatty_inference", "dense_inference")]
            plain_run, plain_now = context.lull_run, context.model_now_ns
            context.lull_run = lambda *words: plain_run(*words)[:-1] + ["--sim", "--"]

            def model_now_ns(device):
                context.sim = True
                now = plain_now(device)
                context.sim = False
                return now
            context.model_now_ns = model_now_ns
            with mps.service(context) as service:
                ways = [(way, real_pairs._envs(context, way, service)) for way in ways]
                made, granted = real_pairs.measure(context, *specs, ways, service, pairs.Timing(0.15, 0.02, 2))
        self.assertEqual({name: {which: len(windows) for which, windows in pair.windows.items()} for name, pair in made.items()},
                         {DEFAULT: {"alone": 2, "low alone": 2, "together": 2}, "guarded, MPS, priority": {"alone": 2, "low alone": 0, "together": 2}})
        self.assertEqual(granted, {"guarded, MPS, priority": 1})
        cells, rows, _ = real_pairs.shown_as(made)
        self.assertEqual(len(cells), 2)
        self.assertGreater(rows[DEFAULT]["mean"], 0)


class AroundModels(unittest.TestCase):
    """models.py and the runs around it, on the simulated GPU, with tests/gpu/fake_torch for PyTorch."""

    def context(self):
        stack = lab.context()
        context = stack.__enter__()
        self.addCleanup(stack.__exit__, None, None, None)
        context.torch = lambda needed=True: {"python": sys.executable, "torch": "stand-in", "gpu": True}
        context.model_now_ns = time.monotonic_ns  # a model's own clock
        plain = context.env
        context.env = lambda **more: plain(PYTHONPATH=lab.ROOT / "tests/gpu/fake_torch", **more)
        return context

    def models(self, context, *words):
        return [sys.executable, context.root / "tools/gpu_check/models.py", *words]

    def test_every_mode_and_feature_is_counted_to_the_launch(self):
        context = self.context()
        with context.daemon() as daemon:
            for words in (("mlp",), ("mlp", "--mode", "train"), ("mlp", "--feature", "compile"), ("decoder", "--feature", "graph"), ("bert", "--mode", "train", "--feature", "workers")):
                with self.subTest(words):
                    one = counting.count(context, daemon, self.models(context, *words, "--iterations", "4", "--warmup", "1"))
                    self.assertEqual(one.differences, [])
                    self.assertEqual(one.client["launches"], 5 * 5)  # five kernels, four iterations and a warm-up

    def test_a_model_of_many_kernels_is_counted_whole_though_lulld_answers_in_pages(self):
        context = self.context()
        with context.daemon() as daemon:
            one = counting.count(context, daemon, self.models(context, "mlp", "--iterations", "2", "--warmup", "1"),
                                 context.env(FAKE_TORCH_SHAPES=600))
            self.assertEqual(one.client["launches"], 3 * 600)
            self.assertGreaterEqual(len({tuple(kernel["grid"]) for kernel in one.kernels}), 600)
            self.assertEqual(sum(kernel["launches"] for kernel in one.kernels) + one.client["dropped"], 3 * 600)

    def test_where_cupti_cannot_record_the_profiler_stands_in(self):
        context = self.context()
        step = interception._torch("mlp", "--iterations", "3", "--warmup", "1")
        found = step(context)
        self.assertIn("held against PyTorch's profiler: 20 kernels", found["lines"])
        self.assertEqual(found["differences"], [])

    def test_a_pair_of_models_has_a_row_for_each_way_of_sharing(self):
        context = self.context()
        rows = pairs.measure(context, ("high", tasks.model(context, "mlp")), ("low", tasks.model(context, "bert", "--batch", "4")),
                             ["share", "priority"], pairs.Timing(0.4, 0.2))
        self.assertEqual([(r["how"], r["role"]) for r in rows], [
            ("alone", "high"), ("alone", "low"), ("default sharing", "high"), ("default sharing", "low"), ("alone under lull", "high"),
            ("lull: share", "high"), ("lull: share", "low"), ("lull: priority", "high"), ("lull: priority", "low")])
        for row in rows:
            if row["role"] == "high":
                self.assertGreater(row["count"], 0, row)
                self.assertGreater(row["p50"], 0)

    def test_cost_alternates_between_bare_and_lull(self):
        context = self.context()
        cost_of = cost._model("mlp", "mlp", window_s=0.2, rounds=2)
        found = cost_of(context)
        self.assertEqual(found["p50"]["rounds"], 2)
        self.assertGreater(found["p50"]["bare_p50"], 0)
        self.assertGreater(found["iterations"], 10)

    def test_a_model_that_does_not_start_is_said(self):
        context = self.context()
        with self.assertRaisesRegex(Exception, "fails without lull too|does not get ready"):
            with context.daemon() as daemon:
                counting.count(context, daemon, self.models(context, "no_such_model"))


if __name__ == "__main__":
    unittest.main()
