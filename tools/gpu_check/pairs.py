"""Two programs alone, together as the driver shares (no lull), and together under each policy.

The programs are started once without lull and once under it, and run all the time; the daemon
changes its policy while they do. A machine that is shared itself is slow for seconds at a time: so
everything is measured in windows of the same length, in rounds of all of them, the important
program alone in each round. Under lull it is compared with itself alone under lull, too.
"""

import time

from gpu_check import tasks
from gpu_check.figures import ratio, shown
from gpu_check.verdict import Failed

COLUMNS = ["how", "role", "program", "iterations", "JCT mean ms", "p50", "p99", "CV", "slowdown p50", "slowdown p99", "throughput",
           "over alone under lull: mean", "p50", "p99"]
_FEW = 5  # a row of fewer whole iterations is marked
_HEAD_START_S = 60.0


class Timing:
    """Real seconds. `settle_s`: what lies between a change and the window behind it."""

    def __init__(self, window_s=3.0, settle_s=1.0, rounds=2):
        self.window_s, self.settle_s, self.rounds = window_s, settle_s, rounds


def _window(context, running, timing):
    for task in running:
        task.must_run()
    time.sleep(context.timeout(timing.settle_s))
    start = context.model_now_ns()
    time.sleep(context.timeout(timing.window_s))
    window = (start, context.model_now_ns())
    for task in running:
        task.must_run()
    return window


def _begin_low(context, low):
    """The low one has the device before it is measured beside the other: one iteration, or a while."""
    low.begin()
    low.child.wait_for(lambda: low.poll() and low.iterations, context.timeout(min(_HEAD_START_S, 5.0)))


def _until_paused(context, task):
    """It has begun no iteration for longer than its longest one of late took."""
    last, since = None, time.monotonic()
    ends = since + context.timeout(_HEAD_START_S)
    while time.monotonic() < ends:
        task.must_run()
        if task.iterations[-1:] != last:
            last, since = task.iterations[-1:], time.monotonic()
        longest_s = max((end - start for start, end in task.iterations[-20:]), default=0) / 1e9 * context.slow_motion
        if time.monotonic() - since > max(0.2, 1.5 * longest_s):
            return
        time.sleep(0.05)
    raise Failed(f"{task.name} does not pause")


def _rounds(context, one, two, timing, changes):
    """{name: windows}: in each round the first alone, then both after each of `changes`, (name, call).
    The first of them must let the second get to the end of its iteration, where it pauses."""
    windows = {}
    for number in range(timing.rounds):
        if number:
            changes[0][1]()
            two.pause()
            _until_paused(context, two)
        windows.setdefault("alone", []).append(_window(context, [one], timing))
        if number:
            two.go_on()
        else:
            _begin_low(context, two)
        for name, change in changes:
            change()
            windows.setdefault(name, []).append(_window(context, [one, two], timing))
    return windows


def measure(context, high, low, policies, timing, env=None, decision_log=None):
    """`high`, `low`: (name, words) as of tasks.played and tasks.model. `decision_log`: the file that the daemon writes
    its decisions to. Rows of dictionaries."""
    rows = []

    def row(how, role, task, windows, alone, alone_under_lull=None):
        made = {"how": how, "role": role, "program": task.name, **tasks.measured(task.iterations, windows, alone),
                "window_means": [tasks.measured(task.iterations, [window]).get("mean") for window in windows]}
        if alone_under_lull:
            made["over_alone_under_lull"] = {key: ratio(made.get(key), alone_under_lull.get(key)) for key in ("mean", "p50", "p99")}
        rows.append(made)
        return made

    one = tasks.Task(context, *high, env=env)
    two = tasks.Task(context, *low, env=env)
    for task in (one, two):
        task.wait_ready()
    one.begin()
    at = _rounds(context, one, two, timing, [("together", lambda: None)])
    one.finish()
    alone_low_at = [_window(context, [two], timing)]
    two.finish()
    alone_high = row("alone", "high", one, at["alone"], None)
    if not alone_high["count"]:
        raise Failed(f"{one.name}, alone: no whole iteration in {timing.window_s:g} s", {"iterations": len(one.iterations)})
    alone_low = row("alone", "low", two, alone_low_at, None)
    row("default sharing", "high", one, at["together"], alone_high)
    row("default sharing", "low", two, at["together"], alone_low)

    with context.daemon("share", env=env, decision_log=decision_log) as daemon:
        one = tasks.Task(context, *high, daemon=daemon, priority="high", env=env)
        two = tasks.Task(context, *low, daemon=daemon, priority="low", env=env)
        for task in (one, two):
            task.wait_ready()
        one.begin()
        at = _rounds(context, one, two, timing, [(policy, lambda policy=policy: daemon.set_policy(policy)) for policy in policies])
        one.finish()
        two.finish()
        under_lull = row("alone under lull", "high", one, at["alone"], alone_high)
        for policy in policies:
            row(f"lull: {policy}", "high", one, at[policy], alone_high, under_lull)
            row(f"lull: {policy}", "low", two, at[policy], alone_low)
    return rows


def table(title, rows, slow_motion=1):
    cells = [[r["how"], r["role"], r["program"], str(r["count"]) + (" (few)" if r["count"] < _FEW else ""), r.get("mean"),
              r.get("p50"), r.get("p99"), r.get("cv"), _times(r.get("slowdown_p50")), _times(r.get("slowdown_p99")),
              _times(r.get("throughput")), *(_times(r.get("over_alone_under_lull", {}).get(k)) for k in ("mean", "p50", "p99"))]
             for r in rows]
    return {"title": title, "columns": COLUMNS, "rows": cells,
            "note": "Slowdowns and throughput are against the same program alone without lull; the last three columns against the same process alone."
                    + (f" Slow motion {slow_motion}: how late this machine's processor was is in the figures." if slow_motion > 1 else "")}


def _times(value):
    return "-" if value is None else shown(value) + "x"
