"""The command line of tools/gpu-check. Exit codes: 0 no step failed, 1 one did, 2 wrong usage."""

import argparse
import fnmatch
import os
import pathlib
import signal
import sys
import time

from gpu_check import (cost, device, faults, interception, launch_queue, machine, real_pairs, report, sharing, suspension, timing,
                       workloads)
from gpu_check.context import Context
from gpu_check.results import Results, Unusable, passed_before, write_whole
from gpu_check.steps import in_order, run_steps

PARTS = {
    "interception": (interception, "every kernel the driver ran was seen"),
    "device": (device, "what simgpu assumes, measured"),
    "cost": (cost, "what lull adds"),
    "timing": (timing, "lull's times against the driver's own"),
    "sharing": (sharing, "two programs, alone and together"),
    "pairs": (real_pairs, "real programs beside training, every way in the same rounds"),
    "queue": (launch_queue, "how far ahead a program gets, and what markers cost"),
    "suspension": (suspension, "memory out to the host and back"),
    "faults": (faults, "who lives when one program breaks"),
    "workloads": (workloads, "models as workload files"),
}
BUDGET_S = 460  # for each part


def _usage(text):
    print(f"lull: gpu-check: {text}", file=sys.stderr)
    return 2


def _arguments(words):
    parser = argparse.ArgumentParser(prog="tools/gpu-check", description=__doc__.splitlines()[0], epilog="parts: " + "; ".join(
        f"{name}: {what}" for name, (_, what) in PARTS.items()) + "; all")
    parser.add_argument("parts", nargs="+", metavar="PART")
    parser.add_argument("--sim", action="store_true", help="on the simulated GPU: what needs a real driver is skipped")
    parser.add_argument("--out", help="folder of results.json and report.md, gone on with when it is there "
                        "(default: build/gpu-check, build/gpu-check-sim)")
    parser.add_argument("--build", help="build or installed folder (default: build/release, else build/carry)")
    parser.add_argument("--budget", type=float, default=None, metavar="SECONDS",
                        help=f"begin no new step beyond it (default: {BUDGET_S} for each part)")
    parser.add_argument("--again", action="store_true", help="also the steps that have a result")
    parser.add_argument("--only", metavar="GLOB", help="only the steps whose name matches, with or without its part")
    parser.add_argument("--short", action="store_true", help="with --sim: fewer repetitions")
    parser.add_argument("--list", action="store_true", help="print the steps and end")
    return parser.parse_args(words)


def _selected(arguments):
    chosen = []
    for part in arguments.parts:
        for name in PARTS if part == "all" else [part]:
            if name not in PARTS:
                return None, f"no part '{name}': use one of {', '.join(PARTS)}, all"
            if name not in chosen:
                chosen.append(name)
    return chosen, ""


def main(words):
    try:
        arguments = _arguments(words)
    except SystemExit as end:
        return 2 if end.code else 0
    chosen, problem = _selected(arguments)
    if chosen is None:
        return _usage(problem)
    if arguments.budget is not None and arguments.budget <= 0:
        return _usage(f"--budget: {arguments.budget:g} is out of range: use more than 0 seconds")
    if arguments.short and not arguments.sim:
        return _usage("--short: a real GPU is measured in full: use it with --sim")
    root = pathlib.Path(__file__).resolve().parents[2]
    usual = [root / "build/release", root / "build/carry"]
    build = pathlib.Path(arguments.build or next((b for b in usual if (b / "bin/lull").exists()), usual[0])).resolve()
    if not (build / "bin/lull").exists():
        return _usage(f"--build: no lull in {build}/bin: build it (cmake --preset release; cmake --build --preset release)")
    out = pathlib.Path(arguments.out or root / ("build/gpu-check-sim" if arguments.sim else "build/gpu-check"))
    try:
        results = Results(out, arguments.sim)
        results.save()
    except Unusable as why:
        return _usage(str(why))
    except OSError as error:
        return _usage(f"--out: {out}: {error.strerror}: name a folder that can be written")
    # A stop from outside ends the children too, and what was found stands.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    context = Context(root, build, out, arguments.sim, arguments.short, results)
    started = time.monotonic()

    def say(text):
        print(f"[{time.monotonic() - started:6.1f} s] {text}", flush=True)

    def wanted(name):
        return not arguments.only or any(fnmatch.fnmatch(one, arguments.only) for one in (name, name.split("/", 1)[1]))

    try:
        steps = [(f"{part}/{step.name}", step) for part in chosen for step in PARTS[part][0].steps(context)]
        steps = [named for named in steps if wanted(named[0])]
        if arguments.list:
            for name, _ in in_order(steps):
                print(name)
            return 0
        budget_s = arguments.budget or BUDGET_S * len(chosen)
        context.ends_at = started + budget_s
        about = machine.describe(context)
        context.no_device = about.get("gpu_problem", "")
        results.set_machine(about)
        before = {} if arguments.sim else passed_before(root / "docs/hardware", about.get("gpu"))
        left = run_steps(in_order(steps, before), context, budget_s - (time.monotonic() - started), arguments.again, say,
                         lambda: _write_report(out, results))
    except KeyboardInterrupt:
        say("stopped; what was found stands")
        return 1
    finally:
        context.close()
        _write_report(out, results)
    mine = [step for name, step in results.data["steps"].items() if name.split("/")[0] in chosen]
    counts = {verdict: sum(step["verdict"] == verdict for step in mine) for verdict in report.VERDICTS}
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()) + (f", {left} left" if left else "")
          + f": {os.path.relpath(out)}/report.md")
    return 1 if counts["fail"] else 0


def _write_report(out, results):
    parts = {name: what for name, (_, what) in PARTS.items()}
    write_whole(out / "report.md", report.render(results.data, parts))
