"""suspension: from times out and back to how a job is suspended; and the probe where the driver can map memory."""

import unittest

import lab
from gpu_check import suspension
from gpu_check.suspension import FOUR, ONE, PREPARED
from gpu_check.verdict import Failed, Skipped


def row(how, times, size=8 << 30):
    return {"how": how, "bytes": size, "out_ms": 100.0 * times, "back_ms": 90.0, "copy_out_ms": 100.0, "copy_back_ms": 100.0,
            "freed_bytes": size, "intact": True}


class Ways(unittest.TestCase):
    def answer(self, **times):
        rows = [row(how, times[name]) for name, how in (("prepared", PREPARED), ("one", ONE), ("four", FOUR)) if name in times]
        return suspension.judged([row(PREPARED, 9.0, 64 << 20), *rows])[0]

    def test_the_way_that_needs_least_ahead_and_keeps_the_bar_by_the_largest_size(self):
        self.assertEqual(self.answer(prepared=1.0, one=1.3, four=1.1), ONE)
        self.assertEqual(self.answer(prepared=1.0, one=4.0, four=1.3), FOUR)
        self.assertEqual(self.answer(prepared=1.3, one=4.0, four=1.31), PREPARED)
        self.assertEqual(self.answer(prepared=1.31, one=4.0, four=2.0), "no way")

    def test_the_way_back_counts_too(self):
        slow_back = {**row(PREPARED, 1.0), "back_ms": 140.0}
        self.assertEqual(suspension.judged([slow_back])[0], "no way")


class Pipeline(unittest.TestCase):
    def outcome(self, **more):
        with lab.context() as context:
            context.probe = lambda *words, **_: {k: v for k, v in {**row("", 1.0), **more}.items() if k != "how"}
            return suspension.pipeline(context)

    def test_memory_that_is_out_is_free_and_comes_back_as_it_was(self):
        self.assertEqual(len(self.outcome()["answer"]), 3)
        with self.assertRaisesRegex(Failed, "only 4295 MB of the device's memory"):
            self.outcome(freed_bytes=4 << 30)
        with self.assertRaisesRegex(Failed, "not what it was"):
            self.outcome(intact=False)


def checkpointed(**more):
    calls = [{"call": call, "ms": ms, "result": 0, "resident_bytes": 2 << 20}
             for call, ms in (("lock", 1.0), ("checkpoint", 400.0), ("restore", 240.0), ("unlock", 10.0))]
    return {"bytes": 1 << 30, "intact": True, "checkpoint": {"calls": calls, "resident_bytes_before": 1 << 20, "running_again": True, **more}}


class Checkpoint(unittest.TestCase):
    def test_what_it_adds_is_said_when_it_works(self):
        answer, sentence = suspension.checkpoint_says(checkpointed())
        self.assertEqual(answer, "works")
        self.assertIn("401 ms to a suspension and 250 ms to a resume", sentence)

    def test_refused_and_alive_is_no_loss(self):
        answer, sentence = suspension.checkpoint_says(checkpointed(refused="lock: CUDA_ERROR_NOT_SUPPORTED (801)"))
        self.assertEqual(answer, "refused")
        self.assertIn("801", sentence)
        self.assertIn("lives on", sentence)
        self.assertEqual(suspension.checkpoint_says(checkpointed(refused="restore: 2", running_again=False))[0], "lost")

    def test_other_memory_than_before_is_broken(self):
        self.assertEqual(suspension.checkpoint_says({**checkpointed(), "intact": False})[0], "broken")

    def answered(self, answer):
        with lab.context() as context:
            context.probe = lambda *_, **__: answer
            return suspension.behind(context)

    def test_a_process_that_is_lost_or_broken_fails_the_step(self):
        self.assertIn("works", self.answered(checkpointed())["lines"][0])
        for answer in (checkpointed(refused="restore: 2", running_again=False), {**checkpointed(), "intact": False}):
            with self.assertRaises(Failed):
                self.answered(answer)


class Pairs(unittest.TestCase):
    def test_what_breaks_a_restore_decides_whether_lull_sets_the_variable(self):
        works = {suspension.NOT_SET: None, suspension.ALL: None, suspension.REORDERED: None}
        self.assertEqual(suspension.pairs_say(works)[0], "works")
        answer, sentence = suspension.pairs_say({**works, suspension.REORDERED: "restore answers 1"})
        self.assertEqual(answer, "breaks")
        self.assertIn("in another order: restore answers 1", sentence)
        self.assertEqual(suspension.pairs_say({**works, suspension.NOT_SET: "restore answers 1"})[0], "never")

    def test_one_gpu_says_nothing_about_another_order(self):
        self.assertIn("was not tried", suspension.pairs_say({suspension.NOT_SET: None, suspension.ALL: None})[1])

    def test_a_driver_that_knows_no_checkpoint_is_a_reason_to_skip(self):
        with lab.context() as context:
            context.probe = lambda *_, **__: {"calls": [{"call": "lock", "result": 801}], "refused": "lock: CUDA_ERROR_NOT_SUPPORTED (801)"}
            with self.assertRaisesRegex(Skipped, "does not support it here: lock"):
                suspension.visible_devices(context)


class OnTheSimulatedGpu(unittest.TestCase):
    """Whether its driver maps memory is the driver's word: the step runs, or says what was refused."""

    def run_step(self, step):
        with lab.context() as context:
            try:
                return step(context)
            except Skipped as why:
                self.skipTest(str(why))

    def test_memory_goes_out_and_comes_back_to_its_addresses_intact(self):
        found = self.run_step(suspension.pipeline)
        self.assertEqual({row["how"] for row in found["answer"]}, {PREPARED, ONE, FOUR})
        for one in found["answer"]:
            self.assertTrue(one["intact"], one)
            self.assertEqual(one["freed_bytes"], one["bytes"], one)
        self.assertEqual(set(found["profile"]), {"suspend_gb_per_s", "resume_gb_per_s"})

    def test_a_restore_is_told_of_every_gpu(self):
        found = self.run_step(suspension.visible_devices)
        self.assertEqual([line.split(": ")[1] for line in found["lines"]], ["restored"] * 3)
        self.assertEqual(len(found["answer"][suspension.REORDERED]["visible"]), 2)

    def test_the_rest_is_checkpointed_while_it_is_out(self):
        found = self.run_step(suspension.behind)
        self.assertRegex(found["lines"][0], "works|refused")


if __name__ == "__main__":
    unittest.main()
