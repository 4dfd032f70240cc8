"""What is evaluated: the workloads, who runs beside whom and under what, and which part of it is
wanted. Reads the workloads' folder; starts nothing."""

import dataclasses
import fnmatch
import functools
import hashlib
import itertools
import pathlib
import re

SHARINGS = ("serial", "mps", "time_slice")
LOADS = (0.0, 0.3, 0.7)  # of what the high task can serve alone; 0: closed loop
SEEDS = (1, 2, 3)
POLICIES = ("share", "priority", "fikit", "guarded")
WARMUP = 50
ITERATIONS = 1000
SECONDS = 60.0
WHOLE_SECONDS = 1e5  # no end: all requests
JITTER_US = 12  # of the host, the middle of what population.py draws
STRESS_LATENCY_US, STRESS_JITTER_US = 100, 50  # ten times the control latency otherwise; of the host
LONGEST_NAME = 200  # of a case's file; a file system takes 255 bytes
_SUFFIX = re.compile(r"(\.json|\.pt\.trace)*(\.gz)?$")


class Unusable(Exception):
    """The text says what is wrong and what to do."""


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    path: pathlib.Path

    @functools.cached_property
    def digest(self):
        return digest(self.path)


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of `lull simulate`: a pair, one way of sharing, one way of arriving, some policies."""
    high: Workload
    low: Workload
    sharing: str = "serial"
    load: float = 0.0
    seed: int = 1
    iterations: int = ITERATIONS
    warmup: int = WARMUP
    seconds: float = SECONDS
    policies: tuple = POLICIES
    more: tuple = ()  # further words
    stressed: bool = False  # a slow coordinator, and a host that is later than others
    jitter_us: float = 0  # each waking of a host is late by up to so much, from the seed, alone too

    @property
    def name(self):
        return f"{self.high.name} beside {self.low.name}, {self.sharing}, {arrivals(self.load)}" + (
            ", stressed" if self.stressed else "") + (f", seed {self.seed}" if self.is_random else "")

    @property
    def is_random(self):
        """Another seed, other figures."""
        return bool(self.load or self.jitter_us)

    @property
    def part(self):
        """Of matrix.json: what is planned, what of it is played on to all of its requests, what is stressed."""
        return "stress" if self.stressed else "whole" if self.seconds >= WHOLE_SECONDS else "cases"

    @property
    def slug(self):
        """Its name as a file's name: of many policies the beginning, and a digest of the rest."""
        parts = [self.high.name, self.low.name, self.sharing, f"{self.load:g}" if self.load else "closed", str(self.seed),
                 str(self.iterations), *([self.part] if self.part != "cases" else []),
                 *([f"jitter{self.jitter_us:g}"] if self.jitter_us else []), *(self.policies if self.policies != POLICIES else ())]
        name = re.sub(r"[^\w.+-]", "_", "+".join(parts + list(self.more)))
        return name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME - 17] + "+" + hashlib.sha256(name.encode()).hexdigest()[:16]

    def words(self):
        """After `lull`."""
        words = ["simulate", "--high", self.high.path, "--low", self.low.path, "--sharing", self.sharing,
                 "--iterations", self.iterations, "--warmup", self.warmup, "--seconds", f"{self.seconds:g}",
                 "--seed", self.seed, "--json", "-"]
        if self.load:
            words += ["--arrivals", f"{self.load:g}"]
        if self.jitter_us:
            words += ["--jitter-us", f"{self.jitter_us:g}"]
        if self.stressed:
            words += ["--control-latency-us", STRESS_LATENCY_US]
        for policy in self.policies:
            words += ["--policy", policy]
        return [str(word) for word in words] + list(self.more)

    def key(self, lull_digest):
        """The same key: the same figures. The files count by what they hold, not by where they lie."""
        words = [w for w in self.words() if w not in (str(self.high.path), str(self.low.path))]
        text = "\n".join([lull_digest, self.high.digest, self.low.digest, *words])
        return hashlib.sha256(text.encode()).hexdigest()


def arrivals(load):
    return f"Poisson at {load:g}" if load else "closed loop"


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def workloads(folder):
    """All workload files and profiler traces of a folder, by name."""
    folder = pathlib.Path(folder)
    files = sorted(path for path in folder.glob("*") if path.name.endswith((".json", ".json.gz"))) if folder.is_dir() else []
    if len(files) < 2:
        raise Unusable(f"--traces: {folder}: two workloads or more are needed: name a folder of workload files or "
                       "PyTorch profiler traces (*.json, *.json.gz)")
    names = short_names([_SUFFIX.sub("", path.name) for path in files])
    return [Workload(name, path) for name, path in zip(names, files)]


def short_names(stems):
    """For each the first of its pieces between dashes that no other has; else all of it."""
    pieces = [stem.split("-") for stem in stems]

    def short(i):
        others = {piece for j, other in enumerate(pieces) if j != i for piece in other}
        return next((piece for piece in pieces[i] if piece not in others), stems[i])

    return [short(i) for i in range(len(stems))]


def pairs(all_workloads, patterns=()):
    """Every ordered pair, each with itself too; or those that fit one of the patterns HIGH:LOW, where
    each side is the beginning of a name or a glob."""
    every = list(itertools.product(all_workloads, repeat=2))
    if not patterns:
        return every
    chosen = []
    for pattern in patterns:
        high, colon, low = pattern.partition(":")
        found = [(h, l) for h, l in every if fnmatch.fnmatchcase(h.name, high + "*") and fnmatch.fnmatchcase(l.name, low + "*")]
        if not colon or not found:
            raise Unusable(f"--pairs: {pattern}: no such pair: use HIGH:LOW with names of "
                           + ", ".join(w.name for w in all_workloads) + " (their beginning or a glob)")
        chosen += [pair for pair in found if pair not in chosen]
    return chosen


def full(chosen_pairs, sharings=SHARINGS, loads=LOADS, seeds=SEEDS, jitter_us=JITTER_US, **options):
    """A closed loop without jitter has nothing random in it: it is run once and counted once. The oracle
    is asked once, where it is more than a bound that nothing is judged by."""
    return [Case(high, low, sharing, load, seed, more=() if sharing == "serial" and not load and seed == seeds[0] else ("--no-oracle",),
                 jitter_us=jitter_us, **options)
            for sharing in sharings for load in loads for high, low in chosen_pairs
            for seed in (seeds if load or jitter_us else seeds[:1])]


def stress(chosen_pairs, sharings=SHARINGS, seeds=SEEDS, **options):
    """Closed loops; the jitter comes from the seed."""
    return [Case(high, low, sharing, seed=seed, policies=("guarded",), more=("--no-oracle",), stressed=True, jitter_us=STRESS_JITTER_US, **options)
            for sharing in sharings for high, low in chosen_pairs for seed in seeds]


def whole(case):
    """The same without an end but that of its requests, of those policies that are set against each other."""
    return dataclasses.replace(case, seconds=WHOLE_SECONDS, policies=tuple(p for p in case.policies if p != "share"), more=("--no-oracle",))


CI_HIGHS = ("bert", "vit", "qwen")
CI_ITERATIONS = 300


def ci_pairs(all_workloads):
    highs = [w for w in all_workloads if w.name.startswith(CI_HIGHS)]
    if len(highs) < len(CI_HIGHS):
        raise Unusable(f"--subset ci: {', '.join(CI_HIGHS)} are needed among the traces: there are "
                       + ", ".join(w.name for w in all_workloads))
    return [(high, low) for high in highs for low in all_workloads if low != high]
