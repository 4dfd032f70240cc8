"""The population as a page: Markdown made from the runs alone. Pure. Every table says that it is simulated."""

from evaluation import bars, families
from evaluation.cases import arrivals
from gpu_check.figures import median, shown
from gpu_check.report import table

# Of the low work that another gives where it keeps the bound, under that sharing: so much is enough.
REFERENCES = (("priority", "", 0.97), ("share", "mps", 0.95))
HALF = 0.5  # of what the oracle gives
VERDICT = ("policy", "keeps the bound", "over twice the bound", "failed", "worst loss, in bounds", "low work, median")

_HEAD = """# Programs nobody tuned a policy for, simulated

**Every figure on this page is simulated**: `lull simulate` ran the engine and the policies around a model of the device.
It is no evidence about hardware and is not to be set beside a figure that was measured.
"""
_HOW = """A pair is a high program and a low one that runs beside it without end. Both are made from the seed: a family, and values
drawn from the ranges at the end of this page. Pairs take turns in how they share the device (serial, MPS, time slices). Requests
of two in three programs that serve some arrive at random, at a load between 0.2 and 0.8; all else comes one after the other.
Each waking of a host is late by up to a few us, from the seed. What is called a request is what the host asks for between two rests of
its own: several training steps, or several inputs of different lengths, where the program has that.

The bound is {mean:g} % of the high program's service time in the mean and {p99:g} % at p99, against the same program alone; p99 counts where
{requests:,} requests were measured, in {tails} of {pairs} pairs: requests are fewer where they are long, so that 500 pairs take about an hour on
two cores. A run that failed keeps nothing. Low work: of the low program while the high one ran, against what it does alone in that time.
"""
_ORACLE = """These are the first pairs of the seed that share a serial device in a closed loop, where there is an oracle: what the low program could have
done, as kernel time, had somebody known the whole future (`tools/simulate/oracle/oracle.h`). Both of its figures are estimates, without the host's
lateness: "the oracle's" is what no schedule exceeds, "found" the best schedule that was found. Where they are far apart, what is possible is not known.
"""


def render(data):
    runs, policies = data["runs"], data["policies"]
    tails = sum(any(one.get("p99") is not None for one in run["policies"].values()) for run in runs)
    text = [_HEAD, table(("", ""), _about(data)), "",
            _HOW.format(mean=100 * bars.MEAN, p99=100 * bars.P99, requests=bars.REQUESTS_FOR_P99, tails=tails, pairs=len(runs)),
            *([_ORACLE] if _has_oracle(runs) else []), "## All pairs (simulated)", "", table(verdict_names(runs), verdict_rows(runs, policies)), ""]
    for title, key in (("the high program's family", "high"), ("the low program's family", "low"), ("sharing", "sharing"),
                       ("arrivals", "arrivals")):
        text += [f"## By {title} (simulated)", "",
                 "Pairs; then, by policy, the share that keeps the bound, and the median of the low work.", "", _by(runs, policies, key), ""]
    text += ["## Every run (simulated)", "",
             "Mean slowdown / slowdown at p99 / low work" + (" / of what the oracle gives / of what it found" if _has_oracle(runs) else "") +
             "; **bold** where the bound is not kept.", "", _runs(runs, policies), "",
             "## What is drawn", "", "A source in brackets, [estimate], is none: the range is ours. Ranges are log-uniform.", "", _ranges()]
    return "\n".join(text).rstrip() + "\n"


def verdict_names(runs):
    names = [f"at least {enough:g} of {other}'s low work" + (f", {sharing}" if sharing else "")
             for other, sharing, enough in _references(runs)]
    return (*VERDICT, *names, *([f"at least {HALF:g} of {what}" for what in ("the oracle's", "what it found")] if _has_oracle(runs) else []))


def verdict_rows(runs, policies):
    return [[policy, *_verdict(runs, policy)] for policy in policies]


def _verdict(runs, policy):
    losses = [loss for run in runs if (loss := _lost(run, policy)) is not None]
    lows = [run["policies"][policy].get("low") or 0.0 for run in runs if policy in run["policies"]]
    found = [(enough, [share for run in runs if sharing in ("", run["sharing"]) and (share := _of_other(run, policy, other)) is not None])
             for other, sharing, enough in _references(runs)]
    if _has_oracle(runs):
        found += [(HALF, [share for run in runs if (share := run["policies"].get(policy, {}).get(key)) is not None])
                  for key in ("oracle", "oracle_found")]
    return (f"{_percent(_kept(runs, policy), len(runs))} of {len(runs)}", f"{sum(loss > 2 for loss in losses)}", f"{len(runs) - len(losses)}",
            shown(max(losses, default=None)), shown(median(lows) if lows else None),
            *(f"{_percent(sum(share >= enough for share in shares), len(shares))} of {len(shares)}, median {shown(median(shares))}, "
              f"least {shown(min(shares))}" if shares else "-" for enough, shares in found))


def _references(runs):
    """Those that were run."""
    return [one for one in REFERENCES if any(one[0] in run["policies"] for run in runs)]


def _has_oracle(runs):
    return any(one.get("oracle") is not None for run in runs for one in run["policies"].values())


def _lost(run, policy):
    return bars.lost(run["policies"].get(policy, {}))


def _kept(runs, policy):
    return sum(bars.keeps(run["policies"].get(policy, {})) for run in runs)


def _of_other(run, policy, other):
    """The low work, of what the other gives where it keeps the bound."""
    reference, one = run["policies"].get(other), run["policies"].get(policy)
    if policy == other or not reference or not one or not bars.keeps(reference) or not reference.get("low"):
        return None
    return (one.get("low") or 0.0) / reference["low"]


def _percent(count, of):
    return f"{100 * count / of:.1f} %" if of else "-"


def _about(data):
    return [("date", data["date"]), ("lull", data["lull"]), ("seed", f"`{data['seed']}`" + (f", the set for {data['set']}" if data["set"] else "")),
            ("pairs", len(data["runs"])), ("policies", ", ".join(data["policies"])), ("device", data["device"]),
            ("control latency", f"{data['control_latency_us']:g} us"), ("processor time", f"{data['cpu_s']:.0f} s")]


def _by(runs, policies, key):
    groups = {}
    for run in runs:
        value = ("Poisson" if run["load"] else "closed loop") if key == "arrivals" else run[key]
        groups.setdefault(value, []).append(run)
    rows = []
    for value, group in sorted(groups.items()):
        row = [value, len(group)]
        for policy in policies:
            lows = [run["policies"][policy].get("low") or 0.0 for run in group if policy in run["policies"]]
            row += [_percent(_kept(group, policy), len(group)), shown(median(lows) if lows else None)]
        rows.append(row)
    return table((key, "pairs", *(name for policy in policies for name in (policy, f"low, {policy}"))), rows)


def _runs(runs, policies):
    rows = []
    for run in runs:
        cells = [run["problem"] or _cell(run["policies"].get(policy, {})) for policy in policies]
        rows.append([run["pair"], run["high"], run["low"], run["sharing"], arrivals(run["load"]), run["requests"], *cells])
    return table(("pair", "high", "low", "sharing", "arrivals", "requests", *policies), rows)


def _cell(one):
    if bars.lost(one) is None:
        return "no valid figure: " + (one.get("reason") or "no slowdown")
    text = f"{one['mean']:.3f} / " + (f"{one['p99']:.3f}" if one.get("p99") is not None else "-")
    text = (text if bars.keeps(one) else f"**{text}**") + f" / {shown(one.get('low') or 0.0)}"
    shares = [one.get(key) for key in ("oracle", "oracle_found")]
    return text + ("".join(f" / {'-' if share is None else shown(share)}" for share in shares) if any(s is not None for s in shares) else "")


def _ranges():
    rows = [["all", name, parameter.text(), parameter.source] for name, parameter in families.SPEED.items()]
    rows += [[family, name, parameter.text(), parameter.source] for family, parameters in families.FAMILIES.items()
             for name, parameter in parameters.items()]
    return table(("family", "value", "range", "source"), rows)
