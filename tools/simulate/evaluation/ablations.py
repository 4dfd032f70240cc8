"""What each part of `guarded` adds: fikit, then one part after another, on every pair; a page with
tables and plots. Everything it prints and writes is simulated. Exit codes: 0 done, 1 failed, 2 wrong usage."""

import argparse
import dataclasses
import pathlib
import sys

from evaluation import ablations_page, bars, cases, command, matrix, plot, runner


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    policy: str      # as `lull simulate --policy` takes it
    predictor: str   # as `lull simulate --predictor` takes it; "": as it comes
    adds: str


# THE list: each step is the one before it and one part more.
STEPS = (
    Step("fikit", "fikit", "mean", "the published rule: a kernel goes when its mean length fits the mean gap"),
    Step("+ quantiles", "fikit", "quantile", "quantiles of lengths and gaps by kernel instead of means"),
    Step("+ position", "fikit", "best", "also by pair and by position in the iteration; the one that has predicted best is used"),
    Step("+ slack", "guarded_without parts=3", "best", "the slack until the next wait is filled, not the gap"),
    Step("+ feedback", "guarded_without parts=2", "best", "two budgets pay for delays beyond the slack; waits say what a request lost"),
    Step("+ controller", "guarded", "best", "a request's whole time, compared with undisturbed requests, says what it lost"),
)
ITERATIONS = 1000  # so that p99 counts, where a minute holds as many


def _arguments(words):
    parser = argparse.ArgumentParser(prog="tools/simulate/ablations", description=" ".join(__doc__.split()))
    command.common_options(parser, "build/ablations")
    return parser.parse_args(words)


def offered(lull):
    """The steps as this lull can do them, and {name: what it cannot}: a step whose predictor it does
    not know runs with the one it has; one whose policy it does not know is left out."""
    known, lacking = [], {}
    for step in STEPS:
        if why := lull.refuses("--policy", step.policy):
            lacking[step.name] = f"left out: {_plain(why)}"
            continue
        if why := lull.refuses("--policy", step.policy, *_predictor(step)):
            lacking[step.name] = f"with the predictor that is there, not with {step.predictor}: {_plain(why)}"
            step = dataclasses.replace(step, predictor="")
        known.append(step)
    return known, lacking


def _plain(why):
    return why.removeprefix("lull: simulate: ").removesuffix(": see `lull simulate --help`")


def _predictor(step):
    return ("--predictor", step.predictor) if step.predictor else ()


def cases_of(pairs, steps, iterations):
    """One call of lull for all steps with one predictor."""
    by_predictor = {}
    for step in steps:
        by_predictor.setdefault(_predictor(step), []).append(step.policy)
    return [cases.Case(high, low, iterations=iterations, policies=tuple(dict.fromkeys(policies)), more=words)
            for high, low in pairs for words, policies in by_predictor.items()]


def collect(pairs, steps, chosen, folder):
    """{(high, low): {step name: figures}}"""
    found = {}
    for case in chosen:
        kept = folder.find(case)
        if kept is None:
            continue
        by_policy = bars.figures(kept.result)
        for step in steps:
            row = f"{step.policy} ({step.predictor})" if step.predictor else step.policy  # as the table names it
            if _predictor(step) == case.more and row in by_policy:
                found.setdefault((case.high.name, case.low.name), {})[step.name] = by_policy[row]
    return {pair: {step.name: one[step.name] for step in steps if step.name in one} for pair in
            [(high.name, low.name) for high, low in pairs] if (one := found.get(pair))}


def main(words):
    return command.run("ablations", _arguments, words, _run)


def _run(arguments, say):
    folder = runner.Folder(arguments.out, runner.Lull(arguments.lull or runner.usual_lull(matrix.ROOT)))
    pairs = cases.pairs(cases.workloads(arguments.traces), arguments.pairs)
    steps, lacking = offered(folder.lull)
    command.say_problems("ablations", lacking)
    chosen = cases_of(pairs, steps, arguments.iterations or ITERATIONS)
    problems = matrix.run_missing(chosen, folder, arguments, say)
    found = collect(pairs, steps, chosen, folder)
    if not found:
        print("lull: ablations: no pair has a result", file=sys.stderr)
        return 1
    target = pathlib.Path(arguments.write or folder.path)
    about = matrix.collect(chosen, folder, problems, [])
    matrix.write(target, {"ablations.svg": plot.grid(found, [step.name for step in steps]),
                          "ablations.md": ablations_page.render(found, steps, lacking, about)})
    print(f"simulated, {len(found)} pairs: {target}/ablations.md")
    command.say_problems("ablations", problems)
    return 1 if problems else 0
