"""What programs lose beside an idle neighbour, as a page: Markdown made from the runs alone. Pure. Every table says that
it is simulated."""

from gpu_check.figures import median
from gpu_check.report import table

VERDICT = ("policy", "within the bar", "worst", "median")

_HEAD = """# Beside an idle neighbour, simulated

**Every figure on this page is simulated**: `lull simulate` ran the engine and the policies around a model of the device.
It is no evidence about hardware and is not to be set beside a figure that was measured.
"""
_HOW = """A program of high priority runs, request after request, beside a client that is attached and idle: `tiny` launches one
kernel of 2 us a second, `none` launches nothing. A figure is the mean time of a request beside that neighbour by the mean
alone. The bar is {bar:g}. Recorded and shipped programs run under each way of sharing the device, made ones (the families of
[population](population.md)) take turns. `exclusive` is left out: there a client that came first keeps the device, idle or not. Nothing is random but the made programs, which come from the seed.
"""


def render(data):
    runs, policies, bar = data["runs"], data["policies"], data["bar"]
    over = [run for run in runs if not _within(run, policies, bar)]
    text = [_HEAD, table(("", ""), _about(data)), "", _HOW.format(bar=bar),
            "## All cases (simulated)", "", table(VERDICT, verdict_rows(runs, policies, bar)), ""]
    for kind in dict.fromkeys(run["kind"] for run in runs):
        mine = [run for run in runs if run["kind"] == kind]
        text += [f"## Programs that are {kind}: {len(mine)} cases (simulated)", "", table(VERDICT, verdict_rows(mine, policies, bar)), ""]
    text += ["## Cases over the bar (simulated)", ""]
    text += [_runs(over, policies, bar) if over else "None.", "", "## Every case (simulated)", "", _runs(runs, policies, bar)]
    return "\n".join(text).rstrip() + "\n"


def all_within(runs, policies, bar):
    return all(_within(run, policies, bar) for run in runs)


def verdict_rows(runs, policies, bar):
    rows = []
    for policy in policies:
        found = [run["policies"][policy] for run in runs if policy in run["policies"]]
        within = sum(_keeps(one, bar) for one in found)
        rows.append([policy, f"{within} of {len(runs)}", f"{max(found):.4f}" if found else "-", f"{median(found):.4f}" if found else "-"])
    return rows


def _keeps(one, bar):
    return one is not None and round(one, 9) <= bar  # 1.01 is within 1 %, whatever it is in binary


def _within(run, policies, bar):
    return not run["problem"] and all(_keeps(run["policies"].get(policy), bar) for policy in policies)


def _about(data):
    return [("date", data["date"]), ("lull", data["lull"]), ("device", data["device"]), ("control latency", f"{data['control_latency_us']:g} us"),
            ("made programs", f"{data['made']} of the seed `{data['seed']}`")]


def _runs(runs, policies, bar):
    rows = [[run["kind"], run["program"], run["neighbour"], run["sharing"],
             *(run["problem"] or _cell(run["policies"].get(policy), bar) for policy in policies)] for run in runs]
    return table(("kind", "program", "neighbour", "sharing", *policies), rows)


def _cell(one, bar):
    if one is None:
        return "no figure"
    return f"{one:.4f}" if _keeps(one, bar) else f"**{one:.4f}**"
