"""Every launch is counted and named, in each way a program can reach the driver."""

import os
import re
import unittest

import lab

N = 7
SPIN = 2000
HAVE_NVCC = os.environ.get("LULL_HAVE_NVCC", "1") == "1"


def line_counts(text):
    line = [l for l in text.splitlines() if l.startswith("launches=")][-1]
    return {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", line)}


class Reach(unittest.TestCase):
    """The program says what it did; the daemon must say the same."""

    def check(self, *command, least_named=1):
        with lab.Lab() as here:
            here.lulld()
            wait = here.folder / "go-on"
            # What it launches before it attaches is nobody's: it waits for lulld as long as that takes.
            program = here.start(lab.PROGRAMS / command[0], *command[1:], PROGRAM_WAIT_FILE=str(wait), LULL_REQUIRE_COORDINATOR=1)
            lines = []

            def said():
                while True:
                    line = program.stdout.readline()
                    if not line:
                        return True
                    lines.append(line)
                    if line.startswith("launches="):
                        return True

            said()
            text = "".join(lines)
            if "launches=" not in text:
                self.fail(f"{command} ended: {text} {program.stderr.read()}")
            expected = line_counts(text)

            def seen():
                client = here.client(program.pid)
                return client and {k: client[k] for k in ("launches", "graph_kernels", "copies", "memsets")}

            def agree():
                got = seen()
                return got and all(got[k] == expected[k] for k in got)

            try:
                lab.until(agree, "counts agree")
            except AssertionError:
                self.fail(f"{command}: program {expected}, daemon {seen()}")
            def recorded():  # counters are read as they stand, records as they are drained
                client = here.client(program.pid)
                kernels = here.ask({"op": "kernels", "client": client["id"]})["kernels"]
                return kernels, sum(k["launches"] for k in kernels if k["kind"] in ("kernel", "graph")), client["dropped"]

            def all_recorded():  # dropped may be records of something else than launches, too
                _, launches, dropped = recorded()
                return launches <= expected["launches"] <= launches + dropped

            try:
                lab.until(all_recorded, "records agree")
            except AssertionError:
                self.fail(f"{command}: {expected['launches']} launches, {recorded()}")
            kernels = [k for k in recorded()[0] if k["launches"]]
            named = [k for k in kernels if k["kind"] == "kernel" and k["name"]]
            if expected["launches"] > 0 and expected["graph_kernels"] == 0:
                self.assertGreaterEqual(len(named), least_named, kernels)
            for kernel in kernels:
                self.assertTrue(kernel["name"], kernel)
            wait.touch()
            program.wait(lab.DEADLINE_S)
            self.assertEqual(program.returncode, 0, program.stderr.read())

    def test_linked(self):
        self.check("driver_linked", N, SPIN)

    def test_linked_with_the_per_thread_default_stream(self):
        self.check("driver_linked_per_thread", N, SPIN)

    def test_looked_up_by_dlsym_and_cuGetProcAddress(self):
        for way in ("soname", "develop", "default", "proc1", "proc2", "proc2_per_thread"):
            with self.subTest(way):
                self.check("driver_lookup", way, N, SPIN)

    def test_opened_by_absolute_path(self):
        self.check("driver_lookup", "path", N, SPIN, lab.SIM / "libcuda.so.1")

    def test_every_kind_of_launch(self):
        for kind in ("ex", "cooperative", "host_function", "graph", "capture", "streams"):
            with self.subTest(kind):
                self.check("launch_kinds", kind, N, SPIN)

    def test_many_threads(self):
        self.check("launch_kinds", "threads", 50, 500, 8)

    def test_a_plugin_opened_locally(self):
        self.check("plugin_host", "local", lab.PROGRAMS / "libdriver_plugin.so", N)

    def test_descriptors_closed_half_way(self):
        # The program takes lull's socket away with the rest. It is unharmed, and comes back as a
        # client by itself (launches of the time between are not seen by anybody).
        with lab.Lab() as here:
            here.lulld()
            code, out, err = here.run(lab.PROGRAMS / "close_descriptors", N)
            self.assertEqual(code, 0, err)
            self.assertEqual(line_counts(out)["launches"], N)
            self.assertTrue(here.alive())

    def test_forks(self):
        for kind in ("exit", "exec"):
            with self.subTest(kind):
                self.check("forks", kind, N)

    def test_a_thread_cancelled_in_the_driver(self):
        self.check("cancelled_thread", N)

    @unittest.skipUnless(HAVE_NVCC, "no nvcc")
    def test_the_runtime_shared_and_static(self):
        for runtime in ("shared", "static"):
            for kind in ("kernel", "ex", "cooperative", "graph", "capture", "streams"):
                with self.subTest(runtime + " " + kind):
                    self.check("runtime_" + runtime, kind, N)

    @unittest.skipUnless(HAVE_NVCC, "no nvcc")
    def test_the_runtime_with_the_per_thread_default_stream(self):
        for runtime in ("shared", "static"):
            with self.subTest(runtime):
                self.check(f"runtime_{runtime}_per_thread", "kernel", N)

    @unittest.skipUnless(HAVE_NVCC, "no nvcc")
    def test_a_library_with_a_hidden_runtime_beside_a_shared_one(self):
        self.check("two_runtimes", N)
        self.check("plugin_host", "local", lab.PROGRAMS / "libhidden_runtime.so", N)


class Refused(unittest.TestCase):
    """What cannot be covered is refused by doctor, not silently missed."""

    def test_a_static_binary(self):
        with lab.Lab() as here:
            code, out, _ = here.lull("doctor", lab.PROGRAMS / "static_binary")
            self.assertEqual(code, 1)
            self.assertRegex(out, r"(?i)static")

    def test_a_program_that_opens_plugins_with_deepbind(self):
        with lab.Lab() as here:
            _, out, _ = here.lull("doctor", lab.PROGRAMS / "plugin_host")
            self.assertIn("DEEPBIND", out)


if __name__ == "__main__":
    unittest.main()
