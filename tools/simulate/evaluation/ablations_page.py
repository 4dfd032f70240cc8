"""The ablations as a page: Markdown. Pure. Every table says that it is simulated."""

from evaluation import bars
from gpu_check.figures import median, shown
from gpu_check.report import table

_HEAD = """# What each part of guarded adds, simulated

**Every figure on this page is simulated** (`lull simulate`, a serial device, closed loop): it shows what the parts do on the
simulator's model of a device, is no evidence about hardware and is not to be set beside a figure that was measured.

Each step is the one before it and one part more.
"""


def render(found, steps, lacking, about):
    """`found`: {(high, low): {step name: figures}}; `lacking`: {step name: what this lull cannot do of it}."""
    text = [_HEAD, table(("step", "policy", "predictor", "what is added"),
                         [(step.name, f"`{step.policy}`", step.predictor or "as it comes", step.adds) for step in steps]), ""]
    if lacking:
        text += ["What this lull does not offer:", "", table(("step", "here"), lacking.items()), ""]
    text += [f"{about['date']}, {about['lull']}; up to {about['options']['iterations']} requests after {about['options']['warmup']} of "
             "warm-up. Slowdown: of the high task's mean service time against alone. Low: the low task's work against alone.", ""]
    text += ["## All pairs together (simulated)", "", _summary(found, steps), "",
             "![simulated: slowdown of the high task against work of the low one, by step and pair](ablations.svg)", ""]
    text += ["## By pair (simulated)", "", "Mean slowdown of the high task / work of the low one; **bold** where the bound "
             f"({100 * bars.MEAN:g} % in the mean and, where {bars.REQUESTS_FOR_P99:,} requests were measured, {100 * bars.P99:g} % at p99) "
             "is not kept.", "",
             table(("high", "low", *(step.name for step in steps)),
                   [(high, low, *(_cell(by_step.get(step.name)) for step in steps)) for (high, low), by_step in found.items()]), ""]
    if about["problems"]:
        text += ["## Not run", "", table(("case", "why"), sorted(about["problems"].items())), ""]
    return "\n".join(text).rstrip() + "\n"


def _summary(found, steps):
    rows = []
    for step in steps:
        ones = [by_step[step.name] for by_step in found.values() if step.name in by_step]
        known = [one for one in ones if bars.lost(one) is not None]
        rows.append((step.name, f"{sum(map(bars.keeps, ones))} of {len(ones)}", shown(max((one["mean"] for one in known), default=None), 4),
                     shown(median([one["low"] or 0.0 for one in known])), shown(min((one["low"] or 0.0 for one in known), default=None))))
    return table(("step", "pairs that keep the bound", "worst mean slowdown", "low, median", "low, least"), rows)


def _cell(one):
    if one is None or bars.lost(one) is None:
        return "no valid figure"
    slowdown = f"{one['mean']:.3f}"
    return (slowdown if bars.keeps(one) else f"**{slowdown}**") + f" / {shown(one['low'] or 0.0)}"
