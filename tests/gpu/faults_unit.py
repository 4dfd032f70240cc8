"""faults: what follows from who lived; and the scenes, with a stand-in for MPS on the simulated GPU."""

import signal
import time
import unittest
import unittest.mock

import lab
from gpu_check import faults
from gpu_check.faults import ADDRESS, KILL, TERMINATE
from gpu_check.verdict import UNDECIDED, Skipped


def found(lives, served_s=0.5):
    return {"bystander_lives": lives, "served_s": served_s}


class WhatFollows(unittest.TestCase):
    def test_a_harmless_kill_needs_no_more(self):
        self.assertEqual(faults.judged({KILL: found(True), TERMINATE: found(True), ADDRESS: found(False)})[0], "kill is harmless")

    def test_a_kill_that_harms_is_asked_for_first(self):
        answer, sentence = faults.judged({KILL: found(False, None), TERMINATE: found(True), ADDRESS: found(False, 1.5)})
        self.assertEqual(answer, "terminate first")
        self.assertIn("illegal address of one client ends the others, served again after 1.50 s", sentence)
        self.assertIn("harms the others, not served again", sentence)

    def test_else_they_may_fail_together(self):
        self.assertEqual(faults.judged({KILL: found(False), TERMINATE: found(False)})[0], "all go down together")
        self.assertEqual(faults.judged({})[0], UNDECIDED)

    def test_after_a_harmless_kill_a_program_is_served(self):
        kill = found(True, None)
        self.assertEqual(faults.judged({KILL: kill, TERMINATE: found(True)})[0], "terminate first")
        self.assertEqual(faults.judged({KILL: kill, TERMINATE: kill})[0], "all go down together")

    def test_a_scene_that_was_not_played_decides_nothing(self):
        self.assertEqual(faults.judged({TERMINATE: found(True), ADDRESS: found(False)})[0], UNDECIDED)
        self.assertEqual(faults.judged({KILL: found(False), ADDRESS: found(False)})[0], UNDECIDED)


class Scenes(unittest.TestCase):
    def setUp(self):
        for name, value in (("_LOOK_S", 1.2), ("_LAST_S", 0.4), ("_TOLD_S", 0.2)):
            patched = unittest.mock.patch.object(faults, name, value)
            patched.start()
            self.addCleanup(patched.stop)

    def test_a_killed_process_leaves_others_alone_without_mps(self):
        with lab.context() as context:
            one = faults.scene(context, KILL)
        self.assertEqual((one["bystander"], one["bystander_lives"], one["beside_it"], one["refusals"]), ("works on", True, "served", []))
        self.assertLess(one["served_s"], 60)

    def test_who_stops_a_moment_later_does_not_live(self):
        def stops(context, env, how, service):
            del env, how, service
            bystander, at = context.children._all[-1], time.monotonic()
            bystander.wait_for(lambda: faults.said(bystander)[-1].get("at_ns", 0) / 1e9 > at, 60)
            bystander.signal(signal.SIGSTOP)
            return at, {}
        with lab.context() as context, unittest.mock.patch.object(faults, "_fault", stops):
            one = faults.scene(context, KILL)
        self.assertEqual((one["bystander"], one["bystander_lives"]), ("stands still", False))

    def test_each_scene_of_mps_has_a_service_of_its_own_and_the_log_is_kept(self):
        with lab.context_with_fake_mps() as context:
            data = faults.with_mps(context)
        self.assertIn(KILL, data["answer"])
        self.assertIn(TERMINATE, data["answer"])
        self.assertIn("asked for", data["answer"][TERMINATE]["terminate_client"])
        self.assertTrue(any("illegal address" in line for line in data["lines"]), data["lines"])
        self.assertEqual(data["decision"]["answer"], "kill is harmless")

    def test_who_is_told_an_error_does_not_live(self):
        with lab.context() as context:
            def broken(context, env, how, service):
                del env, how, service
                child = context.children._all[-1]
                child.signal(15)
                child.wait(5)
                text = child.out_path.read_text()
                child.out_path.write_text(text + '{"error": "CUDA_ERROR_ILLEGAL_ADDRESS (700)", "error_ns": 5000000000, "rounds": 3}\n')
                return 4.0, {"told": "the same"}
            with unittest.mock.patch.object(faults, "_fault", broken):
                one = faults.scene(context, ADDRESS)
        self.assertFalse(one["bystander_lives"])
        self.assertEqual((one["bystander"], one["told_ms"]), ("told: CUDA_ERROR_ILLEGAL_ADDRESS (700)", 1000.0))

    def test_without_mps_here_it_says_so(self):
        with lab.context() as context, self.assertRaises(Skipped):
            faults.with_mps(context)


if __name__ == "__main__":
    unittest.main()
