"""What a program loses beside a neighbour that is attached and idle, through `lull simulate`: recorded, shipped and made
programs, under every policy. Whoever shares nothing should pay nothing. With --below the programs are less important than
the neighbour, and what lies on the device when it comes is told too. Everything it prints and writes is simulated. Exit codes: 0 every run is within the bar, 1 one is not or failed, 2 wrong usage."""

import argparse
import fnmatch
import os
import pathlib

from evaluation import bars, cases, command, idle_page, population, runner
from evaluation.cases import Case, Unusable, Workload
from evaluation.matrix import ROOT, commit, run_missing, write
from evaluation.workload_file import Program

BAR = 1.01  # mean service time beside the neighbour by mean service time alone
# Not `exclusive`: a neighbour that came first has the device until it leaves, however idle it is.
POLICIES = ("share", "time_slice", "priority", "fikit", "guarded")
SHIPPED = ROOT / "examples/workloads"
SECOND_NS = 1_000_000_000
# Of programs below their neighbour: work under a policy by work under `share`, which holds nobody, at least.
BELOW = 0.99
# Some visits of the neighbour that launches, and a hundred requests of most programs; requests are at most so many.
SECONDS, REQUESTS, WARMUP = 4, 1000, 10
ABOVE_SECONDS, VISITS_BEFORE = 9, 1  # three visits, and one that is not measured


def _tiny():
    program = Program("idle_tiny", "other", "launches one kernel of 2 us a second", pause_after_ns=SECOND_NS)
    program.launch("tiny", 1, 32, 2000, pause_ns=0)
    program.wait_for_stream()
    return program


def _none():
    program = Program("idle_none", "other", "is attached and launches nothing", pause_after_ns=SECOND_NS)
    program.wait_for_stream()
    return program


def _visit():
    program = Program("idle_visit", "other", "is idle for three seconds between requests of 500 kernels", pause_after_ns=3 * SECOND_NS)
    for _ in range(500):
        program.launch("step", 108, 256, 20_000, pause_ns=0)
    program.wait_for_stream()
    return program


NEIGHBOURS = {"tiny": _tiny, "none": _none}
# Above the programs. Policies take a client for idle after a second: its pauses are longer.
ABOVE = {"visit": _visit, "none": _none}


def _arguments(words):
    parser = argparse.ArgumentParser(prog="tools/simulate/idle", description=" ".join(__doc__.split()))
    parser.add_argument("--traces", metavar="FOLDER", help="recorded programs: workload files and PyTorch profiler traces (default: none)")
    parser.add_argument("--made", type=int, default=50, metavar="N", help="made programs, of the population's families (default: 50)")
    parser.add_argument("--seed", default="idle", metavar="S", help="of the made programs, any text (default: idle)")
    parser.add_argument("--only", nargs="+", metavar="GLOB", help="only programs of such names, of all that are chosen")
    parser.add_argument("--below", action="store_true", help="the programs have low priority and the neighbour high: what it costs them that "
                        "an idle one may come first, and how long its first request takes when it comes")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), metavar="P", help=f"as for lull simulate (default: {' '.join(POLICIES)})")
    parser.add_argument("--devices", nargs="+", choices=cases.SHARINGS, default=list(cases.SHARINGS), help="how programs share the device: made "
                        "programs take turns in it, all others run under each (default: all three)")
    parser.add_argument("--seconds", type=float, metavar="S", help=f"measure at most S seconds of device time (default: {SECONDS}, "
                        f"with --below {ABOVE_SECONDS})")
    parser.add_argument("--iterations", type=int, metavar="N", help=f"requests measured at most (default: {REQUESTS})")
    parser.add_argument("--lull", metavar="FILE", help="the command (default: build/release/bin/lull, else build/dev/bin/lull)")
    parser.add_argument("--out", default="build/idle", metavar="FOLDER", help="the workload files and each case's result; a later run goes on "
                        "there (default: build/idle)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="simulations side by side (default: cores)")
    parser.add_argument("--deadline", type=float, default=600, metavar="S", help="ends a simulation that takes longer (default: 600)")
    parser.add_argument("--write", metavar="FOLDER", help="write idle.md there, with --below run-ahead.md (docs/simulation)")
    return parser.parse_args(words)


def main(words):
    return command.run("idle", _arguments, words, _run)


def chosen_cases(arguments, out):
    """[(kind of program, neighbour, case)], and the files that they need. Closed loops without jitter: the same words
    give the same figures."""
    neighbours = {name: make() for name, make in (ABOVE if arguments.below else NEIGHBOURS).items()}
    folder = out / "workloads"
    files = {f"{program.name}.json": program.text() for program in neighbours.values()}
    recorded = cases.workloads(arguments.traces) if arguments.traces else []
    programs = [("recorded", w, arguments.devices) for w in recorded]
    programs += [("shipped", w, arguments.devices) for w in cases.workloads(SHIPPED)]
    sharings = tuple(arguments.devices)
    for pair in population.make_pairs(arguments.seed, arguments.made, sharings):
        files[f"{pair.high.name}.json"] = pair.high.text()
        programs.append(("made", Workload(pair.high.name, folder / f"{pair.high.name}.json"), [pair.sharing]))
    write(folder, files)
    if arguments.only:
        programs = [one for one in programs if any(fnmatch.fnmatchcase(one[1].name, glob) for glob in arguments.only)]
        if not programs:
            raise Unusable(f"--only: {' '.join(arguments.only)}: no program has such a name")
    def case(workload, other, sharing):
        other = Workload(other.name, folder / f"{other.name}.json")
        high, low = (other, workload) if arguments.below else (workload, other)
        return Case(high, low, sharing=sharing, iterations=arguments.iterations or REQUESTS, warmup=VISITS_BEFORE if arguments.below else WARMUP,
                    seconds=arguments.seconds or (ABOVE_SECONDS if arguments.below else SECONDS), policies=tuple(arguments.policies), more=("--no-oracle",))

    return [(kind, name, case(workload, other, sharing))
            for kind, workload, turns in programs for sharing in turns for name, other in neighbours.items()]


def _run(arguments, say):
    if not 0 <= arguments.made <= 1000:
        raise Unusable(f"--made: {arguments.made} is out of range: use 0 to 1000")
    lull = runner.Lull(arguments.lull or runner.usual_lull(ROOT))
    if arguments.below and "share" not in arguments.policies:
        raise Unusable("--policies: with --below all are measured by share: name it too")
    for policy in arguments.policies:
        if why := lull.refuses("--policy", policy):
            raise Unusable(f"--policies: {why}")
    out = pathlib.Path(arguments.out)
    chosen = chosen_cases(arguments, out)
    folder = runner.Folder(out, lull)
    problems = run_missing([case for *_, case in chosen], folder, arguments, say)
    data = collect(arguments, chosen, folder, problems)
    target = pathlib.Path(arguments.write or out)
    page = "run-ahead.md" if arguments.below else "idle.md"
    write(target, {page: idle_page.render(data)})
    print(f"\nsimulated, {len(data['runs'])} cases: {target}/{page}")
    for row in idle_page.verdict_rows(data):
        print("  " + "; ".join(f"{name} {value}" for name, value in zip(idle_page.verdict_names(data), row)))
    command.say_problems("idle", problems)
    return 0 if idle_page.all_within(data) else 1


def _work_by_share(figures):
    """By policy. Beside each other the program is at the same place of its iteration under all that let it run."""
    free = figures.get("share", {}).get("low")
    return {policy: one["low"] / free for policy, one in figures.items() if free and one.get("low") is not None}


def collect(arguments, chosen, folder, problems):
    runs, some, dates = [], {}, set()
    for kind, neighbour, case in chosen:
        found = folder.find(case)
        run = {"kind": kind, "program": (case.low if arguments.below else case.high).name, "neighbour": neighbour, "sharing": case.sharing,
               "problem": problems.get(case.name, "" if found else "not run"), "policies": {}, "requests_ms": {}}
        if found is not None:
            some = found.result
            dates.add(found.date)
            figures = {policy: one for policy, one in bars.figures(found.result).items() if policy != "alone"}
            if arguments.below:
                run["policies"] = _work_by_share(figures)
                run["requests_ms"] = {row["policy"]: row["p99_ms"] for row in found.result["rows"] if row["role"] == "high"}
            else:
                run["policies"] = {policy: one["mean"] for policy, one in figures.items() if one.get("mean") is not None}
        runs.append(run)
    return {"date": " to ".join(sorted(dates)[:1] + sorted(dates)[1:][-1:]), "lull": folder.lull.version + commit(), "below": arguments.below,
            "bar": BELOW if arguments.below else BAR,
            "device": some.get("device", ""), "control_latency_us": some.get("control_latency_us", 0), "seed": arguments.seed,
            "made": arguments.made, "policies": list(arguments.policies), "runs": runs}
