"""A lab for end-to-end tests: one temporary folder with a simulated GPU and a daemon of its own.

Everything that is started is ended by the id it was started with; nothing outside the folder is
touched. Waits have deadlines: they say that something never happened, not that it was slow.
"""

import faulthandler
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

BUILD = pathlib.Path(os.environ.get("LULL_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build/dev"))
BIN = BUILD / "bin"
LIB = BUILD / "lib/lull"
SIM = LIB / "sim"
PROGRAMS = BUILD / "tests/programs"
DEADLINE_S = 120.0
# A minute before ctest would end this test: it says where each of its threads is, and ends.
if "LULL_TEST_HANGS_S" in os.environ:
    faulthandler.dump_traceback_later(float(os.environ["LULL_TEST_HANGS_S"]), exit=True)


class Lab:
    def __init__(self, slow_motion=1, sharing="time_slice", devices=1):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lull-e2e-"))
        self.socket = str(self.folder / "lulld.sock")
        self.device = str(self.folder / "simgpu")
        self.sim = {"SIMGPU_DEVICE": self.device, "SIMGPU_SHARING": sharing,
                    "SIMGPU_SLOW_MOTION": str(slow_motion), "SIMGPU_DEVICES": str(devices)}
        self.children = []
        self.daemon = None

    def __enter__(self):
        return self

    def __exit__(self, failure=None, *_):
        """Where the test has failed, what lulld said last is shown."""
        for child in reversed(self.children):
            if child.poll() is None:
                child.kill()
            try:
                child.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                pass
            if failure and child is self.daemon and child.returncode is not None and not child.stderr.closed:
                print("lulld said:", *child.stderr.read().splitlines()[-40:], sep="\n  ")
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream:
                    stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self, shim=True, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("LULL_", "SIMGPU_", "LD_", "COLUMNS"))}
        env.update(self.sim)
        env["LD_LIBRARY_PATH"] = str(SIM)
        env["LULL_SOCKET"] = self.socket
        if shim:
            env["LD_PRELOAD"] = str(LIB / "liblull.so")
        env.update({k: str(v) for k, v in more.items()})
        return env

    def start(self, *command, shim=True, **more):
        child = subprocess.Popen([str(c) for c in command], env=self.environment(shim, **more),
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def run(self, *command, shim=True, timeout=DEADLINE_S, **more):
        child = self.start(*command, shim=shim, **more)
        out, err = child.communicate(timeout=timeout)
        return child.returncode, out, err

    def lulld(self, *options, **more):
        self.daemon = self.start(BIN / "lulld", "--socket", self.socket, "--sim", self.device, *options, shim=False, **more)
        until(lambda: self.daemon.poll() is not None or self.alive(), "the daemon answers")
        if self.daemon.poll() is not None:
            raise AssertionError("lulld ended: " + self.daemon.stderr.read())
        return self.daemon

    def alive(self):
        try:
            return self.ask({"op": "ping"})["ok"]
        except (OSError, ValueError):
            return False

    def ask(self, request):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(DEADLINE_S)
            s.connect(self.socket)
            s.send(json.dumps(request).encode())
            reply = b""
            while packet := s.recv(1 << 17):
                reply += packet
        return json.loads(reply)

    def status(self):
        return self.ask({"op": "status"})

    def client(self, pid):
        return next((c for c in self.status()["clients"] if c["pid"] == pid), None)

    def wait_known(self, child):
        """Whoever starts now arrives after it. That a program is ready does not say so: one that lulld has not answered in
        time runs unscheduled, and attaches later."""
        until(lambda: (c := self.client(child.pid)) and c["devices"], "lulld knows it on its device")

    def lull(self, *arguments, **more):
        return self.run(BIN / "lull", *arguments, shim=False, **more)


def until(true, what, deadline_s=DEADLINE_S, step_s=0.005):
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        value = true()
        if value:
            return value
        time.sleep(step_s)
    raise AssertionError(f"within {deadline_s} s: never {what}")


def share(tests):
    """For load_tests: of a long suite every n-th test, where LULL_SHARE=I/N says so; all without."""
    def each(suite):
        for test in suite:
            yield from each(test) if isinstance(test, unittest.TestSuite) else [test]
    mine, parts = map(int, os.environ.get("LULL_SHARE", "1/1").split("/"))
    return unittest.TestSuite(list(each(tests))[mine - 1::parts])


def ended(child):
    """Its exit code, once it has one."""
    return child.wait(DEADLINE_S)


def kill(child):
    child.kill()  # where it has not ended by itself
    child.wait(DEADLINE_S)


def threads_of(pid):
    return len(os.listdir(f"/proc/{pid}/task"))
