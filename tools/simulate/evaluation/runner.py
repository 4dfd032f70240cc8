"""Runs cases as processes side by side and keeps each result in a folder, so that a run that is cut
off anywhere loses only the cases in hand. One thread."""

import dataclasses
import datetime
import json
import pathlib
import resource
import shutil
import subprocess
import tempfile
import time

from evaluation.cases import Unusable, digest
from gpu_check.children import Children
from gpu_check.results import write_whole

_LOOK_S = 0.02


class Lull:
    """The command `lull` of one build."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        if not self.path.is_file():
            raise Unusable(f"--lull: no {self.path}: build it (cmake --preset release; cmake --build --preset release --target lull)")
        self.digest = digest(self.path)
        self.version = subprocess.run([self.path, "--version"], capture_output=True, text=True, timeout=60).stdout.strip()

    def refuses(self, *words):
        """Why `lull simulate` does not know these words, in its own; empty when it does."""
        here = str(self.path.parent / "no-such-workload")
        asked = subprocess.run([self.path, "simulate", "--high", here, "--low", here, *words],
                               capture_output=True, text=True, timeout=60)
        return asked.stderr.strip() if asked.returncode == 2 else ""


def usual_lull(root):
    return next((path for path in (root / "build/release/bin/lull", root / "build/dev/bin/lull") if path.exists()),
                root / "build/release/bin/lull")


@dataclasses.dataclass
class Kept:
    """A case's result as it lies in the folder."""
    case: str
    result: dict
    cpu_s: float
    date: str


class Folder:
    def __init__(self, path, lull):
        self.path, self.lull = pathlib.Path(path), lull
        try:
            (self.path / "cases").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unusable(f"--out: {self.path}: {error.strerror}: name a folder that can be written") from None

    def _file(self, case):
        return self.path / "cases" / f"{case.slug}.json"

    def find(self, case):
        """None where it has not been run by this very lull."""
        try:
            data = json.loads(self._file(case).read_text())
        except (OSError, ValueError):
            return None
        if data.get("key") != case.key(self.lull.digest):
            return None
        return Kept(case.name, data["result"], data["cpu_s"], data["date"])

    def keep(self, case, result, cpu_s):
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
        write_whole(self._file(case), json.dumps({"case": case.name, "key": case.key(self.lull.digest), "date": date,
                                                  "cpu_s": round(cpu_s, 3), "result": result}) + "\n")


def _cpu_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(cases, lull, jobs, deadline_s, done):
    """Each case in a process of its own, `jobs` at a time. Calls done(case, result, cpu_s, problem):
    result is None where there is a problem."""
    scratch = tempfile.mkdtemp(prefix="lull-cases-")
    children = Children(scratch)
    waiting, running = list(reversed(cases)), []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                case = waiting.pop()
                running.append((case, children.start([lull.path, *case.words()], None), time.monotonic()))
            for one in list(running):
                case, child, started = one
                before = _cpu_s()
                late = time.monotonic() - started > deadline_s
                if child.running() and not late:
                    continue
                children.forget(child)
                running.remove(one)
                problem, result = "", None
                if late:
                    problem = f"not done after {deadline_s:g} s"
                elif child.code() != 0:
                    problem = f"exit code {child.code()}: {child.last_words()}"
                else:
                    try:
                        result = json.loads(child.out())
                    except ValueError as error:
                        problem = f"no JSON: {error}"
                cpu_s = _cpu_s() - before
                done(case, result, cpu_s, problem)
            if running:
                time.sleep(_LOOK_S)
    finally:
        children.end_all()
        shutil.rmtree(scratch, ignore_errors=True)
