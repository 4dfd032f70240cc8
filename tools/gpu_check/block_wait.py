"""How long a short kernel of an important program waits beside kernels of another, by how long their blocks are
and how the device is shared. The other's kernels fill the device and follow each other without a pause: so the
important one waits for a place, and what it waits for is a block, a kernel or a time slice."""

import time

from gpu_check import mps
from gpu_check.figures import ratio, shown, spread
from gpu_check.led import Led
from gpu_check.steps import Step
from gpu_check.verdict import UNDECIDED, decision

KERNEL_US = 5000
BLOCKS_US = (20, 100, 500, 2000)
PERSISTENT = 0  # one wave of blocks, each as long as the kernel
CAPS = (75, 50, 25)  # per cent of the device's threads
# The bar of the project: who goes first at the next block waits for one that is under way; half of one more for
# whatever lies between.
BAR_BLOCKS = 1.5
# Beside a capped kernel there is place left: what the important one still waits is to be less than half of what a
# round takes anyway.
BAR_CAPPED = 1.5

_SHORT = "short"
# name: (what each block runs for, us; blocks a multiprocessor, 0: all that fit)
_KERNELS = {_SHORT: (10, 1), "wide": (50, 0)}
_PAUSE_US = 2000
_SETTLE_S = 0.1
_LOG_LINES = 60


def _window_ms(context):
    """Of the device's time."""
    return 40 if context.short else 150 if context.sim else 5000


def _rounds(context, high, kernel, window_ms):
    spin_us, blocks = _KERNELS[kernel]
    return high.ask(f"rounds {window_ms} {_PAUSE_US} {spin_us} {blocks}", 30 + window_ms / 1e3 * context.slow_motion)


def waits(alone, beside):
    """How much later the same quantile is than alone, in us. Both are spreads."""
    return {key: max(0.0, beside[key] - alone[key]) for key in ("p50", "p99") if key in alone and key in beside}


def _cell(context, high, low, running, block_us, kernel):
    time.sleep(_SETTLE_S)
    before = low.ask("mark")
    found = _rounds(context, high, kernel, _window_ms(context))
    after = low.ask("mark")
    done, ns = (after[key] - before[key] for key in ("done", "now_ns"))
    return {"kernel": kernel, "block_us": block_us, "low_kernel_us": running["kernel_us"], "low_sm_count": running["sm_count"],
            "fills_the_device": running["fills_the_device"], "host_us": spread(found["host_us"]), "device_us": spread(found["device_us"]),
            "low_speed": done * running["kernel_us"] * 1e3 / ns}


def _measure(context, env_high, env_low, blocks_us, kernels=(_SHORT,)):
    """{"alone": {kernel: spread}, "cells": [..], "pids"}: rounds of the important program alone, before and behind,
    and beside each kind of blocks. Host times: from the call to the result."""
    window_ms = _window_ms(context)
    cells = []
    with Led(context, "waits", env_high) as high, Led(context, "load", env_low) as low:
        alone = {kernel: _rounds(context, high, kernel, window_ms / 2)["host_us"] for kernel in kernels}
        for block_us in blocks_us:
            running = low.ask(f"blocks {KERNEL_US} {block_us}")
            cells += [_cell(context, high, low, running, block_us, kernel) for kernel in kernels]
            low.ask("idle")
        for kernel in kernels:
            alone[kernel] += _rounds(context, high, kernel, window_ms / 2)["host_us"]
        pids = {"high": high.pid, "low": low.pid}
    alone = {kernel: spread(times) for kernel, times in alone.items()}
    for cell in cells:
        one = alone[cell["kernel"]]
        cell["unsteady"] = one["p99"] - one["p50"] > BAR_BLOCKS * cell["block_us"]
        cell["wait_us"] = waits(one, cell["host_us"])
        cell["times_alone"] = {key: ratio(cell["host_us"][key], one[key]) for key in ("p50", "p99")}
    return {"alone": alone, "cells": cells, "pids": pids}


def _of(block_us):
    return f"{block_us:,} us" if block_us else "persistent"


_COLUMNS = ["blocks of the other", "its kernel alone, us", "on multiprocessors", "important kernel", "rounds", "p50, us", "p99", "most", "wait p50, us", "wait p99",
            "wait p99 in blocks", "times alone p50", "p99", "speed of the other"]


def _table(title, found):
    rows = [["alone", "-", "-", kernel, s["count"], s["p50"], s["p99"], s["max"], *["-"] * 6] for kernel, s in found["alone"].items()]
    rows += [[_of(c["block_us"]), c["low_kernel_us"], c["low_sm_count"], c["kernel"], c["host_us"]["count"], c["host_us"]["p50"], c["host_us"]["p99"],
              c["host_us"]["max"], c["wait_us"]["p50"], c["wait_us"]["p99"], ratio(c["wait_us"]["p99"], c["block_us"]),
              c["times_alone"]["p50"], c["times_alone"]["p99"], c["low_speed"]] for c in found["cells"]]
    return {"title": title, "columns": _COLUMNS, "rows": rows,
            "note": "From the call to the result on the host. The wait is how much later the same quantile is than alone; the other's speed is its "
                    "kernels a second against those of one kernel alone behind the other."}


def _profile(how, cells):
    return {"block_wait": {how: {_of(c["block_us"]): {f"{key}_us": round(value, 1) for key, value in c["wait_us"].items()}
                                 for c in cells if c["kernel"] == _SHORT}}}


def behind_blocks(cells):
    """(answer, sentence): does the important kernel wait for a block only? Of cells with blocks shorter than their kernel."""
    cells = [c for c in cells if c["block_us"] != PERSISTENT and c["kernel"] == _SHORT]
    if not cells or not all(c["fills_the_device"] for c in cells):
        return UNDECIDED, "the other's blocks leave places free here, and there is nothing to wait for"
    unsteady = [c for c in cells if c["unsteady"]]
    cells = [c for c in cells if not c["unsteady"]]
    if not cells:
        return UNDECIDED, f"alone it varies by more than {BAR_BLOCKS} blocks itself"
    late = [c for c in cells if c["wait_us"]["p99"] > BAR_BLOCKS * c["block_us"]]
    worst = max(cells, key=lambda c: c["wait_us"]["p99"] / c["block_us"])
    seen = f"p99 of the wait is at most {shown(worst['wait_us']['p99'] / worst['block_us'])} blocks (blocks of {_of(worst['block_us'])})"
    if unsteady:
        seen += f" (not judged, for alone it varies by more itself: {', '.join(_of(c['block_us']) for c in unsteady)})"
    if not late:
        return "yes", seen
    if len(late) == len(cells):
        return "no", seen
    return "partly", f"{seen}; more than {BAR_BLOCKS} behind blocks of {', '.join(_of(c['block_us']) for c in late)} only"


_FOLLOWS = {"yes": "lull may price a low kernel by its blocks.", "no": "lull has to price a low kernel by its whole length, as without it.",
            "partly": "lull may price a low kernel by its blocks where they are long enough, by its length elsewhere.", UNDECIDED: ""}


def priority_verdict(cells, granted):
    """(answer, sentence): is the priority a fact on this GPU? `granted`: what the server's log says of the low client."""
    answer, seen = behind_blocks(cells)
    if granted is None and answer != "yes":
        return UNDECIDED, f"The server's log says nothing of the low client's priority: it may not have been granted. There {seen}."
    if granted not in (None, mps.BELOW_NORMAL):
        return UNDECIDED, f"The low client asked for priority {mps.BELOW_NORMAL} and was granted {granted}: nothing was measured of it."
    return answer, f"With the low client below normal {seen}: {_FOLLOWS[answer]}".rstrip(": ")


def cap_verdict(by_cap):
    """(answer, sentence): the largest cap for persistent kernels beside which the important one hardly waits. {cap: cells}"""
    for cap in sorted(by_cap, reverse=True):
        cells = {c["kernel"]: c for c in by_cap[cap] if c["block_us"] == PERSISTENT}
        late = cells[_SHORT]["times_alone"]["p99"]
        if late <= BAR_CAPPED:
            wide = f", one that fills the device {shown(cells['wide']['times_alone']['p50'])}x in the median" if "wide" in cells else ""
            return f"{cap} %", (f"Beside a persistent kernel with {cap} % of the threads a short one's p99 is {shown(late)}x that of alone{wide}: lull "
                                f"starts programs with persistent kernels under this cap.")
    return "none", (f"Beside a persistent kernel a short one's p99 is more than {BAR_CAPPED}x that of alone under every cap tried: lull's gate has to hold "
                    "such kernels.")


def time_slices(context):
    found = _measure(context, context.env(), context.env(), (*BLOCKS_US, PERSISTENT))
    p99 = [c["wait_us"]["p99"] for c in found["cells"]]
    return {"answer": found, "tables": [_table("A short kernel beside 5 ms kernels, without MPS", found)], "profile": _profile("time slices", found["cells"]),
            "decision": decision(context, 1, "how long does a short kernel wait without MPS?", f"p99 {shown(min(p99))} to {shown(max(p99))} us",
                                 "What MPS, with and without priority, has to beat.")}


def with_mps(context):
    with mps.together(context) as served:
        found = _measure(context, served.env(), served.env(), (*BLOCKS_US, PERSISTENT))
    answer, seen = behind_blocks(found["cells"])
    return {"answer": found, "tables": [_table("A short kernel beside 5 ms kernels, with MPS", found)], "profile": _profile("MPS", found["cells"]),
            "decision": decision(context, 1, "does it wait for a block only under MPS without priorities?", answer, f"With both clients at normal priority {seen}.")}


def with_priority(context):
    with mps.together(context) as served:
        found = _measure(context, served.env(), served.env(priority=mps.BELOW_NORMAL), (*BLOCKS_US, PERSISTENT))
        found["granted"] = served.priority_of(found["pids"]["low"])
        found["server_log"] = served.log().splitlines()[-_LOG_LINES:]
    answer, sentence = priority_verdict(found["cells"], found["granted"])
    said = "nothing" if found["granted"] is None else found["granted"]
    return {"answer": found, "lines": [f"priority that the server's log says it granted the low client: {said}"],
            "tables": [_table("A short kernel beside 5 ms kernels, with MPS, CUDA_MPS_CLIENT_PRIORITY=1 for the other", found)],
            "profile": _profile("MPS, the other below normal", found["cells"]),
            "decision": decision(context, 1, "is the priority a fact on this GPU?", answer, sentence)}


def caps(context):
    by_cap, tables = {}, []
    with mps.together(context) as served:
        for cap in CAPS:
            found = _measure(context, served.env(), served.env(priority=mps.BELOW_NORMAL, threads=cap), (2000, PERSISTENT), tuple(_KERNELS))
            by_cap[cap] = found
            tables.append(_table(f"Beside 5 ms kernels of a client with {cap} % of the threads and below normal priority", found))
    cells = {cap: found["cells"] for cap, found in by_cap.items()}
    answer, sentence = cap_verdict(cells)
    profile = {}
    for cap in CAPS:
        profile.update(_profile(f"MPS, the other below normal with {cap} % of the threads", cells[cap])["block_wait"])
    return {"answer": {str(cap): found for cap, found in by_cap.items()}, "tables": tables, "profile": {"block_wait": profile},
            "decision": decision(context, 2, "which cap for persistent kernels?", answer, sentence)}


def steps():
    return [Step("block wait, MPS with priority", with_priority, 45, question=1), Step("block wait, MPS", with_mps, 45, question=1),
            Step("block wait, time slices", time_slices, 40, question=1), Step("block wait, MPS with caps", caps, 110, question=2)]
