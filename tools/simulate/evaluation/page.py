"""The matrix as a page: Markdown made from the result's JSON alone. Pure. Every table says that it is
simulated; no figure of anybody else's is on it."""

from evaluation import bars
from evaluation.cases import STRESS_JITTER_US, STRESS_LATENCY_US, arrivals
from gpu_check.figures import mean, shown
from gpu_check.report import table

_HEAD = """# Every pair, simulated

**Every figure on this page is simulated**: `lull simulate` ran the engine and the policies around a model of the
device. It shows what the policies do with these programs on that model; it is no evidence about hardware and is
not to be set beside a figure that was measured.
"""
_HOW = """An ordered pair is a high task and a low one that runs beside it without end. Slowdown: of the high task's service time
(from the start of a request to its end, waiting for its turn left out) against the same task alone, in the mean and, where
{requests:,} requests were measured, at p99. Low: the low task's work while the high one ran, against what it does alone in
that time. {random}
The bound is {mean:g} % in the mean and {p99:g} % at p99. The oracle knows the future and has the same two allowances over the
same requests; it is asked on a serial device in a closed loop, and where its figure is more than a schedule that was found, the share is too small.
"""
_RANDOM = "Each waking of a host is late by up to a few us, from the seed; so is the high task alone."
_NOTHING_RANDOM = "A closed loop has nothing random in it and gives the same bytes with every seed: it is run once and counts once."
_WHOLE = """Where `guarded` gave the low task too little if `priority` or `fikit` kept the bound, and fewer requests than tell p99 were measured,
all were played on until there were {requests:,}. Mean slowdown / slowdown at p99 / low; **bold** where the bound is not kept."""
_STRESS = """Closed loops under guarded with {latency} us of control latency, and each waking of a host late by up to {jitter} us, from the seed.
Alone, the high task is as late, with the same seed. Worst mean slowdown / worst slowdown at p99 / low, mean of the seeds (least to most);
**bold** where the bound is not kept."""


def render(data, others=()):
    """`data` as matrix.json holds it. `others`: (link, what) of pages beside this one."""
    judged = verdict(data)
    text = [_HEAD]
    text += [table(("", ""), _about(data)), ""]
    text += [_HOW.format(random=_RANDOM if data["options"]["jitter_us"] else _NOTHING_RANDOM, requests=bars.REQUESTS_FOR_P99, mean=100 * bars.MEAN, p99=100 * bars.P99)]
    if data["problems"]:
        text += ["## Not run", "", table(("case", "why"), sorted(data["problems"].items())), ""]
    text += ["## Verdict (simulated)", "", verdict_table(judged, len(data["problems"])), ""]
    if data["cases"]:
        text += ["By sharing and arrivals, guarded, simulated (a loss of 1 bound is all that is allowed in the mean or at p99):", "",
                 _by_group(data), ""]
    failing = [bar for bar in judged if bar.failing]
    if failing:
        text += ["## Cases that miss a bar (simulated)", ""]
        for bar in failing:
            text += [f"{bar.wanted}; simulated, missed by {len(bar.failing)}:", "", table(("case", "found"), bar.failing), ""]
    if data["cases"]:
        text += ["## All cases (simulated)", "",
                 "Mean slowdown / slowdown at p99 / low under each policy; **bold** where the bound is not kept. With several seeds: the "
                 "worst slowdowns, the mean of the low task's work, and in brackets the least and the most.", ""]
    for (sharing, load), rows in _grouped(data["cases"], "sharing", "load").items():
        text += [f"### {sharing}, {arrivals(load)} (simulated)", "", _cases_table(rows, data["policies"]), ""]
    if data["whole"]:
        text += ["## Played on (simulated)", "", _WHOLE.format(requests=bars.REQUESTS_FOR_P99), "", _whole_table(data["whole"]), ""]
    if data["stress"]:
        text += ["## Stressed (simulated)", "", _STRESS.format(latency=STRESS_LATENCY_US, jitter=STRESS_JITTER_US), "",
                 _stress_table(data["stress"]), ""]
    if others:
        text += ["## Beside this page", ""] + [f"- [{link}]({link}): {what}" for link, what in others] + [""]
    return "\n".join(text).rstrip() + "\n"


def verdict(data):
    """All bars."""
    return bars.judge(_for_bars(data["cases"]), _for_bars(data["whole"])) + bars.judge_stress(_for_bars(data["stress"]))


def _for_bars(cases, wanted=lambda one: True):
    return {name: (one["sharing"], one["policies"]) for name, one in cases.items() if wanted(one)}


def _by_group(data):
    rows = []
    for sharing, load in _grouped(data["cases"], "sharing", "load"):
        cases = _for_bars(data["cases"], lambda one: (one["sharing"], one["load"]) == (sharing, load))
        rows.append([sharing, arrivals(load), len(cases), *(bar.value for bar in bars.judge(cases, _for_bars(data["whole"])))])
    return table(("sharing", "arrivals", "cases", *bars.VALUES.values()), rows)


def verdict_table(judged, problems):
    def word(bar):
        return "nothing to judge by" if bar.met is None else "met" if bar.met else "**missed**"

    rows = [[bar.name, bar.wanted, bar.found, word(bar)] for bar in judged]
    if problems:
        rows.append(["complete", "every case has a result", f"{problems} have none", "**missed**"])
    return table(("bar", "wanted", "found (simulated)", ""), rows)


def _about(data):
    names = ", ".join(f"{name}: `{file}`" for name, file in data["workloads"].items())
    return [("date", data["date"]), ("lull", data["lull"]), ("cases", f"{len(data['cases'])}, {len(data['whole'])} of them played on, and {len(data['stress'])} stressed"), ("workloads", names),
            ("requests", f"up to {data['options']['iterations']} of the high task or {data['options']['seconds']:g} s of device time, "
                         f"after {data['options']['warmup']} of warm-up"),
            ("policies", ", ".join(data["policies"])), ("device", data["device"]),
            ("control latency", f"{data['control_latency_us']:g} us"), ("jitter of the host", f"up to {data['options']['jitter_us']:g} us")]


def _grouped(cases, *keys):
    """{the values of `keys`: {(high, low): [the cases of all seeds]}}"""
    groups = {}
    for one in cases.values():
        groups.setdefault(tuple(one[key] for key in keys), {}).setdefault((one["high"], one["low"]), []).append(one)
    return groups


def _cases_table(rows, policies):
    def shares(seeds, key):
        return [share for one in seeds if (share := one["policies"].get(bars.GUARDED, {}).get(key)) is not None]

    more = {key: name for key, name in (("oracle", "guarded / oracle"), ("oracle_bound", "guarded / bound of the oracle"))
            if any(shares(seeds, key) for seeds in rows.values())}
    lines = []
    for (high, low), seeds in rows.items():
        requests = min((one["policies"][policy].get("requests", 0) for one in seeds for policy in one["policies"]), default=0)
        lines.append([high, low, requests] + [_cell([one["policies"].get(policy) for one in seeds]) for policy in policies]
                     + [shown(min(shares(seeds, key), default=None)) for key in more])
    return table(["high", "low", "requests", *policies, *more.values()], lines)


def _whole_table(cases):
    policies = list(dict.fromkeys(policy for one in cases.values() for policy in one["policies"]))
    return table(["case", *policies], [[name, *(_cell([one["policies"].get(policy)]) for policy in policies)] for name, one in cases.items()])


def _stress_table(cases):
    by_sharing = {sharing: rows for (sharing,), rows in _grouped(cases, "sharing").items()}
    pairs = dict.fromkeys(pair for rows in by_sharing.values() for pair in rows)
    lines = [[*pair, *(_cell([one["policies"].get(bars.GUARDED) for one in rows[pair]]) if pair in rows else "-"
                       for rows in by_sharing.values())] for pair in pairs]
    return table(["high", "low", *by_sharing], lines)


def _cell(seeds):
    """One policy's figures over the seeds."""
    if any(one is None or bars.lost(one) is None for one in seeds):
        return "no valid figure"
    tails = [one["p99"] for one in seeds if one.get("p99") is not None]
    text = f"{max(one['mean'] for one in seeds):.3f} / " + (f"{max(tails):.3f}" if tails else "-")
    if not all(bars.keeps(one) for one in seeds):
        text = f"**{text}**"
    lows = [one["low"] or 0.0 for one in seeds]
    spread = f" ({shown(min(lows))} to {shown(max(lows))})" if len(lows) > 1 else ""
    return text + f" / {shown(mean(lows))}{spread}"
