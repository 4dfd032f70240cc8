"""Every table as a user sees it: in a pipe as wide as it likes, in a terminal within its columns. No figure is lost
by that, and the last line ends a sentence. (`lull status`, `top` and `compare`: status_view_test.cc, top_view_test.cc,
measure_test.cc.)"""

import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import termios
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "trace_show"))
import lab  # noqa: E402

WIDTHS = (60, 80, 200)
# Not those in names of kernels, which are shortened.
FIGURE = re.compile(r"(?<!\S)[~+-]?\d[\d.x]*(?=[\s,;:)]|$)")


class Widths(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = lab.scratch()
        cls.addClassCleanup(cls.folder.cleanup)
        at = pathlib.Path(cls.folder.name)
        cls.trace = lab.make_trace(at / "whole.lull", 28_800)
        cls.other = lab.make_trace(at / "sampled.lull", 14_400, 16)

    def fits(self, *words, code=0):
        wide = lab.lull(*words, code=code).stdout
        figures = set(FIGURE.findall(wide))
        self.assertGreater(len(figures), 3, wide)
        for width in WIDTHS:
            with self.subTest(words=words, width=width):
                text = lab.lull(*words, code=code, columns=width).stdout
                self.assertLessEqual(max(map(len, text.splitlines())), width, text)
                self.assertEqual(figures - set(FIGURE.findall(text)), set(), text)
                self.assertRegex(text, r"\.\n$")
        return wide

    def test_simulate(self):
        wide = self.fits("simulate", "--iterations", 40)
        self.assertIn("Simulated: chatty_inference is ", wide)

    def test_simulate_cluster(self):
        wide = self.fits("simulate", "cluster", "--nodes", "2x8:h100", "--generate", 12)
        self.assertIn("\nSimulated: a job takes ", wide)

    def test_trace_show(self):
        wide = self.fits("trace", "show", self.trace)
        self.assertIn("Simulated: ", wide.splitlines()[-1])
        self.fits("trace", "show", self.other, "--by", "gap")

    def test_trace_diff(self):
        for width in WIDTHS:
            text = lab.lull("trace", "diff", self.trace, self.other, columns=width).stdout
            self.assertLessEqual(max(map(len, text.splitlines())), width, text)

    def test_in_a_terminal_its_own_width_counts(self):
        try:
            ours, theirs = pty.openpty()
        except OSError as error:
            self.skipTest(f"no pseudo-terminal on this machine: {error}")
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 72, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        child = subprocess.Popen([lab.LULL, "simulate", "--iterations", "40", "--policy", "share"], stdout=theirs, env=environment)
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 1 << 16):
                text += part
        except OSError:  # the other side is closed
            pass
        os.close(ours)
        self.assertEqual(child.wait(), 0)
        lines = text.decode().replace("\r", "").splitlines()
        self.assertLessEqual(max(map(len, lines)), 72)
        self.assertGreater(max(map(len, lines)), 60)


if __name__ == "__main__":
    unittest.main(verbosity=2)
