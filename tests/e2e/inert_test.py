"""Preloaded into a program without CUDA, the shim does nothing."""

import os
import subprocess
import sys
import unittest

import lab

PROBE = (
    "import os\n"
    "print(sorted(os.listdir('/proc/self/fd')), len(os.listdir('/proc/self/task')))\n"
    "print([l.split()[-1] for l in open('/proc/self/maps') if 'memfd' in l or '/dev/shm' in l])\n")


class Inert(unittest.TestCase):
    def run_both(self, *command):
        results = []
        for preload in (None, str(lab.LIB / "liblull.so")):
            env = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "LULL_"))}
            if preload:
                env["LD_PRELOAD"] = preload
                env["LULL_SOCKET"] = "/nonexistent/lulld.sock"
                env["LULL_VERBOSE"] = "1"
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=lab.DEADLINE_S)
            results.append((done.returncode, done.stdout, done.stderr))
        self.assertEqual(results[0], results[1])
        return results[1]

    def test_bin_true_runs_silently(self):
        self.assertEqual(self.run_both("/bin/true"), (0, "", ""))

    def test_python_prints_what_it_prints(self):
        self.assertEqual(self.run_both(sys.executable, "-c", "print(1)"), (0, "1\n", ""))

    def test_git_version_is_undisturbed(self):
        self.run_both("git", "--version")

    def test_no_descriptor_thread_or_shared_memory_appears(self):
        self.run_both(sys.executable, "-c", PROBE)

    def test_exit_codes_and_signals_are_the_programs_own(self):
        self.assertEqual(self.run_both("/bin/sh", "-c", "exit 7")[0], 7)
        self.assertEqual(self.run_both("/bin/sh", "-c", "kill -TERM $$")[0], -15)

    def test_dlsym_still_finds_what_it_found(self):
        self.run_both(sys.executable, "-c",
                      "import ctypes\n"
                      "libc = ctypes.CDLL(None)\n"
                      "print(libc.abs(-3), hasattr(libc, 'cuNoSuchCall'), hasattr(libc, 'no_such_symbol'))")


if __name__ == "__main__":
    unittest.main()
