"""tools/simulate/population: programs made from a seed, and its short form with the lull of this build.
Every figure is simulated."""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LULL = pathlib.Path(os.environ.get("LULL_BUILD_DIR", ROOT / "build/dev")) / "bin/lull"
sys.path[:0] = [str(ROOT / "tools/simulate"), str(ROOT / "tools")]
from evaluation import families, population, population_page  # noqa: E402
from evaluation.draws import Curve, Draws, OneOf, Span  # noqa: E402


def programs(family, count=6):
    return [families.make(family, f"{family}-{number}", Draws("test", family, number)) for number in range(count)]


class Draw(unittest.TestCase):
    def test_a_value_depends_on_its_names_alone(self):
        draws = Draws("seed", 1)
        first = draws.share("a")
        draws.share("b")
        self.assertEqual(draws.share("a"), first)
        self.assertNotEqual(Draws("seed", 2).share("a"), first)
        self.assertNotEqual(Draws("seed", 1).of("x").share("a"), first)

    def test_a_span_is_log_uniform_within_its_ends(self):
        span = Span(10, 1000, "test")
        self.assertEqual((span.at(0.0), span.at(0.5)), (10, 100))
        values = [Draws("spans").draw(span, number) for number in range(2000)]
        self.assertTrue(all(span.contains(value) for value in values))
        self.assertTrue(0.45 < sum(value < 100 for value in values) / 2000 < 0.55)
        self.assertTrue(max(values) > 950 and min(values) < 11)

    def test_one_of_gives_each_value_and_a_curve_its_quantiles(self):
        some = OneOf(("a", "b", "c"), "test")
        self.assertEqual({Draws("some").draw(some, number) for number in range(60)}, {"a", "b", "c"})
        curve = Curve("test", ((0, 1), (0.5, 2), (1, 10)))
        self.assertEqual([curve.at(share) for share in (0, 0.25, 0.5, 0.75)], [1, 1.5, 2, 6])


class Families(unittest.TestCase):
    def test_the_same_seed_gives_the_same_bytes_in_another_process(self):
        ours = hashlib.sha256()
        for pair in population.make_pairs("bytes", 6):
            ours.update((pair.high.text() + pair.low.text()).encode())
        words = ("import hashlib, sys; sys.path[:0] = sys.argv[1:]; from evaluation import population; h = hashlib.sha256()\n"
                 "for p in population.make_pairs('bytes', 6): h.update((p.high.text() + p.low.text()).encode())\nprint(h.hexdigest())")
        done = subprocess.run([sys.executable, "-c", words, str(ROOT / "tools/simulate"), str(ROOT / "tools")], capture_output=True, text=True,
                              timeout=60, check=True, env=os.environ | {"PYTHONHASHSEED": "77"})
        self.assertEqual(done.stdout.strip(), ours.hexdigest())

    def test_a_draw_is_the_same_on_every_machine(self):
        """Figures of different machines are of the same programs: a changed generator changes this and every page."""
        self.assertEqual([Draws("pinned").draw(Span(2, 30, ""), number) for number in range(4)], PINNED)

    def test_another_seed_gives_other_programs_and_more_pairs_the_same_first_ones(self):
        few, more, other = (population.make_pairs(seed, count) for seed, count in (("a", 4), ("a", 9), ("b", 4)))
        self.assertEqual([(p.high.text(), p.load, p.sharing) for p in few], [(p.high.text(), p.load, p.sharing) for p in more[:4]])
        self.assertNotEqual([p.high.text() for p in few], [p.high.text() for p in other])

    def test_every_value_is_within_its_range_and_every_range_names_a_source(self):
        for family, parameters in families.FAMILIES.items():
            for name, parameter in (parameters | families.SPEED).items():
                self.assertTrue(parameter.source, f"{family} {name}")
                for number in range(50):
                    self.assertTrue(parameter.contains(Draws(family, number).draw(parameter, name)), f"{family} {name}")

    def test_pauses_and_lengths_differ_from_launch_to_launch(self):
        program = next(p for p in programs("training") if p.launches > 200)
        pauses = {op.get("pause_ns", 0) for op in program.ops if "launch" in op}
        self.assertGreater(len(pauses), 100)
        self.assertGreater(len({op["duration_ns"] for op in program.ops if "launch" in op}), 50)

    def test_what_makes_a_family_is_there(self):
        def some(family, wanted):
            self.assertTrue(any(wanted(program) for program in programs(family, 12)), family)

        names = {family: {key[0] for program in programs(family, 12) for key in program.kernels} for family in families.FAMILIES}
        self.assertIn("graph_decode", names["decode_with_graphs"])
        self.assertIn("graph_piece", names["decode_with_graphs"])
        self.assertIn("ncclDevKernel_AllReduce_Sum_f32_RING", names["data_parallel"])
        self.assertIn("gauss_seidel", names["hpc"])
        some("training_with_streams", lambda program: program.streams >= 4 and any("wait" in op for op in program.ops))
        some("training", lambda program: sum("sync" in op for op in program.ops) == 1 and program.launches > 2000)
        some("changing_shapes", lambda program: len({key[1] for key in program.kernels if key[0] == "project_out"}) > 1)
        some("diffusion", lambda program: "graph_denoise" in {key[0] for key in program.kernels})
        for program in programs("pipeline"):
            self.assertGreater(sum("sync" in op for op in program.ops), 1)

    def test_every_family_is_a_workload_that_lull_simulate_takes(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lull-families-"))
        self.addCleanup(shutil.rmtree, folder)
        for family in families.FAMILIES:
            path = folder / f"{family}.json"
            path.write_text(programs(family, 1)[0].text())
            done = subprocess.run([LULL, "simulate", "--high", path, "--low", ROOT / "examples/workloads/chatty_inference.json", "--iterations", "1",
                                   "--warmup", "0", "--seconds", "30", "--policy", "share", "--no-oracle", "--json", "-"],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, f"{family}: {done.stderr}")
            self.assertEqual(json.loads(done.stdout)["rows"][0]["role"], "high")


class Pairs(unittest.TestCase):
    def test_they_are_spread_over_families_sharings_and_arrivals(self):
        pairs = population.make_pairs("spread", 33)
        for key in ("high_family", "low_family"):
            counts = [sum(getattr(pair, key) == family for pair in pairs) for family in families.FAMILIES]
            self.assertEqual(set(counts), {3}, key)
        self.assertEqual({sum(pair.sharing == one for pair in pairs) for one in ("serial", "mps", "time_slice")}, {11})
        arriving = [pair for pair in pairs if pair.load]
        self.assertTrue(6 <= len(arriving) <= 18)
        self.assertTrue(all(pair.high_family in families.SERVING and 0.2 <= pair.load <= 0.8 for pair in arriving))

    def test_long_requests_are_fewer(self):
        for pair in population.make_pairs("cap", 9):
            requests = pair.requests(2)
            self.assertTrue(population.FEWEST_REQUESTS <= requests <= population.REQUESTS)
            if requests > population.FEWEST_REQUESTS:
                self.assertLessEqual(requests * pair.high.launches * 3, population.LAUNCHES)

    def test_the_judging_seed_is_the_last_commit_that_touched_a_policy(self):
        found = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%H", "--", "policies"], capture_output=True, text=True, timeout=60)
        if found.returncode != 0 or not found.stdout.strip():
            self.skipTest("no checkout")
        self.assertEqual(population.seed_of("judging"), found.stdout.strip())
        self.assertEqual({population.seed_of(name) for name in ("tuning", "ablation")}, {"tuning", "ablation"})


def run(number, priority, guarded, problem="", **more):
    policies = {} if problem else {name: {"mean": mean, "p99": None, "low": low, "valid": True} for name, (mean, low) in
                                   (("priority", priority), ("guarded", guarded))}
    return {"pair": number, "sharing": "mps", "load": 0.0, "high": "hpc", "low": "prefill", "requests": 100, "problem": problem,
            "policies": policies} | more


class Page(unittest.TestCase):
    RUNS = [run(0, (1.0, 0.5), (1.02, 0.49)), run(1, (1.1, 0.9), (1.031, 0.2)), run(2, (1.01, 0.5), (1.02, 0.4)), run(3, None, None, "not done")]

    def test_a_failed_run_keeps_nothing_and_low_work_counts_where_the_reference_keeps_its_bound(self):
        priority, guarded = population_page.verdict_rows(self.RUNS, ["priority", "guarded"])
        self.assertEqual(guarded[:4], ["guarded", "50.0 % of 4", "0", "1"])
        self.assertEqual(priority[:4], ["priority", "50.0 % of 4", "1", "1"])
        self.assertTrue(guarded[-1].startswith("50.0 % of 2"), guarded)
        self.assertEqual(priority[-1], "-")
        self.assertEqual(population_page.verdict_names(self.RUNS)[-1], "at least 0.97 of priority's low work")

    def test_an_open_gate_is_a_reference_under_mps_only_and_the_oracle_where_it_was_asked(self):
        def one(sharing, share, guarded, oracle=None):
            figures = {name: {"valid": True, "mean": mean, "low": low} for name, (mean, low) in (("share", share), ("guarded", guarded))}
            return run(0, (1.0, 1.0), (1.0, 1.0)) | {"sharing": sharing, "policies": figures | {"guarded": figures["guarded"] | {"oracle": oracle, "oracle_found": oracle and oracle + 0.1}}}
        runs = [one("mps", (1.0, 0.5), (1.0, 0.48)), one("mps", (1.1, 0.9), (1.0, 0.1)), one("serial", (1.0, 0.5), (1.0, 0.1))]
        self.assertTrue(population_page.verdict_rows(runs, ["guarded"])[0][-1].startswith("100.0 % of 1, median 0.96"))
        runs += [one("serial", (1.0, 0.5), (1.0, 0.1), oracle=share) for share in (0.4, 0.5, 0.9)]
        self.assertEqual(population_page.verdict_names(runs)[-2:], ("at least 0.5 of the oracle's", "at least 0.5 of what it found"))
        shares, of_found = population_page.verdict_rows(runs, ["guarded"])[0][-2:]
        self.assertTrue(shares.startswith("66.7 % of 3, median 0.5"), shares)
        self.assertTrue(of_found.startswith("100.0 % of 3, median 0.6"), of_found)

    def test_a_share_of_the_oracle_that_is_not_known_keeps_its_place(self):
        one = {"mean": 1.01, "p99": 1.02, "low": 0.5, "valid": True}
        for shares, text in (({}, ""), ({"oracle": 0.6, "oracle_found": 0.8}, " / 0.600 / 0.800"), ({"oracle": 0.6}, " / 0.600 / -"),
                             ({"oracle": None, "oracle_found": 0.8}, " / - / 0.800")):
            self.assertEqual(population_page._cell(one | shares), "1.010 / 1.020 / 0.500" + text)

    def test_every_table_of_figures_says_that_it_is_simulated_and_every_run_is_there(self):
        text = population_page.render({"runs": self.RUNS, "policies": ["priority", "guarded"], "seed": "s", "set": "", "date": "2026-01-01",
                                       "lull": "lull", "device": "simulated", "control_latency_us": 10, "cpu_s": 1})
        for line in text.splitlines():
            if line.startswith("## ") and line != "## What is drawn":
                self.assertIn("(simulated)", line)
        for number in range(4):
            self.assertIn(f"| {number} | hpc |", text)
        self.assertIn("not done", text)
        self.assertIn("**1.031", text)


class ShortForm(unittest.TestCase):
    def setUp(self):
        self.out = pathlib.Path(tempfile.mkdtemp(prefix="lull-population-"))
        self.addCleanup(shutil.rmtree, self.out, ignore_errors=True)

    def command(self, *options):
        words = [ROOT / "tools/simulate/population", "--lull", LULL, "--out", self.out, *options]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=170)
        return done.returncode, done.stdout, done.stderr

    def test_three_pairs(self):
        code, out, err = self.command("--seed", "short 45", "--pairs", "3", "--iterations", "10")
        self.assertEqual(code, 0, err)
        self.assertIn("simulated, 3 pairs of seed short 45", out)
        first = json.loads((self.out / "population.json").read_text())
        self.assertTrue(first["simulated"])
        self.assertEqual([one["sharing"] for one in first["runs"]], ["serial", "mps", "time_slice"])
        for one in first["runs"]:
            self.assertEqual((one["problem"], set(one["policies"])), ("", {"priority", "guarded"}))
            self.assertTrue(one["policies"]["guarded"]["valid"], one)

    def test_the_oracle_is_asked_where_it_can_play(self):
        code, out, err = self.command("--seed", "short 45", "--pairs", "30", "--iterations", "5", "--oracle", "1", "--policies", "guarded")
        self.assertEqual(code, 0, err)
        self.assertIn("at least 0.5 of the oracle's", out)
        found = json.loads((self.out / "population.json").read_text())["runs"]
        self.assertEqual([(one["sharing"], one["load"]) for one in found], [("serial", 0.0)])
        self.assertGreater(found[0]["policies"]["guarded"]["oracle"], 0)
        self.assertIn("of what the oracle gives", (self.out / "oracle.md").read_text())

    def test_a_run_that_fails_is_reported_and_counts(self):
        code, out, err = self.command("--seed", "short 45", "--pairs", "1", "--deadline", "0.001")
        self.assertEqual(code, 1)
        self.assertIn("not done after 0.001 s", err)
        self.assertIn("keeps the bound 0.0 % of 1", out)
        self.assertIn("not done after", (self.out / "population.md").read_text())

    def test_wrong_words_are_named(self):
        for words, wanted in ((("--pairs", "3"), "--seed"), (("--seed", "s", "--pairs", "0"), "--pairs"), (("--seed", "s", "--policies", "best"), "best"),
                              (("--seed", "s", "--devices", "two"), "--devices"), (("--seed", "s", "--pairs", "1", "--oracle", "0"), "--oracle")):
            code, _, err = self.command(*words)
            self.assertEqual(code, 2, err)
            self.assertIn(wanted, err)


PINNED = [2, 13, 2, 7]

if __name__ == "__main__":
    unittest.main()
