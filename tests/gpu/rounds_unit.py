"""real_pairs: every way against alone in the same round, and which way follows."""

import unittest

import lab
from gpu_check import mps, real_pairs
from gpu_check.real_pairs import DEFAULT, Way
from gpu_check.verdict import UNDECIDED


def steady(start, length, count):
    return [(start + n * length, start + (n + 1) * length) for n in range(count)]


class Rounds(unittest.TestCase):
    def test_each_window_is_held_against_alone_of_its_own_round(self):
        # The machine is twice as slow in the second round: for both.
        alone = steady(0, 10, 150) + steady(10_000, 20, 150)
        beside = steady(2_000, 15, 120) + steady(20_000, 30, 120)
        found = real_pairs.by_round(beside, [(2_000, 3_800), (20_000, 23_600)], alone, [(0, 1_500), (10_000, 13_000)])
        self.assertEqual([(one["mean"], one["p99"]) for one in found], [(1.5, 1.5), (1.5, 1.5)])
        self.assertAlmostEqual(found[0]["throughput"], 2 / 3)
        self.assertEqual(real_pairs.middle(found, "mean"), 1.5)

    def test_few_iterations_say_no_p99_and_none_no_mean(self):
        for count in (5, 99):
            few = real_pairs.by_round(steady(0, 10, count), [(0, 10 * count)], steady(2_000, 10, 150), [(2_000, 3_500)])
            self.assertEqual((few[0]["mean"], few[0]["p99"]), (1.0, None))
        none = real_pairs.by_round([], [(0, 50)], steady(100, 10, 50), [(100, 600)])
        self.assertEqual((none[0]["mean"], none[0]["throughput"]), (None, 0))
        self.assertIsNone(real_pairs.middle(none, "mean"))


def way(mean, p99, low):
    return {"mean": mean, "p99": p99, "low": low}


class WhichWay(unittest.TestCase):
    def test_of_those_that_keep_the_bound_the_one_that_gives_most(self):
        rows = {DEFAULT: way(3.0, 3.1, 0.9), "guarded": way(1.02, 1.04, 0.1), "guarded, MPS": way(1.03, 1.05, 0.6), "MPS, priority": way(1.0, 1.06, 0.8)}
        answer, sentence = real_pairs.judged(rows, 0.01)
        self.assertEqual(answer, "guarded, MPS")
        self.assertIn("default sharing 3.00x", sentence)

    def test_none_keeps_it(self):
        self.assertEqual(real_pairs.judged({DEFAULT: way(1.04, 1.0, 0.9)}, None)[0], "none keeps the bound")

    def test_a_machine_that_is_somebody_elses_too_decides_nothing(self):
        self.assertEqual(real_pairs.judged({DEFAULT: way(1.0, 1.0, 0.9)}, 0.2)[0], UNDECIDED)
        self.assertEqual(real_pairs.judged({DEFAULT: way(1.0, None, 0.9)}, 0.0)[0], UNDECIDED)

    def test_unsteady_is_how_alone_differs(self):
        iterations = steady(0, 10, 100) + steady(10_000, 12, 100)
        self.assertAlmostEqual(real_pairs.unsteadiness(iterations, [(0, 1_000), (10_000, 11_200)]), 0.2)
        self.assertIsNone(real_pairs.unsteadiness(iterations, [(0, 1_000)]))


class Programs(unittest.TestCase):
    def test_low_is_below_normal_where_the_way_says_so_and_nobody_else(self):
        with lab.context_with_fake_mps() as context:
            with mps.service(context) as service:
                for one in real_pairs.WAYS:
                    high, low = real_pairs._envs(context, one, service)
                    # Said of everybody: lull would have who is low with it below normal there too.
                    self.assertEqual(high.get("CUDA_MPS_CLIENT_PRIORITY"), "0" if one.with_mps else None)
                    self.assertEqual(low.get("CUDA_MPS_CLIENT_PRIORITY"), str(one.priority or 0) if one.with_mps else None)
                    self.assertEqual(high.get("CUDA_MPS_PIPE_DIRECTORY") == str(service.pipes), one.with_mps)
                    self.assertEqual(low.get("CUDA_MPS_PIPE_DIRECTORY") == str(service.pipes), one.with_mps)

    def test_a_way_that_cannot_be_had_is_left_out_and_said(self):
        with lab.context() as context:
            context.short = False
            ways, lines = real_pairs._ways(context, None)
            self.assertEqual([way.name for way, _ in ways], [real_pairs.DEFAULT, "guarded"])
            self.assertEqual(len(lines), 4)
            ways, lines = real_pairs._ways(context, mps.Simulated(context))
            self.assertEqual([way.name for way, _ in ways], [real_pairs.DEFAULT, "MPS", "guarded", "guarded, MPS"])
            self.assertIn("neither priorities", lines[0])


if __name__ == "__main__":
    unittest.main()
