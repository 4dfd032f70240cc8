"""How much kernels that run at once slow each other: a matrix multiplication, a copy of much memory and reads of what the
second-level cache holds, each alone and beside each, under MPS. Each fills half of every multiprocessor, so that a
pair fits: on the same multiprocessors, and with thread caps of half the device each."""

import time

from gpu_check import mps
from gpu_check.figures import mean, ratio, shown
from gpu_check.led import Led
from gpu_check.steps import Step
from gpu_check.verdict import UNDECIDED, Skipped, decision

KINDS = ("compute", "bandwidth", "cache")
SAME, APART = "same multiprocessors", "caps of 50 % each"
_PLACES = {SAME: None, APART: 50}  # per cent of the device's threads

KERNEL_US = 1000
# Slower by no more than this is not told from what one run differs from the next.
FREE = 1.05
# No more than this beside another kind: it is the kind that matters.
NEARLY_FREE = 1.1
# Of one factor for all pairs each pair may be this far off.
NEAR = 0.1

_SETTLE_S = 0.1


def _window_s(context):
    return 0.08 if context.short else 0.3 if context.sim else 2.0


def speeds(before, after, rounds):
    """Rounds of work a second, of two marks; a kernel is so many rounds."""
    ns = after["now_ns"] - before["now_ns"]
    return (after["done"] - before["done"]) * rounds / ns * 1e9 if ns > 0 else None


def _run(context, wanted):
    """{client: rounds a second} while each of [(client, kind)] runs its kernel."""
    begun = {one: one.ask(f"{kind} {KERNEL_US}") for one, kind in wanted}
    time.sleep(_SETTLE_S)
    before = {one: one.ask("mark") for one, _ in wanted}
    time.sleep(context.timeout(_window_s(context)))
    after = {one: one.ask("mark") for one, _ in wanted}
    for one, _ in wanted:
        one.ask("idle")
    return {one: speeds(before[one], after[one], begun[one]["rounds"]) for one, _ in wanted}, begun


def _measure(context, env):
    """{"alone": {kind: ..}, "slowdown": {kind: {beside: factor}}}"""
    alone, rows, found = {}, {}, {kind: {} for kind in KINDS}
    with Led(context, "load", env) as one, Led(context, "load", env) as two:
        for kind in KINDS:  # both: the first order of a kind finds out how many rounds a kernel is
            for client in (one, two):
                speed, begun = _run(context, [(client, kind)])
                alone[client, kind] = speed[client]
                rows[kind] = {**begun[client], "rounds_per_s": speed[client],
                              "gb_per_s": ratio(begun[client].get("bytes_a_kernel", 0) * speed[client], begun[client]["rounds"] * 1e9) or None}
        for i, kind in enumerate(KINDS):
            for beside in KINDS[i:]:
                speed, _ = _run(context, [(one, kind), (two, beside)])
                slower = ratio(alone[one, kind], speed[one]), ratio(alone[two, beside], speed[two])
                if kind == beside:
                    found[kind][kind] = mean([s for s in slower if s is not None])
                else:
                    found[kind][beside], found[beside][kind] = slower
    return {"alone": rows, "slowdown": found}


def model(slowdown):
    """(answer, sentence): the simplest model of interference that the figures allow. {kind: {beside: factor}}"""
    pairs = {(kind, beside): factor for kind, others in slowdown.items() for beside, factor in others.items()}
    if not pairs or any(factor is None for factor in pairs.values()):
        return UNDECIDED, "A kernel did not get to its end beside another."
    (kind, beside), most = max(pairs.items(), key=lambda pair: pair[1])
    others = max((factor for (a, b), factor in pairs.items() if a != b), default=1.0)
    seen = f"the most is {shown(most)}x ({kind} beside {beside})"
    middle = mean(list(pairs.values()))
    if most <= FREE:
        return "none", f"Kernels that fit beside each other do not slow each other: {seen}. The price of a low kernel is its wait alone."
    if others <= NEARLY_FREE:
        return "by kind", f"Kernels slow each other only where they want the same: {seen}, {shown(others)}x at most beside another kind. The price needs one bit: same kind or not."
    if all(abs(factor - middle) <= NEAR * middle for factor in pairs.values()):
        return "one factor", f"All pairs slow each other alike, by {shown(middle)}x within {NEAR:.0%}: {seen}. The price is one learnt factor."
    return "by pair", f"How much depends on the pair: {seen}, {shown(min(pairs.values()))}x the least. The price has to be learnt for each pair of kernels."


def _rows(found):
    return [[kind, beside, *(found[place]["slowdown"][kind][beside] for place in found)] for kind in KINDS for beside in KINDS]


def interference(context):
    found, lines = {}, []
    with mps.together(context) as served:
        for place, threads in _PLACES.items():
            try:
                found[place] = _measure(context, served.env(threads=threads))
            except Skipped as why:
                if not found:
                    raise
                lines.append(f"{place}: not measured: {why}")
    tables = [{"title": "How many times slower a kernel is beside another than alone, with MPS", "columns": ["kernel", "beside", *found], "rows": _rows(found)}]
    tables += [{"title": f"Alone, {place}", "columns": ["kernel", "blocks", "threads each", "kernel, us", "rounds a kernel", "rounds a second", "GB/s"],
                "rows": [[kind, row["grid"], row["threads"], row["kernel_us"], row["rounds"], row["rounds_per_s"], row["gb_per_s"]]
                         for kind, row in one["alone"].items()]} for place, one in found.items()]
    answer, sentence = model(found[SAME]["slowdown"])
    return {"answer": found, "lines": lines, "tables": tables,
            "profile": {"interference": {place: {kind: {beside: round(factor, 3) for beside, factor in others.items() if factor is not None}
                                                 for kind, others in one["slowdown"].items()} for place, one in found.items()}},
            "decision": decision(context, 3, "how do kernels that run at once slow each other?", answer, sentence)}


def steps():
    return [Step("interference", interference, 70, question=3)]
