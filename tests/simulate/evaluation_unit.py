"""The pure parts of tools/simulate/matrix and ablations, on made-up results: the arithmetic of the
verdict, which cases there are, what the pages say."""

import json
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools/simulate"), str(ROOT / "tools")]
sys.dont_write_bytecode = True

from evaluation import ablations, ablations_page, bars, cases, matrix, page, plot  # noqa: E402
from evaluation.cases import Case, Unusable, Workload  # noqa: E402


def one(mean=1.0, p99=None, low=0.5, oracle=None, valid=True):
    return {"requests": 1000, "mean": mean, "p99": p99, "low": low, "oracle": oracle, "valid": valid, "reason": "" if valid else "too few"}


def judged(*by_policy, sharing="serial"):
    """The bars by name, of cases named 1, 2, .."""
    return {bar.name: bar for bar in bars.judge({str(i): (sharing, policies) for i, policies in enumerate(by_policy, 1)})}


def guarded(*figures):
    return judged(*({"guarded": figure} for figure in figures))


class Rows(unittest.TestCase):
    ROWS = [
        {"policy": "alone", "role": "high", "completed": 1000, "jct_ms_mean": 4.0, "slowdown_p99": 1.0, "valid": True, "reason": ""},
        {"policy": "guarded", "role": "high", "completed": 1000, "jct_ms_mean": 4.1, "slowdown_mean": 1.02, "slowdown_p99": 1.04,
         "throughput_ratio": 0.98, "valid": True, "reason": ""},
        {"policy": "guarded", "role": "low", "completed": 7, "jct_ms_mean": None, "slowdown_p99": None, "throughput_ratio": 0.4,
         "oracle_share": 0.93, "oracle_found_share": 0.95, "valid": True, "reason": ""}]

    def test_the_figures_of_a_policy_are_of_both_rows(self):
        found = bars.figures({"rows": self.ROWS})["guarded"]
        self.assertEqual((found["requests"], found["mean"], found["p99"], found["low"]), (1000, 1.02, 1.04, 0.4))
        self.assertEqual((found["oracle"], found["oracle_found"], found["oracle0"]), (0.93, 0.95, None))

    def test_a_bound_of_the_oracle_is_no_oracle(self):
        for kind, wanted in (("exact", (0.93, None)), ("close", (0.93, None)), ("estimate", (0.93, None)), ("bound", (None, 0.93))):
            found = bars.figures({"oracle": kind, "rows": self.ROWS})["guarded"]
            self.assertEqual((found["oracle"], found.get("oracle_bound")), wanted)

    def test_p99_counts_with_a_thousand_requests_only(self):
        few = [{**row, "completed": min(row["completed"], 999)} for row in self.ROWS]
        found = bars.figures({"rows": few})["guarded"]
        self.assertEqual((found["p99"], found["p99_of_fewer"]), (None, 1.04))


class Bound(unittest.TestCase):
    def test_mean_and_p99_are_both_held(self):
        self.assertTrue(bars.keeps(one(1.03, 1.05)))  # the bound itself
        self.assertFalse(bars.keeps(one(1.0301, 1.0)))
        self.assertFalse(bars.keeps(one(1.0, 1.0501)))
        self.assertTrue(bars.keeps(one(1.0299)))

    def test_what_is_not_valid_keeps_nothing(self):
        self.assertFalse(bars.keeps(one(valid=False)))
        self.assertFalse(bars.keeps({**one(), "mean": None}))

    def test_nineteen_of_twenty_are_enough(self):
        enough = guarded(*[one()] * 19, one(1.04))["bound"]
        self.assertTrue(enough.met)
        self.assertEqual([name for name, _ in enough.failing], ["20"])
        self.assertFalse(guarded(*[one()] * 18, one(1.04), one(1.04))["bound"].met)
        self.assertFalse(guarded(*[one()] * 18, one(1.04), one(valid=False))["bound"].met)

    def test_the_bound_may_be_exceeded_by_its_own_size(self):
        self.assertTrue(guarded(one(1.0599, 1.0999))["excess"].met)
        for figure in (one(1.061), one(1.0, 1.101), one(valid=False)):
            bar = guarded(one(), figure)["excess"]
            self.assertFalse(bar.met)
            self.assertEqual([name for name, _ in bar.failing], ["2"])
        self.assertIn("(2)", guarded(one(1.01), one(1.02), one(1.0))["excess"].found)


class Stress(unittest.TestCase):
    def bars(self, *figures):
        return bars.judge_stress({str(i): ("mps", {"guarded": one}) for i, one in enumerate(figures, 1)})

    def test_it_is_held_to_the_same_bound(self):
        kept, excess = self.bars(*[one(1.03, 1.05)] * 19, one(1.0, 1.09))
        self.assertTrue(kept.met and excess.met)
        self.assertEqual(kept.failing, [("20", "mean 1.0000x, p99 1.0900x")])
        kept, excess = self.bars(one(), one(1.061))
        self.assertFalse(kept.met or excess.met)
        self.assertEqual([bar.met for bar in self.bars()], [None, None])
        self.assertTrue(all("stressed" in bar.wanted for bar in (kept, excess)))


class AgainstOthers(unittest.TestCase):
    def test_97_percent_of_priority_where_priority_keeps_the_bound(self):
        def bar(theirs, ours):
            return judged({"priority": theirs, "guarded": ours})["priority"]
        self.assertTrue(bar(one(low=0.5), one(low=0.4851)).met)
        self.assertFalse(bar(one(low=0.5), one(low=0.4849)).met)
        self.assertIsNone(bar(one(1.5, low=0.5), one(low=0.1)).met)  # it does not keep it: nothing to judge by
        self.assertIsNone(bar(one(1.0, 1.06, low=0.5), one(low=0.1)).met)
        self.assertFalse(bar(one(low=0.5), {**one(), "low": None}).met)

    def test_all_of_fikit_but_for_phase_luck(self):
        self.assertTrue(judged({"fikit": one(low=0.2), "guarded": one(low=0.1991)})["fikit"].met)
        self.assertFalse(judged({"fikit": one(low=0.2), "guarded": one(low=0.1989)})["fikit"].met)

    def test_one_case_that_misses_is_named_and_enough_to_miss(self):
        bar = judged({"fikit": one(low=0.2), "guarded": one(low=0.3)}, {"fikit": one(low=0.2), "guarded": one(low=0.1)})["fikit"]
        self.assertFalse(bar.met)
        self.assertEqual(bar.failing, [("2", "0.1000 against 0.2000: 0.500")])
        self.assertIn("50.0 % of 2; worst 0.500 (2)", bar.found)

    def test_a_p99_of_fewer_requests_excuses_nothing_and_one_of_enough_does(self):
        late = {**one(low=0.5), "p99_of_fewer": 1.06, "requests": 120}
        case = ("serial", {"priority": late, "fikit": one(1.2), "guarded": one(low=0.1)})
        told = ("serial", {"priority": one(1.0, 1.0, low=0.5), "guarded": one(low=0.1)})
        few = {"late": case, "kept": case, "told": told, "enough": ("serial", {"priority": late, "guarded": one(low=0.5)})}
        self.assertEqual(bars.undecided(few), ["late", "kept"])
        self.assertEqual(len(bars.judge(few)[2].failing), 3)
        whole = {"late": ("serial", {"priority": one(1.0, 1.06, low=0.5), "guarded": one(low=0.1)}),
                 "kept": ("serial", {"priority": one(1.0, 1.04, low=0.5), "guarded": one(low=0.2)})}
        bar = bars.judge(few, whole)[2]
        self.assertEqual(bar.failing, [("kept", "0.2000 against 0.5000: 0.400"), ("told", "0.1000 against 0.5000: 0.200")])
        self.assertIn("33.3 % of 3", bar.found)
        self.assertIn("1 more do not count: of 1,000 requests priority exceeds 5 % at p99", bar.found)

    def test_nothing_is_too_little(self):
        self.assertTrue(guarded(one(low=0.0001))["something"].met)
        self.assertFalse(guarded(one(), one(low=0.0))["something"].met)
        self.assertFalse(guarded({**one(), "low": None})["something"].met)


class Oracle(unittest.TestCase):
    def test_median_and_worst_on_a_serial_device(self):
        found = guarded(one(oracle=0.95), one(oracle=0.91), one(oracle=0.69))
        self.assertTrue(found["oracle_median"].met)
        self.assertFalse(found["oracle_worst"].met)
        self.assertEqual([name for name, _ in found["oracle_worst"].failing], ["3"])
        self.assertFalse(guarded(one(oracle=0.89), one(oracle=0.9))["oracle_median"].met)

    def test_elsewhere_it_is_a_bound_and_no_bar(self):
        self.assertIsNone(judged({"guarded": one(oracle=0.1)}, sharing="mps")["oracle_worst"].met)

    def test_without_it_nothing_is_said(self):
        self.assertIsNone(guarded(one())["oracle_median"].met)


class Cases(unittest.TestCase):
    A, B, C = (Workload(name, pathlib.Path(f"/somewhere/{name}.json")) for name in ("bert", "vit", "qwen1.5"))

    def test_names_are_the_piece_that_no_other_has(self):
        self.assertEqual(cases.short_names(["h100-bert-small-inference", "h100-qwen1.5-inference", "a100-training"]),
                         ["bert", "qwen1.5", "a100"])
        self.assertEqual(cases.short_names(["a-b", "b-a"]), ["a-b", "b-a"])

    def test_pairs_are_ordered_and_chosen_by_their_beginnings(self):
        self.assertEqual(len(cases.pairs([self.A, self.B])), 4)
        self.assertEqual(cases.pairs([self.A, self.B, self.C], ["qwen:v*", "qwen:*"]), [(self.C, self.B), (self.C, self.A), (self.C, self.C)])
        for wrong in ("qwen", "qwen:gpt", "gpt:*"):
            with self.subTest(wrong), self.assertRaises(Unusable):
                cases.pairs([self.A, self.B, self.C], [wrong])

    def test_what_is_random_is_one_case_a_seed_and_a_closed_loop_without_jitter_is_one(self):
        for jitter_us, wanted in ((12, 3 * 3 * 3), (0, 3 * (1 + 2 * 3))):
            found = cases.full([(self.A, self.B)], jitter_us=jitter_us)
            self.assertEqual(len(found), wanted)
            self.assertEqual(len({case.name for case in found}), len(found))
            self.assertEqual(len({case.slug for case in found}), len(found))
            self.assertEqual({"--jitter-us" in case.words() for case in found}, {jitter_us > 0})

    def test_a_case_of_many_policies_has_a_file_name_of_its_own_that_a_file_system_takes(self):
        names = [f"guarded_without parts={2 ** n}" for n in range(12)]
        slugs = {cases.full([(self.A, self.B)], policies=tuple(names[:n]))[0].slug for n in range(1, 13)}
        self.assertEqual(len(slugs), 12)
        self.assertLessEqual(max(map(len, slugs)), cases.LONGEST_NAME)

    def test_a_stressed_case_is_guarded_alone_late_by_its_seed_and_nothing_for_the_oracle(self):
        found = cases.stress([(self.A, self.B)])
        self.assertEqual(len(found), 3 * 3)
        both = found + cases.full([(self.A, self.B)])
        self.assertEqual(len({case.name for case in both}), len(both))
        self.assertEqual(len({case.slug for case in both}), len(both))
        words = found[-1].words()
        for option, value in (("--sharing", "time_slice"), ("--seed", "3"), ("--policy", "guarded"), ("--control-latency-us", "100"),
                              ("--jitter-us", "50")):
            self.assertEqual(words[words.index(option) + 1], value)
        self.assertEqual(words.count("--policy"), 1)
        self.assertNotIn("--arrivals", words)
        self.assertEqual(words.count("--jitter-us"), 1)

    def test_the_short_form_is_the_three_beside_the_others(self):
        found = cases.ci_pairs([self.A, self.B, self.C, Workload("timesformer", pathlib.Path("t")), Workload("a100", pathlib.Path("a"))])
        self.assertEqual(len(found), 12)
        with self.assertRaises(Unusable):
            cases.ci_pairs([self.A, self.B])

    def test_words_say_what_the_case_is(self):
        words = Case(self.A, self.B, "mps", 0.3, 2, 100, policies=("guarded slack=0",), more=("--predictor", "mean")).words()
        for option, value in (("--sharing", "mps"), ("--arrivals", "0.3"), ("--seed", "2"), ("--iterations", "100"),
                              ("--policy", "guarded slack=0"), ("--predictor", "mean")):
            self.assertEqual(words[words.index(option) + 1], value)
        self.assertNotIn("--arrivals", Case(self.A, self.B).words())

    def test_the_oracle_is_asked_once_on_a_serial_device_in_a_closed_loop(self):
        for case in cases.full([(self.A, self.B)]):
            self.assertEqual("--no-oracle" in case.words(), case.sharing != "serial" or case.load > 0 or case.seed > 1)

    def test_a_result_is_of_one_lull_and_of_one_content(self):
        with tempfile.TemporaryDirectory() as folder:
            def workload(text, name="w"):
                path = pathlib.Path(folder) / f"{name}-{len(text)}-{text[:1]}.json"
                path.write_text(text)
                return Workload(name, path)
            key = Case(workload("a"), workload("b")).key("lull")
            self.assertEqual(key, Case(workload("a", "moved"), workload("b")).key("lull"))
            for other in (Case(workload("c"), workload("b")), Case(workload("b"), workload("a")), Case(workload("a"), workload("b"), "mps"),
                          Case(workload("a"), workload("b"), policies=("share",))):
                self.assertNotEqual(key, other.key("lull"))
            self.assertNotEqual(key, Case(workload("a"), workload("b")).key("another"))


class Pages(unittest.TestCase):
    STEPS = ablations.STEPS

    def data(self):
        policies = {"priority": one(1.001, 1.002), "guarded": one(1.07, 1.01, low=0.2)}
        return {"simulated": True, "date": "2026-01-02", "lull": "lull 1", "device": "simulated H100", "control_latency_us": 10,
                "workloads": {"a": "a.json"}, "policies": ["priority", "guarded"], "cpu_s": 1.0,
                "options": {"iterations": 1000, "warmup": 50, "seconds": 60, "jitter_us": 12}, "problems": {"c beside d": "exit code 1: broke"},
                "cases": {f"a beside b, {sharing}": {"high": "a", "low": "b", "sharing": sharing, "load": 0, "seed": 1, "policies": policies}
                          for sharing in ("serial", "mps")},
                "whole": {"a beside b, mps": {"high": "a", "low": "b", "sharing": "mps", "load": 0, "seed": 1,
                                              "policies": {"priority": one(1.001, 1.06), "guarded": one(1.02, 1.03, low=0.3)}}},
                "stress": {f"a beside b, {sharing}, stressed, seed {seed}": {
                    "high": "a", "low": "b", "sharing": sharing, "load": 0, "seed": seed,
                    "policies": {"guarded": one(1.02, tail, low=0.25 * seed)}} for sharing, seed, tail in
                    (("serial", 1, 1.04), ("serial", 2, 1.051), ("mps", 1, None))}}

    def test_the_title_and_every_part_with_a_figure_say_that_it_is_simulated(self):
        text = page.render(self.data())
        self.assertIn("simulated", text.splitlines()[0])
        for heading in (line for line in text.splitlines() if line.startswith("#")):
            if heading != "## Not run":
                self.assertIn("simulated", heading)

    def test_failing_cases_are_named_and_what_did_not_run_is_too(self):
        text = page.render(self.data())
        for wanted in ("a beside b, serial | mean 1.0700x", "broke", "**missed**", "1 have none", "**1.070 / 1.010** / 0.200",
                       "| mps | closed loop | 1 | 0 | 2.33 | - | - | 0.200 | - | - |"):
            self.assertIn(wanted, text)

    def test_the_stressed_have_a_table_and_bars_of_their_own(self):
        text = page.render(self.data())
        for wanted in ("| a | b | **1.020 / 1.051** / 0.375 (0.250 to 0.500) | 1.020 / - / 0.250 |", "100 us of control latency", "and 3 stressed",
                       "| a beside b, serial, stressed, seed 2 | mean 1.0200x, p99 1.0510x |", "| stress_excess | stressed: never more"):
            self.assertIn(wanted, text)
        self.assertIn("0.0 % of 2", text)  # of the others, as before
        self.assertNotIn("## Stressed", page.render({**self.data(), "stress": {}}))

    def test_those_played_on_have_a_table_and_decide_who_keeps_the_bound(self):
        text = page.render(self.data())
        for wanted in ("2, 1 of them played on, and 3 stressed", "| a beside b, mps | **1.001 / 1.060** / 0.500 | 1.020 / 1.030 / 0.300 |",
                       "in 0.0 % of 1; worst 0.400 (a beside b, serial); 1 more do not count"):
            self.assertIn(wanted, text)
        self.assertNotIn("Played on", page.render({**self.data(), "whole": {}}))

    def test_the_json_is_whole_and_has_a_case_a_line(self):
        text = matrix.one_case_a_line(self.data())
        self.assertEqual(json.loads(text), self.data())
        self.assertEqual(sum("beside b" in line for line in text.splitlines()), 6)

    def test_the_plot_is_well_formed_says_simulated_and_has_a_dot_a_step(self):
        found = {("a<b", "c"): {step.name: one(1 + 0.05 * i, low=i / 10) for i, step in enumerate(self.STEPS)}}
        text = plot.grid(found, [step.name for step in self.STEPS])
        root = xml.etree.ElementTree.fromstring(text)
        circles = [element for element in root.iter() if element.tag.endswith("circle")]
        self.assertEqual(len(circles), 2 * len(self.STEPS))  # the legend has one each
        said = " ".join(element.text or "" for element in root.iter())
        for wanted in ("Simulated", "a<b beside c", "high: slowdown", "low: work against alone", "\u2191 25 %", "bound"):
            self.assertIn(wanted, said)
        self.assertNotIn("<script", text)
        self.assertNotIn("url(", text)

    def test_the_ablations_page_says_what_this_lull_lacks(self):
        found = {("a", "b"): {self.STEPS[0].name: one(1.04)}}
        text = ablations_page.render(found, self.STEPS[:1], {"+ slack": "left out: no setting"}, self.data())
        self.assertIn("simulated", text.splitlines()[0])
        for wanted in ("| + slack | left out: no setting |", "| fikit | 0 of 1 | 1.040 |", "**1.040** / 0.500"):
            self.assertIn(wanted, text)


class Steps(unittest.TestCase):
    def test_each_step_is_one_call_of_its_predictor_and_finds_its_own_figures(self):
        a, b = Cases.A, Cases.B
        chosen = ablations.cases_of([(a, b)], ablations.STEPS, 10)
        self.assertEqual({case.more for case in chosen}, {("--predictor", step.predictor) for step in ablations.STEPS})

        class Folder:
            def find(self, case):
                rows = []
                for policy in case.policies:
                    mean = 1 + (hash_of(policy, case.more) % 1000) / 1000
                    policy += f" ({case.more[1]})"
                    rows += [{"policy": policy, "role": "high", "completed": 10, "jct_ms_mean": 1, "slowdown_mean": mean, "slowdown_p99": 1,
                              "valid": True, "reason": ""}, {"policy": policy, "role": "low", "throughput_ratio": 0.5}]
                return type("Kept", (), {"result": {"rows": rows}})

        def hash_of(policy, more):
            return sum(map(ord, policy + more[1]))
        found = ablations.collect([(a, b)], ablations.STEPS, chosen, Folder())["bert", "vit"]
        self.assertEqual(list(found), [step.name for step in ablations.STEPS])
        for step in ablations.STEPS:
            self.assertEqual(found[step.name]["mean"], 1 + (hash_of(step.policy, ("", step.predictor)) % 1000) / 1000)


class Options(unittest.TestCase):
    def test_bars_are_taken_by_name(self):
        self.assertEqual(matrix.wanted_bars("bound, excess", []), ["bound", "excess"])
        with self.assertRaises(Unusable):
            matrix.wanted_bars("bound,speed", [])

    def test_all_bars_are_those_that_the_cases_are_judged_by(self):
        pair = [(Cases.A, Cases.B)]
        plain, stress = cases.full(pair), cases.stress(pair)
        for chosen, wanted in ((plain, bars.VALUES), (stress, bars.STRESS), (plain + stress, matrix.BARS)):
            self.assertEqual(matrix.wanted_bars("", chosen), list(wanted))

    def test_the_names_are_those_of_the_bars_with_a_case_and_without(self):
        for cases_ in ({}, {"1": ("serial", {"guarded": one(oracle=1.0)})}):
            found = bars.judge(cases_) + bars.judge_stress(cases_)
            self.assertEqual(list(matrix.BARS), [bar.name for bar in found])


if __name__ == "__main__":
    unittest.main()
