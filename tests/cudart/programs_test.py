"""Runtime programs on the simulated GPU without lull: each makes exactly the launches it says, in
either linkage and with either default stream; and the library exports what it should.

usage: programs_test.py SIM_LIBRARY_DIR PROGRAMS_DIR EXAMPLES_DIR
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

SIM, PROGRAMS, EXAMPLES = (os.path.abspath(p) for p in sys.argv[1:4])
LINE = "launches={} graph_kernels={} copies={} memsets={} host_functions={}\n"
KINDS = {  # kind: what 7 launches come to
    "kernel": LINE.format(7, 0, 4, 1, 0), "streams": LINE.format(7, 0, 4, 1, 0),
    "ex": LINE.format(7, 0, 4, 1, 0), "cooperative": LINE.format(7, 0, 4, 1, 0),
    "host_function": LINE.format(7, 0, 4, 1, 7),
    "graph": LINE.format(3, 21, 4, 1, 0), "capture": LINE.format(3, 21, 4, 1, 0)}


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Programs(unittest.TestCase):
    def run_on_sim(self, *command):
        with tempfile.TemporaryDirectory(prefix="lull-cudart-") as folder:
            env = {k: v for k, v in os.environ.items() if not k.startswith(("LULL_", "SIMGPU_", "LD_"))}
            env.update(LD_LIBRARY_PATH=SIM, SIMGPU_DEVICE=folder + "/simgpu")
            return subprocess.run(command, env=env, capture_output=True, text=True, timeout=500)

    def expect(self, line, *command):
        done = self.run_on_sim(*command)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, line, ""), command)

    def each_kind(self, program):
        for kind, line in KINDS.items():
            with self.subTest(kind=kind):
                self.expect(line, f"{PROGRAMS}/{program}", kind, "7")

    def test_the_shared_runtime(self):
        self.each_kind("runtime_shared")

    def test_the_static_runtime(self):
        self.each_kind("runtime_static")

    def test_the_shared_runtime_with_per_thread_streams(self):
        self.each_kind("runtime_shared_per_thread")

    def test_the_static_runtime_with_per_thread_streams(self):
        self.each_kind("runtime_static_per_thread")

    def test_a_shared_and_a_hidden_static_runtime_in_one_process(self):
        self.expect(LINE.format(14, 0, 0, 0, 0), f"{PROGRAMS}/two_runtimes", "7")

    def test_a_plugin_with_a_runtime_of_its_own(self):
        for mode in ("local", "deepbind"):
            self.expect(LINE.format(7, 0, 0, 0, 0), f"{PROGRAMS}/plugin_host", mode,
                        f"{PROGRAMS}/libhidden_runtime.so", "7")

    def test_the_examples_say_that_they_ran_simulated(self):
        for name in ("vector_add", "saxpy", "plugin_host", "graph_replay"):
            arguments = [EXAMPLES + "/libgpu_plugin.so", "9"] if name == "plugin_host" else ["9"]
            done = self.run_on_sim(f"{EXAMPLES}/{name}", *arguments)
            self.assertEqual((done.returncode, done.stderr), (0, ""), name)
            self.assertIn("simulated", done.stdout)
            self.assertIn("right", done.stdout)

    def test_without_a_driver_the_error_says_so(self):
        with tempfile.TemporaryDirectory(prefix="lull-cudart-") as folder:
            os.symlink(f"{SIM}/libcudart.so.13", f"{folder}/libcudart.so.13")
            env = {k: v for k, v in os.environ.items() if not k.startswith("LD_")}
            if subprocess.run([f"{PROGRAMS}/driver_lookup", "soname", "0"], env=env,
                              capture_output=True).returncode == 0:
                self.skipTest("a driver is installed here")
            done = subprocess.run([f"{EXAMPLES}/saxpy"], env={**env, "LD_LIBRARY_PATH": folder},
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("no libcuda.so.1", done.stderr)


class Exports(unittest.TestCase):
    def test_every_export_carries_the_version_node(self):
        names = [l.split()[-1] for l in output("nm", "-D", "--defined-only", f"{SIM}/libcudart.so.13").splitlines()]
        functions = [n for n in names if n != "libcudart.so.13"]
        self.assertGreater(len(functions), 150)
        for name in functions:
            self.assertRegex(name, r"^(__)?cuda\w+@@libcudart\.so\.13$")

    def test_the_soname_is_the_real_one_and_only_glibc_is_needed(self):
        dynamic = output("readelf", "-d", f"{SIM}/libcudart.so.13")
        self.assertIn("Library soname: [libcudart.so.13]", dynamic)
        for needed in re.findall(r"NEEDED.*\[(.*)\]", dynamic):
            self.assertRegex(needed, r"^(libc|libm|libdl|libpthread|ld-linux)")

    def test_a_program_with_the_static_runtime_exports_nothing_of_it(self):
        for program in ("runtime_static", "libhidden_runtime.so"):
            names = output("nm", "-D", f"{PROGRAMS}/{program}")
            self.assertIsNone(re.search(r"\b(__)?cuda[A-Z_]\w*", names), names)

    def test_each_stream_call_has_its_per_thread_twin(self):
        names = output("nm", "-D", "--defined-only", f"{SIM}/libcudart.so.13")
        ours = set(re.findall(r" T (\w+)@@", names))
        header = os.environ.get("CUDA_RUNTIME_API_H")
        if not header:
            self.skipTest("CUDA_RUNTIME_API_H is not set")
        with open(header) as f:
            twins = re.findall(r"#define (\w+)\s+__CUDART_API_PT([DS][SZ])\(", f.read())
        self.assertGreater(len(twins), 50)
        for name, suffix in twins:
            if name in ours:
                self.assertIn(f"{name}_pt{suffix.lower()}", ours)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
