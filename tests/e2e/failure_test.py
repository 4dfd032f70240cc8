"""Whatever dies, the others go on: the daemon, a held client, a holding client."""

import contextlib
import os
import random
import signal
import time
import unittest

import lab

ROUNDS = int(os.environ.get("LULL_KILL_ROUNDS", "100"))


def loop(here, name, priority, spin_ns, sync_every, gap_us=0, most=0, **more):
    return here.start(lab.PROGRAMS / "loop_launch", spin_ns, sync_every, most, gap_us,
                      LULL_NAME=name, LULL_PRIORITY=priority, **more)


def wait_ready(child):
    line = child.stdout.readline()
    if line.strip() != "ready":
        raise AssertionError(f"not ready: {line!r} {child.stderr.read()}")


def wait_arrived(here, child):
    wait_ready(child)
    here.wait_known(child)


def connections(here):
    """How many sockets lulld has at its place: the listener, and one for each program that has connected."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as sockets:
        return sum(line.rstrip("\n").endswith(" " + here.socket) for line in sockets)


def stop(child):
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=lab.DEADLINE_S)
    return child.returncode, out, err


class DaemonDies(unittest.TestCase):
    def test_both_tasks_finish_and_nothing_is_held_after_the_daemon_is_killed(self):
        with lab.Lab() as here:
            here.lulld("--policy", "exclusive")
            first = loop(here, "first", "high", 20000, 10)
            wait_arrived(here, first)
            held = loop(here, "second", "low", 20000, 10)
            lab.until(lambda: (c := here.client(held.pid)) and c["held"], "the second task is held")
            lab.kill(here.daemon)
            killed = time.monotonic()
            wait_ready(held)  # its first synchronisation: it was let go
            print(f"ungated {(time.monotonic() - killed) * 1e3:.0f} ms after the kill")
            for child in (first, held):
                code, out, err = stop(child)
                self.assertEqual(code, 0, err)
                self.assertIn("launches=", out)

    def test_a_restarted_daemon_gets_its_clients_back(self):
        with lab.Lab() as here:
            here.lulld()
            children = [loop(here, n, p, 50000, 5, 100) for n, p in (("a", "high"), ("b", "low"))]
            for child in children:
                wait_ready(child)
            lab.kill(here.daemon)
            here.lulld()
            for child in children:
                client = lab.until(lambda: here.client(child.pid), "the client is back")
                lab.until(lambda: here.client(child.pid)["launches"] > client["launches"], "it launches under it")
            tasks = {c["task"]: c["priority"] for c in here.status()["clients"]}
            self.assertEqual(tasks, {"a": 2, "b": 7})
            for child in children:
                self.assertEqual(stop(child)[0], 0)

    def test_a_daemon_that_ends_politely_lets_everybody_go(self):
        with lab.Lab() as here:
            here.lulld("--policy", "exclusive")
            first = loop(here, "first", "normal", 20000, 10)
            wait_arrived(here, first)
            second = loop(here, "second", "normal", 20000, 10)
            lab.until(lambda: (c := here.client(second.pid)) and c["held"], "the second task is held")
            here.daemon.send_signal(signal.SIGTERM)
            self.assertEqual(here.daemon.wait(lab.DEADLINE_S), 0)
            wait_ready(second)
            self.assertEqual([stop(c)[0] for c in (first, second)], [0, 0])


class DaemonStops(unittest.TestCase):
    def test_a_daemon_that_stood_still_while_it_answered_answers_the_next_request(self):
        with lab.Lab() as here:
            here.lulld("--verbose")
            # It logs what it answers, into a pipe that is full.
            log = os.open(f"/proc/{here.daemon.pid}/fd/2", os.O_WRONLY | os.O_NONBLOCK)
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(log, b"\n" * 4096)
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(log, b"\n")
            os.close(log)
            asks = here.start(lab.BIN / "lull", "policy", "share", shim=False)
            time.sleep(3)
            self.assertIsNone(asks.poll())
            os.read(here.daemon.stderr.fileno(), 1 << 16)
            self.assertEqual(lab.ended(asks), 0)
            # A request that is not answered within ten seconds is turned away.
            self.assertTrue(here.alive())


class ClientDies(unittest.TestCase):
    def test_a_client_killed_at_random_moments_never_stops_the_other(self):
        seed = int(os.environ.get("LULL_SEED", random.randrange(1 << 30)))
        print(f"seed {seed}, {ROUNDS} rounds")
        dice = random.Random(seed)
        with lab.Lab() as here:
            here.lulld("--policy", "priority in_flight_us=50")
            survivor_is_high = True
            survivor = loop(here, "survivor", "high", 30000, 3, 200)
            wait_arrived(here, survivor)
            for round_number in range(ROUNDS):
                if round_number == ROUNDS // 2:  # then the other way round: the one that dies holds
                    self.assertEqual(stop(survivor)[0], 0)
                    survivor_is_high = False
                    survivor = loop(here, "survivor", "low", 30000, 3, 200)
                    wait_arrived(here, survivor)
                victim = loop(here, "victim", "low" if survivor_is_high else "high", dice.choice([5000, 400000]), dice.choice([1, 20]))
                time.sleep(dice.random() * 0.06)
                lab.kill(victim)
                before = here.client(survivor.pid)["launches"]
                lab.until(lambda: here.client(survivor.pid)["launches"] > before + 3,
                          f"the survivor goes on (seed {seed}, round {round_number})")
                lab.until(lambda: len(here.status()["clients"]) == 1, "the dead client is gone")
            self.assertEqual(stop(survivor)[0], 0)
            lab.until(lambda: not here.status()["clients"], "the daemon's state is clean")

    def test_a_client_killed_at_each_step_of_a_device_update_never_stops_the_other(self):
        with lab.Lab() as here:
            here.lulld()
            survivor = loop(here, "survivor", "high", 20000, 3, 200)
            wait_arrived(here, survivor)
            killed = 0
            for step in range(1, 41):
                victim = loop(here, "victim", "low", 20000, 2, 0, 200, SIMGPU_TEST_KILL_AT=step * 7)
                victim.wait(lab.DEADLINE_S)
                killed += victim.returncode == -signal.SIGKILL
                before = here.client(survivor.pid)["launches"]
                lab.until(lambda: here.client(survivor.pid)["launches"] > before + 3, f"the survivor goes on (step {step * 7})")
            self.assertGreater(killed, 30)
            self.assertEqual(stop(survivor)[0], 0)


class BadStart(unittest.TestCase):
    def test_without_a_daemon_the_program_runs_after_one_line(self):
        with lab.Lab() as here:
            code, out, err = here.lull("run", "--socket", here.socket, "--sim", "--", lab.PROGRAMS / "driver_linked", 3)
            self.assertEqual(code, 0, err)
            self.assertIn("launches=3", out)
            self.assertEqual(len(err.strip().splitlines()), 1, err)
            self.assertIn(here.socket, err)

    def test_with_require_coordinator_it_is_an_error(self):
        with lab.Lab() as here:
            code, out, err = here.lull("run", "--require-coordinator", "--socket", here.socket, "--sim", "--",
                                       lab.PROGRAMS / "driver_linked", 3)
            self.assertNotEqual(code, 0)
            self.assertNotIn("launches=", out)
            self.assertEqual(len(err.strip().splitlines()), 1, err)

    def test_a_program_that_was_stopped_with_its_daemon_still_waits_for_the_answer(self):
        with lab.Lab() as here:
            here.lulld()
            here.daemon.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, here.daemon.pid, os.WSTOPPED)
            before = connections(here)
            # With a coordinator required it waits ten seconds for the answer. It and lulld are stopped for longer.
            child = loop(here, "child", "normal", 20000, 10, LULL_REQUIRE_COORDINATOR=1)
            lab.until(lambda: connections(here) > before, "it has connected")
            child.send_signal(signal.SIGSTOP)
            time.sleep(10.5)
            child.send_signal(signal.SIGCONT)
            time.sleep(0.2)  # it goes on before lulld does
            here.daemon.send_signal(signal.SIGCONT)
            wait_arrived(here, child)
            code, _, err = stop(child)
            self.assertEqual((code, err), (0, ""))

    def test_a_second_daemon_on_one_socket_is_refused(self):
        with lab.Lab() as here:
            here.lulld()
            code, _, err = here.run(lab.BIN / "lulld", "--socket", here.socket, "--sim", here.device, shim=False)
            self.assertEqual(code, 1)
            self.assertIn(here.socket, err)
            self.assertTrue(here.alive())

    def test_an_unknown_policy_names_the_ones_there_are(self):
        with lab.Lab() as here:
            here.lulld()
            code, _, err = here.lull("policy", "fairest")
            self.assertEqual(code, 1 if code == 1 else 2)
            for name in ("share", "exclusive", "time_slice", "priority", "fikit", "guarded"):
                self.assertIn(name, err)

    def test_a_missing_program_is_127(self):
        with lab.Lab() as here:
            here.lulld()
            code, _, err = here.lull("run", "--sim", "--", "/nonexistent/program")
            self.assertEqual(code, 127)
            self.assertIn("/nonexistent/program", err)


class UnknownDevices(unittest.TestCase):
    def test_a_program_on_a_device_that_lulld_does_not_know_runs_unscheduled_and_says_so(self):
        with lab.Lab() as here:
            here.lulld("--policy", "exclusive")
            # Whom lulld has not answered in time says another line.
            first = loop(here, "first", "high", 20000, 10, LULL_REQUIRE_COORDINATOR=1)
            wait_arrived(here, first)
            # The second device of another node; lulld's has one.
            other = loop(here, "other", "low", 20000, 10, SIMGPU_DEVICE=here.folder / "other", SIMGPU_DEVICES=2,
                         CUDA_VISIBLE_DEVICES=1, LULL_REQUIRE_COORDINATOR=1)
            wait_ready(other)
            client = lab.until(lambda: (c := here.client(other.pid)) and c["unscheduled"] and c, "status shows why")
            self.assertEqual(client["devices"], [])
            self.assertTrue(client["unscheduled"][0]["uuid"].startswith("GPU-73696d67-7075-0001-"))
            self.assertIn("no device of", client["unscheduled"][0]["why"])
            code, out, _ = here.lull("status")
            self.assertEqual(code, 0)
            self.assertRegex(out, r"running unscheduled, on devices that lulld does not know:\n +ID  TASK .*\n +\d+  other ")
            code, _, err = stop(other)
            self.assertEqual(code, 0, err)
            self.assertEqual(err, "lull: device 0 is none that the coordinator knows: running unscheduled there: "
                                  "see lull status\n")
            code, _, err = stop(first)
            self.assertEqual((code, err), (0, ""))


class PolicyChanges(unittest.TestCase):
    def test_the_policy_of_a_running_daemon_changes_and_nobody_stays_held(self):
        with lab.Lab() as here:
            here.lulld("--policy", "exclusive")
            first = loop(here, "first", "high", 20000, 10)
            wait_arrived(here, first)
            second = loop(here, "second", "low", 20000, 10)
            lab.until(lambda: (c := here.client(second.pid)) and c["held"], "held under exclusive")
            for policy in ("share", "priority", "fikit", "time_slice", "guarded", "share"):
                code, _, err = here.lull("policy", policy)
                self.assertEqual(code, 0, err)
                before = {c["task"]: c["launches"] for c in here.status()["clients"]}
                lab.until(lambda: all(c["launches"] > before[c["task"]] for c in here.status()["clients"]), f"both go on under {policy}")
            code, _, err = here.lull("priority", "second", "realtime")
            self.assertEqual(code, 0, err)
            self.assertEqual(here.client(second.pid)["priority"], 0)
            self.assertEqual([stop(c)[0] for c in (first, second)], [0, 0])


if __name__ == "__main__":
    unittest.main()
