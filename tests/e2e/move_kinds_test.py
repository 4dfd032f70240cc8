"""Jobs with memory of unusual kinds move, and nothing of them changes: what can leave the GPU leaves it, what cannot stays
and is named, what the driver refuses is refused with the reason and the job goes on.

LULL_ITERATIONS says how long the programs are (400)."""

import time
import unittest

import lab
import moving
from moving import MIB

QUICK = {"checkpoint_out_ns": 3000000, "checkpoint_back_ns": 3000000, "checkpoint_unlock_ns": 100000}
ITERATIONS = moving.times("LULL_ITERATIONS", 400)


class Case(unittest.TestCase):
    def start(self, here, kind, way="--migratable", iterations=ITERATIONS, job="job", path=""):
        return here.work(kind, iterations, 7, path, job=job, way=way, program="moving_kinds").ready()

    def fixed(self, here, program):
        """What stays, and why, as `lull status` has it."""
        said = here.client(program.pid)["residence"]
        return said["fixed_bytes"], set(said["fixed_why"])

    def ends_well(self, here, program, expected=None):
        code, digest, err = program.result()
        self.assertEqual((code, err), (0, ""))
        if expected is not None:
            self.assertEqual(digest, expected)
        return digest


class Kinds(Case):
    def moves_every_way(self, kind, at_rest):
        """Out, given up, and to another GPU; `at_rest(here, program, level)` looks at it each time."""
        with moving.Moves(profile=QUICK, devices=2) as here:
            here.lulld()
            expected = here.undisturbed(kind, ITERATIONS, 7, "", program="moving_kinds")
            program = self.start(here, kind)
            place, done = 0, 0
            for _ in range(3):
                for level in ("out", "given_up"):
                    program.goes_on(5)
                    self.assertEqual(here.suspend("job", level)["level"], level)
                    before = program.steps
                    at_rest(here, program, level)
                    self.assertEqual(program.steps, before)
                    here.resume("job")
                    done += 1
                program.goes_on(5)
                place = 1 - place
                here.migrate("job", [place])
                held = here.held_by(program.pid)
                self.assertEqual([bytes_ != 0 for bytes_ in held], [n == place for n in range(2)], held)
                done += 1
            self.assertTrue(program.running(), "it was still at work")
            self.ends_well(here, program, expected)
            self.assertEqual(done, 9)
            here.empty()

    def nothing_else_stays(self, here, program, level):
        self.assertEqual(sum(here.held_by(program.pid)), 0)
        self.assertEqual(self.fixed(here, program), (0, set()))

    def test_arrays_stay_are_named_and_go_with_a_checkpoint(self):
        texts = []

        def at_rest(here, program, level):
            stays, why = self.fixed(here, program)
            self.assertEqual(why, {"arrays (their size is a lower bound)"})
            self.assertGreaterEqual(stays, 1451280)  # what the elements take
            self.assertEqual(sum(here.held_by(program.pid)), stays if level == "out" else 0)
            code, text, err = here.lull("status", "--socket", here.socket)
            self.assertEqual(code, 0, err)
            texts.append(text)

        self.moves_every_way("array", at_rest)
        for text in texts:
            self.assertRegex(text, r"1\.\d+ MiB cannot \(arrays")

    def test_memory_of_graphs_stays_and_goes_with_a_checkpoint(self):
        def at_rest(here, program, level):
            stays, why = self.fixed(here, program)
            self.assertEqual(why, {"memory of graphs"})
            self.assertEqual(stays, 2 * MIB)  # of one allocation node
            self.assertEqual(sum(here.held_by(program.pid)), stays if level == "out" else 0)

        self.moves_every_way("graph", at_rest)

    def test_pools_with_a_release_threshold(self):
        self.moves_every_way("threshold", self.nothing_else_stays)

    def test_registered_and_mapped_host_memory(self):
        self.moves_every_way("host", self.nothing_else_stays)

    def test_managed_memory_stays_and_is_not_given_up(self):
        with moving.Moves(profile=QUICK, devices=2) as here:
            here.lulld()
            expected = here.undisturbed("managed", ITERATIONS, 7, "", program="moving_kinds")
            program = self.start(here, "managed")
            for _ in range(3):
                program.goes_on(5)
                here.suspend("job", "out")
                stays, why = self.fixed(here, program)
                self.assertEqual(why, {"managed memory", "arrays (their size is a lower bound)"})
                self.assertGreaterEqual(stays, 6 * MIB)
                self.assertGreaterEqual(sum(here.held_by(program.pid)), stays)
                here.resume("job")
                for refused in (lambda: here.suspend("job", "given_up"), lambda: here.migrate("job", [1])):
                    program.goes_on(5)
                    try:
                        refused()
                    except moving.Refused:
                        pass
                    job = here.reach("job", ("running",))
                    self.assertRegex(job["reason"], "managed memory")  # not the array, which came later
                    self.assertEqual(here.residence(program.pid).state(), "resident")
            self.ends_well(here, program, expected)
            here.empty()


class Shared(Case):
    """Two processes, one of which has opened the other's memory."""

    def test_each_in_turn_and_both(self):
        with moving.Moves(profile=QUICK) as here:
            here.lulld()
            path = here.folder / "meeting"
            exporter = self.start(here, "export", way="--suspendable", job="exporter", path=path)
            importer = self.start(here, "import", way="--suspendable", job="importer", path=path)
            both = (("exporter", exporter), ("importer", importer))
            for _ in range(2):
                for name, program in both:
                    program.goes_on(5)
                    here.suspend(name, "out")
                    stays, why = self.fixed(here, program)
                    if program is exporter:
                        self.assertEqual(why, {"memory that other processes may share (cuIpcGetMemHandle)"})
                        self.assertGreaterEqual(stays, 5 * MIB)
                        self.assertGreaterEqual(sum(here.held_by(program.pid)), stays)
                    here.resume(name)
                for name, _ in both:
                    here.suspend(name, "out")
                before = [program.steps for _, program in both]
                time.sleep(0.05)
                self.assertEqual([program.steps for _, program in both], before)
                for name, _ in both:
                    here.resume(name)
                for name, program in both:
                    program.goes_on(5)
                    with self.assertRaises(moving.Refused) as refused:
                        here.suspend(name, "given_up")
                    self.assertRegex(str(refused.exception), "may share" if program is exporter else "memory of another process")
                    program.goes_on(5)
            digests = [self.ends_well(here, program) for _, program in both]
            self.assertEqual(digests[0], digests[1])
            here.empty()

    def test_memory_that_is_away_is_opened_when_it_is_back(self):
        with moving.Moves(profile=QUICK) as here:
            here.lulld()
            path = here.folder / "meeting"
            exporter = self.start(here, "export", way="--suspendable", job="exporter", path=path, iterations=20)
            # Nobody has opened it yet: the driver gives it up.
            here.suspend("exporter", "given_up")
            importer = here.work("import", 20, 7, path, job="importer", program="moving_kinds")
            lab.until(lambda: here.client(importer.pid) and here.client(importer.pid)["residence"]["swappable_bytes"] > 0,
                      "the importer has its memory")
            # Longer than an answer takes; and who waits can be moved meanwhile.
            time.sleep(6)
            self.assertTrue(importer.running(), importer.errors)
            self.assertNotIn("ready", importer.lines)
            here.suspend("importer", "out")
            here.resume("importer")
            self.assertNotIn("ready", importer.lines)
            here.resume("exporter")
            importer.ready()
            self.assertEqual(self.ends_well(here, importer), self.ends_well(here, exporter))
            here.empty()


if __name__ == "__main__":
    unittest.main()
