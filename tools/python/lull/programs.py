"""Where lull's programs are, and how they are run."""

import os
import pathlib
import shutil
import site
import subprocess
import sysconfig


class LullError(Exception):
    """A request or a command failed. The text is one line: what failed, why, what to do."""


def program(name="lull"):
    """The path of lull, lulld or lull-play: in $LULL_BIN, where this package was installed, else along PATH."""
    folders = [os.environ.get("LULL_BIN"), sysconfig.get_path("scripts"), os.path.join(site.getuserbase(), "bin")]
    for folder in folders:
        if folder and os.access(path := os.path.join(folder, name), os.X_OK):
            return pathlib.Path(path)
    found = shutil.which(name)
    if not found:
        raise LullError(f"{name} is not found: install lull, or put its folder into LULL_BIN")
    return pathlib.Path(found)


def start(*words):
    """A running `lull WORDS`, whose output is read by the caller."""
    return subprocess.Popen([program(), *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def complaint(stderr):
    """What a failed command said last, without its own name."""
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("lull: ") if lines else "lull failed without a word"
