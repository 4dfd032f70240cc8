"""The arithmetic of the verdict: which bars the simulated figures meet. Pure.

The figures of a case are, by policy, {requests, mean, p99, p99_of_fewer, low, oracle, oracle_bound, oracle_found, oracle0, valid,
reason}: service time of the high task against alone (p99 is None where fewer than 1,000 requests were measured; what it
was then is in p99_of_fewer, which is no bar's business: undecided() says which cases have to be played on), work of the
low task against alone, shares of what the oracles give it (None: not known; where `lull simulate` calls its oracle a
bound, the share is in oracle_bound and no bar's business; oracle_found: of the best schedule that it found).
"""

import dataclasses

from gpu_check.figures import median, ratio

MEAN, P99 = 0.03, 0.05  # the bound: what the high task may lose
REQUESTS_FOR_P99 = 1000
KEPT_SHARE = 0.95       # of the cases
WORST_EXCESS = 2.0      # bounds: exceeded by no more than its own size
# What guarded gives, of what others do; half a percent is how the two programs' phases happen to meet.
OTHERS = {"priority": 0.97, "fikit": 0.995}
ORACLE_MEDIAN, ORACLE_WORST = 0.9, 0.7
GUARDED = "guarded"
VALUES = {"bound": "keep the bound", "excess": "worst loss, in bounds", "priority": "reach priority", "fikit": "reach fikit",
          "something": "least low", "oracle_median": "oracle share, median", "oracle_worst": "oracle share, worst"}
STRESS = ("stress", "stress_excess")  # the names of judge_stress


@dataclasses.dataclass
class Bar:
    name: str
    wanted: str
    found: str
    met: bool | None  # None: nothing to judge by
    failing: list = dataclasses.field(default_factory=list)  # (name of the case, what it is)
    value: float | None = None  # what `found` says, as one number; VALUES says what it is


def figures(result):
    """Of what `lull simulate --json -` printed."""
    by_policy = {}
    share = "oracle_bound" if result.get("oracle") == "bound" else "oracle"
    for row in result["rows"]:
        one = by_policy.setdefault(row["policy"], {})
        if row["role"] == "high":
            one.update(requests=row["completed"], mean=row.get("slowdown_mean"), jct_ms=row["jct_ms_mean"],
                       p99=None, p99_of_fewer=None, valid=row["valid"], reason=row["reason"])
            one["p99" if row["completed"] >= REQUESTS_FOR_P99 else "p99_of_fewer"] = row["slowdown_p99"]
        else:
            one.update(low=row["throughput_ratio"], oracle=None, oracle0=row.get("oracle0_share"))
            one[share] = row.get("oracle_share")
            if "oracle_found_share" in row:
                one["oracle_found"] = row["oracle_found_share"]
    return by_policy


def lost(one):
    """What the high task lost, in bounds: up to 1 the bound is kept. None: not known."""
    if not one.get("valid") or one.get("mean") is None:
        return None
    parts = [(one["mean"] - 1) / MEAN]
    if one.get("p99") is not None:
        parts.append((one["p99"] - 1) / P99)
    return round(max(parts), 9)  # 1.03 is within 3 %, whatever it is in binary


def keeps(one):
    loss = lost(one)
    return loss is not None and loss <= 1


def losses(one):
    """In words."""
    if lost(one) is None:
        return "no valid figure: " + (one.get("reason") or "no slowdown")
    return f"mean {one['mean']:.4f}x" + (f", p99 {one['p99']:.4f}x" if one.get("p99") is not None else "")


def judge(cases, whole=None):
    """`cases`: {name: (sharing, figures by policy)}. The bars, in their order. `whole`: those that are
    undecided(), played on until p99 can be told."""
    return [_bound(cases), _excess(cases), *(_at_least(cases, other, share, whole or {}) for other, share in OTHERS.items()),
            _something(cases), *_oracle(cases)]


def undecided(cases):
    """Names of those in which another policy would have to keep the bound for `guarded` to have given too
    little, and of whose requests there were too few to tell p99."""
    return list(dict.fromkeys(name for other, share in OTHERS.items() for name, _ in _at_least(cases, other, share, {}).failing
                              if cases[name][1][other].get("p99") is None))


def judge_stress(cases):
    """The bound once more, of the stressed cases."""
    return [dataclasses.replace(bar, name=name, wanted=f"stressed: {bar.wanted}")
            for name, bar in zip(STRESS, (_bound(cases), _excess(cases)))]


def _guarded(cases):
    return {name: by_policy[GUARDED] for name, (_, by_policy) in cases.items() if GUARDED in by_policy}


def _percent(share):
    return f"{100 * share:.1f} %"


def _bound(cases):
    ours = _guarded(cases)
    failing = [(name, losses(one)) for name, one in ours.items() if not keeps(one)]
    wanted = f"guarded keeps {100 * MEAN:g} % in the mean and {100 * P99:g} % at p99 in at least {100 * KEPT_SHARE:g} % of cases"
    if not ours:
        return Bar("bound", wanted, "no case", None)
    share = 1 - len(failing) / len(ours)
    return Bar("bound", wanted, f"{_percent(share)} of {len(ours)}", share >= KEPT_SHARE, failing, share)


def _excess(cases):
    ours = _guarded(cases)
    wanted = f"never more than {100 * MEAN * WORST_EXCESS:g} % in the mean or {100 * P99 * WORST_EXCESS:g} % at p99"
    if not ours:
        return Bar("excess", wanted, "no case", None)
    unknown = [(name, losses(one)) for name, one in ours.items() if lost(one) is None]
    known = {name: one for name, one in ours.items() if lost(one) is not None}
    failing = unknown + [(name, losses(one)) for name, one in known.items() if lost(one) > WORST_EXCESS]
    worst = max(known, key=lambda name: lost(known[name]), default=None)
    return Bar("excess", wanted, f"worst: {losses(known[worst])} ({worst})" if worst else "no valid figure", not failing, failing,
               lost(known[worst]) if worst else None)


def _at_least(cases, other, share, whole):
    """Where `other` keeps the bound, the low task has that share under guarded of what it has there."""
    wanted = f"where {other} keeps the bound, the low task gets at least {share:g} of what {other} gives it"
    found, failing, over = {}, [], 0

    def reached(by_policy):
        """None: `other` does not keep the bound, or gives nothing, of which anything is at least as much."""
        theirs, ours = by_policy.get(other), by_policy.get(GUARDED)
        if theirs is None or ours is None or not keeps(theirs) or not theirs.get("low"):
            return None
        return ratio(ours.get("low"), theirs["low"]) or 0.0

    for name, (_, by_policy) in cases.items():
        part = reached(by_policy)
        if part is not None and part < share and name in whole:
            by_policy = whole[name][1]
            part = reached(by_policy)
            over += part is None
        if part is None:
            continue
        found[name] = part
        if part < share:
            failing.append((name, f"{by_policy[GUARDED].get('low') or 0:.4f} against {by_policy[other]['low']:.4f}: {part:.3f}"))
    if not found:
        return Bar(other, wanted, "no case", None)
    worst = min(found, key=found.get)
    text = f"in {_percent(1 - len(failing) / len(found))} of {len(found)}; worst {found[worst]:.3f} ({worst})"
    if over:
        text += f"; {over} more do not count: of {REQUESTS_FOR_P99:,} requests {other} exceeds {100 * P99:g} % at p99"
    return Bar(other, wanted, text, not failing, failing, 1 - len(failing) / len(found))


def _something(cases):
    wanted = "the low task never gets nothing"
    lows = {name: one.get("low") or 0.0 for name, one in _guarded(cases).items()}
    if not lows:
        return Bar("something", wanted, "no case", None)
    least = min(lows, key=lows.get)
    failing = [(name, "nothing") for name, low in lows.items() if low <= 0]
    return Bar("something", wanted, f"least {lows[least]:.4f} of alone ({least})", not failing, failing, lows[least])


def _oracle(cases):
    shares = {name: by_policy[GUARDED]["oracle"] for name, (sharing, by_policy) in cases.items()
              if sharing == "serial" and by_policy.get(GUARDED, {}).get("oracle") is not None}
    wanted = [f"on a serial device the low task gets at least {ORACLE_MEDIAN:g} of what the oracle gives it in the median case",
              f"on a serial device it gets at least {ORACLE_WORST:g} of that in the worst case"]
    if not shares:
        return [Bar(name, text, "no oracle in these results", None) for name, text in zip(("oracle_median", "oracle_worst"), wanted)]
    middle, worst = median(shares.values()), min(shares, key=shares.get)
    return [Bar("oracle_median", wanted[0], f"{middle:.3f} of {len(shares)} cases", middle >= ORACLE_MEDIAN, value=middle),
            Bar("oracle_worst", wanted[1], f"{shares[worst]:.3f} ({worst})", shares[worst] >= ORACLE_WORST,
                [(name, f"{share:.3f}") for name, share in shares.items() if share < ORACLE_WORST], shares[worst])]
