"""Every ordered pair of a folder of workloads through `lull simulate`, and the bars they are held to.
Everything it prints and writes is simulated. Exit codes: 0 done, 1 failed or a bar of --check missed, 2 wrong usage."""

import argparse
import json
import pathlib
import subprocess
import sys

from evaluation import bars, cases, command, estimate, page, runner
from evaluation.cases import Unusable
from gpu_check.results import write_whole

ROOT = pathlib.Path(__file__).resolve().parents[3]
BARS = (*bars.VALUES, *bars.STRESS)
PARTS = ("cases", "whole", "stress")  # of matrix.json, as Case.part
OTHERS = (("ablations.md", "what each part of `guarded` adds"),)


def _arguments(words):
    parser = argparse.ArgumentParser(prog="tools/simulate/matrix", description=" ".join(__doc__.split()))
    command.common_options(parser, "build/matrix")
    parser.add_argument("--subset", choices=("ci", "stress"), help=f"ci: {', '.join(cases.CI_HIGHS)} as high beside each other trace; serial, "
                        f"closed loop, one seed, {cases.CI_ITERATIONS} requests; stress: only the closed loops with {cases.STRESS_LATENCY_US} us of control "
                        f"latency and up to {cases.STRESS_JITTER_US} us of host jitter, under guarded, which else come last")
    parser.add_argument("--sharing", action="append", choices=cases.SHARINGS, help="may be repeated (default: all three)")
    parser.add_argument("--load", action="append", type=float, metavar="L", help="0: closed loop; 0.3: Poisson arrivals at 30 %% of capacity; "
                        "may be repeated (default: 0, 0.3, 0.7)")
    parser.add_argument("--seeds", type=int, default=len(cases.SEEDS), metavar="N", help="seeds of the arrivals and the jitter: 1 .. N (default: 3)")
    parser.add_argument("--jitter-us", type=float, default=cases.JITTER_US, metavar="J", help="each waking of a host is late by up to so much, "
                        f"alone too; 0: never, and a closed loop, which has then nothing random in it, is run once (default: {cases.JITTER_US})")
    parser.add_argument("--policies", nargs="+", default=list(cases.POLICIES), metavar="P", help="as for lull simulate (default: "
                        f"{' '.join(cases.POLICIES)})")
    parser.add_argument("--check", nargs="?", const="", metavar="BARS", help="exit code 1 when a bar is missed: all that the cases are "
                        f"judged by, or some of {', '.join(BARS)}, with commas")
    parser.add_argument("--dry-run", action="store_true", help="say what would run and how long it would take; runs short probes")
    return parser.parse_args(words)


def select(arguments, all_workloads):
    """The cases that are asked for."""
    ci = arguments.subset == "ci"
    chosen = cases.pairs(all_workloads, arguments.pairs)
    if ci:
        subset = cases.ci_pairs(all_workloads)
        chosen = [pair for pair in chosen if pair in subset]
    if arguments.seeds < 1:
        raise Unusable(f"--seeds: {arguments.seeds} is out of range: use 1 or more")
    loads = tuple(arguments.load or ((0.0,) if ci else cases.LOADS))
    if any(not (load == 0 or 0.01 <= load <= 0.99) for load in loads):
        raise Unusable("--load: out of range: use 0 for a closed loop, or 0.01 to 0.99")
    sharings, seeds = tuple(arguments.sharing or (("serial",) if ci else cases.SHARINGS)), tuple(range(1, arguments.seeds + 1))
    iterations = arguments.iterations or (cases.CI_ITERATIONS if ci else cases.ITERATIONS)
    if not 0 <= arguments.jitter_us <= 1000:
        raise Unusable(f"--jitter-us: {arguments.jitter_us:g} is out of range: use 0 to 1000")
    plain = [] if arguments.subset == "stress" else cases.full(chosen, sharings, loads, seeds[:1] if ci else seeds, arguments.jitter_us,
                                                               iterations=iterations, policies=tuple(arguments.policies))
    return plain + (cases.stress(chosen, sharings, seeds, iterations=iterations) if 0 in loads and not ci else [])


def wanted_bars(text, chosen):
    """By name; none: all that the chosen cases are judged by."""
    if not text:
        return [*(bars.VALUES if not all(case.stressed for case in chosen) else ()),
                *(bars.STRESS if any(case.stressed for case in chosen) else ())]
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in BARS]
    if unknown:
        raise Unusable(f"--check: no bar '{unknown[0]}': use some of {', '.join(BARS)}")
    return names


def run_missing(chosen, folder, arguments, say):
    """What the folder lacks is run; {case name: why} of what failed."""
    missing = [case for case in chosen if folder.find(case) is None]
    problems = {}
    finished = len(chosen) - len(missing)
    if finished:
        say(f"{finished} of {len(chosen)} cases are there from before")

    def done(case, result, cpu_s, problem):
        nonlocal finished
        finished += 1
        if problem:
            problems[case.name] = problem
        else:
            folder.keep(case, result, cpu_s)
        say(f"{finished}/{len(chosen)} {case.name}: {problem or f'{cpu_s:.1f} s'}")

    runner.run(missing, folder.lull, arguments.jobs, arguments.deadline, done)
    return problems


def undecided(chosen, folder):
    """Of these those that have to be played on, so played."""
    kept = {case.name: (case, found.result) for case in chosen if not case.stressed and case.iterations >= bars.REQUESTS_FOR_P99
            and (found := folder.find(case)) is not None}
    names = bars.undecided({name: (case.sharing, bars.figures(result)) for name, (case, result) in kept.items()})
    return [cases.whole(kept[name][0]) for name in names]


def collect(chosen, folder, problems, all_workloads):
    """All that the page is made from."""
    kept = {case: found for case in chosen if (found := folder.find(case)) is not None}
    some = next((one.result for one in kept.values()), {})
    dates = sorted({one.date for one in kept.values()})
    used = {w for case in chosen for w in (case.high, case.low)}
    return {
        "simulated": True,
        "date": " to ".join(dict.fromkeys(dates[:1] + dates[-1:])),
        "lull": folder.lull.version + commit(),
        "device": some.get("device", ""),
        "control_latency_us": some.get("control_latency_us", 0),
        "workloads": {w.name: w.path.name for w in all_workloads if w in used},
        "policies": list(dict.fromkeys(policy for case in chosen for policy in case.policies)),
        "options": {"iterations": max(case.iterations for case in chosen), "warmup": cases.WARMUP, "seconds": cases.SECONDS,
                    "jitter_us": max((case.jitter_us for case in chosen if not case.stressed), default=0)},
        "cpu_s": round(sum(one.cpu_s for one in kept.values()), 1),
        "problems": problems,
        **{part: {case.name: shown(case, found.result) for case, found in kept.items() if case.part == part} for part in PARTS},
    }


def shown(case, result):
    return {"high": case.high.name, "low": case.low.name, "sharing": case.sharing, "load": case.load, "seed": case.seed,
            "policies": {policy: rounded(one) for policy, one in bars.figures(result).items() if policy != "alone"}}


def rounded(one):
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in one.items() if value not in (None, "")}


def commit():
    """Of the sources beside this file, where they are a checkout."""
    def git(*words):
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, timeout=60)

    try:
        head, changed = git("rev-parse", "--short", "HEAD"), git("diff", "--quiet", "HEAD", "--", "coordinator", "policies", "tools")
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f", sources at {head.stdout.strip()}" + (", changed" if changed.returncode == 1 else "") if head.returncode == 0 else ""


def one_case_a_line(data):
    """JSON that a reviewer can read and a diff can show."""
    text = json.dumps({key: value for key, value in data.items() if key not in PARTS}, indent=1, allow_nan=False)[:-2]
    for part in PARTS:
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one, allow_nan=False)}" for name, one in data[part].items())
        text += f',\n "{part}": {{\n{lines}\n }}'
    return text + "\n}\n"


def write(folder, files):
    try:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_whole(pathlib.Path(folder) / name, text)
    except OSError as error:
        raise Unusable(f"{folder}: {error.strerror}: name a folder that can be written") from None


def main(words):
    return command.run("matrix", _arguments, words, _run)


def _run(arguments, say):
    all_workloads = cases.workloads(arguments.traces)
    chosen = select(arguments, all_workloads)
    checked = wanted_bars(arguments.check, chosen) if arguments.check is not None else []
    if not chosen:
        raise Unusable("nothing to run: no --pairs or --load of these is in the subset: name others")
    folder = runner.Folder(arguments.out, runner.Lull(arguments.lull or runner.usual_lull(ROOT)))
    for policy in arguments.policies:
        if why := folder.lull.refuses("--policy", policy):
            raise Unusable(f"--policies: {why}")
    if arguments.dry_run:
        print(estimate.text(chosen, folder, arguments.jobs, arguments.deadline))
        return 0
    problems = run_missing(chosen, folder, arguments, say)
    more = undecided(chosen, folder)
    if more:
        say(f"{len(more)} cases with too few requests for p99 to say who keeps the bound are played on, to {bars.REQUESTS_FOR_P99:,}")
        problems |= run_missing(more, folder, arguments, say)
        chosen = chosen + more
    data = collect(chosen, folder, problems, all_workloads)
    target = pathlib.Path(arguments.write or folder.path)
    others = [(link, what) for link, what in OTHERS if (target / link).exists()]
    write(target, {"README.md": page.render(data, others), "matrix.json": one_case_a_line(data)})
    return report(data, problems, checked, target)


def report(data, problems, checked, target):
    judged = page.verdict(data)
    print(f"\nsimulated, {sum(len(data[part]) for part in PARTS)} cases, {data['cpu_s']:.0f} s of processor time: {target}/README.md")
    for bar in judged:
        word = {None: "-", True: "met", False: "MISSED"}[bar.met]
        print(f"  {word:6}  {bar.name}: {bar.wanted}: {bar.found}")
    command.say_problems("matrix", problems)
    missed = [bar.name for bar in judged if bar.name in checked and not bar.met]
    if missed:
        print(f"lull: matrix: --check: {', '.join(missed)} not met", file=sys.stderr)
    return 1 if missed or problems else 0
