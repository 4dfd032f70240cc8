"""Jobs move and nothing of them changes: suspended, given up and migrated at random moments, their bytes are those of
an undisturbed run, and the device holds what it should meanwhile.

LULL_SUSPENSIONS and LULL_MIGRATIONS say how often (25 and 8; the whole acceptance: 500 and 100)."""

import pathlib
import signal
import time
import unittest

import lab
import moving
from moving import MIB

WORKLOADS = pathlib.Path(__file__).resolve().parents[2] / "examples/workloads"
SUSPENSIONS = moving.times("LULL_SUSPENSIONS", 25)
MIGRATIONS = moving.times("LULL_MIGRATIONS", 8)
ITERATIONS = moving.times("LULL_ITERATIONS", 200 if SUSPENSIONS > 100 else 60)
# A driver's checkpoint of a context takes half a second on an H100; here it is the state that matters, not the time.
QUICK = {"checkpoint_out_ns": 3000000, "checkpoint_back_ns": 3000000, "checkpoint_unlock_ns": 100000}


def moments(dice, program, steps, count):
    """`count` times at a random step and a random moment within it."""
    last = 0
    for moment in sorted(dice.randrange(1, steps) for _ in range(count)):
        # Several may be at one step: the job is let go on for a moment in between.
        lab.until(lambda: program.steps >= moment or not program.running(), f"step {moment}")
        time.sleep(dice.random() * (0.004 if moment != last else 0.02))
        last = moment
        yield moment


def steps_of(iterations):
    return iterations * 20 + iterations // 8  # moving_work: 12 random steps, 6 kernels, 2 graphs, graphs renewed


class Bytes(unittest.TestCase):
    def disturbed(self, here, work, count, disturb, dice, way="--suspendable"):
        """Runs `work` with `count` disturbances; the bytes are those of a run without any."""
        expected = here.undisturbed(*work)
        program = here.work(*work, job="job", way=way, stays=True).ready()
        for done, _ in enumerate(moments(dice, program, int(steps_of(work[0]) * 0.9), count)):
            disturb(program, done)
        self.assertEqual(program.result(), (0, expected, ""))
        here.empty()
        lab.until(lambda: not here.status()["clients"], "the client is gone")

    def test_suspended_and_resumed_at_random_moments(self):
        dice = moving.seed_of("suspensions")
        with moving.Moves(profile=QUICK) as here:
            here.lulld()
            seen = {"out": 0, "given_up": 0}
            fixed = []

            def disturb(program, done):
                level = ("out", "given_up")[done % 2]
                at = dice.choice(("now", "now", "iteration"))
                state = here.suspend("job", level, at)
                self.assertEqual(state["level"], level, state)
                report = here.residence(program.pid).read()
                held = sum(here.held_by(program.pid))
                # Nothing of the arena is left there; what the program got by other ways is known and small.
                self.assertEqual(report["state"], level, report)
                self.assertEqual(held, 0 if level == "given_up" else report["fixed_bytes"], report)
                fixed.append(report["fixed_bytes"])
                before = program.steps
                time.sleep(dice.random() * 0.01)
                self.assertEqual(program.steps, before, "it stands still")
                here.resume("job")
                seen[level] += 1

            self.disturbed(here, (ITERATIONS, dice.randrange(1000)), SUSPENSIONS, disturb, dice)
            print(f"{seen}, bytes that stayed while out: {max(fixed)}")

    def test_migrated_among_four_devices(self):
        dice = moving.seed_of("migrations")
        with moving.Moves(profile=QUICK, devices=4) as here:
            here.lulld()
            place = [0]

            def disturb(program, done):
                target = (place[0] + 1 + dice.randrange(3)) % 4
                here.migrate("job", [target])
                held = here.held_by(program.pid)
                if not any(held):
                    raise moving.Refused("it has ended")  # or holds nothing: then the job is still there
                self.assertEqual([h != 0 for h in held], [d == target for d in range(4)], held)
                place[0] = target

            self.disturbed(here, (ITERATIONS, dice.randrange(1000), 32), MIGRATIONS, disturb, dice, way="--migratable")

    def test_suspended_under_mps(self):
        dice = moving.seed_of("mps")
        with moving.Moves(profile=QUICK, sharing="mps") as here:
            here.lulld()

            def disturb(program, _):
                # The driver takes no client of MPS off the device: refused, and the job goes on as it was.
                with self.assertRaises(moving.Refused) as refused:
                    here.suspend("job", "given_up")
                self.assertRegex(str(refused.exception), "MPS")
                program.goes_on()
                here.suspend("job", "out")
                here.resume("job")

            self.disturbed(here, (40, dice.randrange(1000)), 5, disturb, dice)

    def test_in_place_a_job_that_has_no_arena(self):
        dice = moving.seed_of("in place")
        with moving.Moves() as here:
            here.lulld()

            def disturb(program, _):
                with self.assertRaises(moving.Refused):
                    here.suspend("job", "out")
                state = here.suspend("job", "auto")
                self.assertEqual(state["level"], "in_place")
                held = sum(here.held_by(program.pid))
                self.assertGreater(held, 0)
                here.resume("job")

            self.disturbed(here, (40, dice.randrange(1000)), 5, disturb, dice, way=None)

    def test_two_ranks_stop_at_the_same_launch(self):
        with moving.Moves() as here:
            here.lulld()
            # As ranks are, they are never far from each other: those behind catch up one launch at a time.
            ranks = [moving.Program(here.start(lab.BIN / "lull", "run", "--socket", here.socket, "--sim", "--require-coordinator", "--job", "job", "--",
                                               lab.PROGRAMS / "loop_launch", 200000, 1, 0, 200, here.folder / "ranks", rank,
                                               shim=False, SIMGPU_DEVICE=here.device))
                     for rank in (0, 1)]
            for rank in ranks:
                rank.ready()
            def counts():
                return [here.client(rank.pid)["launches"] for rank in ranks]

            for _ in range(40):
                launched = counts()
                lab.until(lambda: all(now > n + 50 for now, n in zip(counts(), launched)), "both go on")
                here.suspend("job", "in_place", "now")
                # A thread that had passed its gate before that closed may launch late: the others follow it.
                lab.until(lambda: len(set(counts())) == 1, "both are at the same launch")
                here.resume("job")
            for rank in ranks:
                rank.child.send_signal(signal.SIGTERM)
                self.assertEqual(rank.child.wait(lab.DEADLINE_S), 0)

    def test_two_ranks_move_together(self):
        dice = moving.seed_of("ranks")
        work = (40, dice.randrange(1000), 16, 1)
        with moving.Moves(profile=QUICK, devices=4) as here:
            here.lulld()
            expected = here.undisturbed(*work)
            ranks = [here.work(*work, job="job", way="--migratable", stays=True, options=("--name", f"rank{n}")).ready() for n in (0, 1)]
            lab.until(lambda: len((here.job("job") or {"clients": []})["clients"]) == 2, "both are of the job")
            for turn in range(4):
                lead = max(rank.steps for rank in ranks)
                lab.until(lambda: max(rank.steps for rank in ranks) > lead + 40 or not ranks[0].running(), "they go on")
                here.suspend("job", "given_up", "iteration")
                self.assertEqual([here.residence(rank.pid).state() for rank in ranks], ["given_up"] * 2)
                here.resume("job")
                here.migrate("job", [(turn + 1) % 4])
            for rank in ranks:
                rank.stays.touch()
            for rank in ranks:
                self.assertEqual(rank.result()[:2], (0, expected))
            here.empty()

    def test_the_runtimes_program_moves_too(self):
        if not (lab.PROGRAMS / "moving_runtime").exists():
            self.skipTest("no nvcc")
        with moving.Moves(profile=QUICK) as here:
            here.lulld()
            # Long enough that it is still there however late a busy machine lets the test come.
            expected = here.undisturbed(200, program="moving_runtime")
            program = here.work(200, job="job", program="moving_runtime").ready()
            for level in ("out", "given_up", "out"):
                program.goes_on(10)
                here.suspend("job", level)
                here.resume("job")
            code, digest, err = program.result()
            self.assertEqual((code, err, digest), (0, "", expected))
            here.empty()


class Refusals(unittest.TestCase):
    """A job that cannot be moved goes on, and lulld says why."""

    def goes_on_to_its_end(self, here, program):
        program.goes_on()
        code, _, err = program.result()
        self.assertEqual(code, 0, err)
        here.empty()

    def test_managed_memory_is_not_given_up(self):
        with moving.Moves(profile=QUICK) as here:
            here.lulld()
            program = here.work(30, 1, 16, job="job", PROGRAM_MANAGED=8 * MIB, stays=True).ready()
            program.goes_on(10)
            with self.assertRaises(moving.Refused) as refused:
                here.suspend("job", "given_up")
            self.assertIn("managed", str(refused.exception))
            here.suspend("job", "out")
            self.assertGreaterEqual(here.residence(program.pid).read()["fixed_bytes"], 8 * MIB)
            self.assertGreaterEqual(sum(here.held_by(program.pid)), 8 * MIB)
            # Refused to go further, it stays out.
            with self.assertRaises(moving.Refused) as refused:
                here.suspend("job", "given_up")
            self.assertIn("managed", str(refused.exception))
            self.assertEqual(here.job("job")["state"], "suspended")
            code, out, _ = here.run(lab.BIN / "lull", "suspend", "job", "--level", "given_up", "--wait", "--socket", here.socket, shim=False)
            self.assertEqual(code, 1, out)
            self.assertIn("managed", out)
            self.assertEqual(here.residence(program.pid).state(), "out")
            here.resume("job")
            self.goes_on_to_its_end(here, program)

    def test_too_little_host_memory(self):
        with moving.Moves(profile=QUICK) as here:
            here.lulld(config={"host_memory": "4M"})
            program = here.work(30, 1, 32, job="job", stays=True).ready()
            program.goes_on(40)
            with self.assertRaises(moving.Refused) as refused:
                here.suspend("job", "out")
            self.assertIn("host", str(refused.exception))
            self.goes_on_to_its_end(here, program)

    def test_a_job_that_is_pinned(self):
        with moving.Moves(profile=QUICK, devices=2) as here:
            here.lulld()
            program = here.work(30, 1, 16, job="job", way="--migratable", stays=True).ready()
            here.order("pin", "job", pinned=True)
            with self.assertRaises(moving.Refused) as refused:
                here.migrate("job", [1])
            self.assertIn("pin", str(refused.exception))
            here.order("pin", "job", pinned=False)
            here.migrate("job", [1])
            self.goes_on_to_its_end(here, program)

    def test_a_job_that_nobody_knows(self):
        with moving.Moves() as here:
            here.lulld()
            with self.assertRaises(moving.Refused) as refused:
                here.order("suspend", "nobody", level="auto", at="now")
            self.assertIn("nobody", str(refused.exception))

    def test_a_suspendable_job_is_not_migrated(self):
        with moving.Moves(profile=QUICK, devices=2) as here:
            here.lulld()
            program = here.work(30, 1, 16, job="job", stays=True).ready()
            program.goes_on(5)
            here.able(program)
            with self.assertRaises(moving.Refused) as refused:
                here.migrate("job", [1])
            self.assertIn("--migratable", str(refused.exception))
            self.goes_on_to_its_end(here, program)


class Room(unittest.TestCase):
    """A return waits for memory, and says so; more than the device holds takes turns."""

    SMALL = {**QUICK, "memory_bytes": 160 * MIB}
    STEADY = {"PROGRAM_STEADY": 108 * MIB}  # no two of them fit, three are twice the device

    def test_a_return_waits_until_there_is_room(self):
        with moving.Moves(profile=self.SMALL) as here:
            here.lulld()
            works = [(20, 1, 8, 1), (40, 2, 8, 1)]
            expected = [here.undisturbed(*work, **self.STEADY) for work in works]
            first = here.work(*works[0], job="first", stays=True, **self.STEADY).ready()
            first.goes_on(20)
            here.suspend("first", "out")
            second = here.work(*works[1], job="second", stays=True, **self.STEADY).ready()
            second.goes_on(20)
            here.resume("first", wait=False)
            state = here.reach("first", ("waiting",))
            self.assertRegex(state["waits_for"], "needs 1[0-9][0-9][.0-9]* MiB")
            before = first.steps
            second.goes_on(20)
            self.assertEqual(first.steps, before)
            for program, digest in zip((second, first), reversed(expected)):
                self.assertEqual(program.result(), (0, digest, ""))
            here.empty()

    def test_three_jobs_of_twice_the_device_take_turns(self):
        with moving.Moves(profile=self.SMALL) as here:
            here.lulld(config={"quantum_s": 1})
            works = [(40, seed, 8, 1) for seed in (1, 2, 3)]
            expected = [here.undisturbed(*work, **self.STEADY) for work in works]
            jobs = [here.work(*work, job=f"job{n}", way="--oversubscribe", **self.STEADY) for n, work in enumerate(works)]
            turns, last, most = 0, None, 0
            end = time.monotonic() + lab.DEADLINE_S * 3
            while any(job.running() for job in jobs) and time.monotonic() < end:
                most = max(most, sum(here.usage()[0].values()))
                states = {j["job"]: j["state"] for j in here.status().get("jobs", [])}
                running = sorted(name for name, state in states.items() if state == "running")
                if running != last:
                    turns, last = turns + 1, running
                time.sleep(0.02)
            self.assertEqual([job.result(5) for job in jobs], [(0, digest, "") for digest in expected])
            self.assertLessEqual(most, self.SMALL["memory_bytes"])
            print(f"{turns} changes of who runs")
            self.assertGreater(turns, 3)
            here.empty()

    def test_a_new_daemon_gives_turns_to_jobs_that_all_wait_on_a_full_device(self):
        with moving.Moves(profile=self.SMALL) as here:
            here.lulld(config={"quantum_s": 1})
            go = here.folder / "go"
            more = {"PROGRAM_STEADY": 60 * MIB}
            works = [(20, seed, 8, 1) for seed in (1, 2)]
            expected = [here.undisturbed(*work, **more) for work in works]
            jobs = [here.work(*work, job=f"job{n}", way="--oversubscribe", PROGRAM_FIRST=60 * MIB, PROGRAM_WAIT_FILE=go, **more).ready()
                    for n, work in enumerate(works)]
            lab.kill(here.daemon)
            go.touch()
            time.sleep(1)  # both have asked the driver for 60 MiB where 40 are left, and do so again and again
            self.assertEqual(sorted(here.usage()[0].values()), [60 * MIB] * 2)
            here.lulld(config={"quantum_s": 1})
            self.assertEqual([job.result()[:2] for job in jobs], [(0, digest) for digest in expected])
            here.empty()


class Bound(unittest.TestCase):
    """Copies of a move are paced while a more important task with a bound works. What it loses is printed by
    tools/bench/moves."""

    def paces(self, here, moves):
        """Pace and chunk that lulld asked for in each of so many moves of the job."""
        words = here.residence(self.job.pid)
        seen = set()
        for _ in range(moves):
            here.order("suspend", "job", level="out", at="now")
            while (state := here.job("job")["state"]) not in ("suspended", "running"):
                order = words.order()
                if words.state() == "leaving":
                    seen.add((order["pace_bytes_per_s"], order["chunk_bytes"]))
            self.assertEqual(state, "suspended", here.job("job"))
            here.resume("job")
        return seen

    def test_the_pace_follows_who_works_beside(self):
        slow_copies = {"d2h_gb_per_s": 0.5, "h2d_gb_per_s": 0.5, "pageable_factor": 1.0}
        with moving.Moves(profile=slow_copies) as here:
            here.lulld("--policy", "guarded")
            self.job = here.work(100000, 1, 4, 1, job="job", options=("--priority", "low"), PROGRAM_STEADY=128 * MIB).ready()
            self.job.goes_on(30)
            alone = self.paces(here, 3)
            self.assertTrue(alone)
            self.assertEqual({pace for pace, _ in alone}, {0}, "nobody is disturbed: as fast as it goes")
            important = here.start(lab.BIN / "lull", "run", "--socket", here.socket, "--sim", "--priority", "high", "--max-slowdown", "3%",
                                   "--name", "important", "--", lab.BIN / "lull-play", WORKLOADS / "chatty_inference.json", "--until-signal",
                                   shim=False, SIMGPU_DEVICE=here.device)
            lab.until(lambda: (c := here.client(important.pid)) and c["launches"] > 500, "the important task works")
            beside = self.paces(here, 3)
            self.assertTrue(any(pace > 0 for pace, _ in beside), beside)
            lab.kill(important)
            lab.until(lambda: here.client(important.pid) is None, "it is gone")
            self.assertEqual({pace for pace, _ in self.paces(here, 2)}, {0})
            lab.kill(self.job.child)
            print(f"alone {sorted(alone)}, beside {sorted(beside)} (bytes a second, bytes a chunk)")


if __name__ == "__main__":
    unittest.main()
