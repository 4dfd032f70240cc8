"""What the matrix and the ablations have in common as commands: options, exit codes, and how they stop."""

import os
import signal
import sys
import time

from evaluation.cases import Unusable


def common_options(parser, out):
    parser.add_argument("--traces", required=True, metavar="FOLDER", help="workload files and PyTorch profiler traces: every "
                        "ordered pair of them (the shipped ones: examples/workloads)")
    parser.add_argument("--pairs", action="append", default=[], metavar="HIGH:LOW", help="only these: the beginnings of names, or globs; "
                        "may be repeated")
    parser.add_argument("--iterations", type=int, metavar="N", help="requests measured at most")
    parser.add_argument("--lull", metavar="FILE", help="the command (default: build/release/bin/lull, else build/dev/bin/lull)")
    parser.add_argument("--out", default=out, metavar="FOLDER", help=f"keeps each case's result; a later run goes on there (default: {out})")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="simulations side by side (default: cores)")
    parser.add_argument("--deadline", type=float, default=1800, metavar="S", help="ends a simulation that takes longer (default: 1800)")
    parser.add_argument("--write", metavar="FOLDER", help="write the page there (docs/simulation), with what belongs to it")


def check_common(arguments):
    for name in ("jobs", "deadline", "iterations"):
        value = getattr(arguments, name)
        if value is not None and value <= 0:
            raise Unusable(f"--{name}: {value:g} is out of range: use more than 0")


def run(name, read, words, work):
    """`read` makes the arguments of the words; `work(arguments, say)` gives the exit code."""
    try:
        arguments = read(words)
    except SystemExit as end:
        return 2 if end.code else 0
    started = time.monotonic()

    def say(text):
        print(f"[{time.monotonic() - started:7.1f} s] {text}", flush=True)

    # A stop from outside ends the simulations too, and what was found stands.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        check_common(arguments)
        return work(arguments, say)
    except Unusable as why:
        print(f"lull: {name}: {why}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        say("stopped; what was found stands")
        return 1


def say_problems(name, problems):
    for case, why in problems.items():
        print(f"lull: {name}: {case}: {why}", file=sys.stderr)
