"""Part: what lull adds: to a launch, to a training step, to an inference."""

import contextlib
import json
import os
import pathlib
import time

from gpu_check import pairs, tasks
from gpu_check.figures import median, median_interval, quantile, ratio
from gpu_check.led import Led
from gpu_check.steps import Step
from gpu_check.verdict import UNDECIDED, Failed, decision

_QUESTION = 6
MOST_ADDED_NS = 25  # by an open gate, over the driver's own call
MOST_BESIDE_IDLE = 1.01  # of its time under `share`, beside a program that does nothing
_BASE, _BETWEEN_LEVELS = "share", ("priority", "guarded")
_DECODER = ("decoder", "--feature", "graph")  # a CUDA graph a token, read back


def bench(context):
    """lull-bench: over a driver whose calls do nothing, so that lull alone is left."""
    words = [context.program(context.bin, "lull-bench"), "--json"]
    if context.short:
        words += ["--batches", "5", "--calls", "2000"]
    env = context.env()
    done = context.run(words, 120, env)
    if not done.good:
        raise Failed("lull-bench: " + done.why())
    found = json.loads(done.out)
    rows = [[r["name"], r["bare_ns"], r["ns"], r["over_bare_ns"], r["dropped"]] for r in found["rows"]]
    return {"bench": found, "tables": [{"title": "ns a launch over a driver whose calls do nothing",
                                        "columns": ["state of the gate", "bare", "under lull", "over bare", "dropped"], "rows": rows}]}


def alternated(bare, ours):
    """Of figures taken in turns: medians, the difference of neighbours and its spread."""
    steps_ = [b - a for a, b in zip(bare, ours)]
    return {"bare_p50": median(bare), "lull_p50": median(ours), "added_p50": median(steps_), "added_p10": quantile(steps_, 0.1),
            "added_p90": quantile(steps_, 0.9), "ratio_p50": median([ratio(b, a) for a, b in zip(bare, ours) if a]),
            "bare_spread": ratio(quantile(bare, 0.9) - quantile(bare, 0.1), median(bare)), "rounds": len(steps_)}


def judged(added):
    """(answer, sentence) of the medians of what lull added, ns a launch, one of each pair of processes."""
    between = median_interval(added)
    if between is None:
        return UNDECIDED, f"{len(added)} pairs of processes are too few."
    said = f"lull adds {median(added):.0f} ns a launch in the median, between {between[0]:.0f} and {between[1]:.0f} by {len(added)} pairs of processes"
    if between[1] <= MOST_ADDED_NS:
        return "yes", f"{said}: at most {MOST_ADDED_NS}."
    if between[0] > MOST_ADDED_NS:
        return "no", f"{said}: more than {MOST_ADDED_NS}."
    return UNDECIDED, f"{said}: {MOST_ADDED_NS} lies in between."


def null_launches(context):
    """The driver's own launch call of a kernel that does nothing. A process bare and one under lull take turns, and there
    are several such pairs: what a process is lucky with (where its memory lies) stays with it."""
    options = ["--calls", "200", "--batches", "3"] if context.short else []
    pairs_, turns = (2, 3) if context.short else (12, 12)
    one_cpu = {max(os.sched_getaffinity(0))}
    calls, dones, added = {"bare": [], "lull": []}, {"bare": [], "lull": []}, []
    with context.daemon() as daemon:
        for number in range(pairs_):
            with Led(context, "turns", context.env(), options) as bare, \
                    Led(context, "turns", context.env(), options, context.lull_run(daemon.socket)) as ours:
                both, here = {"bare": bare, "lull": ours}, []
                for one in both.values():
                    for thread in pathlib.Path(f"/proc/{one.pid}/task").iterdir():
                        with contextlib.suppress(OSError):  # it may have ended
                            os.sched_setaffinity(int(thread.name), one_cpu)
                for turn in range(turns):
                    order = ("bare", "lull") if (number + turn) % 2 == 0 else ("lull", "bare")
                    answers = {who: both[who].ask("again") for who in order}
                    for who, answer in answers.items():
                        calls[who].append(answer["call_ns"])
                        dones[who].append(answer["done_ns"])
                    here.append(answers["lull"]["call_ns"] - answers["bare"]["call_ns"])
                added.append(median(here))
    call, whole = alternated(calls["bare"], calls["lull"]), alternated(dones["bare"], dones["lull"])
    rows = [[what, a["bare_p50"], a["lull_p50"], a["added_p50"], a["added_p10"], a["added_p90"], a["ratio_p50"], a["bare_spread"]]
            for what, a in (("the call", call), ("until the device is done", whole))]
    answer, sentence = judged(added)
    return {"call": call, "until_done": whole, "added_by_pair": added,
            "lines": ["added to the call, by pair of processes: " + ", ".join(f"{ns:.0f}" for ns in added) + " ns"],
            "decision": decision(context, _QUESTION, f"does an open gate cost at most {MOST_ADDED_NS} ns over the driver's own call?", answer, sentence),
            "tables": [{"title": f"ns a launch of a null kernel, gate open: {pairs_} pairs of processes, {turns} turns each",
                        "columns": ["", "bare", "under lull", "added p50", "p10", "p90", "ratio", "spread of bare"], "rows": rows}]}


def _model(name, *options, window_s=3.0, rounds=6):
    def run(context):
        context.torch()
        lengths = {"bare": [], "lull": []}
        with context.daemon() as daemon:
            both = {"bare": tasks.Task(context, name, tasks.model(context, *options)),
                    "lull": tasks.Task(context, name, tasks.model(context, *options), daemon=daemon)}
            for task in both.values():
                task.pause()
            for task in both.values():
                task.wait_ready()
                task.begin()
            for _ in range(rounds):
                for who, task in both.items():
                    task.go_on()
                    time.sleep(0.3)
                    start = context.model_now_ns()
                    time.sleep(context.timeout(window_s))
                    window = (start, context.model_now_ns())
                    task.pause()
                    time.sleep(0.2)
                    task.must_run()
                    lengths[who].append([ns / 1e6 for ns in tasks.lengths(task.iterations, window)])
            for task in both.values():
                task.finish()
        if any(len(window) < 3 for windows in lengths.values() for window in windows):
            raise Failed("too few iterations in a window", {"lengths": {k: [len(w) for w in v] for k, v in lengths.items()}})
        middle = alternated(*([median(window) for window in lengths[who]] for who in ("bare", "lull")))
        tail = alternated(*([quantile(window, 0.99) for window in lengths[who]] for who in ("bare", "lull")))
        rows = [[what, a["bare_p50"], a["lull_p50"], a["added_p50"], a["added_p10"], a["added_p90"], a["ratio_p50"], a["bare_spread"]]
                for what, a in (("p50", middle), ("p99", tail))]
        return {"p50": middle, "p99": tail, "iterations": sum(len(w) for v in lengths.values() for w in v), "tables": [{
            "title": f"{name}: ms an iteration, alone, {rounds} windows of {window_s:g} s each in turns",
            "columns": ["", "bare", "under lull", "added p50", "p10", "p90", "ratio", "spread of bare"], "rows": rows}]}
    return run


def beside_idle(times):
    """(answer, sentence) of `times`: {policy: [times of `share`'s median in the same round]}."""
    said, answers = [], []
    for policy, seen in times.items():
        between = median_interval(seen)
        if between is None:
            return UNDECIDED, f"{len(seen)} rounds are too few."
        said.append(f"{policy} {median(seen):.3f}x (between {between[0]:.3f} and {between[1]:.3f} by {len(seen)} rounds)")
        answers.append("yes" if between[1] <= MOST_BESIDE_IDLE else "no" if between[0] > MOST_BESIDE_IDLE else UNDECIDED)
    answer = next((one for one in ("no", UNDECIDED) if one in answers), "yes")
    return answer, "Against share: " + ", ".join(said) + "."


def _beside_idle(name, words_of):
    """An important program beside one that does nothing, in one process under one daemon that changes its policy. So neither
    the luck of a single process counts, nor a machine that is slow for a while: many rounds of short windows."""
    def run(context):
        timing = pairs.Timing(0.3, 0.1, 2) if context.short else pairs.Timing(0.15, 0.05, 48)
        policies = (_BASE, *_BETWEEN_LEVELS)
        medians = {policy: [] for policy in policies}
        with context.daemon(_BASE) as daemon:
            idle = tasks.Task(context, "idle neighbour", tasks.played(context, context.root / "examples/workloads/chatty_inference.json", 2),
                              daemon=daemon, priority="low")
            busy = tasks.Task(context, name, words_of(context), daemon=daemon, priority="high")
            for task in (idle, busy):
                task.wait_ready()
            idle.begin()
            idle.child.wait_for(lambda: idle.poll() and idle.iterations, context.timeout(10))
            idle.pause()
            busy.begin()
            time.sleep(context.timeout(1.0))
            for number in range(timing.rounds):
                for policy in policies if number % 2 == 0 else reversed(policies):
                    daemon.set_policy(policy)
                    window = pairs._window(context, [busy], timing)
                    medians[policy].append(median([ns / 1e6 for ns in tasks.lengths(busy.iterations, window)]))
            for task in (idle, busy):
                task.finish()
        if any(value is None for values in medians.values() for value in values):
            raise Failed("no whole iteration in a window", {"medians": medians})
        times = {policy: [ratio(a, b) for a, b in zip(medians[policy], medians[_BASE])] for policy in _BETWEEN_LEVELS}
        rows = [[policy, median(medians[policy]), median(times.get(policy, [1.0])), *(median_interval(times.get(policy, [])) or ("-", "-"))]
                for policy in policies]
        return {"medians": medians, "times": times, "tables": [{
            "title": f"{name} beside a program that does nothing, one process, {timing.rounds} rounds of {timing.window_s:g} s each",
            "columns": ["policy", "p50 ms", "times share", "at least", "at most"], "rows": rows}],
            "decision": decision(context, _QUESTION, f"at most {MOST_BESIDE_IDLE}x beside an idle neighbour ({name})?", *beside_idle(times))}
    return run


def _chatty(context):
    return tasks.played(context, context.root / "examples/workloads/chatty_inference.json", 1)


def _of_model(*options):
    return lambda context: tasks.model(context, *options)


def steps(context):
    del context
    return [Step("lull-bench", bench, 30, host_only=True), Step("null kernels", null_launches, 45, question=_QUESTION),
            Step("idle neighbour, chatty_inference", _beside_idle("chatty_inference", _chatty), 40, question=_QUESTION),
            Step("idle neighbour, resnet50 inference", _beside_idle("resnet50, batch 1", _of_model("resnet50", "--batch", "1")), 50, question=_QUESTION),
            Step("idle neighbour, bert inference", _beside_idle("bert, batch 1", _of_model("bert", "--batch", "1")), 50, question=_QUESTION),
            Step("idle neighbour, decode loop", _beside_idle("decode loop, CUDA graph", _of_model(*_DECODER)), 50, question=_QUESTION),
            Step("decode loop", _model("decode loop, CUDA graph", *_DECODER, window_s=1.0), 45),
            Step("inference", _model("resnet50 inference, batch 1", "resnet50", "--batch", "1"), 75),
            Step("training", _model("resnet50 training, batch 64", "resnet50", "--mode", "train", "--batch", "64"), 80),
            Step("transformer inference", _model("bert inference, batch 1", "bert", "--batch", "1"), 75)]
