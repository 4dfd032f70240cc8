"""Programs in containers of their own under one lulld and on one simulated GPU: examples/containers/namespace.sh."""

import os
import pathlib
import shutil
import signal
import subprocess
import unittest

import lab

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTAINER = ROOT / "examples/containers/namespace.sh"
WORKLOAD = lab.BUILD / "share/lull/workloads/chatty_inference.json"
USER = 65534


def why_not(user=None):
    """Why no container can be made here; empty where one can."""
    with lab.Lab() as here:
        os.chmod(here.folder, 0o755)
        who = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        done = subprocess.run([CONTAINER, here.folder, "true"], capture_output=True, text=True, timeout=lab.DEADLINE_S, check=False, **who)
        return "" if done.returncode == 0 else f"no container of namespaces here: {done.stderr.strip()[-200:]}"


class Containers(unittest.TestCase):
    def setUp(self):
        if reason := why_not():
            self.skipTest(reason)
        self.here = lab.Lab().__enter__()
        self.addCleanup(self.here.__exit__)
        self.here.folder.chmod(0o755)
        # What is mounted into a container: a folder with the socket and nothing else.
        self.folder = self.here.folder / "run"
        self.folder.mkdir()
        self.here.socket = str(self.folder / "lulld.sock")

    def inside(self, *words):
        return self.here.start(CONTAINER, self.folder, *words, shim=False, LULL=lab.BUILD)

    def play(self, name, priority="normal"):
        return self.inside(lab.BIN / "lull", "run", "--sim", "--require-coordinator", "--name", name, "--priority", priority, "--",
                           lab.BIN / "lull-play", WORKLOAD, "--until-signal")

    def task(self, name):
        return next((c for c in self.here.status()["clients"] if c["task"] == name), None)

    def launching(self, name, child):
        def seen():
            if child.poll() is not None:
                raise AssertionError(f"{name} ended: {child.communicate()}")
            task = self.task(name)
            return task if task and task["launches"] > 100 else None
        return lab.until(seen, f"{name} launches")

    def finish(self, task):
        os.kill(task["pid"], signal.SIGTERM)

    def test_programs_of_two_containers_and_of_none_share_a_gpu(self):
        # The policy that holds nobody: how soon a low one launches beside a high one is no question of containers.
        self.here.lulld("--policy", "share")
        children = {"outside": self.here.start(lab.BIN / "lull-play", WORKLOAD, "--until-signal", LULL_NAME="outside")}
        tasks = {"outside": self.launching("outside", children["outside"])}  # it makes the device
        children |= {name: self.play(name, priority) for name, priority in (("one", "high"), ("two", "low"))}
        tasks |= {name: self.launching(name, children[name]) for name in ("one", "two")}
        for name in ("one", "two"):
            with self.subTest(name):
                self.assertEqual(tasks[name]["namespace_pid"], 1)
                # lulld's number of it: that of a process which is number 1 inside.
                numbers = [line for line in pathlib.Path(f"/proc/{tasks[name]['pid']}/status").read_text().splitlines() if line.startswith("NSpid:")]
                self.assertEqual(numbers[0].split()[-1], "1")
        self.assertEqual(tasks["outside"]["namespace_pid"], children["outside"].pid)
        self.assertEqual(len({task["pid"] for task in tasks.values()}), 3)
        _, shown, _ = self.here.lull("status")
        self.assertEqual(shown.count("process 1 in its own pid namespace"), 2, shown)

        # One container is killed at a moment of nobody's choice: the GPU and the others go on without it.
        os.kill(tasks["one"]["pid"], signal.SIGKILL)
        self.assertNotEqual(children["one"].wait(lab.DEADLINE_S), 0)
        lab.until(lambda: self.task("one") is None, "it is gone")
        for name in ("two", "outside"):
            before = self.task(name)["launches"]
            lab.until(lambda: self.task(name)["launches"] > before + 100, f"{name} goes on")
            self.finish(tasks[name])
            out, err = children[name].communicate(timeout=lab.DEADLINE_S)
            self.assertEqual(children[name].returncode, 0, err)
        lab.until(lambda: not self.here.status()["clients"], "all are gone")

    def test_a_daemon_in_a_container_serves_programs_that_it_does_not_see(self):
        daemon = self.here.start("unshare", "--pid", "--fork", "--kill-child", lab.BIN / "lulld", "--socket", self.here.socket, "--sim",
                                 self.here.device, shim=False)
        lab.until(lambda: daemon.poll() is not None or self.here.alive(), "lulld answers")
        programs = [self.here.start(lab.BIN / "lull-play", WORKLOAD, "--until-signal", LULL_NAME=name) for name in ("first", "second")]
        tasks = [self.launching(name, child) for name, child in zip(("first", "second"), programs)]
        self.assertEqual([(task["pid"], task["namespace_pid"]) for task in tasks], [(0, 0), (0, 0)])
        # Nobody is called 0, and nobody's priority changes by it.
        code, _, errors = self.here.lull("priority", "0", "low")
        self.assertEqual(code, 1)
        self.assertIn('no client is called "0"', errors)
        _, shown, _ = self.here.lull("status")
        self.assertRegex(shown, r"first +- ")
        lab.kill(programs[0])
        lab.until(lambda: self.task("first") is None, "the killed one is gone")
        self.assertTrue(self.task("second"))
        programs[1].terminate()
        self.assertEqual(lab.ended(programs[1]), 0)

    def doctor(self, folder, lull=lab.BUILD):
        child = self.here.start(CONTAINER, folder, lull / "bin/lull", "doctor", "--sim", shim=False, LULL=lull, SIMGPU_DEVICE="")
        out, err = child.communicate(timeout=lab.DEADLINE_S)
        return out + err

    def test_doctor_says_what_is_not_mounted(self):
        said = self.doctor(self.folder)
        self.assertIn("a pid namespace of its own", said)
        self.assertIn("start the container with -v /run/lull:/run/lull:ro", said)
        self.here.lulld()
        said = self.doctor(self.folder)
        self.assertIn("answers at /run/lull/lulld.sock", said)
        self.assertIn("loads by LD_PRELOAD", said)
        # The command alone, without its library.
        alone = self.here.folder / "alone"
        (alone / "bin").mkdir(parents=True)
        shutil.copy(lab.BIN / "lull", alone / "bin/lull")
        self.assertIn(f"start the container with -v {alone}/lib/lull:{alone}/lib/lull:ro", self.doctor(self.folder, alone))

    @unittest.skipUnless(os.geteuid() == 0, "playing another user needs root")
    def test_an_ordinary_users_container_takes_roots_daemon_by_its_mount(self):
        if reason := why_not(USER):
            self.skipTest(reason)
        self.here.lulld()
        # The build as this user may read it.
        lull = self.here.folder / "lull"
        for part in ("bin", "lib/lull/sim"):
            (lull / part).mkdir(parents=True, exist_ok=True)
        for part in ("bin/lull", "bin/lull-play", "lib/lull/liblull.so", "lib/lull/sim/libcuda.so.1"):
            shutil.copy(lab.BUILD / part, lull / part)
        workload = lull / "work.json"
        shutil.copy(WORKLOAD, workload)
        environment = self.here.environment(shim=False, LULL=lull, SIMGPU_DEVICE="")
        child = subprocess.Popen([CONTAINER, self.folder, lull / "bin/lull", "run", "--sim", "--require-coordinator", "--name", "theirs", "--",
                                  lull / "bin/lull-play", workload, "--iterations", "1"], env=environment, user=USER, group=USER, extra_groups=[],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.here.children.append(child)
        out, err = child.communicate(timeout=lab.DEADLINE_S)
        self.assertEqual(child.returncode, 0, err)
        self.assertEqual(self.here.status()["clients_left"], 1)


if __name__ == "__main__":
    unittest.main()
