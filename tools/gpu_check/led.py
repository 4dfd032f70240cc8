"""A subcommand of lull-device-probe that is led by orders (native/orders.h): a line on stdin, a JSON line back."""

import contextlib
import json

from gpu_check.verdict import Failed, OutOfTime, Skipped

_READY_S = 60
_END_S = 10


class Led:
    """A running one. `env`: its whole environment; `options`: of the subcommand; `under`: words in front of the program;
    `program`: another one that is led the same way, in words. What the probe skips or fails is raised as such."""

    def __init__(self, context, name, env, options=(), under=(), program=None):
        self._context, self._name = context, name
        self._read, self._line = 0, None  # how far its output was taken; a line that nobody has taken yet
        program = program or [context.program(context.bin, "lull-device-probe"), name]
        self.child = context.children.start([*under, *program, *options], env, name)
        self.pid = self.child.pid
        self._answer(_READY_S)

    def ask(self, order, wait_s=30):
        """The answer, which takes less than `wait_s` of real time."""
        self.child.say(order)
        return self._answer(wait_s)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """It ends by itself, its work done: a client of MPS that is killed may take the server along."""
        with contextlib.suppress(OSError):  # it may be gone, with what it was told last unread
            self.child.process.stdin.close()
        self.child.wait(_END_S)
        self._context.children.forget(self.child)

    def _answer(self, wait_s):
        timeout_s = self._context.timeout(wait_s)
        if not self.child.wait_for(self._has_line, timeout_s):
            running = self.child.running()
            self.child.end()
            if running and timeout_s < wait_s:
                raise OutOfTime()
            raise Failed(f"{self._name}: " + (f"no answer in {timeout_s:.0f} s" if running else "ended: " + self.child.last_words()))
        answer, self._line = json.loads(self._line), None
        if "skipped" in answer:
            raise Skipped(f"{self._name}: {answer['skipped']}")
        if "failed" in answer:
            raise Failed(f"{self._name}: {answer['failed']}")
        return answer

    def _has_line(self):
        if self._line is None:
            with open(self.child.out_path, "rb") as file:
                file.seek(self._read)
                text = file.read()
            if b"\n" in text:
                self._line = text[:text.index(b"\n") + 1]
                self._read += len(self._line)
        return self._line is not None
