"""A lulld that is stopped holds nobody, and takes its clients for what they are when it is back."""

import pathlib
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import lab  # noqa: E402


def loop(here, name, priority, **more):
    return here.start(lab.PROGRAMS / "loop_launch", 20000, 10, LULL_NAME=name, LULL_PRIORITY=priority, **more)


def line(child):
    """Its next line; a child that says nothing for too long is ended, and the line is empty."""
    limit = threading.Timer(lab.DEADLINE_S, child.kill)
    limit.start()
    try:
        return child.stdout.readline().strip()
    finally:
        limit.cancel()


def wait_arrived(here, child):
    said = line(child)
    if said != "ready":
        raise AssertionError(f"not ready: {said!r}")
    here.wait_known(child)


def finish(child):
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=lab.DEADLINE_S)
    return child.returncode, err


class StoppedDaemon(unittest.TestCase):
    def held_beside_another(self, here):
        """Two programs under `exclusive`: the second is held for as long as the first lives."""
        here.lulld("--policy", "exclusive")
        # Whom lulld has not answered in time runs unscheduled, and says so.
        first = loop(here, "first", "high", LULL_REQUIRE_COORDINATOR=1)
        wait_arrived(here, first)
        second = loop(here, "second", "low", LULL_REQUIRE_COORDINATOR=1)
        lab.until(lambda: (c := here.client(second.pid)) and c["held"], "the second program is held")
        return first, second

    def stop(self, daemon):
        daemon.send_signal(signal.SIGSTOP)
        lab.until(lambda: pathlib.Path(f"/proc/{daemon.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T",
                  "the daemon is stopped")

    def goes_on_and_is_held_again(self, here):
        first, second = self.held_beside_another(here)
        before = {c["pid"]: c["id"] for c in here.status()["clients"]}
        self.stop(here.daemon)
        self.assertEqual(line(second), "ready")  # said before it was held, or now
        self.assertTrue(line(second).startswith("running"))  # it goes on, and is not held at each launch
        self.assertTrue(line(first).startswith("running"))
        here.daemon.send_signal(signal.SIGCONT)
        held = lab.until(lambda: (c := here.client(second.pid)) and c["held"] and c, "it is held again")
        self.assertGreater(held["unheld_launches"], 0)
        self.assertEqual({c["pid"]: (c["id"], c["lies"]) for c in here.status()["clients"]},
                         {pid: (client, 0) for pid, client in before.items()})
        self.assertEqual(here.client(first.pid)["unheld_launches"], 0)
        for child in (first, second):  # the second is held until the first has gone
            self.assertEqual(finish(child), (0, ""))
        lab.until(lambda: not here.status()["clients"], "nothing is left of them")

    def test_a_held_program_goes_on_and_is_held_again_when_the_daemon_is_back(self):
        with lab.Lab() as here:
            self.goes_on_and_is_held_again(here)

    def test_it_is_a_second_of_the_machines_time_where_the_gpu_is_in_slow_motion(self):
        with lab.Lab(slow_motion=20) as here:
            self.goes_on_and_is_held_again(here)

    def test_a_daemon_that_runs_holds_for_as_long_as_its_policy_says(self):
        with lab.Lab() as here:
            first, second = self.held_beside_another(here)
            before, since = here.client(second.pid)["launches"], time.monotonic()
            lab.until(lambda: time.monotonic() - since > 3, "three seconds")
            client = here.client(second.pid)
            # Where the machine gave the daemon no processor for a second it was as good as stopped.
            if not client["unheld_launches"]:
                self.assertTrue(client["held"], client)
                self.assertEqual(client["launches"], before)
            self.assertEqual([finish(c)[0] for c in (first, second)], [0, 0])

    def test_programs_that_start_meanwhile_run_and_attach_when_the_daemon_is_back(self):
        with lab.Lab() as here:
            here.lulld("--policy", "exclusive")
            self.stop(here.daemon)
            late = loop(here, "late", "normal")
            self.assertEqual(line(late), "ready")
            here.daemon.send_signal(signal.SIGCONT)
            lab.until(lambda: (c := here.client(late.pid)) and c["launches"], "it is a client")
            self.assertEqual(here.client(late.pid)["lies"], 0)
            self.assertEqual(finish(late)[0], 0)

    def test_a_program_comes_back_from_a_daemon_that_was_ended_while_it_was_stopped(self):
        with lab.Lab() as here:
            here.lulld("--policy", "exclusive")
            first = loop(here, "first", "high")
            wait_arrived(here, first)
            second = here.start(lab.PROGRAMS / "loop_launch", 20000, 1, 0, 100_000, LULL_NAME="second", LULL_PRIORITY="low")
            lab.until(lambda: (c := here.client(second.pid)) and c["held"], "the second program is held")
            self.stop(here.daemon)
            self.assertEqual(line(second), "ready")  # said before it was held, or now
            self.assertTrue(line(second).startswith("running"))  # it goes on, 100 ms after each launch
            lab.kill(here.daemon)
            here.lulld("--policy", "share")
            client = lab.until(lambda: here.client(second.pid), "it has come back")
            second.send_signal(signal.SIGTERM)
            out, _ = second.communicate(timeout=lab.DEADLINE_S)
            launches = int(out.rsplit("launches=", 1)[1].split()[0])
            # Sooner than by a full ring, of 256 records; one launch and its synchronisation take two.
            self.assertLess(launches - client["launches"], 100)


if __name__ == "__main__":
    unittest.main()
