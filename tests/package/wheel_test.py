"""The wheel: installed into an empty environment, used by an ordinary user, and `import lull` against a real lulld."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest
import zipfile

from installation import BUILD, DEMO, ROOT, CleanRoot, as_nobody, clean_environment, end, run, scratch, until
from gpu_check import elf  # installation.py adds its folder

sys.path.insert(0, str(ROOT / "tools/python"))
import wheel_backend  # noqa: E402

# What an ordinary user's Python says of a running lulld, as JSON.
SEEN = """
import json, lull
status = lull.status()
task = status.task("steady")
seen = {"simulated": status.simulated, "policy": lull.policy(), "devices": len(status.devices), "priority": task.priority,
        "pid": task.pid, "namespace_pid": task.namespace_pid, "launches": task.launches, "kernels": len(lull.kernels(task.id))}
seen["changed"] = lull.set_priority("steady", "low")
seen["after"] = lull.status().task("steady").priority
seen["policy_after"] = lull.set_policy("priority")
try:
    lull.set_policy("no_such_policy")
except lull.Refused as error:
    seen["refused"] = str(error)
try:
    lull.suspend("no_such_job")
except lull.Refused as error:
    seen["no_job"] = str(error)
try:
    lull.status(socket="/nonexistent/lulld.sock")
except lull.NoCoordinator as error:
    seen["nobody"] = str(error)
print(json.dumps(seen))
"""


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls._scratch = scratch()
        cls.folder = cls._scratch.__enter__()
        cls.addClassCleanup(cls._scratch.__exit__, None, None, None)
        # As pip asks for it, without a network.
        os.environ["LULL_BUILD_DIR"] = str(BUILD)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        done = run(*pip, "wheel", "--no-index", "--no-deps", "--quiet", "--wheel-dir", cls.folder, ROOT / "tools/python", code=None)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        (cls.wheel,) = cls.folder.glob("*.whl")
        cls.env = cls.folder / "env"
        run(sys.executable, "-m", "venv", "--without-pip", cls.env)
        cls.pip = [*pip, "--python", cls.env / "bin/python"]
        run(*cls.pip, "install", "--no-index", "--no-deps", "--quiet", cls.wheel)

    def environment(self, **more):
        return clean_environment(self.folder, TMPDIR="/tmp", PYTHONDONTWRITEBYTECODE="1", **more)

    def user(self, *words, **more):
        return run(*as_nobody(), *words, env=self.environment(**more))

    def test_its_tag_says_the_newest_symbol_that_its_files_ask_for(self):
        newest = (0, 0)
        with zipfile.ZipFile(self.wheel) as archive:
            for name in archive.namelist():
                if not name.startswith(f"lull-{self.version()}.data/"):
                    continue
                path = self.folder / "one"
                path.write_bytes(archive.read(name))
                try:
                    file = elf.Elf(path)
                except elf.NotElf:
                    continue
                newest = max(newest, elf.newest(set().union(*file.versions.values()), "GLIBC"))
        self.assertEqual(self.wheel.name, f"lull-{self.version()}-py3-none-manylinux_{newest[0]}_{newest[1]}_{os.uname().machine}.whl")

    def version(self):
        return wheel_backend.cache_value(BUILD, "CMAKE_PROJECT_VERSION")

    def test_a_file_that_needs_what_not_every_linux_has_is_refused(self):
        with self.assertRaises(wheel_backend.CannotBuild):
            wheel_backend.tag_of([])
        allowed, wheel_backend.SYSTEM = wheel_backend.SYSTEM, {"libc.so.6"}
        try:
            with self.assertRaisesRegex(wheel_backend.CannotBuild, "libm.so.6"):
                wheel_backend.tag_of([BUILD / "bin/lull"])
        finally:
            wheel_backend.SYSTEM = allowed

    def test_the_same_build_gives_the_same_bytes(self):
        again = wheel_backend.make_wheel(BUILD, self.folder / "again")
        self.assertEqual(again.read_bytes(), self.wheel.read_bytes())

    def test_no_library_is_renamed_and_none_lies_where_the_linker_looks(self):
        libraries = {path.relative_to(self.env).as_posix() for path in self.env.rglob("lib*.so*")}
        self.assertEqual(libraries, {"lib/lull/liblull.so", "lib/lull/sim/libcuda.so.1", "lib/lull/sim/libcudart.so.13"})

    def test_an_ordinary_user_runs_the_demos_pair(self):
        lull = self.env / "bin/lull"
        self.assertIn("guarded", self.user(lull, "simulate", "--iterations", "20", "--policy", "guarded").stdout)
        self.assertRegex(self.user(lull, *DEMO).stdout, r"(?m)^guarded +chatty_inference +high +[1-9]")

    def test_python_asks_and_steers_a_running_lulld(self):
        place = self.folder / "run"
        place.mkdir()
        if os.geteuid() == 0:
            os.chown(place, 65534, 65534)
        more = {"LULL_SOCKET": str(place / "lulld.sock"), "SIMGPU_DEVICE": str(place / "gpu")}
        start = lambda *words: subprocess.Popen([*as_nobody(), *map(str, words)], env=self.environment(**more),  # noqa: E731
                                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        daemon = start(self.env / "bin/lulld", "--sim", place / "gpu")
        until(lambda: (place / "lulld.sock").exists() or daemon.poll() is not None, "lulld listens")
        player = start(self.env / "bin/lull", "run", "--sim", "--name", "steady", "--priority", "high", self.env / "bin/lull-play",
                       self.env / "share/lull/workloads/chatty_inference.json", "--until-signal")
        try:
            ask = [self.env / "bin/lull", "ask", '{"op":"status"}']
            until(lambda: any(client["launches"] for client in json.loads(self.user(*ask, **more).stdout)["clients"]), "it launches")
            seen = json.loads(self.user(self.env / "bin/python", "-c", SEEN, **more).stdout)
        finally:
            said = end(player), end(daemon)
        self.assertEqual((player.returncode, daemon.returncode), (0, 0), said)
        self.assertTrue(seen["simulated"])
        self.assertEqual((seen["policy"].split()[0], seen["devices"], seen["priority"]), ("guarded", 1, 2))
        self.assertEqual((seen["pid"], seen["namespace_pid"]), (player.pid, player.pid))
        self.assertGreater(seen["launches"], 0)
        self.assertGreater(seen["kernels"], 0)
        self.assertEqual((len(seen["changed"]), seen["after"], seen["policy_after"].split()[0]), (1, 7, "priority"))
        self.assertIn("no_such_policy", seen["refused"])
        self.assertTrue(seen["no_job"])
        self.assertIn("/nonexistent/lulld.sock", seen["nobody"])

    def test_in_a_clean_root_it_is_installed_used_by_an_ordinary_user_and_leaves_nothing(self):
        packages = self.folder / "packages"
        packages.mkdir()
        (packages / self.wheel.name).write_bytes(self.wheel.read_bytes())
        root = CleanRoot(packages)
        self.addCleanup(root.close)
        if root.why_not:
            self.skipTest(root.why_not)
        python = "/usr/bin/python3"  # the distribution's: others may lie in folders that are hidden there
        if root.run(python, "-m", "pip", "--version", code=None).returncode != 0:
            self.skipTest("the distribution has no pip")
        # As an ordinary user throughout.
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "--python", "/tmp/env/bin/python"]
        root.run(python, "-m", "venv", "--without-pip", "/tmp/env", user=True)
        root.run(*pip, "install", "--no-index", "--no-deps", "--quiet", f"/run/packages/{self.wheel.name}", user=True)
        self.assertIn("guarded", root.run("/tmp/env/bin/lull", "simulate", "--iterations", "20", "--policy", "guarded", user=True).stdout)
        self.assertRegex(root.run("/tmp/env/bin/lull", *DEMO, user=True).stdout, r"(?m)^guarded +chatty_inference +high +[1-9]")
        root.run(*pip, "uninstall", "--yes", "--quiet", "lull", user=True)
        # pip leaves empty folders of what is not Python.
        self.assertEqual(root.run("find", "/tmp", "-name", "*lull*", "-not", "-type", "d").stdout, "")
        self.assertEqual(root.run("find", "/tmp", "-maxdepth", "1", "-name", "*lull*").stdout, "")
        self.assertEqual(root.changed(), set())

    def test_it_goes_as_it_came(self):
        env = self.folder / "other"
        run(sys.executable, "-m", "venv", "--without-pip", env)
        before = {path for path in env.rglob("*") if not path.is_dir()}
        pip = [*self.pip[:-1], env / "bin/python"]
        run(*pip, "install", "--no-index", "--no-deps", "--quiet", self.wheel)
        run(*pip, "uninstall", "--yes", "--quiet", "lull")
        self.assertEqual({path for path in env.rglob("*") if not path.is_dir()} - before, set())


class Traces(unittest.TestCase):
    """The package as it lies in the checkout, with the build's programs."""

    @classmethod
    def setUpClass(cls):
        os.environ["LULL_BIN"] = str(BUILD / "bin")
        import lull
        cls.lull = lull
        cls._scratch = scratch()
        cls.folder = cls._scratch.__enter__()
        cls.addClassCleanup(cls._scratch.__exit__, None, None, None)
        cls.trace = cls.folder / "made.lull"
        run(BUILD / "tests/lull_make_trace", cls.trace, 2000, 4)

    def test_every_launch_is_a_row_and_what_was_timed_has_its_time(self):
        rows = self.lull.read_trace(self.trace, into="rows")
        report = self.lull.trace_report(self.trace)
        self.assertEqual(len(rows), 2000)
        self.assertEqual(sum(row["duration_ns"] is not None for row in rows), sum(kernel["timed"] for kernel in report["kernels"]))
        by_kernel = {}
        for row in rows:
            by_kernel[row["kernel"]] = by_kernel.get(row["kernel"], 0) + 1
        told = {}
        for kernel in report["kernels"]:
            told[kernel["name"]] = told.get(kernel["name"], 0) + kernel["count"]
        self.assertEqual(sum(told.values()), len(rows))
        self.assertEqual(sorted(told.values()), sorted(by_kernel.values()))
        self.assertTrue(all(row["launched_ns"] >= 0 and row["held_ns"] >= 0 for row in rows))
        self.assertEqual({row["task"] for row in rows}, {"serve", "train"})

    def test_a_table_in_memory_says_the_same(self):
        rows = self.lull.read_trace(self.trace, into="rows")
        for name in ("pandas", "pyarrow"):
            if not importlib.util.find_spec(name):
                continue
            with self.subTest(name):
                table = self.lull.read_trace(self.trace, into=name)
                listed = table.astype(object).where(table.notna(), None).to_dict("records") if name == "pandas" else table.to_pylist()
                self.assertEqual(len(listed), len(rows))
                for mine, theirs in zip(rows, listed):
                    self.assertEqual({key: value or None for key, value in mine.items()},
                                     {key: value or None for key, value in theirs.items()})

    def test_what_is_no_trace_says_so(self):
        (self.folder / "text").write_text("no trace")
        for into in ("rows", *(name for name in ("pandas", "pyarrow") if importlib.util.find_spec(name))):
            with self.subTest(into), self.assertRaisesRegex(self.lull.LullError, "trace"):
                self.lull.read_trace(self.folder / "text", into=into)
        with self.assertRaises(self.lull.LullError):
            self.lull.trace_report(self.folder / "none")

    def test_a_trace_that_was_cut_is_an_error_and_not_a_shorter_table(self):
        whole = self.trace.read_bytes()
        cut = self.folder / "cut.lull"
        cut.write_bytes(whole[:len(whole) - 200])
        with self.assertRaisesRegex(self.lull.LullError, "cut"):
            self.lull.read_trace(cut, into="rows")


if __name__ == "__main__":
    unittest.main()
