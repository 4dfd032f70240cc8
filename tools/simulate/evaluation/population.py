"""Pairs of programs made from a seed, by family (families.py), through `lull simulate`, and what each policy does with
them. The programs know no policy, and no policy was tuned to them but with the seeds that are for that. Everything it
prints and writes is simulated. Exit codes: 0 done, 1 a run failed, 2 wrong usage."""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess

from evaluation import bars, cases, command, families, population_page, runner
from evaluation.cases import Case, Unusable, Workload
from evaluation.draws import ESTIMATE, Draws, Span
from evaluation.matrix import ROOT, commit, run_missing, rounded, write
from gpu_check.results import write_whole

SETS = {"tuning": "to tune a policy with", "ablation": "to see what a part is worth", "judging": "to judge a policy"}
POLICIES = ("priority", "guarded")
LOAD = Span(0.2, 0.8, "of what the high program serves alone: " + ESTIMATE, whole=False)
JITTER_US = Span(1, 24, "pauses before the same launch, an iteration apart, differ by -26 to +16 % in four of five cases (timesformer, TraceLens "
                 "171dd74): of a pause of 60 us by 24 us", whole=False)
# Launches that a case simulates at most, so that 500 pairs take about an hour on two cores: requests are fewer
# than REQUESTS where they are long.
LAUNCHES = 24_000_000
REQUESTS, FEWEST_REQUESTS, WARMUP = 1000, 40, 50


@dataclasses.dataclass(frozen=True)
class Pair:
    number: int
    sharing: str
    load: float  # 0: closed loop
    jitter_us: float
    high_family: str
    low_family: str
    high: object  # Program
    low: object

    def has_oracle(self):
        """The oracle plays a serial device whose requests come one after the other."""
        return self.sharing == "serial" and not self.load

    def case(self, folder, policies, oracle=False):
        requests = self.requests(len(policies))
        paths = [pathlib.Path(folder) / f"{program.name}.json" for program in (self.high, self.low)]
        return Case(*(Workload(path.stem, path) for path in paths), sharing=self.sharing, load=self.load, seed=self.number + 1,
                    iterations=requests, warmup=min(WARMUP, requests // 5), seconds=cases.WHOLE_SECONDS, policies=tuple(policies),
                    jitter_us=self.jitter_us, more=() if oracle else ("--no-oracle",))

    def requests(self, policies):
        """However long they are, the low program's launches meanwhile count too."""
        apart_ns = self.high.about_ns() / (self.load or 1)
        beside = self.low.launches * apart_ns / self.low.about_ns()
        return max(FEWEST_REQUESTS, min(REQUESTS, int(LAUNCHES / ((1 + policies) * (self.high.launches + beside)))))


def make_pairs(seed, count, sharings=cases.SHARINGS):
    """The same seed: the same first pairs, however many are asked for. Sharings take turns; families come in rounds of
    all of them, shuffled. Two of three programs that serve requests have them arrive; training and solvers go on by
    themselves."""
    pairs = []
    for number in range(count):
        draws = Draws("lull population 1", seed, number)
        high_family = _in_rounds(seed, "high", tuple(families.FAMILIES), number)
        low_family = _in_rounds(seed, "low", tuple(families.FAMILIES), number)
        arrives = high_family in families.SERVING and draws.share("arrives") < 2 / 3
        load = round(draws.draw(LOAD, "load"), 2) if arrives else 0.0
        high = families.make(high_family, f"{number:03}-high-{high_family}", draws.of("high"))
        low = families.make(low_family, f"{number:03}-low-{low_family}", draws.of("low"))
        pairs.append(Pair(number, sharings[number % len(sharings)], load, draws.draw(JITTER_US, "jitter"), high_family, low_family, high, low))
    return pairs


def _in_rounds(seed, what, names, place):
    return Draws("lull population 1", seed, what).shuffled(names, place // len(names))[place % len(names)]


def seed_of(name):
    """Of a set: nobody chooses the seed that policies are judged with; it is the last commit that changed one."""
    if name != "judging":
        return name
    try:
        found = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%H", "--", "policies"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unusable(f"--set judging: {error}: give --seed") from None
    if found.returncode != 0 or not found.stdout.strip():
        raise Unusable("--set judging: the seed is the last commit that touched policies/, and this is no checkout with one: give --seed")
    return found.stdout.strip()


def _arguments(words):
    parser = argparse.ArgumentParser(prog="tools/simulate/population", description=" ".join(__doc__.split()))
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", metavar="S", help="any text")
    which.add_argument("--set", choices=SETS, help="; ".join(f"{name}: {what}" for name, what in SETS.items())
                       + ". The last one's seed is the hash of the last commit that touched policies/")
    parser.add_argument("--pairs", type=int, default=500, metavar="N", help="the first N of the seed (default: 500)")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), metavar="P", help=f"as for lull simulate (default: {' '.join(POLICIES)})")
    parser.add_argument("--devices", nargs="+", choices=cases.SHARINGS, default=list(cases.SHARINGS), help="how programs share the device "
                        "(default: all three, by turns)")
    parser.add_argument("--oracle", type=int, metavar="M", help="only the first M of these pairs that share a serial device and whose requests come "
                        "one after the other, and how much of what the oracle gives each policy does (at most 1 GB each; most take less than "
                        "100 s, one in fifty has taken more than 20 minutes)")
    parser.add_argument("--make-only", action="store_true", help="write the workload files, and run nothing")
    parser.add_argument("--lull", metavar="FILE", help="the command (default: build/release/bin/lull, else build/dev/bin/lull)")
    parser.add_argument("--out", default="build/population", metavar="FOLDER", help="the workload files and each case's result; a later run "
                        "goes on there (default: build/population)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="simulations side by side (default: cores)")
    parser.add_argument("--deadline", type=float, default=600, metavar="S", help="ends a simulation that takes longer, which counts as failed "
                        "(default: 600)")
    parser.add_argument("--iterations", type=int, metavar="N", help=f"requests measured at most (default: {REQUESTS})")
    parser.add_argument("--write", metavar="FOLDER", help="write population.md there (docs/simulation); with --oracle oracle.md")
    return parser.parse_args(words)


def main(words):
    return command.run("population", _arguments, words, _run)


def _run(arguments, say):
    if not 1 <= arguments.pairs <= 1000:
        raise Unusable(f"--pairs: {arguments.pairs} is out of range: use 1 to 1000")
    lull = None if arguments.make_only else _lull(arguments)
    seed = arguments.seed if arguments.seed is not None else seed_of(arguments.set)
    pairs = make_pairs(seed, arguments.pairs, tuple(arguments.devices))
    with_oracle = arguments.oracle is not None
    if with_oracle:
        pairs = [pair for pair in pairs if pair.has_oracle()][:arguments.oracle]
        if not pairs:
            raise Unusable(f"--oracle {arguments.oracle}: none of these pairs shares a serial device in a closed loop: use 1 or more, and more --pairs")
    out = pathlib.Path(arguments.out)
    files = {f"{program.name}.json": program.text() for pair in pairs for program in (pair.high, pair.low)}
    write(out / "workloads", files)
    if arguments.make_only:
        say(f"{len(files)} workloads are in {out / 'workloads'}")
        return 0
    chosen = {pair.number: _limited(pair.case(out / "workloads", arguments.policies, with_oracle), arguments.iterations) for pair in pairs}
    folder = runner.Folder(out, lull)
    problems = run_missing(list(chosen.values()), folder, arguments, say)
    data = collect(seed, arguments, pairs, chosen, folder, problems)
    write_whole(out / "population.json", json.dumps(data, indent=1, allow_nan=False) + "\n")
    target, page = pathlib.Path(arguments.write or out), "oracle.md" if with_oracle else "population.md"
    write(target, {page: population_page.render(data)})
    print(f"\nsimulated, {len(pairs)} pairs of seed {seed}, {data['cpu_s']:.0f} s of processor time: {target}/{page}")
    for row in population_page.verdict_rows(data["runs"], data["policies"]):
        print("  " + "; ".join(f"{name} {value}" for name, value in zip(population_page.verdict_names(data["runs"]), row)))
    command.say_problems("population", problems)
    return 1 if problems else 0


def _lull(arguments):
    lull = runner.Lull(arguments.lull or runner.usual_lull(ROOT))
    for policy in arguments.policies:
        if why := lull.refuses("--policy", policy):
            raise Unusable(f"--policies: {why}")
    return lull


def _limited(case, iterations):
    return case if iterations is None else dataclasses.replace(case, iterations=min(case.iterations, iterations))


def collect(seed, arguments, pairs, chosen, folder, problems):
    runs, cpu_s, some, dates = [], 0.0, {}, set()
    for pair in pairs:
        case = chosen[pair.number]
        found = folder.find(case)
        run = {"pair": pair.number, "sharing": pair.sharing, "load": pair.load, "jitter_us": pair.jitter_us, "high": pair.high_family,
               "low": pair.low_family, "high_program": pair.high.description, "low_program": pair.low.description,
               "requests": case.iterations, "problem": problems.get(case.name, "" if found else "not run"), "policies": {}}
        if found is not None:
            some, cpu_s = found.result, cpu_s + found.cpu_s
            dates.add(found.date)
            run["policies"] = {policy: rounded(one) for policy, one in bars.figures(found.result).items() if policy != "alone"}
        runs.append(run)
    return {"simulated": True, "seed": seed, "set": arguments.set or "", "date": " to ".join(sorted(dates)[:1] + sorted(dates)[1:][-1:]),
            "lull": folder.lull.version + commit(), "device": some.get("device", ""), "control_latency_us": some.get("control_latency_us", 0),
            "policies": list(arguments.policies), "cpu_s": round(cpu_s, 1), "runs": runs}
