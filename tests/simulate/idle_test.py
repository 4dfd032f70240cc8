"""tools/simulate/idle, its short form with the lull of this build: what shares nothing pays nothing."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LULL = pathlib.Path(os.environ.get("LULL_BUILD_DIR", ROOT / "build/dev")) / "bin/lull"
sys.path[:0] = [str(ROOT / "tools/simulate"), str(ROOT / "tools")]
from evaluation import idle, idle_page  # noqa: E402


class Page(unittest.TestCase):
    RUNS = [{"kind": "made", "program": "a", "neighbour": "tiny", "sharing": "mps", "problem": "", "policies": {"share": 1.0, "guarded": 1.01}},
            {"kind": "made", "program": "b", "neighbour": "none", "sharing": "mps", "problem": "", "policies": {"share": 1.0, "guarded": 1.0101}}]

    def test_a_run_over_the_bar_is_told_and_one_that_failed_is_not_within_it(self):
        def data(runs):
            return {"runs": runs, "policies": ["share", "guarded"], "bar": 1.01, "below": False, "date": "", "lull": "", "device": "",
                    "control_latency_us": 10, "made": 2, "seed": "s"}
        self.assertTrue(idle_page.all_within(data(self.RUNS[:1])))
        self.assertFalse(idle_page.all_within(data(self.RUNS)))
        self.assertEqual(idle_page.verdict_rows(data(self.RUNS))[1], ["guarded", "1 of 2", "1.0101", "1.0101"])
        failed = [dict(self.RUNS[0], problem="exit code 1", policies={})]
        self.assertFalse(idle_page.all_within(data(failed)))
        text = idle_page.render(data(self.RUNS + failed))
        self.assertIn("**1.0101**", text)
        self.assertIn("exit code 1", text)


    def test_below_a_neighbour_less_work_is_worse_and_requests_of_a_visitor_are_told(self):
        runs = [dict(self.RUNS[1], policies={"share": 1.0, "guarded": 0.995}, requests_ms={}),
                dict(self.RUNS[1], policies={"share": 1.0, "guarded": 0.9899}, requests_ms={}),
                dict(self.RUNS[0], neighbour="visit", policies={"share": 1.0, "guarded": 0.5}, requests_ms={"share": 2000.0, "guarded": 1.5})]
        data = {"runs": runs, "policies": ["share", "guarded"], "bar": 0.99, "below": True, "date": "", "lull": "", "device": "",
                "control_latency_us": 10, "made": 2, "seed": "s"}
        self.assertFalse(idle_page.all_within(data))
        self.assertTrue(idle_page.all_within(dict(data, runs=runs[:1])))
        self.assertEqual(idle_page.verdict_rows(data)[1], ["guarded", "1 of 2", "0.9899", "0.9925", "1.500", "1.500"])
        page = idle_page.render(data)
        self.assertIn("**0.9899**", page)
        self.assertIn("1.500 ms", page)


class ShortForm(unittest.TestCase):
    def run_idle(self, *words):
        with tempfile.TemporaryDirectory(prefix="lull-idle-") as out:
            done = subprocess.run([ROOT / "tools/simulate/idle", "--lull", LULL, "--out", out, *words], capture_output=True, text=True, timeout=250)
            pages = [page.read_text() for page in pathlib.Path(out).glob("*.md")]
            return done.returncode, done.stdout + done.stderr, "".join(pages)

    def test_programs_lose_at_most_one_percent_beside_an_idle_neighbour(self):
        code, said, page = self.run_idle("--made", "5")
        self.assertEqual(code, 0, said)
        self.assertIn("None.", page)
        self.assertEqual(page.count("| made | "), 2 * 5)
        self.assertEqual(page.count("| shipped | "), 2 * 3 * 4)

    def test_neither_do_programs_that_launch_as_far_ahead_as_the_driver_lets_them(self):
        code, said, page = self.run_idle("--made", "34", "--only", "013-*", "019-*", "033-*")
        self.assertEqual(code, 0, said)
        self.assertEqual(page.count("| made | "), 2 * 3)

    def test_programs_lose_at_most_one_percent_below_an_idle_neighbour(self):
        code, said, page = self.run_idle("--below", "--made", "20", "--only", "013-*", "019-*", "chatty*", "--policies", "share", "priority",
                                         "time_slice")
        self.assertEqual(code, 0, said)
        self.assertIn("None.", page)

    def test_a_wrong_word_is_refused(self):
        self.assertEqual(self.run_idle("--made", "5", "--only", "nothing-*")[0], 2)
        self.assertEqual(self.run_idle("--below", "--made", "5", "--policies", "priority")[0], 2)
        self.assertEqual(self.run_idle("--made", "-1")[0], 2)
        self.assertEqual(self.run_idle("--made", "0", "--policies", "nonsense")[0], 2)


if __name__ == "__main__":
    unittest.main()
