"""liblull.so where glibc is older than on the building machine, and on the other processor.

LULL_BUILD_DIR names the build. What is not there (a Debian 11 root, a cross compiler, qemu) is skipped.
"""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import lab  # noqa: E402

BUILD = lab.BUILD
NEWEST_GLIBC = (2, 17)
GLIBC_LIBRARIES = {"libc.so.6", "libdl.so.2", "libpthread.so.0"}
LAUNCHES = {"single": 10, "threads": 40}


def read(*command):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout


class Asks(unittest.TestCase):
    def check(self, library):
        needed = set(re.findall(r"NEEDED.*\[(.+?)\]", read("readelf", "-dW", library)))
        self.assertEqual(needed, GLIBC_LIBRARIES)
        undefined = read("readelf", "--dyn-syms", "-W", library)
        names = re.findall(r" UND (\S+?)@+GLIBC_([\d.]+)", undefined)
        self.assertGreater(len(names), 20)
        newer = [f"{name}@{version}" for name, version in names
                 if tuple(map(int, version.split("."))) > NEWEST_GLIBC]
        self.assertFalse(newer, "newer than every image that CUDA programs run in has")
        unversioned = [m for m in re.findall(r" GLOBAL +DEFAULT +UND (\S+)$", undefined, re.M) if "@" not in m]
        self.assertFalse(unversioned, "bound to whatever version comes first")


class Symbols(Asks):
    def test_the_shim_asks_for_no_glibc_newer_than_2_17_and_for_glibcs_libraries_alone(self):
        self.check(BUILD / "lib/lull/liblull.so")


class Runs(unittest.TestCase):
    """`start` is the command line in front of a program, `folder` has programs, driver and shim."""

    def see_launches(self, start, folder, shim, libraries, preload_by):
        for name, launches in LAUNCHES.items():
            with self.subTest(name), lab.Lab() as here:
                here.lulld()
                # What it launches before it attaches is counted by nobody.
                environment = {"LULL_SOCKET": here.socket, "LULL_NAME": name, "LULL_REQUIRE_COORDINATOR": "1"}
                child = subprocess.Popen(
                    [*map(str, start(libraries + [folder], preload_by(shim))), str(folder / name)],
                    env={**{k: v for k, v in os.environ.items() if not k.startswith(("LULL_", "LD_"))},
                         **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True)
                here.children.append(child)
                self.assertEqual(child.stdout.readline(), f"launches={launches}\n", child.poll())
                seen = lab.until(lambda: next((c for c in here.status()["clients"]
                                               if c["launches"] == launches), None), "every launch is counted")
                self.assertEqual(seen["task"], name)
                _, errors = child.communicate(timeout=lab.DEADLINE_S)
                # The empty driver's device is none that lulld knows.
                complaints = [line for line in errors.splitlines() if not line.startswith("lull: device ")]
                self.assertEqual((child.returncode, complaints), (0, []))


class Debian11(Runs):
    @classmethod
    def setUpClass(cls):
        named = os.environ.get("LULL_DEBIAN_11_ROOT")
        cls.root = pathlib.Path(named) if named else ROOT / "build/debian-11"
        linkers = sorted(cls.root.glob(f"lib/{platform.machine()}-linux-gnu/ld-2.*.so"))
        if not linkers:
            raise unittest.SkipTest(f"no Debian 11 root at {cls.root}: tests/older_glibc/make_root makes one")
        cls.linker = linkers[0]
        cls.libraries = [cls.linker.parent, cls.root / "usr" / cls.linker.parent.relative_to(cls.root)]

    def under(self, libraries, preload):
        return [self.linker, "--library-path", ":".join(map(str, libraries)), "--preload", preload]

    def test_it_is_an_older_glibc(self):
        self.assertEqual(self.linker.name, "ld-2.31.so")

    def test_programs_of_that_system_run_as_without_the_shim(self):
        for words in (["bin/true"], ["bin/bash", "-c", "echo hello; exit 7"], ["bin/ls", "/"],
                      ["usr/bin/perl", "-e", "print 6 * 7; exit 3"], ["usr/bin/sort", "--version"]):
            with self.subTest(words[0]):
                runs = []
                for preload in ("", BUILD / "lib/lull/liblull.so"):
                    done = subprocess.run(
                        [*map(str, self.under(self.libraries, preload)), str(self.root / words[0]), *words[1:]],
                        capture_output=True, text=True, timeout=lab.DEADLINE_S,
                        env={k: v for k, v in os.environ.items() if not k.startswith(("LULL_", "LD_"))})
                    runs.append((done.returncode, done.stdout, done.stderr))
                self.assertEqual(runs[0], runs[1])
                self.assertNotIn("version `GLIBC", runs[1][2])

    def test_a_single_and_a_multi_threaded_program_launch_under_lulld(self):
        self.see_launches(self.under, BUILD / "tests/older_glibc", BUILD / "lib/lull/liblull.so",
                          self.libraries, lambda shim: shim)


    def test_commands_run_there_and_say_the_same(self):
        workloads = BUILD / "share/lull/workloads"
        simulate = [BUILD / "bin/lull", "simulate", "--high", workloads / "chatty_inference.json", "--low", workloads / "dense_inference.json",
                    "--iterations", "20", "--policy", "fikit", "--policy", "guarded", "--seed", "7"]
        for words in (simulate, [BUILD / "bin/lull", "frob"], [BUILD / "bin/lulld", "--policy", "frob"], [BUILD / "bin/lull-play", "--help"]):
            with self.subTest(words[1]):
                runs = []
                for start in ([], self.under(self.libraries, "")):
                    done = subprocess.run([*map(str, start), *map(str, words)], capture_output=True, text=True, timeout=lab.DEADLINE_S)
                    runs.append((done.returncode, done.stdout, done.stderr))
                self.assertEqual(runs[0], runs[1])

    def test_daemon_and_simulated_gpu_run_there(self):
        with lab.Lab() as here:
            old = self.under([BUILD / "lib/lull/sim", *self.libraries], "")
            here.daemon = here.start(*old, BUILD / "bin/lulld", "--socket", here.socket, "--sim", here.device, shim=False)
            lab.until(lambda: here.daemon.poll() is not None or here.alive(), "lulld answers")
            player = self.under([BUILD / "lib/lull/sim", *self.libraries], BUILD / "lib/lull/liblull.so")
            code, _, errors = here.run(*player, BUILD / "bin/lull-play", BUILD / "share/lull/workloads/chatty_inference.json",
                                       "--iterations", "5", shim=False, LULL_NAME="old", LULL_REQUIRE_COORDINATOR="1", LD_LIBRARY_PATH="")
            self.assertEqual(code, 0, errors)
            self.assertEqual(here.status()["clients_left"], 1)
            here.daemon.terminate()
            self.assertEqual(lab.ended(here.daemon), 0)


class Aarch64(Runs, Asks):
    SYSROOT = pathlib.Path("/usr/aarch64-linux-gnu")

    @classmethod
    def setUpClass(cls):
        if not shutil.which("aarch64-linux-gnu-g++") or not cls.SYSROOT.is_dir():
            raise unittest.SkipTest("no aarch64-linux-gnu-g++")
        cls.built = BUILD / "aarch64"
        headers = os.environ.get("LULL_CUDA_INCLUDE", "/usr/local/cuda/include")
        for command in (["cmake", "-G", "Ninja", "-S", HERE / "aarch64", "-B", cls.built, "-DCMAKE_BUILD_TYPE=Release",
                         "-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
                         "-DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc", "-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++",
                         "-DCMAKE_ASM_COMPILER=aarch64-linux-gnu-gcc", f"-DLULL_CUDA_INCLUDE={headers}"],
                        ["cmake", "--build", cls.built]):
            done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
            if done.returncode != 0:
                raise AssertionError(done.stdout + done.stderr)

    def shim(self):
        return next(self.built.rglob("liblull.so"))

    def test_the_shim_asks_for_no_glibc_newer_than_2_17_and_for_glibcs_libraries_alone(self):
        self.check(self.shim())

    def test_a_single_and_a_multi_threaded_program_launch_under_lulld(self):
        qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
        if not qemu:
            self.skipTest("no qemu-aarch64")
        self.see_launches(
            lambda libraries, preload: [qemu, "-L", self.SYSROOT, "-E", f"LD_PRELOAD={preload}",
                                        "-E", "LD_LIBRARY_PATH=" + ":".join(map(str, libraries))],
            self.built / "tests/older_glibc", self.shim(), [], lambda shim: shim)


if __name__ == "__main__":
    unittest.main()
