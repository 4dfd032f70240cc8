"""`lull top` in a terminal of its own, and as text; `lull profile` over two runs of one task."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import termios
import time
import unittest

import lab

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


class Terminal:
    """`lull top` with a pseudo-terminal as its controlling one; what it writes is collected."""

    def __init__(self, here, rows, columns):
        try:
            self.ours, self.theirs = pty.openpty()
        except OSError as error:  # a container without /dev/pts
            raise unittest.SkipTest(f"no pseudo-terminal on this machine: {error}") from error
        self.before = termios.tcgetattr(self.theirs)
        self.size(rows, columns)
        self.text = ""
        self.code = None
        environment = here.environment(shim=False, TERM="xterm")
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                fcntl.ioctl(self.theirs, termios.TIOCSCTTY, 0)
                for descriptor in (0, 1, 2):
                    os.dup2(self.theirs, descriptor)
                os.closerange(3, 256)
                os.execve(lab.BIN / "lull", ["lull", "top", "--every-ms", "60"], environment)
            finally:
                os._exit(126)

    def close(self):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.ours)
        os.close(self.theirs)

    def size(self, rows, columns):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        while select.select([self.ours], [], [], 0.01)[0]:
            self.text += os.read(self.ours, 1 << 16).decode()

    def pictures(self):
        """The pictures drawn so far, each as its lines without colours; the last may be incomplete."""
        drawn = self.text.split("\x1b[H")[1:]
        return [re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", one).replace("\r", "").split("\n")
                for one in drawn if one.endswith("\x1b[J")]

    def seen(self, true, what):
        def look():
            self.read()
            return any(true(picture) for picture in self.pictures()[-2:])
        lab.until(look, what)

    def write(self, text):
        os.write(self.ours, text.encode())

    def ended(self):
        def look():
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid == 0:
                return False
            self.code = os.waitstatus_to_exitcode(status)
            return True
        lab.until(look, "lull top ends")
        self.read()
        return self.code


def start_two(here):
    """Two programs that run until the lab ends them; lulld has seen launches of each when this returns."""
    programs = [here.start(lab.PROGRAMS / "loop_launch", spin_ns, 10, 0, 200, LULL_NAME=name, LULL_PRIORITY=priority)
                for name, spin_ns, priority in (("painter", 40000, "high"), ("baker", 90000, "low"))]
    for program in programs:
        assert program.stdout.readline().strip() == "ready", program.stderr.read()
        # Whom lulld has not answered in time is ready as well, and attaches later.
        lab.until(lambda: (c := here.client(program.pid)) and c["devices"] and c["launches"], "lulld sees it launch")
    return programs


def shows(picture, *words):
    return all(any(word in line for line in picture) for word in words)


class Top(unittest.TestCase):
    def in_terminal(self, leave):
        with lab.Lab() as here:
            here.lulld()
            start_two(here)
            terminal = Terminal(here, 30, 120)
            try:
                terminal.seen(lambda p: shows(p, "painter", "baker", "simulated"), "both tasks drawn")
                self.assertIn(ENTER, terminal.text)
                self.assertIn(HIDE, terminal.text)
                flags = termios.tcgetattr(terminal.theirs)[3]
                self.assertFalse(flags & (termios.ICANON | termios.ECHO))
                leave(terminal)
                self.assertEqual(terminal.ended(), 0)
                self.assertEqual(termios.tcgetattr(terminal.theirs), terminal.before)
                self.assertGreater(terminal.text.rindex(SHOW), terminal.text.rindex(HIDE))
                self.assertGreater(terminal.text.rindex(LEAVE), terminal.text.rindex(ENTER))
                self.assertEqual(terminal.text[terminal.text.rindex(LEAVE) + len(LEAVE):], "")
            finally:
                terminal.close()

    def test_it_draws_both_tasks_and_q_leaves_the_terminal_as_it_was(self):
        self.in_terminal(lambda terminal: terminal.write("q"))

    def test_so_does_ctrl_c(self):
        self.in_terminal(lambda terminal: terminal.write("\x03"))

    def test_so_does_being_told_to_end(self):
        self.in_terminal(lambda terminal: os.kill(terminal.pid, signal.SIGTERM))

    def test_other_keys_change_nothing_and_a_smaller_window_is_fitted_into(self):
        with lab.Lab() as here:
            here.lulld()
            start_two(here)
            terminal = Terminal(here, 30, 120)
            try:
                terminal.seen(lambda p: max(map(len, p)) > 60 and shows(p, "painter", "baker"), "a wide picture")
                terminal.write("xz")
                terminal.size(4, 40)
                terminal.seen(lambda p: max(map(len, p)) <= 40 and len(p) <= 4, "a narrow and low one")
                drawn = len(terminal.pictures())
                terminal.seen(lambda _: len(terminal.pictures()) > drawn + 2, "some more")
                self.assertTrue(all(max(map(len, p)) <= 40 and len(p) <= 4 for p in terminal.pictures()[-2:]))
                terminal.size(30, 120)
                terminal.seen(lambda p: max(map(len, p)) > 60 and shows(p, "painter", "baker"), "a wide one again")
                terminal.write("q")
                self.assertEqual(terminal.ended(), 0)
            finally:
                terminal.close()

    def test_as_text_and_as_json(self):
        with lab.Lab() as here:
            here.lulld()
            start_two(here)
            code, out, err = here.lull("top", "-n", "1")
            self.assertEqual(code, 0, err)
            self.assertNotIn("\x1b", out)
            for name in ("painter", "baker"):
                self.assertEqual(len(re.findall(rf"^ +\d+ +{name} ", out, re.M)), 1, out)
            code, narrow, err = here.lull("top", "-n", "1", "--width", "40")
            self.assertEqual(code, 0, err)
            self.assertLessEqual(max(map(len, narrow.splitlines())), 40)
            code, out, err = here.lull("top", "-n", "2", "--every-ms", "50", "--json")
            self.assertEqual(code, 0, err)
            answers = [json.loads(line) for line in out.splitlines()]
            self.assertEqual(len(answers), 2)
            for answer in answers:
                self.assertEqual({c["task"] for c in answer["clients"]}, {"painter", "baker"})
        code, out, err = here.lull("top", "-n", "1")
        self.assertEqual((code, out), (1, ""))
        self.assertRegex(err, r"^lull: top: [^\n]+: [^\n]+\n$")


class Profiles(unittest.TestCase):
    def test_what_is_learnt_of_a_task_is_listed_shown_used_again_and_forgotten(self):
        with lab.Lab() as here:
            kept = here.folder / "profiles"
            config = here.folder / "lulld.json"
            config.write_text(json.dumps({"profiles": str(kept)}))

            def profile(*words):
                code, out, err = here.lull("profile", *words)
                self.assertEqual(code, 0, err)
                return out

            def counted():
                (record,) = json.loads(profile("show", "--json", "painter"))
                return sum(kernel["count"] for kernel in record["kernels"])

            def run(launches, before=0):
                here.lulld("--config", config, "--timing", "full")

                def learnt():
                    """On a busy machine lulld may miss all of so short a run: then it learns from the next one."""
                    code, _, err = here.run(lab.PROGRAMS / "loop_launch", 40000, 10, launches, LULL_NAME="painter")
                    self.assertEqual(code, 0, err)
                    return json.loads(profile("list", "--json"))["profiles"] and counted() > before
                lab.until(learnt, "what it has told is in its profile", step_s=1)
                entry, = json.loads(profile("list", "--json"))["profiles"]
                (record,) = json.loads(profile("show", "--json", "painter"))
                here.daemon.send_signal(signal.SIGTERM)
                self.assertEqual(here.daemon.wait(lab.DEADLINE_S), 0)
                return entry, record

            def samples(record):
                return {kernel["name"]: kernel["count"] for kernel in record["kernels"]}

            entry, record = run(400)
            self.assertIn("painter", entry["task"])
            self.assertIn("simulated", entry["gpu"])
            self.assertEqual(entry["kernels"], 2)
            first = samples(record)
            self.assertEqual(set(first), {"spin", "second_spin"})
            for kernel in record["kernels"]:
                self.assertTrue(36_000 <= kernel["p50_ns"] <= 400_000, kernel)  # a busy host may see the end of one late
            _, record = run(400, before=sum(first.values()))
            second = samples(record)
            self.assertEqual(set(second), set(first))
            self.assertGreater(sum(second.values()), sum(first.values()), "the second run adds to the first")

            # Without a daemon the directory itself is read; the file is JSON for people, too.
            there = ("--directory", kept)
            self.assertEqual(len(json.loads(profile("list", "--json", *there))["profiles"]), 1)
            self.assertIn("painter", profile("list", *there))
            self.assertIn("second_spin", profile("show", "painter", *there))
            json.loads((kept / entry["file"]).read_text())
            self.assertIn("1 profile forgotten", profile("forget", "painter", *there))
            self.assertEqual(json.loads(profile("list", "--json", *there))["profiles"], [])
            for words in (("show", "painter"), ("forget", "painter")):
                code, out, err = here.lull("profile", *words, *there)
                self.assertEqual((code, out), (1, ""))
                self.assertRegex(err, r"^lull: profile: nothing is kept of 'painter': [^\n]+\n$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
