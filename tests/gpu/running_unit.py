"""Running parts: what is found stands, nothing stops the rest, and the kernel witness writes the truth."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import lab
from gpu_check import witness
from gpu_check.results import Results, Unusable, passed_before, write_whole
from gpu_check.steps import QUESTIONS, Step, in_order, run_steps
from gpu_check.verdict import Failed, OutOfTime, Skipped


class Stored(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = pathlib.Path(self.folder.name)

    def test_a_later_run_finds_what_an_earlier_one_found(self):
        Results(self.out, False).record("a/b", verdict="pass", seconds=1, reason="", data={"n": 1})
        self.assertEqual(Results(self.out, False).step("a/b")["data"], {"n": 1})

    def test_simulated_and_real_never_mix(self):
        Results(self.out, True).save()
        with self.assertRaisesRegex(Unusable, "simulated"):
            Results(self.out, False)

    def test_a_broken_file_is_refused_and_stays(self):
        (self.out / "results.json").write_text('{"format": 1, "steps"')
        with self.assertRaisesRegex(Unusable, "another --out"):
            Results(self.out, False)
        (self.out / "results.json").write_text('{"format": 99, "steps": {}}')
        with self.assertRaises(Unusable):
            Results(self.out, False)

    def test_a_write_that_fails_leaves_the_old_file(self):
        write_whole(self.out / "x", "old")
        with self.assertRaises(TypeError):
            write_whole(self.out / "x", None)
        self.assertEqual((self.out / "x").read_text(), "old")
        self.assertEqual([p.name for p in self.out.iterdir()], ["x"])


class Running(unittest.TestCase):
    def run_steps(self, context, steps, budget_s=60, again=False):
        said = []
        left = run_steps([(f"part/{step.name}", step) for step in steps], context, budget_s, again, said.append)
        return left, {name.split("/")[1]: step["verdict"] for name, step in context.results.data["steps"].items()}, said

    def test_a_failure_a_crash_and_a_hang_stop_nothing(self):
        def raises(_):
            raise ValueError("a bug")

        def fails(_):
            raise Failed("not so", {"found": 3})

        def crashes(context):
            done = context.run(["/bin/sh", "-c", "kill -SEGV $$"], 120)
            if not done.good:
                raise Failed(done.why())

        def hangs(context):
            done = context.run(["/bin/sh", "-c", "sleep 1000 & sleep 1000"], 0.3)
            self.assertTrue(done.timed_out)
            raise Failed(done.why())

        def skips(_):
            raise Skipped("nothing here")

        with lab.context() as context:
            steps = [Step(f.__name__, f) for f in (raises, fails, crashes, hangs, skips)] + [Step("passes", lambda _: {"n": 1})]
            left, verdicts, _ = self.run_steps(context, steps)
            self.assertEqual(left, 0)
            self.assertEqual(verdicts, {"raises": "fail", "fails": "fail", "crashes": "fail", "hangs": "fail", "skips": "skipped",
                                        "passes": "pass"})
            found = context.results.data["steps"]
            self.assertIn("signal 11", found["part/crashes"]["reason"])
            self.assertIn("still running", found["part/hangs"]["reason"])
            self.assertIn("a bug", found["part/raises"]["reason"])
            self.assertEqual(found["part/fails"]["data"], {"found": 3})

    def test_what_a_step_started_is_gone_behind_it(self):
        pids = []
        with lab.context() as context:
            def leaves(context):
                child = context.children.start(["/bin/sh", "-c", "sleep 1000 & echo $!; wait"], context.env())
                child.wait_for(lambda: child.out().strip(), 120)
                pids.extend([child.pid, int(child.out())])
            self.run_steps(context, [Step("leaves", leaves)])
            for pid in pids:
                end = time.monotonic() + 120
                while _runs(pid) and time.monotonic() < end:
                    time.sleep(0.01)
                self.assertFalse(_runs(pid))

    def test_no_step_begins_when_the_time_is_up_and_the_next_run_goes_on(self):
        with lab.context() as context:
            steps = [Step("first", lambda _: {}, 1), Step("long", lambda _: {}, 101), Step("short", lambda _: {}, 1)]
            context.sim = False
            left, verdicts, said = self.run_steps(context, steps, budget_s=100)
            self.assertEqual((left, verdicts), (2, {"first": "pass"}))
            self.assertIn("2 steps left", said[-1])
            left, verdicts, said = self.run_steps(context, steps, budget_s=2000)
            self.assertEqual((left, len(verdicts)), (0, 3))
            self.assertIn("as found before", said[0])

    def test_a_step_cut_off_by_the_budget_is_not_finished(self):
        def cut(_):
            raise OutOfTime()
        with lab.context() as context:
            left, verdicts, _ = self.run_steps(context, [Step("cut", cut)])
            self.assertEqual((left, verdicts), (1, {}))

    def test_without_a_device_what_needs_one_is_skipped_with_the_reason(self):
        with lab.context() as context:
            context.no_device = "no driver"
            _, verdicts, _ = self.run_steps(context, [Step("device", lambda _: {}), Step("host", lambda _: {}, host_only=True)])
            self.assertEqual(verdicts, {"device": "skipped", "host": "pass"})

    def test_where_a_device_is_there_at_last_what_lacked_it_is_asked(self):
        steps = [Step("device", lambda _: {}), Step("host", lambda _: {}, host_only=True)]
        with lab.context() as context:
            context.no_device = "no driver"
            self.run_steps(context, steps)
            _, verdicts, said = self.run_steps(context, steps)
            self.assertEqual([line for line in said if "as found before" not in line], [])
            context.no_device = ""
            _, verdicts, said = self.run_steps(context, steps)
            self.assertEqual(verdicts, {"device": "pass", "host": "pass"})
            self.assertIn("host: pass, as found before", said[-1])
            self.run_steps(context, steps)
            self.assertTrue(context.results.finished("part/device"))

    def test_a_report_that_cannot_be_written_stops_nothing(self):
        def unwritable():
            raise OSError("no space left")
        said = []
        with lab.context() as context:
            steps = [(f"part/{name}", Step(name, lambda _: {})) for name in ("first", "second")]
            self.assertEqual(run_steps(steps, context, 60, False, said.append, unwritable), 0)
            self.assertEqual(len(context.results.data["steps"]), 2)
        self.assertIn("the report cannot be written: OSError: no space left", said)

    def test_figures_that_cannot_be_stored_fail_their_step_and_nothing_else(self):
        with lab.context() as context:
            steps = [Step("nan", lambda _: {"x": float("nan")}), Step("set", lambda _: {"x": {1}}), Step("passes", lambda _: {})]
            left, verdicts, _ = self.run_steps(context, steps)
            self.assertEqual((left, verdicts), (0, {"nan": "fail", "set": "fail", "passes": "pass"}))
            self.assertIn("cannot be stored", context.results.step("part/nan")["reason"])

    def test_open_questions_come_first_and_what_is_known_last(self):
        steps = [(f"p/{name}", Step(name, None, question=question, closing=closing)) for name, question, closing in (
            ("old", None, False), ("closing", None, True), ("known question", 1, False), ("last question", 5, False), ("first question", 1, False),
            ("also first", 1, False), ("second question", 7, False), ("never asked", None, False))]
        before = {"p/old": None, "p/known question": "yes", "p/closing": None, "p/also first": None, "p/second question": "not decided"}
        self.assertEqual([step.name for _, step in in_order(steps, before)],
                         ["first question", "also first", "second question", "last question", "never asked", "old", "known question", "closing"])
        self.assertEqual(sorted(QUESTIONS), list(range(1, 10)))

    def test_what_passed_on_a_gpu_of_this_kind_is_known(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, gpu, simulated in (("a", "H100", False), ("b", "H200", False), ("c", "H100", True)):
                results = Results(pathlib.Path(folder) / name, simulated)
                results.set_machine({"gpu": gpu})
                results.record(f"{name}/passed", verdict="pass", data={})
                results.record(f"{name}/decided", verdict="pass", data={"decision": {"answer": "yes"}})
                results.record(f"{name}/failed", verdict="fail", data={})
            self.assertEqual(passed_before(folder, "H100"), {"a/passed": None, "a/decided": "yes"})
            self.assertEqual(passed_before(folder, "H400"), {})
        for path in (lab.ROOT / "docs/hardware").glob("*/results.json"):
            self.assertTrue(passed_before(lab.ROOT / "docs/hardware", json.loads(path.read_text())["machine"]["gpu"]))

    def test_a_closing_step_runs_out_of_budget_too_and_again_after_every_new_result(self):
        ran = []
        with lab.context() as context:
            context.sim = False
            steps = [Step("first", lambda _: {}, 1), Step("long", lambda _: {}, 1000),
                     Step("closing", lambda context: ran.append(context.timeout(9)), 10, closing=True)]
            self.run_steps(context, steps, budget_s=6)
            self.assertEqual(ran, [9])
            self.run_steps(context, steps, budget_s=6)
            self.assertEqual(len(ran), 1)
            self.run_steps(context, steps, budget_s=6000)
            self.assertEqual(len(ran), 2)

    def test_again_asks_again(self):
        asked = []
        with lab.context() as context:
            for again in (False, False, True):
                self.run_steps(context, [Step("one", lambda _: asked.append(1))], again=again)
        self.assertEqual(len(asked), 2)


def _runs(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


class KernelWitness(unittest.TestCase):
    """The library itself, with a stand-in for CUPTI."""

    LIBRARY = lab.BUILD / "lib/lull/check/libkernel_witness.so"

    def inject(self, **more):
        with tempfile.TemporaryDirectory() as folder:
            prefix = f"{folder}/w"
            code = f"import ctypes; l = ctypes.CDLL({str(self.LIBRARY)!r}); assert l.InitializeInjection() == 1; l.lull_witness_flush()"
            child = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "LULL_WITNESS_OUT": prefix, **more})
            self.assertEqual(child.wait(120), 0)
            return witness.read(prefix, child.pid)

    def setUp(self):
        if not self.LIBRARY.exists():
            self.skipTest("not built")

    def test_every_field_arrives(self):
        seen = self.inject(LULL_WITNESS_CUPTI=str(lab.BUILD / "tests/libfake_cupti.so"))
        self.assertEqual(seen.version, 130001)
        self.assertEqual([tuple(k) for k in seen.kernels], [
            (1000, 3000, 0, 1, 7, 55, 0, (3, 2, 1), (128, 1, 1), 4096, "_Z4workPf"),
            (4000, 4500, 0, 1, 7, 55, 77, (3, 2, 1), (128, 1, 1), 4096, "in_a_graph")])
        self.assertEqual([(t.kind, t.start_ns, t.end_ns, t.stream, t.bytes) for t in seen.transfers],
                         [("copy", 3500, 3600, 7, 65536), ("memset", 5000, 5100, 7, 512)])
        self.assertEqual((seen.complete, seen.dropped), (True, 2))
        self.assertEqual(seen.problems, ["1 records made no sense"])

    def test_a_library_that_is_no_cupti_is_written_down_and_harms_nobody(self):
        seen = self.inject(LULL_WITNESS_CUPTI="/nowhere/libcupti.so", LD_LIBRARY_PATH="/nowhere")
        if seen.version is None:
            self.assertTrue(seen.problems)
            self.assertFalse(seen.usable())

    def test_without_a_file_to_write_it_does_nothing(self):
        self.assertIsNone(self.inject(LULL_WITNESS_OUT=""))


class Carried(unittest.TestCase):
    def test_the_json_of_a_run_is_plain(self):
        # NaN would be no JSON: it is refused where it arises, not by whoever reads the report.
        with tempfile.TemporaryDirectory() as folder:
            results = Results(folder, True)
            with self.assertRaises(ValueError):
                results.record("a/b", verdict="pass", data={"x": float("nan")})
            self.assertNotIn("NaN", (pathlib.Path(folder) / "results.json").read_text() if results.path.exists() else "")
            json.dumps({})


if __name__ == "__main__":
    unittest.main()
