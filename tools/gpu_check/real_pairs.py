"""Part: real programs beside training, every way of sharing in the same rounds: as the driver shares, as clients of
MPS, with the less important one below normal priority, and `guarded` on top of each.

All programs of a pair are started at the beginning, once for each way, and stand still but for those that are being
measured: a machine that is slow for a while is slow for every way of that round. What a way does to a program is told
by rounds: against the same program alone, without lull and without MPS, in the same round.
"""

import contextlib
import time

from gpu_check import bound, mps, pairs, tasks
from gpu_check.figures import median, quantile, ratio, shown
from gpu_check.steps import Step
from gpu_check.verdict import UNDECIDED, Failed, Skipped, decision

_QUESTION = 4
_UNSTEADY = 0.1  # alone differs by more from round to round: the machine is somebody else's too

# All ways of a pair are in memory at once: six trainings are.
_TRAINING = ("resnet50 training, batch 32", "resnet50", "--mode", "train", "--batch", "32")
MODELS = ((("resnet50, batch 1", "resnet50", "--batch", "1"), _TRAINING),
          (("bert, batch 1", "bert", "--batch", "1"), _TRAINING),
          (("decode loop, CUDA graph", "decoder", "--feature", "graph"), _TRAINING))


class Way:
    """`priority`: of the less important program under MPS, None as the driver has it; `policy`: lull's, None without lull."""

    def __init__(self, name, with_mps=False, priority=None, policy=None):
        self.name, self.with_mps, self.priority, self.policy = name, with_mps, priority, policy


DEFAULT = "default sharing"
WAYS = (Way(DEFAULT), Way("MPS", True), Way("MPS, priority", True, mps.BELOW_NORMAL), Way("guarded", policy="guarded"),
        Way("guarded, MPS", True, policy="guarded"), Way("guarded, MPS, priority", True, mps.BELOW_NORMAL, "guarded"))


def by_round(iterations, windows, alone_iterations, alone_windows):
    """[{mean, p99, throughput}] against alone, window by window; None where a window says nothing."""
    rounds = []
    for window, alone_window in zip(windows, alone_windows):
        here, alone = tasks.lengths(iterations, window), tasks.lengths(alone_iterations, alone_window)
        enough = min(len(here), len(alone)) >= bound.LEAST_ITERATIONS
        rounds.append({
            "mean": ratio(sum(here) / len(here), sum(alone) / len(alone)) if here and alone else None,
            "p99": ratio(quantile(here, 0.99), quantile(alone, 0.99)) if enough else None,
            "throughput": ratio(tasks.rate(iterations, window), tasks.rate(alone_iterations, alone_window))})
    return rounds


def middle(rounds, key):
    return median([one[key] for one in rounds if one[key] is not None])


def unsteadiness(iterations, windows):
    """By how much the mean differs between windows, of its least; None where fewer than two say something."""
    means = [sum(lengths) / len(lengths) for window in windows if (lengths := tasks.lengths(iterations, window))]
    return bound.unsteadiness(means) if len(means) > 1 else None


def judged(rows, unsteady):
    """(answer, sentence): the way that keeps guarded's bound and gives the other program most. `rows`: {way: {mean, p99,
    low}}, of the medians over rounds."""
    known = {way: row for way, row in rows.items() if row["mean"] is not None and row["p99"] is not None and row["low"] is not None}
    if not known:
        return UNDECIDED, "Too few iterations to tell."
    kept = {way: row for way, row in known.items() if row["mean"] <= bound.MEAN and row["p99"] <= bound.P99}
    figures = "; ".join(f"{way} {row['mean']:.2f}x, p99 {row['p99']:.2f}x, low {row['low']:.2f}" for way, row in known.items())
    if unsteady is not None and unsteady > _UNSTEADY:
        return UNDECIDED, f"The program alone differs by {unsteady:.0%} from round to round: single percents are not told here. {figures}."
    if not kept:
        return "none keeps the bound", f"{figures}."
    best = max(kept, key=lambda way: kept[way]["low"])
    return best, f"It keeps {bound.MEAN}x in the mean and {bound.P99}x at p99 and gives the other program most. {figures}."


class _Pair:
    """Both programs of one way, standing still unless told otherwise."""

    def __init__(self, context, way, high, low, envs, daemon):
        self.way, self.context, self._sim_device = way, context, envs[0].get("SIMGPU_DEVICE")
        self.high = tasks.Task(context, *high, daemon=daemon, priority="high" if daemon else None, env=envs[0])
        self.low = tasks.Task(context, *low, daemon=daemon, priority="low" if daemon else None, env=envs[1])
        self.windows = {"alone": [], "low alone": [], "together": []}
        for task in (self.high, self.low):
            task.pause()

    def wait_ready(self):
        for task in (self.high, self.low):
            task.wait_ready()
            task.begin()

    def measure(self, which, timing):
        running = {"alone": [self.high], "low alone": [self.low], "together": [self.low, self.high]}[which]
        for task in running:
            task.go_on()
        self.windows[which].append(self._window(running, timing))
        for task in running:
            task.pause()
        for task in running:
            pairs._until_paused(self.context, task)

    def _window(self, running, timing):
        time.sleep(self.context.timeout(timing.settle_s))
        start = self.context.model_now_ns(self._sim_device)
        time.sleep(self.context.timeout(timing.window_s))
        window = (start, self.context.model_now_ns(self._sim_device))
        for task in running:
            task.must_run()
        return window

    def stop(self):
        for task in (self.high, self.low):
            task.stop()

    def finish(self):
        for task in (self.high, self.low):
            task.finish()


def _ways(context, service):
    """([(way, environments of both programs)], lines of those that cannot be had here)."""
    found, lines = [], []
    for way in WAYS:
        if context.short and not (way.name == DEFAULT or way.with_mps and way.policy):
            continue
        try:
            found.append((way, _envs(context, way, service)))
        except Skipped as why:
            lines.append(f"without {way.name}: {why}")
    return found, lines


def _envs(context, way, service):
    if not way.with_mps:
        return context.env(), context.env()
    if service is None:
        raise Skipped("MPS is not to be had")
    return service.env(), service.env(priority=way.priority)


def measure(context, high, low, ways, service, timing):
    """({way: pair}, {way: the priority that the server granted the other program}), after all rounds."""
    with contextlib.ExitStack() as stack:
        made = []
        for way, envs in ways:
            daemon = stack.enter_context(context.daemon(way.policy, env=envs[0], sim_device=envs[0].get("SIMGPU_DEVICE"))) if way.policy else None
            made.append(_Pair(context, way, high, low, envs, daemon))
        for pair in made:
            pair.wait_ready()
        for _ in range(timing.rounds):
            for pair in made:
                if pair.way.name == DEFAULT:
                    pair.measure("low alone", timing)
                pair.measure("alone", timing)
                pair.measure("together", timing)
        for pair in made:  # all at once: leaving the device takes seconds
            pair.stop()
        for pair in made:
            pair.finish()
        granted = {}
        if service is not None:
            granted = {pair.way.name: service.priority_of(pair.low.child.pid, 0) for pair in made if pair.way.with_mps}
    return {pair.way.name: pair for pair in made}, granted


_COLUMNS = ["way", "high mean", "p99", "alone under it, mean", "low throughput", "iterations high", "low", "high mean, least and most of a round"]


def shown_as(made):
    """(rows for the table, {way: {mean, p99, low}}, how unsteady the machine was)."""
    base = made[DEFAULT]
    alone, low_alone = base.windows["alone"], base.windows["low alone"]
    cells, rows = [], {}
    for way, pair in made.items():
        high = by_round(pair.high.iterations, pair.windows["together"], base.high.iterations, alone)
        low = by_round(pair.low.iterations, pair.windows["together"], base.low.iterations, low_alone)
        under = by_round(pair.high.iterations, pair.windows["alone"], base.high.iterations, alone) if way != DEFAULT else []
        rows[way] = {"mean": middle(high, "mean"), "p99": middle(high, "p99"), "low": middle(low, "throughput"), "rounds": {"high": high, "low": low},
                     "alone_under_it": middle(under, "mean")}
        means = [one["mean"] for one in high if one["mean"] is not None]
        counts = [len(tasks.lengths(task.iterations, *pair.windows["together"])) for task in (pair.high, pair.low)]
        cells.append([way, rows[way]["mean"], rows[way]["p99"], rows[way]["alone_under_it"], rows[way]["low"], *counts,
                      f"{shown(min(means))} to {shown(max(means))}" if means else "-"])
    return cells, rows, unsteadiness(base.high.iterations, alone)


def compare(context, high, low, timing):
    title = f"{high[0]} beside {low[0]}"
    lines = []
    with contextlib.ExitStack() as stack:
        service = None
        try:
            service = stack.enter_context(mps.together(context))
        except Skipped as why:
            lines.append(f"MPS: {why}")
        ways, left_out = _ways(context, service)
        made, granted = measure(context, high, low, ways, service, timing)
    cells, rows, unsteady = shown_as(made)
    lines += left_out + [f"{way}: the server granted the other program priority {level}" for way, level in granted.items() if level is not None]
    if unsteady is not None:
        lines.append(f"alone, the important program differs by {unsteady:.1%} between rounds")
    data = {"rows": rows, "unsteady": unsteady, "lines": lines, "tables": [{
        "title": title + f", {timing.rounds} rounds of {timing.window_s:g} s each", "columns": _COLUMNS, "rows": cells,
        "note": "Against the same program alone without lull and MPS, in the same round; medians over rounds."}],
        "decision": decision(context, _QUESTION, f"{title}: which way keeps guarded's bound and gives most?", *judged(rows, unsteady))}
    if not any(tasks.lengths(made[DEFAULT].high.iterations, window) for window in made[DEFAULT].windows["alone"]):
        raise Failed(f"{high[0]}, alone: no whole iteration in {timing.window_s:g} s", data)
    return data


def _timing(context):
    return pairs.Timing(0.3, 0.1, 1) if context.short else pairs.Timing(1.5, 0.5, 2) if context.sim else pairs.Timing(1.8, 0.6, 3)


def _models(high, low):
    def run(context):
        context.torch()
        return compare(context, *((name, tasks.model(context, *options)) for name, *options in (high, low)), _timing(context))
    return run


def played(context):
    specs = [(name, tasks.played(context, context.root / f"examples/workloads/{name}.json", seed))
             for seed, name in enumerate(("chatty_inference", "dense_inference"), 1)]
    return compare(context, *specs, _timing(context))


def steps(context):
    made = [Step(f"{high[0]} + {low[0]}", _models(high, low), 170, question=_QUESTION) for high, low in MODELS]
    if context.sim:  # where no model runs, the rounds are played
        made.append(Step("chatty_inference + dense_inference", played, 60, question=_QUESTION))
    return made
