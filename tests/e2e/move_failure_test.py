"""Kill and stop lulld, and kill clients, in every state of a move: the program gets its memory back and ends with
the right bytes; nobody else is hurt."""

import contextlib
import os
import signal
import time
import unittest

import lab
import moving
from moving import MIB

# Slow enough that each state can be met: 16 MiB take a fifteenth of a second, a checkpoint a fifth.
SLOW = {"d2h_gb_per_s": 0.25, "h2d_gb_per_s": 0.25, "pageable_factor": 1.0, "checkpoint_out_ns": 200000000,
        "checkpoint_back_ns": 200000000}
WORK = (30, 5, 4, 1)
STEADY = {"PROGRAM_STEADY": 16 * MIB}
# What is ordered, and what has to happen before the state can be met.
STATES = {
    "draining": ("suspend", "out"), "leaving": ("suspend", "out"), "out": ("suspend", "out"),
    "giving_up": ("suspend", "given_up"), "given_up": ("suspend", "given_up"),
    "restoring": ("resume", "given_up"), "returning": ("resume", "out"),
}


class Case:
    """A job that is brought into a state."""

    def __init__(self, here, state):
        self.here, self.state = here, state
        # Kernels of a fifth of a second: draining takes a while, mostly.
        work = (6, *WORK[1:], 200000) if state == "draining" else WORK
        self.expected = here.undisturbed(*work, **STEADY)
        self.program = here.work(*work, job="job", stays=True, **STEADY).ready()
        self.words = here.residence(self.program.pid)
        self.program.goes_on(20)

    def until_met(self):
        """The client is in the state this moment. A short one that was missed comes again."""
        while not self.met():
            if self.here.job("job")["state"] != "running":
                self.here.resume("job")
            self.program.goes_on(5)

    def met(self):
        what, level = STATES[self.state]
        if what == "suspend":
            self.here.order("suspend", "job", level=level, at="now")
        else:
            self.here.suspend("job", level)
            self.here.order("resume", "job")
        end = time.monotonic() + lab.DEADLINE_S
        while time.monotonic() < end:
            now = self.words.state()
            if now == self.state:
                return True
            if self.here.job("job")["state"] == ("running" if what == "resume" else "suspended"):
                return self.state == now
        raise AssertionError(f"never {self.state}: {self.words.read()}")

    def ends_well(self, test):
        code, digest, err = self.program.result()
        test.assertEqual(code, 0, err)
        test.assertEqual(digest, self.expected)


class DaemonInEveryState(unittest.TestCase):
    def case(self, state, act):
        with self.subTest(state=state), moving.Moves(profile=SLOW) as here:
            here.lulld()
            case = Case(here, state)
            case.until_met()
            act(here, case)
            here.empty()

    def test_a_killed_daemon(self):
        for state in STATES:
            def act(here, case):
                lab.kill(here.daemon)
                case.program.goes_on(40)  # more than lines on their way
                case.ends_well(self)
            self.case(state, act)

    def test_a_killed_daemon_that_is_back_at_once(self):
        for state in STATES:
            def act(here, case):
                lab.kill(here.daemon)
                here.lulld()
                case.program.goes_on()
                here.able(case.program)
                try:
                    here.suspend("job", "out")
                    here.resume("job")
                except AssertionError:
                    if case.program.running():  # else it has just ended
                        raise
                case.ends_well(self)
            self.case(state, act)

    def test_a_suspension_that_is_forgotten_is_told_of(self):
        with moving.Moves(profile=SLOW) as here:
            here.lulld()
            program = here.work(100000, 1, 16, job="job").ready()
            here.suspend("job", "out")
            lab.kill(here.daemon)
            program.goes_on()
            here.lulld()
            lab.until(lambda: (job := here.job("job")) and "suspended by an earlier lulld" in job["reason"], "lulld says so")
            self.assertEqual(here.job("job")["state"], "running")
            # A new order, and nobody speaks of it any more.
            here.suspend("job", "out")
            self.assertEqual(here.job("job")["reason"], "")
            here.resume("job")
            program.goes_on()
            lab.kill(program.child)

    def test_a_stopped_daemon(self):
        for state in STATES:
            def act(here, case):
                here.daemon.send_signal(signal.SIGSTOP)
                case.program.goes_on(40)
                case.program.stays.touch()
                here.daemon.send_signal(signal.SIGCONT)
                lab.until(here.alive, "the daemon answers again")

                def let_go():
                    """It sends a suspended job out again, where that has not ended meanwhile."""
                    job = here.job("job")
                    if job and job["state"] in ("leaving", "suspended"):
                        with contextlib.suppress(moving.Refused):  # it is running again, or has ended
                            here.resume("job", wait=False)
                    return not case.program.running()
                lab.until(let_go, "the program ends", deadline_s=3 * lab.DEADLINE_S, step_s=0.1)
                case.ends_well(self)
                self.assertIsNone(here.daemon.poll())
            self.case(state, act)

    def test_a_daemon_that_was_stopped_for_a_moment_only(self):
        # Shorter than what counts as silence: nothing is undone.
        with moving.Moves(profile=SLOW) as here:
            here.lulld()
            case = Case(here, "out")
            here.suspend("job", "out")
            here.daemon.send_signal(signal.SIGSTOP)
            time.sleep(0.2)
            here.daemon.send_signal(signal.SIGCONT)
            lab.until(here.alive, "the daemon answers again")
            self.assertEqual(case.words.state(), "out")
            here.resume("job")
            case.ends_well(self)


class TwoReturn(unittest.TestCase):
    def test_one_after_the_other_where_memory_suffices_for_one(self):
        for level in ("out", "given_up"):
            with self.subTest(level=level), moving.Moves(profile={"memory_bytes": 160 * MIB, "checkpoint_out_ns": 10000000,
                                                                  "checkpoint_back_ns": 10000000}) as here:
                here.lulld()
                work, steady = (25, 3, 8, 1), {"PROGRAM_STEADY": 108 * MIB}
                expected = here.undisturbed(*work, **steady)
                programs = []
                for name in ("first", "second"):
                    program = here.work(*work, job=name, stays=True, **steady).ready()
                    program.goes_on(20)
                    here.suspend(name, level)
                    programs.append(program)
                lab.kill(here.daemon)
                for program in programs:
                    program.stays.touch()
                most = 0
                while any(p.running() for p in programs):
                    most = max(most, sum(here.usage()[0].values()))
                    time.sleep(0.02)
                self.assertEqual([p.result()[:2] for p in programs], [(0, expected)] * 2)
                self.assertLessEqual(most, 160 * MIB)
                here.empty()


class ClientInEveryState(unittest.TestCase):
    def test_a_killed_client_leaves_nothing_and_hurts_nobody(self):
        for state in STATES:
            with self.subTest(state=state), moving.Moves(profile=SLOW) as here:
                here.lulld()
                work = (100, *WORK[1:])
                expected = here.undisturbed(*work, **STEADY)
                case = Case(here, state)
                other = here.work(*work, job="other", stays=True, **STEADY).ready()
                case.until_met()
                os.kill(case.program.pid, signal.SIGKILL)
                case.program.child.wait(lab.DEADLINE_S)
                other.goes_on()
                lab.until(lambda: here.job("job") is None, "the dead job is gone")
                here.suspend("other", "out")
                here.resume("other")
                self.assertEqual(other.result()[:2], (0, expected))
                here.empty()

    def test_a_stopped_client_is_waited_for_and_the_job_is_not_lost(self):
        with moving.Moves(profile=SLOW) as here:
            here.lulld()
            case = Case(here, "leaving")
            case.until_met()
            os.kill(case.program.pid, signal.SIGSTOP)
            time.sleep(1.5)
            self.assertTrue(here.alive())
            os.kill(case.program.pid, signal.SIGCONT)
            here.reach("job", ("suspended",))
            here.resume("job")
            case.ends_well(self)


def load_tests(_loader, tests, _pattern):
    return lab.share(tests)


if __name__ == "__main__":
    unittest.main()
