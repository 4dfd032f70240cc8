"""What the built programs ask of the machine they run on: Debian 10 and Red Hat 8 must have it.

LULL_BUILD_DIR names the build. The size of what is carried is looked at where there is a release build.
"""

import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from gpu_check import elf  # noqa: E402
from gpu_check import carried  # noqa: E402

BUILD = pathlib.Path(os.environ.get("LULL_BUILD_DIR", ROOT / "build/dev"))
RELEASE = ROOT / "build/release"

SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1",
          "libstdc++.so.6", "ld-linux-x86-64.so.2"}
# Programs that stand for a user's: they find the driver or the runtime as any program does.
USERS_OWN = {"libcuda.so.1", "libcudart.so.13", "libhidden_runtime.so"}
# The newest a file may ask for. What is installed: glibc 2.28, and a C++ runtime only if it has it inside.
LIMITS = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 25), "CXXABI": (1, 3, 11), "GCC": (8, 0, 0)}
# What gpu-check carries along, made by nvcc: Ubuntu 22.04 has glibc 2.35 and the libstdc++ of GCC 12.
CHECK_LIMITS = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}


def built():
    found = {}
    for folder in ("bin", "lib/lull", "check"):
        for path in sorted((BUILD / folder).rglob("*")):
            if path.is_file() and not path.is_symlink():
                try:
                    found[path.relative_to(BUILD).as_posix()] = elf.Elf(path)
                except elf.NotElf:
                    pass
    return found


class Portability(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.files = built()

    def test_there_is_what_a_release_consists_of(self):
        for name in ("bin/lull", "bin/lulld", "bin/lull-play", "bin/lull-bench", "bin/lull-device-probe",
                     "lib/lull/liblull.so", "lib/lull/check/libkernel_witness.so"):
            self.assertIn(name, self.files)
        self.assertTrue(any(name.startswith("lib/lull/sim/libcuda.so") for name in self.files))

    def test_everything_needs_only_libraries_that_every_machine_has(self):
        for name, file in self.files.items():
            allowed = SYSTEM | (USERS_OWN if name.startswith("check/") else set())
            if name.startswith("bin/") or name == "lib/lull/liblull.so":
                allowed = allowed - {"libstdc++.so.6"}  # carried inside
            with self.subTest(name):
                self.assertFalse(set(file.needed) - allowed, "libraries a bare machine may lack")

    def test_no_symbol_is_newer_than_the_oldest_system_has(self):
        for name, file in self.files.items():
            versions = set().union(*file.versions.values()) if file.versions else set()
            with self.subTest(name):
                for prefix, limit in (CHECK_LIMITS if "check/" in name else LIMITS).items():
                    newest = elf.newest(versions, prefix)
                    self.assertTrue(newest is None or newest <= limit, f"{prefix} {newest}, at most {limit}")

    def test_a_release_build_can_be_carried(self):
        if not (RELEASE / "bin/lulld").exists():
            self.skipTest("no build/release")
        self.assertLess(carried.carried_bytes(RELEASE), carried.MOST_BYTES)


class OwnReading(unittest.TestCase):
    """The reader itself, against what is known of a file that is always there."""

    def test_the_c_library_of_this_machine(self):
        for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
            if line.rstrip().endswith("libc.so.6"):
                libc = elf.Elf(line.split()[-1])
                self.assertIn("malloc", libc.exports)
                self.assertNotIn("no_such_function", libc.exports)
                return
        self.skipTest("no libc.so.6 in this process")

    def test_what_is_no_elf_file_is_refused(self):
        with self.assertRaises(elf.NotElf):
            elf.Elf(__file__)

    def test_versions_compare_by_number(self):
        self.assertEqual(elf.newest({"GLIBC_2.9", "GLIBC_2.34", "GLIBC_PRIVATE", "GLIBCXX_3.4"}, "GLIBC"), (2, 34))
        self.assertIsNone(elf.newest({"GLIBC_2.9"}, "GLIBCXX"))


if __name__ == "__main__":
    unittest.main()
