"""What programs lose beside an idle neighbour, as a page: Markdown made from the runs alone. Pure. Every table says that
it is simulated."""

from gpu_check.figures import median
from gpu_check.report import table

VERDICT = ("policy", "within the bar", "worst", "median")
REQUESTS = ("request of the visitor, ms, median", "longest")

_HEAD = """# {title}, simulated

**Every figure on this page is simulated**: `lull simulate` ran the engine and the policies around a model of the device.
It is no evidence about hardware and is not to be set beside a figure that was measured.
"""
_BESIDE = """A program of high priority runs, request after request, beside a client that is attached and idle: `tiny` launches one
kernel of 2 us a second, `none` launches nothing. A figure is the mean time of a request beside that neighbour by the mean
alone. The bar is {bar:g}."""
_BELOW = """A program of low priority runs beside a client of high priority that is attached and idle: `none` launches nothing, `visit`
has a request of 500 kernels of 20 us after each three seconds of idleness. The figure of `none` is what the program does beside it by what it does
there under `share`, which holds nobody: what it costs to be bounded; at least {bar:g} is wanted. Beside `visit` the program is held, as it should be;
there the time of the longest of three requests counts: 10 ms alone, and longer by what the program had launched ahead."""
_HOW = """ Recorded and shipped programs run under each way of sharing the device, made ones (the families of
[population](population.md)) take turns. `exclusive` is left out: there a client that came first keeps the device, idle or not. Nothing is random but the made programs, which come from the seed.
"""


def render(data):
    runs = data["runs"]
    over = [run for run in runs if not _within(run, data)]
    head = _HEAD.format(title="Below an idle neighbour" if data["below"] else "Beside an idle neighbour")
    text = [head, table(("", ""), _about(data)), "", (_BELOW if data["below"] else _BESIDE).format(bar=data["bar"]) + _HOW,
            "## All cases (simulated)", "", table(verdict_names(data), verdict_rows(data)), ""]
    for kind in dict.fromkeys(run["kind"] for run in runs):
        mine = [run for run in runs if run["kind"] == kind]
        text += [f"## Programs that are {kind}: {len(mine)} cases (simulated)", "", table(verdict_names(data), verdict_rows(data, mine)), ""]
    text += ["## Cases beyond the bar (simulated)", ""]
    text += [_runs(over, data) if over else "None.", "", "## Every case (simulated)", "", _runs(runs, data)]
    return "\n".join(text).rstrip() + "\n"


def all_within(data):
    return all(_within(run, data) for run in data["runs"])


def verdict_names(data):
    return VERDICT + (REQUESTS if data["below"] else ())


def verdict_rows(data, runs=None):
    """Of these, or all."""
    runs = data["runs"] if runs is None else runs
    worst = min if data["below"] else max
    rows = []
    for policy in data["policies"]:
        judged = [run for run in runs if _is_judged(run, data)]
        found = [run["policies"][policy] for run in judged if policy in run["policies"]]
        within = sum(_keeps(one, data) for one in found)
        rows.append([policy, f"{within} of {len(judged)}", f"{worst(found):.4f}" if found else "-", f"{median(found):.4f}" if found else "-"])
        if data["below"]:
            requests = [run["requests_ms"][policy] for run in runs if not _is_judged(run, data) and run["requests_ms"].get(policy) is not None]
            rows[-1] += [f"{median(requests):.3f}", f"{max(requests):.3f}"] if requests else ["-", "-"]
    return rows


def _keeps(one, data):
    if one is None:
        return False
    # 1.01 is within 1 %, whatever it is in binary.
    return round(one, 9) >= data["bar"] if data["below"] else round(one, 9) <= data["bar"]


def _is_judged(run, data):
    return not data["below"] or run["neighbour"] == "none"


def _within(run, data):
    return not run["problem"] and (not _is_judged(run, data) or all(_keeps(run["policies"].get(policy), data) for policy in data["policies"]))


def _about(data):
    return [("date", data["date"]), ("lull", data["lull"]), ("device", data["device"]), ("control latency", f"{data['control_latency_us']:g} us"),
            ("made programs", f"{data['made']} of the seed `{data['seed']}`")]


def _runs(runs, data):
    rows = [[run["kind"], run["program"], run["neighbour"], run["sharing"],
             *(run["problem"] or _cell(run, policy, data) for policy in data["policies"])] for run in runs]
    return table(("kind", "program", "neighbour", "sharing", *data["policies"]), rows)


def _cell(run, policy, data):
    if not _is_judged(run, data):
        request = run["requests_ms"].get(policy)
        return "no figure" if request is None else f"{request:.3f} ms"
    one = run["policies"].get(policy)
    if one is None:
        return "no figure"
    return f"{one:.4f}" if _keeps(one, data) else f"**{one:.4f}**"
