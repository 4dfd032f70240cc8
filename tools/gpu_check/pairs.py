"""Two programs alone, together as the driver shares (no lull), and together under each policy.

The programs are started once without lull and once under it, and run all the time; the daemon
changes its policy while they do. Everything is measured in windows of the same length.
"""

import time

from gpu_check import tasks
from gpu_check.figures import shown
from gpu_check.verdict import Failed

COLUMNS = ["how", "role", "program", "iterations", "JCT mean ms", "p50", "p99", "CV", "slowdown p50", "slowdown p99", "throughput"]
_FEW = 5  # a row of fewer whole iterations is marked
_HEAD_START_S = 60.0


class Timing:
    """Real seconds. `settle_s`: what lies between a change and the window behind it."""

    def __init__(self, window_s=6.0, settle_s=2.0):
        self.window_s, self.settle_s = window_s, settle_s


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


def measure(context, high, low, policies, timing, env=None):
    """`high`, `low`: (name, words) as of tasks.played and tasks.model. Rows of dictionaries."""
    rows = []

    def row(how, role, task, window, alone):
        rows.append({"how": how, "role": role, "program": task.name, **tasks.measured(task.iterations, window, alone)})
        return rows[-1]

    one = tasks.Task(context, *high, env=env)
    two = tasks.Task(context, *low, env=env)
    for task in (one, two):
        task.wait_ready()
    one.begin()
    alone_high_at = _window(context, [one], timing)
    _begin_low(context, two)
    together_at = _window(context, [one, two], timing)
    one.finish()
    alone_low_at = _window(context, [two], timing)
    two.finish()
    alone_high = row("alone", "high", one, alone_high_at, None)
    if not alone_high["count"]:
        raise Failed(f"{one.name}, alone: no whole iteration in {timing.window_s:g} s", {"iterations": len(one.iterations)})
    alone_low = row("alone", "low", two, alone_low_at, None)
    row("default sharing", "high", one, together_at, alone_high)
    row("default sharing", "low", two, together_at, alone_low)

    with context.daemon("share", env=env) as daemon:
        one = tasks.Task(context, *high, daemon=daemon, priority="high", env=env)
        two = tasks.Task(context, *low, daemon=daemon, priority="low", env=env)
        for task in (one, two):
            task.wait_ready()
        one.begin()
        windows = [("alone under lull", _window(context, [one], timing))]
        _begin_low(context, two)
        for policy in policies:
            daemon.set_policy(policy)
            windows.append((f"lull: {policy}", _window(context, [one, two], timing)))
        one.finish()
        two.finish()
        for how, window in windows:
            row(how, "high", one, window, alone_high)
            if how != "alone under lull":
                row(how, "low", two, window, alone_low)
    return rows


def table(title, rows, slow_motion=1):
    cells = [[r["how"], r["role"], r["program"], str(r["count"]) + (" (few)" if r["count"] < _FEW else ""), r.get("mean"),
              r.get("p50"), r.get("p99"), r.get("cv"), _times(r.get("slowdown_p50")), _times(r.get("slowdown_p99")),
              _times(r.get("throughput"))] for r in rows]
    return {"title": title, "columns": COLUMNS, "rows": cells,
            "note": "Slowdowns and throughput are against the same program alone without lull."
                    + (f" Slow motion {slow_motion}: how late this machine's processor was is in the figures." if slow_motion > 1 else "")}


def _times(value):
    return "-" if value is None else shown(value) + "x"
