"""The pure parts: figures, slices, profiles, reports, what programs and tools print."""

import json
import unittest

import lab
from gpu_check import (cost, figures, interception, kineto, machine, report, simgpu_profile, slices, tasks, timing, verdict, witness, workloads)
from gpu_check.verdict import UNDECIDED, Failed


class Figures(unittest.TestCase):
    def test_quantiles_lie_between_the_nearest_values(self):
        self.assertEqual(figures.quantile([4, 1, 3, 2], 0.5), 2.5)
        self.assertEqual(figures.quantile([5], 0.99), 5)
        self.assertAlmostEqual(figures.quantile(list(range(101)), 0.99), 99)
        self.assertIsNone(figures.quantile([], 0.5))

    def test_spread_of_nothing_and_of_one(self):
        self.assertEqual(figures.spread([]), {"count": 0})
        self.assertIsNone(figures.spread([3.0])["cv"])

    def test_variation_is_deviation_over_mean(self):
        self.assertAlmostEqual(figures.variation([1.0, 3.0]), 2 ** 0.5 / 2)

    def test_numbers_are_shown_with_three_digits(self):
        self.assertEqual([figures.shown(v) for v in (None, 0.0, 0.01234, 1.0, 123.4, 7, "x", True)],
                         ["-", "0", "0.0123", "1.00", "123", "7", "x", "yes"])

    def test_what_is_no_number_is_shown_all_the_same(self):
        self.assertEqual([figures.shown(v) for v in ([1, 2], float("inf"), float("nan"))], ["[1, 2]", "inf", "nan"])

    def test_the_error_of_a_median_shrinks_with_the_number_of_values(self):
        spread = {"count": 25, "p10": 100.0, "p90": 356.0}
        self.assertAlmostEqual(figures.median_error(spread), 50.0)
        self.assertAlmostEqual(figures.median_error({**spread, "count": 100}), 25.0)
        self.assertIsNone(figures.median_error({**spread, "count": 4}))
        self.assertIsNone(figures.median_error({"count": 0}))

    def test_an_interval_of_the_median_holds_95_percent_by_its_order_statistics(self):
        self.assertIsNone(figures.median_interval(range(5)))
        self.assertEqual(figures.median_interval(range(6)), (0, 5))       # 1 - 2 / 64
        self.assertEqual(figures.median_interval(range(10)), (1, 8))      # the table's: 2nd and 9th
        self.assertEqual(figures.median_interval([9, 1, 8, 2, 7, 3, 6, 4, 5, 0, 11, 10]), (2, 9))

    def test_what_lull_adds_is_told_when_the_interval_lies_on_one_side(self):
        self.assertEqual(cost.judged([20, 21, 22, 23, 24, 25])[0], "yes")
        self.assertEqual(cost.judged([26, 27, 28, 29, 30, 31])[0], "no")
        self.assertEqual(cost.judged([-100, 10, 20, 30, 200, 300])[0], UNDECIDED)
        self.assertEqual(cost.judged([1, 2, 3])[0], UNDECIDED)

    def test_what_policies_cost_beside_an_idle_neighbour_is_told_when_every_interval_lies_on_one_side(self):
        little, much, either = [1.0, 1.001, 1.002, 1.003, 1.004, 1.005], [1.09, 1.1, 1.1, 1.11, 1.12, 1.13], [0.9, 0.99, 1.0, 1.02, 1.03, 1.2]
        self.assertEqual(cost.beside_idle({"priority": little, "guarded": little})[0], "yes")
        self.assertEqual(cost.beside_idle({"priority": little, "guarded": either})[0], UNDECIDED)
        # One policy that costs too much is enough, whatever the other is not known to cost.
        answer, sentence = cost.beside_idle({"priority": either, "guarded": much})
        self.assertEqual(answer, "no")
        self.assertIn("guarded 1.105x (between 1.090 and 1.130 by 6 rounds)", sentence)
        self.assertEqual(cost.beside_idle({"priority": [cost.MOST_BESIDE_IDLE] * 6})[0], "yes")
        self.assertEqual(cost.beside_idle({"priority": much, "guarded": much[:5]}), (UNDECIDED, "5 rounds are too few."))

    def test_alternated_takes_the_difference_of_neighbours(self):
        # The second round is slower for both: the difference is not.
        found = cost.alternated([100.0, 200.0, 100.0], [110.0, 210.0, 110.0])
        self.assertEqual(found["added_p50"], 10)
        self.assertEqual((found["bare_p50"], found["lull_p50"], found["rounds"]), (100, 110, 3))


class Slices(unittest.TestCase):
    def test_two_processes_that_take_turns(self):
        # a runs 0-2, b 2.1-4.1, a 4.2-6.2, ... in units of 1000 ns; a starts at 0, b ends at 8.3.
        a = {"start_ns": 0, "end_ns": 6200, "gaps": [[2000, 4200]]}
        b = {"start_ns": 2100, "end_ns": 8300, "gaps": [[4100, 6300]]}
        found = slices.analyse(a, b)
        self.assertEqual(found["together_ns"], 4100)
        self.assertEqual(found["switch_ns"]["p50"], 100)
        self.assertEqual(found["switch_ns"]["count"], 1)
        self.assertEqual(found["slice_ns"]["count"], 0)  # both runs touch the window's edge

    def test_whole_slices_are_counted_and_nothing_overlaps(self):
        def turns(first):
            runs = [(first + 4200 * i, first + 4200 * i + 2000) for i in range(20)]
            return {"start_ns": runs[0][0], "end_ns": runs[-1][1], "gaps": [[a[1], b[0]] for a, b in zip(runs, runs[1:])]}
        found = slices.analyse(turns(0), turns(2100))
        self.assertEqual(found["slice_ns"]["p50"], 2000)
        self.assertEqual(found["switch_ns"]["p50"], 100)
        self.assertEqual(found["overlap"], 0)

    def test_both_at_once_is_an_overlap_and_no_switch(self):
        found = slices.analyse({"start_ns": 0, "end_ns": 1000, "gaps": []}, {"start_ns": 100, "end_ns": 900, "gaps": []})
        self.assertEqual(found["overlap"], 1)
        self.assertEqual(found["switch_ns"]["count"], 0)

    def test_never_together(self):
        found = slices.analyse({"start_ns": 0, "end_ns": 10, "gaps": []}, {"start_ns": 20, "end_ns": 30, "gaps": []})
        self.assertEqual(found["slice_ns"]["count"], 0)

    def test_rounds_by_what_the_device_had_done_before_from_short_to_long(self):
        theirs = [(1_000, 2_000), (100_000, 140_000), (160_000, 170_000), (6_200_000, 6_210_000)]
        mine = [(0, 500), (62_000, 72_000), (80_000, 81_000), (120_000, 150_000), (6_170_000, 6_190_000), (6_460_000, 6_490_000)]
        found = slices.after_idle({"rounds": mine}, {"rounds": theirs})
        self.assertEqual([(case, times["count"], times["p50"]) for case, times in found.items()],
                         [(slices.OWN, 1, 1_000), (slices.BUSY, 1, 10_000), (slices.IDLE[50], 1, 10_000),
                          (slices.IDLE[200], 1, 30_000), (slices.IDLE[5000], 1, 20_000)])


class Profiles(unittest.TestCase):
    LAUNCH = {"launch_host": {"p50": 2300.4}, "event_pair_null_kernel": {"p50": 5000.0}, "event_pair_empty": {"p50": 1500.0}}
    COPIES = {"rows": [{"kind": kind, "bytes": size, "us_p50": 4.0, "gb_per_s": rate} for kind, rate in
                       (("h2d_pinned", 50.0), ("d2h_pinned", 52.0), ("d2d", 2000.0), ("memset", 3000.0), ("h2d_pageable", 10.0),
                        ("d2h_pageable", 15.5)) for size in (4096, 1 << 30)]}

    def test_what_is_measured_replaces_what_was_assumed(self):
        many = {"count": 50, "p50": 1900000}
        found = simgpu_profile.measured(self.LAUNCH, self.COPIES, {"slice_ns": many, "switch_ns": {"count": 3, "p50": 9}}, None)
        self.assertEqual(found["launch_ns"][0], 2300)
        self.assertEqual(found["min_kernel_ns"][0], 3500)
        self.assertEqual(found["copy_latency_ns"][0], 2500)
        self.assertEqual(found["slice_ns"][0], 1900000)
        self.assertEqual(found["pageable_factor"][0], 0.25)
        self.assertNotIn("switch_ns", found)  # three samples are none
        self.assertNotIn("control_latency_ns", found)

    def test_the_shipped_profile_has_the_times_of_memory_calls_that_were_measured(self):
        steps = json.loads((lab.ROOT / "docs/hardware/2026-11-22-H100/results.json").read_text())["steps"]

        def answer(step):
            return steps[f"device/{step}"]["data"]["answer"]
        found = simgpu_profile.memory_calls(answer("mapping"), answer("registration"), [answer(f"checkpoint, {gib} GiB") for gib in (1, 8, 32)])
        shipped = json.loads((lab.ROOT / "tools/simgpu/profiles/h100.json").read_text())
        self.assertEqual(len(found), 22)
        for key, (value, _) in found.items():
            self.assertEqual(shipped[key], value, key)

    def test_one_size_of_memory_calls_makes_no_line(self):
        row = {"bytes": 1 << 21, "reserve_us": 1, "create_us": 2, "map_us": 3, "set_access_us": 4, "unmap_us": 5, "release_us": 6}
        self.assertEqual(set(simgpu_profile.memory_calls({"rows": [row]}, None, [])), {"vmm_reserve_ns"})
        self.assertEqual(simgpu_profile.memory_calls(None, None, []), {})

    def test_nothing_measured_keeps_every_assumption(self):
        base = json.loads((lab.ROOT / "tools/simgpu/profiles/h200.json").read_text())
        made = simgpu_profile.make(base, {"name": "NVIDIA H200", "sm_count": 132}, simgpu_profile.measured(None, None, None, None), "nothing", "2026-01-02")
        self.assertEqual(made["slice_ns"], base["slice_ns"])
        self.assertIn("simulated NVIDIA H200", made["name"])

    def test_what_steps_have_for_the_profile_is_gathered(self):
        steps = {"device/a": {"verdict": "pass", "data": {"profile": {"block_wait": {"MPS": {"p99_us": 3.0}}}}},
                 "device/b": {"verdict": "pass", "data": {"profile": {"block_wait": {"time slices": {"p99_us": 9.0}}, "drag": {"x": 1}}}},
                 "device/c": {"verdict": "fail", "data": {"profile": {"drag": {"x": 2}}}}, "device/d": {"verdict": "skipped", "data": {}}}
        self.assertEqual(simgpu_profile.gathered(steps), {"block_wait": {"MPS": {"p99_us": 3.0}, "time slices": {"p99_us": 9.0}}, "drag": {"x": 1}})


class Reports(unittest.TestCase):
    DATA = {"format": 1, "simulated": False, "machine": {"gpu": "NVIDIA H200", "driver": "580.1"}, "steps": {
        "cost/a": {"verdict": "pass", "reason": "", "seconds": 1.0, "data": {
            "lines": ["a line"], "tables": [{"title": "T", "columns": ["x|y", "n"], "rows": [["a|b", None]]}]}},
        "cost/b": {"verdict": "fail", "reason": "it broke", "seconds": 2.0, "data": {}},
        "timing/c": {"verdict": "skipped", "reason": "no CUPTI", "seconds": 0.0}}}

    def test_it_says_what_passed_what_failed_and_why(self):
        text = report.render(self.DATA, {"cost": "what", "timing": "times", "sharing": "nothing yet"})
        for wanted in ("# lull on NVIDIA H200", "1 pass, 1 fail, 1 skipped", "it broke", "no CUPTI", "a\\|b", "- a line"):
            self.assertIn(wanted, text)
        self.assertNotIn("simulated", text)
        self.assertNotIn("nothing yet", text)

    def test_decisions_stand_in_front_in_the_order_of_their_questions(self):
        with lab.context() as context:
            context.sim = False
            steps = {f"sharing/{number}": {"verdict": "pass", "reason": "", "seconds": 1.0, "data": {
                "decision": verdict.decision(context, number, f"question {number}?", "yes", "It is so.")}} for number in (7, 1)}
        text = report.render({**self.DATA, "steps": {**self.DATA["steps"], **steps}}, {"cost": "what"})
        self.assertLess(text.index("| 1 | question 1? | yes | It is so. | sharing/1 |"), text.index("| 7 | question 7? |"))
        self.assertLess(text.index("question 7?"), text.index("## cost"))

    def test_simulated_figures_decide_nothing(self):
        with lab.context() as context:
            self.assertEqual(verdict.decision(context, 1, "asked?", "yes", "It is so.")["answer"], verdict.UNDECIDED)

    def test_what_is_simulated_says_so_in_every_table(self):
        text = report.render({**self.DATA, "simulated": True}, {"cost": "what"})
        self.assertIn("Everything here is simulated", text)
        self.assertIn("T (simulated)", text)


def client(launches=3, graph_kernels=0, dropped=0):
    return {"launches": launches, "graph_kernels": graph_kernels, "copies": 0, "memsets": 0, "dropped": dropped}


def kernel(name="work", launches=3, kind="kernel", grid=(3, 2, 1), predicted_ns=0):
    return {"name": name, "kind": kind, "grid": list(grid), "block": [128, 1, 1], "shared_bytes": 0, "launches": launches,
            "predicted_ns": predicted_ns}


def record(name="work", start=0, end=100, stream=7, node=0, grid="3\t2\t1"):
    return f"k\t{start}\t{end}\t0\t1\t{stream}\t5\t{node}\t{grid}\t128\t1\t1\t0\t{name}\n"


class WitnessText(unittest.TestCase):
    def test_equal_counts_make_no_line(self):
        seen = witness.parse("cupti\t130001\n" + record() * 3 + "end\t0\n")
        self.assertTrue(seen.usable() and seen.complete)
        self.assertEqual(witness.differences(client(), [kernel()], seen), [])

    def test_a_kernel_that_lull_missed_is_named(self):
        seen = witness.parse("cupti\t130001\n" + record() * 3 + record("other"))
        lines = witness.differences(client(), [kernel()], seen)
        self.assertTrue(any("counted 3" in line and "ran 4" in line for line in lines), lines)
        self.assertTrue(any(line.startswith("other") for line in lines), lines)

    def test_a_shape_that_differs_is_a_difference(self):
        seen = witness.parse("cupti\t1\n" + record(grid="1\t1\t1") * 3)
        self.assertEqual(len(witness.differences(client(), [kernel()], seen)), 2)

    def test_kernels_of_a_graph_count_apart(self):
        seen = witness.parse("cupti\t1\n" + record(node=9) * 4)
        graphs = [kernel("graph of 2 kernels", 2, "graph", (1, 1, 1))]
        self.assertEqual(witness.differences(client(2, 4), graphs, seen), [])
        self.assertTrue(witness.differences(client(2, 3), graphs, seen))

    def test_dropped_records_widen_the_comparison_no_further_than_their_number(self):
        seen = witness.parse("cupti\t1\n" + record() * 5)
        self.assertEqual(witness.differences(client(4, dropped=1), [kernel(launches=3)], seen), [])
        self.assertTrue(witness.differences(client(3, dropped=1), [kernel(launches=3)], seen))

    def test_lines_that_make_no_sense_are_problems(self):
        seen = witness.parse("cupti\tx\nk\t1\t2\nnonsense\n")
        self.assertEqual(len(seen.problems), 2)
        self.assertFalse(seen.usable())

    def test_gaps_reach_to_the_next_unit_of_the_stream(self):
        def gaps(between):
            text = "cupti\t1\n" + record(start=0, end=100) + between + record(start=400, end=500)
            text += record("elsewhere", start=110, end=120, stream=8)
            return [ns for values in witness.gaps_by_kernel(witness.parse(text)).values() for ns in values]
        self.assertEqual(gaps(""), [300])
        self.assertEqual(gaps("c\t130\t150\t0\t1\t7\t5\t2\t65537\n"), [30])   # large: a unit of its own
        self.assertEqual(gaps("c\t130\t150\t0\t1\t7\t5\t2\t65536\n"), [300])  # runs beside the kernels
        self.assertEqual(gaps(record("in a graph", start=140, end=150, node=9)), [40])


class ProfilerTrace(unittest.TestCase):
    TEXT = json.dumps({"traceEvents": [{"cat": "kernel", "name": "work(float*)", "args": {"grid": [3, 2, 1], "block": [128, 1, 1]}}] * 3
                       + [{"cat": "gpu_memcpy", "name": "Memcpy"}, {"ph": "M"}]})

    def test_kernels_are_counted_by_name_and_shape(self):
        self.assertEqual(kineto.kernels(self.TEXT), {("work(float*)", (3, 2, 1), (128, 1, 1)): 3})

    def test_mangled_names_meet_demangled_ones(self):
        name = "_Z4workPf"
        plain = kineto.demangle([name, "plain"])
        self.assertEqual(plain["plain"], "plain")
        if plain[name] == name:
            self.skipTest("no C++ library here")
        self.assertEqual(kineto.differences(client(), [kernel(name)], kineto.kernels(self.TEXT), plain), [])
        self.assertTrue(kineto.differences(client(4), [kernel(name, 4)], kineto.kernels(self.TEXT), plain))

    def test_graphs_count_by_their_sum(self):
        graph = [kernel("graph of 3 kernels", 1, "graph")]
        self.assertEqual(kineto.differences(client(1, 3), graph, kineto.kernels(self.TEXT), {}), [])
        self.assertTrue(kineto.differences(client(1, 2), graph, kineto.kernels(self.TEXT), {}))


class Times(unittest.TestCase):
    def test_errors_are_relative_and_keep_their_sign(self):
        found = timing.errors([(110, 100), (90, 100), (5, 0)])
        self.assertEqual(found["kernels"], 2)
        self.assertAlmostEqual(found["p50"], 0.1)
        self.assertAlmostEqual(found["signed"], 0.0)
        self.assertEqual(found["longer_ns"], 5)

    def test_predictions_meet_the_kernels_of_their_name_and_shape(self):
        seen = witness.parse("cupti\t1\n" + record(end=200) * 25 + record("rare", end=9) * 2)
        pairs = timing.durations_against([kernel(predicted_ns=220), kernel("rare", predicted_ns=9), kernel("gone", predicted_ns=1)], seen)
        self.assertEqual(pairs, [(220, 200)])

    def test_a_trace_is_held_against_cupti_kernel_by_kernel(self):
        text = "cupti\t1\n" + "".join(record(start=1000 * i, end=1000 * i + 100) for i in range(30))
        row = {"name": "work()", "mangled": "work", "kind": "kernel", "grid": [3, 2, 1], "block": [128, 1, 1], "shared_bytes": 0,
               "count": 30, "p50_us": 0.11, "p99_us": 0.12, "gap_p50_us": 0.9}
        pairs, lines = timing.trace_against({"kernels": [row, {"kind": "copy"}]}, witness.parse(text))
        self.assertEqual((pairs["gap p50"], lines), ([(900, 900)], []))
        self.assertAlmostEqual(pairs["duration p50"][0][0], 110)
        self.assertEqual(len(timing.trace_against({"kernels": [{**row, "count": 29}]}, witness.parse(text))[1]), 1)
        self.assertEqual(pairs[timing.PAUSES], [])  # nothing fits into 0.9 us
        self.assertEqual([tuple(round(ns) for ns in both) for both in pairs[timing.TOGETHER]], [(1010, 1000)])

    def test_a_line_drawn_elsewhere_is_told_from_times_that_are_wrong(self):
        def found(duration, gap, together):
            return {"duration p50": {"p50": duration}, "gap p50": {"p50": gap}, timing.TOGETHER: {"p50": together}}
        self.assertEqual(timing.judged(found(0.04, 0.09, 0.01))[0], "yes")
        answer, sentence = timing.judged(found(0.1, 0.7, 0.01))
        self.assertEqual(answer, "no")
        self.assertIn("the line between them", sentence)
        self.assertNotIn("the line between them", timing.judged(found(0.1, 0.7, 0.3))[1])
        self.assertEqual(timing.judged(found(None, None, None))[0], UNDECIDED)

    def test_kernels_of_one_length_are_told_from_those_of_many(self):
        workload = {"kernels": [{"name": "a", "grid": [4], "block": [32], "duration_ns": 7}, {"name": "b", "grid": [1], "block": [1], "duration_ns": 9}],
                    "ops": [{"launch": 0}, {"repeat": 2, "ops": [{"launch": 1, "duration_ns": 8}]}]}
        self.assertEqual(timing.recorded_lengths(workload), {("a", (4, 1, 1), (32, 1, 1), 0): 7})


class Windows(unittest.TestCase):
    def test_iterations_that_lie_whole_in_the_window_have_a_length(self):
        self.assertEqual(tasks.lengths([(0, 10), (10, 30), (30, 45), (45, 60)], (5, 50)), [20, 15])

    def test_a_cut_iteration_counts_by_its_share(self):
        self.assertAlmostEqual(tasks.rate([(0, 10), (10, 30)], (5, 25)), 1.25 / 20 * 1e9)
        self.assertAlmostEqual(tasks.rate([(0, 10), (10, 30)], (5, 25), (29, 30)), 1.3 / 21 * 1e9)
        self.assertEqual(tasks.lengths([(0, 10), (10, 30), (30, 45), (45, 60)], (0, 10), (30, 50)), [10, 15])
        self.assertEqual(tasks.rate([], (0, 10)), 0)
        self.assertIsNone(tasks.rate([], (10, 10)))

    def test_throughput_is_against_alone(self):
        alone = tasks.measured([(0, 10), (10, 20)], [(0, 20)])
        row = tasks.measured([(0, 20), (20, 40)], [(0, 40)], alone)
        self.assertAlmostEqual(row["throughput"], 0.5)
        self.assertAlmostEqual(row["slowdown_p50"], 2)


class Texts(unittest.TestCase):
    def test_the_versions_of_the_shim_are_read_whole(self):
        text = (lab.ROOT / "shim/proc_versions.def").read_text()
        rows = interception.version_rows(text)
        self.assertEqual(len(rows), sum(line.startswith("LULL_VERSION(") for line in text.splitlines()))
        self.assertIn(("cuLaunchKernel", 7000, 2, "cuLaunchKernel_ptsz"), rows)

    def test_nvidia_smi_is_read_or_not_at_all(self):
        values = ["NVIDIA H200", "GPU-1", "580.159.04"] + ["[N/A]"] * (len(machine._QUERY) - 3)
        self.assertEqual(machine.parse_smi(", ".join(values) + "\nsecond")["driver_version"], "580.159.04")
        self.assertEqual(machine.parse_smi("No devices were found"), {})
        self.assertEqual(machine.parse_smi(None), {})

    def test_a_workload_says_where_it_was_recorded(self):
        recorded = {"gpu": "NVIDIA H200", "driver": "580.1", "model": "resnet50", "batch": "1", "date": "2026-01-02"}
        text = json.dumps({"lull_workload": 1, "recorded": recorded, "ops": [{"sync": "device"}]})
        workloads.check(text)
        for wrong in ("{}", "no JSON", json.dumps({"lull_workload": 1, "recorded": {"gpu": "x"}, "ops": [1]})):
            with self.assertRaises(Failed):
                workloads.check(wrong)


if __name__ == "__main__":
    unittest.main()
