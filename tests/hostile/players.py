"""Processes that talk by lines, played as any user, in a folder that every user can read."""

import os
import pathlib
import select
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import lab  # noqa: E402

BUILD = lab.BUILD
# Users that no machine has; by process, so that two runs of the tests do not meet in /tmp.
VICTIM = 61_000 + os.getpid() % 1000 * 4
STRANGER = VICTIM + 1
SERVICE = VICTIM + 2


def needs_root(test):
    return unittest.skipUnless(os.geteuid() == 0, "playing another user needs root")(test)


class Player:
    """A child that answers each line by one line; some say more on their own."""

    def __init__(self, words, environment, user=None):
        kept = {k: v for k, v in os.environ.items()
                if not k.startswith(("LULL_", "LD_", "SIMGPU_", "XDG_"))}
        who = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        self.child = subprocess.Popen([str(w) for w in words], env={**kept, **environment}, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, **who)
        self.rest = b""

    def line(self, deadline_s=lab.DEADLINE_S):
        while b"\n" not in self.rest:
            if not select.select([self.child.stdout], [], [], deadline_s)[0]:
                raise AssertionError(f"no answer within {deadline_s} s")
            more = os.read(self.child.stdout.fileno(), 4096)
            if not more:
                raise AssertionError(f"it ended: {self.child.wait()} {self.child.stderr.read().decode()}")
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()

    def tell(self, command):
        self.child.stdin.write(command.encode() + b"\n")
        self.child.stdin.flush()

    def ask(self, command, deadline_s=lab.DEADLINE_S):
        self.tell(command)
        return self.line(deadline_s)

    def said_nothing(self):
        return not self.rest and not select.select([self.child.stdout], [], [], 0)[0]

    def end(self):
        """Exit code and what it complained about."""
        if self.child.poll() is None:
            self.child.stdin.close()
        code = self.child.wait(lab.DEADLINE_S)
        return code, self.child.stderr.read().decode()


class Stage(unittest.TestCase):
    """A folder laid out like an installation, and players that are ended with the test."""

    def setUp(self):
        here = lab.Lab()
        self.addCleanup(here.__exit__)
        self.here = here
        self.folder = here.folder
        self.folder.chmod(0o755)
        built = BUILD / "tests/shim_driver"
        for source, target in ((built / "shim_probe", "bin"), (BUILD / "tests/impostor", "bin"), (BUILD / "bin/lull", "bin"),
                               (BUILD / "bin/lulld", "bin"), (BUILD / "lib/lull/liblull.so", "lib/lull"),
                               (built / "libcuda.so.1", "lib"), (built / "libshim_test_wrapper.so", "lib")):
            (self.folder / target).mkdir(parents=True, exist_ok=True)
            shutil.copy(source, self.folder / target)

    def place(self, name, owner=None, mode=0o755):
        directory = self.folder / name
        directory.mkdir()
        if owner is not None:
            os.chown(directory, owner, owner)
        directory.chmod(mode)
        return directory

    def player(self, words, user=None, before=(), **environment):
        player = Player([*before, *words], environment, user)
        self.here.children.append(player.child)
        return player

    def impostor(self, socket, memory="sealed", user=None, before=()):
        player = self.player([self.folder / "bin/impostor", socket, memory], user, before)
        self.assertEqual(player.line(), "ready")
        return player

    def preloaded(self, **environment):
        return {"LD_PRELOAD": str(self.folder / "lib/lull/liblull.so"),
                "LD_LIBRARY_PATH": str(self.folder / "lib"), **environment}

    def probe(self, user=None, before=(), **environment):
        """A program under the shim that has begun to use its GPU."""
        player = self.player([self.folder / "bin/shim_probe"], user, before, **self.preloaded(**environment))
        self.assertEqual(player.ask("init"), "0")
        return player
