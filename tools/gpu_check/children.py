"""Processes that the check starts: each leads a group of its own, has a deadline, and is ended by
its own id. What it prints goes to files, so that nobody waits for a full pipe."""

import ctypes
import os
import pathlib
import signal
import subprocess
import time

_PR_SET_PDEATHSIG = 1
_END_WAIT_S = 3.0
_TAIL = 2000


_libc = ctypes.CDLL(None)


def _die_with(parent):
    """What a child does first: it ends with us, also when we ended before it could say so."""
    def tie():
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    return tie


class Child:
    """A running process. `out` and `err` are read as far as they are written."""

    def __init__(self, words, env, scratch, name, user=None, cwd=None):
        self.words = [str(word) for word in words]
        self.name = name
        self.out_path = pathlib.Path(scratch) / f"{name}.out"
        self._err = pathlib.Path(scratch) / f"{name}.err"
        self._read = 0
        more = {"user": user} if user else {}
        with open(self.out_path, "wb") as out, open(self._err, "wb") as err:
            self.process = subprocess.Popen(
                self.words, env=env, stdin=subprocess.PIPE, stdout=out, stderr=err, cwd=cwd,
                start_new_session=True, preexec_fn=_die_with(os.getpid()), **more)
        self.pid = self.process.pid

    def out(self):
        return self.out_path.read_text(errors="replace")

    def err(self):
        return self._err.read_text(errors="replace")

    def last_words(self):
        """Why it ended, in one line: the last it said."""
        lines = [line for line in (self.err() or self.out())[-_TAIL:].splitlines() if line.strip()]
        return lines[-1][:300] if lines else "it said nothing"

    def running(self):
        return self.process.poll() is None

    def code(self):
        return self.process.poll()

    def say(self, line):
        try:
            self.process.stdin.write((line + "\n").encode())
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass

    def wait(self, timeout_s):
        """The exit code; None when it still runs."""
        try:
            return self.process.wait(max(0.0, timeout_s))
        except subprocess.TimeoutExpired:
            return None

    def wait_for(self, seen, timeout_s):
        """Until `seen()` is true. False when the process ended or the time was up before."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if seen():
                return True
            if not self.running():
                return bool(seen())
            time.sleep(0.005)
        return False

    def line_with(self, start):
        """The last whole line on stdout that begins with `start`; None when there is none."""
        text = self.out()
        for line in reversed(text[:text.rfind("\n") + 1].splitlines()):
            if line.startswith(start):
                return line
        return None

    def signal(self, number):
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def end(self, wait_s=_END_WAIT_S):
        """Its whole group: asked first, then killed."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.running():
                self._signal_group(number)
                self.wait(wait_s)
        self._signal_group(signal.SIGKILL)  # what it left behind
        if self.process.stdin:
            try:
                self.process.stdin.close()
            except OSError:
                pass

    def _signal_group(self, number):
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


class Done:
    """How a child ended."""

    def __init__(self, child, timed_out, seconds):
        self.child = child
        self.code = child.code()
        self.timed_out = timed_out
        self.seconds = seconds
        self.out = child.out()
        self.err = child.err()

    @property
    def good(self):
        return not self.timed_out and self.code == 0

    def why(self):
        if self.timed_out:
            return f"still running after {self.seconds:.0f} s, ended: {self.child.last_words()}"
        how = f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return f"{how}: {self.child.last_words()}"


class Children:
    """All that one check has started."""

    def __init__(self, scratch):
        self.scratch = pathlib.Path(scratch)
        self._all = []
        self._serial = 0

    def start(self, words, env, name=None, user=None, cwd=None):
        self._serial += 1
        label = name or pathlib.Path(str(words[0])).name
        child = Child(words, env, self.scratch, f"{self._serial:03d}-{label}", user, cwd)
        self._all.append(child)
        return child

    def run(self, words, env, timeout_s, name=None, user=None, cwd=None):
        start = time.monotonic()
        child = self.start(words, env, name, user, cwd)
        code = child.wait(timeout_s)
        seconds = time.monotonic() - start
        if code is None:
            child.end()
        else:
            child.end(0)
        return Done(child, code is None, seconds)

    def forget(self, child):
        """Ends it; nothing more will be asked of it."""
        child.end(0)
        self._all.remove(child)

    def end_behind(self, child):
        """Ends what was started after it."""
        behind = self._all[self._all.index(child) + 1:]
        for one in reversed(behind):
            one.end()
        del self._all[len(self._all) - len(behind):]

    def end_all(self):
        for child in reversed(self._all):
            child.end()
        self._all.clear()
