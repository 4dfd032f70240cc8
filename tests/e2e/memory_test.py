"""Memory limits: for a process, for a job, and what the program is told."""

import re
import unittest

import lab

MIB = 1 << 20


class Memory(unittest.TestCase):
    def test_a_process_gets_what_it_asked_for_and_is_told_so(self):
        for daemon in (False, True):
            with self.subTest(daemon=daemon), lab.Lab() as here:
                if daemon:
                    here.lulld()
                code, out, err = here.lull("run", "--socket", here.socket, "--sim", "--memory", "512M", "--",
                                           lab.PROGRAMS / "alloc_limit", 64 * MIB)
                self.assertEqual(code, 0, err)
                numbers = [int(n) for n in re.findall(r"\d{6,}", out)]
                self.assertTrue(numbers, out)
                self.assertLessEqual(max(numbers), 512 * MIB, out)

    def test_two_processes_of_a_job_share_its_limit(self):
        with lab.Lab() as here:
            here.lulld()
            wait = here.folder / "go-on"
            first = here.start(lab.PROGRAMS / "alloc_limit", 32 * MIB, 256 * MIB, LULL_JOB="job", LULL_MEMORY=384 * MIB, LULL_REQUIRE_COORDINATOR=1,
                               PROGRAM_WAIT_FILE=str(wait))
            lab.until(lambda: (c := here.client(first.pid)) and c["devices"] and c["devices"][0]["memory_bytes"] >= 256 * MIB,
                      "the first holds its part")
            second = here.start(lab.PROGRAMS / "alloc_limit", 32 * MIB, LULL_JOB="job", LULL_MEMORY=384 * MIB, LULL_REQUIRE_COORDINATOR=1,
                                PROGRAM_WAIT_FILE=str(wait))
            used = lab.until(lambda: (c := here.client(second.pid)) and c["devices"] and c["devices"][0]["memory_bytes"], "the second allocates")
            lab.until(lambda: sum(c["devices"][0]["memory_bytes"] for c in here.status()["clients"]) >= 352 * MIB, "they fill the job's limit")
            total = sum(c["devices"][0]["memory_bytes"] for c in here.status()["clients"])
            self.assertLessEqual(total, 384 * MIB, used)
            wait.touch()
            self.assertEqual([first.wait(lab.DEADLINE_S), second.wait(lab.DEADLINE_S)], [0, 0])


if __name__ == "__main__":
    unittest.main()
